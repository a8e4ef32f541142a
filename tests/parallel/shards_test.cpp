// Parts of weights that consist of several ranges: cut by columns, or within each of q, k and v; saved and
// loaded on any number of ranks.
#include <gtest/gtest.h>

#include <numeric>

#include "src/optim/adamw_8bit.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/sharded_file.h"
#include "tests/folder_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
Values numbers(int64_t n, double first, double step = 0.5) {
  Values v;
  for (int64_t i = 0; i < n; ++i) v.push_back(first + step * double(i % 97) - 0.25 * double(i % 7));
  return v;
}

// The elements of a shard of a whole whose elements are their own indices.
Values places(const Shard& s) {
  Values all(size_t(s.whole.numel()));
  std::iota(all.begin(), all.end(), 0.0);
  return s.of_values(all);
}

TEST(L19_Shard, ElementsOfRowsOfColumnsAndOfPartsOfThem) {
  const Shape whole{6, 5};
  EXPECT_EQ(places(Shard::of_rows(whole, 2, 3)),
            (Values{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24}));
  EXPECT_EQ(places(Shard::of_rows(whole, 1, 1, 3)),
            (Values{5, 6, 7, 8, 9, 15, 16, 17, 18, 19, 25, 26, 27, 28, 29}));
  EXPECT_EQ(places(Shard::of_rows(whole, 0, 2, 3)), places(Shard::of(whole)));
  EXPECT_EQ(places(Shard::of_columns(whole, 3, 2)), (Values{3, 4, 8, 9, 13, 14, 18, 19, 23, 24, 28, 29}));
  EXPECT_EQ(places(Shard::of_columns(whole, 0, 5)), places(Shard::of(whole)));
  EXPECT_EQ(places(Shard::of_columns(whole, 5, 0)), Values());
  EXPECT_EQ(places(Shard::of_rows(whole, 2, 0, 3)), Values());
  EXPECT_EQ(places(Shard::of_rows({6}, 1, 1, 3)), (Values{1, 3, 5}));
  for (const Shard& s : {Shard::of(whole), Shard::of_rows(whole, 1, 1, 2), Shard::of_columns(whole, 1, 3)}) {
    const Values all = places(s);
    for (int64_t at = 0; at <= s.count; ++at)
      for (int64_t n = 0; n <= s.count - at; ++n) {
        EXPECT_EQ(places(s.part(at, n)), Values(all.begin() + at, all.begin() + at + n)) << at << ", " << n;
        if (n > 1) {
          EXPECT_EQ(places(s.part(at, n).part(1, n - 1)), places(s.part(at + 1, n - 1)));
        }
      }
  }
  for (const auto& f : std::vector<std::function<void()>>{
           [&] { Shard::of_rows(whole, 4, 3); }, [&] { Shard::of_rows(whole, -1, 3); },
           [&] { Shard::of_rows(whole, 0, 1, 4); }, [&] { Shard::of_rows(whole, 0, 4, 2); },
           [&] { Shard::of_rows(whole, 1, -1); }, [&] { Shard::of_columns(whole, 4, 2); },
           [&] { Shard::of_columns(whole, -1, 2); }, [&] { Shard::of_columns({6}, 0, 1); },
           [&] { Shard::of_columns(whole, INT64_MAX, 2); }, [&] { Shard::of_rows(whole, 0, 2, 0); },
           [&] { Shard::of_rows(whole, 0, 2, -1); }, [&] { Shard::of_rows({}, 0, 1); },
           [&] { Shard::of(whole).part(29, 2); }, [&] { Shard::of(whole).part(-1, 2); },
           [&] { Shard::of(whole).part(INT64_MAX, 2); }})
    expect_refused("shard: ", f);
}

// Three weights: one cut by columns, one within each of q, k and v, and a bias that every rank has.
const Shape kColumns{5, 12}, kQkv{18, 4}, kBias{5};
struct Cut {
  Parameters parameters;
  Cut(int64_t rank, int64_t ranks, const std::string& recipe = "fp32") {
    const Part columns = part_of(12, rank, ranks), heads = part_of(6, rank, ranks);
    add("columns", kColumns, Shard::of_columns(kColumns, columns.begin, columns.count), {5, columns.count},
        recipe, ranks, 1);
    add("qkv", kQkv, Shard::of_rows(kQkv, heads.begin, heads.count, 3), {3 * heads.count, 4}, recipe, ranks,
        2);
    add("bias", kBias, Shard::of(kBias), kBias, recipe, 1, 3);
  }
  void backward(double scale) {
    for (Parameter& p : parameters) {
      Values all =
          numbers((p.shard ? p.shard->whole : p.value.shape()).numel(), scale * double(p.name.size()));
      if (p.shard) all = p.shard->of_values(all);
      p.leaf.grad = from_host(current().device, all, p.value.shape(), DType::F32, Kind::Gradient, "g");
      p.leaf.written = true;
    }
  }

 private:
  void add(const char* name, const Shape& whole, const Shard& shard, const Shape& own,
           const std::string& recipe, int64_t ranks, double first) {
    Parameter& p = parameters.add(name, own, precision_recipe(recipe));
    if (ranks > 1) p.shard = shard;
    p.assign(shard.of_values(numbers(whole.numel(), first)));
  }
};

struct L19_ShardedFile : FolderTest {};

TEST_F(L19_ShardedFile, CutOverThreeRanksItIsTheFileOfOne) {
  for (const char* recipe : {"fp32", "mixed"}) {
    {
      Context context("cpu");
      Cut whole(0, 1, recipe);
      AdamW optimizer(whole.parameters);
      for (const double s : {1.0, -0.5}) whole.backward(s), optimizer.step(0.01);
      save_training(path("one"), whole.parameters, optimizer);
    }
    const auto trained = [&](int64_t ranks, const std::string& save) {
      run_cluster({.ranks = ranks}, [&](Comm& comm) {
        Cut cut(comm.rank(), ranks, recipe);
        AdamW optimizer(cut.parameters);
        for (const double s : {1.0, -0.5}) cut.backward(s), optimizer.step(0.01);
        save_sharded(path(save), comm, cut.parameters, optimizer);
      });
    };
    trained(3, "three");
    EXPECT_TRUE(read("three") == read("one")) << recipe;
    for (const int64_t ranks : {1, 2, 3, 4, 5})
      run_cluster({.ranks = ranks}, [&](Comm& comm) {
        Cut cut(comm.rank(), ranks, recipe), same(comm.rank(), ranks, recipe);
        AdamW optimizer(cut.parameters), other(same.parameters);
        load_sharded(path("three"), comm, cut.parameters, optimizer);
        EXPECT_EQ(optimizer.scalars().updates, 2);
        save_sharded(path("again"), comm, cut.parameters, optimizer);
        EXPECT_TRUE(read("again") == read("one")) << ranks << " ranks";
        for (const double s : {1.0, -0.5}) same.backward(s), other.step(0.01);
        for (const Parameter& p : cut.parameters)
          EXPECT_EQ(to_host<double>(p.value), to_host<double>(same.parameters.find(p.name).value)) << p.name;
        comm.barrier();
      });
  }
  Context context("cpu");
  Cut whole(0, 1, "mixed"), part(0, 2, "mixed");
  AdamW optimizer(whole.parameters), of_part(part.parameters);
  load_training(path("three"), whole.parameters, optimizer);
  expect_refused("this rank has only a part of 'columns'; use save_sharded()",
                 [&] { save_training(path("f"), part.parameters, of_part); });
  expect_refused("this rank has only a part", [&] { load_weights(path("three"), part.parameters); });
}

TEST_F(L19_ShardedFile, ScalesOfBlocksGoWithTheirParts) {
  const Shape shape{6, 1024};
  const auto make = [&](Parameters& own, int64_t rank, int64_t ranks) {
    const Part columns = part_of(4, rank, ranks);  // of 256
    Parameter& p = own.add("w", {6, 256 * columns.count}, {});
    const Shard shard = Shard::of_columns(shape, 256 * columns.begin, 256 * columns.count);
    if (ranks > 1) p.shard = shard;
    p.assign(shard.of_values(numbers(shape.numel(), 1)));
    p.leaf.grad = from_host(current().device, shard.of_values(numbers(shape.numel(), -3)), p.value.shape(),
                            DType::F32, Kind::Gradient, "g");
    p.leaf.written = true;
  };
  for (const int64_t ranks : {1, 2, 4}) {
    run_cluster({.ranks = ranks}, [&](Comm& comm) {
      Parameters own;
      make(own, comm.rank(), ranks);
      AdamW8bit optimizer(own);
      optimizer.step(0.01);
      save_sharded(path("ranks" + std::to_string(ranks)), comm, own, optimizer);
    });
    EXPECT_TRUE(read("ranks" + std::to_string(ranks)) == read("ranks1")) << ranks;
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      Parameters own;
      make(own, comm.rank(), 2);
      AdamW8bit optimizer(own);
      load_sharded(path("ranks" + std::to_string(ranks)), comm, own, optimizer);
      save_sharded(path("again"), comm, own, optimizer);
    });
    EXPECT_TRUE(read("again") == read("ranks1")) << ranks;
  }
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    Parameters own;
    Parameter& p = own.add("w", {6, 512}, {});
    p.shard = Shard::of_columns(shape, comm.rank() == 0 ? 128 : 0, 512);
    const AdamW8bit optimizer(own);
    if (comm.rank() > 0) return;
    expect_refused("'optimizer.w.m.scales', elements 128 to 640, begins or ends within a block of 256",
                   [&] { save_sharded(path("f"), comm, own, optimizer); });
  });
}

TEST_F(L19_ShardedFile, WhatIsMissingTwiceOrOfOthersIsRefused) {
  const auto save = [&](int64_t begin, int64_t count, const char* device = "cpu") {
    return refusal([&] {
      run_cluster({.ranks = 2, .device = device}, [&](Comm& comm) {
        Parameters own;
        const bool first = comm.rank() == 0;
        own.add("w", {3, first ? 2 : count}, {}).shard =
            Shard::of_columns({3, 5}, first ? 0 : begin, first ? 2 : count);
        const Sgd optimizer(own);
        save_sharded(path("f"), comm, own, optimizer);
      });
    });
  };
  EXPECT_EQ(save(2, 3), "");
  fs::remove(path("f"));
  const auto says = [&](int64_t begin, int64_t count, const std::string& part) {
    const std::string text = save(begin, count);
    EXPECT_NE(text.find("save: element " + part + " is on "), std::string::npos) << text;
  };
  says(3, 2, "2 of 'w' [3,5]");
  says(1, 4, "1 of 'w' [3,5]");
  says(2, 2, "4 of 'w' [3,5]");
  says(1, 3, "1 of 'w' [3,5]");  // as many elements as required
  const auto unlike = [&](const Shape& shape, DType t) {
    return refusal([&] {
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        Parameters own;
        own.add("w", comm.rank() == 0 ? Shape{8} : shape, uniform(comm.rank() == 0 ? DType::F32 : t));
        const Sgd optimizer(own);
        save_sharded(path("f"), comm, own, optimizer);
      });
    });
  };
  EXPECT_NE(unlike({4}, DType::F32).find("save: 'w' is [4] fp32 on one rank and [8] fp32 on another"),
            std::string::npos);
  EXPECT_NE(unlike({8}, DType::BF16).find("save: 'w' is [8] bf16 on one rank"), std::string::npos);
  EXPECT_NE(save(2, 3, "meta").find("the device meta has no numbers"), std::string::npos);
  EXPECT_FALSE(fs::exists(path("f")));
  run_cluster({.ranks = 1}, [&](Comm& comm) {
    Parameters own, other;
    own.add("w", {3}, {}), other.add("w", {3}, {});
    const Sgd optimizer(other);
    expect_refused("the optimizer is of other parameters than 'w'",
                   [&] { save_sharded(path("f"), comm, own, optimizer); });
  });
}

}  // namespace
}  // namespace gradus
