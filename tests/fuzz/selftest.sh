#!/bin/sh
# selftest.sh PROGRAM: the driver finds every kind of planted fault, in a file and by itself; keeps the input,
# with which it is found again; and finds nothing where nothing is. PROGRAM is that of planted.cpp.
program=$1
file=$program.file
fails() { echo "the fuzzer's own test: $1"; exit 1; }

expect_found() {  # FAULT WHAT SECONDS: of a file with this fault the driver says that, within so long
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
"$program" "$file" >"$program.log" 2>&1 || fails "a fault was found where none is"

"$program" --seconds=60 >"$program.log" 2>&1 && fails "the planted fault was not found"
head -c 1 "$program.input" | grep -q a || fails "another input was kept than that with the fault"
"$program" "$program.input" >"$program.log" 2>&1 && fails "the kept input does not show the fault again"
rm -f "$file" "$program.input" "$program.log"
