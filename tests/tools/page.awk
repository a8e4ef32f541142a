# page.awk: prints a lesson's page with the results of runs put in (-f page.awk -v output=FILE [-v example=FILE] PAGE).
#   <!-- output: A; B -->     to <!-- end of output -->: the paragraphs of `output` whose first line begins with A or
#                             B; without a list, all of it
#   <!-- example -->          to <!-- end of example -->: the file `example`; without one, the example stays
#   1.016<!-- = gpt > loss #2 -->   the second number of the line "loss" below the line "gpt" in its paragraph, or in
#                             the next paragraph if "gpt" ends its own. #1 may be left out; a unit belongs to its number
# A name is the beginning of exactly one line; in a row of a table it ends where a column ends. One blank in a name stands
# for any number of blanks. In the columns "here" of a table, each cell with a digit needs such a mark. Errors are
# printed on standard error, with exit code 1.
BEGIN {
  number = "-?[0-9][0-9,]*(\\.[0-9]+)?(e[-+]?[0-9]+)?"
  unit = " ([KMG]i?B|B|ms|us|s|%)"
  while ((getline line < output) > 0) {
    text[++lines] = line
    plain[lines] = squeeze(line)
    gsub(/^ +| +$/, "", line)
    gsub(/   */, "\t", line)
    columns[lines] = line
  }
  if (!lines) fail(output " is missing or empty; run make lessons, then make readme")
}

/^<!-- end of (output|example) -->/ { skip = 0 }
skip { next }
/^<!-- output/ {
  print
  print "```"
  show($0)
  print "```"
  skip = 1
  next
}
/^<!-- example -->/ && example {
  print
  print "```"
  while ((getline line < example) > 0) print line
  print "```"
  skip = 1
  next
}
/^```/ { fenced = !fenced }
fenced { print; next }
{
  here_column()
  print with_values($0)
}
END { exit failed }

function fail(message) { print message > "/dev/stderr"; failed = 1 }
function squeeze(line) { gsub(/ +/, " ", line); sub(/^ /, "", line); sub(/ $/, "", line); return line }
# Does the line begin with these words, and not within a longer one?
function begins(line, words) {
  return index(line, words) == 1 && substr(line, length(words), 2) !~ /^[A-Za-z0-9][A-Za-z0-9]/
}

function show(mark,    i, k, wanted, n, shown, gap, paragraph) {
  sub(/^<!-- output:? */, "", mark)
  sub(/ *-->.*/, "", mark)
  n = split(mark, wanted, / *; */)
  paragraph = n == 0
  for (i = 1; i <= lines; ++i) {
    if (n > 0 && (i == 1 || text[i - 1] == "")) {
      if (text[i] != "") paragraph = 0
      for (k = 1; k <= n; ++k)
        if (begins(plain[i], wanted[k])) { paragraph = 1; found[k] = 1 }
    }
    if (!paragraph) continue
    if (text[i] == "") { gap = shown; continue }
    if (gap) print ""
    gap = 0; shown = 1
    print text[i]
  }
  for (k = 1; k <= n; ++k)
    if (!found[k]) fail(FILENAME ":" FNR ": no paragraph of " output " begins with '" wanted[k] "'")
}

function named(i, name) {
  return begins(plain[i], name) && (!index(columns[i], "\t") || substr(columns[i], length(name) + 1, 1) ~ /^\t?$/)
}

# The line of this name, of all or of those near the line `above`: below it in its paragraph, or, if it is the last
# one there, in the next paragraph.
function line_of(name, above,    i, found, count) {
  i = above + 1
  while (above && i <= lines && text[i] == "") ++i
  for (; i <= lines && !(above && text[i] == ""); ++i)
    if (named(i, name)) { found = i; ++count }
  if (count != 1)
    fail(FILENAME ":" FNR ": " (count ? "'" name "' is the name of " count " lines" : "no line has the name '" name "'") \
      (above ? " near '" plain[above] "'" : "") " of " output)
  return count == 1 ? found : 0
}

# Returns the number that a mark names.
function value(mark,    path, n, i, k, at, rest, which) {
  which = 1
  if (match(mark, / #[0-9]+$/)) {
    which = substr(mark, RSTART + 2) + 0
    mark = substr(mark, 1, RSTART - 1)
  }
  n = split(mark, path, / > /)
  for (k = 1; k <= n; ++k)
    if (!(i = line_of(path[k], i))) return "?"
  rest = substr(plain[i], length(path[n]) + 1)
  for (; which > 0; --which) {
    if (!match(rest, number)) { fail(FILENAME ":" FNR ": '" plain[i] "' has fewer numbers"); return "?" }
    at = substr(rest, RSTART, RLENGTH)
    rest = substr(rest, RSTART + RLENGTH)
    if (match(rest " ", "^" unit "[^A-Za-z]")) at = at substr(rest, 1, RLENGTH - 1)
  }
  return at
}

function with_values(line,    done, before, mark) {
  while (match(line, /<!-- = [^>]*( > [^>]*)* -->/)) {
    before = substr(line, 1, RSTART - 1)
    mark = substr(line, RSTART, RLENGTH)
    line = substr(line, RSTART + RLENGTH)
    # The last number before the mark is the old value; at first it may be a question mark.
    if (!match(before, "(" number "(" unit ")?|[?])$")) fail(FILENAME ":" FNR ": there is no number before " mark)
    done = done substr(before, 1, RSTART - 1) value(substr(mark, 8, length(mark) - 11)) mark
  }
  return done line
}

function here_column(    n, i, cell) {
  if ($0 !~ /^\|/) { in_table = 0; return }
  n = split($0, cell, "|")
  for (i = 2; i < n; ++i) {
    if (!in_table) here[i] = begins(squeeze(cell[i]), "here")
    else if (here[i] && cell[i] ~ /[0-9]/ && cell[i] !~ /<!-- = /)
      fail(FILENAME ":" FNR ": the number in column 'here' has no mark that names its line")
  }
  in_table = 1
}
