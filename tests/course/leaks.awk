# leaks.awk: what of the solutions must stand nowhere in a student's tree (-v open=" 02.1 " -f leaks.awk
# SOURCES): the lines of the exercises that are open, without the blanks around them, if they are longer than
# 12 characters and in no line of the sources outside these solutions.
/BEGIN SOLUTION/ {
  id = $0; sub(/.*BEGIN SOLUTION */, "", id); sub(/[ \t\r].*/, "", id)
  inside = index(open, " " id " ") > 0
  next
}
/\/\/ STUB:/ { inside = 0 }
{
  line = $0; gsub(/^[ \t]+|[ \t\r]+$/, "", line)
  if (!inside) elsewhere[line]
  else if (length(line) > 12) secret[line]
}
END {
  for (line in elsewhere)
    for (s in secret)
      if (index(line, s)) delete secret[s]
  for (s in secret) print s
}
