# student.awk: one source file as a student gets it (-v open=" 02.1 02.2 " -f student.awk FILE, root first).
# In an exercise that is open, its stub stands in place of the solution, below a comment that names the
# exercise and its page; in every other exercise the solution stands alone. The marks are gone from both.
/BEGIN SOLUTION/ {
  id = $0; sub(/.*BEGIN SOLUTION */, "", id); sub(/[ \t\r].*/, "", id)
  indent = $0; sub(/\/\/.*/, "", indent)
  closed = index(open, " " id " ") == 0; stub = ""
  if (!closed) print indent "// EXERCISE " id ": " page(id)
  next
}
id != "" && /\/\/ STUB:/ { stub = $0; sub(/.*\/\/ STUB: */, "", stub) }
id != "" && /END SOLUTION/ { if (!closed) print_stub(); id = ""; next }
id == "" || (closed && stub == "") { print }

# "todo(…); return x;" becomes two lines, and a line that is too long is broken after a comma.
function print_stub(    second, at) {
  second = match(stub, /\); *return [^;]*;$/) ? substr(stub, RSTART + 2) : ""
  if (second != "") { stub = substr(stub, 1, RSTART + 1); sub(/^ */, "", second) }
  if (length(indent stub) > 110) {
    for (at = 110 - length(indent); substr(stub, at, 2) != ", "; at--) ;
    print indent substr(stub, 1, at)
    stub = sprintf("%*s", index(stub, "("), "") substr(stub, at + 2)
  }
  print indent stub
  if (second != "") print indent second
}
function page(id) { return pages[substr(id, 1, 2)] }
BEGIN {
  n = split(lessons, folder, " ")
  for (i = 1; i <= n; i++)
    pages[substr(folder[i], 1, 2)] = "see lessons/" folder[i] "/README.md"
}
