// What the program is in, from the outermost to the innermost: a pass, an op. A Context has one of these, and
// whoever shows times or bytes by what they were for looks here: the memory history, a cluster's timeline,
// NVIDIA's profilers (nsys profile -t cuda,nvtx build/cuda/lessons/03_transformer --steps=20). A ProfileRange
// is one; ops begin it, and Tape::backward.
#pragma once
#include <functional>
#include <list>
#include <string>
#include <vector>

#ifdef GRADUS_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace gradus {

class Ranges {
 public:
  // Told of each range when it begins, with its name, and when it ends, with nullptr; its depth: how many it
  // is in. Until it is forgotten.
  using Listener = std::function<void(size_t depth, const char* name)>;
  using Told = std::list<Listener>::iterator;
  Told tell(Listener listener) { return listeners_.insert(listeners_.end(), std::move(listener)); }
  void forget(Told listener) { listeners_.erase(listener); }

  // Names outlive their range. end() is of the one that began last.
  void begin(const char* name) {
    open_.push_back(name);
#ifdef GRADUS_CUDA
    nvtxRangePushA(name);  // returns at once if no profiler listens
#endif
    for (const Listener& l : listeners_) l(open_.size() - 1, name);
  }
  void end() {
    open_.pop_back();
#ifdef GRADUS_CUDA
    nvtxRangePop();
#endif
    for (const Listener& l : listeners_) l(open_.size(), nullptr);
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
  std::list<Listener> listeners_;
};

}  // namespace gradus
