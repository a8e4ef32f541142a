// The program of lesson 22: settings from flags and files, and settings that are rejected.
#include <set>

#include "tests/lessons/22_program_testing.h"

namespace gradus {
namespace {

struct L22_Settings : ProgramTest {
  // The program fails with exit code `code` and one line that contains `part`, and no file has changed.
  void expect_refused_unchanged(const std::string& words, int code, const std::string& part,
                                const std::string& before = "") const {
    const auto files = contents();
    const Outcome outcome = gradus(words, before);
    expect_refused(outcome, code, part);
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
    EXPECT_TRUE(contents() == files) << words << " has changed a file";
  }
};

TEST_F(L22_Settings, AFileGivesTheSameSettingsAsFlags) {
  write("s.json", R"({"model": "gpt-2x16x2", "context": 16, "text-bytes": 20000, "batch": 4, "steps": 3,
                      "lr": 1e-2, "optimizer": "adamw8bit", "dropout": "0.1", "workers": 1})");
  expect_done("train --settings=s.json --save=a");
  expect_done("train " + std::string(kTiny) +
              "--steps=3 --lr=0.01 --optimizer=adamw8bit --dropout=0.1 --workers=1 --save=b");
  EXPECT_TRUE(read("a") == read("b"));
}

TEST_F(L22_Settings, FlagsOverrideFiles) {
  const std::string tiny = kTiny;
  write("s.json", R"({"steps": 9, "lr": 0.5, "save": "of the file", "dropout": 0.1})");
  expect_done("train " + tiny + "--settings=s.json --steps=3 --lr=0.01 --save=a");
  expect_done("train " + tiny + "--steps=3 --lr=0.01 --dropout=0.1 --save=b");
  EXPECT_TRUE(read("a") == read("b"));
  EXPECT_FALSE(fs::exists(path("of the file")));
  // The settings of --load are used last.
  write("t.json", R"({"lr": 0.02, "weight-decay": 0.3})");
  expect_done("train --load=a --settings=t.json --steps=6 --weight-decay=0.1 --save=c");
  expect_done("train --load=b --lr=0.02 --weight-decay=0.1 --steps=6 --save=d");
  EXPECT_TRUE(read("c") == read("d"));
  EXPECT_EQ(settings("c").at("dropout"), 0.1);
  EXPECT_EQ(settings("c").at("lr"), 0.02);
  EXPECT_EQ(settings("c").at("weight-decay"), 0.1);
  EXPECT_EQ(settings("c").at("steps"), 6);
}

// The saved settings are all flags, given or not, except those of files and of the machine.
TEST_F(L22_Settings, ARunIsSavedWithItsSettings) {
  const std::string data = "a \"text\", \\ Ü.txt";
  write(data, std::string(5000, 'a') + std::string(5000, 'b'));
  expect_done(
      "train --model=gpt-1x16x2 --context=8 --batch=2 --steps=2 --lr=0.1234567890123 "
      "--seed=9223372036854775807 "
      "--data='" +
      data + "' --save=a");
  const Json all = settings("a");
  EXPECT_EQ(all.at("data"), data);
  EXPECT_EQ(all.at("lr"), 0.1234567890123);
  EXPECT_EQ(all.at("seed"), INT64_MAX);
  EXPECT_EQ(all.at("beta2"), 0.999);
  EXPECT_EQ(all.at("steps"), 2);
  std::set<std::string> names, expected;
  for (const auto& [name, value] : all.items()) names.insert(name);
  std::istringstream help(gradus("train --help").output);
  for (std::string line; std::getline(help, line);)
    if (line.starts_with("  --")) expected.insert(line.substr(4, line.find_first_of("= ", 4) - 4));
  for (const char* not_of_the_run : {"device", "memory", "comm", "comm-timeout", "load", "settings", "save",
                                     "save-every", "curve", "json", "trace", "help", "weights", "expected"})
    EXPECT_EQ(expected.erase(not_of_the_run), 1u) << not_of_the_run;
  EXPECT_EQ(names, expected);
  write("s.json", metadata("a").at("settings"));
  expect_done("train --settings=s.json --save=b");
  EXPECT_TRUE(read("a") == read("b"));
}

TEST_F(L22_Settings, FilesThatHaveNoSettings) {
  for (const auto& [text, code, part] : {
           std::tuple("", 1, "s.json is empty"),
           {"{\"steps\": 3", 1, "s.json: "},
           {"{\"steps\": 3}}", 1, "s.json: "},
           {"{'steps': 3}", 1, "s.json: "},
           {"[\"steps\"]", 1, "s.json: "},
           {"3", 1, "s.json: "},
           {"{\"steps\": 3, \"steps\": 4}", 1, "s.json: "},
           {"{\"steps\": [3]}", 1, "s.json: the settings: steps is [3]"},
           {"{\"steps\": {\"a\": 3}}", 1, "s.json: the settings: steps is {\"a\":3}"},
           {"{\"steps\": {\"a\": {\"b\": 3}}}", 1, "s.json: "},
           {"{\"steps\": true}", 1, "steps is true"},
           {"{\"steps\": null}", 1, "steps is null"},
           {"{\"step\": 3}", 2, "--step is unknown; did you mean --steps?"},
           {"{\"\": 3}", 2, "-- is unknown"},
           {"{\"steps\": \"\"}", 2, "--steps needs a value"},
           {"{\"steps\": 3.5}", 2, "--steps=3.5 is not a whole number"},
           {"{\"steps\": 0}", 2, "--steps=0 is out of range"},
           {"{\"steps\": 1e30}", 2, "--steps=1e+30 is not a whole number"},
           {"{\"lr\": 1e999}", 1, "s.json: "},
           {"{\"optimizer\": \"adam\"}", 2, "--optimizer=adam is unknown"},
           {"{\"help\": \"x\"}", 2, "--help takes no value"},
       }) {
    SCOPED_TRACE(text);
    write("s.json", text);
    expect_refused_unchanged("train --save=run --curve=curve --settings=s.json " + std::string(kModel), code,
                             part);
  }
  fs::create_directory(path("folder"));
  for (const char* words : {"folder", "none.json", "none/s.json"})
    expect_refused_unchanged("train --save=run --settings=" + std::string(words), 1, words);
  expect_refused_unchanged("train --settings", 2, "--settings needs a value");
}

TEST_F(L22_Settings, FilesThatAreNotARun) {
  expect_done("train " + std::string(kTiny) + "--steps=2 --save=run");
  const std::string whole = read("run");
  const auto refuse = [&](const std::string& bytes, const char* part) {
    write("bad", bytes);
    for (const char* command : {"train --save=bad --curve=curve", "eval", "sample"})
      expect_refused_unchanged(std::string(command) + " --load=bad", 1, part);
  };
  for (const size_t bytes :
       {size_t(0), size_t(3), size_t(8), size_t(500), whole.size() / 2, whole.size() - 1})
    refuse(whole.substr(0, bytes), "bad");
  refuse(whole + "x", "bad");
  refuse("no safetensors file at all, but a text", "bad");
  const float one[] = {1};
  write_safetensors(path("other"), {{"w", DType::F32, {1}, one}}, {});
  refuse(read("other"), "bad: the file has no settings");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos);
    return bytes.replace(at, from.size(), to);
  };
  refuse(changed(R"(\"lr\":0.001)", R"(\"lr\":[0.01)"), "bad: ");
  refuse(changed(R"(\"lr\":0.001)", R"(\"lr\":[.01])"), "bad: ");
  refuse(changed(R"("steps":"2")", R"("steps":"x")"), "bad: 'x' is not a number of steps");
  refuse(changed(R"("steps":"2")", R"("Steps":"2")"), "bad: '' is not a number of steps");
  refuse(changed(R"("updates":"2")", R"("updates":"-")"), "bad");
  refuse(changed(R"(\"model\":\"gpt-2x16x2\")", R"(\"model\":\"gpt-1x16x2\")"), "bad");
  for (const char* command : {"train", "eval", "sample"}) {
    expect_refused_unchanged(std::string(command) + " --load=none", 1, "none cannot be opened");
    expect_refused_unchanged(std::string(command) + " --load=", 2, "--load needs a value");
  }
  for (const char* command : {"eval", "sample"}) {
    expect_refused_unchanged(command, 1, "--load=FILE is missing");
    expect_refused_unchanged(std::string(command) + " --load=run --device=meta", 1, "--device=meta");
  }
  write("half", whole.substr(0, whole.size() / 2));
  expect_refused_unchanged("train " + std::string(kTiny) + "--weights=half", 1, "half");
  expect_refused_unchanged("train " + std::string(kTiny) + "--weights=none", 1, "none cannot be opened");
}

TEST_F(L22_Settings, FilesThatCannotBeWritten) {
  const std::string tiny = std::string("train ") + kTiny + "--steps=2 ";
  expect_done(tiny + "--save=run");
  expect_refused_unchanged(tiny + "--save=run", 1, "--save=run: the file exists; --load=run resumes it");
  expect_refused_unchanged("train --load=run --steps=4 --save=./run", 1, "--save=./run: the file exists");
  for (const char* flag : {"save", "curve", "json", "trace"})
    expect_refused_unchanged(tiny + "--" + flag + "=none/file", 1, "none/file cannot be written");
  expect_refused_unchanged(tiny + "--save=run/file", 1, "run/file cannot be written");
  expect_refused_unchanged(tiny + "--device=meta --save=new", 1, "--save: the device meta");
  // A limit on the size of files acts like a full disk: at most 16 or 32 KiB, then 512 or 1024 bytes.
  const auto files = contents();
  expect_refused(gradus("train --load=run --save=run --steps=4", "ulimit -f 32;"), 1, "run: writing failed");
  expect_refused(gradus(tiny + "--save=new", "ulimit -f 32;"), 1, "new: writing failed");
  EXPECT_TRUE(contents() == files);
  expect_refused(gradus("train --load=run --steps=100 --curve=curve", "ulimit -f 1;"), 1,
                 "curve cannot be written");
}

// They are rejected before the first step, so there is no line of progress.
TEST_F(L22_Settings, ImpossibleCombinations) {
  for (const auto& [flags, part] : {
           std::pair("--ranks=2 --lora=2", "--lora, --frozen and --weights are for one device"),
           {"--ranks=2 --frozen=4-bits", "--frozen"},
           {"--calls=captured --micro-batches=2", "--calls=captured: a captured step has one micro-batch"},
           {"--calls=compiled --micro-batches=2", "--calls=compiled"},
           {"--calls=captured --ranks=2", "--calls=captured: a step that waits for other ranks"},
           {"--ranks=2 --tensor-ranks=2 --zero=3", "--zero=3: with tensor, context or pipeline ranks"},
           {"--ranks=2 --pipeline-ranks=2 --zero=0", "--zero=0: with tensor"},
           {"--ranks=3 --tensor-ranks=2", "--ranks=3: it must be a multiple of 2, the product of tensor,"},
           {"--tensor-ranks=2", "--ranks=1: "},
           {"--ranks=3 --tensor-ranks=3", "2 heads cannot be divided among 3 ranks"},
           {"--ranks=3 --pipeline-ranks=3", "2 blocks cannot be cut into 3 chunks"},
           {"--ranks=2 --pipeline-ranks=2 --chunks=2", "2 blocks cannot be cut into 4 chunks"},
           {"--ranks=2 --pipeline-ranks=2 --micro-batches=3", "micro-batches"},
           {"--ranks=3 --context-ranks=3", "16 tokens cannot be cut into 6 chunks"},
           {"--ranks=2 --context-ranks=2 --dropout=0.1", "dropout is 0.1; it must be 0"},
           {"--ranks=2 --tensor-ranks=2 --loss-rows=8", "set loss_rows to 0"},
           {"--ranks=2 --tensor-ranks=2 --blocks=llama --experts=2", "experts"},
           {"--ranks=6 --tensor-ranks=2", "4 sequences are not a multiple of its data ranks"},
           {"--ranks=5", "4 sequences cannot be 5"},
           {"--ranks=2 --micro-batches=3", "2 sequences cannot be 3 micro-batches"},
           {"--micro-batches=5", "4 sequences cannot be 5 micro-batches"},
           {"--ranks=2 --optimizer=muon", "its update needs whole matrices"},
           {"--ranks=2 --optimizer=adafactor", "its update needs whole matrices"},
           {"--vocab=255", "--vocab=255: a token is a byte"},
           {"--keep=most", "policy 'most' is unknown"},
           {"--keep=every-0", "policy 'every-0' is unknown"},
           {"--keep=every-3", "policy 'every-3': the model has 2 blocks"},
           {"--lora=2 --adapted=nothing", "the pattern 'nothing' matches no"},
           {"--lora=2 --adapted='('", "the pattern '(' is no regular expression"},
           {"--frozen=4-bits", "no frozen weight"},
           {"--experts=2", "experts need"},
           {"--blocks=llama --experts=2 --chosen=3", "each token takes 3 of 2 experts"},
           {"--blocks=llama --experts=2 --keep=sqrt", "are not recomputed"},
           {"--kv-heads=3", "2 heads cannot share 3 heads"},
           {"--data=none", "none cannot be opened"},
           {"--memory=1MiB", "--memory"},
       }) {
    SCOPED_TRACE(flags);
    const Outcome outcome = gradus("train " + std::string(kTiny) + "--steps=1 --save=run " + flags);
    expect_refused(outcome, 1, part);
    EXPECT_EQ(outcome.output.find("training 1/1"), std::string::npos) << outcome.output;
    EXPECT_EQ(files(), 0);
  }
  for (const auto& [model, part] :
       {std::pair("bert-base", "--model=bert-base: it does not predict the next token"),
        {"bert-large", "--model=bert-large: "},
        {"nothing", "model 'nothing' is unknown"},
        {"gpt-2x16x3", "3 heads do not divide 16 channels"},
        {"gpt-0x16x2", "layers 0"}})
    expect_refused_unchanged("train --save=run --context=16 --model=" + std::string(model), 1, part);
  expect_refused_unchanged("train --save=run --model=gpt-2x16x2 --text-bytes=20000 --context=20000", 1,
                           "windows of 20000 need at least 20001");
}

}  // namespace
}  // namespace gradus
