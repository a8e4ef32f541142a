# failures.awk: of GoogleTest's XML reports, one line for each test that ran, with tabs between: Suite.Name, passed or
# failed, and what its first failure says, as a sentence for a student.
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

# What a message of GoogleTest says: the fact (what was got, what was expected) and the words that the test adds;
# the words alone if they have both.
function sentence(message,    line, n, at, fact, words) {
  if (match(message, /exercise [0-9]+\.[0-9]+ is open[^\n]*/)) {  # also in what a program printed
    fact = substr(message, RSTART, RLENGTH); sub(/" thrown in .*/, "", fact)
    return fact
  }
  n = split(message, line, "\n")
  at = 3
  if (line[2] ~ /^C\+\+ exception with description "/) {
    fact = message; sub(/^.*C\+\+ exception with description "/, "", fact); sub(/" thrown in .*/, "", fact)
    at = n + 1
  } else if (line[2] ~ /^Value of: /) {
    fact = substr(line[2], 11) " is " substr(line[3], 11) ", expected " substr(line[4], 11)
    at = 5
  } else if (line[2] ~ /^Expected equality of these values:/) {
    fact = trim(line[3])
    at = 4
    if (line[at] ~ /^    Which is: /) fact = fact " is " substr(line[at++], 15)
    fact = fact ", expected " trim(line[at++])
    if (line[at] ~ /^    Which is: /) fact = fact " = " substr(line[at++], 15)
  } else if (line[2] ~ /^The difference between .*, where$/) {
    fact = part_before(line[3], ",") ", expected " part_before(line[4], ", and")
    sub(/expected expected evaluates to /, "expected ", fact)
    sub(/ evaluates to /, " is ", fact); sub(/ evaluates to /, " = ", fact)
    at = 6
  } else {
    fact = line[2]
  }
  for (; at <= n; at++) words = words (words == "" ? "" : " ") trim(line[at])
  gsub(/\n/, " ", fact)
  if (words ~ /expected/ && words ~ /got/) return shortened(words, 400)
  return shortened(fact, 250) (words == "" ? "" : " (" shortened(words, 250) ")")
}
function shortened(s, most) { return length(s) > most ? substr(s, 1, most) " …" : s }
function trim(s) { gsub(/^ +| +$/, "", s); return s }
function part_before(s, end) { return substr(s, 1, length(s) - length(end)) }
