// Small runs of the trainer in the process of the test.
#pragma once
#include <map>

#include "lessons/22_scoreboard/trainer.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

// Flags of a tiny run. A test appends its own flags, which override these.
inline const std::string kTiny =
    "--model=gpt-2x16x2 --context=16 --text-bytes=20000 --batch=4 --steps=6 --warmup=2 --lr=0.01 ";

inline TrainSettings settings_with(const std::string& flags) { return settings_of(kTiny + flags); }

// Calls `body` with the training of these settings, on each of its ranks.
inline void with_training(const TrainSettings& s, const char* device,
                          const std::function<void(Training&)>& body) {
  static std::map<std::string, Text> texts;  // kept, because generating one takes longer than the training
  const std::string of = s.data + std::to_string(s.text_bytes) + "," + std::to_string(s.seed);
  if (!texts.contains(of)) texts.emplace(of, text_of(s));
  const Text& text = texts.at(of);
  const auto run = [&](Comm* ranks) {
    Training training(s, text, ranks);
    body(training);
  };
  if (s.layout.ranks() > 1) {
    run_cluster({.ranks = s.layout.ranks(), .device = device, .seed = uint64_t(s.seed)},
                [&](Comm& comm) { run(&comm); });
  } else {
    const Context context(device, uint64_t(s.seed));
    run(nullptr);
  }
}

// Trains from the saved run `from`, or from the beginning, until step `steps`, and saves the run. Returns the
// losses, which must be the same on all ranks.
struct RunPart {
  int64_t steps;
  std::string save, from = "";
};
inline std::vector<double> train(const TrainSettings& s, const RunPart& part, const char* device = "cpu") {
  std::vector<std::vector<double>> losses(size_t(s.layout.ranks()));
  with_training(s, device, [&](Training& training) {
    std::vector<double>& mine = losses[size_t(training.ranks ? training.ranks->rank() : 0)];
    if (!part.from.empty()) training.load(part.from);
    while (training.steps() < part.steps) mine.push_back(training.step());
    if (!part.save.empty()) training.save(part.save);
  });
  for (const std::vector<double>& other : losses) EXPECT_EQ(other, losses[0]);
  return losses[0];
}

}  // namespace gradus
