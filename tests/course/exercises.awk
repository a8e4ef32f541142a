# exercises.awk: the marks of the exercises (-f exercises.awk FILES…). Between BEGIN SOLUTION NN.k and END
# SOLUTION NN.k stand at most 15 lines and one "// STUB:" line; each mark has a line of its own.
# Prints what is wrong as "FILE:LINE: …", and "exercise NN.k FILE:LINE" for each that is well marked.
FNR == 1 { finish() ; id = "" }
/(BEGIN|END) SOLUTION/ && !/^ *\/\/ (BEGIN|END) SOLUTION [^ ]*$/ || /\/\/ STUB:/ && !/^ *\/\/ STUB: .*;$/ {
  print FILENAME ":" FNR ": a mark has a line of its own, and a stub ends with ;"
}
/BEGIN SOLUTION/ {
  if (id != "") print place ": BEGIN SOLUTION " id " has no END"
  id = mark("BEGIN SOLUTION"); place = FILENAME ":" FNR; lines = 0; stubs = 0
  if (id !~ /^[0-9][0-9]\.[0-9]+$/) print place ": an exercise is named NN.k, not " id
  else if (seen[id]++) print place ": exercise " id " is marked twice"
  next
}
/END SOLUTION/ {
  if (mark("END SOLUTION") != id)
    print FILENAME ":" FNR ": END SOLUTION " mark("END SOLUTION") " does not close " (id == "" ? "anything" : id)
  else if (stubs != 1) print place ": exercise " id " has " stubs " STUB lines, not one"
  else if (lines > 15) print place ": exercise " id " has " lines " lines; the most is 15"
  else print "exercise " id " " place
  id = ""
  next
}
/\/\/ STUB:/ { if (id == "") print FILENAME ":" FNR ": STUB outside an exercise"; stubs++; next }
id != "" && !stubs { lines++ }
END { finish() }
function finish() { if (id != "") print place ": BEGIN SOLUTION " id " has no END" }
function mark(word,    rest) {
  rest = $0; sub(".*" word " *", "", rest); sub(/[ \t\r].*/, "", rest)
  return rest
}
