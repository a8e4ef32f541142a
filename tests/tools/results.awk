# results.awk: the table of results of `make lessons`, from results.tsv and the NN.json files in its folder, as text
# or, with -v table=markdown, for README.md. Exits with 1 if a lesson failed (text only).
BEGIN { FS = "\t" }
FNR == 1 { folder = FILENAME; sub(/[^\/]*$/, "", folder) }
{ lesson = $1; status = $2; seconds = $3; read_report(folder substr(lesson, 1, 2) ".json") }
table == "markdown" && FNR == 1 {
  print "| lesson | what it shows | time | memory at the peak | checks |"
  print "|---|---|---|---|---|"
}
table == "markdown" {
  printf "| [%s](lessons/%s/README.md) | %s ", lesson, lesson, title(lesson)
  printf "| %d s | %s | %s |\n", seconds, peak, checks
}
table == "text" {
  if (FNR == 1) printf "%-24s %6s %8s %12s  %s\n", "lesson", "result", "time", "peak", "checks passed"
  printf "%-24s %6s %6d s %12s  %s\n", lesson, status ? "FAIL" : "PASS", seconds, peak, checks
  failed += status != 0
}
END { if (table == "text") exit failed > 0 }

# Sets `peak`, the maximum over a lesson's variants, and `checks`, from its report.
function read_report(json,    line, text, most, good, bytes) {
  while ((getline line < json) > 0) text = text line
  close(json)
  good = gsub(/"pass":true/, "&", text)
  checks = good " of " good + gsub(/"pass":false/, "&", text)
  for (; match(text, /"peak_bytes": *[0-9]+/); text = substr(text, RSTART + RLENGTH)) {
    bytes = substr(text, RSTART, RLENGTH); sub(/.*[: ]/, "", bytes)
    if (bytes + 0 > most) most = bytes + 0
  }
  peak = most ? sprintf("%.1f MiB", most / 1048576) : "-"
}
# The text after the colon in the heading of the lesson's page, "# 03 transformer: what it shows".
function title(lesson,    line, page) {
  page = "lessons/" lesson "/README.md"
  if ((getline line < page) <= 0) return ""
  close(page)
  sub(/^#[^:]*: */, "", line)
  return line
}
