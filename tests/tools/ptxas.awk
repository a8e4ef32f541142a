# ptxas.awk: a table from the output of ptxas, with names from c++filt. It has one row per kernel and file, with the
# maximum over its instances and over the GPUs. Fails if an instance spills registers to memory, and names it.
function kernel_of(line) {
  sub(/.*entry function '/, "", line)
  gsub(/\(anonymous namespace\)|_GLOBAL__N__[A-Za-z0-9_]*/, "@", line)
  sub(/^void /, "", line)
  sub(/[<(].*/, "", line)
  sub(/.*::/, "", line)
  return line
}
function file_of(path) {
  sub(/.*obj\/cuda\//, "", path)
  sub(/\.o\..*/, "", path)
  return path
}
function number_before(what) { return match($0, "[0-9]+ " what) ? substr($0, RSTART) + 0 : 0 }
function most(table, value) { if (value > table[row]) table[row] = value }

/Compiling entry function/ {
  instance = $0
  row = file_of(FILENAME) " " kernel_of($0)
  if (!(row in instances)) order[++rows] = row
  instances[row]++
}
/bytes stack frame/ && instance {
  most(stack, number_before("bytes stack frame"))
  spill = number_before("bytes spill stores") + number_before("bytes spill loads")
  most(spills, spill)
  if (spill) spilling[++spilled] = spill " bytes: " file_of(FILENAME) ": " instance
}
/Used [0-9]+ registers/ {
  most(registers, number_before("registers"))
  most(shared, number_before("bytes smem"))
  instance = ""
}
END {
  if (!rows) { print "there is no output of ptxas: build with CUDA=1 first"; exit 1 }
  printf "%-62s %9s %9s %7s %6s %7s\n", "maximum per kernel", "instances", "registers", "shared", "stack", "spilled"
  for (i = 1; i <= rows; ++i) {
    row = order[i]
    printf "%-62s %9d %9d %7d %6d %7d\n", row, instances[row], registers[row], shared[row], stack[row], spills[row]
  }
  for (i = 1; i <= spilled; ++i) print "spills " spilling[i]
  print rows " kernels, " spilled + 0 " instances spill"
  exit spilled > 0
}
