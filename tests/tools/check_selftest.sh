#!/bin/sh
# check_selftest.sh: plants violations in a small tree, one after the other, and expects that check.sh names each. A
# check that cannot fail checks nothing.
tools=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d) && trap 'rm -rf "$tree"' EXIT
cp "$tools/../../.clang-format" "$tree" && cd "$tree" || exit 1
failures=0
syllabus=tests/course/teacher/README.md

# A tree without a violation.
fresh() {
  rm -rf "${tree:?}"/*
  mkdir -p src/io src/data src/core kernels lessons/01_a lessons/02_b tests/tools tests/mutants build tests/lessons \
    tests/course/teacher
  : >tests/tools/exceptions.txt
  for id in 01.1 02.1; do
    page=$(echo lessons/"${id%.*}"_*)/README.md
    page_with $id >"$page"
    printf 'steps 300\n\nPASS\n' >"${page%README.md}output.txt"
    printf '**%s** 1. a 2. b\n3. c\n' $id >"${page%README.md}hints.md"
    exercise $id 3 >src/core/c"$id".cpp
    printf '%s_x: kind: what\nsays: words\n' $id >tests/mutants/"${id%.*}".txt
    notes_for ${id%.*} >tests/course/teacher/${id%.*}.md
  done
  echo "int main() { return 0; }" | tee lessons/01_a/main.cpp >lessons/02_b/main.cpp
  echo "#pragma once" | tee kernels/k.h src/core/c.h src/io/i.h src/data/d.h >lessons/01_a/a.h
  printf '| 0%s | 60 | 0 |\n' 1 2 >lessons/README.md
  printf '| %s |\n' 'week | lessons | hours' '---|---|---' '1 | 01 | 1' '2 | 02 | 1' 'all | 01, 02 | 2' >$syllabus
  for id in 1 2; do
    printf 'TEST(L0%s_T, T) {\n  RecordProperty("exercise", "0%s.1");\n  f();\n}\n' $id $id >tests/t${id}_test.cpp
  done
}
page_with() {  # EXERCISE: a page by the pattern, and no longer than it may be
  printf '# Lesson %s: a title\n\nTime: 1 hours. Prerequisites: none.\n' "${1%.*}"
  for part in Question Symbols Idea "By hand" Figure Formula "Run it" "What to look at" Output Read "Common mistakes" \
    "Check yourself" Exercises Papers; do
    printf '## %s\n\n' "$part"
    case $part in
      Question) yes word | head -n 800 ;;
      Symbols) printf '| symbol | here |\n|---|---|\n| n | 300<!-- = steps --> |\n' ;;
      Output) printf '<!-- output: steps -->\n```\nsteps 300\n```\n<!-- end of output -->\n' ;;
      Read) echo "1. c.cpp: why?" ;;
      Exercises) echo "- $1 *fill in*" ;;
      Common*) printf '**In PyTorch**\n\n| gradus | PyTorch and its libraries |\n|---|---|\n| a | b |\n\n' ;;
    esac
  done
}
notes_for() {  # LESSON
  printf "# Teacher's notes for lesson %s: a title\n" "$1"
  for part in Objectives "Plan for 90 minutes" "Answers to Read" "Model answers" "Usual wrong answers" \
    "Examination questions"; do
    printf '\n## %s\n\n' "$part"
    case $part in
      Plan*) printf '| minutes | what |\n|---|---|\n| 60 | one |\n| 30 | two |\n' ;;
      Answers*) echo "1. Because." ;;
      Exam*) printf '*Answer.* 1\n\nPoints: 1 of 1.\n\n*Answer.* 2\n\nPoints: 1 of 1.\n' ;;
    esac
  done
}
exercise() {  # ID LINES
  printf 'void f() {\n  // BEGIN SOLUTION %s\n' "$1"
  yes '  f();' | head -n "$2"
  printf '  // STUB: todo("%s", "call f");\n  // END SOLUTION %s\n}\n' "$1" "$1"
}
function_of() { echo "void $1() {"; yes '  f();' | head -n $(($2 - 2)); echo "}"; }
include() { printf '#include "%s"\n' "$1"; }

# expect TEXT: check.sh fails and prints TEXT. Then the tree is created again.
expect() {
  if sh "$tools/check.sh" >build/report 2>&1 || ! grep -qF -- "$1" build/report; then
    echo "self-test of check: did not find: $1"
    failures=$((failures + 1))
  fi
  fresh
}

# expect_only TEXT: the same, and every violation has TEXT in it.
expect_only() {
  sh "$tools/check.sh" | grep -vE "^checked|violations$" | grep -vF -- "$1" && failures=$((failures + 1))
  expect "$1"
}

# expect_none: check.sh finds nothing.
expect_none() {
  sh "$tools/check.sh" >build/report 2>&1 ||
    { echo "self-test of check: a clean tree fails:"; cat build/report; failures=$((failures + 1)); }
  fresh
}

fresh;                                              expect_none
mkdir vendor;                                       expect "vendor: does not belong to the top level"
include src/core/c.h >>kernels/k.h;                 expect "kernels may not include src/core"
include src/data/d.h >>src/io/i.h;                  expect "src/io and src/data may not include each other"
include src/io/i.h >>src/core/c.h;                  expect "src/core may not include src/io, a layer above it"
touch lessons/02_b/b.h; include lessons/02_b/b.h >>lessons/01_a/main.cpp
                                                    expect "a lesson includes a later one"
include i.h >>src/io/i.h;                           expect "is not a path from the root"
include tests/t.h >>src/io/i.h; touch tests/t.h;    expect "src/io may not include tests/t.h"
mkdir src/misc; echo "int x;" >src/misc/m.cpp;      expect "src/misc is not a layer"
printf '\n01_y: kind: what\nsrc/io/i.h\n-gone\n' >>tests/mutants/01.txt
                                                    expect "tests/mutants/01.txt: 01_y does not apply"
echo "int   x;" >>src/io/i.h;                       expect "src/io/i.h:2: not formatted"
echo '![a](b.svg)' >>lessons/01_a/README.md;         expect "lessons/01_a/README.md: b.svg is missing"
echo '![a](b.svg)' >>lessons/01_a/README.md; head -c 60001 /dev/zero >lessons/01_a/b.svg
                                                    expect "lessons/01_a/b.svg: 60001 bytes; the limit is 60000"
yes "int f();" | head -n 301 >src/io/i.h;           expect "src/io/i.h: 301 lines; the limit is 300"
yes "int f();" | head -n 151 >lessons/02_b/main.cpp; expect "main.cpp: 151 lines; the limit is 150"
for i in 1 2 3; do yes "int f$i();" | head -n 234 >lessons/02_b/$i.cpp; done
                                                    expect "lessons/02_b: 702 lines; the limit is 700"
mkdir lessons/published; include lessons/01_a/a.h >lessons/published/r.h
                                                    expect "lessons/published may not include lessons, a layer above it"
mkdir lessons/published; echo "#pragma once" >lessons/published/r.h; include lessons/published/r.h >>src/io/i.h
                                                    expect "src/io may not include lessons/published, a layer above it"
function_of g 61 >src/io/i.cpp;                     expect "src/io/i.cpp:1: g: 61 lines; the limit is 60"
{ printf 'namespace n {\nstruct S {\n'; function_of g 61 | sed 's/^/  /'; printf '};\n}\n'; } >src/io/i.cpp
                                                    expect "src/io/i.cpp:3: g: 61 lines"
{ function_of g 60; function_of h 60; echo 'const char* s = "{";'; function_of k 61; } >src/io/i.cpp
                                                    expect "src/io/i.cpp:122: k: 61 lines"
for i in 1 2 3 4 5; do yes "int f();" | head -n 6000 >kernels/$i.h; done
                                                    expect "src and kernels: 30"
echo "// see /ho""me/x" >>src/io/i.h;               expect "src/io/i.h:2:// see"
echo "// TO""DO: later" >>src/io/i.h;               expect "open work that is not an exercise"
echo "src/io/gone.h 999 big" >tests/tools/exceptions.txt
                                                    expect "src/io/gone.h: no such file"
{ echo "src/io/i.h 301 a table"; echo "src/io/i.cpp:g 61 a list"; } >tests/tools/exceptions.txt
yes "int f();" | head -n 301 >src/io/i.h; function_of g 61 >src/io/i.cpp; exercise 01.2 3 >src/core/d.cpp
                                                    expect_only "exercise 01.2"
for t in s t; do echo "TEST_P(L01_S, T) {}" >>tests/${t}1_test.cpp; done
                                                    expect "tests/t1_test.cpp: L01_S has tests in tests/s1_test.cpp, too"
exercise 01.2 3 >src/io/i.cpp;                      expect 'no test has RecordProperty("exercise", "01.2")'
exercise 01.2 3 >src/io/i.cpp;                      expect "README.md: exercise 01.2 is in the sources and not on the page"
exercise 01.1 3 >src/io/i.cpp;                      expect "exercise 01.1 is marked twice"
exercise 01.1 16 >src/core/c01.1.cpp;                   expect "exercise 01.1 has 16 lines; the limit is 15"
exercise 01.1 3 | grep -v STUB >src/core/c01.1.cpp;     expect "exercise 01.1 has 0 STUB lines"
exercise 01.1 3 | grep -v END >src/core/c01.1.cpp;      expect "BEGIN SOLUTION 01.1 has no END"
exercise 01.1 3 | sed '/STUB/{N;s|\n *//||}' >src/core/c01.1.cpp; expect "a mark has a line of its own"
exercise 01.1 3 | grep -v BEGIN >src/core/c01.1.cpp;    expect "END SOLUTION 01.1 does not close anything"
exercise 01.x 3 >src/io/i.cpp;                      expect "an exercise is named NN.k, not 01.x"

a_page=lessons/01_a/README.md
made="made aga""in" who=no""body rate="bytes a par""ameter"  # so that check.sh does not find them here
echo "// The same, $made." >src/io/i.cpp;             expect_only "src/io/i.cpp:1: \"$made\"; "
echo "int $who = 1;  // one" >src/io/i.cpp;           expect_only "src/io/i.cpp:1: \"$who\"; "
echo "int $who = 1;" >src/io/i.cpp;                   expect_none
echo "20 $rate" >>$a_page;                            expect_only "$a_page:$(wc -l <$a_page): \"$rate\"; "
sed -i 's/^Time: 1/Time: 2/' $a_page;                 expect "$a_page: its time, 120 minutes, differs from"
sed -i 's/^Time: 1/Costs 1/' $a_page;                 expect "$a_page: has no line 'Time: N hours."
sed -i '/^| a | b |/d' $a_page;                       expect "$a_page: 'In PyTorch' has 0 rows; expected 1 to 5"
sed -i '/^## Formula/d' $a_page;                      expect "$a_page: its parts differ from the pattern"
sed -i 's/| 300</| 301</' $a_page;                    expect "$a_page: does not agree with its output.txt"
sed -i 's/| 300<.*>/| 300/' $a_page;                  expect "the number in column 'here' has no mark"
sed -i 's/<!-- = steps/<!-- = step/' $a_page;         expect "$a_page: does not agree with its output.txt"
sed -i 's/^steps 300/steps 301/' $a_page;             expect "$a_page: does not agree with its output.txt"
rm lessons/01_a/output.txt;                         expect "$a_page: does not agree with its output.txt"
# A mark's name is the whole label of a row, and of exactly one line.
named() { { printf 'steps 300\n\n'; printf '%s\n' "$@"; } >lessons/01_a/output.txt; }
named "a table" "  steps, all   5" "  steps      6";     expect "$a_page:810: 'steps' is the name of 2 lines"
named "a table" "  steps, all   5";                     expect_none
sed -i 's/= steps/= a table > steps/' $a_page
named "a table" "  steps, all   5" "  steps      300";   expect_none
sed -i 's/= steps/= a table > steps/' $a_page
named "a table" "  steps, all  300" "" "  b" "  steps  300"; expect "no line has the name 'steps' near 'a table'"
# The teachers' page
needs() { sed -i "s/Prerequisites: none/Prerequisites: $1/" lessons/02_b/README.md; echo "| 02 | 60 | 0 | $1 |" >lessons/README.md
          echo '| 01 | 60 | 0 |' >>lessons/README.md; }
sed -i 's/all | 01, 02 | 2/all | 01, 02 | 3/' $syllabus; expect_only "$syllabus: does not agree with the lessons' pages"
needs "lesson 01, and for one part lesson 03";      expect "lesson 02 needs lesson 03, which is not an earlier one"
needs "lesson 01"; sed -i 's/: lesson 01/: none/' lessons/02_b/README.md
                                                    expect_only "lesson 02: the prerequisites of its page differ"
needs "lesson 01, and for one part more";           expect_none
needs "lesson 01"; sed -i '/01 | 1/d' $syllabus;        expect "$syllabus:3: lesson 02 needs 01, which no earlier week has"
needs "lesson 01"; sed -i 's/2 | 02/2 | 01, 02/' $syllabus; expect "$syllabus:4: lesson 01 is there twice"
printf '\n| course | lessons |\n|---|---|\n| 3 weeks | 01; 02 |\n' >>$syllabus
                                                    expect_only "$syllabus:9: 3 weeks, but lessons for 2"
rm $syllabus;                                       expect_none

yes word | head -n 300 >>$a_page;                     expect "$a_page: 11"
sed -i '/^word/{N;N;N;N;d}' $a_page;                expect "words of prose; a page has 700 to 1000"
{ echo steps 300; yes more | head -n 60; } >lessons/01_a/output.txt
awk -v output=lessons/01_a/output.txt -f "$tools/page.awk" $a_page >build/page; cp build/page $a_page
                                                    expect "$a_page: 61 lines of output; the limit is 60"

# checks_with LABEL…: a lesson's checks; tested_with LESSON LIST…: its tests' lists of failed checks.
checks_with() {
  echo "void f(Report& report) {"
  for label in "$@"; do echo "  report.check_equal($label, 1, 1);"; done
  printf '  g();\n}\n'  # two statements: a shorter function would be one line
} >lessons/01_a/a.cpp
tested_with() {
  lesson=$1; shift
  echo "TEST(L${lesson}_C, C) {"
  for list in "$@"; do echo "  $list;"; done
  printf '  g();\n}\n'
} >"tests/lessons/$1_c_test.cpp"
no_test="lessons/01_a/a.cpp:2: no test of the lesson expects Names{\"bytes of weights\"}"
weights='"bytes of weights"' is='EXPECT_EQ(f(), Names{'
checks_with "$weights";                             expect_only "$no_test"
checks_with "$weights"; tested_with 01 "$is$weights})"; expect_none
checks_with "$weights"; tested_with 02 "$is$weights})"; expect_only "$no_test"
checks_with "$weights"; tested_with 01 "EXPECT_EQ(f(), (Names{$weights, \"b\"}))"; expect_only "$no_test"
checks_with "$weights"; tested_with 01 "has($weights)"; expect_only "$no_test"
checks_with "$weights"; tested_with 01 "// $is$weights})"; expect_only "$no_test"
checks_with "$weights" "$weights"; tested_with 01 "$is$weights})"; expect "$no_test"
checks_with 'name + ": bytes"'; tested_with 01 "$is\"a: bytes of b\"})"; expect_only 'Names{"…: bytes"}'
checks_with 'name + ": bytes"'; tested_with 01 'const std::string b = ": bytes"' "${is}a + b})"; expect_none
checks_with name;                                   expect_only "a.cpp:2: the check's label has no text of its own"

notes=tests/course/teacher/01.md
rm $notes;                                          expect_only "$notes is missing"
sed -i '1s/title/name/' $notes;                     expect_only "$notes: its first line is not '# Teacher's notes for lesson 01: a title'"
sed -i 's/^## Usual/## Common/' $notes;             expect_only "$notes: its part 5 is 'Common wrong answers'; expected 'Usual wrong answers'"
sed -i '/^## Exam/d' $notes;                        expect_only "$notes: it lacks the part 'Examination questions'"
sed -i 's/| 30 |/| 31 |/' $notes;                   expect_only "$notes: the minutes of its plan add up to 91"
sed -i '/^1[.]/d' $notes;                           expect_only "$notes: 0 numbered answers to the 1 questions"
sed -i 's/^- 01.1.*/&\n- 01.2 *explain a line*/' $a_page; expect "$notes: it lacks the model answer '### 01.2 explain a line'"
sed -i 's/^- 01.1.*/&\n\nFor discussion: a/' $a_page; expect_only "$notes: it lacks the model answer '### For discussion'"
sed -i 's/^## Model.*/&\n\n### 01.1 fill in\n\nPoints: 5/' $notes; expect_only "$notes: '### 01.1 fill in' is not the next model answer"
sed -i 's/^## Model.*/&\n\n### 01.1 fill in (why)\n\nPoints: 5/' $notes; expect_none
sed -i 's/^## Model.*/&\n\n### 01.1 fill in (why)/' $notes; expect_only "$notes: '### 01.1 fill in (why)' has no line 'Points: …'"
sed -i '0,/^[*]Answer/{/^[*]Answer/d}' $notes;       expect_only "$notes: its examination has 1 answers"

if [ $failures -eq 0 ]; then echo "self-test of check: every planted violation was found"; else exit 1; fi
