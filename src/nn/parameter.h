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

// When a model's parameters get their memory: as they are declared, or later, by who shards them
// (parallel/zero.h).
enum class Allocate : uint8_t { Now, Later };

struct Parameter {  // moves, and does not copy: a weight has one gradient
  std::string name;
  Tensor value;   // kind Weight; ops record its slot, so its gradient arrives in `leaf`
  Tensor master;  // kind Master, fp32; defined if the precision asks for it
  std::optional<DoubleQuantized> codes;  // instead of both, which are then empty: it is kept in 4 bits
  bool merged = false;                   // the product of an adapter has been added to it
  Leaf leaf;
  Precision precision;
  bool decay = true;           // weight decay applies: matrices and embeddings yes, biases and norms no
  std::optional<Shard> shard;  // if this rank keeps a part of it
  // Of what several ranks have, one counts it in sums over all ranks.
  bool counted = true;
  // Its place in the list of the whole model: the stream of its first values (Transformer::initialize).
  int64_t number = 0;
  bool trainable() const { return value.slot.wanted(); }
  // The weights as they are kept from step to step: the master copy if there is one.
  const Tensor& kept() const { return master.defined() ? master : value; }
  // Memory for the value, and for the master copy if the precision asks for one; with Allocate::Later, for
  // none of them yet.
  void allocate(const Shape& shape, Allocate when);
  void round_master();                             // value = round(master), if there is a master copy
  void assign(const std::vector<double>& values);  // to what is kept, and its rounded copy
};

// How a parameter takes its first values: &Parameter::assign, unless only a part of it is kept.
using AssignValues = std::function<void(Parameter&, const std::vector<double>&)>;

class Parameters;

// Whoever keeps parameters in parts, one part on each rank (parallel/zero.h): the ends of a step take all
// ranks.
struct RankShares {
  virtual const Parameters& own_parts() const = 0;  // what this rank's optimizer updates
  virtual void zero_grad() = 0;
  // From the sum of squares of this rank's gradients (fp64) the sums, one or more, that add up to all ranks'.
  virtual Tensor sums_of_squares(const Tensor& own) = 0;
  virtual void updated() = 0;  // this rank's parts
  // Whether it adds up all ranks' gradients, in buffers of its own.
  virtual bool sums_gradients() const = 0;

 protected:
  ~RankShares() = default;
};

// The parameters of a model, in the order they were added. References stay valid as more are added, and when
// the list moves.
class Parameters {
 public:
  explicit Parameters(Allocate allocate = Allocate::Now) : allocate_(allocate) {}
  Parameters(Parameters&&) = default;
  Parameter& add(const std::string& name, const Shape& shape, const Precision& precision);
  void pass_over(int64_t count) { next_number_ += count; }  // parameters of the model that this list lacks
  Parameter& add(Parameter made);            // which has its name, its value and whatever else it is to have
  Parameter& find(const std::string& name);  // an error that lists the names if there is none
  void set_trainable(Parameter& p, bool trainable);
  void zero_grad();  // gradients become empty; nothing is filled, and their memory is kept
  void drop_grad();  // gives the memory back, too: until the backward pass the step needs less
  int64_t numel() const;
  int64_t numel_trainable() const;
  size_t size() const { return list_.size(); }
  auto begin() { return list_.begin(); }
  auto end() { return list_.end(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  // Who shares these parameters out, or nullptr; known to their optimizers, also when the list has moved.
  std::shared_ptr<RankShares*> shares = std::make_shared<RankShares*>(nullptr);
  // Called first by zero_grad(): whoever keeps the gradients forgets what an error left half done.
  std::function<void()> on_zero_grad = {};

 private:
  Allocate allocate_;
  int64_t next_number_ = 0;
  std::deque<Parameter> list_;
  std::unordered_set<std::string> names_;
};

}  // namespace gradus
