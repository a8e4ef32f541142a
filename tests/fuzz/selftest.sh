#!/bin/sh
# selftest.sh PROGRAM: the driver finds every kind of planted fault, in a file and in its own inputs; it keeps the
# input, which shows the fault again; and it finds nothing where there is no fault. PROGRAM is built from planted.cpp.
program=$1
file=$program.file
fails() { echo "the fuzzer's own test: $1"; exit 1; }

expect_found() {  # FAULT TEXT SECONDS: with a file that has this fault, and this limit per input, it prints TEXT
  printf %s "$1" >"$file"
  "$program" "$file" --input-seconds=$3 --input-mib=512 >"$program.log" 2>&1 && fails "$1: nothing was found"
  grep -q "FOUND: input 0 $2" "$program.log" || fails "$1: $(tail -1 "$program.log")"
}
expect_found read 'ended with exit code' 60
expect_found throw 'ended by a signal' 60
expect_found abc 'ended by a signal' 60
expect_found wait 'took more than 1 s' 1
expect_found grow 'took more than 512 MiB' 60

printf %s none >"$file"
"$program" "$file" >"$program.log" 2>&1 || fails "a fault was found where there is none"

"$program" --seconds=60 >"$program.log" 2>&1 && fails "the planted fault was not found"
head -c 1 "$program.input" | grep -q a || fails "the kept input is not the one with the fault"
"$program" "$program.input" >"$program.log" 2>&1 && fails "the kept input does not show the fault again"
rm -f "$file" "$program.input" "$program.log"
