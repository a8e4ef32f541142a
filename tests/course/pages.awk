# pages.awk: the exercises on the lessons' pages (-f pages.awk lessons/*/README.md): id, points (0 where none are
# given) and kind, with tabs between them. What is traced by hand is judged as a prediction is.
/^- [0-9][0-9]\.[0-9]+ \*/ {
  split($0, part, "*")
  points = match(part[3], /^, [0-9]+ points:/) ? substr(part[3], 3) + 0 : 0
  print $2 "\t" points "\t" (part[2] == "trace by hand" ? "predict the number" : part[2])
}
