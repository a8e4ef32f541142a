#!/bin/sh
# check_course.sh [NN...]: proves, for each exercise of these lessons (all by default), that a student can be
# given it (make check-course LESSONS="04 05"). Every fault is a line; the last line is their number.
#   on paper   the marks are right; the id is on the lesson's page; it has three hints and a test that records it; what
#              is to be predicted or made faster is judged by predict_NN or faster_NN
#   built      in the tree that `make student` writes, where later lessons are not there: with the exercise and
#              those after it open, its test fails and names it, and the tests of those before it pass; with the
#              exercise solved too, its test passes; with all of them solved, `make test-NN` passes; with a bug
#              that is to be found put in, the tree builds and the bug's test fails
#   mutants    of the lines of its exercises (tests/mutants/NN.txt) are all killed by the lesson's tests
# The trees are one folder, build/course/tree, in which only the files that differ change, and which begins with
# the objects of build/obj; so a step compiles a file or two. PARTS=built leaves out the mutants, which take the most time; PARTS= also
# what must be built. A lesson without a fault is kept as checked (checked.sh).
tools=$(cd "$(dirname "$0")" && pwd)
work=build/course
tree=$work/tree
faults=0
. "$tools/tree.sh"

fault() { echo "$*"; faults=$((faults + 1)); }
refuse() { echo "check-course: $*" >&2; exit 2; }
wanted() { case " ${PARTS-built mutants} " in *" $1 "*) true ;; *) false ;; esac; }

all=$(ls -d lessons/[0-9][0-9]_* 2>/dev/null | sed 's|lessons/\(..\)_.*|\1|')
lessons=${*:-$all}
for nn in $lessons; do
  echo "$all" | grep -qx "$nn" || refuse "there is no lesson $nn; the lessons are $(echo $all)"
done
mkdir -p "$work" || exit 2
if [ -z "${PARTS-built}" ]; then work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT; fi  # beside one that builds

sh "$tools/exercises.sh" >"$work/marks"
awk -f "$tools/tests.awk" $(find tests -name '*_test.cpp' | sort) >"$work/tests"

# The exercises of a lesson that have a region in the sources, in order.
regions_of() { sed -n "s/^exercise \($1\.[0-9]*\) .*/\1/p" "$work/marks" | sort -t. -k2n; }
programs_of() { awk -v nn="$1" 'index($1, nn ".") == 1 { print "build/tests/" $2 }' "$work/tests" | sort -u; }

# ---- on paper -----------------------------------------------------------------------------------------
three_hints() { [ "$(awk -v id="$2" -f "$tools/hints.awk" "$1" | wc -l)" -eq 3 ]; }  # FILE ID

on_paper() {
  for nn in $lessons; do
    page=$(ls lessons/"$nn"_*/README.md) hints=${page%README.md}hints.md
    named=$(sed -n "s/^- \($nn\.[0-9]*\) .*/\1/p" "$page" 2>/dev/null)
    [ -n "$named" ] || fault "${page:-lesson $nn}: names no exercise; each begins a line with '- $nn.k '"
    for id in $(regions_of "$nn"); do
      echo "$named" | grep -qxF "$id" || fault "$page: exercise $id is in the sources and not on the page"
      ! grep -q "^exercise $id .*\.h:" "$work/marks" || fault "exercise $id: is in a header, which the grader cannot compile"
      grep -qF "$id " "$work/tests" || fault "exercise $id: no test has RecordProperty(\"exercise\", \"$id\")"
    done
    awk -f "$tools/pages.awk" "$page" /dev/null | while IFS="$(printf '\t')" read -r id points kind judge; do
      case $judge in predict | faster) ;; *) continue ;; esac
      program=tests/course/${judge}_$nn.cpp
      grep -qsF "\"$id\"" "$program" || echo "exercise $id: $program does not name it, which is to judge it"
    done >"$work/unjudged"
    while read -r line; do fault "$line"; done <"$work/unjudged"
    points=$(awk -f "$tools/pages.awk" "$page" /dev/null | awk -F'\t' '{ sum += $2 } END { print sum + 0 }')
    [ "$points" = 0 ] || grep -qsE "^[|] $nn [|] [0-9]+ [|] $points [|]" lessons/README.md ||
      fault "lessons/README.md: the teachers' table has no row '| $nn | minutes | $points |', the points of $page"
    for id in $named; do
      three_hints "$hints" "$id" || fault "$hints: exercise $id has not the three hints 1. 2. 3."
    done
    while read -r id program test; do
      [ "${id%.*}" != "$nn" ] || echo "$named" | grep -qxF "$id" ||
        fault "tests/$program.cpp: $test records exercise $id, which is not on $page"
    done <"$work/tests"
  done
}

# ---- built --------------------------------------------------------------------------------------------
# hand_out NN OPEN: the tree for lesson NN, with these exercises open, in $tree.
hand_out() {
  new=$work/new
  rm -rf "$new"
  OPEN=$2 sh "$tools/student.sh" "$1" "$new" >"$work/report" 2>&1 || { cat "$work/report"; return 1; }
  same_tree "$new" "$tree"
  for program in "$tree"/build/lessons/[0-9]*; do
    [ -d "$tree/lessons/${program##*/}" ] || rm -f "$program"
  done
}

build() { (cd "$tree" && make "$@") >"$work/make.log" 2>&1; }

# The tests of exercise ID: true if they all pass; their output is in $work/test.log.
passes() {
  : >"$work/test.log"
  good=0
  while read -r recorded program test; do
    [ "$recorded" = "$1" ] || continue
    (cd "$tree" && "build/tests/$program" --gtest_filter="$test:*/$test/*") >"$work/one.log" 2>&1 </dev/null &&
      grep -qE '^\[  PASSED  \] [1-9]' "$work/one.log" || good=1
    cat "$work/one.log" >>"$work/test.log"
  done <"$work/tests"
  return $good
}

# One step: the exercises `solved` are, `open` are not. The first of `open` is the one the student is at.
step() {
  nn=$1 solved=$2 open=$3
  hand_out "$nn" "$open" || { fault "lesson $nn, open: $open: the tree cannot be handed out"; return 1; }
  build $(programs_of "$nn") || {
    grep -E 'error|Error' "$work/make.log" | head -5 | cut -c1-200
    fault "lesson $nn, open: $open: the tree does not build"
    return 1
  }
  grep -E 'warning' "$work/make.log" | cut -c1-200 >"$work/warnings"
  [ ! -s "$work/warnings" ] || { cat "$work/warnings"; fault "lesson $nn, open: $open: warnings"; }
  for id in $solved; do
    passes "$id" || {
      grep -m 3 -E 'is open|Failure|terminate called' "$work/test.log" | cut -c1-200
      fault "exercise $id is solved, and its test does not pass while these are open: $open"
    }
  done
  at=${open%% *}
  [ -n "$at" ] || return 0
  if passes "$at"; then fault "exercise $at is open, and its test passes"
  elif ! grep -q "exercise $at is open" "$work/test.log"; then
    grep -m 3 -E 'is open|Failure|terminate called' "$work/test.log" | cut -c1-200
    fault "exercise $at is open, and its test fails without naming it"
  fi
}

# The bugs to be found, one at a time, in the tree with everything solved.
bugs_bite() {
  for patch in "$new"/lessons/"$1"_*/bug_*.patch; do
    [ -f "$patch" ] || continue
    id=${patch##*bug_} id=${id%.patch}
    (cd "$tree" && GIT_CEILING_DIRECTORIES=$(dirname "$PWD") git apply "${patch#"$new"/}") >"$work/make.log" 2>&1 ||
      { fault "exercise $id: its bug cannot be put in: $(head -1 "$work/make.log")"; continue; }
    if ! build $(awk -v id="$id" '$1 == id { print "build/tests/" $2 }' "$work/tests"); then
      fault "exercise $id: with its bug the tree does not build: $(grep -m 1 rror "$work/make.log" | cut -c1-160)"
    elif passes "$id"; then fault "exercise $id: with its bug, its test passes"
    fi
    same_tree "$new" "$tree"
  done
}

# The stored mutants of the lesson's exercises.
mutants_die() {
  names=$(mutants_of "$1" | grep "^$1\.")
  [ -n "$names" ] || return 0
  sh "$tools/mutants.sh" $names >"$work/mutants.log" 2>&1 && ! grep -q ': survives' "$work/mutants.log" || {
    grep -E ': survives|: error|fails without' "$work/mutants.log"
    fault "lesson $1: not all mutants of its exercises are killed"
  }
}

built() {
  for nn in $lessons; do
    start=$(date +%s) before=$faults hash=$(sh "$tools/checked.sh" hash "$nn")
    open=$(echo $(regions_of "$nn")) solved=
    while step "$nn" "$solved" "$open" && [ -n "$open" ]; do
      solved="$solved ${open%% *}"
      case $open in *' '*) open=${open#* } ;; *) open= ;; esac
    done
    [ -n "$open" ] || build "test-$nn" || {
      grep -E 'rror|[0-9]+ failed|FAILS|fails:|\*\*\*' "$work/make.log" | grep -v ' 0 failed' | head -8 | cut -c1-200
      fault "lesson $nn: make test-$nn fails where the later lessons are not there"
    }
    [ -n "$open" ] || bugs_bite "$nn"
    ! wanted mutants || mutants_die "$nn"
    [ $((on_paper_faults + faults - before)) -ne 0 ] || sh "$tools/checked.sh" record "$nn" "$hash"
    echo "lesson $nn: $(echo $(regions_of "$nn")): built and tested, $(($(date +%s) - start)) s"
  done
}

grep -v '^exercise ' "$work/marks" >"$work/bad_marks"
while read -r line; do fault "$line"; done <"$work/bad_marks"
on_paper
on_paper_faults=$faults
[ -s "$work/bad_marks" ] || ! wanted built || built
echo "checked the exercises of lessons $(echo $lessons): $(wc -l <"$work/tests") tests record one"
echo "$faults faults"
[ $faults -eq 0 ]
