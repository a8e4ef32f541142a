#include "lessons/19_tensor_parallel/runs.h"

#include <deque>
#include <numeric>

#include "src/parallel/context_parallel.h"
#include "src/parallel/ring_attention.h"
#include "src/tensor/context.h"

namespace gradus {

// Attention for the tokens of all ranks, in the order in which ring_attention computes it on each rank.
static std::vector<Tensor> attend_in_chunks(const std::vector<Tensor>& qkv, int64_t heads, Mask mask) {
  const int64_t N = int64_t(qkv.size());
  std::vector<Tensor> y, lse;
  for (int64_t r = 0; r < N; ++r) {
    Attended attended(qkv[size_t(r)], heads);
    for (int64_t step = 0; step < N; ++step) {
      const int64_t whose = (r + N - step) % N;
      attended.meet(keys_of(qkv[size_t(whose)]), chunk_pairs(mask, r, whose, N));
    }
    y.push_back(attended.y()), lse.push_back(attended.lse);
  }
  std::vector<Saved> saved;
  for (const auto& list : {qkv, y, lse})
    for (const Tensor& x : list) saved.push_back({x});
  return record("attend_in_chunks", qkv, saved, y,
                [N, heads, mask](const Node& n, const std::vector<Tensor>& dy, Grads& dx) {
                  const auto saved = [&](int64_t list, int64_t r) {
                    return n.saved[size_t(list * N + r)].tensor;
                  };
                  std::vector<Tensor> q, dq, keys, dkeys;
                  for (int64_t r = 0; r < N; ++r) {
                    const Attended of(saved(0, r), heads);  // copies the queries
                    q.push_back(of.q), keys.push_back(keys_of(saved(0, r)));
                    dq.push_back(zeros_like(of.q, "dq"));
                    dkeys.push_back(zeros_like(keys.back(), "dkeys"));
                  }
                  for (int64_t step = 0; step < N; ++step)
                    for (int64_t r = 0; r < N; ++r) {
                      const size_t whose = size_t((r + N - step) % N), i = size_t(r);
                      const Tensor y = saved(1, r), lse = saved(2, r);
                      AttendedGradient gradient{q[i], y, lse, dy[i], heads, dq[i]};
                      gradient.meet(keys[whose], chunk_pairs(mask, r, int64_t(whose), N), dkeys[whose]);
                    }
                  for (int64_t r = 0; r < N; ++r)
                    put_gradients(dq[size_t(r)], dkeys[size_t(r)], dx.out(int(r)));
                });
}

static std::vector<Tensor> block_in_chunks(const std::vector<Transformer*>& models, size_t l,
                                           const std::vector<Tensor>& x) {
  const TransformerConfig& c = models[0]->config;
  std::vector<Tensor> qkv, y;
  for (size_t r = 0; r < x.size(); ++r) {
    const TransformerBlock& b = models[r]->blocks[l];
    qkv.push_back(b.c_attn(b.ln_1(x[r])));
  }
  const std::vector<Tensor> heads = attend_in_chunks(qkv, c.heads, c.mask);
  for (size_t r = 0; r < x.size(); ++r) {
    const TransformerBlock& b = models[r]->blocks[l];
    const Tensor h = add(x[r], b.c_proj(heads[r]));
    y.push_back(add(h, b.mlp_c_proj(c.activation(b.c_fc(b.ln_2(h))))));
  }
  return y;
}

Tensor loss_in_chunks(const std::vector<Transformer*>& models, const std::vector<Transformer*>& heads,
                      const TextBatch& batch, const Tensor& count, std::vector<double>& losses) {
  const auto N = int64_t(models.size());
  std::vector<Tensor> x;
  for (int64_t r = 0; r < N; ++r) {
    const TextBatch own = chunks_of(batch, r, N);
    Parameters& p = models[size_t(r)]->parameters;
    const Tensor tokens = embedding(p.find("wte.weight").value, on_device(own.ids, own.T, "ids"));
    const Tensor places = places_of_chunks(own.sequences, batch.T, r, N);
    x.push_back(add(tokens, embedding(p.find("wpe.weight").value, places)));
  }
  for (size_t l = 0; l < models[0]->blocks.size(); ++l) x = block_in_chunks(models, l, x);
  Tensor sum;
  for (int64_t r = 0; r < N; ++r) {
    const TextBatch own = chunks_of(batch, r, N);
    const Tensor loss =
        heads[size_t(r)]->head_loss(x[size_t(r)], on_device(own.targets, own.T, "targets"), count);
    losses[size_t(r)] += item(loss);
    sum = r > 0 ? add(sum, loss) : loss;
  }
  return sum;
}

TokensRun train_in_chunks(const Loader& loader, const ParallelTask& task, By by, int64_t ranks) {
  Context context(current().device.name(), task.seed);
  std::deque<Transformer> made;
  std::vector<Transformer*> models;
  for (int64_t r = 0; r < ranks; ++r) {
    models.push_back(&made.emplace_back(task.model));
    models.back()->initialize(task.seed);
  }
  Parameters& parameters = models[0]->parameters;
  const auto optimizer = optimizer_of(by, parameters);
  TokensRun run;
  for (int64_t step = 0; step < task.steps; ++step) {
    const TextBatch batch = read_shard(loader, task, step, 0, 1);
    const Tensor count = from_host<float>(context.device, {float(task.batch * batch.T)}, {}, DType::F32,
                                          Kind::Data, "targets of all");
    for (Transformer* m : models) m->parameters.zero_grad();
    Tape tape;
    std::vector<double> losses(models.size());
    tape.backward(loss_in_chunks(models, models, batch, count, losses));
    for (size_t r = 1; r < models.size(); ++r)
      for (Parameter& p : parameters) cast(models[r]->parameters.find(p.name).leaf.grad, p.leaf.grad.add());
    run.note_gradients(parameters, step);
    optimizer->step(learning_rate(by));
    for (size_t r = 1; r < models.size(); ++r)
      for (const Parameter& p : parameters) cast(p.value, models[r]->parameters.find(p.name).value.set());
    run.losses.push_back(std::accumulate(losses.begin(), losses.end(), 0.0));
  }
  run.end(parameters);
  return run;
}

}  // namespace gradus
