// The numbers in a checkpoint: whole ones, with nothing before or after them.
#include "src/io/checkpoint.h"
#include "src/nn/layers.h"
#include "src/tensor/context.h"
#include "tests/refusal_testing.h"
#include "tests/safetensors_testing.h"

namespace gradus {
namespace {

class L03_Checkpoint : public SafetensorsTest {
 protected:
  L03_Checkpoint() {
    for (Parameter& p : parameters) copy_from_host(p.value, std::vector<double>(p.value.numel(), 0.5));
  }
  // Replaces a field of the file's metadata.
  void set(const std::string& field, const std::string& text) const {
    std::vector<std::string> data;
    std::vector<TensorEntry> entries;
    Metadata metadata;
    {
      const SafetensorsFile file(file_);
      metadata = file.metadata();
      metadata[field] = text;
      for (const SafetensorsFile::Tensor& t : file.tensors()) {
        file.read(t.name, t.dtype, t.shape, data.emplace_back(size_t(t.bytes), '\0').data());
        entries.push_back({t.name, t.dtype, t.shape, nullptr});
      }
    }
    for (size_t i = 0; i < entries.size(); ++i) entries[i].data = data[i].data();
    write_safetensors(file_, entries, metadata);
  }

  Context context{"cpu"};
  Parameters parameters;
  Linear layer{parameters, "layer", 2, 3};
  AdamW optimizer{parameters};
};

TEST_F(L03_Checkpoint, CountsAreWholeNumbers) {
  save_training(file_, parameters, optimizer);
  for (const std::string field : {"step", "updates"}) {
    for (const char* text :
         {"12abc", "12 ", " 12", "+12", "-1", "1e3", "12.0", "0x5", "", "9223372036854775808"}) {
      set(field, text);
      try {
        load_training(file_, parameters, optimizer);
        ADD_FAILURE() << field << " '" << text << "' was accepted";
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("does not say the number of its " + field), std::string::npos)
            << e.what();
      }
    }
    set(field, "12");
    EXPECT_EQ(load_training(file_, parameters, optimizer).at(field), "12");
  }
  EXPECT_EQ(context.device.scalars().step, 12);
}

TEST_F(L03_Checkpoint, AnotherModelsFileChangesNothing) {
  context.device.set(&StepScalars::step, int64_t(7));
  context.device.set(&StepScalars::updates, int64_t(5));
  save_training(file_, parameters, optimizer);
  context.device.set(&StepScalars::step, int64_t(2));
  context.device.set(&StepScalars::updates, int64_t(1));
  Parameters others;
  const Linear other(others, "layer", 2, 4);
  for (Parameter& p : others) copy_from_host(p.value, std::vector<double>(p.value.numel(), 0.25));
  AdamW updates(others);
  expect_refused("layer.w", [&] { load_training(file_, others, updates); });
  EXPECT_EQ(context.device.scalars().step, 2);
  EXPECT_EQ(context.device.scalars().updates, 1);
  for (const Parameter& p : others)
    EXPECT_EQ(to_host<double>(p.value), std::vector<double>(size_t(p.value.numel()), 0.25)) << p.name;
  load_training(file_, parameters, optimizer);
  EXPECT_EQ(context.device.scalars().step, 7);
  EXPECT_EQ(context.device.scalars().updates, 5);
}

}  // namespace
}  // namespace gradus
