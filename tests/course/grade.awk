# grade.awk: the reports of grade.sh. With -v to=json it makes grade.json of rows (id, kind, points, most points,
# state, seconds, message; tabs between). With the other values of `to` it reads grade.json, made flat by json.awk:
# table (for a terminal), gradescope (results.json), junit (XML), autolab (the last line of a log).
#
# {"lesson": "02", "student": "…", "isolated": true,       false: it did not run as a user of its own
#  "exercises": [{"id": "02.1", "kind": "fill in", "points": 10, "max_points": 10,
#                 "state": "passed", "seconds": 0.31, "message": ""}],
#  "total": 10, "max": 30}
# state: passed, failed (a test said no), open (not handed in, or still a stub), not_built, timeout, memory, crashed;
# and grader_error, which says nothing about the student: its points are null, and so is the total. The messages are
# for students, of printable ASCII.
BEGIN { FS = "\t" }
to == "json" {
  error = error || $5 == "grader_error"; total += $3; max += $4
  list = list sprintf("%s\n    {\"id\": \"%s\", \"kind\": \"%s\", \"points\": %s, \"max_points\": %d, \"state\": \"%s\", " \
    "\"seconds\": %.2f, \"message\": \"%s\"}", n++ ? "," : "", $1, $2, $5 == "grader_error" ? "null" : $3, $4, $5, $6, json($7))
  next
}
$1 ~ /^exercises\./ { split($1, path, "."); value[path[2], path[3]] = $2; if (path[3] == "id") n++; next }
{ about[$1] = $2 }

END {
  if (to == "json") {
    printf "{\n  \"lesson\": \"%s\", \"student\": \"%s\", \"isolated\": %s,\n  \"exercises\": [%s\n  ],\n", lesson,
      json(student), isolated, list
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
    printf "%s  %-18s %4s of %2d  %-12s %s\n", value[i, "id"], value[i, "kind"], error_of(i) ? "?" : value[i, "points"],
      value[i, "max_points"], value[i, "state"], plain(value[i, "message"])
  if (about["isolated"] == "false")
    print "not isolated: what ran could do whatever you can; grade as root in a container, where it is a user without rights"
  if (error) print "no total: the grader could not do its work; no student is to lose points for it"
  else printf "lesson %s: %d of %d points\n", about["lesson"], about["total"], about["max"]
}
# Without a score there, Gradescope shows that the grader failed.
function gradescope(    i) {
  if (error) { printf "{\"output\": \"The grader failed; this says nothing about your work. Please tell your teacher.\"}\n"; return }
  printf "{\"score\": %d, \"tests\": [", about["total"]
  for (i = 0; i < n; i++)
    printf "%s\n  {\"name\": \"%s %s\", \"score\": %d, \"max_score\": %d, \"status\": \"%s\", \"output\": \"%s%s\"}",
      i ? "," : "", value[i, "id"], value[i, "kind"], value[i, "points"], value[i, "max_points"],
      value[i, "state"] == "passed" ? "passed" : "failed", value[i, "state"],
      value[i, "message"] == "" ? "" : ": " value[i, "message"]
  print "\n]}"
}
function junit(    i, errors, failures, tag, message) {
  for (i = 0; i < n; i++)
    if (error_of(i)) errors++; else if (value[i, "state"] != "passed") failures++
  print "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
  printf "<testsuite name=\"lesson %s\" tests=\"%d\" failures=\"%d\" errors=\"%d\">\n", about["lesson"], n, failures, errors
  for (i = 0; i < n; i++) {
    printf "  <testcase classname=\"lesson %s\" name=\"%s %s\" time=\"%s\"", about["lesson"], value[i, "id"],
      value[i, "kind"], value[i, "seconds"]
    tag = error_of(i) ? "error" : "failure"; message = xml(plain(value[i, "message"]))
    if (value[i, "state"] == "passed") print "/>"
    else printf "><%s type=\"%s\" message=\"%s\"/></testcase>\n", tag, value[i, "state"], message
  }
  print "</testsuite>"
}
function autolab(    i, list) {
  for (i = 0; i < n; i++) list = list (i ? ", " : "") "\"" value[i, "id"] "\": " value[i, "points"]
  print error ? "the grader failed; there are no scores" : "{\"scores\": {" list "}}"
}

function error_of(i) { return value[i, "state"] == "grader_error" }
function json(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return text }
function plain(text) { gsub(/\\"/, "\"", text); gsub(/\\\\/, "\\", text); return text }
function xml(text) { gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text); gsub(/"/, "\\&quot;", text); return text }
