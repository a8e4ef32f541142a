# progress.awk: the screen of `make progress`. Reads, with an empty line between: the hashes of the sources
# (hashes.awk), the exercises (pages.awk), build/progress.tsv.
BEGIN {
  FS = "\t"
  split("✓ ✗ ○ ~ ·", symbol, " ")
  split("32 31 0 33 2", colour, " ")
  split("passed,failed,open,stale,not tried", state_name, ",")
  for (i in state_name) number[state_name[i]] = i
}
$0 == "" { section++; next }
section == 0 { split($0, part, " "); now[part[1]] = part[2] }
section == 1 { order[++exercises] = $1; points[$1] = $2; judge[$1] = $4 }
section == 2 { state[$1] = $2; hash[$1] = $3; detail[$1] = $4 }
END {
  n = split(lessons, folder, " ")
  for (i = 1; i <= exercises; i++)
    if (is_shown(order[i]) && ++cells[substr(order[i], 1, 2)] > widest) widest++
  for (i = 1; i <= n; i++) show_lesson(substr(folder[i], 9))
  if (look == "colour") {
    for (i = 1; i <= 5; i++) legend = legend painted(i, symbol[i] " " state_name[i]) "  "
    print legend
  }
  for (i = 1; i <= exercises; i++)
    if (state_of(order[i]) == "failed") print order[i] " fails: " detail[order[i]]
  if (stale) anew = "; stale: the sources changed since; make test-NN, or predict-NN, judges anew"
  print sum + 0 " of " all + 0 " points" anew
}

# Exercises for practice, which have no points, are shown once they have a result.
function is_shown(id) { return points[id] > 0 || id in state }
function show_lesson(name,    nn, i, id, line, got, most) {
  nn = substr(name, 1, 2)
  line = sprintf("%-22s", name)
  for (i = 1; i <= exercises; i++) {
    id = order[i]
    if (substr(id, 1, 2) != nn || !is_shown(id)) continue
    line = line cell(id, number[state_of(id)])
    most += points[id]
    if (state_of(id) == "passed") got += points[id]
    if (state_of(id) == "stale") stale = 1
  }
  print line sprintf("%*s%3d of %d points", (widest - cells[nn]) * (look == "colour" ? 8 : 16), "", got, most)
  sum += got; all += most
}
function cell(id, k) {
  if (look == "colour") return painted(k, symbol[k] " " id) "  "
  return sprintf("%-16s", id " " state_name[k])
}
function painted(k, text) { return "\033[" colour[k] "m" text "\033[0m" }
function state_of(id) {
  if (!(id in state)) return "not tried"
  return hash[id] == now[substr(id, 1, 2) (judge[id] == "predict" ? ".answers" : "")] ? state[id] : "stale"
}
