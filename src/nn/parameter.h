// Parameters have names and flags; nothing is ever selected by its position in a list.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "src/autograd/tape.h"
#include "src/nn/precision.h"
#include "src/nn/shard.h"
#include "src/quant/double_quantized.h"

namespace gradus {

// When a model's parameters get their memory: when they are declared, or later, by the code that shards them
// (parallel/zero.h).
enum class Allocate : uint8_t { Now, Later };

struct Parameter {  // can be moved, but not copied: a weight has one gradient
  std::string name;
  Tensor value;   // kind Weight; ops record its slot, so its gradient arrives in `leaf`
  Tensor master;  // kind Master, fp32; defined if the precision asks for it
  std::optional<DoubleQuantized> codes;  // the weight in 4 bits; `value` and `master` are then empty
  bool merged = false;                   // true: an adapter's product has been added to the weight
  Leaf leaf;
  Precision precision;
  bool decay = true;           // weight decay applies: matrices and embeddings yes, biases and norms no
  std::optional<Shard> shard;  // set if this rank keeps only a part
  // False if a different rank has the same parameter and counts it in sums over all ranks.
  bool counted = true;
  // Its index in the list of the whole model, and the random stream of its initial values.
  int64_t number = 0;
  bool trainable() const { return value.slot.wanted(); }
  // The weights that persist from step to step: the master copy if there is one, else the value.
  const Tensor& kept() const { return master.defined() ? master : value; }
  // Allocates the value, and the master copy if the precision asks for one; with Allocate::Later, neither has
  // memory yet.
  void allocate(const Shape& shape, Allocate when);
  void round_master();                             // value = round(master), if there is a master copy
  void assign(const std::vector<double>& values);  // writes kept(), and its rounded copy
};

// Writes a parameter's initial values: &Parameter::assign, unless this rank keeps only a part of them.
using AssignValues = std::function<void(Parameter&, const std::vector<double>&)>;

class Parameters;

// The code that shards parameters over ranks (parallel/zero.h, sharded_grad_norm.h). All ranks make these
// calls together.
struct RankShares {
  virtual const Parameters& own_parts() const = 0;  // the shards that this rank's optimizer updates
  virtual void zero_grad() = 0;
  // own: the sum of squares of this rank's gradients (fp64). Returns one or more sums that add up to that of
  // all ranks.
  virtual Tensor sums_of_squares(const Tensor& own) = 0;
  virtual void updated() = 0;  // this rank's shards were updated
  // Whether it sums the gradients of all ranks, in its own buffers.
  virtual bool sums_gradients() const = 0;

 protected:
  ~RankShares() = default;
};

// The parameters of a model, in the order in which they were added. References stay valid when more are
// added, and when the list moves.
class Parameters {
 public:
  explicit Parameters(Allocate allocate = Allocate::Now) : allocate_(allocate) {}
  Parameters(Parameters&&) = default;
  Parameter& add(const std::string& name, const Shape& shape, const Precision& precision);
  void pass_over(int64_t count) { next_number_ += count; }  // skips parameters that this list does not have
  Parameter& add(Parameter made);                           // a complete one, with its name and its value
  Parameter& find(const std::string& name);                 // if there is none, an error that lists the names
  void set_trainable(Parameter& p, bool trainable);
  void zero_grad();  // marks gradients as empty; fills nothing and keeps their memory
  void drop_grad();  // also frees their memory: until the backward pass the step needs less
  int64_t numel() const;
  int64_t numel_trainable() const;
  size_t size() const { return list_.size(); }
  auto begin() { return list_.begin(); }
  auto end() { return list_.end(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  // The code that shards these parameters, or nullptr. Their optimizers share the pointer, so it stays valid
  // when the list moves.
  std::shared_ptr<RankShares*> shares = std::make_shared<RankShares*>(nullptr);
  // Called first by zero_grad(): the code that sums gradients forgets the state that an error has left
  // unfinished.
  std::function<void()> on_zero_grad = {};

 private:
  Allocate allocate_;
  int64_t next_number_ = 0;
  std::deque<Parameter> list_;
  std::unordered_set<std::string> names_;
};

}  // namespace gradus
