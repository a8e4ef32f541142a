#!/bin/sh
# predict_selftest.sh: for several students, the answers from a lesson's formulas are right, and changed ones are
# wrong. Each kind of fault that a file of answers can have is planted once, and predict must name it.
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
answers=$work/answers.txt
failures=0

fail() { echo "self-test of predict: $*"; cat "$work/report"; failures=$((failures + 1)); }
predict() {  # NN [FLAG...]
  program=build/course/predict_$1
  shift
  "$program" --answers="$answers" "$@" >"$work/report" 2>&1
}

# Fills in the answers with the formulas of the lessons' pages, from the numbers in the file's questions.
solve() {
  awk -f tests/course/predict_answers.awk "$answers" >"$work/solved" && mv "$work/solved" "$answers"
}

for program in build/course/predict_[0-9]*; do
  case $program in *[!0-9]) continue ;; esac
  lesson=${program##*_}
  for student in ada@example.org grace edsger "Emmy Noether"; do
    rm -f "$answers" "$answers.tries"
    predict "$lesson" --student="$student" || fail "lesson $lesson: no questions for $student"
    cp "$answers" "$work/questions_$student"
    predict "$lesson" || fail "lesson $lesson: open answers are an error"
    grep -q ': open: 0 of' "$work/report" || fail "lesson $lesson: open answers are not reported"
    solve
    predict "$lesson" || fail "lesson $lesson: a right answer of $student is rejected"
    grep -q ': passed: ' "$work/report" || fail "lesson $lesson: $student has not passed"
    sed -i 's/^\(.* =\) \([0-9]\)/\1 9\2/' "$answers"
    predict "$lesson" && fail "lesson $lesson: wrong answers of $student are accepted"
    grep -q 'right$' "$work/report" && fail "lesson $lesson: wrong answers of $student are called right"
  done
  cmp -s "$work/questions_grace" "$work/questions_edsger" && fail "lesson $lesson: two students have the same numbers"
done

# refused EDIT TEXT: with the right answers of lesson 02, edited by sed, predict fails and reports TEXT.
refused() {
  rm -f "$answers" "$answers.tries"
  predict 02 --student=ada
  solve
  sed -i "$1" "$answers"
  predict 02 && fail "accepted: $1"
  grep -qF -- "$2" "$work/report" || fail "does not say: $2"
}
refused 's/forward = /&-/'               '02.4 forward: wrong: too low'
refused 's/forward = .*/forward = 12/'   '02.4 forward: wrong: too low, by a factor of more than 25 (make hint-02.4 helps)'
refused 's/forward = .*/& MiB/'          '02.4 forward: wrong: too high, by a factor of more than 25'
refused 's/forward = .*/forward = 3 apples/'  "02.4 forward: wrong: line 9: '3 apples' is not a number"
refused 's/forward = .*/forward = nan/'  "'nan' is not a number"
refused 's/forward = .*/forward = 2*3/'  "'2*3' is not a number"
refused 's/02.4 forward =/02.4 foward =/' "line 9: there is no question '02.4 foward'"
refused '$a 02.4  forward= 4'            '02.4 forward: wrong: answered in line 9 and again in line 23; keep only one of them'
refused '$a hello'                       "line 23: 'hello' is not an answer"
refused 's/student: ada/student: grace/' '02.4: failed: 0 of 2 right, 2 wrong, 0 open'

# Bisection finds no answer: the side (too low, too high) of three different wrong answers is told, also when they
# are repeated. Of further answers, and in a grader, it is not told. Each question and each student has its own tries.
rm -f "$answers" "$answers.tries"
predict 02 --student=ada
cp "$answers" "$work/questions"
tried() {  # NUMBER "told" or "not told"
  sed "s/forward =/& $1/" "$work/questions" >"$answers"
  predict 02 && fail "accepted: $1"
  said=$(grep '^02.4 forward: wrong: ' "$work/report" | grep -qE 'too (low|high)' && echo told || echo "not told")
  [ "$said" = "$2" ] || fail "the side of $1 is $said"
}
for number in 1 2 2_000e-3 3; do tried $number told; done
for number in 4 5 1e15; do tried $number "not told"; done
for number in 1 3.0; do tried $number told; done
grep -qF '02.4 backward: open' "$work/report" || fail "the other question is not open"
sed 's/backward =/& 7/' "$work/questions" >"$answers"
predict 02
grep -qF '02.4 backward: wrong: too low' "$work/report" || fail "the other question has no tries of its own"
sed 's/forward =/& 1/' "$work/questions" >"$answers"
predict 02 --json="$work/result.json"
grep -q 'too low' "$work/report" "$work/result.json" && fail "a grader's call says the side"
sed 's/student: ada/student: grace/; s/forward =/& 4/' "$work/questions" >"$answers"
predict 02
grep -qF '02.4 forward: wrong: too low' "$work/report" || fail "another student has no tries of its own"

rm -f "$answers" "$answers.tries"
predict 02
[ $? -eq 2 ] || fail "a call without a student's name is accepted"
predict 02 --student=ada --json="$work/result.json"
[ ! -e "$answers" ] || fail "a grader's call has written the answers file"
grep -q '"student":"ada","answers":\[{"exercise":"02.4","name":"forward","state":"open"' "$work/result.json" ||
  fail "the result for the grader has a wrong format"
predict 02 --student=ada && solve
predict 02 --student=grace && fail "the answers of another student are accepted"
grep -qF "the file belongs to student 'ada'; it is judged with the numbers of 'grace'" "$work/report" ||
  fail "the student whose numbers are used is not named"

if [ $failures -eq 0 ]; then echo "self-test of predict: everything held"; else exit 1; fi
