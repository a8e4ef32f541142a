#include "src/parallel/parts.h"

namespace gradus {

void check_whole_model(const char* strategy, Transformer& model) {
  for (const Parameter& p : model.parameters)
    check(!p.shard && !*model.parameters.shares, strategy, ": the model is divided already");
  for (const Linear* l : model.linears())
    check(!l->variant, strategy, ": ", l->name, " has an adapter or a weight in 4 bits; ranks divide ",
          "models without them");
}

static void keep(Parameter& p, const Shape& shape, Allocate when) {
  p.allocate(shape, when);
  attach(p.value, p.leaf, p.name);
}

void keep_rows(Parameter& p, const Part& rows, int64_t groups, Allocate when) {
  const Shape whole = p.value.shape();
  p.shard = Shard::of_rows(whole, rows.begin, rows.count, groups);
  Shape shape{groups * rows.count};
  for (int i = 1; i < whole.rank(); ++i) shape.push_back(whole[i]);
  keep(p, shape, when);
}

void keep_columns(Parameter& p, const Part& columns, Allocate when) {
  const Shape whole = p.value.shape();
  p.shard = Shard::of_columns(whole, columns.begin, columns.count);
  keep(p, whole.with_last(columns.count), when);
}

void keep_whole(Parameter& p, Allocate when) { keep(p, p.value.shape(), when); }

void assign_part(Parameter& p, const std::vector<double>& values) {
  const int64_t whole = p.shard ? p.shard->whole.numel() : p.value.numel();
  check(int64_t(values.size()) == whole, "ranks: '", p.name, "' takes ", whole, " values, not ",
        values.size());
  p.assign(p.shard ? p.shard->of_values(values) : values);
}

}  // namespace gradus
