// The questions of 20.5, about a pipeline with numbers of the student's own. The answers are measured: the
// schedule is played, and it runs on simulated ranks.
#include <sstream>

#include "src/parallel/comm/cluster.h"
#include "src/parallel/pipeline.h"
#include "tests/course/predict.h"

namespace gradus::predict {

namespace {

struct Nothing : PipelineWork {
  Tensor made() { return {current().device, {1}, DType::F32, Kind::Temporary, "passed on"}; }
  Tensor forward(int64_t, int64_t, Tensor) override { return made(); }
  Tensor backward(int64_t, int64_t, Tensor) override { return made(); }
};
double messages_of_all(const Schedule& s) {
  int64_t messages = 0;
  run_cluster({.ranks = s.ranks(), .device = "meta"}, [&](Comm& comm) {
    Nothing work;
    run_schedule(comm, s, {1}, DType::F32, work);
    messages += comm.sent().messages;
  });
  return double(messages);
}

}  // namespace

static Quiz quiz(const std::string& student) {
  Own own(student, "20.5");
  const int64_t p = own.of({2, 4, 8}), m = p * own.between(2, 5), v = own.of({2, 3, 4}),
                rank = own.between(0, p - 1);
  const auto played = [=](int64_t chunks_per_rank) {
    const Schedule s = interleaved(p, m, chunks_per_rank);
    return play(s, std::vector<ChunkTimes>(size_t(s.chunks)));
  };
  std::ostringstream setting;
  setting
      << "Your pipeline has " << p << " ranks and " << m
      << " micro-batches. All stages take the same time, a backward pass takes twice as long as a forward "
         "pass, and messages take no time. The interleaved schedule has "
      << v << " chunks per rank.";
  const std::string which = "on rank " + std::to_string(rank) + " (the first is rank 0), ";
  return {
      setting.str(),
      {{"20.5", "bubble", "1F1B: what is the bubble, in percent of all ranks' time?",
        measured([=] { return 100 * played(1).bubble; }, 0.01)},
       {"20.5", "bubble_interleaved", "interleaved: what is the bubble, in percent?",
        measured([=] { return 100 * played(v).bubble; }, 0.01)},
       {"20.5", "gpipe", which + "GPipe: what is the largest number of micro-batches in flight?",
        measured([=] {
          return double(play(gpipe(p, m), std::vector<ChunkTimes>(size_t(p))).in_flight[size_t(rank)]);
        })},
       {"20.5", "one_f_one_b", which + "1F1B: what is the largest number of micro-batches in flight?",
        measured([=] { return double(played(1).in_flight[size_t(rank)]); })},
       {"20.5", "interleaved",
        which +
            "interleaved: what is the largest number of pairs (micro-batch, chunk) in flight, that is, of "
            "forward passes whose backward pass has not been computed yet?",
        measured([=] { return double(played(v).in_flight[size_t(rank)]); })},
       {"20.5", "messages", "interleaved: how many messages do all ranks together send per step?",
        measured([=] { return messages_of_all(interleaved(p, m, v)); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "20", gradus::predict::quiz); }
