#include "lessons/17_data_parallel/ways.h"

#include <cmath>

#include "src/core/timing.h"
#include "src/tensor/context.h"

namespace gradus {

void compare_way(const RanksArgs& args, const ParallelTask& task, const TrainOneWay& train,
                 const ParallelWay& way, const OneDevice& alone, Report& report) {
  const int64_t N = args.ranks;
  std::vector<SummedRun> ranks(static_cast<size_t>(N));
  run_ranks(args, [&](Comm& comm) { ranks[size_t(comm.rank())] = train(comm, way); });
  const std::string name = std::to_string(N) + (N == 1 ? " rank, " : " ranks, ") + way.name;
  const bool data = current().device.has_data();
  int64_t different = 0, sent_otherwise = 0;
  for (const SummedRun& r : ranks) {
    if (r.seconds.empty()) continue;  // another process's
    for (size_t i = 0; i < r.weights.size(); ++i) different += r.weights[i] != alone.weights[i];
    sent_otherwise += r.sent.elements != 2 * r.numel * (N - 1) / N;
  }
  const SummedRun& mine = ranks[size_t(this_rank(args))];
  ReportRow& row = report.row(name);
  row.peak = mine.peak;
  row.extra = {{"sent", double(mine.sent.elements)}, {"messages", double(mine.sent.messages)}};
  if (data) {
    row.ms_per_step = summarize(mine.seconds).median * 1e3;
    row.tokens_per_s = double(task.batch * task.model.context) / (*row.ms_per_step * 1e-3);
    row.loss_last = mine.loss;
  }
  if (way.bucket_bytes > 0)
    report.check_equal(name + ": ranks that sent not 2 Psi (N-1)/N", sent_otherwise, 0);
  report.check_at_most(name + ": parameters unlike one device's", data ? double(different) : NAN, 0);
}

}  // namespace gradus
