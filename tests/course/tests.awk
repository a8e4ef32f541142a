# tests.awk: of the test files (-f tests.awk FILES…), one line for each exercise that a test records: its id, the
# program, the test.
/^(TYPED_)?TEST(_F|_P)?\(/ {
  test = $0; sub(/^[^(]*\(/, "", test); sub(/\).*/, "", test); sub(/, */, ".", test)
}
/RecordProperty\("exercise", "/ {
  id = $0; sub(/.*"exercise", "/, "", id); sub(/".*/, "", id)
  program = FILENAME; sub(/^tests\//, "", program); sub(/\.cpp$/, "", program)
  print id, program, test
}
