# json.awk: a JSON file as lines "path<TAB>value", for example "rows.0.name<TAB>gpt". Objects and arrays may
# be nested at will; strings keep their escapes. Enough to read the reports that the lessons write.
{ text = text $0 "\n" }
END {
  while (length(text)) {
    if (match(text, /^[ \t\r\n]+/)) {
    } else if (match(text, /^[{[]/)) {
      depth++
      in_array[depth] = substr(text, 1, 1) == "["
      key[depth] = in_array[depth] ? 0 : ""
    } else if (match(text, /^[]}]/)) {
      depth--
    } else if (match(text, /^,/)) {
      if (in_array[depth]) key[depth]++; else key[depth] = ""
    } else if (match(text, /^:/)) {
    } else if (match(text, /^"([^"\\]|\\.)*"/)) {
      token(substr(text, 2, RLENGTH - 2), 1)
    } else if (match(text, /^[-+.0-9a-zA-Z]+/)) {
      token(substr(text, 1, RLENGTH), 0)
    } else {
      print "not JSON: " substr(text, 1, 40) > "/dev/stderr"
      exit 1
    }
    text = substr(text, RLENGTH + 1)
  }
  if (depth) { print "not JSON: it ends too early" > "/dev/stderr"; exit 1 }
}
function token(value, quoted,    path, i) {
  if (quoted && !in_array[depth] && key[depth] == "") { key[depth] = value; return }
  for (i = 1; i <= depth; i++) path = path (i > 1 ? "." : "") key[i]
  print path "\t" value
}
