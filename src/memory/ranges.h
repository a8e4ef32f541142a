// What the program is in, from the outermost to the innermost: a pass, a layer, an op. A Context has one of
// these. Its listeners show times or bytes by what they were for: a cluster's timeline, the profiler; the
// memory history asks for the path, and NVIDIA's profilers are told (nsys profile -t cuda,nvtx
// build/cuda/lessons/03_transformer --steps=20). A ProfileRange is one. Batches are read in "data"; a
// Transformer begins "forward" and its layers, an op itself, a Tape "backward", an optimizer "update", a
// Device copies and waits, a Comm its calls.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#ifdef GRADUS_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace gradus {

enum class RangeNote : uint8_t {
  Node,  // the range made this node of a tape, or runs it backwards: the number of its first output's slot
  Bytes  // so many are copied, or sent
};

// Who is told of ranges. depth: how many the range is in. What began() throws ends the range; the others do
// not throw.
class RangeListener {
 public:
  virtual ~RangeListener() = default;
  virtual void began(size_t depth, const char* name) = 0;
  virtual void ended(size_t depth) = 0;
  virtual void noted(RangeNote, int64_t) {}  // of the innermost range that is open
};

class Ranges {
 public:
  // Is told from now on, until it is removed; not from within a call of it.
  void add(RangeListener& listener) { listeners_.push_back(&listener); }
  void remove(const RangeListener& listener) { std::erase(listeners_, &listener); }

  // Names outlive their range. end() is of the one that began last.
  void begin(const char* name) {
    for (RangeListener* l : listeners_) l->began(open_.size(), name);
    open_.push_back(name);
#ifdef GRADUS_CUDA
    nvtxRangePushA(name);  // returns at once if no profiler listens
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
  std::string path() const {  // "backward/linear"; "" outside of all
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

// Of a Ranges that is known, or of none. That of the current context: ProfileRange.
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
