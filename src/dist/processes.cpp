#include "src/dist/processes.h"

namespace gradus {

ClusterRun run_ranks(const RanksArgs& args, const std::function<void(Comm&)>& body) {
  if (args.comm == "sim") return run_cluster(args, body);
  const Process self = this_process();
  check(args.ranks == self.count, "--comm=", args.comm, ": ", args.ranks,
        " ranks are asked for, the launcher has started ", self.count, " processes");
  try {
    Context context(args.device, args.seed, args.memory_budget);
    const std::unique_ptr<Comm> mine = args.comm == "nccl" ? nccl_comm(args.timeout) : mpi_comm(args.timeout);
    body(*mine);
    mine->barrier();
    return {{mine->seconds()}, {}};
  } catch (const std::exception& e) {
    end_all_processes("rank " + std::to_string(self.rank) + ": " + e.what());
  }
}

}  // namespace gradus
