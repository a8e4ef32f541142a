// Lesson 22: the settings and the saved state of a run determine all its later steps.
#include <cstring>
#include <regex>

#include "tests/devices.h"
#include "tests/folder_testing.h"
#include "tests/lessons/22_testing.h"

namespace gradus {
namespace {

// Ways to train, as flags. Each run is saved after 3 of 6 steps and resumed.
constexpr const char* kWays[] = {
    "",
    "--micro-batches=3",
    "--dropout=0.2",
    "--dropout=0.2 --micro-batches=4",
    "--calls=captured",
    "--calls=compiled",
    "--calls=compiled --dropout=0.2 --precision=mixed-fp16",
    "--keep=selective",
    "--keep=each-block --dropout=0.2",
    "--keep=every-2",
    "--keep=sqrt",
    "--keep=from-the-start --dropout=0.2",
    "--attention=flash",
    "--loss-rows=24",
    "--precision=mixed",
    "--precision=mixed-fp16",
    "--precision=zero",
    "--precision=half",
    "--precision=bf16",
    "--optimizer=adamw8bit",
    "--optimizer=adafactor",
    "--optimizer=adafactor-given --head=untied",
    "--optimizer=nesterov --head=tied",
    "--optimizer=muon --weight-decay=0.1",
    "--optimizer=sgd",
    "--optimizer=sgd --momentum=0",
    "--clip=0 --weight-decay=0.1",
    "--lora=2 --dropout=0.2",
    "--lora=2 --frozen=4-bits",
    "--lora=2 --frozen=4-bits --precision=mixed --calls=captured",
    "--lora=2 --adapted=.*c_attn --optimizer=adamw8bit",
    "--blocks=llama --kv-heads=1 --mlp=24",
    "--blocks=llama --experts=4 --balance=0.01",
    "--blocks=llama --experts=4 --capacity=1 --workers=1",
    "--blocks=llama --experts=4 --balance=0.01 --calls=compiled",
    "--workers=1",
    "--workers=3 --dropout=0.2",
    "--empty-every=2 --keep=each-block",
    "--ranks=2 --zero=0",
    "--ranks=2 --zero=1 --precision=mixed-fp16",
    "--ranks=2 --zero=2 --dropout=0.2 --micro-batches=2",
    "--ranks=2 --zero=3 --precision=mixed --keep=each-block",
    "--ranks=4 --zero=0 --optimizer=muon",
    "--ranks=4 --zero=1 --optimizer=adamw8bit",
    "--ranks=4 --zero=2 --optimizer=sgd --workers=1",
    "--ranks=4 --zero=3",
    "--ranks=3 --zero=3 --dropout=0.2",
    "--ranks=2 --tensor-ranks=2 --dropout=0.2",
    "--ranks=2 --tensor-ranks=2 --tokens=parts --precision=mixed-fp16",
    "--ranks=2 --tensor-ranks=2 --tokens=again",
    "--ranks=2 --context-ranks=2",
    "--ranks=2 --pipeline-ranks=2 --micro-batches=2 --dropout=0.2",
    "--ranks=2 --pipeline-ranks=2 --micro-batches=2 --chunks=2 --model=gpt-4x16x2",
    "--ranks=8 --pipeline-ranks=2 --tensor-ranks=2 --micro-batches=2 --precision=mixed",
};

struct L22_Ways : FolderTest, ::testing::WithParamInterface<const char*> {};

TEST_P(L22_Ways, AResumedRunIsBitwiseEqual) {
  const TrainSettings s = settings_with(GetParam());
  std::vector<double> begun = train(s, {3, path("half")}),
                      rest = train(s, {6, path("resumed"), path("half")});
  const std::vector<double> whole = train(s, {6, path("whole")});
  begun.insert(begun.end(), rest.begin(), rest.end());
  EXPECT_EQ(begun, whole);
  EXPECT_TRUE(read("resumed") == read("whole"))
      << "the file of the resumed run differs from that of the run without an interruption";
  EXPECT_FALSE(read("half") == read("whole")) << "the weights did not change between step 3 and step 6";
}
INSTANTIATE_TEST_SUITE_P(All, L22_Ways, ::testing::ValuesIn(kWays), [](const auto& info) {
  std::string name = std::regex_replace(info.param, std::regex("[^A-Za-z0-9]+"), "_");
  return "way" + std::to_string(info.index) + name;
});

struct L22_OnDevices : FolderTest, ::testing::WithParamInterface<const char*> {};
ON_DEVICES_WITH_DATA(L22_OnDevices);

TEST_P(L22_OnDevices, AResumedRunIsBitwiseEqual) {
  for (const char* way :
       {"--dropout=0.2 --optimizer=adamw8bit --keep=each-block", "--calls=compiled --precision=mixed-fp16",
        "--attention=flash --precision=mixed --lora=2 --frozen=4-bits",
        "--blocks=llama --experts=4 --micro-batches=2"}) {
    const TrainSettings s = settings_with(std::string("--model=gpt-1x16x2 --context=8 ") + way);
    const std::vector<double> first = train(s, {2, path("half")}, GetParam()),
                              rest = train(s, {3, path("resumed"), path("half")}, GetParam()),
                              whole = train(s, {3, path("whole")}, GetParam());
    EXPECT_EQ(rest.at(0), whole.at(2)) << way;
    EXPECT_EQ(first, std::vector<double>(whole.begin(), whole.end() - 1)) << way;
    EXPECT_TRUE(read("resumed") == read("whole")) << way;
  }
}

struct L22_Trainer : FolderTest {};

// The loss scale is so large that the updates before and after the saved step are skipped.
TEST_F(L22_Trainer, SkippedUpdatesAreResumed) {
  for (const char* way : {"--dropout=0.2", "--calls=captured", "--ranks=2 --zero=2"}) {
    const TrainSettings s = settings_with("--precision=mixed-fp16 " + std::string(way));
    int64_t updates = 0;
    const auto large_scale = [&](const std::string& file, int64_t steps) {
      with_training(s, "cpu", [&](Training& training) {
        current().device.set(&StepScalars::loss_scale, 0x1p24f);
        while (training.steps() < steps) training.step();
        updates = training.optimizer->scalars().updates;
        training.save(path(file));
      });
    };
    large_scale("half", 3);
    EXPECT_EQ(updates, 0) << way << ": no update was skipped, so this test tests nothing";
    large_scale("whole", 8);
    EXPECT_TRUE(updates > 0 && updates < 5) << way << ": " << updates;
    train(s, {8, path("resumed"), path("half")});
    EXPECT_TRUE(read("resumed") == read("whole")) << way;
  }
}

// Two runs in one process, whose steps alternate; one run is saved and loaded while the other one exists.
TEST_F(L22_Trainer, RunsDoNotDisturbEachOther) {
  const TrainSettings settings[] = {settings_with("--dropout=0.2 --precision=mixed-fp16 --workers=1"),
                                    settings_with("--calls=captured --seed=2 --optimizer=adamw8bit")};
  std::vector<double> alone[2], losses[2];
  for (size_t i = 0; i < 2; ++i) alone[i] = train(settings[i], {6, path("alone" + std::to_string(i))});
  const Text texts[] = {text_of(settings[0]), text_of(settings[1])};
  struct Run {
    Context context;
    Training training;
    Run(const TrainSettings& s, const Text& text) : context("cpu", uint64_t(s.seed)), training(s, text) {}
  };
  std::optional<Run> runs[2];
  for (size_t i = 0; i < 2; ++i) runs[i].emplace(settings[i], texts[i]);
  for (int step = 0; step < 6; ++step)
    for (size_t i = 0; i < 2; ++i) {
      runs[i]->context.make_current();
      losses[i].push_back(runs[i]->training.step());
      if (step != 2 || i != 0) continue;
      runs[0]->training.save(path("half"));
      runs[0].emplace(settings[0], texts[0]);
      runs[0]->training.load(path("half"));
    }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(losses[i], alone[i]) << i;
    runs[i]->context.make_current();
    runs[i]->training.save(path("together"));
    EXPECT_TRUE(read("together") == read("alone" + std::to_string(i))) << i;
  }
}

// Saving does not change a run, and loading replaces the state of any earlier training.
TEST_F(L22_Trainer, ARunCanReturnToASavedStep) {
  for (const char* way : {"--dropout=0.2", "--workers=3 --micro-batches=2", "--calls=captured",
                          "--calls=compiled --precision=mixed-fp16", "--ranks=2 --zero=3"}) {
    const TrainSettings s = settings_with(way);
    const std::vector<double> whole = train(s, {6, path("whole")});
    with_training(s, "cpu", [&](Training& training) {
      const auto steps = [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) EXPECT_EQ(training.step(), whole[size_t(i)]) << way << ", " << i;
      };
      steps(0, 2);
      training.save(path("two"));
      steps(2, 5);
      training.load(path("two"));
      EXPECT_EQ(training.steps(), 2);
      steps(2, 6);
      training.save(path("again"));
    });
    EXPECT_TRUE(read("again") == read("whole")) << way;
  }
}

// The bytes of a file after its header. The header has the settings, which may differ.
std::string tensors(const std::string& bytes) {
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  return bytes.substr(8 + header);
}

// Settings that change how the same numbers are computed.
TEST_F(L22_Trainer, SettingsThatKeepRunsBitwiseEqual) {
  for (const char* calls : {"captured", "compiled"}) {
    const std::string mixture = "--blocks=llama --experts=4 --balance=0.01 --calls=";
    EXPECT_EQ(train(settings_with(mixture + calls), {6, ""}),
              train(settings_with(mixture + "each"), {6, ""}));
  }
  for (const std::string common : {"--dropout=0.2", "--precision=mixed-fp16", "--optimizer=adamw8bit"}) {
    const std::vector<double> plain = train(settings_with(common), {6, path("plain")});
    for (const char* way :
         {"--workers=1", "--workers=3", "--calls=captured", "--calls=compiled", "--keep=selective",
          "--keep=each-block", "--keep=every-2", "--keep=sqrt", "--keep=from-the-start", "--empty-every=1"}) {
      EXPECT_EQ(train(settings_with(common + " " + way), {6, path("other")}), plain) << common << " " << way;
      EXPECT_TRUE(tensors(read("other")) == tensors(read("plain"))) << common << " " << way;
    }
  }
}

// The losses agree except for rounding errors.
void expect_alike(const std::vector<double>& losses, const std::vector<double>& others,
                  const std::string& way) {
  ASSERT_EQ(losses.size(), others.size()) << way;
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], others[i], 1e-6 * losses[i])  // about 8 times the rounding error of fp32
        << way << ", step " << i;
}
constexpr const char* kLayouts[] = {
    "--ranks=2 --zero=0 --micro-batches=2",
    "--ranks=3 --zero=1",
    "--ranks=2 --zero=1 --micro-batches=2",
    "--ranks=4 --zero=2",
    "--ranks=2 --zero=3 --micro-batches=2",
    "--ranks=2 --tensor-ranks=2",
    "--ranks=2 --tensor-ranks=2 --tokens=parts",
    "--ranks=2 --context-ranks=2",
    "--ranks=2 --pipeline-ranks=2 --micro-batches=2",
    "--ranks=2 --pipeline-ranks=2 --chunks=2 --micro-batches=2",
    "--ranks=8 --pipeline-ranks=2 --tensor-ranks=2 --micro-batches=2",
};

// Settings that add numbers in a different order.
TEST_F(L22_Trainer, SettingsThatChangeOnlyRounding) {
  for (const std::string common :
       {"--model=gpt-4x16x2 --optimizer=sgd --lr=0.3 --clip=0 --dropout=0.2 ", "--model=gpt-4x16x2 "}) {
    const std::vector<double> plain = train(settings_with(common), {4, ""});
    for (const char* way : {"--micro-batches=4", "--attention=flash", "--loss-rows=24"})
      expect_alike(train(settings_with(common + way), {4, ""}), plain, common + way);
    for (const std::string way : kLayouts)
      if (common.find("dropout") == common.npos ||
          way.find("context") == way.npos)  // context ranks reject dropout
        expect_alike(train(settings_with(common + way), {4, ""}), plain, common + way);
  }
}

// A saved run does not depend on the layout that saved it: every layout resumes the runs of the others.
TEST_F(L22_Trainer, AnyLayoutLoadsAnyFile) {
  const std::string common = "--model=gpt-4x16x2 ";
  const std::vector<double> plain = train(settings_with(common), {6, path("one")});
  std::string from = path("one");
  for (const char* way : kLayouts) {
    const std::string file = path(way);
    train(settings_with(common + way), {3, file});
    expect_alike(train(settings_with(common), {6, "", file}), {plain.begin() + 3, plain.end()},
                 "one device from " + std::string(way));
    train(settings_with(common), {3, path("half")});
    expect_alike(train(settings_with(common + way), {6, "", path("half")}), {plain.begin() + 3, plain.end()},
                 way);
    if (from != path("one"))
      expect_alike(train(settings_with(common + way), {6, "", from}), {plain.begin() + 3, plain.end()},
                   std::string(way) + " from " + from);
    from = file;
  }
}

}  // namespace
}  // namespace gradus
