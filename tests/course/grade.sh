#!/bin/sh
# grade.sh LESSON SUBMISSION [OUT [STUDENT]]: grades what a student handed in for one lesson (make grade
# LESSON=NN SUBMISSION=dir OUT=file STUDENT=name). SUBMISSION is a tree as it was handed out, or only the
# files that count, by their paths or all in one folder: those with exercises of the lesson, and its
# answers.txt. Nothing else of it is looked at, and no link is followed.
#   Each file is compiled alone. Each exercise is then linked from the student's file and the solved rest, so
#   none fails for another's sake, and runs in processes of its own with limits (limits.cpp). It has passed if
#   GoogleTest's own report (grade_main.cpp) says that exactly the tests passed that pass with the solution.
#   As root, all that is the student's runs as a user without rights; else "isolated" is false in the report.
# Writes OUT (build/grade/grade.json; grade.awk describes it), and beside it results.json (Gradescope),
# junit.xml and autolab.txt. Exit code 0: graded, whatever the points; 2: called wrongly, or an error of the
# grader's, for which no student loses a point: there is no total then.
export LC_ALL=C
umask 022
unset MAKEFLAGS MAKELEVEL MFLAGS
lesson=$1 submission=$2 out=${3:-build/grade/grade.json}
tools=$(cd "$(dirname "$0")" && pwd)
memory=512 cpu=60  # MiB; seconds of the compiler (a test has ten times those of the solution, and 10)
largest=262144     # bytes of a file that is handed in

refuse() { echo "grade: $*" >&2; exit 2; }
# What comes in as one line of printable characters, at most so many.
printable() { tr '\n\t' '  ' | tr -cd ' -~' | sed 's| *$||' | cut -c1-"$1" | tr -d '\n'; }
plain() { printable 80 | tr -d '"\\'; }

student=$(printf '%s' "$4" | plain)
page=$(ls lessons/"$lesson"_*/README.md 2>/dev/null)
numbers=$(ls -d lessons/[0-9][0-9]_* 2>/dev/null | sed 's|lessons/\(..\)_.*|\1|' | tr '\n' ' ')
[ -n "$lesson" ] && [ -f "$page" ] || refuse "there is no lesson '$lesson'; write LESSON=NN, one of $numbers"
[ -n "$submission" ] || refuse "SUBMISSION is missing, the folder with what the student handed in"
[ -d "$submission" ] || refuse "there is no folder $submission"
folder=${page%/README.md}
# Exercises with their files, as "02.1 src/autograd/tape.cpp".
places=$(sh "$tools/exercises.sh" | sed -n "s/^exercise \($lesson\.[0-9]*\) \(.*\):.*/\1 \2/p")
[ -n "$places" ] || refuse "no file here has marks of lesson $lesson; call it in the solved source"
files=$(echo "$places" | sed 's/.* //' | sort -u)

mkdir -p "$(dirname "$out")" || refuse "the folder of $out cannot be made"
work=$(mktemp -d "${TMPDIR:-/tmp}/gradus-grade.XXXXXX") || refuse "there is no room for the grader's files"
clean_up() {
  [ $user = 0 ] || find "${TMPDIR:-/tmp}" /dev/shm /var/tmp -user $user -delete 2>/dev/null
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 2' INT TERM
chmod 711 "$work" && mkdir "$work/tree" "$work/bin" "$work/objects" "$work/answers"

# A user id that nobody has. 0: this is not root, and everything runs as the one who grades.
user=0
if [ "$(id -u)" = 0 ]; then
  user=$((20000 + $$ % 40000))
  while id $user >/dev/null 2>&1 || grep -q "^Uid:.*[[:blank:]]$user" /proc/[0-9]*/status 2>/dev/null; do
    user=$((user + 1))
  done
fi

# ---- what is graded, and the report ---------------------------------------------------------------------
graded=$(awk -f "$tools/pages.awk" "$page" | awk -F'\t' -v OFS='|' '$2 > 0 { print $1, $2, $3, $4 }')
[ -n "$graded" ] || refuse "$page has no exercise with points"
: >"$work/rows"

# row ID STATE SECONDS MESSAGE: the message in one line of printable characters.
row() {
  echo "$graded" | awk -F'|' -v OFS='\t' -v ORS='\t' -v id="$1" -v state="$2" -v seconds="$3" '
    $1 == id { print id, $3, state == "passed" ? $2 : 0, $2, state, seconds }' >>"$work/rows"
  printf '%s' "$4" | printable 300 >>"$work/rows"
  echo >>"$work/rows"
}
flat() { awk -f "$tools/../tools/json.awk" "$1"; }
format() { to=$1 && shift && awk -v to="$to" -f "$tools/text.awk" -f "$tools/grade.awk" "$@"; }
write() { # FORMAT FILE: first to a name of its own, so a full disk leaves no half of a report
  flat "$out" | format "$1" >"$2.part" && mv "$2.part" "$2"
}
report() {
  beside=$(dirname "$out")
  isolated=$([ $user = 0 ] && echo false || echo true)
  format json lesson="$lesson" student="$student" isolated=$isolated "$work/rows" >"$out.part" &&
    mv "$out.part" "$out" && write gradescope "$beside/results.json" &&
    write junit "$beside/junit.xml" && write autolab "$beside/autolab.txt" ||
    refuse "the report could not be written to $beside"
  flat "$out" | format table
  ! grep -q '	grader_error	' "$work/rows"
}
# An error of the grader's: of every exercise that has no row yet.
give_up() {
  for id in $(echo "$graded" | cut -d'|' -f1); do
    grep -q "^$id	" "$work/rows" || row "$id" grader_error 0 "$*"
  done
  report
  exit 2
}

# ---- the pristine tree ----------------------------------------------------------------------------------
object_of() { case $1 in *.cu) echo "build/obj/emu/${1%.cu}.o" ;; *) echo "build/obj/${1%.cpp}.o" ;; esac; }
copy_of() { echo "$work/objects/$1/$(object_of "$2" | tr / _)"; }  # solved|student FILE
test_object() { echo "$work/objects/$(echo "$1" | tr / _).o"; }
symbols() { nm -P -g "$@" 2>/dev/null | awk 'NF > 1 { print $1, $2 }'; }

copy() { cp "$@" || give_up "the disk is full"; }

prepare() {
  awk -f "$tools/tests.awk" $(find tests -name '*_test.cpp' | sort) | grep "^$lesson\." >"$work/tests"
  programs=$(sed 's/^[^ ]* \([^ ]*\) .*/\1/' "$work/tests" | sort -u)
  judge=$(echo "$graded" | grep -q '|predict$' && echo "build/course/predict_$lesson")
  [ -f build/libgradus.a ] || echo "grade: builds gradus first, which takes minutes" >&2
  mkdir -p "$work/objects/solved" "$work/objects/student"
  make grade-rest TO="$work/objects/rest.a" WITHOUT="$(echo $files)" \
    build/standins.a build/course/limits build/obj/tests/course/grade_main.o $judge \
    $(for f in $files; do object_of "$f"; done) $(for p in $programs; do echo "build/obj/tests/$p.o"; done) >"$work/log" 2>&1 ||
    give_up "the solved tree does not build: $(grep -m 1 -E 'rror' "$work/log")"
  copy build/course/limits $judge "$work/bin"
  tar -cf - Makefile data kernels src lessons tests | tar -xf - -C "$work/tree" || give_up "the disk is full"
  (cd "$work/tree" && rm -rf $files tests/mutants lessons/*/*.patch)
  copy build/obj/tests/course/grade_main.o build/standins.a "$work/objects"
  for p in $programs; do copy "build/obj/tests/$p.o" "$(test_object "$p")"; done
  for file in $files; do copy "$(object_of "$file")" "$(copy_of solved "$file")"; done
  chmod -R a+rX "$work/tree" "$work/bin" "$work/objects"
  symbols "$work"/objects/*.[ao] "$(${CXX:-g++} -print-file-name=libgtest.a)" | sed 's/ .*//' |
    sort -u >"$work/taken"
}

# limited CPU COMMAND...: runs it in the tree without rights, and says in $ended, $code and $seconds how it
# went; $work/report and $work/output have what it reported and printed. It can write to $work/scratch.
limited() {
  most=$1
  shift
  rm -rf "$work/scratch"
  mkdir -m 700 "$work/scratch" || give_up "the disk is full"
  [ $user = 0 ] || chown $user "$work/scratch"
  ended=$(cd "$work/tree" &&
    "$work/bin/limits" "$most" $((4 * most)) $memory $user "$work/report" "$work/output" \
      env -i PATH="$PATH" HOME="$work/scratch" TMPDIR="$work/scratch" LC_ALL=C OMP_NUM_THREADS=2 \
      GOMP_SPINCOUNT=1000 CXX="${CXX:-g++}" ARCH="${ARCH--march=native}" ONEDNN="$ONEDNN" \
      "$@" 2>"$work/trouble") ||
    give_up "$(cat "$work/trouble")"
  seconds=${ended##* } code=${ended#* } ended=${ended%% *}
  code=${code%% *}
}

# ---- the student's files ----------------------------------------------------------------------------------
# True if the path in the submission is a file that no link leads to.
plain_file() {
  path=$submission
  for part in $(echo "$1" | tr / ' '); do
    path=$path/$part
    [ ! -L "$path" ] || return 1
  done
  [ -f "$path" ]
}
# take FILE TO: copies it from its place in the submission, or from the submission's top; sets $problem.
take() {
  problem=
  from=$1
  plain_file "$from" || [ "$(echo "$files" | grep -c "/${1##*/}$")" -gt 1 ] || from=${1##*/}
  if [ -L "$submission/$1" ]; then problem="open $1 was not handed in: it is a link"
  elif ! plain_file "$from"; then problem="open $1 was not handed in"
  elif [ "$(wc -c <"$submission/$from")" -gt $largest ]; then
    problem="not_built $1 has more than $largest bytes"
  else
    cp "$submission/$from" "$2" && chmod 644 "$2" || give_up "$1 cannot be copied"
  fi
}

# What is wrong with the object of a file that did compile. It must define what the solution's does, and may
# not define what other files take from elsewhere, such as main, write or a function of the test's.
wrong_symbols() {  # FILE OBJECT
  symbols "$2" | awk '$2 ~ /^[A-Ti]$/ { print $1 }' | sort >"$work/defined"
  symbols "$(copy_of solved "$1")" | awk '$2 ~ /^[A-Ti]$/ { print $1 }' | sort >"$work/wanted"
  missing=$(comm -13 "$work/defined" "$work/wanted" | head -1)
  alien=$(comm -23 "$work/defined" "$work/wanted" | comm -12 - "$work/taken" | head -1)
  if [ -n "$missing" ]; then echo "$1 no longer defines $(echo "$missing" | c++filt)"
  elif [ -n "$alien" ]; then echo "$1 defines $(echo "$alien" | c++filt), which belongs to another file"
  elif symbols "$2" | grep -q '7testing.* U'; then echo "$1 calls GoogleTest, which is for tests"
  fi
}

# The name of a file in src/memory is no error.
first_error() {
  grep -m 1 -E 'error|undefined|multiple|(of|virtual|allocate) memory' "$work/output" | sed "s|$work/[a-z]*/||g; s|\./\(\./\)*||"
}

# Compiles one file alone; $work/problem_FILE has a line if it cannot be used.
compile() {
  file=$1 object=$work/scratch/$(object_of "$1")
  take "$file" "$work/tree/$file"
  if [ -z "$problem" ]; then
    limited $cpu make -s -j1 BUILD="$work/scratch/build" "$object"
    outside=$(cat "${object%.o}.d" 2>/dev/null | tr ' ' '\n' | sed 's/[:\\]*$//' | grep -E '^/|\.\./' |
      grep -vF "$work/scratch" | head -1)
    if [ "$ended $code" != "exit 0" ] || [ ! -f "$object" ] || [ -L "$object" ]; then
      first=$(first_error)
      problem="not_built ${first:-$file: the compiler needs too much time or memory ($ended)}"
    elif [ -n "$outside" ]; then problem="not_built $file includes $outside, which is no part of gradus"
    else
      copy "$object" "$(copy_of student "$file")"
      problem=$(wrong_symbols "$file" "$object")
      problem=${problem:+not_built $problem}
    fi
  fi
  [ -z "$problem" ] || echo "$problem" >"$(copy_of student "$file").problem"
}

# ---- one exercise -----------------------------------------------------------------------------------------
# link PROGRAM TO [FILE]: a test program of the solution, with the student's FILE in it. That comes behind all
# that the program has of the library: of functions that several objects hold, the first is taken.
link() {
  made=$work/scratch/program objects="$work/objects/grade_main.o $(test_object "$1")"
  for each in $files; do [ "$each" = "$3" ] || objects="$objects $(copy_of solved "$each")"; done
  objects="$objects $work/objects/rest.a"
  [ -z "$3" ] || objects="$objects $(copy_of student "$3") $work/objects/rest.a"
  objects="$objects $work/objects/standins.a $work/objects/rest.a"
  limited $cpu make -s -j1 BUILD="$work/scratch/build" grade-link TO="$made" LINKED="$objects"
  [ "$ended $code" = "exit 0" ] && [ -f "$made" ] && [ ! -L "$made" ] || return 1
  copy "$made" "$2"
}

# passed: the tests that passed, as GoogleTest's report says; failure: the first thing that failed, in a line.
reported() { flat "$work/report" 2>/dev/null | awk -v to="$1" -f "$tools/text.awk" -f "$tools/report.awk"; }
passed() { reported passed | sort; }
failure() { reported failure; }

# Tells from a run of exercise ID, of which the tests in $work/expected were to pass, its $state and $message.
verdict() {
  message=$(failure) said=$(grep -avE '^(\[|Note:)|^$' "$work/output" | tail -n 1 | cut -c1-120)
  passed >"$work/passed"
  state=failed
  case $ended in
    timeout) state=timeout message="stopped after $seconds s; the solution takes $solved s"; return ;;
    memory) state=memory message="stopped: it held more than $memory MiB"; return ;;
  esac
  if cmp -s "$work/passed" "$work/expected" && [ "$ended $code" = "exit 0" ]; then state=passed message=
  elif [ -n "$message" ]; then
    case $message in *"exercise $1 is open"*) state=open ;; *std::bad_alloc*) state=memory ;; esac
  elif grep -q "^exercise $1 is open" "$work/output"; then
    state=open message=$(grep -m 1 "^exercise $1 is open" "$work/output")
  elif [ -s "$work/report" ] && [ "$ended $code" = "exit 0" ]; then
    message="$(wc -l <"$work/passed") of its $(wc -l <"$work/expected") tests passed, the others did not run"
  else
    [ "$ended" = exit ] || code=$(kill -l "$code")
    state=crashed message="ended before its tests were through ($ended $code)${said:+; it said: $said}"
    case $said in *std::bad_alloc*) state=memory ;; esac
  fi
}

fill_in() {  # ID
  file=$(echo "$places" | sed -n "s/^$1 //p")
  if [ -f "$(copy_of student "$file").problem" ]; then
    read -r state message <"$(copy_of student "$file").problem"
    row "$1" "$state" 0 "$message"
    return
  fi
  total=0 state=grader_error message="no test records exercise $1"
  for program in $(sed -n "s/^$1 \([^ ]*\) .*/\1/p" "$work/tests" | sort -u); do
    filter=$(sed -n "s|^$1 $program \(.*\)|\1:*/\1/*|p" "$work/tests" | paste -sd: -)
    solved_program=$work/bin/$(echo "$program" | tr / _)
    [ -f "$solved_program" ] || link "$program" "$solved_program" || give_up "$program cannot be linked"
    limited 600 "$solved_program" --gtest_filter="$filter"
    solved=$seconds
    passed >"$work/expected"
    [ "$ended $code" = "exit 0" ] && [ -s "$work/expected" ] ||
      give_up "exercise $1 does not pass with the solution: $ended $code $(failure)"
    link "$program" "$work/bin/student" "$file" || {
      row "$1" not_built 0 "$(first_error)"
      return
    }
    limited $((10 * ${solved%.*} + 10)) "$work/bin/student" --gtest_filter="$filter"
    total=$(echo "$total $seconds" | awk '{ print $1 + $2 }')
    verdict "$1"
    [ $state = passed ] || break
  done
  row "$1" $state "$total" "$message"
}

# The answers are judged by the program predict_NN. It prints "02.5: failed: 2 of 4 right, 1 wrong, 1 open".
predict() {  # ID
  take "$folder/answers.txt" "$work/answers/answers.txt"
  if [ -n "$problem" ]; then row "$1" ${problem%% *} 0 "${problem#* }"; return; fi
  student=${student:-$(sed -n 's/^student: *//p' "$work/answers/answers.txt" | head -1 | plain)}
  limited 600 "$work/bin/predict_$lesson" --answers="$work/answers/answers.txt" --json=/dev/null \
    "--student=$student"
  said=$(sed -n "s/^$1: //p" "$work/output" | grep -m 1 -E '^(passed|failed|open): ')
  if [ -n "$said" ]; then row "$1" "${said%%:*}" "$seconds" "${said#*: }"
  else row "$1" failed "$seconds" "$(tail -n 1 "$work/output")"; fi
}

prepare
for file in $files; do compile "$file"; done
for exercise in $(echo "$graded" | tr ' ' _); do
  id=${exercise%%|*}
  case $exercise in
    *"|predict") predict "$id" ;;
    *) fill_in "$id" ;;
  esac
done
report || exit 2
