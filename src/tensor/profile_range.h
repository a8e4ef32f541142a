// A stretch of the program with a name, in the ranges of the context that is current when it begins.
#pragma once
#include "src/tensor/context.h"

namespace gradus {

class ProfileRange {
 public:
  explicit ProfileRange(const char* name) : ranges_(current().ranges) { ranges_.begin(name); }
  ~ProfileRange() { ranges_.end(); }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
  void next(const char* name) {  // ends the range and begins another
    ranges_.end();
    ranges_.begin(name);
  }

 private:
  Ranges& ranges_;
};

}  // namespace gradus
