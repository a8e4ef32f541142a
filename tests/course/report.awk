# report.awk: GoogleTest's JSON report, made flat by json.awk. With -v to=passed: the names of the tests that
# ran to their end without a failure; with -v to=failure: what the first failure says (-f text.awk).
BEGIN { FS = "\t" }
!match($1, /^testsuites\.[0-9]+\.testsuite\.[0-9]+\./) {
  if ($1 ~ /^testsuites\.[0-9]+\.name$/) suite = $2
  next
}
{
  test = substr($1, 1, RLENGTH); rest = substr($1, RLENGTH + 1)
  if (rest == "name") { name[test] = suite "." $2; order[++tests] = test }
  if (rest == "status") status[test] = $2
  if (rest == "result") result[test] = $2
  if (rest ~ /^failures\./) failed[test]
  if (rest ~ /^failures\.[0-9]+\.failure$/ && first == "") first = sentence(from_json($2))
}
END {
  if (to == "failure") print first
  else for (i = 1; i <= tests; i++) {
    test = order[i]
    if (status[test] == "RUN" && result[test] == "COMPLETED" && !(test in failed)) print name[test]
  }
}
