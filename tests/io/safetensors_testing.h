// Common parts of the tests of safetensors files: a separate folder, and a file with a tensor of every kind.
#pragma once
#include <gtest/gtest.h>

#include "src/io/safetensors.h"
#include "tests/folder_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {

class SafetensorsTest : public FolderTest {
 protected:
  // A file with this header text and as many data bytes.
  void put_file(const std::string& header, size_t data_bytes) const {
    const uint64_t n = header.size();
    write(file_, std::string(reinterpret_cast<const char*>(&n), 8) + header + std::string(data_bytes, 'd'));
  }
  // The message of the Error that opening the file throws, or "" if it opens.
  std::string opening() const {
    const std::string text = refusal([&] { SafetensorsFile file(file_); });
    EXPECT_TRUE(text.empty() || text.find(file_) != std::string::npos) << "does not name the file: " << text;
    return text;
  }
  void expect_header_refused(const std::string& header, size_t data_bytes, const std::string& part) const {
    put_file(header, data_bytes);
    EXPECT_NE(opening().find(part), std::string::npos) << header << "\n-> " << opening();
  }

  std::string file_ = path("a.safetensors");
};

// A tensor of every dtype and several ranks, with a hash of its name as data.
struct Sample {
  std::vector<TensorEntry> entries;
  std::vector<std::string> data;
  Sample() {
    add("weight", DType::F32, {2, 3});
    add("bias", DType::BF16, {7});
    add("scalar", DType::F64, {});
    add("ids", DType::I32, {1, 1, 5});
    add("none", DType::F32, {0, 4});
    add("half", DType::F16, {3});
    add("q", DType::I8, {255});
    add("u", DType::U8, {1});
    add("long \"name\" \\ \n \xC3\xA9", DType::I64, {2, 1, 1, 1, 2});
    for (size_t i = 0; i < entries.size(); ++i) entries[i].data = data[i].data();
  }
  void add(const std::string& name, DType dtype, const Shape& shape) {
    entries.push_back({name, dtype, shape, nullptr});
    std::string bytes;
    for (int64_t i = 0; i < shape.numel() * size_of(dtype); ++i)
      bytes += char(std::hash<std::string>{}(name) >> (i % 8 * 8)) ^ char(i * 29);
    data.push_back(bytes);
  }
  // "" if the file has exactly these tensors, else what is wrong.
  std::string difference(const std::string& path) const {
    try {
      const SafetensorsFile file(path);
      if (file.tensors().size() != entries.size()) return "number of tensors";
      for (size_t i = 0; i < entries.size(); ++i) {
        std::string bytes(data[i].size(), '?');
        file.read(entries[i].name, entries[i].dtype, entries[i].shape, bytes.data());
        if (bytes != data[i]) return "WRONG BYTES in " + entries[i].name;
      }
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  }
};

}  // namespace gradus
