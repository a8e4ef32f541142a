# planted.awk: the checks of the lessons' programs for which no test plants a wrong value
# (awk -f planted.awk FILES…, sources and tests; with -v count=1, the number of checks). It compares text:
#   a check is a call of check_at_most, check_at_least, check_equal or timing_at_least; its label is the first
#     argument. Text constants of its function, and file constants kName, are replaced by their text, and other
#     code between literals stands for any text;
#   a planted wrong is a list Names{…} of exactly one label in a *_test.cpp. failed_checks returns such a list, so the
#     test expects that this check fails and no other.
# A label must agree with a list in the lesson's tests from beginning to end; a label of lessons/published or src, with
# one in any lesson's tests. N checks that have the same label need N lists.
# It cannot tell whether a test compares the list with what the program's own function reports (the test fails if it
# does not), or whether the planted value is a mistake that happens.
BEGIN { CODE = "\001"; NAME = "\002" }
FNR == 1 { read_file(); path = FILENAME; text = "" }
{ text = text ($0 ~ /^ *\/\// || $0 ~ /^#/ ? "" : $0) "\n" }
END {
  read_file()
  if (count) { print checks; exit }
  for (i = 1; i <= checks; i++) {
    planted = 0
    for (j = 1; j <= lists; j++) planted += (group[i] == "" || group[i] == group_of[j]) && agrees(label[i], list[j])
    shown = label[i]; gsub(CODE, "…", shown)
    if (length(shown) < 8) print at[i] ": the check's label has no text of its own: write it in the call"
    else if (planted < same[group[i], label[i]])
      print at[i] ": no test of the lesson expects Names{\"" shown "\"}, so no planted wrong fails this check alone"
  }
}

function read_file(    rest, from, lines) {
  rest = text; from = 0
  while (path !~ /_test\.cpp$/ && match(rest, /(\.|->)(check_at_most|check_at_least|check_equal|timing_at_least)\(/)) {
    from += RSTART + RLENGTH - 1
    rest = substr(rest, RSTART + RLENGTH)
    lines = substr(text, 1, from)
    at[++checks] = path ":" gsub(/\n/, "", lines) + 1
    group[checks] = path ~ /^lessons\/[0-9][0-9]_/ ? substr(path, 9, 2) : ""
    label[checks] = element(from + 1)
    same[group[checks], label[checks]]++
  }
  while (path ~ /_test\.cpp$/ && match(rest, /[^A-Za-z_]Names( [a-z_A-Z0-9]+)?( = )?\{/)) {
    from += RSTART + RLENGTH - 1
    do {  # and the lists that follow in the same declaration
      rest = element(from + 1)
      if (last) { list[++lists] = rest; group_of[lists] = substr(path, match(path, /[^\/]*$/), 2) }
      rest = substr(text, from + 1)
    } while (last && match(substr(text, stop, 80), /^\},[ \n]+[a-z_A-Z0-9]+\{/) && (from = stop + RLENGTH - 1))
  }
}

# The text of the argument or element of a list at `i`, with CODE for other code; last: whether a list ends after it,
# at `stop`.
function element(i,    label, end, name, before, after) {
  label = pieces(i)
  last = c == "}"; end = stop
  while (match(label, NAME "[A-Za-z_0-9]+" NAME)) {
    name = substr(label, RSTART + 1, RLENGTH - 2)
    before = substr(label, 1, RSTART - 1); after = substr(label, RSTART + RLENGTH)
    label = before constant(name, i) after
  }
  stop = end
  gsub(CODE "+", CODE, label)
  return label
}

# Literals, NAME name NAME for names that are added to them, and CODE for other code.
function pieces(i,    found, depth, code) {
  for (found = code = ""; i <= length(text); i++) {
    c = substr(text, i, 1)
    if (c == "\"") {
      match(substr(text, i), /^"([^"\\]|\\.)*"/)
      if (code ~ /[?:][ \n]*$/) code = code "1"  # one of two texts: other code
      else { found = found code_text(code) substr(text, i + 1, RLENGTH - 2); code = "" }
      i += RLENGTH - 1
      continue
    }
    if (c == "'") i += substr(text, i + 1, 1) == "\\" ? 3 : 2
    if (depth == 0 && (c == "," || c == ";" || c == ")" || c == "}")) break
    depth += (c == "(" || c == "{" || c == "[") - (c == ")" || c == "}" || c == "]")
    code = code c
  }
  stop = i
  return found code_text(code)
}
function code_text(code,    n, part, k, out) {
  gsub(/std::string\(|[ \n]/, "", code)
  if (code !~ /[A-Za-z0-9]/) return ""
  if (code !~ /^[A-Za-z_0-9+]*$/) return CODE
  n = split(code, part, "+")
  for (k = 1; k <= n; k++) out = out (part[k] == "" ? "" : NAME part[k] NAME)
  return out
}
# The text of a constant that is defined before `i`: in the same function, or in the file if it is a kName.
function constant(name, i,    before, from, at_end, function_text) {
  before = substr(text, 1, i)
  from = 1
  if (name !~ /^k[A-Z]/)
    while (match(substr(before, from), /\n\}\n/)) from += RSTART + RLENGTH - 1
  at_end = 0
  function_text = substr(before, from)
  while (match(function_text, "[^A-Za-z_.]" name "(\\[\\])?( =[ \n]+|\\{)[A-Za-z_\"]")) {
    at_end = from + RSTART + RLENGTH - 2
    from += RSTART + RLENGTH - 2
    function_text = substr(before, from)
  }
  return at_end ? pieces(at_end) : CODE
}

# Whether the pieces of a label are in a list's text in order, the first at its beginning and the last at its end.
function agrees(label, text,    n, piece, k, found) {
  n = split(label, piece, CODE)
  if (n == 1) return label == text
  for (k = 1; k <= n; k++) {
    if (piece[k] == "") continue
    found = index(text, piece[k])
    if (!found || (k == 1 && found > 1)) return 0
    if (k == n) return substr(text, length(text) - length(piece[k]) + 1) == piece[k]
    text = substr(text, found + length(piece[k]))
  }
  return 1
}
