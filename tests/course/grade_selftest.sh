#!/bin/sh
# grade_selftest.sh [NN...]: grades submissions of which is known what they deserve (make check-grade).
#   hostile   to lesson 02: each does in its own way what must not be; no other exercise may suffer
#   lessons   for each lesson NN (by default all): the solution has all points; with one exercise open, just
#             its points are gone
# No submission is stored: each is made of the solved files, without their marks.
export LC_ALL=C
tools=$(cd "$(dirname "$0")" && pwd)
base=$(mktemp -d) && trap 'rm -rf "$base"' EXIT
trap 'exit 1' INT TERM
sub=$base/sub out=$base/out/grade.json
lessons=${*:-$(ls -d lessons/[0-9][0-9]_* | sed 's|lessons/\(..\)_.*|\1|')}
folders=$(ls -d lessons/[0-9][0-9]_* | sed 's|lessons/||' | tr '\n' ' ')
sh "$tools/exercises.sh" |
  sed -n 's/^exercise \([0-9.]*\) \(.*\):.*/\1 \2/p' | sort >"$base/places"
mkdir "$base/out"
failures=0 count=0

fail() { echo "self-test of grade: $*"; failures=$((failures + 1)); }
show() { cat "$base/log" "$@"; }
now() { date +%s; }
flat() { awk -f "$tools/../tools/json.awk" "$1"; }

# solve "02.1 02.2" FILE...: the files as a student hands them in, with these exercises open.
solve() {
  open=$1
  shift
  for file; do
    mkdir -p "$sub/$(dirname "$file")"
    awk -v open=" $open " -v lessons="$folders" -f "$tools/student.awk" "$file" >"$sub/$file"
  done
}
fresh() { rm -rf "$sub" && mkdir "$sub"; }

# grade LESSON: the rows are then in $base/rows, as "02.1 open 0", by number.
grade() {
  sh "$tools/grade.sh" "$1" "$sub" "$out" >"$base/log" 2>&1
  status=$?
  flat "$out" >"$base/flat"
  awk -F'\t' '$1 ~ /\.id$/ { id = $2 }
    $1 ~ /\.points$/ { points = $2 }
    $1 ~ /\.state$/ { print id, $2, points }' "$base/flat" | sort -t. -k2n >"$base/rows"
  total=$(sed -n 's/^total\t//p' "$base/flat") max=$(sed -n 's/^max\t//p' "$base/flat")
}

# ---- hostile --------------------------------------------------------------------------------------------
tanh=kernels/cpu/tanh.cpp linear=src/ops/linear.cpp

# hostile BODY [TOP]: tanh.cpp, solved, with BODY at the start of its backward function and TOP above all.
hostile() {
  fresh
  solve "" $tanh $linear
  {
    printf '#include <%s>\n' csignal cstdio cstdlib cstring unistd.h
    printf '%s\n' "$2"
    BODY=$1 awk '{ print } /^void tanh_bwd/ { print ENVIRON["BODY"] }' "$sub/$tanh"
  } >"$base/file" && mv "$base/file" "$sub/$tanh"
}

# expect WHAT 02.2'S-STATE: grades. 02.3, if it was handed in, was handed in well, and 02.1 was not.
expect() {
  start=$(now) others=$([ -f "$sub/$linear" ] || [ -f "$sub/linear.cpp" ] && echo passed || echo open)
  grade 02
  count=$((count + 1))
  states=$(awk '$1 < "02.5" { printf "%s%s", n++ ? " " : "", $2 }' "$base/rows")
  [ "$states" = "open $2 $others" ] || { fail "$1: $states, not open $2 $others"; show; }
  sums=$(awk '{ sum += $3 } $2 == "passed" { n++ } END { print sum + 0, 10 * n }' "$base/rows")
  [ "$sums" = "$total $total" ] || { fail "$1: the total is $total, the rows say $sums"; show; }
  [ $status -eq 0 ] || fail "$1: the exit code is $status"
  [ "$(id -u)" != 0 ] || grep -q '"isolated": true' "$out" || fail "$1: it was not isolated"
  # The grader's folder is gone; a process whose program was in it would be left over.
  ls -l /proc/[0-9]*/exe 2>/dev/null | grep -F gradus-grade. | grep -qF '(deleted)' &&
    fail "$1: something of it still runs"
  echo "$1: $states, $(($(now) - start)) s: $(sed -n 's/^exercises.1.message\t//p' "$base/flat" | cut -c1-90)"
}

sixteen() {
  hostile 'std::exit(0);';                                    expect "exit(0)" crashed
  hostile 'std::abort();';                                    expect "abort" crashed
  hostile 'for (volatile int i = 0;; i = i + 1) {}';          expect "endless loop" timeout
  hostile 'volatile char* p = new char[10L << 30]; for (long i = 0; i < 10L << 30; i += 4096) p[i] = 1;'
                                                              expect "10 GB" memory
  hostile 'for (;;) if (fork() == 0) setsid();';              expect "fork bomb" timeout
  hostile 'for (const char* file : {RESULTS, "../rows", "../bin/limits", "Makefile", "../passed"})
    if (FILE* open = std::fopen(file, "w")) std::fputs(file, open), std::fclose(open), std::abort();
    return;' "#define RESULTS \"$out\"";                      expect "writes to results" failed
  hostile 'for (int fd = 1; fd < 16; fd++) dprintf(fd, "%s", fake); _exit(0);' \
    'static const char* fake = "{\"testsuites\": [{\"name\": \"L02_Gradcheck\", \"testsuite\": ["
    "{\"name\": \"Tanh\", \"status\": \"RUN\", \"result\": \"COMPLETED\"}]}]}\n[  PASSED  ] 1 test.\n";'
                                                              expect "fake JSON" crashed
  hostile 'this is not C++;';                                 expect "does not compile" not_built
  fresh;                                                      expect "empty" open
  hostile; ln -sf "$PWD/$tanh" "$sub/$tanh";                  expect "link out of the tree" open
  hostile; solve 02.2 $tanh; mkdir -p "$sub/tests/autograd"; echo 'int main() {}' >"$sub/tests/autograd/autograd_test.cpp"
  printf 'all:\n\ttrue\n' >"$sub/Makefile";                   expect "edits tests" open
  hostile return\; 'int RUN_ALL_TESTS() { return 0; }';       expect "shadows RUN_ALL_TESTS" failed
  hostile '' 'struct S { S() { _exit(0); } } s;';             expect "exits in a static constructor" crashed
  hostile 'for (int i = 0; i < 100000; i++) std::printf("%01000d\n", i);
    return;';                                                 expect "huge output" failed
  hostile; mv "$sub/$tanh" "$sub/kernels/cpu/tanh_final.cpp"; expect "wrong file names" open
  hostile 'for (int s = 1; s < 32; s++) std::signal(s, [](int) { _exit(0); });
    *static_cast<volatile int*>(nullptr) = 1;';               expect "signal handler" crashed
}
cheats() {  # and what else a student may try
  hostile; : >"$sub/$tanh";                                   expect "empty file" not_built
  hostile; mv "$sub/kernels" "$base/away"; ln -s "$base/away" "$sub/kernels"
                                                              expect "link to a folder" open
  hostile '' 'int main() { return 0; }';                      expect "a main of its own" not_built
  hostile '' 'extern "C" ssize_t write(int, const void*, size_t n) { return n; }'
                                                              expect "a write of its own" not_built
  hostile 'static testing::TestPartResultArray results;
    static testing::ScopedFakeTestPartResultReporter swallow(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    return;' '#include <gtest/gtest-spi.h>';                  expect "swallows failures" not_built
  hostile; echo "#include \"$PWD/$tanh\"" >"$sub/$tanh";      expect "includes the solution" not_built
  hostile; mv "$sub/$tanh" "$sub/$linear" "$sub"; rm -r "$sub/src" "$sub/kernels"
                                                              expect "all files in one folder" passed
}

# The other formats say what grade.json says, whatever a message holds.
formats() {
  hostile '' '#error "a \ <b> & c"'
  expect "odd letters" not_built
  flat "$base/out/results.json" >"$base/flat" && grep -qx "score	$total" "$base/flat" &&
    grep -q '^tests.4.score	10$' "$base/flat" && grep -qF '\"a \\ <b> & c\"' "$base/flat" ||
    { fail "results.json is not right"; show "$base/out/results.json"; }
  grep -q 'errors="0"' "$base/out/junit.xml" &&
    grep -qF '&quot;a \ &lt;b&gt; &amp; c&quot;' "$base/out/junit.xml" ||
    { fail "junit.xml is not right"; show "$base/out/junit.xml"; }
  grep -qE '^\{"scores": \{"02.6": 0, "02.2": 0, "02.1": 0, "02.5": 0, "02.3": 10[,}]' "$base/out/autolab.txt" ||
    { fail "autolab.txt is not right"; show "$base/out/autolab.txt"; }
}

# The grader's own trouble: no row may say that the student is to blame.
grader_error() {
  fresh
  solve "" $tanh
  mkdir "$base/bin" && printf '#!/bin/sh\nexit 1\n' >"$base/bin/ar" && chmod +x "$base/bin/ar"
  PATH=$base/bin:$PATH
  grade 02
  PATH=${PATH#*:}
  [ $status -eq 2 ] && [ "$total" = null ] && ! grep -v 'grader_error null$' "$base/rows" &&
    ! grep -q score "$base/out/results.json" "$base/out/autolab.txt" ||
    { fail "a grader without ar: exit code $status"; show "$base"/out/*; }
}

# ---- lessons ----------------------------------------------------------------------------------------------
# answer NN: the answers of lesson NN, by the formulas of its page.
answer() {
  judge=build/course/predict_$1 file=$sub/$(ls -d lessons/"$1"_*)/answers.txt
  make "$judge" >"$base/log" 2>&1 || { fail "lesson $1: its judge of answers does not build"; show; }
  mkdir -p "${file%/*}" && "$judge" --answers="$file" --student=self-test >"$base/log" || show
  awk -f tests/course/predict_answers.awk "$file" >"$base/answers" && cp "$base/answers" "$file"
}

# one NN OPEN: lesson NN with the exercise OPEN, or none, open: its points and no others are gone.
one() {
  fresh
  solve "$2" $(sed -n "s/^$1\.[0-9]* //p" "$base/places" | sort -u)
  [ -n "$2" ] || answer "$1"
  grade "$1"
  awk -v nn="$1." -v open="$2" '
    FILENAME == ARGV[1] { if (index($1, nn) == 1) { place[$1]; n++ } next }
    !($1 in place) { next }
    $1 == open ? $2 $3 == "open0" : $2 == "passed" && $3 > 0 { right++; next }
    { print $0; wrong = 1 }
    END { exit wrong || right != n }' "$base/places" "$base/rows" >"$base/wrong" ||
    { fail "lesson $1, open: ${2:-none}: $(cat "$base/wrong")"; show; }
}
lesson() {
  start=$(now) ids=$(sed -n "s/^\($1\.[0-9]*\) .*/\1/p" "$base/places")
  one "$1" ""
  full=$total
  [ "$total" = "$max" ] || { fail "lesson $1, solved: $total of $max points"; show; }
  for id in $ids; do one "$1" "$id"; done
  echo "lesson $1: solved: $full of $max points; each open loses its own: $(echo $ids), $(($(now) - start)) s"
}

begin=$(now)
sixteen
echo "$count hostile submissions, $(($(now) - begin)) s"
cheats
formats
grader_error
for nn in $lessons; do lesson "$nn"; done
if [ $failures -eq 0 ]; then echo "self-test of grade: every submission got its row"; else exit 1; fi
