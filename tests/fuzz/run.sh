#!/bin/sh
# run.sh SECONDS SEED PLANTED PROGRAM...: tests the driver on PLANTED, then runs each harness for SECONDS, one per
# core. The last line counts the harnesses that found a fault; the exit code is 0 only if none did.
seconds=$1 seed=$2 planted=$3
shift 3
ulimit -c 0
export UBSAN_OPTIONS=print_stacktrace=1
sh "$(dirname "$0")/selftest.sh" "$planted" || exit 1
echo "the driver finds the planted faults; ${seconds} s for each of $# harnesses, seed $seed"
for program; do rm -f "$program.log" "$program.status"; done
run='"$1" --seconds="$2" --seed="$3" >"$1.log" 2>&1; echo $? >"$1.status"'
printf '%s\n' "$@" | xargs -P "$(nproc)" -I@ sh -c "$run" - @ "$seconds" "$seed"
found=0
for program; do
  [ "$(cat "$program.status" 2>&1)" = 0 ] || found=$((found + 1))
  [ -e "$program.status" ] || echo "$program: did not finish"
  grep -qs FOUND "$program.log" && tail -n 60 "$program.log" || tail -n 1 "$program.log"
done
echo "fuzz: $# harnesses, $found found a fault"
[ $found -eq 0 ]
