# layers.awk: includes go only downwards (-f layers.awk FILES…). A folder may include itself and the ones
# above it in this list; folders on one line may not include each other. Includes are written from the root.
BEGIN {
  split("kernels|src/core|src/memory|src/tensor|src/autograd|src/ops|src/quant|src/nn|src/optim|" \
        "src/data src/io|src/train|src/parallel/comm|src/parallel|lessons/published|lessons", level, "|")
  for (i = 1; i in level; i++) {
    n = split(level[i], names, " ")
    for (j = 1; j <= n; j++) rank[names[j]] = i
  }
}
# kernels/cpu/x.h -> kernels; src/io/x.h -> src/io; src/parallel/comm/x.h -> src/parallel/comm;
# lessons/03_x/y.h -> lessons
function layer(path,    part, folder) {
  split(path, part, "/")
  folder = part[1] "/" part[2]
  if (folder "/" part[3] in rank) return folder "/" part[3]
  return part[1] == "src" || folder in rank ? folder : part[1]
}
FNR == 1 && !(layer(FILENAME) in rank) {
  print FILENAME ":1: " layer(FILENAME) " is not a layer of the design"
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
  split($0, quoted, "\"")
  to = quoted[2]; from = layer(FILENAME); at = FILENAME ":" FNR ": "
  if (to !~ /\// || (getline line < to) < 0)
    print at "\"" to "\" is not a path from the root of the repository"
  else if (!(layer(to) in rank)) print at from " may not include " to
  else if (rank[layer(to)] > rank[from])
    print at from " may not include " layer(to) ", a layer above it"
  else if (rank[layer(to)] == rank[from] && layer(to) != from)
    print at from " and " layer(to) " may not include each other"
  else if (from == "lessons" && layer(to) == from && lesson(to) > lesson(FILENAME))
    print at "a lesson includes a later one"
  close(to)
}
function lesson(path,    part) { split(path, part, "/"); return part[2] }
