// Found: a layout with negative counts whose product is the number of ranks is accepted; one with a count of
// 0 ends the program (a division by 0).
#include "tests/parallel/layout_testing.h"

namespace gradus {
namespace {

TEST(L20_LayoutGroupsFound, NegativeCountsAreRefused) {
  for (const Layout& l : {Layout{-1, 1, -1, 1}, Layout{1, -1, 1, -1}, Layout{-1, -1, 1, 1}})
    run_cluster({.ranks = 1, .device = "meta"}, [&](Comm& comm) {
      SCOPED_TRACE(l.text());
      expect_refused("", [&] { LayoutGroups(comm, l); });
    });
}

TEST(L20_LayoutGroupsFound, CountsOfZeroAreRefused) {
  for (const Layout& l : {Layout{0, 1, 1, 1}, Layout{1, 0, 1, 1}, Layout{1, 1, 0, 1}, Layout{1, 1, 1, 0}})
    run_cluster({.ranks = 1, .device = "meta"}, [&](Comm& comm) {
      SCOPED_TRACE(l.text());
      expect_refused("", [&] { LayoutGroups(comm, l); });
    });
}

}  // namespace
}  // namespace gradus
