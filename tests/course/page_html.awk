# page_html.awk: functions that make HTML of a lesson's page (awk -f page_parts.awk -f page_html.awk -f PROGRAM PAGE). PROGRAM is
# called with scratch: a file for Markdown that cmark-gfm converts.

function refuse(sentence) {
  print FILENAME ": " sentence > "/dev/stderr"
  exit 2
}

# The HTML of Markdown. Pictures, whose files are in the page's folder, become a part of it.
function html_of(markdown,    html, line, command) {
  printf "%s\n", markdown > scratch
  close(scratch)
  command = "cmark-gfm --extension table " scratch
  while ((command | getline line) > 0) html = html line "\n"
  if (close(command)) refuse("cmark-gfm failed")
  return with_pictures(html)
}

function with_pictures(html,    tag, file, alt) {
  while (match(html, /<p><img [^>]*><\/p>/)) {
    tag = substr(html, RSTART, RLENGTH)
    file = alt = tag
    sub(/.* src="/, "", file); sub(/".*/, "", file)
    sub(/.* alt="/, "", alt); sub(/".*/, "", alt)
    html = substr(html, 1, RSTART - 1) picture(folder_of(FILENAME) file, alt) substr(html, RSTART + RLENGTH)
  }
  return html
}

# An SVG as it is, with names of its own; any other picture as data.
function picture(file, alt,    line, text, command) {
  if ((getline line < file) <= 0) refuse("the picture " file " is missing")
  close(file)
  ++pictures
  if (file !~ /\.svg$/) {
    command = "base64 " file
    while ((command | getline line) > 0) text = text line
    close(command)
    return "<img alt=\"" alt "\" src=\"data:image/png;base64," text "\">"
  }
  while ((getline line < file) > 0) text = text line "\n"
  gsub(/ id='/, " id='picture" pictures "-", text)
  gsub(/url\(#/, "url(#picture" pictures "-", text)
  return "<svg role=\"img\" aria-label=\"" alt "\"" substr(text, index(text, "<svg") + 4)
}
function folder_of(path) { sub(/[^\/]*$/, "", path); return path }

function escaped(text) {
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  return text
}
function copy(file,    line) { while ((getline line < file) > 0) print line }
