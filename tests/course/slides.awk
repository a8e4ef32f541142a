# slides.awk: prints a lesson's page as slides, one HTML file that loads nothing. slides.sh calls it after page_parts.awk and
# page_html.awk, with here: the folder of slides.css and slides.js.
# Sizes are in pixels of a screen of 1280 x 720; slides.css scales them. What does not fit on a slide goes to the next one:
# a slide has at most 90 words besides code. Only code with lines of more than 100 letters becomes smaller than these sizes.
BEGIN {
  most_words = 90
  width = 1184; room = 560         # of a slide, without its heading and margins
  text_size = 28; large_size = 40  # the latter where few words stand alone
  code_size = 24; least_code_size = 19
  letter = 0.57; code_letter = 0.605  # mean width of a letter, as a fraction of the size, in a wide font (DejaVu)
  text_line = 1.4; code_line = 1.3; gap = 20; frame = 30  # slides.css has the same
}

END {
  title_slide()
  slides_of("question", "Question", of("Question"))
  slides_of("example", "By hand", of("By hand"))
  figures(of("Figure"))
  slides_of("surprise", "The surprise", surprise(of("What to look at")))
  check_yourself(of("Check yourself"))
  print_all()
}

function of(name) {
  if (part[name] !~ /[^\n]/) refuse("the page has no part '" name "'")
  return part[name]
}

# ---- the parts ----------------------------------------------------------------------------------------

# "NN name: title", and the paragraph "Time: … Prerequisites: …".
function title_slide(    colon, time) {
  colon = index(title, ": ")
  time = part[""]
  if (!colon || !match(time, /(^|\n)Time: /)) refuse("the page has no title 'NN name: …' or no line 'Time: …'")
  time = substr(time, RSTART)
  sub(/^\n/, "", time)
  sub(/\n\n.*/, "", time)
  sub(/ Prerequisites:/, "\n\nPrerequisites:", time)
  begin_slide("title", "")
  slide = substr(title, 1, colon - 1) "\n\n# " substr(title, colon + 2) "\n\n" time
  end_slide()
}

# The bullet with the word "surprise".
function surprise(text,    i, found, all) {
  cut(text)
  for (i = 1; i <= blocks; ++i)
    if (kind[i] == "item" && block[i] ~ /[Ss]urprise/) { ++all; found = block[i] }
  if (all != 1) refuse("'What to look at' has " all + 0 " bullets with the word 'surprise'; a page has exactly one")
  sub(/^- /, "", found)
  gsub(/\n +/, "\n", found)
  return found
}

# The questions, and on other slides the answers, which the page folds away in <details>.
function check_yourself(text,    fold, summary) {
  if (!match(text, /<details><summary>[^<]*<\/summary>/)) refuse("'Check yourself' has no <details><summary>…</summary>")
  summary = substr(text, RSTART + 18, RLENGTH - 28)
  fold = substr(text, RSTART + RLENGTH)
  text = substr(text, 1, RSTART - 1)
  sub(/<\/details>/, "", fold)
  slides_of("check", "Check yourself", text)
  slides_of("answers", summary, fold)
}

# Each picture with the text below it. Of two pictures without text between them, both get the text below the second.
function figures(text,    i, k, found) {
  cut(text)
  for (i = 1; i <= blocks; ++i) {
    if (kind[i] != "picture") continue
    begin_slide("figure", "")
    slide = block[i]
    for (k = i + 1; kind[k] == "picture"; ++k) continue
    for (; k <= blocks && kind[k] != "picture"; ++k) slide = slide "\n\n" block[k]
    end_slide()
    found = 1
  }
  if (found) return
  if (text !~ /(^|\n)```/) refuse("'Figure' has neither a picture nor a drawing")
  slides_of("figure", "Figure", text)
}

# ---- Markdown to blocks: kind[i] (text, item, row of a table, code, picture), block[i], head[i] (of the row's table) ----
function cut(text,    line, n, i, now, top) {
  blocks = 0
  split("", kind)
  n = split(text, line, "\n")
  for (i = 1; i <= n; ++i) {
    if (now == "code") {
      if (line[i] ~ /^```/) now = ""
      else block[blocks] = block[blocks] line[i] "\n"
    } else if (line[i] ~ /^```/) add(now = "code", "")
    else if (line[i] ~ /^[ \t]*$/) now = ""
    else if (line[i] ~ /^\|/) {
      if (now != "row") { top = line[i] "\n" line[++i] "\n"; now = "row" }
      else { add("row", line[i] "\n"); head[blocks] = top }
    }
    else if (line[i] ~ /^!\[/) add(now = "picture", line[i] "\n")
    else if (line[i] ~ /^(-|[0-9]+\.) /) add(now = "item", line[i] "\n")
    else if (now == "text" || now == "item") block[blocks] = block[blocks] line[i] "\n"
    else add(now = "text", line[i] "\n")
  }
}
function add(what, text) { ++blocks; kind[blocks] = what; block[blocks] = text }

function words(text,    w) { return split(text, w, /[ \n|]+/) }
# Letters, not bytes.
function letters(text) { gsub(/[\200-\277]/, "", text); return length(text) }
function whole(x) { return int(x) == x ? x : int(x) + 1 }
function height(text, what, size) {
  if (what == "row") size *= 0.86
  return whole(letters(text) * letter * size / width) * size * text_line + (what == "text" ? gap : gap / 2)
}

# ---- blocks to slides ---------------------------------------------------------------------------------
function begin_slide(class, heading) {
  slide_class = class; slide_heading = heading
  empty_slide()
}
function empty_slide() { slide = last = last_head = ""; used = used_words = size_of_code = 0 }
function next_slide() { end_slide(); empty_slide() }

function slides_of(class, heading, text,    i) {
  cut(text)
  begin_slide(class, heading)
  for (i = 1; i <= blocks; ++i)
    if (kind[i] == "code") put_code(block[i])
    else if (kind[i] == "text" && words(block[i]) > most_words) put_sentences(block[i])
    else put(block[i], kind[i], head[i])
  if (slide != "") end_slide()
}

function put(text, what, top) {
  if (slide != "" && (used_words + words(text) > most_words || used + height(text, what, text_size) > room)) next_slide()
  if (what == "row" && last_head != top) slide = slide "\n" top
  else if (what != last || what == "text") slide = slide "\n"
  slide = slide text
  used += height(text, what, text_size)
  used_words += words(text)
  last = what; last_head = what == "row" ? top : ""
}

# A long paragraph, in parts of about the same length.
function put_sentences(text,    least, piece) {
  least = words(text) / whole(words(text) / most_words)
  gsub(/\n/, " ", text)
  while (match(text, /[.?!] [A-Z]/)) {
    piece = piece substr(text, 1, RSTART)
    text = substr(text, RSTART + 1)
    if (words(piece) >= 0.8 * least && words(text) > 10) { put(piece "\n", "text"); piece = "" }
  }
  put(piece text "\n", "text")
}

# Code becomes as large as its longest line and the room allow. If it does not fit below the text of a slide, it goes to the
# next one, or is cut at an empty line. If it is longer than a slide, it may be cut where it is least indented.
function put_code(text,    line, n, fits, first, at, i) {
  n = wrapped(text, line)
  for (first = 1; first <= n; first = at) {
    fits = lines_in(room - used, line, first, n)
    at = n + 1 - first <= fits ? n + 1 : cut_at(line, first, first + fits, n >= first + lines_in(room, line, first, n))
    if (at == 0) { at = first; next_slide(); continue }
    slide = slide "\n```\n"
    for (i = first; i < at && !(line[i] == "" && i == at - 1); ++i) slide = slide line[i] "\n"
    slide = slide "```\n"
    size_of_code = least_of(by_width(line, first, at - 1), (room - used - frame - gap) / (code_line * (at - first)))
    used += (at - first) * code_line * size_of_code + frame + gap
    last = "code"
    if (at <= n) next_slide()
  }
}
function least_of(a, b) { return a < b ? a : b }
function by_width(line, first, last,    columns) {
  for (; first <= last; ++first) if (letters(line[first]) > columns) columns = letters(line[first])
  return least_of(code_size, (width - frame) / (code_letter * columns))
}
function lines_in(space, line, first, last) {
  return int((space - frame - gap) / (code_line * least_of(least_code_size, by_width(line, first, last))))
}

# The line before which code is cut, from `first` up to `last`; 0 if there is none.
function cut_at(line, first, last, anywhere,    i, indent, least, best) {
  least = anywhere ? 1000 : 0
  best = anywhere ? last : 0
  for (i = first + 3; i <= last; ++i) {
    match(line[i], /^ */)
    indent = line[i - 1] == "" ? RLENGTH - 1000 : RLENGTH
    if (line[i] != "" && indent <= least) { least = indent; best = i }
  }
  return best
}

# The lines of code. If some are very long, sentences (lines without aligned columns) are wrapped, where possible after a
# punctuation mark.
function wrapped(text, line,    n, i, k, all, longest, aligned, indent, at) {
  n = split(text, all, "\n") - 1
  aligned = 80
  for (i = 1; i <= n; ++i) {
    if (letters(all[i]) > longest) longest = letters(all[i])
    if (all[i] ~ /[^ ]  +[^ ]/ && letters(all[i]) > aligned) aligned = letters(all[i])
  }
  if (longest <= 96) aligned = longest
  for (i = 1; i <= n; ++i) {
    match(all[i], /^ */)
    indent = substr(all[i], 1, RLENGTH) "  "
    while (letters(all[i]) > aligned) {
      for (at = aligned; at > aligned / 2 && substr(all[i], at, 2) !~ /[;:,.] /; --at) continue
      if (at <= aligned / 2) for (at = aligned; at > length(indent) && substr(all[i], at + 1, 1) != " "; --at) continue
      if (at == length(indent)) break  # one long word
      line[++k] = substr(all[i], 1, at)
      all[i] = indent substr(all[i], at + 2)
    }
    line[++k] = all[i]
  }
  return k
}

# ---- slides to HTML -----------------------------------------------------------------------------------
function end_slide(    html, size) {
  for (size = large_size; size > text_size && height(slide, "text", size) > 0.8 * room; ) size -= 6
  if (size_of_code) size = text_size
  if (slide_heading != "") slide = "## " slide_heading "\n" slide
  html = html_of(slide)
  if (html ~ /<!-- raw HTML omitted -->/) refuse("the slide '" slide_class "' has HTML, which a slide cannot show")
  gsub(/<\/?a( [^>]*)?>/, "", html)  # the pages that a link names are not there
  ++slides
  done[slides] = "<section id=\"" slides "\" class=\"" slide_class "\" style=\"--text: " size / 10 "rem; --code: " \
    size_of_code / 10 "rem\">\n" html "</section>"
}

function print_all(    i) {
  print "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>" escaped(title) "</title>\n<style>"
  copy(here "/slides.css")
  print "</style>\n</head>\n<body>"
  for (i = 1; i <= slides; ++i) print done[i]
  print "<script>"
  copy(here "/slides.js")
  print "</script>\n</body>\n</html>"
}
