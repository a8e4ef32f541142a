// A minimal reader of pickles: the opcodes that tools for PyTorch's snapshots know, nothing else.
#pragma once
#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/core/json.h"

namespace gradus {

class PickleReader {
 public:
  static Json read(const std::string& bytes) {
    PickleReader reader{bytes};
    return reader.run();
  }

 private:
  explicit PickleReader(const std::string& bytes) : bytes_(bytes) {}

  Json run() {
    check(number(2) == 0x0280, "no pickle of protocol 2");
    for (;;) {
      const char opcode = char(number(1));
      if (opcode == '.') break;
      step(opcode);
    }
    check(at_ == bytes_.size() && stack_.size() == 1 && marks_.empty(), "something is left over");
    return stack_[0];
  }

  void step(char opcode) {
    switch (opcode) {
      case 'N': return stack_.push_back(Json(nullptr));
      case '\x88': return stack_.push_back(true);
      case '\x89': return stack_.push_back(false);
      case 'K': return stack_.push_back(int64_t(number(1)));
      case 'M': return stack_.push_back(int64_t(number(2)));
      case 'J': return stack_.push_back(int64_t(int32_t(number(4))));
      case '\x8a': return stack_.push_back(signed_number(int(number(1))));
      case 'G': return stack_.push_back(std::bit_cast<double>(__builtin_bswap64(number(8))));
      case 'X': return stack_.push_back(text(number(4)));
      case '}': return stack_.push_back(Json::object());
      case ']': return stack_.push_back(Json::array());
      case '(': return marks_.push_back(stack_.size());
      case 'e':
      case 'u': return collect(opcode == 'u');
      default: fail("opcode ", int(opcode), " at ", at_);
    }
  }
  void collect(bool pairs) {
    const size_t mark = marks_.at(marks_.size() - 1);
    marks_.pop_back();
    Json& to = stack_.at(mark - 1);
    for (size_t i = mark; i < stack_.size(); i += pairs ? 2 : 1)
      if (pairs)
        to[stack_[i].get<std::string>()] = stack_.at(i + 1);
      else
        to.push_back(stack_[i]);
    stack_.resize(mark);
  }
  uint64_t number(int bytes) {
    uint64_t n = 0;
    check(at_ + size_t(bytes) <= bytes_.size(), "the pickle ends early");
    for (int i = 0; i < bytes; ++i) n |= uint64_t(uint8_t(bytes_[at_++])) << 8 * i;
    return n;
  }
  int64_t signed_number(int bytes) { return int64_t(number(bytes) << (64 - 8 * bytes)) >> (64 - 8 * bytes); }
  std::string text(uint64_t size) {
    check(at_ + size <= bytes_.size(), "the pickle ends early");
    return bytes_.substr(std::exchange(at_, at_ + size), size);
  }

  const std::string& bytes_;
  size_t at_ = 0;
  std::vector<Json> stack_;
  std::vector<size_t> marks_;
};

}  // namespace gradus
