#include "src/io/pickle.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "kernels/check.h"

namespace gradus {

// Lists are appended to in batches, as in Python, because readers keep the items of a batch on a stack.
constexpr size_t kBatch = 1000;

static void put_little_endian(std::string& out, uint64_t n, int bytes) {
  for (int i = 0; i < bytes; ++i) out += char(n >> 8 * i & 0xFF);
}

static void put_integer(std::string& out, int64_t n) {
  if (n >= 0 && n <= UINT8_MAX) {
    out += 'K';  // BININT1
    put_little_endian(out, uint64_t(n), 1);
  } else if (n >= 0 && n <= UINT16_MAX) {
    out += 'M';  // BININT2
    put_little_endian(out, uint64_t(n), 2);
  } else if (n == int32_t(n)) {
    out += 'J';  // BININT
    put_little_endian(out, uint64_t(n), 4);
  } else {
    int bytes = 5;  // the number that two's complement needs
    while (bytes < 8 && n >> (8 * bytes - 1) != 0 && n >> (8 * bytes - 1) != -1) ++bytes;
    out += '\x8a';  // LONG1
    out += char(bytes);
    put_little_endian(out, uint64_t(n), bytes);
  }
}

static void put_string(std::string& out, const std::string& s) {
  check(s.size() <= INT32_MAX, "pickle: a string of ", s.size(), " bytes");
  out += 'X';  // BINUNICODE
  put_little_endian(out, s.size(), 4);
  out += s;
}

static void put_double(std::string& out, double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  out += 'G';  // BINFLOAT, big-endian
  for (int byte = 7; byte >= 0; --byte) out += char(bits >> 8 * byte & 0xFF);
}

static void put(std::string& out, const Json& value) {
  if (value.is_null()) {
    out += 'N';
  } else if (value.is_object()) {
    out += "}(";  // EMPTY_DICT MARK
    for (const auto& [key, item] : value.items()) put_string(out, key), put(out, item);
    out += 'u';  // SETITEMS
  } else if (value.is_array()) {
    out += ']';  // EMPTY_LIST
    for (size_t i = 0; i < value.size();) {
      out += '(';  // MARK
      for (const size_t end = std::min(i + kBatch, value.size()); i < end; ++i) put(out, value[i]);
      out += 'e';  // APPENDS
    }
  } else if (value.is_string()) {
    put_string(out, value.get<std::string>());
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? '\x88' : '\x89';
  } else if (value.is_number_integer()) {
    put_integer(out, value.get<int64_t>());
  } else {
    put_double(out, value.get<double>());
  }
}

std::string pickle(const Json& value) {
  std::string out = "\x80\x02";  // PROTO 2
  put(out, value);
  return out + '.';  // STOP
}

}  // namespace gradus
