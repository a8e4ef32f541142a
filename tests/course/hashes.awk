# hashes.awk: for each lesson, "NN HASH" of the sources that its results depend on, and "NN.answers HASH" with its
# answers and what judges them too. Reads what cksum says of all sources, sorted by name (-), then the test files.
FILENAME == "-" { sum[$3] = $1; name[++files] = $3; next }
FNR == 1 { test = FILENAME }
/^(TYPED_)?TEST(_F|_P)?\(/ && match($0, /L[0-9][0-9]_/) { of_lesson[test, substr($0, RSTART + 1, 2)] }
END {
  for (i = 1; i <= files; i++)
    if (name[i] ~ /^lessons\/[0-9][0-9]_/) numbers[substr(name[i], 9, 2)]
  for (nn in numbers) {
    print nn, hash(nn, 0)
    print nn ".answers", hash(nn, 1)
  }
}
function hash(nn, answers,    i, n, h) {
  for (i = 1; i <= files; i++)
    if (concerns(name[i], nn, answers)) h = (h * 65599 + sum[name[i]] + ++n) % 4294967296
  return sprintf("%.0f", h)
}
function concerns(file, nn, answers) {
  if (file ~ /\/answers\.txt$/ || file ~ /^tests\/course\//)
    return answers && (index(file, "lessons/" nn "_") == 1 || file ~ /^tests/)
  return file ~ /^(kernels|src|lessons\/published)\// || index(file, "lessons/" nn "_") == 1 || file ~ /^tests\/[^\/]*\.h$/ ||
         (file, nn) in of_lesson
}
