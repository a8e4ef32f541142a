#!/bin/sh
# grade_selftest.sh [NN...]: grades submissions of which is known what they deserve (make check-grade).
#   hostile   to lesson 02: each does in its own way what a submission must not; no other exercise may suffer
#   lessons   for each lesson NN (by default all): the solution has all points; with one exercise open, exactly
#             its points are gone
# No submission is stored: each is made of the solved files, without their marks.
export LC_ALL=C
tools=$(cd "$(dirname "$0")" && pwd)
base=$(mktemp -d) && trap 'rm -rf "$base"' EXIT
trap 'exit 1' INT TERM
lessons=${*:-$(ls -d lessons/[0-9][0-9]_* | sed 's|lessons/\(..\)_.*|\1|')}
folders=$(ls -d lessons/[0-9][0-9]_* | sed 's|lessons/||' | tr '\n' ' ')
sources=$(find kernels src lessons -type f | grep -E '\.(h|cpp|cu|inc)$' | sort)
awk -f "$tools/exercises.awk" $sources | sed -n 's/^exercise \([0-9.]*\) \(.*\):.*/\1 \2/p' | sort >"$base/places"
mkdir "$base/out"
failures=0 count=0

fail() { echo "self-test of grade: $*"; failures=$((failures + 1)); }
now() { date +%s; }

# solve "02.1 02.2" FILE...: the files as a student hands them in, with these exercises open.
solve() {
  open=$1
  shift
  for file; do
    mkdir -p "$sub/$(dirname "$file")"
    awk -v open=" $open " -v lessons="$folders" -f "$tools/student.awk" "$file" >"$sub/$file"
  done
}
fresh() { rm -rf "${base:?}/sub" && mkdir "$base/sub"; sub=$base/sub; }

# grade LESSON: the rows are then in $base/rows, as "02.1 open 0".
grade() {
  sh "$tools/grade.sh" "$1" "$sub" "$base/out/grade.json" >"$base/log" 2>&1
  status=$?
  awk -f "$tools/../tools/json.awk" "$base/out/grade.json" >"$base/flat"
  awk -F'\t' '$1 ~ /\.id$/ { id = $2 } $1 ~ /[.]points$/ { points = $2 } $1 ~ /\.state$/ { print id, $2, points }' \
    "$base/flat" >"$base/rows"
  total=$(sed -n 's/^total\t//p' "$base/flat") max=$(sed -n 's/^max\t//p' "$base/flat")
}

# ---- hostile --------------------------------------------------------------------------------------------
tanh=kernels/cpu/tanh.cpp linear=src/ops/linear.cpp

# hostile BODY [TOP]: tanh.cpp, solved, with BODY at the start of its backward function and TOP above all.
hostile() {
  fresh
  solve "" $tanh $linear
  {
    printf '#include <csignal>\n#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n#include <unistd.h>\n%s\n' "$2"
    BODY=$1 awk '{ print } /^void tanh_bwd/ { print ENVIRON["BODY"] }' "$sub/$tanh"
  } >"$base/file" && mv "$base/file" "$sub/$tanh"
}

# expect WHAT 02.2'S-STATE [02.1'S]: grades; 02.3, which was handed in well, has passed, and 02.1 is open.
expect() {
  start=$(now)
  grade 02
  count=$((count + 1))
  states=$(awk '$1 != "02.5" { printf "%s%s", n++ ? " " : "", $2 }' "$base/rows")
  [ "$states" = "${3:-open} $2 ${4:-passed}" ] || { fail "$1: $states, not ${3:-open} $2 ${4:-passed}"; cat "$base/log"; }
  sum=$(awk '{ sum += $3 } $2 == "passed" { n++ } END { print sum + 0, 10 * n }' "$base/rows")
  [ "$sum" = "$total $total" ] || fail "$1: the total is $total, the rows say $sum"
  [ $status -eq 0 ] || fail "$1: the exit code is $status"
  grep -q '"isolated": true' "$base/out/grade.json" || [ "$(id -u)" != 0 ] || fail "$1: it was not isolated"
  pgrep -f "gradus-grade" >/dev/null && fail "$1: something of it still runs"
  echo "$1: $states, $(($(now) - start)) s: $(sed -n 's/^exercises.1.message\t//p' "$base/flat" | cut -c1-110)"
}

hostile_submissions() {
  hostile 'std::exit(0);';                                  expect "exit(0)" crashed
  hostile 'std::abort();';                                  expect "abort()" crashed
  hostile 'for (volatile int i = 0;; i = i + 1) {}';        expect "endless loop" timeout
  hostile 'std::memset(new char[10L << 30], 1, 10L << 30);'; expect "allocates 10 GB" memory
  hostile 'for (;;) if (fork() == 0) setsid();';            expect "fork bomb" timeout
  hostile "for (const char* f : {\"$base/out/grade.json\", \"../rows\", \"../bin/limits\", \"$tanh\", \"../x\"})
      if (FILE* to = fopen(f, \"w\")) std::puts(f), std::abort();
    *dx.set<float>() = 7;" ;                                sed -i 's/\*dx.set<float>() = 7;/return;/' "$sub/$tanh"
                                                            expect "writes to results" failed
  hostile 'static const char fake[] = "{\"testsuites\": [{\"name\": \"L02_Gradcheck\", \"testsuite\": [{\"name\": \"Tanh\", "
    "\"status\": \"RUN\", \"result\": \"COMPLETED\"}]}]}\n[  PASSED  ] 1 test.\n";
    for (int fd = 1; fd < 16; fd++) [[maybe_unused]] auto n = write(fd, fake, sizeof fake - 1);
    _exit(0);';                                             expect "prints fake JSON" crashed
  hostile 'this is not C++;';                               expect "does not compile" not_built
  fresh;                                                    expect "empty" open open open
  hostile ''; : >"$sub/$tanh";                              expect "empty file" not_built
  hostile ''; ln -sf "$PWD/$tanh" "$sub/$tanh"; mkdir "$sub/src/autograd"
  ln -s "$PWD/src/autograd/tape.cpp" "$sub/src/autograd/";  expect "link out of the tree" open
  hostile ''; mv "$sub/kernels" "$base/aside"; ln -s "$base/aside" "$sub/kernels"
                                                            expect "linked folder" open; rm -r "$base/aside"
  hostile ''; solve 02.2 $tanh; mkdir "$sub/tests"; echo 'int main() {}' >"$sub/Makefile"
  echo 'TEST(L02_Gradcheck, Tanh) {}' >"$sub/tests/autograd_test.cpp"
                                                            expect "edits tests" open
  hostile '' 'int RUN_ALL_TESTS() { return 0; }'; sed -i 's/load(grad, i) \* /2 * &/' "$sub/$tanh"
                                                            expect "shadows RUN_ALL_TESTS" failed
  hostile '' 'struct S { S() { _exit(0); } } s;';           expect "exits in a static constructor" crashed
  hostile 'static int n = 0; while (n++ < 300000) std::printf("%01000d\n", n);'
                                                            expect "huge output" passed
  hostile ''; mv "$sub/$tanh" "$sub/kernels/cpu/Tanh.cpp";  expect "wrong file name" open
  hostile 'for (int s = 1; s < 32; s++) std::signal(s, [](int) { _exit(0); });
    *static_cast<volatile int*>(nullptr) = 1;';             expect "signal handler" crashed
}
# More than was asked for.
cheats() {
  hostile '' 'int main() { return 0; }';                    expect "a main of its own" not_built
  hostile '' 'extern "C" ssize_t write(int, const void*, size_t n) { return n; }'
                                                            expect "a write() of its own" not_built
  hostile 'static testing::TestPartResultArray results;
    static testing::ScopedFakeTestPartResultReporter swallow(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    return;' '#include <gtest/gtest-spi.h>';                expect "swallows failures" not_built
  hostile ''; echo "#include \"$PWD/$tanh\"" >"$sub/$tanh"; expect "includes the solution" not_built
  hostile 'std::puts("x");'; mv "$sub/$tanh" "$sub/$linear" "$sub"; rm -r "$sub/src" "$sub/kernels"
                                                            expect "all files in one folder" passed
}

# The grader's own trouble: no row may say that the student is to blame.
grader_error() {
  fresh
  solve "" $tanh
  mkdir "$base/bin" && printf '#!/bin/sh\nexit 1\n' >"$base/bin/ar" && chmod +x "$base/bin/ar"
  PATH=$base/bin:$PATH
  grade 02
  PATH=${PATH#*:}
  [ $status -eq 2 ] && [ "$total" = null ] && ! grep -vq 'grader_error null$' "$base/rows" &&
    ! grep -q score "$base/out/results.json" "$base/out/autolab.txt" ||
    { fail "a grader without ar: exit code $status"; cat "$base/log"; }
}

# The other formats say what grade.json says, whatever a message holds.
formats() {
  hostile ''; sed -i 's|^void tanh_bwd|#error "a \\\\ <b> \& c"\n&|' "$sub/$tanh"
  expect "odd letters" not_built
  awk -f "$tools/../tools/json.awk" "$base/out/results.json" >"$base/flat" || fail "results.json is not JSON"
  grep -qx "score	$total" "$base/flat" && grep -q '^tests.1.score	0$' "$base/flat" &&
    grep -qF 'error "a \\ <b> & c"' "$base/flat" || { fail "results.json is not right"; cat "$base/out/results.json"; }
  grep -q 'failures="2" errors="0"' "$base/out/junit.xml" && grep -qF '&lt;b&gt; &amp; c' "$base/out/junit.xml" ||
    { fail "junit.xml is not right"; cat "$base/out/junit.xml"; }
  grep -qE '^\{"scores": \{"02.1": 0, "02.2": 0, "02.3": 10[,}]' "$base/out/autolab.txt" || fail "autolab.txt is not right"
}

# ---- lessons ----------------------------------------------------------------------------------------------
# one OPEN: the exercise OPEN of lesson $nn (or none) is open; all points but its are there.
one() {
  fresh
  solve "$1" $(sed -n "s/^$nn\.[0-9]* //p" "$base/places" | sort -u)
  grade "$nn"
  awk -v open="$1" '$1 ~ /^[0-9]/ && (NF == 2 || FILENAME == ARGV[1]) { place[$1]; next }
    $1 in place && ($1 == open ? $2 != "open" || $3 != 0 : $2 != "passed" || $3 == 0) { print "wrong:", $0; bad = 1 }
    $1 in place { n++; lost += $1 == open }
    END { exit bad || n == 0 || (open != "" && lost != 1) }' "$base/places" "$base/rows" >"$base/wrong" ||
    { fail "lesson $nn, open: ${1:-none}: $(cat "$base/wrong")"; cat "$base/log"; }
}
lesson() {
  start=$(now)
  one ""
  full=$total
  for id in $(sed -n "s/^\($nn\.[0-9]*\) .*/\1/p" "$base/places"); do one "$id"; done
  echo "lesson $nn: solved $full of $max points; each of $(grep -c "^$nn\." "$base/places") exercises open loses" \
    "its own, $(($(now) - start)) s"
}

begin=$(now)
hostile_submissions
echo "hostile: $count submissions, $(($(now) - begin)) s"
cheats
formats
grader_error
for nn in $lessons; do lesson; done
if [ $failures -eq 0 ]; then echo "self-test of grade: every submission got its row"; else exit 1; fi
