# results.awk: the table of results of `make lessons`, from results.tsv and the NN.json files beside it, as
# text or, with -v table=markdown, for README.md. Exits with 1 if a lesson failed (text only).
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

# Sets `peak`, the most that any variant needed, and `checks`, from a lesson's report.
function read_report(json,    command, line, field, most, good, bad) {
  command = "awk -f tests/tools/json.awk " json " 2>/dev/null"
  while ((command | getline line) > 0) {
    split(line, field, "\t")
    if (field[1] ~ /^rows\.[0-9]+\.peak_bytes$/ && field[2] + 0 > most) most = field[2] + 0
    if (field[1] ~ /^checks\.[0-9]+\.pass$/) { good += field[2] == "true"; bad += field[2] == "false" }
  }
  close(command)
  peak = most ? sprintf("%.1f MiB", most / 1048576) : "-"
  checks = good + 0 " of " good + bad
}
# The heading of the lesson's page, "# 03 transformer: what it shows", without what precedes the colon.
function title(lesson,    line, page) {
  page = "lessons/" lesson "/README.md"
  if ((getline line < page) <= 0) return ""
  close(page)
  sub(/^#[^:]*: */, "", line)
  return line
}
