// The questions of 17.3: the elements and messages that the ranks of a student's own cluster send, and the
// time.
#include <sstream>

#include "src/parallel/comm/cluster.h"
#include "src/parallel/data_parallel.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own17 {
  int64_t ranks, side, layers;      // layers of (side, side) weights; their elements divide by the ranks
  int64_t microseconds, gigabytes;  // of the link: per message, per second
};
static Own17 own_run(const std::string& student) {
  Own own(student, "17.3");
  Own17 o{};
  o.ranks = own.of({2, 4, 5, 8, 10}), o.side = 40 * own.between(3, 20), o.layers = own.between(2, 9);
  o.microseconds = own.between(5, 40), o.gigabytes = own.between(1, 30);
  return o;
}

struct Sums {
  Sent sent;
  double seconds;
};
// All gradients are summed once: in one bucket, or with one all-reduce per gradient.
static Sums sum_once(const Own17& o, bool one_bucket) {
  Sums sums{};
  const Network network{"own", "", {double(o.microseconds) * 1e-6, double(o.gigabytes) * 1e9}};
  ClusterArgs args{.ranks = o.ranks, .device = "meta", .network = network};
  args.computed = [](int64_t, Context&) { return 0; };
  const ClusterRun run = run_cluster(args, [&](Comm& comm) {
    Parameters parameters;
    for (int64_t l = 0; l < o.layers; ++l) parameters.add(std::to_string(l), {o.side, o.side}, {});
    std::optional<GradientBuckets> bucket;
    if (one_bucket) bucket.emplace(comm, parameters, int64_t(1) << 40);
    for (Parameter& p : parameters) {
      if (!one_bucket) p.leaf.grad = Tensor(current().device, p.leaf.shape, DType::F32, Kind::Gradient, "g");
      p.leaf.written = true;
    }
    if (one_bucket) bucket->sum();
    for (Parameter& p : parameters)
      if (const auto sum = one_bucket ? nullptr : comm.all_reduce(p.leaf.grad)) sum->wait();
    sums.sent = comm.sent();
  });
  sums.seconds = run.seconds[0];
  return sums;
}

static Quiz quiz(const std::string& student) {
  const Own17 o = own_run(student);
  std::ostringstream setting;
  setting << "Your cluster has " << o.ranks << " ranks in a ring; a message takes " << o.microseconds
          << " microseconds and a link carries " << o.gigabytes
          << " GB (10^9 bytes) per second. Your model has " << o.layers << " weights of (" << o.side << ", "
          << o.side << "), with gradients in fp32, and no other parameters.";
  const auto number = [o](const std::function<double(const Sums&)>& of, bool one_bucket) {
    return measured([=] { return of(sum_once(o, one_bucket)); });
  };
  const auto micro = [o](bool one_bucket) {
    return measured([=] { return sum_once(o, one_bucket).seconds * 1e6; }, 0.001);
  };
  return {
      setting.str(),
      {{"17.3", "sent", "how many elements does a rank send per step to sum all gradients?",
        number([](const Sums& s) { return double(s.sent.elements); }, true)},
       {"17.3", "messages", "how many messages does a rank send per step if all gradients are in one bucket?",
        number([](const Sums& s) { return double(s.sent.messages); }, true)},
       {"17.3", "messages_each", "how many messages with one all-reduce per gradient?",
        number([](const Sums& s) { return double(s.sent.messages); }, false)},
       {"17.3", "time", "how many microseconds does the all-reduce of one bucket take?", micro(true)},
       {"17.3", "time_each", "how many microseconds do the sums take with one all-reduce per gradient?",
        micro(false)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "17", gradus::predict::quiz); }
