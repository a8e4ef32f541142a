// Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"): the momentum step is
// made nearly orthogonal. Muon updates the matrices in blocks; AdamW updates embeddings, the output head,
// vectors and the weights of experts.
#pragma once
#include "src/optim/optimizer.h"

namespace gradus {

struct MuonArgs {
  float momentum = 0.95f, weight_decay = 0;
  int iterations = 5;            // of newton_schulz()
  DType products = DType::BF16;  // dtype of the products in it
  AdamWArgs others = {};         // for the parameters that Muon does not update
};
// A step is 0.2 sqrt(max(R, C)) lr times an orthogonal matrix (R, C): about as large as AdamW's, so both use
// one learning rate (Liu et al. 2025, "Muon is scalable for LLM training", eq. 4). State: 1 value per
// parameter of Muon's matrices, 2 per parameter of the others. The temporaries have the size of one matrix.
class Muon : public Optimizer {
 public:
  explicit Muon(Parameters& parameters, MuonArgs args = {}, const ParameterGroup& group = all_parameters);
  static bool is_for(const Parameter& p);

 private:
  void update(const std::vector<size_t>& of, ParamList) override;
  void update_matrix(const Parameter& p, ParamUpdate);
  MuonArgs args_;
};

// X <- a X + (b X X^T + c (X X^T)^2) X, with a, b, c = 3.4445, -4.775, 2.0315 (Jordan et al. 2024): moves
// singular values in (0, 1] towards 1, and does not change the singular vectors. An iteration multiplies
// small values by up to a; values near 1 stay between 0.7 and 1.2. x: a matrix (R, C) whose Frobenius norm is
// at most 1.
Tensor newton_schulz(Tensor x, int iterations);

}  // namespace gradus
