#!/bin/sh
# Interrupts the trainer of lesson 22 at random moments with SIGINT, SIGTERM and SIGKILL. The trainer saves after every
# step, so it is often interrupted while it saves. Each run is resumed and interrupted until it has finished; its file
# and curve are then compared with those of a run without interruptions. Prints a table.
#
#   make build/lessons/22_scoreboard && sh tests/bench/interrupt.sh [INTERRUPTIONS]
set -eu
program=$PWD/build/lessons/22_scoreboard
each=$(((${1:-200} + 3) / 4))
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMP_NUM_THREADS=1

random() { echo $(($(od -An -N2 -tu2 /dev/urandom) % $1)); }
count() { echo "$way $*" >>counts; }
steps_and_losses() { sed 's/,"seconds".*//' "$1"; }

# Starts or resumes the run, interrupts it if the run needs more interruptions, and returns its exit code.
interrupt() {
  if [ -e run ]; then set -- --load=run; else set -- $start; fi
  env --default-signal=INT,TERM "$program" train "$@" --save=run --curve=curve --save-every=1 >out 2>&1 &
  if [ $interruptions -lt "$each" ]; then
    sleep "0.$(printf %03d "$(($(random 150) + 5))")"
    kill -s "$signal" $! || true
  fi
  wait $! 2>/dev/null
}

for way in plain zero lora mixed-fp16; do
  case $way in
    plain) flags='--dropout=0.1' ;;
    zero) flags='--ranks=2 --zero=2' ;;
    lora) flags='--lora=4 --optimizer=adamw8bit' ;;
    mixed-fp16) flags='--precision=mixed-fp16 --workers=2' ;;
  esac
  start="--model=gpt-2x16x2 --context=16 --text-bytes=20000 --batch=4 --steps=60 --lr=0.01 $flags"
  "$program" train $start --save=whole --curve=whole-curve >out 2>&1
  interruptions=0
  while [ $interruptions -lt "$each" ] || [ -e run ]; do
    case $(random 3) in 0) signal=INT died=130 ;; 1) signal=TERM died=143 ;; *) signal=KILL died=137 ;; esac
    code=0
    interrupt 2>/dev/null || code=$?
    if [ -e run ] && ! "$program" train --load=run --steps=1 >said 2>&1; then
      count "$signal" unreadable
      cat said
    fi
    if [ $code -eq 0 ]; then
      count any finished
      cmp -s run whole || count any different
      steps_and_losses curve >a
      steps_and_losses whole-curve | cmp -s - a || count any different-curve
      ls run.tmp-* >said 2>/dev/null && count any left-over
      rm -f run* curve
      continue
    fi
    interruptions=$((interruptions + 1))
    if [ $code -ne $died ]; then
      count "$signal" "wrong exit code"
      cat out
    elif grep -q 'goes on from there' out; then
      count "$signal" "stopped and saved"
    elif ls run.tmp-* >said 2>/dev/null; then
      count "$signal" "ended while it saved"
    else
      count "$signal" "ended at once"
    fi
  done
  rm -f run* curve whole
done
sort counts | uniq -c
! grep -E 'unreadable|different|wrong|left-over' counts >said
