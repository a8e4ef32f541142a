#include "lessons/21_mixture_of_experts/kinds.h"

namespace gradus {

constexpr int64_t kPassage = 300;  // bytes: several sequences of the model

KindsText text_of_kinds(int64_t bytes, uint64_t seed) {
  KindsText text{{}, {"steps", "orders", "weather", "chess"}, {}};
  std::vector<Grammar> grammars;
  for (const std::string& name : text.names) {
    const std::string file = find_data_file(name + ".grammar");
    grammars.push_back(Grammar::parse(read_text_file(file), file));
  }
  Rng rng(seed, 21);
  std::string& all = text.corpus.bytes;
  while (int64_t(all.size()) < bytes) {
    const auto k = size_t(rng.uniform() * double(grammars.size()));
    for (const size_t begin = all.size(); all.size() < begin + kPassage;) all += grammars[k].generate(rng);
    text.kind.resize(all.size(), uint8_t(k));
    if (int64_t(all.size()) <= bytes * 9 / 10) text.corpus.split = int64_t(all.size());
  }
  return text;
}

}  // namespace gradus
