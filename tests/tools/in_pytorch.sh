#!/bin/sh
# in_pytorch.sh PYTHON PAGE...: runs the Python of each page, its blocks that begin with ```python. The numbers that it
# prints, at least 4, must be in the page's example, in the same order. A page without Python, or whose packages this
# Python does not have, is named and skipped. The last line counts the pages; the exit code is 0 if no page
# differs and one at least is the same.
python=$1
shift
code=$(mktemp) printed=$(mktemp) errors=$(mktemp)
trap 'rm -f "$code" "$printed" "$errors"' EXIT
same=0 skipped=0 differ=0
for page in "$@"; do
  awk '/^```/ { inside = $0 == "```python"; next } inside' "$page" >"$code"
  if ! [ -s "$code" ]; then
    echo "$page: has no Python"
    skipped=$((skipped + 1))
  elif ! "$python" "$code" >"$printed" 2>"$errors"; then
    echo "$page: $(tail -1 "$errors")"
    if grep -q '^ModuleNotFoundError' "$errors"; then skipped=$((skipped + 1)); else differ=$((differ + 1)); fi
  elif awk '
    # Puts the numbers of a line behind those of `list`; digits within a word, as in x1, are none.
    function add(list, line,   n) {
      while (match(line, /(^|[^A-Za-z0-9_.])-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?/)) {
        n = substr(line, RSTART, RLENGTH)
        sub(/^[^-0-9]/, "", n)
        list[++count] = n + 0
        line = substr(line, RSTART + RLENGTH)
      }
    }
    FNR == 1 { file++; count = 0 }
    file == 1 { add(from_python, $0); printed = count; next }
    /^<!-- end of example/ { inside = 0 }
    inside { add(example, $0); shown = count }
    /^<!-- example/ { inside = 1 }
    END {
      for (i = 1; i <= printed; ++i) {
        while (++at <= shown && example[at] != from_python[i]) continue
        if (at > shown) { print FILENAME ": number " i " that Python prints, " from_python[i] ", is not in the example"; exit 1 }
      }
      print FILENAME ": the same " printed + 0 " numbers, of " shown " of the example"
      exit printed < 4
    }' "$printed" "$page"; then
    same=$((same + 1))
  else
    differ=$((differ + 1))
  fi
done
echo "$same pages the same, $skipped skipped, $differ differ"
[ "$differ" -eq 0 ] && [ "$same" -gt 0 ]
