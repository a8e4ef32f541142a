#!/bin/sh
# run.sh SECONDS SEED PLANTED PROGRAM...: tests the driver on PLANTED, then runs each harness for so long. The
# last line counts what was found; the exit code is 0 only if nothing was.
seconds=$1 seed=$2 planted=$3
shift 3
ulimit -c 0
export UBSAN_OPTIONS=print_stacktrace=1
sh "$(dirname "$0")/selftest.sh" "$planted" || exit 1
echo "the driver finds what is planted; ${seconds} s for each of $# harnesses, seed $seed"
found=0
for program; do
  "$program" --seconds="$seconds" --seed="$seed" >"$program.log" 2>&1 || found=$((found + 1))
  grep -q FOUND "$program.log" && tail -n 60 "$program.log" || tail -n 1 "$program.log"
done
echo "fuzz: $# harnesses, $found found a fault"
[ $found -eq 0 ]
