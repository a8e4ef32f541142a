#include "src/data/text_samples.h"

#include <algorithm>

namespace gradus {

TextSamples::TextSamples(std::shared_ptr<const MappedFile> file, int64_t bytes, const BytePairs& pairs,
                         int64_t T, int64_t stride)
    : file_(std::move(file)), pairs_(pairs), T_(T), stride_(stride) {
  check(bytes >= 0 && bytes <= file_->bytes(), "text samples: the first ", bytes, " bytes of ", file_->path(),
        ", which has ", file_->bytes());
  check(T >= 1 && stride >= 1, "text samples: samples of ", T, " tokens, one every ", stride,
        " bytes; both must be at least 1");
  text_ = std::string_view(file_->data(), size_t(bytes));
}

int64_t TextSamples::count() const { return int64_t(text_.size()) / stride_; }

void TextSamples::read(int64_t sample, BytePairEncoder& encoder, MergeDropout* dropout, int32_t* inputs,
                       int32_t* targets) const {
  check(sample >= 0 && sample < count(), "text samples: sample ", sample, ", and there are ", count());
  const size_t first = size_t(sample * stride_);
  // Without a space near, as in some scripts, it begins where it is.
  const size_t space = text_.substr(first, size_t(stride_)).find_first_of(" \n");
  std::vector<int32_t> ids;
  encoder.encode(text_.substr(space == std::string_view::npos ? first : first + space), size_t(T_) + 1, ids,
                 dropout);
  file_->check_whole();
  ids.resize(size_t(T_) + 1, -1);
  std::transform(ids.begin(), ids.end() - 1, inputs, [](int32_t id) { return std::max(id, 0); });
  std::copy(ids.begin() + 1, ids.end(), targets);
}

}  // namespace gradus
