// Runs of the lessons, and the flags with which the trainer does the same runs.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace gradus::same {

// The last loss of the lesson's report: the mean over the last steps, or the loss of the last step.
enum class Last : uint8_t { Mean, Step };
enum class Bytes : uint8_t {
  Equal,
  Count,  // the trainer also has the number of targets, which the lesson frees early or does not have
  Peak,   // only the sum: the lesson's report has no kinds of memory
  None    // the lesson reports no bytes, or its bytes include buckets
};

// A row of a lesson's report, and the flags with which the trainer does the same run.
struct Row {
  std::string row, flags;
};
struct Lesson {
  std::string name, both, trainer;  // flags: of both programs, of the trainer
  Bytes bytes;
  Last last;
  std::vector<Row> rows;
  std::string own = "", base = "";  // flags: of the lesson's program; of a run that gives the initial weights
};
inline void PrintTo(const Lesson& l, std::ostream* out) {
  *out << l.name << " " << l.both << ", " << l.rows[0].row << ": " << l.trainer << " " << l.rows[0].flags;
}

constexpr inline auto kMeta = "--device=meta --steps=2", kFew = "--device=cpu --steps=5",
                      kMany = "--device=cpu --steps=20";
const inline std::string kConstant = "--lr=0.001 --last-lr=0.001 --warmup=0 ",
                         kSmallText = "--text-bytes=20000 ";

inline Lesson transformer() {
  return {"03_transformer",
          kFew,
          "--model=gpt-2x32x4 --context=32 --batch=4 --text-bytes=60000 --lr=0.002 --warmup=100 "
          "--weight-decay=0.1 --beta2=0.99",
          Bytes::Count,
          Last::Mean,
          {{"gpt", ""}},
          " --size=tiny"};
}
inline Lesson optimizers(const std::string& both) {
  return {"06_optimizers",
          both,
          "--model=gpt-2x64x4 --batch=8 --text-bytes=600000 --warmup=2",
          Bytes::Count,
          Last::Mean,
          {{"SGD", "--optimizer=sgd --momentum=0"},
           {"momentum", "--optimizer=sgd"},
           {"Nesterov", "--optimizer=nesterov"},
           {"AdamW", "--beta2=0.99"},
           {"Adafactor", "--optimizer=adafactor"},
           {"Adafactor, given", "--optimizer=adafactor-given"},
           {"Muon", "--optimizer=muon --beta2=0.99"}}};
}
inline Lesson accumulation(const std::string& both) {
  return {"07_accumulation",
          both,
          kConstant + "--model=gpt-4x128x4 --batch=16 --dropout=0.1",
          Bytes::Equal,
          Last::Step,
          {{"1 x 16", ""},
           {"2 x 8", "--micro-batches=2"},
           {"4 x 4", "--micro-batches=4"},
           {"16 x 1", "--micro-batches=16"}}};
}
// This lesson and those of attention and fusion train on dummy tokens, so only their bytes are compared.
inline Lesson checkpointing() {
  return {"08_checkpointing",
          kMeta,
          kConstant + kSmallText + "--model=gpt-8x128x8 --context=128 --batch=4 --dropout=0.1 --clip=0",
          Bytes::Count,
          Last::Mean,
          {{"store-all", "--keep=store-all"},
           {"selective", "--keep=selective"},
           {"each-block", "--keep=each-block"},
           {"every-2", "--keep=every-2"},
           {"sqrt", "--keep=sqrt"},
           {"from-the-start", "--keep=from-the-start"}}};
}
inline Lesson mixed_precision(const std::string& both) {
  return {"09_mixed_precision",
          both,
          "--model=gpt-1x32x2 --context=32 --batch=1024 --micro-batches=4 --text-bytes=600000 --lr=0.008 "
          "--last-lr=0.0008 --warmup=0",
          Bytes::Equal,
          Last::Step,
          {{"fp32", ""},
           {"mixed", "--precision=mixed"},
           {"mixed-fp16, scaled", "--precision=mixed-fp16"},
           {"zero, scaled", "--precision=zero"},
           {"half, scaled", "--precision=half"}}};
}
inline Lesson adam8bit(const std::string& both) {
  return {"11_adam8bit",
          both,
          "--model=gpt-2x64x4 --batch=8 --beta2=0.99 --text-bytes=600000 --lr=0.006 --warmup=2",
          Bytes::Equal,
          Last::Mean,
          {{"fp32", ""},
           {"fp32, 2 micro-batches", "--micro-batches=2"},
           {"AdamW8bit", "--optimizer=adamw8bit"},
           {"all together", "--optimizer=adamw8bit --micro-batches=4 --precision=mixed --keep=each-block"}}};
}
const inline std::string kLora = "--model=gpt-2x128x4 --head=untied --batch=8 --weight-decay=0.01 ";
const inline std::string kAdapt = "--lr=0.01 --last-lr=0.001 ";
const inline std::string kBase = kLora + "--steps=25 --lr=0.003 --last-lr=0.0003 --warmup=1";
inline std::vector<Row> ways_to_adapt() {
  return {{"all weights", "--lr=0.001 --last-lr=0.0001"},
          {"LoRA r 8, c_attn only", kAdapt + "--lora=8 --lora-alpha=16 --adapted=.*c_attn"},
          {"LoRA r 2", kAdapt + "--lora=2 --lora-alpha=4"},
          {"LoRA r 8", kAdapt + "--lora=8 --lora-alpha=16"},
          {"LoRA r 2, bf16", kAdapt + "--lora=2 --lora-alpha=4 --precision=bf16"},
          {"LoRA r 2, NF4", kAdapt + "--lora=2 --lora-alpha=4 --precision=bf16 --frozen=4-bits"}};
}
inline Lesson lora_base() {
  return {"12_lora", "--device=cpu", kBase, Bytes::Count, Last::Mean, {{"base model", ""}}, " --steps=8"};
}
inline Lesson lora() {
  return {"12_lora",
          "--device=cpu --steps=8",
          kLora + "--data=orders.grammar --warmup=0",
          Bytes::Count,
          Last::Mean,
          ways_to_adapt(),
          "",
          "--device=cpu " + kBase};
}
inline Lesson lora_on_meta() {
  return {"12_lora", kMeta, kLora + kSmallText, Bytes::Count, Last::Mean, ways_to_adapt()};
}
inline Lesson data_loading() {
  return {"14_data_loading",
          "--device=emu --steps=20",
          "--model=gpt-1x16x4 --context=8 --batch=2 --lr=0.003 --warmup=2 --text-bytes=20000",
          Bytes::None,
          Last::Mean,
          {{"GPT on bytes", ""}, {"GPT on bytes", "--workers=3"}}};
}
inline Lesson flash_attention() {
  return {"15_flash_attention",
          kMeta,
          kConstant + kSmallText + "--model=gpt-2x256x8 --context=1024 --batch=1",
          Bytes::Count,
          Last::Mean,
          {{"GPT, plain", ""}, {"GPT, flash", "--attention=flash"}}};
}
inline Lesson fusion() {
  return {
      "16_fusion_and_graphs",
      kMeta,
      kConstant + kSmallText + "--model=gpt-4x256x4 --vocab=4096 --context=256 --batch=4 --attention=flash",
      Bytes::Count,
      Last::Mean,
      {{"op by op", ""}}};
}
inline Lesson captured() {
  return {
      "16_fusion_and_graphs",
      kMeta,
      kConstant + kSmallText + "--model=gpt-4x256x4 --vocab=4096 --context=256 --batch=4 --attention=flash",
      Bytes::Equal,
      Last::Mean,
      {{"captured", "--calls=captured"}, {"captured, compiled", "--calls=compiled"}}};
}
inline Lesson data_parallel(const std::string& both) {
  return {"17_data_parallel", both,       kConstant + "--model=gpt-4x128x4 --batch=24 --dropout=0.1 --zero=0",
          Bytes::Equal,       Last::Step, {{"4 ranks, each gradient", "--ranks=4"}}};
}
// The trainer has no buckets, so bytes are not compared.
inline Lesson overlapped(const std::string& both) {
  return {"17_data_parallel",
          both,
          kConstant + "--model=gpt-4x128x4 --batch=24 --dropout=0.1 --zero=0",
          Bytes::None,
          Last::Step,
          {{"1 rank, overlapped", "--ranks=1"},
           {"2 ranks, overlapped", "--ranks=2"},
           {"3 ranks, overlapped", "--ranks=3"}}};
}
inline Lesson zero(const std::string& both) {
  return {
      "18_zero",
      both,
      kConstant + "--model=gpt-4x128x4 --batch=24 --dropout=0.1 --clip=0 --ranks=4",
      Bytes::Equal,
      Last::Step,
      {{"stage 0", "--zero=0"}, {"stage 1", "--zero=1"}, {"stage 2", "--zero=2"}, {"stage 3", "--zero=3"}}};
}
inline Lesson tensor_parallel() {
  return {"19_tensor_parallel",
          kMany,
          kConstant + "--model=gpt-4x128x4 --batch=8 --clip=0",
          Bytes::None,
          Last::Step,
          {{"2 ranks, tensor, AdamW", "--ranks=2 --dropout=0.1 --tensor-ranks=2"},
           {"4 ranks, tensor, AdamW", "--ranks=4 --dropout=0.1 --tensor-ranks=4"},
           {"2 ranks, context, AdamW", "--ranks=2 --context-ranks=2"},
           {"4 ranks, context, AdamW", "--ranks=4 --context-ranks=4"}}};
}
inline Lesson tensor_parallel_by_sgd() {
  return {
      "19_tensor_parallel",
      kMany,
      "--model=gpt-4x128x4 --batch=8 --clip=0 --warmup=0 --optimizer=sgd --momentum=0 --lr=0.03 "
      "--last-lr=0.03 --ranks=4",
      Bytes::None,
      Last::Step,
      {{"4 ranks, tensor, SGD", "--dropout=0.1 --tensor-ranks=4"},
       {"4 ranks, tensor + sequence, SGD", "--dropout=0.1 --tensor-ranks=4 --tokens=parts"},
       {"4 ranks, tensor + sequence, gathered again, SGD", "--dropout=0.1 --tensor-ranks=4 --tokens=again"},
       {"4 ranks, context, SGD", "--context-ranks=4"}}};
}
inline Lesson pipeline() {
  return {"20_pipeline_parallel",
          kMany,
          kConstant + "--model=gpt-8x32x8 --context=16 --batch=8 --clip=0 --dropout=0.1 --micro-batches=8",
          Bytes::Peak,
          Last::Step,
          {{"2 ranks, 1F1B", "--ranks=2 --pipeline-ranks=2"},
           {"2 ranks, interleaved", "--ranks=2 --pipeline-ranks=2 --chunks=2"},
           {"2 ranks, 1F1B, recomputed", "--ranks=2 --pipeline-ranks=2 --keep=each-block"},
           {"4 ranks, 1F1B", "--ranks=4 --pipeline-ranks=4"},
           {"4 ranks, interleaved", "--ranks=4 --pipeline-ranks=4 --chunks=2"},
           {"4 ranks, 1F1B, recomputed", "--ranks=4 --pipeline-ranks=4 --keep=each-block"}}};
}
// This lesson has a text of four grammars and a linear learning rate, so only its bytes are compared.
inline Lesson mixture() {
  return {"21_mixture_of_experts",
          kMeta,
          kConstant + kSmallText + "--model=gpt-2x64x4 --batch=8 --clip=0 --blocks=llama --kv-heads=2",
          Bytes::Count,
          Last::Mean,
          {{"dense, active size", "--mlp=64"},
           {"mixture", "--mlp=32 --experts=8 --chosen=2 --capacity=1.25 --balance=0.01"},
           {"dense, total size", "--mlp=256"}}};
}

}  // namespace gradus::same
