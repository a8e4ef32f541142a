#!/bin/sh
# slides_selftest.sh: the slides of every lesson are made, have their parts, load nothing, and show no number that the page does
# not have. Then a small page shows that text comes out right, and that each page without slides is refused.
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "self-test of slides: $*"; failures=$((failures + 1)); }
slides() { sh "$here/slides.sh" "$@" >"$work/report" 2>&1; }

# What a browser would load for the file: an address in a tag, a style sheet or a script that is neither data nor a place in
# the file. The name of SVG's namespace is an address that nothing is loaded from.
loaded_by() {
  { grep -oE '<[A-Za-z]+ [^>]*>' "$1"; sed -n '/<style/, /<\/style>/p; /<script/, /<\/script>/p' "$1"; } |
    sed "s/ xmlns='[^']*'//g; s/url(#[^)]*)//g" |
    grep -E '(src|srcset|href|poster|data|action)=|<link|url\(|@import|https?:' |
    grep -vE '^<img alt="[^"]*" src="data:image/png;base64,[A-Za-z0-9+/=]*">$'
}
# The text of the slides of a class (of all without one), without pictures, tags and the script.
text_of() {
  awk -v class="$2" '/<style>/, /<\/style>/ { next } /<script>/ { exit }
    /^<section/ { shown = class == "" || index($0, "class=\"" class "\"") } /<svg/, /<\/svg>/ { next } shown' "$1" |
    sed 's/<[^>]*>//g; s/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&amp;/\&/g'
}
numbers() { grep -oE '[0-9]+' | LC_ALL=C sort -u; }

slides || { fail "not all slides are made"; cat "$work/report"; }
for page in lessons/[0-9][0-9]_*/README.md; do
  lesson=$(basename "$(dirname "$page")" | cut -c1-2)
  file=build/slides/$lesson.html
  order=$(sed -n 's/^<section .*class="\([a-z]*\)".*/\1/p' "$file" | uniq | tr '\n' ' ')
  [ "$order" = "title question example figure surprise check answers " ] || fail "$file: its slides are: $order"
  [ -z "$(loaded_by "$file")" ] || fail "$file: it would load $(loaded_by "$file")"
  text_of "$file" | numbers >"$work/shown"
  extra=$(numbers <"$page" | LC_ALL=C comm -23 "$work/shown" -)
  [ -z "$extra" ] || fail "$file: numbers that are not on the page:" $extra
  for class in title question example surprise check answers; do
    [ "$(text_of "$file" $class | wc -w)" -ge 4 ] || fail "$file: the slide '$class' is empty"
  done
  [ "$(text_of "$file" check | grep -c '[?.]$')" -ge 3 ] || fail "$file: it has fewer than three questions"
done

# The checks above can fail.
for line in '<img src="a.png">' '<script src="x.js">' '<link rel="stylesheet">' '<style>p { background: url(a.png) }</style>' \
  '<style>@import "a.css";</style>' '<script>fetch("https://a.b")</script>' '<p style="background: url(a.png)">' "<image href='a.png'/>"; do
  echo "$line" >"$work/line"
  [ -n "$(loaded_by "$work/line")" ] || fail "it is not seen that this loads something: $line"
done

# A small page. The lines of the picture and of the page have what HTML and CSS give a meaning.
cd "$work" && mkdir -p lessons/07_a || exit 1
page=lessons/07_a/README.md
fresh() {
  cat >$page <<'M'
# 07 a: b < c & d

Time: 2 hours. Prerequisites: none.

## Question

Is `a < b && *p` at https: one <!-- = a > b #1 --> line, with [a link](https://a.b) &amp; **bold**?

## By hand

<!-- example -->
```
## x < 1 && y > "2"
<!-- = kept -->
```
<!-- end of example -->

| head | `a|b` |
|---|---|
| cell 1 | 3 &lt; 4 |

## Figure

![A <picture> & "more"](a.svg)

*The caption.*

## What to look at

- **One** is no such bullet.
- **Two** is the surprise,
  in two lines.
- **Three** is none either.

## Check yourself

1. One?
2. Two?

<details><summary>Answers</summary>

1. The first.
2. The second. </details>
M
  sed -i 's/`a|b`/`a\\|b`/' $page
  echo "<svg xmlns='http://www.w3.org/2000/svg'><clipPath id='frame'/><g clip-path='url(#frame)'>&lt;</g></svg>" >lessons/07_a/a.svg
}
file=build/slides/07.html
has() { grep -qF -- "$1" $file || fail "the small page's slides do not have: $1"; }
lacks() { ! grep -qF -- "$1" $file || fail "the small page's slides have: $1"; }

fresh
slides 07 || { fail "the slides of the small page are not made"; cat "$work/report"; }
has '<title>07 a: b &lt; c &amp; d</title>'
has '<h1>b &lt; c &amp; d</h1>'
has '<p>Is <code>a &lt; b &amp;&amp; *p</code> at https: one  line, with a link &amp; <strong>bold</strong>?</p>'
has '## x &lt; 1 &amp;&amp; y &gt; &quot;2&quot;'
has '&lt;!-- = kept --&gt;'
has '<th><code>a|b</code></th>'
has '<td>3 &lt; 4</td>'
has "<svg role=\"img\" aria-label=\"A &lt;picture&gt; &amp; &quot;more&quot;\""
has "id='picture1-frame'"
has "clip-path='url(#picture1-frame)'>&lt;</g>"
has '<em>The caption.</em>'
[ "$(text_of $file surprise | tr '\n' ' ')" = " The surprise Two is the surprise, in two lines.  " ] ||
  fail "the surprise is: $(text_of $file surprise)"
lacks 'no such bullet'
[ -z "$(loaded_by $file)" ] || fail "the small page's slides would load $(loaded_by $file)"
text_of $file check | grep -q 'The first' && fail "an answer is on the slide of the questions"
text_of $file answers | grep -q 'The second' || fail "the answers are missing"

# A long part is divided; nothing of it is lost, and each table has its head.
yes 'One sentence of this paragraph has ten words or so.' | head -n 40 >long
{ echo; seq 1001 1060 | sed 's/^/| a cell of the table | /; s/$/ |/'; } >rows
sed -i -e '/^Is `a/r long' -e '/^| cell 1/r rows' $page
sed -i '/^$/{N;s/^\n| a cell/| a cell/}' $page
{ echo '```'; seq 2001 2060; echo '```'; echo; } >code
sed -i '/^## Figure/{
r code
N
}' $page
slides 07 || fail "the slides of a long page are not made"
[ "$(text_of $file question | grep -o 'One sentence' | wc -l)" -eq 40 ] || fail "sentences are lost"
[ "$(text_of $file | grep -cE '^(10[0-6][0-9]|20[0-6][0-9])$')" -eq 120 ] || fail "rows or lines of code are lost"
[ "$(grep -c '<thead>' $file)" -ge 3 ] || fail "a part of a table has no head"
[ "$(grep -c '<thead>' $file)" -eq "$(grep -c '</table>' $file)" ] || fail "a part of a table has no head"

# refused EDIT TEXT [LESSON]: with the page edited by sed, there are no slides, and slides.sh says TEXT.
refused() {
  fresh
  sed -i "$1" $page
  [ ! -e gone ] || rm lessons/07_a/a.svg
  slides "${3-07}" && fail "accepted: $1 ${3-07}"
  grep -qF -- "$2" "$work/report" || { fail "does not say: $2"; cat "$work/report"; }
  [ ! -e $file ] || fail "there is still a file after: $1"
}
refused 's/the surprise/odd/'        "$page: 'What to look at' has 0 bullets with the word 'surprise'; a page has exactly one"
refused 's/is none either/surprises/' "'What to look at' has 2 bullets with the word 'surprise'"
refused '/^!\[/d'                    "$page: 'Figure' has neither a picture nor a drawing"
refused '/^## Question/d'            "$page: the page has no part 'Question'"
refused 's/^Time:/It takes/'         "$page: the page has no title 'NN name: …' or no line 'Time: …'"
refused 's/<details>//'              "'Check yourself' has no <details>"
refused 's/one <!--.*-->/<b>one<\/b>/' "the slide 'question' has HTML, which a slide cannot show"
refused '' "slides: there is no lesson '08'; write make slides-NN, or make slides for all" 08
refused '' "slides: there is no lesson '7'" 7
touch gone
refused '' "$page: the picture lessons/07_a/a.svg is missing"

if [ $failures -eq 0 ]; then echo "self-test of slides: everything held"; else exit 1; fi
