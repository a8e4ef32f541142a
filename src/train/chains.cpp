#include "src/train/chains.h"

#include <algorithm>
#include <optional>
#include <set>

#include "src/train/chain_code.h"

namespace gradus {

namespace {

using Recorded = CapturedStep::Recorded;
using Place = CapturedStep::Place;

struct Buffer {  // of a call that a rule describes
  void* p;
  DType t;
  Place place;
  char role;
  int64_t width;  // number of elements (role n) or columns
  bool written;
  bool element() const { return role == 'n'; }
  // Equal for the same tensor in the same shape; the same memory alone is not enough.
  using Identity = std::tuple<int64_t, void*, char, int64_t>;
  Identity identity() const { return {place.allocation, p, role, width}; }
};
struct Member {  // of a chain
  ChainCall code;
  Cost cost;
  std::vector<Buffer> buffers;   // inputs, then outputs
  std::vector<Place> also_read;  // dropout's step
  DType type() const { return buffers[0].t; }
};
using Members = std::vector<Member>;

bool overlap(const Place& a, const Place& b) { return a.begin < b.end && b.begin < a.end; }

// The call as a member of a chain; none unless its elements are all there, of one type, in known memory.
std::optional<Member> member(const Recorded& recorded, ChainTarget target) {
  Member m{{chain_rule(recorded.call->entry, target), recorded.call->described(), {}, {}, 0, true},
           recorded.call->cost,
           {},
           {}};
  if (!m.code.rule) return {};
  const CallArguments& a = m.code.arguments;
  const std::string inputs = m.code.rule->inputs, outputs = m.code.rule->outputs;
  const auto width = [&](char role) { return role == 'n' ? a.rows.rows * a.rows.cols : a.rows.cols; };
  for (size_t i = 0; i < inputs.size(); ++i)
    m.buffers.push_back({const_cast<void*>(a.inputs[i].p), a.inputs[i].t, recorded.places[i], inputs[i],
                         width(inputs[i]), false});
  for (size_t i = 0; i < outputs.size(); ++i)
    m.buffers.push_back({a.outputs[i].p, a.outputs[i].t, recorded.places[a.inputs.size() + i], outputs[i],
                         width(outputs[i]), true});
  m.also_read.assign(recorded.places.begin() + ptrdiff_t(inputs.size()),
                     recorded.places.begin() + ptrdiff_t(a.inputs.size()));
  for (const Buffer& b : m.buffers) {
    if (!b.p && (b.element() || !b.written)) return {};
    if (b.p && b.place.allocation == 0) return {};
    if (b.t != m.type() && (b.element() || (b.role == 'c' && !b.written))) return {};
  }
  return a.rows.rows * a.rows.cols > 0 ? std::optional(m) : std::nullopt;
}

// The shape of rows that all calls can use: that of norms and sums over rows; the elements of a bias, dropout
// or elementwise call can be cut into such rows.
std::optional<RowShape> common_rows(const Members& chain) {
  const auto numel = [](const Member& m) { return m.code.arguments.rows.rows * m.code.arguments.rows.cols; };
  int64_t cols = numel(chain[0]);
  for (const Member& m : chain) cols = std::min(cols, m.code.arguments.rows.cols);
  for (const Member& m : chain) {
    const bool whole = m.code.rule->whole_rows() || m.code.rule->outputs[0] == 'c';
    const int64_t own = m.code.arguments.rows.cols;
    if (numel(m) != numel(chain[0]) || own % cols != 0 || (whole && own != cols)) return {};
  }
  return RowShape{numel(chain[0]) / cols, cols};
}

bool writes_any(const Member& m, const std::vector<Place>& places) {
  for (const Buffer& b : m.buffers)
    for (const Place& place : places)
      if (b.written && overlap(b.place, place)) return true;
  return false;
}
// Whether one call may compute a row right after the same row of the other, before the other's next rows: a
// tensor that one writes must be at the same place in the other, or not in the other at all.
bool may_share_rows(const Member& a, const Member& b) {
  if (writes_any(a, b.also_read) || writes_any(b, a.also_read)) return false;
  for (const Buffer& x : a.buffers)
    for (const Buffer& y : b.buffers)
      if ((x.written || y.written) && overlap(x.place, y.place) &&
          !(x.p == y.p && x.element() && y.element()))
        return false;
  return true;
}
bool have_a_tensor_in_common(const Member& a, const Member& b) {
  for (const Buffer& x : a.buffers)
    for (const Buffer& y : b.buffers)
      if (x.element() && y.element() && x.identity() == y.identity()) return true;
  return false;
}
// Whether `call`, which comes after `other` in the step, may be made before it. Its scratch memory does not
// count: it is the chain's.
bool may_pass(const Recorded& call, const Recorded& other) {
  const size_t inputs = call.call->described().inputs.size(),
               inputs_of_other = other.call->described().inputs.size();
  for (size_t i = 0; i + 1 < call.places.size(); ++i)
    for (size_t j = 0; j < other.places.size(); ++j)
      if ((i >= inputs || j >= inputs_of_other) && overlap(call.places[i], other.places[j])) return false;
  return true;
}
size_t count_buffers(const Members& chain) {
  std::set<Buffer::Identity> different;
  size_t unwanted = 0;
  for (const Member& m : chain)
    for (const Buffer& b : m.buffers) b.p ? void(different.insert(b.identity())) : void(++unwanted);
  return different.size() + unwanted;
}
bool can_join(const Members& chain, const Member& next) {
  Members longer = chain;
  longer.push_back(next);
  return next.type() == chain[0].type() && longer.size() <= KernelChain::kCalls &&
         count_buffers(longer) <= KernelChain::kBuffers &&
         std::any_of(chain.begin(), chain.end(), [&](auto& m) { return have_a_tensor_in_common(m, next); }) &&
         std::all_of(chain.begin(), chain.end(), [&](auto& m) { return may_share_rows(m, next); }) &&
         common_rows(longer);
}

// The chain that begins with call `first`, and the numbers of its calls: of the calls that follow soon, those
// that may be made before all calls between.
std::pair<Members, std::vector<size_t>> chain_from(size_t first, const std::vector<Recorded>& calls,
                                                   const std::vector<bool>& taken, ChainTarget target) {
  constexpr size_t kBetween = 4;
  const std::optional<Member> begin = member(calls[first], target);
  if (!begin) return {};
  Members chain{*begin};
  std::vector<size_t> numbers{first}, between;
  for (size_t i = first + 1; i < calls.size() && between.size() < kBetween; ++i) {
    if (taken[i]) continue;
    const std::optional<Member> next = member(calls[i], target);
    if (next && can_join(chain, *next) &&
        std::all_of(between.begin(), between.end(), [&](size_t j) { return may_pass(calls[i], calls[j]); }))
      chain.push_back(*next), numbers.push_back(i);
    else
      between.push_back(i);
  }
  return {chain, numbers};
}

// Whether the element that call i of the chain writes must be stored in memory. It need not be if the step
// frees the tensor, only calls of the chain use it (users: by allocation, the numbers of the step's calls
// that use it; numbers: those of the chain's calls), and these read it in the loop that computes it, before
// the next call over whole rows. Write::Add reads memory, so an element to which any call adds must be
// stored.
bool must_be_stored(const Members& chain, size_t i, const std::map<int64_t, std::set<size_t>>& users,
                    const std::vector<size_t>& numbers) {
  const Buffer& y = chain[i].buffers.back();
  // BEGIN SOLUTION 16.4
  if (!y.place.temporary || chain[i].code.arguments.outputs[0].w == Write::Add) return true;
  for (const size_t user : users.at(y.place.allocation))
    if (std::find(numbers.begin(), numbers.end(), user) == numbers.end()) return true;
  bool loop_is_over = false;
  for (size_t j = 0; j < chain.size(); ++j) {
    if (j > i) loop_is_over = loop_is_over || chain[j].code.rule->whole_rows();
    for (const Buffer& b : chain[j].buffers)
      if (j != i && b.place.allocation == y.place.allocation && (j < i || loop_is_over || b.written))
        return true;
  }
  return false;
  // STUB: todo("16.4", "whether an element is stored", chain, i, users, numbers, y); return true;
  // END SOLUTION 16.4
}

struct ChainMade {  // without its scratch memory
  std::string name;
  RowShape rows;
  KernelChain chain;
  Cost cost;
};
// Numbers the chain's buffers and sums, and computes its cost: each element is read or written once.
ChainMade make_chain(Members& members) {
  ChainMade made{"", *common_rows(members), {}, {}};
  std::map<Buffer::Identity, int> number;
  int buffers = 0, sums = 0, uses = 0, kept = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    Member& m = members[i];
    const CallArguments& a = m.code.arguments;
    made.name += (i ? " + " : "") + std::string(m.code.rule->entry);
    made.chain.number[i] = a.numbers.empty() ? 0 : a.numbers[0];
    made.chain.key[i] = a.key, made.chain.per_sample[i] = a.rows.cols;
    made.cost.flops += m.cost.flops, made.cost.bytes += m.cost.bytes;
    if (i == 0 || m.cost.op_class == OpClass::Normalization) made.cost.op_class = m.cost.op_class;
    m.code.first_sum = sums;
    for (const Buffer& b : m.buffers) {
      const auto [at, is_new] =
          b.p ? number.try_emplace(b.identity(), buffers) : std::pair(number.end(), true);
      const int k = is_new ? buffers++ : at->second;
      (b.written ? m.code.outputs : m.code.inputs).push_back(k);
      made.chain.p[k] = b.p;
      made.chain.width[k] = b.width;
      sums += b.written && b.role == 'c', uses += b.element(), kept += b.element() && is_new;
    }
    kept -= !m.code.stored;
  }
  const DType T = members[0].type();
  made.cost.bytes -= (uses - kept) * made.rows.rows * made.rows.cols * size_of(T);
  made.cost.scratch = sums * (cost::partitions(made.rows.rows) + 1) * made.rows.cols * cost::stat_size(T);
  return made;
}

}  // namespace

FusedChains fuse_chains(CapturedStep& step, RunTimeCompiler& compiler) {
  check(step.replays(), "chains: they are found in a step that replays; run three steps first");
  check(&current() == &step.context(), "chains: the step belongs to another context; make it current");
  for (const Recorded& recorded : step.calls())
    check(std::string(recorded.call->entry) != "chain", "chains: the step's calls have been fused before");
  const Device& device = current().device;
  const std::string name = device.backend().name;
  const ChainTarget target = name == "emu" || name == "cuda" ? ChainTarget::Gpu : ChainTarget::Cpu;
  const std::vector<Recorded>& calls = step.calls();
  std::map<int64_t, std::set<size_t>> users;
  for (size_t i = 0; i < calls.size(); ++i)
    for (const Place& place : calls[i].places) users[place.allocation].insert(i);
  FusedChains found;
  std::vector<bool> taken(calls.size());
  std::vector<Recorded> now;
  std::vector<std::pair<size_t, ChainMade>> chains;  // and their positions in `now`
  int64_t scratch = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    found.bytes_before += calls[i].call->cost.bytes;
    if (taken[i]) continue;
    auto [members, numbers] = chain_from(i, calls, taken, target);
    now.push_back(calls[i]);
    if (members.size() < 2) continue;
    for (const size_t j : numbers) taken[j] = true;
    now.back().places.clear();  // they were its first call's; chains are not fused
    for (size_t k = 0; k < members.size(); ++k)
      if (!members[k].code.rule->whole_rows() && members[k].buffers.back().element())
        members[k].code.stored = must_be_stored(members, k, users, numbers);
    ChainMade made = make_chain(members);
    std::vector<ChainCall> code;
    for (const Member& m : members) code.push_back(m.code);
    const std::string source = chain_code(code, members[0].type(), target);
    if (device.has_data())
      made.chain.function = KernelChain::Function(compiler.function(source, "gradus_chain"));
    scratch = std::max(scratch, made.cost.scratch);
    ++found.chains[made.name], found.code[made.name] = source;
    chains.push_back({now.size() - 1, made});
  }
  const Tensor memory(current().device, {scratch}, DType::U8, Kind::Temporary, "chains");
  for (const auto& [at, made] : chains) {
    Ctx ctx = now[at].call->described().ctx;
    ctx.scratch = const_cast<void*>(memory.in().p), ctx.cost = &made.cost;
    now[at].call = chain_call(ctx, made.rows, made.chain);
  }
  found.calls_before = int64_t(calls.size()), found.calls_after = int64_t(now.size());
  for (const Recorded& recorded : now) found.bytes_after += recorded.call->cost.bytes;
  step.replace_calls(std::move(now), memory);
  return found;
}

}  // namespace gradus
