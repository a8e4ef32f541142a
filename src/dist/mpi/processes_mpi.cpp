// The processes that MPI's launcher has started.
#include <omp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include "src/dist/mpi/requests.h"
#include "src/dist/processes.h"

namespace gradus {

Process this_process() {
  static const Process self = [] {
    int provided = 0, rank = 0, count = 0, beside = 0, place = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    std::atexit([] { MPI_Finalize(); });
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    MPI_Comm here;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &beside);
    MPI_Comm_rank(here, &place);
    MPI_Comm_free(&here);
    setenv("CUDA_VISIBLE_DEVICES", std::to_string(place).c_str(), 0);  // a GPU for each, before CUDA begins
    if (!std::getenv("OMP_NUM_THREADS")) omp_set_num_threads(std::max(1, omp_get_num_procs() / beside));
    return Process{rank, count};
  }();
  return self;
}

void end_all_processes(const std::string& sentence) {
  std::cerr << sentence << std::endl;
  int unread = 0;  // by the launcher, which ends without it where it hears of the abort first
  for (int ms = 0; ms < 3000 && ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; ++ms)
    usleep(1000);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

}  // namespace gradus
