#include "lessons/17_data_parallel/ways.h"

namespace gradus {

void compare_way(const RanksArgs& args, const ParallelTask& task, const TrainOneWay& train,
                 const ParallelWay& way, const OneDevice& alone, Report& report) {
  const int64_t N = args.ranks;
  std::vector<SummedRun> ranks(static_cast<size_t>(N));
  run_ranks(args, [&](Comm& comm) { ranks[size_t(comm.rank())] = train(comm, way); });
  const std::string name = std::to_string(N) + (N == 1 ? " rank, " : " ranks, ") + way.name;
  double unlike = 0;
  int64_t psi = 0, wrong_sent = 0;
  for (const auto& w : alone.weights) psi += int64_t(w.size());
  for (const SummedRun& r : ranks) {
    if (r.seconds.empty()) continue;  // a rank that is another process
    unlike += count_unlike(r, alone);
    wrong_sent += r.numel < psi || r.sent.elements != 2 * r.numel * (N - 1) / N;
  }
  const SummedRun& mine = ranks[size_t(this_rank(args))];
  ReportRow& row = add_row(report, name, mine, task);
  row.extra = {{"elements sent per rank", double(mine.sent.elements)},
               {"messages per rank", double(mine.sent.messages)}};
  const Link& link = args.network.link;
  if (args.comm == "sim" && args.network.per_node == 0)
    row.extra.emplace_back("all-reduces by formula, ms", 1e3 * (double(mine.sent.messages) * link.latency +
                                                                double(mine.sent.bytes) / link.bandwidth));
  if (way.bucket_bytes > 0)
    report.check_equal(name + ": ranks whose elements sent differ from 2 (N-1)/N of the padded gradients",
                       wrong_sent, 0);
  report.check_at_most(name + ": parameters that differ bitwise from the single-device run", unlike, 0);
  report.check_at_most(name + ": last loss, difference from the single-device run",
                       std::abs(mine.loss - alone.loss_last), 0);
}

void check_shards(int64_t shards, const OneDevice& alone, const OneDevice& whole, Report& report) {
  report.check_at_most("single device, gradient summed over " + std::to_string(shards) +
                           " shards or of the whole batch: largest difference of a weight",
                       off_by(alone.weights, whole.weights), 1e-4);
}

}  // namespace gradus
