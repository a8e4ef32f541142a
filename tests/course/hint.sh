#!/bin/sh
# hint.sh NN.k: the next of the three hints for an exercise (make hint-08.2). After the third, all of them again.
# build/hints has a line for each hint that was shown.
tools=$(cd "$(dirname "$0")" && pwd)
id=$1 seen=build/hints

refuse() { echo "hint: $*" >&2; exit 2; }

exercises=$(awk -f "$tools/pages.awk" lessons/[0-9][0-9]_*/README.md | cut -f 1)
if ! echo "$exercises" | grep -qxF "$id"; then
  of_lesson=$(echo "$exercises" | grep "^${id%%.*}\.")
  [ -z "$of_lesson" ] || refuse "lesson ${id%%.*} has no exercise $id; it has" $of_lesson
  refuse "there is no exercise $id; write make hint-NN.k with one of" $exercises
fi
page=$(ls lessons/"${id%.*}"_*/hints.md 2>/dev/null)
hints=$(awk -v id="$id" -f "$tools/hints.awk" ${page:-/dev/null})
[ -n "$hints" ] || refuse "there are no hints for exercise $id; its page is $(ls lessons/"${id%.*}"_*/README.md)"

mkdir -p build && touch "$seen"
next=$(($(grep -cxF "$id" "$seen") + 1))
show() { echo "$hints" | sed -n "$1p" | sed "s/^/hint $1 of 3 for $id: /" | fold -s -w 110 | sed 's/ *$//'; }
if [ $next -le 3 ]; then
  echo "$id" >>"$seen"
  show $next
  [ $next = 3 ] && echo "that was the last one" || echo "$((3 - next)) more: make hint-$id"
else
  echo "there are no more hints for $id; all three again:"
  for k in 1 2 3; do show $k; done
fi
