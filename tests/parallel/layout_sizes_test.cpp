// Layouts with impossible numbers: below 1, or not as many ranks as there are.
#include "tests/parallel/layout_testing.h"

namespace gradus {
namespace {

TEST(L20_LayoutGroups, NegativeCountsAreRefused) {
  for (const Layout& l : {Layout{-1, 1, -1, 1}, Layout{1, -1, 1, -1}, Layout{-1, -1, 1, 1}})
    run_cluster({.ranks = 1, .device = "meta"}, [&](Comm& comm) {
      SCOPED_TRACE(l.text());
      expect_refused("", [&] { LayoutGroups(comm, l); });
    });
}

TEST(L20_LayoutGroups, CountsOfZeroAreRefused) {
  for (const Layout& l : {Layout{0, 1, 1, 1}, Layout{1, 0, 1, 1}, Layout{1, 1, 0, 1}, Layout{1, 1, 1, 0}})
    run_cluster({.ranks = 1, .device = "meta"}, [&](Comm& comm) {
      SCOPED_TRACE(l.text());
      expect_refused("", [&] { LayoutGroups(comm, l); });
    });
}

}  // namespace
}  // namespace gradus
