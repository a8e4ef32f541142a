// The processes that MPI's launcher has started.
#include <omp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <iostream>

#include "src/parallel/comm/mpi/requests.h"
#include "src/parallel/comm/processes.h"

namespace gradus {

double comm_timeout = 60;
static Process self;
static char last_words[256];

// Rank 0 reports an error that all ranks find; the others wait for a second, in case only one finds it.
Alarm::Alarm(const char* call) {
  std::snprintf(last_words, sizeof last_words, "rank %d: %s: %s\n", int(self.rank), call,
                no_answer().c_str());
  std::signal(SIGALRM,
              [](int) { _exit(write(STDERR_FILENO, last_words, std::strlen(last_words)) > 0 ? 1 : 2); });
  alarm(unsigned(std::ceil(comm_timeout)) + (self.rank > 0));
}

Alarm::~Alarm() { alarm(0); }

static void begin_mpi() {
  int provided = 0, rank = 0, count = 0, local = 0, place = 0;
  const Alarm alarm("MPI_Init");
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  self = {rank, count};
  MPI_Comm here;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  MPI_Comm_size(here, &local);
  MPI_Comm_rank(here, &place);
  MPI_Comm_free(&here);
  setenv("CUDA_VISIBLE_DEVICES", std::to_string(place).c_str(), 0);  // one GPU each, before CUDA starts
  if (!std::getenv("OMP_NUM_THREADS")) omp_set_num_threads(std::max(1, omp_get_num_procs() / local));
  if (rank > 0) std::cout.setstate(std::ios::failbit);
}

// Ranks with different flags would do different things, and wait for each other forever.
static void compare_flags(int argc, char** argv) {
  std::string mine;
  for (int i = 1; i < argc; ++i) mine += std::string(i > 1 ? " " : "") + argv[i];
  char first[4096] = {};
  mine.copy(first, sizeof first - 1);
  const Alarm alarm("comparing flags");
  MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
  check(mine.substr(0, sizeof first - 1) == first, "its flags differ from those of rank 0: '", mine,
        "', not '", first, "'");
}

[[noreturn]] static void end_all(const std::string& problem, int code) {
  if (self.rank > 0) usleep(500'000);  // as in Alarm
  // In one write, because the launcher could mix the pieces of ranks that fail at the same time.
  std::cerr << "rank " + std::to_string(self.rank) + ": " + problem + "\n";
  int unread = 0;  // bytes that the launcher has still to read; the abort could make it drop them
  for (int ms = 0; ms < 3000 && ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; ++ms)
    usleep(1000);
  const Alarm alarm("MPI_Abort");
  MPI_Abort(MPI_COMM_WORLD, code);
  std::abort();
}

int run_process(int argc, char** argv, const std::function<int()>& body) {
  try {
    Args flags(argc, argv, "", "");
    comm_timeout = timeout_flag(flags);
  } catch (const BadArguments&) {  // `body` will reject the flags
  }
  begin_mpi();
  std::atexit([] {  // --help ends the program within `body`
    const Alarm alarm("MPI_Finalize");
    MPI_Finalize();
  });
  try {
    compare_flags(argc, argv);
    return body();
  } catch (const BadArguments& e) {
    end_all(e.what(), 2);
  } catch (const std::exception& e) {
    end_all(e.what(), 1);
  }
}

Process this_process() { return self; }

}  // namespace gradus
