// The safetensors format: 8 bytes little-endian N, N bytes of JSON header, then the tensors' bytes. A header
// entry is "name": {"dtype": "F32", "shape": [2,3], "data_offsets": [begin, end]}, offsets counted from the
// end of the header; "__metadata__" maps strings to strings. (huggingface/safetensors, README.md: "Format".)
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "src/core/input_file.h"
#include "src/core/shape.h"

namespace gradus {

using Metadata = std::map<std::string, std::string>;

// A tensor to be written: `data` holds shape.numel() elements, row-major, in host memory (may be null if
// none).
struct TensorEntry {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  const void* data = nullptr;
};

// Replaces `path` as a whole or not at all (atomic_file.h). The same tensors give the same bytes: they are
// ordered by element size, largest first, then by name, so that each is aligned, and the header is padded
// with spaces to a multiple of 8. Errors: two tensors with the same name, the name "__metadata__".
void write_safetensors(const std::string& path, const std::vector<TensorEntry>& tensors,
                       const Metadata& metadata = {});

// An open file whose header has been read and checked; tensors are read on request. The format's checks: the
// header has at most 100,000,000 bytes and begins with '{', no name occurs twice, every tensor has the bytes
// that its shape needs, and the tensors cover the data exactly: no holes, no overlaps, no bytes left over.
// Errors name the file, the tensor and the byte. Also rejected: dtypes that gradus lacks, more than 5
// dimensions, more than 100,000 tensors or metadata, and texts of more than 1 MiB.
class SafetensorsFile {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::F32;
    Shape shape;
    int64_t begin = 0, bytes = 0;  // in the file
  };

  explicit SafetensorsFile(const std::string& path) : file_(path) { read_header(); }

  const std::vector<Tensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const Metadata& metadata() const { return metadata_; }
  const Tensor* find(const std::string& name) const;  // nullptr: no tensor has this name
  // The tensor of this name; an error if it is missing, or has a different dtype or shape.
  const Tensor& expect(const std::string& name, DType dtype, const Shape& shape) const;
  // Copies its bytes.
  void read(const std::string& name, DType dtype, const Shape& shape, void* out) const;

 private:
  void read_header();
  void check_coverage(int64_t data_begin);

  InputFile file_;
  std::vector<Tensor> tensors_;
  std::map<std::string, const Tensor*> places_;  // by name
  Metadata metadata_;
};

}  // namespace gradus
