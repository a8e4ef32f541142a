#!/bin/sh
# predict_selftest.sh: for several students, the answers that a lesson's formulas give are right, and wrong when one
# is changed; and of each fault that a file of answers can have, one is planted and must be named.
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
answers=$work/answers.txt
failures=0

fail() { echo "self-test of predict: $*"; cat "$work/report"; failures=$((failures + 1)); }
predict() {  # NN [FLAG...]
  program=build/course/predict_$1
  shift
  "$program" --answers="$answers" "$@" >"$work/report" 2>&1
}

# Fills in the answers, by the formulas of the lessons' pages, from the numbers in the file's own text.
solve() {
  awk '
    function after(word,    rest) {  # the number that follows a word of the text
      rest = substr(text, index(text, word) + length(word)); return rest + 0
    }
    function before(word,    n, part) { n = split(substr(text, 1, index(text, word) - 1), part, /[ -]/); return part[n] + 0 }
    function answers() {
      if (id == "01.3") {
        n = after("n = "); b = after("blocks of ")
        a["bytes_B"] = 4 * n ^ 3 / b; a["bytes_C"] = 2 * a["bytes_B"]; a["intensity"] = b / 6
      } else if (id == "02.5") {
        d = before(" linear"); w = after(": 2 -> "); R = before(" points")
        a["forward"] = 2 * R * (4 * w + (d - 2) * w * w); a["backward"] = 2 * a["forward"] - 4 * R * w
      } else if (id == "03.3") {
        V = after("vocabulary of "); T = before(" tokens"); B = before(" sequences"); gpt()
        a["weights"] = a["gradients"] = 4 * N; a["optimizer"] = 8 * N
        a["activations"] = 4 * B * T * (L * (16 * C + H * T + 4) + 2 * C + V + 3)
      } else if (id == "04.3") {
        V = 50257; T = 1024; B = after("--batch="); S = after("--seq="); gpt()
        a["weight"] = 2 * N; a["master"] = a["gradient"] = 4 * N; a["optimizer"] = 8 * N
        a["gelu"] = 8 * B * S * C; a["gelu_batch_doubled"] = a["gelu_seq_doubled"] = 16 * B * S * C
        a["probabilities"] = 2 * B * H * S * S; a["probabilities_seq_doubled"] = 8 * B * H * S * S
        a["moment_batch_doubled"] = 4 * V * C
      } else if (id == "05.3") {
        L = before(" layers"); C = before(" channels"); H = before(" heads"); B = before(" texts")
        t = a["hidden_T"] = int(262144 / (B * C)); p = a["probabilities_T"] = int(sqrt(262144 / (B * H)))
        both = p < t ? p : t; a["large_later"] = 0
        two = int(524288 / (B * C * both)) == 2
        a["small_later"] = (two ? 3 : 2.5) * L + 1; a["third"] = two ? both : t
      }
    }
    function gpt() {
      L = before(" layers"); C = before(" channels"); H = before(" heads")
      N = V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C
    }
    { line[NR] = $0 }
    /^#/ { sub(/^# ?/, ""); text = text " " $0 }
    / =$/ { id = $1 }
    END {
      answers()
      for (i = 1; i <= NR; i++) {
        split(line[i], part, " ")
        if (line[i] ~ / =$/) printf "%s %s\n", line[i], sprintf("%.3f", a[part[2]])
        else print line[i]
      }
    }' "$answers" >"$work/solved" && mv "$work/solved" "$answers"
}

for program in build/course/predict_[0-9]*; do
  case $program in *[!0-9]) continue ;; esac
  lesson=${program##*_}
  for student in ada@example.org grace edsger "Emmy Noether"; do
    rm -f "$answers"
    predict "$lesson" --student="$student" || fail "lesson $lesson: no questions for $student"
    cp "$answers" "$work/questions_$student"
    predict "$lesson" || fail "lesson $lesson: open answers are an error"
    grep -q ': open: 0 of' "$work/report" || fail "lesson $lesson: what is open is not said"
    solve
    predict "$lesson" || fail "lesson $lesson: a right answer of $student is refused"
    grep -q ': passed: ' "$work/report" || fail "lesson $lesson: $student has not passed"
    sed -i 's/^\(.* =\) \([0-9]\)/\1 9\2/' "$answers"
    predict "$lesson" && fail "lesson $lesson: wrong answers of $student are accepted"
    grep -q 'right$' "$work/report" && fail "lesson $lesson: wrong answers of $student are called right"
  done
  cmp -s "$work/questions_grace" "$work/questions_edsger" && fail "lesson $lesson: two students have the same numbers"
done

# Lesson 02, with answers as given; the report must have a line that begins so, and predict must fail.
refused() {  # ANSWER... TEXT
  rm -f "$answers"
  predict 02 --student=ada
  solve
  sed -i "$1" "$answers"
  predict 02 && fail "accepted: $1"
  grep -qF -- "$2" "$work/report" || fail "does not say: $2"
}
refused 's/forward = /&-/'               '02.5 forward: wrong: too low'
refused 's/forward = .*/forward = 12/'   '02.5 forward: wrong: too low, by a factor of more than 25 (make hint-02.5 helps)'
refused 's/forward = .*/& MiB/'          '02.5 forward: wrong: too high, by a factor of more than 25'
refused 's/forward = .*/forward = 3 apples/'  "02.5 forward: wrong: line 9: '3 apples' is no number"
refused 's/forward = .*/forward = nan/'  "'nan' is no number"
refused 's/forward = .*/forward = 2*3/'  "'2*3' is no number"
refused 's/02.5 forward =/02.5 foward =/' "line 9: there is no question '02.5 foward'"
refused '$a 02.5  forward= 4'            '02.5 forward: wrong: answered in line 9 and again in line 13; leave one of them'
refused '$a hello'                       "line 13: 'hello' answers nothing"
refused 's/student: ada/student: grace/' '02.5: failed: 0 of 2 right, 2 wrong, 0 open'

rm -f "$answers"
predict 02
[ $? -eq 2 ] || fail "nobody's numbers are judged"
predict 02 --student=ada --json="$work/result.json"
[ ! -e "$answers" ] || fail "a grader's call has written the answers file"
grep -q '"student":"ada","answers":\[{"exercise":"02.5","name":"forward","state":"open"' "$work/result.json" ||
  fail "the grader's result is not as agreed"
predict 02 --student=ada && solve
predict 02 --student=grace && fail "the answers of another student are accepted"
grep -qF "the file is of student 'ada'; it is judged with the numbers of 'grace'" "$work/report" ||
  fail "whose numbers are judged is not said"

if [ $failures -eq 0 ]; then echo "self-test of predict: everything held"; else exit 1; fi
