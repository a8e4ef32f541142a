# failures.awk: of GoogleTest's XML reports (-f text.awk -f failures.awk FILES…), one line for each test that ran,
# with tabs between: Suite.Name, passed or failed, and what its first failure says, as a sentence for a student.
/<testcase / {
  end_of_test()
  if (!/ status="run"/ || / result="skipped"/) next
  name = attribute("name"); turn = ""
  if (match(name, "/")) { turn = substr(name, RSTART + 1) ": "; name = substr(name, 1, RSTART - 1) }
  n = split(attribute("classname"), part, "/")  # Devices/L03_Golden, or L03_Golden/0
  suite = part[1]
  for (i = 2; i <= n; i++) if (part[i] ~ /^L[0-9][0-9]_/) suite = part[i]
  test = suite "." name; said = ""
}
/<failure message="/ && said == "" { said = sentence(plain(attribute("message"))) }
END { end_of_test() }

function end_of_test() {
  if (test != "") print test "\t" (said == "" ? "passed" : "failed\t" turn said)
  test = ""
}
function attribute(key) {
  if (!match($0, " " key "=\"[^\"]*\"")) return ""
  return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 4)
}
function plain(xml) {
  gsub(/&#x0A;/, "\n", xml); gsub(/&#x09;/, " ", xml); gsub(/&quot;/, "\"", xml); gsub(/&apos;/, "'", xml)
  gsub(/&lt;/, "<", xml); gsub(/&gt;/, ">", xml); gsub(/&amp;/, "\\&", xml)
  return xml
}
