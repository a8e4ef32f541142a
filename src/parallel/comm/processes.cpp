#include "src/parallel/comm/processes.h"

namespace gradus {

ClusterRun run_ranks(const RanksArgs& args, const std::function<void(Comm&)>& body) {
  if (args.comm == "sim") return run_cluster(args, body);
  check(args.ranks == this_process().count, "--comm=", args.comm, ": ", args.ranks,
        " ranks were requested, but the launcher has started ", this_process().count, " processes");
  Context context(args.device, args.seed, args.memory_budget);
  const std::unique_ptr<Comm> mine = args.comm == "nccl" ? nccl_comm() : mpi_comm();
  body(*mine);
  mine->barrier();
  return {{mine->seconds()}, {}};
}

}  // namespace gradus
