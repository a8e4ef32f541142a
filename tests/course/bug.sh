#!/bin/sh
# bug.sh NN [undo]: puts one of the mutants of lesson NN into this tree, for a student to find (make bug-02; SEED=3
# always chooses the same one, by default it is drawn). undo takes it out (make bug-02 UNDO=1).
lesson=$1 undo=$2
tools=$(cd "$(dirname "$0")" && pwd)
mutants=tests/mutants put_in=build/bug.patch
. "$tools/tree.sh"

refuse() { echo "bug: $*" >&2; exit 2; }
applies() { git apply --check "$@" 2>/dev/null; }

mkdir -p build
if [ -n "$undo" ]; then
  [ -f $put_in ] || refuse "no bug was put in; make bug-$lesson puts one in"
  if applies -R $put_in; then git apply -R $put_in
  else applies $put_in || refuse "the lines of the bug are others now; git diff shows what you changed"; fi
  rm $put_in
  echo "the bug is out"
  exit
fi

[ ! -f $put_in ] || applies $put_in || refuse "a bug is in already; make bug-$lesson UNDO=1 takes it out"
put() { awk -v name="$1" $2 -f "$tools/mutant.awk" $mutants/"$lesson".txt; }
bugs=$(for name in $(mutants_of "$lesson"); do
  sed -n "/^$name: /{n; p;}" $mutants/"$lesson".txt | grep -q '^survives: ' ||
    ! put "$name" "-v only=look" >build/bug.log || echo "$name"
done)
[ -n "$bugs" ] || refuse "there is no bug for lesson $lesson that can be put in here; lessons with bugs:" \
  $(ls $mutants | sed 's/\.txt$//')
seed=${SEED:-$(od -An -N2 -tu2 /dev/urandom)}
case $seed in *[!0-9\ ]*) refuse "SEED=$seed is not a number" ;; esac
bug=$(echo "$bugs" | sed -n "$(($(expr $seed % $(echo "$bugs" | wc -l)) + 1))p")
files=$(put "$bug" "-v only=look")
[ -z "$(git status --porcelain -- $files)" ] ||
  refuse "a file that the bug is for has changes of yours; commit them first, or draw another with SEED=N"
put "$bug" >build/bug.log || refuse "$(cat build/bug.log)"
git diff -- $files >$put_in
echo "a bug is in what lesson $lesson reads. make test-$lesson shows the symptom; find it. Then git diff shows whether"
echo "you were right, and make bug-$lesson UNDO=1 takes it out."
