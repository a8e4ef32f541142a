# page_parts.awk: cuts a lesson's page into its parts (awk -f page_parts.awk -f PROGRAM PAGE). PROGRAM finds at its END:
#   title        the text of the heading "# …"
#   part[NAME]   the Markdown below the heading "## NAME"; part[""] is the Markdown between the title and the first part
# The marks <!-- … -->, which say where a number comes from, are dropped; text in code blocks stays as it is.
/^```/ { fenced = !fenced }
!fenced && /^# / { title = substr($0, 3); next }
!fenced && /^## / { name = substr($0, 4); next }
{ part[name] = part[name] (fenced ? $0 : without_marks($0)) "\n" }

function without_marks(line,    begin, end) {
  while ((begin = index(line, "<!--")) && (end = index(substr(line, begin), "-->")))
    line = substr(line, 1, begin - 1) substr(line, begin + end + 2)
  return line
}
