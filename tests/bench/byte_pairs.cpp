// The time of byte pairs on one thread: learning 8,000 merges on the first MiB of a text, encoding all of it,
// and decoding the tokens. The best of several runs counts, because the machine may be shared. Prints a JSON
// line. By default FILE is the licences in /usr/share/common-licenses, joined. FOLDER gets the tokenizer.json
// for beside_tokenizers.sh.
//   build/bench/byte_pairs [FILE [FOLDER]]
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "src/core/input_file.h"
#include "src/core/json.h"
#include "src/core/timing.h"
#include "src/data/byte_pairs.h"
#include "src/io/atomic_file.h"

using namespace gradus;

static std::string licences() {
  std::set<std::filesystem::path> files;  // in the same order on all machines
  for (const auto& entry : std::filesystem::directory_iterator("/usr/share/common-licenses"))
    if (!entry.is_symlink()) files.insert(entry.path());
  std::string text;
  for (const auto& file : files) text += read_text_file(file);
  return text;
}

static void bench_byte_pairs(const std::string& text, const std::string& folder) {
  std::unique_ptr<BytePairs> pairs;
  std::vector<int32_t> ids;
  std::string back;
  const std::string_view first(text.data(), std::min<size_t>(text.size(), 1 << 20));
  const auto learn = [&] { pairs = std::make_unique<BytePairs>(BytePairs::learn(first, 8000)); };
  const double learning = measure(learn).min;
  const double encoding = measure([&] { ids = BytePairEncoder(*pairs).encode(text); }).min;
  const double decoding = measure([&] { back = pairs->decode(ids); }).min;
  check(back == text, "byte pairs: the text that was decoded differs from the text that was encoded");
  const double megabytes = double(text.size()) * 1e-6;
  if (!folder.empty()) write_file(folder + "/tokenizer.json", tokenizer_text(*pairs));
  Json line = Json::object();
  line["bench"] = "byte_pairs";
  line["bytes"] = text.size();
  line["merges"] = pairs->merges().size();
  line["tokens"] = ids.size();
  line["bytes_per_token"] = double(text.size()) / double(ids.size());
  line["learn_s"] = learning;
  line["encode_mb_per_s"] = megabytes / encoding;
  line["decode_mb_per_s"] = megabytes / decoding;
  std::cout << line.dump() << std::endl;
}

int main(int argc, char** argv) {
  try {
    bench_byte_pairs(argc > 1 ? read_text_file(argv[1]) : licences(), argc > 2 ? argv[2] : "");
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
