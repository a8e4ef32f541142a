#include "lessons/17_data_parallel/ways.h"

namespace gradus {

void compare_way(const RanksArgs& args, const ParallelTask& task, const TrainOneWay& train,
                 const ParallelWay& way, const OneDevice& alone, Report& report) {
  const int64_t N = args.ranks;
  std::vector<SummedRun> ranks(static_cast<size_t>(N));
  run_ranks(args, [&](Comm& comm) { ranks[size_t(comm.rank())] = train(comm, way); });
  const std::string name = std::to_string(N) + (N == 1 ? " rank, " : " ranks, ") + way.name;
  double unlike = 0;
  int64_t psi = 0, sent_otherwise = 0;
  for (const auto& w : alone.weights) psi += int64_t(w.size());
  for (const SummedRun& r : ranks) {
    if (r.seconds.empty()) continue;  // another process's
    unlike += count_unlike(r, alone);
    sent_otherwise += r.numel < psi || r.sent.elements != 2 * r.numel * (N - 1) / N;
  }
  const SummedRun& mine = ranks[size_t(this_rank(args))];
  add_row(report, name, mine, task).extra = {{"sent", double(mine.sent.elements)},
                                             {"messages", double(mine.sent.messages)}};
  if (way.bucket_bytes > 0)
    report.check_equal(name + ": ranks that sent not 2 Psi (N-1)/N", sent_otherwise, 0);
  report.check_at_most(name + ": parameters unlike one device's", unlike, 0);
  report.check_at_most(name + ": last loss, off one device's", std::abs(mine.loss - alone.loss_last), 0);
}

void check_parts(int64_t parts, const OneDevice& alone, const OneDevice& whole, Report& report) {
  report.check_at_most(
      "one device, the batch in " + std::to_string(parts) + ": weights off the whole batch's",
      off_by(alone.weights, whole.weights), 1e-4);
}

}  // namespace gradus
