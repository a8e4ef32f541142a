// The open ranges of the program, the outermost first: a pass, a layer, an op. Each Context has one Ranges.
// Its listeners, such as the timeline of a cluster and the profiler, assign times or bytes to ranges. The
// memory history asks for the path, and NVIDIA's profilers get the ranges, too (nsys profile -t cuda,nvtx
// build/cuda/lessons/03_transformer --steps=20). A ProfileRange opens a range. A loop reads batches in
// "data"; a Transformer opens "forward" and a range per layer, an op its own, a Tape "backward", an optimizer
// "update"; a Device opens ranges for copies and waits, a Comm for its calls.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#ifdef GRADUS_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace gradus {

enum class RangeNote : uint8_t {
  Node,  // the range records this tape node, or runs its backward: the slot id of its first output
  Bytes  // the number of bytes copied or sent
};

// Is called when a range begins and when it ends. depth: the number of ranges around it. If began() throws,
// the range does not begin; the other functions do not throw.
class RangeListener {
 public:
  virtual ~RangeListener() = default;
  virtual void began(size_t depth, const char* name) = 0;
  virtual void ended(size_t depth) = 0;
  virtual void noted(RangeNote, int64_t) {}  // about the innermost open range
};

class Ranges {
 public:
  // Calls the listener from now on until remove(). Neither may be called by a listener.
  void add(RangeListener& listener) { listeners_.push_back(&listener); }
  void remove(const RangeListener& listener) { std::erase(listeners_, &listener); }

  // `name` must outlive the range. end() ends the range that began last.
  void begin(const char* name) {
    for (RangeListener* l : listeners_) l->began(open_.size(), name);
    open_.push_back(name);
#ifdef GRADUS_CUDA
    nvtxRangePushA(name);  // returns at once if no profiler is attached
#endif
  }
  void end() {
    open_.pop_back();
#ifdef GRADUS_CUDA
    nvtxRangePop();
#endif
    for (RangeListener* l : listeners_) l->ended(open_.size());
  }
  void note(RangeNote what, int64_t value) {
    for (RangeListener* l : listeners_) l->noted(what, value);
  }
  std::string path() const {  // "backward/linear"; "" outside all ranges
    std::string path;
    for (const char* name : open_) {
      if (!path.empty()) path += '/';
      path += name;
    }
    return path;
  }

 private:
  std::vector<const char*> open_;
  std::vector<RangeListener*> listeners_;
};

// Opens a range of `ranges`; nullptr: none. For the ranges of the current context: ProfileRange.
class OpenRange {
 public:
  OpenRange(Ranges* ranges, const char* name, int64_t bytes = 0) : ranges_(ranges) {
    if (!ranges_) return;
    ranges_->begin(name);
    if (bytes > 0) ranges_->note(RangeNote::Bytes, bytes);
  }
  ~OpenRange() {
    if (ranges_) ranges_->end();
  }
  OpenRange(const OpenRange&) = delete;

 private:
  Ranges* const ranges_;
};

}  // namespace gradus
