#include "lessons/20_pipeline_parallel/schedules.h"

#include <algorithm>
#include <iomanip>
#include <iostream>

#include "src/core/input_file.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/svg.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/pipeline.h"

namespace gradus {

// The passes of a stage take one and two seconds; the passes of each of its v chunks take 1 / v of that.
static std::vector<ChunkTimes> equal_chunks(const Schedule& s) {
  const double v = double(s.chunks) / double(s.ranks());
  return std::vector<ChunkTimes>(size_t(s.chunks), {1 / v, 2 / v});
}

void print_timeline(std::ostream& out, const Schedule& s, const Timeline& t) {
  const double unit = double(s.ranks()) / double(s.chunks);  // the forward pass of a chunk
  const size_t width = text_of({Pass::Forward, s.micro_batches - 1, s.chunks - 1}, s.ranks() - 1).size();
  const auto column = [&](double at) { return size_t(std::llround(at / unit)) * width; };
  for (int64_t rank = 0; rank < s.ranks(); ++rank) {
    std::string line;
    for (const Timeline::Entry& e : t.of_rank[size_t(rank)]) {
      line.resize(column(e.begin), '.');
      line += text_of(e.task, rank);
      line.resize(column(e.end), e.task.pass == Pass::Forward ? ' ' : '=');
    }
    line.resize(column(t.seconds), '.');
    out << "  rank " << rank << "  " << line << "\n";
  }
}

struct NamedTimeline {
  std::string name;
  Schedule schedule;
  Timeline timeline;
};
static std::string draw_timelines(const std::string& title, const std::vector<NamedTimeline>& all) {
  constexpr double kLeft = 70, kWidth = 700, kLane = 18;
  double longest = 0, y = 52;
  for (const NamedTimeline& n : all) longest = std::max(longest, n.timeline.seconds);
  Svg svg;
  svg.text(kLeft, 24, title, "start", " font-weight='600'");
  for (const auto& [name, s, t] : all) {
    svg.text(kLeft, y, name + ": bubble " + percent_text(t.bubble), "start");
    for (int64_t rank = 0; rank < s.ranks(); ++rank) {
      const double top = y + 8 + double(rank) * kLane;
      svg.text(kLeft - 8, top + 12, "rank " + std::to_string(rank), "end", " font-size='11'");
      svg.rect(kLeft, top, t.seconds / longest * kWidth, kLane - 2, "#eee");
      for (const Timeline::Entry& e : t.of_rank[size_t(rank)]) {
        const double x = kLeft + e.begin / longest * kWidth, width = (e.end - e.begin) / longest * kWidth;
        const int64_t light = std::min<int64_t>(60 + 12 * (e.task.chunk / s.ranks()), 84);
        const std::string hue = e.task.pass == Pass::Forward ? "210" : "130";
        svg.rect(x, top, width - 0.8, kLane - 2, "hsl(" + hue + ",55%," + std::to_string(light) + "%)");
        svg.text(x + width / 2, top + 12, std::to_string(e.task.micro_batch), "middle", " font-size='10'");
      }
    }
    y += 8 + double(s.ranks()) * kLane + 26;
  }
  svg.text(kLeft, y,
           "blue: forward, green: backward, lighter: second chunk, gray: waiting; time from left to right",
           "start", " font-size='11'");
  return svg.file(kLeft + kWidth + 20, y + 16);
}

namespace {

// Passes that compute nothing, but take time.
struct TimedWork : PipelineWork {
  double& clock;
  ChunkTimes times;
  TimedWork(double& clock, ChunkTimes times) : clock(clock), times(times) {}
  Tensor after(double seconds) {
    clock += seconds;
    return {current().device, {1}, DType::F32, Kind::Temporary, "passed on"};
  }
  Tensor forward(int64_t, int64_t, Tensor) override { return after(times.forward); }
  Tensor backward(int64_t, int64_t, Tensor) override { return after(times.backward); }
};

// The bubble on simulated ranks.
double measured_bubble(const Schedule& s) {
  std::vector<double> computed(size_t(s.ranks()), 0);
  ClusterArgs args{.ranks = s.ranks(), .device = "meta"};
  args.computed = [&](int64_t rank, Context&) { return computed[size_t(rank)]; };
  const ClusterRun run = run_cluster(args, [&](Comm& comm) {
    TimedWork work(computed[size_t(comm.rank())], equal_chunks(s)[0]);
    run_schedule(comm, s, {1}, DType::F32, work);
  });
  double busy = 0;
  for (const double c : computed) busy += c;
  return 1 - busy / (double(s.ranks()) * *std::max_element(run.seconds.begin(), run.seconds.end()));
}

int64_t predicted_in_flight(const std::string& name, int64_t p, int64_t m, int64_t v, int64_t rank) {
  if (name == "GPipe") return m;
  return v == 1 ? std::min(m, p - rank) : std::min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1);
}

}  // namespace

double predicted_bubble(int64_t p, int64_t m, int64_t v) {
  // BEGIN SOLUTION 20.2
  return double(p - 1) / double(m * v + p - 1);
  // STUB: todo("20.2", "the fraction of all ranks' time in which they wait", p, m, v);
  // END SOLUTION 20.2
}

void schedules_by_hand(std::ostream& out) {
  out << "Two ranks, three micro-batches; two characters per unit of time.\n"
         "F0: forward pass of micro-batch 0, one unit; B0==: its backward pass, two units; dots: waiting.\n";
  for (const auto& [name, s] : {std::pair("GPipe", gpipe(2, 3)), {"1F1B", one_forward_one_backward(2, 3)}}) {
    const Timeline t = play(s, equal_chunks(s));
    out << "\n" << name << "\n";
    print_timeline(out, s, t);
    out << "  " << number_text(t.seconds) << " units; each rank computes for 9 of them, so the bubble is "
        << percent_text(t.bubble) << ". Micro-batches in flight, at most: rank 0: " << t.in_flight[0]
        << ", rank 1: " << t.in_flight[1] << "\n";
  }
}

void schedules_table(const std::string& picture, Report& report) {
  std::cout << "\n(a) Schedules of equal stages; a backward pass takes twice as long as a forward pass\n"
               "    in flight: pairs (micro-batch, chunk) between forward and backward pass, at most\n";
  Table table({"schedule", "ranks", "chunks per rank", "micro-batches", "bubble, computed",
               "bubble, simulated ranks", "in flight, rank 0", "in flight, last rank"});
  SchedulesOff off;
  std::vector<NamedTimeline> shown;
  for (const int64_t p : {2, 4, 8})
    for (const int64_t m : {4, 8, 16, 32})
      for (const auto& [name, v] : {std::pair<std::string, int64_t>("GPipe", 1),
                                    {"1F1B", 1},
                                    {"interleaved", 2},
                                    {"interleaved", 4}}) {
        if (v > 1 && m % p != 0) continue;
        const Schedule s = name == "GPipe" ? gpipe(p, m) : interleaved(p, m, v);
        const Timeline t = play(s, equal_chunks(s));
        const double measured = measured_bubble(s);
        ++off.count;
        off.bubbles += std::abs(t.bubble - predicted_bubble(p, m, v)) > 1e-12;
        off.simulated += std::abs(measured - predicted_bubble(p, m, v)) > 1e-12;
        for (int64_t r = 0; r < p; ++r)
          off.in_flight += t.in_flight[size_t(r)] != predicted_in_flight(name, p, m, v, r);
        if (p == 4 && m <= 16)
          table.row({name, std::to_string(p), std::to_string(v), std::to_string(m), percent_text(t.bubble),
                     percent_text(measured), std::to_string(t.in_flight[0]),
                     std::to_string(t.in_flight.back())});
        if (p == 4 && m == 8 && v <= 2) shown.push_back({v > 1 ? name + ", 2 chunks per rank" : name, s, t});
      }
  std::cout << table << "\n1F1B, 4 ranks; F1, B1==: passes of micro-batch 1 (of 4); dots: waiting\n";
  const Schedule small = one_forward_one_backward(4, 4);
  print_timeline(std::cout, small, play(small, equal_chunks(small)));
  write_file(picture, draw_timelines("4 ranks, 8 micro-batches (the numbers)", shown));
  check_schedules(off, report);
}

void check_schedules(const SchedulesOff& off, Report& report) {
  const std::string of = ", of " + std::to_string(off.count) + " schedules";
  report.check_equal("(a) bubbles that differ from the formula" + of, off.bubbles, 0);
  report.check_equal("(a) bubbles on simulated ranks that differ from the formula" + of, off.simulated, 0);
  report.check_equal("(a) ranks whose number in flight differs from the formula" + of, off.in_flight, 0);
}

int judge_schedule(const std::string& path) {
  const Schedule s = schedule_of_text(read_text_file(path, 1 << 20));
  const Timeline t = play(s, equal_chunks(s));
  if (!t.problem.empty()) {
    std::cout << path << " cannot run: " << t.problem << "\nFAIL\n";
    return 1;
  }
  print_timeline(std::cout, s, t);
  const Timeline usual =
      play(one_forward_one_backward(s.ranks(), s.micro_batches), std::vector<ChunkTimes>(size_t(s.ranks())));
  std::cout << "\nbubble: " << percent_text(t.bubble) << "; 1F1B: " << percent_text(usual.bubble) << "\n";
  const int64_t v = s.chunks / s.ranks();
  for (int64_t r = 0; r < s.ranks(); ++r)
    std::cout << "rank " << r << ": at most " << t.in_flight[size_t(r)]
              << " pairs (micro-batch, chunk) in flight; 1F1B: " << v * usual.in_flight[size_t(r)] << "\n";
  std::cout << "PASS\n";
  return 0;
}

}  // namespace gradus
