# functions.awk: functions longer than `limit` lines (-v limit=60 -f functions.awk FILES…), as
# "PATH:FUNCTION LINE LENGTH". It follows braces: a function opens a brace after parentheses, and only inside
# namespaces and types. This is right for code that clang-format has formatted.
FNR == 1 { depth = 0; inside = 0; head = ""; raw = ""; comment = 0; macro = 0 }
{
  line = $0
  if (raw != "") { if (!(k = index(line, raw))) next; line = substr(line, k + length(raw)); raw = "" }
  if (macro || line ~ /^[ \t]*#/) { macro = line ~ /\\$/; next }
  scan(code_of(line))
}
# The line without comments, strings and characters, which become "".
function code_of(line,    out, k, two) {
  out = ""
  while (length(line)) {
    two = substr(line, 1, 2)
    if (comment) {
      if (!(k = index(line, "*/"))) return out
      line = substr(line, k + 2); comment = 0
    } else if (two == "//") return out
    else if (two == "/*") { comment = 1; line = substr(line, 3) }
    else if (match(line, /^R"[^(]*\(/)) {
      raw = ")" substr(line, 3, RLENGTH - 3) "\""
      if (!(k = index(line, raw))) return out "\"\""
      line = substr(line, k + length(raw)); raw = ""; out = out "\"\""
    } else if (match(line, /^[0-9]'/)) { out = out substr(line, 1, 1); line = substr(line, 3) }
    else if (match(line, /^"([^"\\]|\\.)*"/) || match(line, /^'([^'\\]|\\.)*'/)) {
      out = out "\"\""; line = substr(line, RLENGTH + 1)
    } else { out = out substr(line, 1, 1); line = substr(line, 2) }
  }
  return out
}
function scan(code,    i, c) {
  for (i = 1; i <= length(code); i++) {
    c = substr(code, i, 1)
    if (c == "{") {
      depth++
      if (!inside && !is_scope(head)) { inside = depth; name = name_of(head); first = start ? start : FNR }
      head = ""; start = 0
    } else if (c == "}") {
      if (depth == inside) {
        if (name != "" && FNR - first + 1 > limit) print FILENAME ":" name, first, FNR - first + 1
        inside = 0
      }
      depth--; head = ""; start = 0
    } else if (c == ";") { head = ""; start = 0 }
    else if (!inside) { if (c != " " && c != "\t" && !start) start = FNR; head = head c }
  }
  head = head " "
}
function is_scope(head) {
  return head !~ /\(/ && head ~ /(^|[^a-z_])(namespace|struct|class|union|enum|extern)([^a-z_]|$)/
}
# The identifier before the first parenthesis; empty for an initializer, which has none.
function name_of(head) {
  if (!match(head, /[A-Za-z_~][A-Za-z_0-9:~]*[ ]*\(/)) return ""
  head = substr(head, RSTART, RLENGTH - 1)
  gsub(/ /, "", head)
  return head
}
