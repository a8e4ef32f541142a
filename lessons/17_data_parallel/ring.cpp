#include "lessons/17_data_parallel/ring.h"

#include <cmath>

#include "src/core/table.h"
#include "src/io/svg.h"
#include "src/parallel/comm/cluster.h"
#include "src/tensor/call.h"

namespace gradus {

void ring_all_reduce(Comm& comm, const Tensor& x, const std::function<void(int64_t step)>& seen) {
  const int64_t N = comm.size(), rank = comm.rank(), right = (rank + 1) % N, left = (rank + N - 1) % N;
  const auto part = [&](int64_t number) {  // any number: part -1 is the last one, part N the first
    const Part p = part_of(x.numel(), (number + 2 * N) % N, N);
    return x.reshape({x.numel()}).narrow(p.begin, p.count);
  };
  for (int64_t step = 1; step <= 2 * (N - 1); ++step) {
    // BEGIN SOLUTION 17.4
    const Tensor sent = part(rank - step + 1);
    Tensor mine = part(rank - step);
    // STUB: const Tensor sent; Tensor mine; todo("17.4", "the parts that this rank sends and receives in this step", part, sent, mine, rank);
    // END SOLUTION 17.4
    const Tensor received = empty(mine, mine.shape(), "received");
    const auto sending = comm.send(sent, right), receiving = comm.recv(received, left);
    receiving->wait();
    cast(received, mine.out(step < N ? Write::Add : Write::Set));
    sending->wait();
    seen(step);
  }
}

RingSteps watch_ring(int64_t ranks) {
  RingSteps ring;
  run_cluster({.ranks = ranks, .device = "cpu"}, [&](Comm& comm) {
    const int64_t rank = comm.rank();
    const Tensor x = from_host(current().device, std::vector<double>(size_t(ranks), std::pow(10, rank)),
                               {ranks}, DType::F32, Kind::Other, "x");
    const auto note = [&](int64_t step) {
      if (ring.values.size() <= size_t(step)) {
        ring.values.resize(size_t(step) + 1, std::vector<std::vector<double>>(size_t(ranks)));
        ring.received.resize(size_t(step) + 1, std::vector<int64_t>(size_t(ranks), -1));
      }
      const std::vector<double> after = to_host<double>(x);
      for (int64_t p = 0; p < ranks && step > 0; ++p)
        if (after[size_t(p)] != ring.values[size_t(step) - 1][size_t(rank)][size_t(p)])
          ring.received[size_t(step)][size_t(rank)] = p;
      ring.values[size_t(step)][size_t(rank)] = after;
    };
    note(0);
    ring_all_reduce(comm, x, note);
  });
  return ring;
}

static std::string name_of_step(size_t step, size_t ranks) {
  if (step == 0) return "start";
  return std::to_string(step) + (step < ranks ? ", reduce-scatter" : ", all-gather");
}

void print_ring(std::ostream& out, const RingSteps& ring) {
  const size_t ranks = ring.values[0].size();
  std::vector<std::string> header{"step"};
  for (size_t r = 0; r < ranks; ++r) header.push_back("rank " + std::to_string(r));
  Table table(header);
  for (size_t step = 0; step < ring.values.size(); ++step) {
    std::vector<std::string> cells{name_of_step(step, ranks)};
    for (size_t r = 0; r < ranks; ++r) {
      std::string cell;
      for (size_t p = 0; p < ranks; ++p) {
        const bool came = ring.received[step][r] == int64_t(p);
        cell += (came ? " [" : " ") + number_text(ring.values[step][r][p]) + (came ? "]" : "");
      }
      cells.push_back(cell.substr(1));
    }
    table.row(cells);
  }
  out << table;
}

std::string draw_ring(const RingSteps& ring) {
  constexpr double kLeft = 140, kTop = 60, kCell = 34, kRow = 22, kGap = 22;
  const size_t ranks = ring.values[0].size();
  const double column = kCell * double(ranks) + kGap;
  Svg svg;
  svg.text(kLeft, 24, "Ring all-reduce: the parts on each rank after each step", "start",
           " font-weight='600'");
  for (size_t r = 0; r < ranks; ++r)
    svg.text(kLeft + double(r) * column, kTop - 10, "rank " + std::to_string(r), "start");
  double whole = 0;
  for (const auto& rank : ring.values[0]) whole += rank[0];
  for (size_t step = 0; step < ring.values.size(); ++step) {
    const double y = kTop + double(step) * kRow + (step >= ranks ? 10 : 0);
    svg.text(kLeft - 10, y + 15, name_of_step(step, ranks), "end");
    for (size_t r = 0; r < ranks; ++r)
      for (size_t p = 0; p < ranks; ++p) {
        const double v = ring.values[step][r][p], x = kLeft + double(r) * column + double(p) * kCell;
        const bool came = ring.received[step][r] == int64_t(p);
        svg.rect(x, y, kCell - 2, kRow - 2, v == whole ? "#8fce9f" : came ? "#f6c98f" : "#e8ebf0");
        svg.text(x + kCell / 2 - 1, y + 14, number_text(v), "middle", " font-size='11'");
      }
  }
  return svg.file(kLeft + double(ranks) * column, kTop + double(ring.values.size()) * kRow + 20);
}

RingCounts count_ring(const Network& network, int64_t ranks, int64_t numel, const AllReduce& sum) {
  RingCounts ring{ranks, numel, 0, 0, 0, 0};
  const ClusterArgs args{
      .ranks = ranks, .device = "cpu", .network = network, .computed = [](int64_t, Context&) { return 0; }};
  const ClusterRun run = run_cluster(args, [&](Comm& comm) {
    const Tensor x = from_host(current().device, std::vector<double>(size_t(numel), double(comm.rank())),
                               {numel}, DType::F32, Kind::Other, "x");
    sum(comm, x);
    ring.sent += comm.sent().elements;
    for (const double v : to_host<double>(x)) ring.wrong += v != double(ranks * (ranks - 1) / 2);
  });
  ring.seconds = run.seconds[0];
  ring.formula = collective_seconds(network, Collective::AllReduce, ranks, double(4 * numel));
  return ring;
}

void check_ring(const RingCounts& ring, Report& report) {
  const std::string name =
      "ring of " + std::to_string(ring.ranks) + " ranks, " + std::to_string(ring.numel) + " elements: ";
  report.check_equal(name + "elements that differ from the sum", ring.wrong, 0);
  report.check_equal(name + "elements sent by all ranks, 2 (N-1) n", ring.sent,
                     2 * (ring.ranks - 1) * ring.numel);
  report.check_at_most(
      name + "simulated time, relative difference from 2 (N-1) (latency + bytes / N / bandwidth)",
      std::abs(ring.seconds / ring.formula - 1), 1e-9);
}

}  // namespace gradus
