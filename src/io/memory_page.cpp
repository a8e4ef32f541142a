// The page for the browser: memory_page.html, with the history as JSON in the place of @data@.
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "src/io/atomic_file.h"
#include "src/io/memory_files.h"
#include "src/io/plot.h"

namespace gradus {

// The file's content when this was compiled, and a zero byte.
asm(R"(.pushsection .rodata
memory_page_html: .incbin "src/io/memory_page.html"
  .byte 0
  .popsection)");
extern const char kMemoryPage[] asm("memory_page_html");

namespace {

// Every string is written once, and represented by its number elsewhere.
struct Strings {
  std::map<std::string, int64_t> numbers;
  Json list = Json::array();
  int64_t operator()(const std::string& s) {
    const auto [at, is_new] = numbers.emplace(s, int64_t(numbers.size()));
    if (is_new) list.push_back(s);
    return at->second;
  }
};

// blocks: [name, shape, kind, requested, bytes]; a failed request is a block, too.
// events: [action, microseconds, op, block or -1, bytes or (if the kind changes) kind].
Json page_data(const Allocator& allocator, const std::string& title) {
  Json blocks = Json::array(), events = Json::array(), kinds = Json::array(), hues = Json::array();
  Strings strings;
  std::unordered_map<int64_t, int64_t> block_at;  // number of the block at an address
  for (const MemoryEvent& e : allocator.history()) {
    const bool begins = e.action == Action::Alloc || e.action == Action::OutOfMemory;
    int64_t block = -1;
    if (begins) {
      block = int64_t(blocks.size());
      blocks.push_back(
          Json::array({strings(e.name), strings(e.shape.text()), int64_t(e.kind), e.requested, e.bytes}));
      if (e.action == Action::Alloc) block_at[e.address] = block;
    } else if (e.action == Action::Free || e.action == Action::ChangeKind) {
      block = block_at.at(e.address);
    }
    const int64_t amount = e.action == Action::ChangeKind ? int64_t(e.kind) : e.bytes;
    events.push_back(
        Json::array({int64_t(e.action), int64_t(e.seconds * 1e6), strings(e.op), block, amount}));
  }
  for (int k = 0; k < kKinds; ++k) kinds.push_back(name_of(Kind(k))), hues.push_back(kHues[size_t(k)]);
  return {{"title", title},          {"kinds", kinds},   {"hues", hues},
          {"strings", strings.list}, {"blocks", blocks}, {"events", events}};
}

}  // namespace

void write_memory_page(const std::string& path, const Allocator& allocator, const std::string& title) {
  const std::string template_text = kMemoryPage, mark = "@data@";
  const size_t at = template_text.find(mark);
  std::string page = template_text.substr(0, at);
  // A "<" could end the script element, so it is escaped.
  for (const char c : json_text(page_data(allocator, title))) c == '<' ? page += "\\u003c" : page += c;
  write_file(path, page + template_text.substr(at + mark.size()));
}

}  // namespace gradus
