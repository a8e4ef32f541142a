// The questions of exercise 07.4: a run with the student's own numbers, in micro-batches, measured on meta;
// and a mean from means.
#include <sstream>

#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "src/train/dummy.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own07 {
  TransformerConfig model;
  int64_t batch, micro_batches;
  int64_t n[2], mean[2];  // of two micro-batches: number of targets, mean loss
};

static Own07 own_run(const std::string& student) {
  Own own(student, "07.4");
  Own07 o{{.vocab = 64 * own.between(2, 20), .context = 16 * own.between(1, 8)}, 0, 0, {}, {}};
  o.model.layers = own.between(2, 6), o.model.heads = own.between(2, 4);
  o.model.channels = o.model.heads * 8 * own.between(2, 6), o.model.dropout = 0.1;
  o.micro_batches = own.between(2, 6);
  o.batch = o.micro_batches * own.between(2, 6);
  for (int64_t& n : o.n) n = 10 * own.between(1, 9);
  o.mean[0] = own.between(1, 9), o.mean[1] = o.mean[0] + own.between(1, 9);
  return o;
}

// Makes two updates on meta; `look` reads the answer at the end.
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

// Adds up the loss of every target, which is the mean loss of its micro-batch.
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
          << " and a context of " << o.model.context << " tokens, in fp32, with AdamW. Each batch of "
          << o.batch << " sequences is divided into " << o.micro_batches
          << " micro-batches of the same size.";
  mean << "A micro-batch of " << o.n[0] << " targets has the mean loss " << o.mean[0]
       << ", and a second one of " << o.n[1] << " targets has the mean loss " << o.mean[1]
       << ". What is the mean loss over all targets?";
  const auto saved = [](Device&, int64_t bytes, Optimizer&) { return bytes; };
  const auto gradients = [](Device& d, int64_t, Optimizer&) { return d.meter().now()[Kind::Gradient]; };
  const auto updates = [](Device&, int64_t, Optimizer& o) { return o.scalars().updates; };
  const std::string id = "07.4";
  return {setting.str(),
          {{id, "saved", "how many bytes does the tape save for the backward pass of one micro-batch?",
            after_training(o, o.micro_batches, saved)},
           {id, "saved_whole", "how many bytes does the tape save if the whole batch is one micro-batch?",
            after_training(o, 1, saved)},
           {id, "gradients", "how many bytes do the gradients of the parameters take, with micro-batches?",
            after_training(o, o.micro_batches, gradients)},
           {id, "updates", "how many updates has the optimizer made after two batches, with micro-batches?",
            after_training(o, o.micro_batches, updates)},
           {id, "mean", mean.str(), measured([o] { return mean_of_all(o); }, 1e-3)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "07", gradus::predict::quiz); }
