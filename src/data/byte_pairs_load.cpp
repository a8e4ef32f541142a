// Reading files of byte pairs: Hugging Face's tokenizer.json, or GPT-2's merges.txt and vocab.json.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "kernels/check.h"
#include "src/core/input_file.h"
#include "src/core/json.h"
#include "src/core/utf8.h"
#include "src/data/byte_pairs.h"

namespace gradus {

namespace {

// Enough for hundreds of thousands of tokens; parsed JSON takes many times the memory of its text.
constexpr int64_t kMostFileBytes = 64 << 20;
constexpr size_t kMostValues = 1 << 22;

std::string bytes_of(const std::string& name) {
  static const std::unordered_map<std::string, char> of_character = [] {
    std::unordered_map<std::string, char> of;
    for (int b = 0; b < 256; ++b) of[character_of(uint8_t(b))] = char(b);
    return of;
  }();
  std::string bytes;
  for (size_t i = 0, n = 0; i < name.size(); i += n) {
    n = size_t(utf8_length(std::string_view(name).substr(i)));
    const auto found = of_character.find(name.substr(i, n));
    if (found == of_character.end()) fail("the token ", Brief{name}, " has a character that names no byte");
    bytes += found->second;
  }
  return bytes;
}

// The tokens of a file by their names, and its merges.
class Names {
 public:
  void add(const std::string& name, const ParsedJson& value) {
    check(!name.empty(), "a token has no name");
    const int64_t id = whole_number(value);
    check(id >= 0 && id < INT32_MAX, "the token ", Brief{name}, " has id ", id, "; ids are 0 to 2^31 - 2");
    const auto [same, is_new] = ids_.emplace(name, int32_t(id));
    check(same->second == id, "the token ", Brief{name}, " has ids ", same->second, " and ", id);
  }
  // Hugging Face's added tokens are named by their text, not by characters for its bytes.
  void add_text(const std::string& text, const ParsedJson& id) { add(text, id), texts_.insert(text); }
  void add_merge(const std::string& left, const std::string& right) {
    merges_.emplace_back(id_of(left), id_of(right)), made_.insert(id_of(left + right));
  }
  void add_merge(const std::string& both) {
    const size_t space = both.find(' ');
    check(space != both.npos && both.find(' ', space + 1) == both.npos, "the merge ", Brief{both},
          " is not two tokens with a space between them");
    add_merge(both.substr(0, space), both.substr(space + 1));
  }
  // GPT-2's two files do not say which tokens are special. Special tokens must be named <...>, so that any
  // other token without a merge shows that merges are missing.
  void check_made() const {
    for (const auto& [name, id] : ids_)
      check(made_.contains(id) || bytes_of(name).size() == 1 || (name.front() == '<' && name.back() == '>'),
            "no merge makes the token ", Brief{name}, ", which is not <...>; was merges.txt cut?");
  }
  BytePairs byte_pairs() const {
    std::vector<std::string> tokens(ids_.size());
    for (const auto& [name, id] : ids_) {
      check(size_t(id) < tokens.size(), "the token ", Brief{name}, " has id ", id, "; the ids of ",
            tokens.size(), " tokens are 0 to ", tokens.size() - 1);
      check(tokens[size_t(id)].empty(), "two tokens have id ", id, "; one is ", Brief{name});
      tokens[size_t(id)] = texts_.contains(name) ? name : bytes_of(name);
    }
    return BytePairs(std::move(tokens), merges_);
  }

 private:
  int32_t id_of(const std::string& name) const {
    const auto found = ids_.find(name);
    check(found != ids_.end(), "a merge has or makes ", Brief{name}, ", which is not in the vocabulary");
    return found->second;
  }
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_set<std::string> texts_;
  std::unordered_set<int32_t> made_;
  std::vector<BytePairs::Pair> merges_;
};

// Options beyond the `known` fields must be off.
void check_off(const std::string& path, const ParsedJson& object,
               const std::unordered_set<std::string>& known) {
  for (const auto& [key, value] : object.items())
    check(known.contains(key) || value.empty() || value == false || value == "" || value == 0, path, key,
          " is ", Brief{value}, ", which gradus does not support");
}

BytePairs read_tokenizer(const std::string& text) {
  ParsedJson file;
  parse_fields(
      text, kMostValues, [&](const std::string& key, ParsedJson& value) { file[key] = std::move(value); },
      Objects::Anywhere);
  check_off("", file, {"version", "added_tokens", "pre_tokenizer", "post_processor", "decoder", "model"});
  const ParsedJson &splitter = file["pre_tokenizer"], &model = file.at("model");
  for (const char* const field : {"pre_tokenizer", "post_processor", "decoder"}) {
    const ParsedJson& part = file[field];
    const bool may_be_null = &part != &splitter;
    check(part.is_object() ? part.value("type", "") == "ByteLevel" : part.is_null() && may_be_null, field,
          " is ", Brief{part}, "; gradus supports only ByteLevel");
  }
  check(!splitter.value("add_prefix_space", true),
        "pre_tokenizer puts a space before a text; gradus does not: add_prefix_space must be false");
  check(splitter.value("use_regex", true), "pre_tokenizer does not split a text; use_regex must be true");
  check_off("pre_tokenizer.", splitter, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  const ParsedJson type = model.value("type", ParsedJson("BPE"));
  check(type == "BPE", "model.type is ", Brief{type}, "; gradus supports only BPE");
  check_off("model.", model, {"type", "vocab", "merges"});
  const ParsedJson &tokens = model.at("vocab"), &merges = model.at("merges"), &added = file["added_tokens"];
  check(tokens.is_object() && merges.is_array() && (added.is_array() || added.is_null()),
        "model.vocab must be an object, model.merges and added_tokens arrays");
  Names names;
  for (const auto& [name, id] : tokens.items()) names.add(name, id);
  for (const ParsedJson& merge : merges) {
    check(merge.is_string() || merge.size() == 2, "the merge ", Brief{merge},
          " is neither \"a b\" nor [\"a\", \"b\"]");
    if (merge.is_string())
      names.add_merge(merge.get<std::string>());
    else
      names.add_merge(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
  }
  for (const ParsedJson& token : added) {
    check(!token.contains("special") || token["special"] == true, "added_tokens has ", Brief{token},
          ", which is not special: gradus does not look for such tokens in a text");
    names.add_text(token.at("content"), token.at("id"));
  }
  return names.byte_pairs();
}

void read_merges(const std::string& text, Names& names) {
  check(text.back() == '\n', "its last line has no end; was it cut?");
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    if (at > 0 || !line.starts_with("#version")) names.add_merge(line);
  }
}

// Errors of f name the file.
template <class F>
auto in_file(const std::string& path, const F& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    fail(path, ": ", e.what());
  }
}

}  // namespace

BytePairs load_byte_pairs(const std::string& folder) {
  const std::filesystem::path in(folder);
  const std::string tokenizer = in / "tokenizer.json", merges = in / "merges.txt",
                    vocabulary = in / "vocab.json";
  std::error_code no_error;
  if (std::filesystem::exists(tokenizer, no_error)) {
    const std::string text = read_text_file(tokenizer, kMostFileBytes);
    return in_file(tokenizer, [&] { return read_tokenizer(text); });
  }
  const std::string of_merges = read_text_file(merges, kMostFileBytes);
  const std::string of_vocabulary = read_text_file(vocabulary, kMostFileBytes);
  Names names;
  in_file(vocabulary, [&] {
    parse_fields(of_vocabulary, kMostValues,
                 [&](const std::string& name, ParsedJson& id) { names.add(name, id); });
  });
  return in_file(merges + " with vocab.json", [&] {
    read_merges(of_merges, names);
    names.check_made();
    return names.byte_pairs();
  });
}

}  // namespace gradus
