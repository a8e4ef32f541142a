#!/bin/sh
# mutants.sh [NN | NAME]...: do the tests of a lesson notice when its code is wrong (make mutants LESSONS="02")?
# Of the lessons NN (by default all) every mutant of tests/mutants/NN.txt, or those that are named: a mistake that
# compiles; mutant.awk says how they are written. Each is put into a tree of its own, build/mutants/tree, and the
# tests of its lesson (L02_...) run until one fails, crashes or takes far too long: killed. Those of its exercise come
# first, then the program that killed it the last time, then the quick ones.
# Exit code 0: in each lesson at least 95 % are killed. 1: fewer; or a mutant that does not apply or compile; or the
# tests fail without any mutant. LIMIT: the least time in seconds after which a test program is stopped.
tools=$(cd "$(dirname "$0")" && pwd)
mutants=tests/mutants work=build/mutants
tree=$work/tree
. "$tools/tree.sh"
export LC_ALL=C

refuse() { echo "mutants: $*" >&2; exit 2; }
lesson_of() { echo "$1" | cut -c1-2; }

[ -d lessons ] || refuse "no lesson is here; call it from the root of gradus"
mkdir -p "$work" || exit 2
all=$(ls $mutants/*.txt 2>/dev/null | sed 's|.*/||; s|\.txt$||')
[ -n "$all" ] || refuse "there is no mutant in $mutants"
for what in ${*:-$all}; do
  names=$(mutants_of "$(lesson_of "$what")")
  case $what in ??) echo "$names" ;; *) echo "$names" | grep -x "$what" ;; esac | grep . ||
    refuse "there is no mutant $what; write NN for all of a lesson (there are $(echo $all)), or a mutant's name"
done >"$work/names" || exit 2
lessons=$(cut -c1-2 "$work/names" | sort -u)

# build PROGRAM: with the lessons' programs if it runs them.
build() {
  set -- "build/tests/$1" $(grep -q '"tests/program_testing.h"' "tests/$1.cpp" &&
    ls lessons/*/main.cpp tests/bench/*.cpp | sed 's|/main.cpp||; s|^tests/||; s|.cpp$||; s|^|build/|')
  (cd "$tree" && make "$@") >"$work/make.log" 2>&1 </dev/null
}
# passes PROGRAM FILTER SECONDS: what it said is in $work/test.log; too_long says so if it was stopped.
passes() {
  too_long=
  (cd "$tree" && timeout -k 2 "$3" "build/tests/$1" --gtest_filter="$2" --gtest_fail_fast || exit) \
    >"$work/test.log" 2>&1 </dev/null
  case $? in 0) ;; 124 | 137) too_long=", stopped after $3 s"; return 1 ;; *) return 1 ;; esac
  grep -q '^\[  PASSED  \]' "$work/test.log"
}
failed_test() {  # the one that failed, or in which the program ended or stood
  awk '/^\[ RUN / { run = $4 } /^\[  FAILED  \]/ && !failed { failed = $4; sub(/,$/, "", failed) }
    END { print failed ? failed : run ? run : "its end" }' "$work/test.log"
}

# ---- without mutants: builds, passes, and how long it takes --------------------------------------------
awk -f "$tools/tests.awk" $(find tests -name '*_test.cpp' | sort) >"$work/tests"
touch "$work/killers"  # "mutant program": what killed it the last time
same_tree . "$tree"
: >"$work/programs"    # "lesson program milliseconds"
for nn in $lessons; do
  passed=0
  for file in $(find tests -name '*_test.cpp' | sort | xargs grep -l "L${nn}_"); do
    program=${file#tests/} program=${program%.cpp}
    build "$program" || { grep -m 5 -E 'rror' "$work/make.log"; refuse "$program does not build without any mutant"; }
    passes "$program" "*L${nn}_*" 600 || {
      grep -m 5 -E 'Failure|is open' "$work/test.log"
      echo "mutants: lesson $nn: $(failed_test) of $program fails without any mutant; nothing is judged"
      exit 1
    }
    passed=$((passed + $(sed -n 's/^\[  PASSED  \] \([0-9]*\) .*/\1/p' "$work/test.log")))
    ms=$(sed -n 's/^\[==========\].*(\([0-9]*\) ms total)/\1/p' "$work/test.log")
    echo "$nn $program ${ms:-0}" >>"$work/programs"
  done
  [ $passed -gt 0 ] || refuse "lesson $nn has no test: give one a suite name that begins with L${nn}_"
  echo "lesson $nn: $passed tests pass without any mutant"
done
rm -rf "$work/obj"
[ ! -d "$tree/build/obj" ] || cp -a "$tree/build/obj" "$work/obj"

# ---- one mutant ---------------------------------------------------------------------------------------
# The runs to make, as "program filter seconds", the most promising first.
runs() {  # NAME LESSON
  awk -v name="$1" -v nn="$2" -v least="${LIMIT:-20}" '
    function limit(program) { return ms[program] / 100 > least ? int(ms[program] / 100) : least }
    FILENAME == ARGV[1] { if ($1 == nn) ms[$2] = $3; next }
    FILENAME == ARGV[2] { kills[$2]++; if ($1 == name) last = $2; next }
    index(name, $1 "_") == 1 && $2 in ms { print 0, $2, $3 ":*/" $3 "/*", limit($2) }
    END {
      for (p in ms) print (p == last ? 1 : 2 + (ms[p] + 500) / (kills[p] + 1)), p, "*L" nn "_*", limit(p)
    }' "$work/programs" "$work/killers" "$work/tests" | sort -n | cut -d' ' -f2-
}

# What the mutant changed is as it was: what was linked with it, objects, then sources, so that make, and a next
# run if this one is cut off, see what is old.
take_out() {
  rm -f "$tree/build/libgradus.a"
  find "$tree/build" -type f -newer "$work/stamp" | while read -r file; do
    case $file in
      $tree/build/obj/*) cp -p "$work/${file#$tree/build/}" "$file" ;;
      *) rm "$file" ;;
    esac
  done
  tar -xpf "$work/files.tar" -C "$tree"
}

# judge NAME: sets verdict to killed, survives or error, and says why.
judge() {
  name=$1 nn=$(lesson_of "$1") verdict=survives why=
  put_in() { (cd "$tree" && awk -v name="$name" $1 -f "$tools/mutant.awk" $mutants/"$nn".txt); }
  files=$(put_in "-v only=look") || { verdict=error why=$files; return; }
  tar -cf "$work/files.tar" -C "$tree" $files && put_in >"$work/make.log" ||
    { verdict=error why="cannot be put in: $(head -1 "$work/make.log")"; return; }
  touch "$work/stamp"
  runs "$name" "$nn" >"$work/runs"
  while read -r program filter seconds; do
    build "$program" || { verdict=error why="does not compile: $(grep -m 1 rror "$work/make.log")"; break; }
    passes "$program" "$filter" "$seconds" && continue
    verdict=killed why="by $(failed_test)$too_long"
    grep -v "^$name " "$work/killers" >"$work/others"
    { cat "$work/others"; echo "$name $program"; } >"$work/killers"
    break
  done <"$work/runs"
  take_out
}

: >"$work/verdicts"
while read -r name; do
  start=$(date +%s)
  judge "$name"
  echo "$nn $verdict $name" >>"$work/verdicts"
  echo "$name: $verdict${why:+ $why} ($(($(date +%s) - start)) s)"
done <"$work/names"

# ---- the count ----------------------------------------------------------------------------------------
status=0
for nn in $lessons; do
  total=$(grep -cE "^$nn (killed|survives) " "$work/verdicts") killed=$(grep -c "^$nn killed " "$work/verdicts")
  echo "lesson $nn: $killed of $total mutants killed"
  for name in $(sed -n "s/^$nn survives //p" "$work/verdicts"); do
    reason=$(sed -n "/^$name: /{n; s/^survives: //p;}" $mutants/"$nn".txt)
    echo "  $name survives: ${reason:-no reason is given in $mutants/$nn.txt}"
  done
  [ $((100 * killed)) -ge $((95 * total)) ] || { echo "  the least is 95 %"; status=1; }
done
errors=$(grep -c ' error ' "$work/verdicts")
[ "$errors" = 0 ] || { echo "$errors mutants could not be judged"; status=1; }
exit $status
