// These functions are linked into programs that are built without MPI.
#include "src/parallel/comm/processes.h"

namespace gradus {

static constexpr const char* kHow =
    "this program was built without MPI, so its ranks cannot be processes; "
    "for lesson NN `make mpi-NN RANKS=4` builds and starts one that was";

Process this_process() { fail(kHow); }
int run_process(int, char**, const std::function<int()>& body) { return body(); }
std::unique_ptr<Comm> mpi_comm() { fail(kHow); }
std::unique_ptr<Comm> nccl_comm() { fail(kHow); }

}  // namespace gradus
