#!/bin/sh
# student.sh LESSON OUT: writes the tree that is handed out for one lesson to the folder OUT, which must be
# empty or not there (make student LESSON=NN OUT=dir; make student ALL=1 OUT=dir: LESSON is "all"). It is made
# of the tracked files, as they are in the working tree:
#   lessons before NN    solved
#   lesson NN            every exercise open: its stub in place of its solution (student.awk)
#   lessons after NN     not there, nor their tests, nor their rows in the lists of lessons
# With "all", every exercise of every lesson is open. OPEN="02.1 02.3" opens these instead (check_course.sh).
# The tree is one git commit without a history: two runs on the same files give the same commit. A line of an
# open solution that stands somewhere in the tree is a leak, and the tree is not handed out.
export LC_ALL=C GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
tools=$(cd "$(dirname "$0")" && pwd)
lesson=$1 out=$2

refuse() { echo "student: $*" >&2; exit 2; }

folders=$(git ls-files 'lessons/[0-9][0-9]_*/main.cpp' | sed 's|lessons/\(.*\)/main.cpp|\1|')
numbers=$(echo "$folders" | sed 's/_.*//' | tr '\n' ' ')
usage="write make student LESSON=NN OUT=folder, or make student ALL=1 OUT=folder"
[ -n "$folders" ] || refuse "no lesson is among git's files here; call it from the root of a clone of gradus"
[ -n "$lesson" ] || refuse "LESSON is missing; the lessons are $numbers; $usage"
[ -n "$out" ] || refuse "OUT is missing, the folder to write to; $usage"
case " $numbers all " in *" $lesson "*) ;; *) refuse "there is no lesson $lesson; the lessons are $numbers" ;; esac
[ ! -e "$out" ] || [ -d "$out" ] || refuse "$out is not a folder; name one that is empty or not there"
[ -z "$(ls -A "$out" 2>/dev/null)" ] || refuse "$out is not empty; name a folder that is empty or not there"
mkdir -p "$(dirname "$out")" || refuse "the folder that is to hold $out cannot be made"

work=$(mktemp -d "$(dirname "$out")/.student.XXXXXX") || refuse "nothing can be written beside $out"
work=$(cd "$work" && pwd)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
tree=$work/tree
mkdir "$tree"

# is_later NN: lesson NN is not handed out.
is_later() { [ "$lesson" != all ] && [ "${1#0}" -gt "${lesson#0}" ]; }
later=$(for n in $numbers; do ! is_later "$n" || printf '%s|' "$n"; done)
later=${later%|}

cxx() { grep -E '\.(h|cpp|cu|inc)$'; }
git -c core.quotepath=off ls-files | while read -r file; do [ ! -f "$file" ] || echo "$file"; done >"$work/all"

# A test is of a later lesson if its name says so, if it includes files of one, or if all that it tests is
# named after later ones.
of_later_lessons() {
  grep -E "^lessons/($later)_|^tests/lessons/($later)_|^tests/mutants/($later)[.]|^tests/course/[a-z]*_($later)\." \
    "$work/all"
  grep -E '^tests/.*\.(h|cpp)$' "$work/all" | while read -r file; do
    grep -qE "^#include \"lessons/($later)_" "$file" && echo "$file"
    tested=$(grep -E '^(TYPED_)?TEST(_F|_P)?\(' "$file" | grep -oE 'L[0-9][0-9]_' | sort -u)
    [ -n "$tested" ] && ! echo "$tested" | grep -qvE "L($later)_" && echo "$file"
  done
}
if [ -n "$later" ]; then of_later_lessons | sort -u >"$work/later"; else : >"$work/later"; fi
grep -vxF -f "$work/later" "$work/all" >"$work/early"
# The exercises that are open, with blanks around each, and the files that have marks.
marked=$(cxx <"$work/early" | grep -E '^(kernels|src|lessons)/' | xargs grep -l 'BEGIN SOLUTION' /dev/null)
marked_all=$(cxx <"$work/all" | grep -E '^(kernels|src|lessons)/')
ids=$(sed -n 's/.*BEGIN SOLUTION *\([0-9.]*\).*/\1/p' $marked /dev/null | sort -u)
case $lesson in all) open=$ids ;; *) open=$(echo "$ids" | grep "^$lesson\.") ;; esac
open=" $(echo ${OPEN-$open}) "

tar -cf - -T "$work/early" | tar -xf - -C "$tree" || refuse "not all files could be copied to $out"

problems=$(awk -f "$tools/exercises.awk" $marked /dev/null | grep -v '^exercise ')
[ -z "$problems" ] || { echo "$problems" >&2; refuse "the marks of the exercises are not right"; }

as_student() { awk -v open="$open" -v lessons="$(echo $folders)" -f "$tools/student.awk" "$1"; }
for file in $marked; do
  as_student "$file" >"$tree/$file"
done

# A mutant of an open exercise shows its solution.
for file in $(grep '^tests/mutants/' "$work/early"); do
  awk -v open="$open" '
    /^$/ { secret = 0 }
    match($0, /^[0-9][0-9][.][0-9]+_/) { secret = index(open, " " substr($0, 1, RLENGTH - 1) " ") }
    !secret' "$file" | cat -s >"$tree/$file"
done

# A patch with marks in it is made anew: its context is the student's file. The others apply to that as they are.
grep -E '\.patch$' "$work/early" | xargs grep -lE '(BEGIN|END) SOLUTION|// STUB:' /dev/null >"$work/patches"
export GIT_CEILING_DIRECTORIES="$work"
while read -r patch; do
  bugged=$work/bugged
  rm -rf "$bugged" && mkdir "$bugged"
  changed=$(sed -n 's|^+++ b/||p' "$patch")
  tar -cf - $changed | tar -xf - -C "$bugged"
  (cd "$bugged" && git apply -) <"$patch" || refuse "$patch does not apply to the sources"
  : >"$tree/$patch"
  for file in $changed; do
    as_student "$bugged/$file" >"$work/with_bug"
    diff -u --label "a/$file" --label "b/$file" "$tree/$file" "$work/with_bug" >>"$tree/$patch" &&
      refuse "$patch changes only what is open to the student in $file"
  done
done <"$work/patches"

# Rows of tables and commands that name a later lesson, in the two pages that list lessons.
if [ -n "$later" ]; then
  for page in README.md lessons/README.md; do
    [ -f "$tree/$page" ] || continue
    awk -v later="^[|] *[[]($later)_|^make (lesson|test)-($later)" '
      $0 ~ later { row = 1; next }
      row && /^[ \t]+[^ \t]/ { next }
      { row = 0; print }' "$page" >"$tree/$page"
  done
fi

awk -v open="$open" -f "$tools/leaks.awk" $marked_all /dev/null >"$work/secrets"
if [ -s "$work/secrets" ] && leaks=$(cd "$tree" && grep -rnF -f "$work/secrets" .); then
  echo "$leaks" | sed 's|^\./|leak: |' | cut -c1-200 >&2
  refuse "these lines give a solution away; the tree is not handed out"
fi

date=$(git log -1 --format=%cI 2>/dev/null)
[ -n "$date" ] || refuse "there is no commit here, of which the date could be taken"
export GIT_AUTHOR_NAME=gradus GIT_AUTHOR_EMAIL=gradus@example.org GIT_AUTHOR_DATE="$date"
export GIT_COMMITTER_NAME=gradus GIT_COMMITTER_EMAIL=gradus@example.org GIT_COMMITTER_DATE="$date"
case $lesson in all) what="all exercises" ;; *) what="lesson $lesson" ;; esac
(
  cd "$tree" && git -c init.templateDir= init -q && git symbolic-ref HEAD refs/heads/main && git add -Af . &&
    git -c commit.gpgsign=false commit -q -m "gradus: $what"
) || refuse "git could not make the commit"

[ ! -d "$out" ] || rmdir "$out"
mv "$tree" "$out" || refuse "$out could not be written"
echo "student: $what in $out: $(wc -l <"$work/early") files, open:$open$(git -C "$out" rev-parse --short HEAD)"
