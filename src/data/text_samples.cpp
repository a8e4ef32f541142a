#include "src/data/text_samples.h"

#include <algorithm>

namespace gradus {

// The first of the seed's streams for dropout: one per position.
constexpr uint64_t kDropoutStream = uint64_t(1) << 32;

TextSamples::TextSamples(std::shared_ptr<const MappedFile> file, int64_t bytes, const BytePairs& pairs,
                         int64_t T, int64_t stride)
    : file_(std::move(file)), pairs_(pairs), T_(T), stride_(stride) {
  check(bytes >= 0 && bytes <= file_->bytes(), "text samples: the first ", bytes, " bytes of ", file_->path(),
        ", which has ", file_->bytes());
  check(T >= 1 && stride >= 1, "text samples: samples of ", T, " tokens, one every ", stride,
        " bytes; both must be at least 1");
  text_ = std::string_view(file_->data(), size_t(bytes));
  for (const std::string& token : pairs.tokens()) longest_ = std::max(longest_, int64_t(token.size()));
}

int64_t TextSamples::count() const {
  return std::max<int64_t>(int64_t(text_.size()) - longest_ - 1, 0) / stride_;
}

void TextSamples::read(int64_t sample, BytePairEncoder& encoder, MergeDropout* dropout, int32_t* inputs,
                       int32_t* targets) const {
  check(sample >= 0 && sample < count(), "text samples: sample ", sample, ", and there are ", count());
  const size_t first = size_t(sample * stride_),
               space = text_.substr(first, size_t(stride_)).find_first_of(" \n");
  // This many bytes contain at least T + 1 tokens, not counting a last piece that they may cut.
  const size_t enough = size_t((T_ + 1) * longest_ + 1024);
  std::vector<int32_t> ids;
  encoder.encode(text_.substr(space == text_.npos ? first : first + space, enough), size_t(T_) + 1, ids,
                 dropout);
  file_->check_whole();
  ids.resize(size_t(T_) + 1, -1);
  std::transform(ids.begin(), ids.end() - 1, inputs, [](int32_t id) { return std::max(id, 0); });
  std::copy(ids.begin() + 1, ids.end(), targets);
}

int64_t Share::first_of(int64_t step) const {
  // BEGIN SOLUTION 14.1
  return position + step * batch + rank * rows();
  // STUB: todo("14.1", "the position of this rank's first sample of the step", step);
  // END SOLUTION 14.1
}

BatchLoader::Fill read_samples(const TextSamples& samples, const SampleOrder& order, const Share& share,
                               int64_t workers, double dropout, uint64_t seed) {
  check(share.batch >= 1 && share.ranks >= 1 && share.batch % share.ranks == 0, "read samples: a batch of ",
        share.batch, " cannot be shared by ", share.ranks, " ranks; it must be a multiple of their number");
  check(share.rank >= 0 && share.rank < share.ranks && share.position >= 0, "read samples: rank ", share.rank,
        " of ", share.ranks, " from position ", share.position, " on; ranks and positions count from 0");
  check(dropout >= 0 && dropout <= 1, "read samples: merges cannot be dropped with probability ", dropout);
  check(order.samples() == samples.count(), "read samples: an order of ", order.samples(), " samples for ",
        samples.count());
  std::vector<BytePairEncoder> encoders(size_t(std::max<int64_t>(workers, 1)),
                                        BytePairEncoder(samples.pairs()));
  const int64_t T = samples.T();
  return [=, &samples, encoders = std::move(encoders)](int64_t step, int64_t worker, int32_t* inputs,
                                                       int32_t* targets) mutable {
    check(size_t(worker) < encoders.size(), "read samples: there are encoders for ", workers,
          " workers, and this is worker ", worker, ", counted from 0");
    for (int64_t row = 0; row < share.rows(); ++row) {
      const int64_t position = share.first_of(step) + row;
      MergeDropout drop{dropout, Rng(seed, kDropoutStream + uint64_t(position))};
      samples.read(order.at(position), encoders[size_t(worker)], dropout > 0 ? &drop : nullptr,
                   inputs + row * T, targets + row * T);
    }
  };
}

}  // namespace gradus
