#include "src/train/accumulate.h"

#include <algorithm>
#include <numeric>

#include "src/core/rng.h"
#include "src/tensor/profile_range.h"

namespace gradus {

TextBatch TextBatch::part(int64_t first, int64_t n) const {
  check(first >= 0 && n >= 0 && first <= sequences - n, "part: ", n, " sequences from ", first, " on of ",
        sequences, " do not exist");
  const auto rows = [&](const std::vector<int32_t>& of) {
    return std::vector<int32_t>(of.begin() + first * T, of.begin() + (first + n) * T);
  };
  return {n, T, rows(ids), rows(targets), first_sample + first};
}

std::vector<TextBatch> TextBatch::parts(const Split& split) const {
  const int64_t in_all = std::accumulate(split.begin(), split.end(), int64_t(0));
  check(in_all == sequences, "parts: the micro-batches have ", in_all, " sequences, the batch has ",
        sequences);
  std::vector<TextBatch> parts;
  int64_t first = 0;
  for (const int64_t n : split) {
    check(n > 0, "parts: a micro-batch has ", n, " sequences; it needs at least one");
    parts.push_back(part(first, n));
    first += n;
  }
  return parts;
}

int64_t TextBatch::counted() const {
  return std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
}

TextBatch read_batch(const Loader& loader, int64_t step, int64_t sequences, int64_t T, bool ragged) {
  const ProfileRange range("data");
  const size_t n = size_t(sequences * T);
  TextBatch batch{sequences, T, std::vector<int32_t>(n), std::vector<int32_t>(n)};
  loader.train_windows(step, 0, sequences, batch.ids.data(), batch.targets.data());
  Rng rng(7, uint64_t(step));
  for (int64_t s = 0; ragged && s < sequences; ++s) {
    const auto row = batch.targets.begin() + s * T;
    std::fill(row + 1 + int64_t(rng.below(uint64_t(T))), row + T, -1);
  }
  return batch;
}

Split even_split(int64_t sequences, int64_t micro_batches) {
  check(1 <= micro_batches && micro_batches <= sequences, "even_split: ", sequences, " sequences cannot be ",
        micro_batches, " micro-batches; choose 1 to ", sequences);
  Split split(static_cast<size_t>(micro_batches));
  // BEGIN SOLUTION 07.1
  for (int64_t i = 0; i < micro_batches; ++i)
    split[size_t(i)] = sequences / micro_batches + (i < sequences % micro_batches);
  // STUB: todo("07.1", "the sizes of the micro-batches", sequences, micro_batches, split);
  // END SOLUTION 07.1
  return split;
}

Tensor on_device(const std::vector<int32_t>& rows, int64_t T, const char* name) {
  return from_host(current().device, rows, {int64_t(rows.size()) / T, T}, DType::I32, Kind::Data, name);
}

Tensor target_count(const TextBatch& batch) {
  const int64_t counted = batch.counted();
  check(counted > 0, "target_count: all targets of the batch are padding, so its mean loss is not defined");
  return from_host(current().device, std::vector<double>{double(counted)}, {}, DType::F32, Kind::Data,
                   "count");
}

Tensor share_of_loss(Transformer& model, const Tensor& ids, const Tensor& targets, int64_t first_sample,
                     const Tensor& count) {
  // BEGIN SOLUTION 07.3
  current().first_sample = first_sample;  // dropout draws the masks of the whole batch
  const Tensor share = model.loss(ids, targets, {}, count);
  // STUB: const Tensor share; todo("07.3", "the first sample, for dropout, and the share of the loss", model, ids, targets, first_sample, count);
  // END SOLUTION 07.3
  current().first_sample = 0;
  return share;
}

Accumulated accumulate(Transformer& model, const TextBatch& batch, const Split& split) {
  const Tensor count = target_count(batch);
  Accumulated sum;
  for (const TextBatch& micro : batch.parts(split)) {
    const Tensor ids = on_device(micro.ids, micro.T, "inputs"),
                 targets = on_device(micro.targets, micro.T, "targets");
    Tape tape;
    const Tensor share = share_of_loss(model, ids, targets, micro.first_sample, count);
    sum.saved_bytes = std::max(sum.saved_bytes, tape.saved_bytes());
    sum.loss += item(share);
    tape.backward(share);
  }
  return sum;
}

void print_tape(std::ostream& out, const Transformer& model, const TextBatch& batch) {
  const Tensor ids = on_device(batch.ids, batch.T, "inputs");
  Tape tape;
  model.loss(ids, ids);
  tape.print(out);
}

std::vector<double> weights_of_means(const std::vector<int64_t>& n) {
  std::vector<double> weights(n.size());
  // BEGIN SOLUTION 07.2
  const double all = double(std::accumulate(n.begin(), n.end(), int64_t(0)));
  for (size_t i = 0; i < n.size(); ++i) weights[i] = double(n[i]) / all;
  // STUB: todo("07.2", "the weight of each micro-batch's mean", n, weights);
  // END SOLUTION 07.2
  return weights;
}

}  // namespace gradus
