# speed.awk: a table of the JSON lines of tests/bench/beside_pytorch.sh and the other beside_*.sh. For each
# model and program it has the median time of a step and its ratio to that of gradus, or the peak in MiB and its ratio,
# the median rate of matrix products, or the fraction of a step that is communication.
BEGIN {
  FS = "[:,}]"
  print "| model | gradus | PyTorch, eager | PyTorch, compiled |"
  print "|---|---|---|---|"
}
{
  gsub(/"/, "")
  if (!($2 in seen)) order[++models] = $2
  field[$2] = $7
  seen[$2]
  n[$2, $6]++
  value[$2, $6, n[$2, $6]] = $8
}
END {
  for (m = 1; m <= models; m++) {
    ours = median(order[m], "gradus")
    if (field[order[m]] ~ /gflops/)
      printf "| %s | %.0f GFLOP/s | %s | |\n", order[m], ours,
        (torch = median(order[m], "pytorch-eager")) ? sprintf("%.0f GFLOP/s", torch) : "-"
    else if (field[order[m]] ~ /communication/)
      printf "| %s | %.0f %% of the step | %.0f %% of the step | |\n", order[m], 100 * ours, 100 * median(order[m], "pytorch-eager")
    else if (field[order[m]] ~ /bytes/)
      printf "| %s | %.0f MiB | %s | |\n", order[m], ours / 2 ^ 20, times(order[m], "pytorch-eager", "%.0f MiB", 2 ^ 20, "much")
    else
      printf "| %s | %.4g ms | %s | %s |\n", order[m], ours, times(order[m], "pytorch-eager", "%.4g ms", 1, "long"),
        times(order[m], "pytorch-compiled", "%.4g ms", 1, "long")
  }
}
function times(model, program, format, unit, how,    t) {
  t = median(model, program)
  return t ? sprintf(format ", %.2f times as %s", t / unit, t / ours, how) : "-"
}
function median(model, program,    count, i, j, sorted, t) {
  count = n[model, program]
  for (i = 1; i <= count; i++) sorted[i] = value[model, program, i] + 0
  for (i = 2; i <= count; i++)
    for (j = i; j > 1 && sorted[j] < sorted[j - 1]; j--) { t = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = t }
  return count ? (sorted[int((count + 1) / 2)] + sorted[int(count / 2) + 1]) / 2 : 0
}
