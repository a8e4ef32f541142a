// The questions of 14.4: the waiting time of a step, the number of samples read if they are not divided among
// workers, and the bits per byte of a uniform model, all with the student's own numbers.
#include <algorithm>
#include <sstream>

#include "lessons/14_data_loading/bits.h"
#include "src/train/text.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own14 {
  int64_t make, step, workers;             // ms to make a batch, ms of a step without waiting
  int64_t batches, batch, ranks, readers;  // of an epoch; readers: workers of a rank
  int64_t vocabulary, bytes_per_token;
};

static Own14 own_run(const std::string& student) {
  Own own(student, "14.4");
  Own14 o{};
  o.workers = own.between(2, 5), o.step = own.between(3, 9);
  o.make = o.workers * o.step + own.between(2, 20);
  o.ranks = own.of({2, 4}), o.readers = own.between(2, 5);
  o.batch = o.ranks * own.between(1, 4), o.batches = o.readers * own.between(5, 20);
  o.vocabulary = 256 << own.between(1, 4), o.bytes_per_token = own.between(2, 5);
  return o;
}

// The mean over many steps. Each worker makes its batches one after the other, in 2 W + 1 slots; the loop
// takes the batches in order.
static double mean_waiting(const Own14& o) {
  constexpr int64_t kSteps = 3000, kWarmUp = 300;
  const int64_t slots = 2 * o.workers + 1;
  std::vector<double> made(kSteps), finished(kSteps), worker_free(size_t(o.workers));
  double waited = 0;
  for (int64_t s = 0; s < kSteps; ++s) {
    double& ready = worker_free[size_t(s % o.workers)];
    const double slot_free = s >= slots ? finished[size_t(s - slots)] : 0;
    made[size_t(s)] = ready = std::max(ready, slot_free) + double(o.make);
    const double wants = s > 0 ? finished[size_t(s - 1)] : 0, begins = std::max(wants, made[size_t(s)]);
    if (s >= kWarmUp) waited += begins - wants;
    finished[size_t(s)] = begins + double(o.step);
  }
  return waited / double(kSteps - kWarmUp);
}

// With weights of 0 a GPT gives all tokens the same probability.
static double bits_of_no_knowledge(const Own14& o) {
  Context cpu;
  Transformer model({.vocab = o.vocabulary, .context = 8, .layers = 1, .heads = 1, .channels = 8});
  for (Parameter& p : model.parameters) copy_from_host(p.value, std::vector<double>(size_t(p.value.numel())));
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 100; ++i) ids.push_back(int32_t(i * 37 % o.vocabulary));
  const Loader loader(Tokens(ids, 60, o.vocabulary), 8, 1);
  return bits_per_byte(held_out_loss(model, loader, 4), double(o.bytes_per_token));
}

static Quiz quiz(const std::string& student) {
  const Own14 o = own_run(student);
  std::ostringstream waiting, different, bits;
  waiting << "A worker makes a batch in " << o.make << " ms. A step computes for " << o.step
          << " ms. There are " << o.workers
          << " workers, and each has its own core. How many ms does a step wait on average in a long run?";
  different
      << "An epoch has " << o.batches * o.batch << " samples. A step reads " << o.batch
      << " samples, divided among " << o.ranks << " ranks. By mistake each of the " << o.readers
      << " workers of a rank goes through all samples of the rank. How many different samples do all ranks "
         "together read in the steps of one epoch?";
  bits << "A GPT always gives each of its " << o.vocabulary
       << " tokens the same probability. The tokens of a text have " << o.bytes_per_token
       << " bytes on average. How many bits per byte does the GPT need for this text?";
  const std::string id = "14.4";
  const auto read = [o] {
    const ReadCounts c = count_reads(Sharing::EveryWorkerReadsAll, SampleOrder(o.batches * o.batch, 1),
                                     o.batch, o.ranks, o.readers);
    return double(c.different);
  };
  return {"All three questions are about data loading.",
          {{id, "waiting", waiting.str(), measured([o] { return mean_waiting(o); }, 0.02)},
           {id, "different", different.str(), measured(read)},
           {id, "bits", bits.str(), measured([o] { return bits_of_no_knowledge(o); }, 0.01)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "14", gradus::predict::quiz); }
