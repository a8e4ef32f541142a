// Ranks that wait in unusual places: in a catch block, in a destructor that runs because of an exception,
// after catching the exception that ends them.
#include <gtest/gtest.h>

#include <exception>

#include "src/parallel/comm/cluster.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::string mine(const Comm& comm, const char* what) { return what + std::to_string(comm.rank()); }

std::string rethrown() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  }
}

TEST(L17_ExceptionsOfRanks, EachRankRethrowsItsOwn) {
  for (const int64_t ranks : {1, 2, 3, 5})
    run_cluster({.ranks = ranks}, [](Comm& comm) {
      for (int times = 0; times < 3; ++times) try {
          if ((comm.rank() + times) % 3 != 2) throw Error(mine(comm, "outer "));  // the others wait outside
          comm.barrier();
          comm.barrier();
          comm.barrier();
        } catch (const Error&) {
          comm.barrier();
          try {
            throw std::logic_error(mine(comm, "inner "));
          } catch (const std::logic_error&) {
            comm.barrier();
            EXPECT_EQ(rethrown(), mine(comm, "inner "));
          }
          comm.barrier();
          EXPECT_EQ(rethrown(), mine(comm, "outer "));
        }
      EXPECT_EQ(std::current_exception(), nullptr);
    });
}

struct WaitsAtItsEnd {
  Comm& comm;
  int exceptions;
  ~WaitsAtItsEnd() {
    EXPECT_EQ(std::uncaught_exceptions(), exceptions);
    comm.barrier();
    EXPECT_EQ(std::uncaught_exceptions(), exceptions);
  }
};

TEST(L17_ExceptionsOfRanks, ADestructorMayWaitWhileItsRankIsUnwound) {
  run_cluster({.ranks = 3}, [](Comm& comm) {
    try {
      const WaitsAtItsEnd object{comm, comm.rank() == 1 ? 1 : 0};
      if (comm.rank() == 1) throw Error("mine");
    } catch (const Error& e) {
      EXPECT_EQ(e.what(), std::string("mine"));
    }
    EXPECT_EQ(std::uncaught_exceptions(), 0);
  });
}

// Rank 3 fails while the others wait: rank 0 rethrows the exception that ends it, rank 1 goes on to its next
// wait, and rank 2 throws a different exception.
TEST(L17_ExceptionsOfRanks, TheFirstEndsTheOthersByWhatIsNoStdException) {
  int known = 0, unknown = 0, later = 0;
  const auto body = [&](Comm& comm) {
    const Tensor x(current().device, {3}, DType::F32, Kind::Other, "x");
    if (comm.rank() == 3) fail("the first");
    try {
      comm.barrier();
    } catch (const std::exception&) {
      ++known;
    } catch (...) {
      ++unknown;
      if (comm.rank() == 0) throw;
      if (comm.rank() == 2) fail("the second");
    }
    comm.all_reduce(x)->wait();
    ++later;
  };
  EXPECT_EQ(refusal([&] { run_cluster({.ranks = 4}, body); }), "rank 3: the first");
  EXPECT_EQ(known, 0);
  EXPECT_EQ(unknown, 3);
  EXPECT_EQ(later, 0);
}

TEST(L17_ExceptionsOfRanks, AnythingCanBeThrown) {
  const auto body = [](Comm& comm) {
    if (comm.rank() == 1) throw 42;
    comm.barrier();
  };
  try {
    run_cluster({.ranks = 2}, body);
    ADD_FAILURE() << "accepted";
  } catch (int i) {
    EXPECT_EQ(i, 42);
  }
}

TEST(L17_ExceptionsOfRanks, ClustersRunWithinAHandlerAndWithinEachOther) {
  try {
    throw Error("of the caller");
  } catch (const Error&) {
    run_cluster({.ranks = 2}, [](Comm& comm) {
      EXPECT_EQ(std::uncaught_exceptions(), 0);
      Context& outer = current();
      EXPECT_EQ(refusal([&] {
                  run_cluster({.ranks = 2}, [](Comm& inner) {
                    if (inner.rank() == 1) fail("no luck");
                    inner.barrier();
                  });
                }),
                "rank 1: no luck");
      EXPECT_EQ(&current(), &outer);
      comm.barrier();
      EXPECT_EQ(&current(), &outer);
    });
    EXPECT_EQ(rethrown(), "of the caller");
  }
}

}  // namespace
}  // namespace gradus
