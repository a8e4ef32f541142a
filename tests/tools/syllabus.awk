# syllabus.awk: prints the teacher's page with everything that follows from the lessons' times, points and prerequisites
# (-f syllabus.awk lessons/README.md lessons/NN_*/README.md tests/course/teacher/README.md).
#   <!-- graph --> to <!-- end of graph -->   which lesson needs which, for Mermaid; edges that follow from others are left out
#   <!-- needs --> to <!-- end of needs -->   hours and points of each lesson, alone and with all that it needs
#   tables with a column "lessons"            their columns "hours" (lecture included), "homework" (hours without the
#                                             lecture), "per week", "points" and "left out" are computed. In a cell ";"
#                                             separates weeks. The rows of a table whose first column is "week" are one
#                                             course, with its sum in a row "all"; in other tables each row is a course.
# Required are the lessons that a line of prerequisites names before the word "for"; those after it are optional. Errors
# are printed on standard error, with exit code 1: a course has all required lessons, in an order in which each lesson
# comes after, or in the same week as, those that it requires.
BEGIN { lecture = 1.5 }
FNR == 1 { ++file; nn = ""; if (match(FILENAME, /\/[0-9][0-9]_[^\/]*\//)) begin_page(substr(FILENAME, RSTART + 1, RLENGTH - 2)) }

file == 1 && /^\| [0-9][0-9] \|/ { split($0, cell, / *\| */); points[cell[2]] = cell[4]; table[cell[2]] = needs_of(cell[5]) }

nn && /^Time: [0-9.]+ hours?\. Prerequisites: / {
  hours[nn] = $2
  sub(/^.*Prerequisites: /, "")
  sub(/\. .*/, "")
  page[nn] = needs_of($0)
  required[nn] = before_bar(page[nn])
  optional[nn] = substr(page[nn], index(page[nn], "|") + 1)
}

file == 1 || nn { next }
FNR == 1 { close_all() }  # the teacher's page; all lessons are known
/^<!-- end of (graph|needs) -->/ { skip = 0 }
skip { next }
/^<!-- graph -->/ { print; graph(); skip = 1; next }
/^<!-- needs -->/ { print; needs(); skip = 1; next }
/^\|/ { row($0); next }
{ header = ""; print }
END { exit failed }

function fail(message) { print message > "/dev/stderr"; failed = 1 }
function begin_page(folder) {
  nn = substr(folder, 1, 2)
  name[nn] = folder
  gsub(/_/, " ", name[nn])
  lesson[++lessons] = nn
  every = every " " nn
}
function before_bar(text) { return substr(text, 1, index(text, "|") - 1) }

# "lessons 03 to 05 and 07; for some flags 09" is " 03 04 05 07 | 09 ".
function needs_of(text,    at) {
  gsub(/[0-9][0-9]\.[0-9]+/, "", text)
  at = match(text " for ", /(^|[^A-Za-z])for /)
  return numbers_in(substr(text, 1, at)) "|" numbers_in(substr(text, at))
}
function numbers_in(text,    list, first, last) {
  list = " "
  while (match(text, /[0-9][0-9]( to [0-9][0-9])?/)) {
    first = substr(text, RSTART, 2) + 0
    last = substr(text, RSTART + RLENGTH - 2, 2) + 0
    text = substr(text, RSTART + RLENGTH)
    for (; first <= last; ++first) list = list sprintf("%02d ", first)
  }
  return list
}
function has(list, one) { return index(list, " " one " ") > 0 }
function with(list, one) { return has(list, one) ? list : list one " " }
function minus(list, other,    n, part, i, rest) {
  n = split(list, part, " ")
  rest = " "
  for (i = 1; i <= n; ++i) if (!has(other, part[i])) rest = rest part[i] " "
  return rest
}

# all[NN]: the lessons that NN requires, and those that these require.
function close_all(    i, k, n, part, at, more) {
  for (i = 1; i <= lessons; ++i) {
    at = lesson[i]
    if (table[at] != page[at]) fail("lesson " at ": the prerequisites of its page differ from those in lessons/README.md")
    all[at] = required[at]
    n = split(required[at] optional[at], part, " ")
    for (k = 1; k <= n; ++k)
      if (!(part[k] in all) || part[k] == at) fail("lesson " at " needs lesson " part[k] ", which is not an earlier one")
    n = split(required[at], part, " ")
    while (n > 0) {
      split(all[part[n--]], more, " ")
      for (k in more) all[at] = with(all[at], more[k])
    }
  }
}

# Those of `list` that no other of `list` requires.
function direct(list,    n, part, i, k, kept) {
  n = split(list, part, " ")
  kept = " "
  for (i = 1; i <= n; ++i) {
    for (k = 1; k <= n && !has(all[part[k]], part[i]); ++k);
    if (k > n) kept = kept part[i] " "
  }
  return kept
}
function graph(    i) {
  print "```mermaid\ngraph LR"
  for (i = 1; i <= lessons; ++i) print "  L" lesson[i] "[\"" name[lesson[i]] "<br/>" hours[lesson[i]] " h\"]"
  for (i = 1; i <= lessons; ++i) edges(direct(required[lesson[i]]), " --> ", lesson[i])
  for (i = 1; i <= lessons; ++i) edges(minus(direct(optional[lesson[i]]), all[lesson[i]]), " -.-> ", lesson[i])
  print "```"
}
function edges(list, arrow, to,    n, part, i) {
  n = split(list, part, " ")
  for (i = 1; i <= n; ++i) print "  L" part[i] arrow "L" to
}
function needs(    i, at) {
  print "| lesson | hours | points | needs | hours with all that it needs |\n|---|---|---|---|---|"
  for (i = 1; i <= lessons; ++i) {
    at = lesson[i]
    print "| " name[at] " | " hours[at] " | " points[at] " | " short(direct(required[at])) " | " sum(hours, all[at] at) " |"
  }
}

function sum(of, list,    n, part, i, total) {
  n = split(list, part, " ")
  for (i = 1; i <= n; ++i) total += of[part[i]]
  return total + 0
}
# " 01 02 03 05 " is "01 to 03, 05".
function short(list,    i, k, text) {
  for (i = 1; i <= lessons; ++i) {
    if (!has(list, lesson[i])) continue
    for (k = i; k < lessons && has(list, lesson[k + 1]); ++k);
    text = text (text ? ", " : "") lesson[i] (k > i + 1 ? " to " : k > i ? ", " : "") (k > i ? lesson[k] : "")
    i = k
  }
  return text ? text : "-"
}

# A row of a table. `header` is the table's first row, split into `column`; `taught`: the lessons of the course so far.
function row(line,    n, i, cells, made) {
  n = split(line, cells, / *\| */)
  if (header == "") {
    header = line
    columns = split(line, column, / *\| */)
    at_lessons = 0
    for (i = 2; i < columns; ++i) if (column[i] == "lessons") at_lessons = i
    taught = " "
    weeks = 0
  } else if (at_lessons && cells[2] !~ /^-+$/) {
    if (n != columns) fail(FILENAME ":" FNR ": the row has " n - 2 " cells, its table " columns - 2)
    if (column[2] != "week") { taught = " "; weeks = 0 }
    if (cells[2] == "all") made = taught
    else made = teach(cells[at_lessons])
    if (cells[2] == "all") cells[at_lessons] = short(taught)
    if (cells[2] ~ /^[0-9]+ weeks$/ && cells[2] + 0 != weeks) fail(FILENAME ":" FNR ": " cells[2] ", but lessons for " weeks)
    line = "|"
    for (i = 2; i < columns; ++i) line = line " " computed(column[i], cells[i], made, cells[2] == "all") " |"
  }
  print line
}
function computed(what, cell, list, is_all) {
  if (what == "hours") return sum(hours, list)
  if (what == "homework") return sum(hours, list) - lecture * (is_all ? weeks : 1)
  if (what == "per week") return least " to " most
  if (what == "points") return sum(points, list)
  if (what == "left out") return short(minus(every, list))
  return cell
}
# Adds the weeks of a cell to the course; returns their lessons.
function teach(cell,    n, week, i, k, m, part, lacking, new, now) {
  new = " "
  n = split(cell, week, ";")
  for (i = 1; i <= n; ++i) {
    ++weeks
    now = numbers_in(week[i])
    m = split(now, part, " ")
    for (k = 1; k <= m; ++k) {
      if (!(part[k] in all)) { fail(FILENAME ":" FNR ": there is no lesson " part[k]); continue }
      if (has(taught, part[k])) fail(FILENAME ":" FNR ": lesson " part[k] " is there twice")
      taught = with(taught, part[k])
      new = with(new, part[k])
    }
    for (k = 1; k <= m; ++k) {
      lacking = short(minus(all[part[k]], taught))
      if (lacking != "-") fail(FILENAME ":" FNR ": lesson " part[k] " needs " lacking ", which no earlier week has")
    }
    if (i == 1 || sum(hours, now) < least) least = sum(hours, now)
    if (i == 1 || sum(hours, now) > most) most = sum(hours, now)
  }
  return new
}
