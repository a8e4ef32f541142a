# teacher.awk: whether a lesson's notes for teachers have their parts and answer what no machine judges
# (awk -v nn=NN -f teacher.awk PAGE NOTES). A kind of exercise that a machine judges has no model answer, unless the
# heading says in parentheses which part it does not judge.
BEGIN {
  split("Objectives|Plan for 90 minutes|Answers to Read|Model answers|Usual wrong answers|Examination questions", parts, "|")
  judged = "^(fill in|derive, then write|write a test|predict the number|trace by hand)$"
}
FNR == 1 { file++; part = "" }
file == 1 && /^# / { title = $0; sub(/^[^:]*: /, "", title) }
file == 1 && /^## / { part = substr($0, 4) }
file == 1 && part == "Read" && /^([0-9]+\. |\| *[^-| ])/ { questions += !/^\| *file, in this order/ }
file == 1 && part == "Exercises" && match($0, /^- [0-9]+\.[0-9]+ \*[^*]*\*/) {
  exercise = substr($0, 3, RLENGTH - 3); sub(/\*/, "", exercise)
  kind = exercise; sub(/^[^ ]* /, "", kind)
  if (kind !~ judged) expected[++exercises] = exercise
  place[exercise] = ++places
}
file == 1 && part == "Exercises" && /^For discussion:/ { expected[++exercises] = "For discussion" }

file == 2 && FNR == 1 && $0 != "# Teacher's notes for lesson " nn ": " title {
  say("its first line is not '# Teacher's notes for lesson " nn ": " title "'")
}
file == 2 && /^## / {
  close_answer()
  part = substr($0, 4)
  if (part != parts[++n]) say("its part " n " is '" part "'; expected '" parts[n] "'")
}
file == 2 && part ~ /^Plan/ && /^\| *[0-9]+ *\|/ { split($0, cell, "|"); minutes += cell[2] }
file == 2 && part == "Answers to Read" && match($0, /^[0-9]+\. /) { answers += $1 == answers + 1 "." }
file == 2 && part == "Model answers" && /^### / {
  close_answer()
  answer = substr($0, 5)
  exercise = answer; sub(/ \([^()]*\)$/, "", exercise)
  if (answer ~ /^For discussion/) exercise = "For discussion"
  if (exercise == expected[given + 1]) given++
  else if (exercise == answer || !(exercise in place)) say("'### " answer "' is not the next model answer" (given < exercises ? "; expected '### " expected[given + 1] "'" : ""))
}
file == 2 && /^Points: / { points++ }
file == 2 && /\*Answer\.\*/ { solved++ }
END {
  if (n < 6) say("it lacks the part '" parts[n + 1] "'")
  if (minutes != 90) say("the minutes of its plan add up to " minutes + 0)
  if (answers != questions) say(answers + 0 " numbered answers to the " questions " questions of the page's Read")
  if (given < exercises) say("it lacks the model answer '### " expected[given + 1] "'")
  if (solved != 2 || points < 2) say("its examination has " solved + 0 " answers ('*Answer.*') and " points + 0 " lines 'Points: '; expected 2")
}
function close_answer() {
  if (answer != "" && !points) say("'### " answer "' has no line 'Points: …'")
  answer = ""; points = 0
}
function say(what) { print FILENAME ": " what }
