# verdict.awk: what the tests say about each exercise of a lesson. Reads, each after its name (as=…): the exercises
# (pages.awk), the tests that record one (tests.awk), the places of the exercises in the sources (grep -n), and the
# results of all tests (failures.awk). Prints what a student reads, and writes to the file `records` id, state and
# detail of each exercise.
BEGIN { FS = "\t" }
as == "exercises" { order[++exercises] = $1; judged_by[$1] = $4 }
as == "tests" { split($0, word, " "); tests[word[1]] = tests[word[1]] " " word[3]; id_of[word[3]] = word[1] }
as == "places" { look_at_place($0) }
as == "results" {
  ran[$1]
  if ($2 == "passed") next
  if (!is_judged(id_of[$1]) && !($1 in said)) others[++other] = $1
  if (!($1 in said) || prefer($3, said[$1])) said[$1] = $3
}
END {
  for (i = 1; i <= other; i++) if (id_of[others[i]] != "") report(others[i], " (" id_of[others[i]] ")")
  for (i = 1; i <= other; i++) if (id_of[others[i]] == "") report(others[i], "")
  if (failing > 5) print "and more: " failing - 5 "; the logs are in build/tests"
  if (waiting) print "tests that wait for exercises that are open: " waiting
  for (i = 1; i <= exercises; i++) if (is_judged(order[i])) judge(order[i])
  line = "lesson " lesson ": " count["passed"] + 0 " of " judged " exercises passed" list("passed")
  if (count["failed"]) line = line ", " count["failed"] (count["failed"] == 1 ? " FAILS" : " FAIL") list("failed")
  if (count["open"]) line = line ", " count["open"] " open" list("open")
  print line (failing ? "; other tests that fail: " failing : "")
}

function is_judged(id) { return judged_by[id] == "tests" }
function report(test, id) {
  if (said[test] ~ /exercise [0-9.]+ is open/) waiting++
  else if (++failing <= 5) print test id " fails: " said[test]
}
function judge(id,    test, n, i, words, state, detail) {
  n = split(tests[id], test, " ")
  for (i = 1; i <= n; i++) {
    if (!(test[i] in ran)) said[test[i]] = "its test " test[i] " did not run"
    if (test[i] in said && (words == "" || prefer(said[test[i]], words))) words = said[test[i]]
  }
  state = words == "" ? "passed" : "failed"
  if (match(words, /exercise [0-9.]+ is open/)) {
    state = "open"
    other_id = substr(words, RSTART + 9, RLENGTH - 17)
    detail = where(id)
    if (other_id != id && !stands[id]) detail = "its test needs " other_id ", which is open; your lines: " detail
  } else if (words != "") {
    detail = words "; your lines: " where(id)
  }
  if (state != "passed") print id (state == "open" ? " is open: " : " FAILS: ") detail
  print id "\t" state "\t" detail >records
  judged++; count[state]++; ids[state] = ids[state] (ids[state] == "" ? "" : ", ") id
}
function list(state) { return ids[state] == "" ? "" : " (" ids[state] ")" }

# Of two messages the one that names an exercise that is open, then the one that names an element.
function prefer(a, b) { return rank(a) > rank(b) }
function rank(words) { return words ~ /exercise [0-9.]+ is open/ ? 2 : words ~ /element/ }

# FILE:LINE:TEXT with a mark of an exercise, or with its stub.
function look_at_place(text,    part, id) {
  split(text, part, ":")
  match(text, /(BEGIN SOLUTION |EXERCISE |todo\(")[0-9]+\.[0-9]+/)
  id = substr(text, RSTART, RLENGTH); sub(/.*[ "]/, "", id)
  if (!(id in place)) place[id] = part[1] ":" part[2]
  if (text ~ /todo\("/ && text !~ /STUB:/) stands[id] = 1
}
function where(id) { return id in place ? place[id] : "see " page }
