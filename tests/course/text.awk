# text.awk: functions of text, for awk programs that read or write reports (-f text.awk -f PROGRAM).

# What a message of GoogleTest says: the fact (what was got, what was expected) and the words that the test
# adds; the words alone if they have both.
function sentence(message,    line, n, at, fact, words) {
  if (match(message, /exercise [0-9]+\.[0-9]+ is open[^\n]*/)) {  # also in what a program printed
    fact = substr(message, RSTART, RLENGTH); sub(/" thrown in .*/, "", fact)
    return fact
  }
  n = split(message, line, "\n")
  at = 3
  if (line[2] ~ /^C\+\+ exception with description "/) {
    fact = message; sub(/^.*C\+\+ exception with description "/, "", fact); sub(/" thrown in .*/, "", fact)
    at = n + 1
  } else if (line[2] ~ /^Value of: /) {
    fact = substr(line[2], 11) " is " substr(line[3], 11) ", expected " substr(line[4], 11)
    at = 5
  } else if (line[2] ~ /^Expected equality of these values:/) {
    fact = trim(line[3])
    at = 4
    if (line[at] ~ /^    Which is: /) fact = fact " is " substr(line[at++], 15)
    fact = fact ", expected " trim(line[at++])
    if (line[at] ~ /^    Which is: /) fact = fact " = " substr(line[at++], 15)
  } else if (line[2] ~ /^The difference between .*, where$/) {
    fact = part_before(line[3], ",") ", expected " part_before(line[4], ", and")
    sub(/expected expected evaluates to /, "expected ", fact)
    sub(/ evaluates to /, " is ", fact); sub(/ evaluates to /, " = ", fact)
    at = 6
  } else {
    fact = line[2]
    sub(/, actual: 18446744073709551615 vs 18446744073709551615/, ", but it is not found", fact)  # find() != npos
  }
  for (; at <= n; at++) words = words (words == "" ? "" : " ") trim(line[at])
  gsub(/\n/, " ", fact)
  if (words ~ /expected/ && words ~ /got/) return shortened(words, 400)
  return shortened(fact, 250) (words == "" ? "" : " (" shortened(words, 250) ")")
}
function shortened(s, most) { return length(s) > most ? substr(s, 1, most) " …" : s }
function trim(s) { gsub(/^ +| +$/, "", s); return s }
function part_before(s, end) { return substr(s, 1, length(s) - length(end)) }

# A string of JSON, without its quotes, as text (of \uNNNN is made a question mark), and the other way round.
function from_json(s) {
  s = replace(replace(replace(replace(replace(s, "\\\\", "\001"), "\\n", "\n"), "\\t", " "), "\\\"", "\""), "\\/", "/")
  gsub(/\\u[0-9A-Fa-f][0-9A-Fa-f][0-9A-Fa-f][0-9A-Fa-f]/, "?", s)
  return replace(s, "\001", "\\")
}
function to_json(s) { return replace(replace(s, "\\", "\\\\"), "\"", "\\\"") }
function to_xml(s) {
  s = replace(replace(replace(s, "&", "&amp;"), "<", "&lt;"), ">", "&gt;")
  return replace(s, "\"", "&quot;")
}
function replace(s, from, to,    at, done) {
  while ((at = index(s, from)) > 0) {
    done = done substr(s, 1, at - 1) to
    s = substr(s, at + length(from))
  }
  return done s
}
