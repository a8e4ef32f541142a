#include "lessons/20_pipeline_parallel/alone.h"

#include <deque>

#include "lessons/19_tensor_parallel/runs.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"

namespace gradus {

namespace {

// A model. With a pipeline the head is a second part, which has its own copy of a tied weight.
struct Replica {
  Transformer body;
  std::optional<Transformer> head;
  Replica(const Layout& layout, const ParallelTask& task)
      : body(task.model, Allocate::Now, {.ranges = {{}}, .embedding = true, .head = layout.pipeline == 1}) {
    const int64_t L = task.model.layers;
    if (layout.pipeline > 1)
      head.emplace(task.model, Allocate::Now, ModelPart{.ranges = {{L, L}}, .embedding = false});
    for (Transformer* m : parts()) {
      m->initialize(task.seed);
      if (layout.tensor > 1) add_in_parts(*m, layout.tensor);
    }
  }
  std::vector<Transformer*> parts() { return head ? std::vector{&body, &*head} : std::vector{&body}; }
  Transformer& last() { return head ? *head : body; }
  void sum_tied_gradients() {
    if (!head || body.config.output_head != OutputHead::Tied) return;
    Leaf &first = body.parameters.find("wte.weight").leaf, &second = head->parameters.find("wte.weight").leaf;
    cast(second.grad, first.grad.add());
    cast(first.grad, second.grad.set());
  }
};

// Calls f(parameter of x, the same parameter of y) for each parameter.
template <class F>
void for_both(Replica& x, Replica& y, F f) {
  for (size_t i = 0; i < x.parts().size(); ++i)
    for (Parameter& p : x.parts()[i]->parameters) f(p, y.parts()[i]->parameters.find(p.name));
}

// Forward and backward pass of a micro-batch, on one replica or on the replicas of all context ranks.
void add_gradients(const std::vector<Replica*>& replicas, const TextBatch& batch, const Tensor& count,
                   std::vector<double>& losses) {
  current().first_sample = batch.first_sample;
  Tape tape;
  if (replicas.size() > 1) {
    std::vector<Transformer*> bodies, heads;
    for (Replica* r : replicas) bodies.push_back(&r->body), heads.push_back(&r->last());
    return tape.backward(loss_in_chunks(bodies, heads, batch, count, losses));
  }
  Replica& r = *replicas[0];
  const Tensor x = r.body.through_blocks(r.body.embed(on_device(batch.ids, batch.T, "inputs")));
  const Tensor loss = r.last().head_loss(x, on_device(batch.targets, batch.T, "targets"), count);
  losses[0] += item(loss);
  tape.backward(loss);
}

}  // namespace

LayoutReference train_as(const Layout& layout, const Loader& loader, const ParallelTask& task,
                         int64_t micro_batches) {
  Context context(current().device.name(), task.seed);
  const int64_t d = layout.data, c = layout.context, own = task.batch / d;
  std::deque<Replica> replicas;
  for (int64_t r = 0; r < d * c; ++r) replicas.emplace_back(layout, task);
  Replica& first = replicas[0];
  std::deque<AdamW> optimizers;
  for (Transformer* m : first.parts()) optimizers.emplace_back(m->parameters);
  const Tensor count = from_host<float>(context.device, {float(task.batch * task.model.context)}, {},
                                        DType::F32, Kind::Data, "targets of all");
  LayoutReference run;
  for (int64_t step = 0; step < task.steps; ++step) {
    const TextBatch batch = read_shard(loader, task, step, 0, 1);
    double loss = 0;
    for (int64_t at = 0; at < d; ++at) {
      std::vector<Replica*> sharing;  // the context ranks of data rank `at`
      for (int64_t r = 0; r < c; ++r) sharing.push_back(&replicas[size_t(at * c + r)]);
      for (Replica* r : sharing)
        for (Transformer* m : r->parts()) m->parameters.zero_grad();
      std::vector<double> losses(size_t(c), 0);
      for (const TextBatch& b : batch.part(at * own, own).parts(even_split(own, micro_batches)))
        add_gradients(sharing, b, count, losses);
      for (Replica* r : sharing) r->sum_tied_gradients();
      for (const double l : losses) loss += l;
    }
    for (Replica& r : replicas)
      if (&r != &first)
        for_both(first, r, [](Parameter& p, Parameter& other) { cast(other.leaf.grad, p.leaf.grad.add()); });
    for (AdamW& a : optimizers) a.step(task.learning_rate);
    for (Replica& r : replicas)
      if (&r != &first)
        for_both(first, r, [](Parameter& p, Parameter& other) { cast(p.value, other.value.set()); });
    run.losses.push_back(loss);
  }
  for (Transformer* m : first.parts())
    for (const Parameter& p : m->parameters) run.weights[p.name] = to_host<double>(p.value);
  return run;
}

}  // namespace gradus
