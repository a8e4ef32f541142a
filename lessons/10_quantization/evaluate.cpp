#include "lessons/10_quantization/evaluate.h"

#include "lessons/10_quantization/formats.h"
#include "src/core/progress.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"

namespace gradus {

std::vector<float> matrices_of(const Transformer& model) {
  std::vector<float> all;
  for (const Parameter& p : model.parameters) {
    if (!p.decay) continue;
    const std::vector<float> x = to_host<float>(p.value);
    all.insert(all.end(), x.begin(), x.end());
  }
  return all;
}

// Quantizes and dequantizes the matrices in place; returns the bytes of all weights.
static int64_t quantize_matrices(Transformer& model, const std::string& name) {
  int64_t bytes = 0;
  for (Parameter& p : model.parameters) {
    if (!p.decay) {  // biases and norms stay in fp32: they are few, and each acts on a whole channel
      bytes += p.value.bytes();
      continue;
    }
    const Quantizer quantizer(p.value.device(), format_of(name, to_host<float>(p.value)));
    const Quantized q = quantizer.quantize(p.value);
    const Tensor back = quantizer.dequantize(q, p.value.dtype());
    copy_from_host(p.value, to_host<double>(back));
    bytes += q.bytes();
  }
  return bytes;
}

std::vector<Quality> evaluate_formats(Transformer& model, const Loader& loader, int64_t batch) {
  std::vector<std::vector<double>> kept;
  for (const Parameter& p : model.parameters) kept.push_back(to_host<double>(p.value));
  std::vector<Quality> all{{"fp32", 4 * model.parameters.numel(), held_out_loss(model, loader, batch)}};
  Progress progress("evaluating", int64_t(format_names().size()));
  for (const std::string& name : format_names()) {
    const int64_t bytes = quantize_matrices(model, name);
    all.push_back({name, bytes, held_out_loss(model, loader, batch)});
    size_t i = 0;
    for (Parameter& p : model.parameters) copy_from_host(p.value, kept[i++]);
    progress.step(int64_t(all.size()) - 1, all.back().loss);
  }
  return all;
}

void draw_qualities(const std::vector<Quality>& all, const std::string& path) {
  LinePlot plot{.title = "Held-out loss of a trained model with quantized matrices",
                .x_label = "weights, KiB",
                .y_label = "held-out loss, nats per byte",
                .series = {},
                .references = {{"fp32", all.front().loss}}};
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i].loss < 1.5 * all.front().loss)  // larger losses would compress the axis
      plot.series.push_back(
          {all[i].format, {double(all[i].bytes) / 1024}, {all[i].loss}, Series::Marks::Dots});
  write_file(path, draw(plot));
}

}  // namespace gradus
