#include "lessons/21_mixture_of_experts/published.h"

#include <iostream>

#include "src/core/table.h"
#include "src/nn/transformer.h"
#include "src/tensor/context.h"

namespace gradus {

namespace {

struct PublishedShape {
  const char* name;
  int64_t file_bytes;  // of the weights in 16 bits: "total_size" in the published index file
  int64_t others;      // bytes of the file that are not weights: rotary frequencies in llama-2-7b
};
constexpr PublishedShape kShapes[] = {{"llama-2-7b", 13'476'835'328, 32 * 64 * 2},
                                      {"llama-3-8b", 16'060'522'496, 0},
                                      {"mixtral-8x7b", 93'405'585'408, 0}};

int64_t weight_bytes(TransformerConfig c) {
  c.precision = uniform(DType::BF16);
  Context meta("meta", 1);
  const Transformer model(c);
  return meta.device.meter().now()[Kind::Weight];
}

}  // namespace

void published_mixtures(Report& report) {
  std::cout << "\n(e) Published models, allocated in 16 bits on the device meta. The file of llama-2-7b also "
               "has 4,096 bytes of rotary frequencies\n";
  Table table({"model", "parameters", "active parameters", "active share", "bytes of weights",
               "bytes of the published file"});
  std::vector<ModelBytes> all;
  for (const PublishedShape& m : kShapes) {
    const TransformerConfig c = transformer_config(m.name);
    const int64_t bytes = weight_bytes(c), N = c.parameter_count(), active = c.active_parameter_count();
    all.push_back({bytes, 2 * N, m.file_bytes - m.others});
    table.row({m.name, count_text(N), count_text(active), percent_text(double(active) / double(N)),
               count_text(bytes), count_text(m.file_bytes)});
  }
  std::cout << table;
  check_model_bytes(all, report);
}

void check_model_bytes(const std::vector<ModelBytes>& models, Report& report) {
  int64_t off = 0;
  for (const ModelBytes& m : models)
    off += std::abs(m.measured - m.of_file) + std::abs(m.measured - m.of_parameters);
  report.check_equal(
      "(e) bytes that differ from the files, rotary frequencies left out, or from 2 per parameter", off, 0);
}

}  // namespace gradus
