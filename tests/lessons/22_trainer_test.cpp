// Lesson 22: what a run does follows from its settings and its state alone.
#include <regex>

#include "tests/devices.h"
#include "tests/folder_testing.h"
#include "tests/lessons/22_testing.h"

namespace gradus {
namespace {

// Ways to train, as flags. Each is stopped after 3 of 6 steps.
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

TEST_P(L22_Ways, ASavedRunGoesOnAsIfItHadNotBeenStopped) {
  const TrainSettings s = settings_with(GetParam());
  std::vector<double> begun = train(s, {3, path("half")}),
                      rest = train(s, {6, path("resumed"), path("half")});
  const std::vector<double> whole = train(s, {6, path("whole")});
  begun.insert(begun.end(), rest.begin(), rest.end());
  EXPECT_EQ(begun, whole);
  EXPECT_TRUE(read("resumed") == read("whole")) << "the files differ";
  EXPECT_FALSE(read("half") == read("whole")) << "nothing was trained";
}
INSTANTIATE_TEST_SUITE_P(All, L22_Ways, ::testing::ValuesIn(kWays), [](const auto& info) {
  std::string name = std::regex_replace(info.param, std::regex("[^A-Za-z0-9]+"), "_");
  return "way" + std::to_string(info.index) + name;
});

struct L22_OnDevices : FolderTest, ::testing::WithParamInterface<const char*> {};
ON_DEVICES_WITH_DATA(L22_OnDevices);

TEST_P(L22_OnDevices, ASavedRunGoesOnAsIfItHadNotBeenStopped) {
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

}  // namespace
}  // namespace gradus
