# mutant.awk: one mutant of a file of mutants, tests/mutants/NN.txt, is put into the sources of this folder
# (awk -v name=NAME -f mutant.awk tests/mutants/NN.txt); prints the files that it changes. With -v only=look
# nothing is written. In such a file mutants are paragraphs:
#   NAME: the kind of mistake: what is wrong
#   survives: why the tests cannot notice it (hardly ever there)
#   FILE
#   -a line of FILE that the mutant takes out
#   +a line that it puts there
#    a line that stays (there is a blank before it), where the others would not be found without it
# and, of mutants with several changes, FILE and lines again. The lines of the old text must stand exactly once
# in FILE, one after the other. Exit code 1, and a sentence, if they do not.
function fault(sentence) { print "does not apply: " sentence; failed = 1; exit 1 }
function text_of(file,   line, text) {
  text = "\n"
  while ((getline line < file) > 0) text = text line "\n"
  close(file)
  return text
}
BEGIN { RS = "\n" }
/^$/ { inside = 0; next }
index($0, name ": ") == 1 { inside = found = 1; next }
!inside || /^survives: / { next }
/^[-+ ]/ {
  line = substr($0, 2) "\n"
  if (!/^[+]/) old[n] = old[n] line
  if (!/^-/) new[n] = new[n] line
  next
}
{ file[++n] = $0 }
END {
  if (failed) exit 1
  if (!found) fault("there is no mutant " name)
  for (i = 1; i <= n; i++) {
    if (!(file[i] in text)) text[file[i]] = text_of(file[i])
    at = index(text[file[i]], "\n" old[i])
    if (!at) fault("its old text does not stand in " file[i])
    rest = substr(text[file[i]], at + 1)
    if (index(rest, "\n" old[i])) fault("its old text stands more than once in " file[i])
    text[file[i]] = substr(text[file[i]], 1, at) new[i] substr(rest, length(old[i]) + 1)
  }
  for (f in text) {
    print f
    if (only == "look") continue
    printf "" > f
    ORS = ""
    print substr(text[f], 2) > f
    close(f)
    ORS = "\n"
  }
}
