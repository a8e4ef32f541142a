# grade.awk: the reports of grade.sh (-f text.awk -f grade.awk). With -v to=json it makes grade.json of rows
# (id, kind, points, most points, state, seconds, message; tabs between). With other values of `to` it reads
# grade.json, made flat by json.awk: table (for a terminal), gradescope (results.json), junit (XML), autolab
# (a log's last line).
#
# {"lesson": "02", "student": "...", "isolated": true,     false: it did not run as a user of its own
#  "exercises": [{"id": "02.1", "kind": "fill in", "points": 10, "max_points": 10,
#                 "state": "passed", "seconds": 0.31, "message": ""}],
#  "total": 10, "max": 30}
# state: passed, failed (a test said no), open (not handed in, or still a stub), not_built, timeout, memory,
# crashed; and grader_error, which says nothing about the student: its points are null, and so is the total.
# The messages are for students, of printable ASCII.
BEGIN { FS = "\t" }
to == "json" {
  error = error || $5 == "grader_error"; total += $3; max += $4
  list = list sprintf("%s\n    {\"id\": \"%s\", \"kind\": \"%s\", \"points\": %s, \"max_points\": %d, ",
    n++ ? "," : "", $1, $2, $5 == "grader_error" ? "null" : $3, $4)
  list = list sprintf("\"state\": \"%s\", \"seconds\": %.2f, \"message\": \"%s\"}", $5, $6, to_json($7))
  next
}
$1 ~ /^exercises\./ { split($1, path, "."); value[path[2], path[3]] = $2; if (path[3] == "id") n++; next }
{ about[$1] = $2 }

END {
  if (to == "json") {
    printf "{\n  \"lesson\": \"%s\", \"student\": \"%s\", ", lesson, student
    printf "\"isolated\": %s,\n", isolated
    printf "  \"exercises\": [%s\n  ],\n", list
    printf "  \"total\": %s, \"max\": %d\n}\n", error ? "null" : total + 0, max
    exit
  }
  error = about["total"] == "null"
  if (to == "table") table()
  if (to == "gradescope") gradescope()
  if (to == "junit") junit()
  if (to == "autolab") autolab()
}

function table(    i) {
  for (i = 0; i < n; i++)
    printf "%s  %-18s %4s of %2d  %-12s %s\n", value[i, "id"], value[i, "kind"],
      error_of(i) ? "?" : value[i, "points"], value[i, "max_points"], value[i, "state"],
      from_json(value[i, "message"])
  if (about["isolated"] == "false")
    print "not isolated: the code ran with your rights; as root it runs as a user who has none"
  if (error) print "no total: the grader could not do its work; no student is to lose points for it"
  else printf "lesson %s: %d of %d points\n", about["lesson"], about["total"], about["max"]
}
# Without a score there, Gradescope shows that the grader failed.
function gradescope(    i) {
  if (error) {
    print "{\"output\": \"The grader failed; this says nothing about your work. Please tell your teacher.\"}"
    return
  }
  printf "{\"score\": %d, \"tests\": [", about["total"]
  for (i = 0; i < n; i++) {
    printf "%s\n  {\"name\": \"%s %s\", \"score\": %d, \"max_score\": %d, ", i ? "," : "", value[i, "id"],
      value[i, "kind"], value[i, "points"], value[i, "max_points"]
    printf "\"status\": \"%s\", \"output\": \"%s%s\"}", value[i, "state"] == "passed" ? "passed" : "failed",
      value[i, "state"], value[i, "message"] == "" ? "" : ": " value[i, "message"]
  }
  print "\n]}"
}
function junit(    i, errors, failures, tag, message) {
  for (i = 0; i < n; i++)
    if (error_of(i)) errors++; else if (value[i, "state"] != "passed") failures++
  print "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
  printf "<testsuite name=\"lesson %s\" tests=\"%d\" failures=\"%d\" errors=\"%d\">\n", about["lesson"], n,
    failures, errors
  for (i = 0; i < n; i++) {
    printf "  <testcase classname=\"lesson %s\" name=\"%s %s\" time=\"%s\"", about["lesson"],
      value[i, "id"], value[i, "kind"], value[i, "seconds"]
    tag = error_of(i) ? "error" : "failure"; message = to_xml(from_json(value[i, "message"]))
    if (value[i, "state"] == "passed") print "/>"
    else printf "><%s type=\"%s\" message=\"%s\"/></testcase>\n", tag, value[i, "state"], message
  }
  print "</testsuite>"
}
function autolab(    i, list) {
  for (i = 0; i < n; i++) list = list (i ? ", " : "") "\"" value[i, "id"] "\": " value[i, "points"]
  print error ? "the grader failed; this says nothing about your work" : "{\"scores\": {" list "}}"
}

function error_of(i) { return value[i, "state"] == "grader_error" }
