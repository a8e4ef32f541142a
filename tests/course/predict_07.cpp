// The questions of 07.3: a run of the student's own, in micro-batches; measured on meta. And a mean from
// means.
#include <sstream>

#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "src/train/dummy.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own07 {
  TransformerConfig model;
  int64_t batch, micro_batches;
  int64_t n[2], mean[2];  // of two micro-batches: targets that count, the mean loss
};

static Own07 own_run(const std::string& student) {
  Own own(student, "07.3");
  Own07 o{{.vocab = 64 * own.between(2, 20), .context = 16 * own.between(1, 8)}, 0, 0, {}, {}};
  o.model.layers = own.between(2, 6), o.model.heads = own.between(2, 4);
  o.model.channels = o.model.heads * 8 * own.between(2, 6), o.model.dropout = 0.1;
  o.micro_batches = own.between(2, 6);
  o.batch = o.micro_batches * own.between(2, 6);
  for (int64_t& n : o.n) n = 10 * own.between(1, 9);
  o.mean[0] = own.between(1, 9), o.mean[1] = o.mean[0] + own.between(1, 9);
  return o;
}

// Two updates on meta; `look` is called at the end.
template <class Look>
static Judge after_training(const Own07& o, int64_t micro_batches, const Look& look) {
  return measured([=] {
    Context meta("meta");
    Transformer model(o.model);
    AdamW optimizer(model.parameters);
    int64_t saved = 0;
    for (int step = 0; step < 2; ++step) {
      model.parameters.zero_grad();
      meta.device.meter().reset_totals();
      for (int64_t i = 0; i < micro_batches; ++i) {
        const DummyBatch micro = dummy_batch(o.model, o.batch / micro_batches, o.model.context);
        Tape tape;
        const Tensor loss = micro.loss(model);
        saved = std::max(saved, tape.saved_bytes());
        tape.backward(loss);
      }
      optimizer.step(0);
    }
    return double(look(meta.device, saved, optimizer));
  });
}

// One target after the other, each with the loss of its micro-batch.
static double mean_of_all(const Own07& o) {
  double sum = 0;
  for (int i = 0; i < 2; ++i)
    for (int64_t target = 0; target < o.n[i]; ++target) sum += double(o.mean[i]);
  return sum / double(o.n[0] + o.n[1]);
}

static Quiz quiz(const std::string& student) {
  const Own07 o = own_run(student);
  std::ostringstream setting, mean;
  setting << "Your model is a GPT of " << o.model.layers << " layers, " << o.model.channels
          << " channels and " << o.model.heads << " heads, with a vocabulary of " << o.model.vocab
          << " and a context of " << o.model.context << " tokens, in fp32, with AdamW. Its batch of "
          << o.batch << " sequences is worked through in " << o.micro_batches
          << " micro-batches of the same size.";
  mean << "A micro-batch of " << o.n[0] << " targets has the mean loss " << o.mean[0] << ", another of "
       << o.n[1] << " targets " << o.mean[1] << ". What is the mean over all of them?";
  const auto saved = [](Device&, int64_t bytes, Optimizer&) { return bytes; };
  const auto gradients = [](Device& d, int64_t, Optimizer&) { return d.meter().now()[Kind::Gradient]; };
  const auto updates = [](Device&, int64_t, Optimizer& o) { return o.scalars().updates; };
  const std::string id = "07.3";
  return {setting.str(),
          {{id, "saved", "how many bytes does the tape of a micro-batch save?",
            after_training(o, o.micro_batches, saved)},
           {id, "saved_whole", "and with the whole batch at once?", after_training(o, 1, saved)},
           {id, "gradients", "how many bytes do the gradients take, in micro-batches?",
            after_training(o, o.micro_batches, gradients)},
           {id, "updates", "how many updates were made after two batches?",
            after_training(o, o.micro_batches, updates)},
           {id, "mean", mean.str(), measured([o] { return mean_of_all(o); }, 1e-3)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "07", gradus::predict::quiz); }
