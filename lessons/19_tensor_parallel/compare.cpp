#include "lessons/19_tensor_parallel/compare.h"

#include <cmath>

#include "src/core/larger.h"

namespace gradus {

std::vector<TokensRun> Compared::run(const std::string& name, int64_t ranks, const UpdateBy& update) {
  args.ranks = ranks;
  std::vector<TokensRun> all(static_cast<size_t>(ranks));
  run_ranks(args, [&](Comm& comm) {
    TokensRun& mine = all[size_t(comm.rank())];
    mine = train(comm, update);
    mine.sent = comm.sent();
  });
  if (args.comm != "sim") all = {all[size_t(this_rank(args))]};
  add_row(report, name, all[0], task).extra = {{"sent", double(all[0].sent.elements) / double(task.steps)}};
  return all;
}

void Compared::equal(const std::string& name, int64_t ranks, const TokensRun& alone) {
  double unlike = 0, losses = 0;
  for (const TokensRun& r : run(name, ranks, kAdamW))
    unlike += count_unlike(r, alone), losses = larger(losses, losses_off(r, alone));
  report.check_at_most(name + ": parameters unlike one device's", unlike, 0);
  report.check_at_most(name + ": losses off one device's", losses, 0);
}

std::vector<TokensRun> Compared::near(const std::string& name, int64_t ranks, const TokensRun& alone,
                                      double most) {
  double losses = 0, gradients = 0;
  const std::vector<TokensRun> all = run(name, ranks, kSgd);
  for (const TokensRun& r : all)
    losses = larger(losses, losses_off(r, alone)), gradients = larger(gradients, gradients_off(r, alone));
  report.check_at_most(name + ": losses off plain training's", losses, 1e-6);
  report.check_at_most(name + ": first gradients off", gradients, most);
  return all;
}

}  // namespace gradus
