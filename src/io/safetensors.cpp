#include "src/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <tuple>

#include "src/core/json.h"
#include "src/io/atomic_file.h"

namespace gradus {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data are little-endian");
constexpr int64_t kMaxHeader = 100'000'000;
constexpr size_t kMostFields = 100'000;  // of the header, and of its metadata
constexpr const char* kMetadataKey = "__metadata__";

using enum DType;
const std::map<DType, std::string> kFormatNames{{F64, "F64"}, {F32, "F32"}, {BF16, "BF16"}, {F16, "F16"},
                                                {I64, "I64"}, {I32, "I32"}, {I8, "I8"},     {U8, "U8"}};

// Parses one entry of the header; offsets count from data_begin. The caller adds the place to its errors.
SafetensorsFile::Tensor parse_entry(const std::string& name, const ParsedJson& entry, int64_t data_begin) {
  const auto field = [&](const char* key, ParsedJson::value_t type) -> const ParsedJson& {
    check(entry.contains(key), "it has no ", key);
    check(entry.at(key).type() == type, "its ", key, " is ", Brief{entry.at(key)});
    return entry.at(key);
  };
  const auto format = field("dtype", ParsedJson::value_t::string).get<std::string>();
  const auto known = std::find_if(kFormatNames.begin(), kFormatNames.end(),
                                  [&](const auto& f) { return f.second == format; });
  check(known != kFormatNames.end(), "dtype ", format, " is not one that gradus has");
  Shape shape;
  for (const ParsedJson& dimension : field("shape", ParsedJson::value_t::array))
    shape.push_back(whole_number(dimension));
  const ParsedJson& offsets = field("data_offsets", ParsedJson::value_t::array);
  check(offsets.size() == 2, "data_offsets has ", offsets.size(), " numbers, not 2");
  const int64_t begin = whole_number(offsets[0]), end = whole_number(offsets[1]);
  const int64_t bytes = shape.bytes(known->first);
  // Written so that no sum can overflow: begin and end come from the file and may be anything.
  check(begin >= 0 && end >= begin && end - begin == bytes, "data_offsets [", begin, ",", end,
        "] do not fit ", shape, " of ", format, ", which takes ", bytes, " bytes");
  check(end <= INT64_MAX - data_begin, "data_offsets [", begin, ",", end, "] are past any file's end");
  return {name, known->first, shape, data_begin + begin, bytes};
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<TensorEntry>& tensors,
                       const Metadata& metadata) {
  std::vector<const TensorEntry*> order;
  for (const TensorEntry& t : tensors) {
    check(t.name != kMetadataKey, path, ": a tensor cannot be called ", kMetadataKey,
          "; the format uses that name");
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    const int64_t size_a = size_of(a->dtype), size_b = size_of(b->dtype);
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });

  Json::object_t header;  // a vector; appends, because insertion by name searches all of it
  if (!metadata.empty()) header.push_back({kMetadataKey, metadata});
  int64_t offset = 0;
  for (const TensorEntry* t : order) {
    const int64_t begin = offset;
    offset += t->shape.bytes(t->dtype);
    header.push_back({t->name,
                      {{"dtype", kFormatNames.at(t->dtype)},
                       {"shape", std::vector(t->shape.begin(), t->shape.end())},
                       {"data_offsets", Json::array({begin, offset})}}});
  }
  std::string text;
  try {
    text = Json(header).dump();
    parse_fields(text, kMostFields, [](const std::string&, ParsedJson&) {});
  } catch (const std::exception& e) {
    fail(path, ": its header could not be read back: ", e.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check(int64_t(text.size()) <= kMaxHeader, path, ": the header would take ", text.size(),
        " bytes; the format allows ", kMaxHeader);

  AtomicFile file(path);
  const uint64_t header_bytes = text.size();
  file.write(&header_bytes, sizeof header_bytes);
  file.write(text.data(), int64_t(text.size()));
  for (const TensorEntry* t : order) file.write(t->data, t->shape.bytes(t->dtype));
  file.commit();
}

void SafetensorsFile::read_header() {
  const int64_t file_bytes = file_.bytes();
  check(file_bytes >= 8, file_.path(), " has ", file_bytes,
        " bytes; a safetensors file has at least 8. Is it complete?");
  uint64_t header_bytes = 0;
  file_.read(0, 8, &header_bytes, "the header's size");
  check(header_bytes <= uint64_t(kMaxHeader) && int64_t(header_bytes) <= file_bytes - 8, file_.path(),
        ": bytes 0 to 7 announce a header of ", header_bytes, " bytes; the file has ", file_bytes - 8,
        " after them and the format allows ", kMaxHeader,
        ". It is truncated, corrupt, or not a safetensors file");
  std::string text(header_bytes, '\0');
  file_.read(8, int64_t(header_bytes), text.data(), "the header");
  check(text.starts_with('{'), file_.path(),
        ": the header should begin with { at byte 8; this is not a safetensors file");
  std::string in_entry;  // the entry that is being parsed
  try {
    parse_fields(text, kMostFields, [&](const std::string& name, ParsedJson& entry) {
      in_entry = "'s entry " + name;
      check(entry.is_object(), "it is ", Brief{entry}, ", not an object");
      if (name != kMetadataKey)
        tensors_.push_back(parse_entry(name, entry, 8 + int64_t(header_bytes)));
      else
        for (auto& [key, value] : entry.items()) {
          check(value.is_string(), key, " is ", Brief{value}, ", not a string");
          metadata_[key] = std::move(value.get_ref<std::string&>());
        }
      in_entry.clear();
    });
  } catch (const Error& e) {
    fail(file_.path(), ": the header", in_entry.empty() ? ", from byte 8 on," : in_entry,
         " is corrupt: ", e.what());
  }
  check_coverage(8 + int64_t(header_bytes));
}

// The tensors, in the order of their bytes, must be adjacent, without holes, up to the file's end.
void SafetensorsFile::check_coverage(int64_t data_begin) {
  std::sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
  });
  int64_t covered = data_begin;
  for (const Tensor& t : tensors_) {
    check(t.begin == covered, file_.path(), ": tensor ", t.name, " begins at byte ", t.begin,
          ", but the one before ends at ", covered, t.begin < covered ? " (they overlap)" : " (a hole)",
          "; the header is corrupt");
    covered += t.bytes;
    places_[t.name] = &t;
  }
  const int64_t file_bytes = file_.bytes();
  check(covered == file_bytes, file_.path(), ": the tensors end at byte ", covered, " and the file at byte ",
        file_bytes, covered > file_bytes ? "; it is truncated" : "; it has bytes that belong to no tensor");
}

const SafetensorsFile::Tensor* SafetensorsFile::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : found->second;
}

const SafetensorsFile::Tensor& SafetensorsFile::expect(const std::string& name, DType dtype,
                                                       const Shape& shape) const {
  const Tensor* t = find(name);
  check(t != nullptr, file_.path(), ": there is no tensor ", name, " among its ", tensors_.size());
  check(t->dtype == dtype && t->shape == shape, file_.path(), ": tensor ", name, " is ", name_of(t->dtype),
        " ", t->shape, ", expected ", name_of(dtype), " ", shape);
  return *t;
}

void SafetensorsFile::read(const std::string& name, DType dtype, const Shape& shape, void* out) const {
  const Tensor& t = expect(name, dtype, shape);
  file_.read(t.begin, t.bytes, out, "tensor " + name);
}

}  // namespace gradus
