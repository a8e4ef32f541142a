// Which code computed attention_flash in this process, cuDNN's or our own kernels: a run says it at its end.
#pragma once
#include <atomic>
#include <cstdint>
#include <sstream>
#include <string>

namespace gradus {

struct AttentionCalls {
  std::atomic<int64_t> by_cudnn = 0, by_own = 0;
  std::atomic<int64_t> cudnn_version = 0;  // as cuDNN counts: 91501 is 9.15.1. 0: none was asked
};
inline AttentionCalls attention_calls;

// Those before have known faults: backward is wrong where T is no multiple of 128, forward in 9.10.0
// and 9.10.1.
constexpr int64_t kOldestCudnn = 91501;

inline std::string cudnn_text(int64_t version) {
  std::ostringstream text;
  text << "cuDNN " << version / 10000 << "." << version / 100 % 100 << "." << version % 100;
  return text.str();
}
// A sentence about the calls up to now; empty if there were none.
inline std::string attention_text() {
  const AttentionCalls& calls = attention_calls;
  if (calls.by_cudnn + calls.by_own == 0) return "";
  std::ostringstream text;
  text << "attention_flash: " << calls.by_cudnn << " calls by cuDNN, " << calls.by_own
       << " by our own kernels";
  if (calls.cudnn_version > 0) text << "; " << cudnn_text(calls.cudnn_version) << " is there";
  if (calls.cudnn_version > 0 && calls.cudnn_version < kOldestCudnn)
    text << ", but left out: it has known faults, which " << cudnn_text(kOldestCudnn) << " has not";
  return text.str();
}

}  // namespace gradus
