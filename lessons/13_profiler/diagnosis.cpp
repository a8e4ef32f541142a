#include "lessons/13_profiler/diagnosis.h"

#include <algorithm>
#include <map>

namespace gradus {

constexpr double kLongLoading = 0.05;    // share of a step; a shorter loading time is not reported
constexpr int64_t kManyBytes = 4 << 10;  // a loss, a norm or a learning rate has fewer
constexpr size_t kChain = 4;             // kernels; a bias, an activation and a residual are no chain

const char* name_of(Bottleneck b) {
  switch (b) {
    case Bottleneck::Loading: return "data loading";
    case Bottleneck::CopyToHost: return "copy to the host";
    case Bottleneck::Chain: return "unfused kernels";
  }
  return "";
}

static std::string without_last(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

static bool is_in(const TracedSpan& r, const TracedSpan& outer) {
  return &r != &outer && r.begin >= outer.begin && r.end <= outer.end;
}

using Findings = std::map<std::pair<Bottleneck, std::string>, Finding>;

static void add(Findings& findings, const Finding& f) {
  Finding& sum = findings.try_emplace({f.what, f.where}, Finding{f.what, f.where}).first->second;
  sum.seconds += f.seconds, sum.count += f.count;
}

// For each outermost "data" range: the innermost range that took more than half of the time of the range
// around it.
static void find_loading(const TracedStep& step, Findings& findings) {
  for (const TracedSpan& data : step.ranges) {
    if (data.path != "data") continue;
    const TracedSpan* most = &data;
    for (const TracedSpan& r : step.ranges)
      if (is_in(r, *most) && r.seconds() > most->seconds() / 2) most = &r;
    add(findings, {Bottleneck::Loading, most->path, most->seconds(), 1});
  }
}

static bool is_large_copy(const TracedSpan& r) {
  return r.name == "copy to the host" && r.bytes >= kManyBytes;
}

// The time that a step saves without this copy. If the range around it contains nothing but copies, the step
// saves the whole range, and each of the range's large copies counts for an equal share.
static double saved_without(const TracedStep& step, const TracedSpan& copy) {
  int64_t large = 0;
  const TracedSpan* around = nullptr;
  for (const TracedSpan& r : step.ranges)
    if (r.path == without_last(copy.path) && is_in(copy, r)) around = &r;
  if (!around) return copy.seconds();
  for (const TracedSpan& r : step.ranges) {
    if (!is_in(r, *around)) continue;
    if (r.category != "copy") return copy.seconds();
    large += is_large_copy(r);
  }
  return around->seconds() / double(large);
}

static void find_copies(const TracedStep& step, Findings& findings) {
  for (const TracedSpan& r : step.ranges)
    if (is_large_copy(r))
      add(findings, {Bottleneck::CopyToHost, without_last(r.path), saved_without(step, r), r.bytes});
}

// The number of consecutive kernels, beginning with kernel i, that are element-wise and about as large as
// kernel i (half to twice its bytes); 0 if kernel i is not element-wise. The next chain can begin right after
// them, or after kernel i if their number is 0.
static size_t chain_from(const std::vector<TracedSpan>& kernels, size_t i) {
  size_t n = 0;
  for (; i + n < kernels.size() && kernels[i + n].category == "element-wise"; ++n)
    if (kernels[i + n].bytes > 2 * kernels[i].bytes || 2 * kernels[i + n].bytes < kernels[i].bytes) break;
  return n;
}

// A chain is at least kChain such kernels. One fused kernel would read the inputs of the first and write the
// output of the last, which takes about as long as the longest of them.
static void find_chains(const TracedStep& step, Findings& findings) {
  // BEGIN SOLUTION 13.2
  for (size_t i = 0, n = 0; i < step.kernels.size(); i += std::max<size_t>(n, 1)) {
    n = chain_from(step.kernels, i);
    if (n < kChain) continue;
    Finding chain{Bottleneck::Chain, without_last(step.kernels[i].path), 0, int64_t(n)};
    double longest = 0;
    for (size_t k = i; k < i + n; ++k) {
      chain.seconds += step.kernels[k].seconds();
      longest = std::max(longest, step.kernels[k].seconds());
    }
    chain.seconds -= longest;
    add(findings, chain);
  }
  // STUB: todo("13.2", "a finding for each chain of kChain kernels or more", step, findings, chain_from);
  // END SOLUTION 13.2
}

// Replaces the number of the layer: "forward/h.2" becomes "forward/h.*".
static std::string of_any_layer(std::string path) {
  const size_t at = path.starts_with("h.") ? 0 : path.find("/h.") + 1;
  if (at == 0 && !path.starts_with("h.")) return path;
  const size_t end = std::min(path.find('/', at), path.size());
  return path.substr(0, at) + "h.*" + path.substr(end);
}

// Findings that differ only in their layer become one finding. Chains of the backward pass are added to the
// first chain of the forward pass.
static std::vector<Finding> merged(const Findings& findings) {
  std::map<std::pair<Bottleneck, std::string>, std::vector<Finding>> alike;
  bool forward = false;
  for (const auto& [key, f] : findings) forward |= f.what == Bottleneck::Chain && f.where != "backward";
  for (const auto& [key, f] : findings)
    if (f.what != Bottleneck::Chain || f.where != "backward" || !forward)
      alike[{f.what, of_any_layer(f.where)}].push_back(f);
  if (const auto backward = findings.find({Bottleneck::Chain, "backward"});
      forward && backward != findings.end()) {
    const auto chain = std::find_if(alike.begin(), alike.end(),
                                    [](const auto& a) { return a.first.first == Bottleneck::Chain; });
    chain->second[0].seconds += backward->second.seconds, chain->second[0].count += backward->second.count;
  }
  std::vector<Finding> all;
  for (const auto& [key, of_layers] : alike) {
    Finding sum = of_layers[0];
    if (of_layers.size() > 1) sum.where = key.second;
    for (size_t i = 1; i < of_layers.size(); ++i)
      sum.seconds += of_layers[i].seconds, sum.count += of_layers[i].count;
    all.push_back(sum);
  }
  return all;
}

std::vector<Finding> diagnose(const std::vector<TracedStep>& steps) {
  Findings findings;
  for (const TracedStep& step : steps)
    find_loading(step, findings), find_copies(step, findings), find_chains(step, findings);
  double seconds = 0;
  for (const TracedStep& step : steps) seconds += step.seconds;
  std::erase_if(findings, [&](const auto& f) {
    return f.second.what == Bottleneck::Loading && f.second.seconds < kLongLoading * seconds;
  });
  std::vector<Finding> all = merged(findings);
  for (Finding& f : all) f.seconds /= double(steps.size()), f.count /= int64_t(steps.size());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return all;
}

}  // namespace gradus
