# pages.awk: the exercises on the lessons' pages (-f pages.awk lessons/*/README.md): id, points (0 where none are
# given), kind, and who judges that kind: the lesson's tests, predict_NN, faster_NN, or none here (a bug's test passes in
# the given sources; a discussion has none). With tabs between them.
/^- [0-9][0-9]\.[0-9]+ \*/ {
  split($0, part, "*")
  points = match(part[3], /^, [0-9]+ points:/) ? substr(part[3], 3) + 0 : 0
  print $2 "\t" points "\t" part[2] "\t" judge(part[2])
}
function judge(kind) {
  if (kind ~ /^(fill in|derive, then write|write a test)$/) return "tests"
  if (kind ~ /^(predict the number|trace by hand)$/) return "predict"
  return kind == "make it faster" ? "faster" : "none"
}
