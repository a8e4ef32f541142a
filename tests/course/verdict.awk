# verdict.awk: what the tests say. Reads, each after its name (as=…): the exercises of a lesson (pages.awk), the tests
# that record one (tests.awk), the places of the exercises in the sources (grep -n), the exercises that are judged,
# and results of tests (failures.awk). With part=exercises, of each of them: prints what a student reads, and writes to
# the file `records` id, state and detail. With part=others: prints what of other tests fails. The exit code is 1 if
# something fails.
BEGIN { FS = "\t" }
as == "exercises" { order[++exercises] = $1 }
as == "ids" { asked[$1] }
as == "tests" { split($0, word, " "); tests[word[1]] = tests[word[1]] " " word[3]; id_of[word[3]] = word[1] }
as == "places" { look_at_place($0) }
as == "results" {
  if (!($1 in ran)) results[++ran_tests] = $1
  ran[$1]
  if ($2 == "failed" && (!($1 in said) || prefer($3, said[$1]))) said[$1] = $3
}
END {
  if (part == "exercises") tell_exercises(); else tell_others()
  exit failing > 0
}

function tell_exercises(    i, line) {
  for (i = 1; i <= exercises; i++) if (order[i] in asked) judge(order[i])
  line = "lesson " lesson ": " count["passed"] + 0 " of " judged (judged == 1 ? " exercise" : " exercises") " passed" list("passed")
  if (count["failed"]) line = line ", " count["failed"] (count["failed"] == 1 ? " FAILS" : " FAIL") list("failed")
  if (count["open"]) line = line ", " count["open"] " open" list("open")
  print line
  failing = count["failed"]
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

function tell_others(    i, test, line) {
  for (i = 1; i <= ran_tests; i++) {
    test = results[i]
    if (!(test in said)) passed++
    else if (said[test] ~ /exercise [0-9.]+ is open/) waiting++
    else if (++failing <= 5) print test (test in id_of ? " (" id_of[test] ")" : "") " FAILS: " said[test]
  }
  if (failing > 5) print "and more: " failing - 5 "; the log is build/tests/" lesson ".log"
  line = passed + 0 " passed"
  if (failing) line = line ", " failing (failing == 1 ? " FAILS" : " FAIL")
  print line (waiting ? ", " waiting " open (they wait for exercises)" : "")
}

# Of two messages the one that names an exercise that is open, then the one that names an element.
function prefer(a, b) { return rank(a) > rank(b) }
function rank(words) { return words ~ /exercise [0-9.]+ is open/ ? 2 : words ~ /element/ }

# FILE:LINE:TEXT with a mark of an exercise, or with its stub.
function look_at_place(text,    field, id) {
  split(text, field, ":")
  match(text, /(BEGIN SOLUTION |EXERCISE |todo\(")[0-9]+\.[0-9]+/)
  id = substr(text, RSTART, RLENGTH); sub(/.*[ "]/, "", id)
  if (!(id in place)) place[id] = field[1] ":" field[2]
  if (text ~ /todo\("/ && text !~ /STUB:/) stands[id] = 1
}
function where(id) { return id in place ? place[id] : "see " page }
