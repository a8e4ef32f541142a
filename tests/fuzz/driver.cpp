// Runs a harness on generated inputs, or on one file:
//   build/sanitize/fuzz/json --seconds=60 --seed=1
//   build/sanitize/fuzz/json FILE
// Input i of a seed is always the same: the harness's sample() draws it, and the driver damages most of them.
// A child process runs the inputs, in its own folder. If it crashes, takes too long or needs too much memory,
// the parent process keeps the input and reports a finding; the exit code is then 1.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <thread>
#include <vector>

#include "src/core/args.h"
#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr size_t kMostBytes = size_t(128) << 20;  // the limit of an input

// The progress of the child, in shared memory.
struct Shared {
  std::atomic<int64_t> begun{0}, size{0};  // begun inputs; the bytes of the last one
  uint8_t bytes[kMostBytes];
};

struct Settings {
  double seconds = 60, input_seconds = 10;
  int64_t seed = 1, input_mib = 1024;
  std::string file;  // if given, the only input
};

// One to four times: deletes, doubles, cuts off or overwrites a piece, or replaces it by one of another
// sample.
void damage(std::string& input, Rng& rng) {
  for (uint64_t times = 1 + rng.below(4); times > 0; --times) {
    const size_t at = rng.below(input.size() + 1);
    const size_t length = rng.below(std::min<size_t>(input.size() - at, rng.below(4) ? 8 : 4096) + 1);
    switch (rng.below(5)) {
      case 0: input.erase(at, length); break;
      case 1: input.insert(at, input.substr(at, length)); break;
      case 2: input.resize(at); break;
      case 3:
        if (at < input.size())
          input[at] = rng.below(2) ? char(rng.below(256)) : char(input[at] ^ 1 << rng.below(8));
        break;
      default: {
        const std::string other = sample(rng);
        const size_t from = rng.below(other.size() + 1);
        input.replace(at, length, other.substr(from, rng.below(64)));
      }
    }
  }
}

std::string input_of(const Settings& settings, int64_t number) {
  Rng rng(uint64_t(settings.seed), uint64_t(number));
  std::string input = sample(rng);
  if (rng.below(4) != 0) damage(input, rng);
  input.resize(std::min(input.size(), kMostBytes));
  return input;
}

void run(const std::string& input, Shared& shared) {
  std::memcpy(shared.bytes, input.data(), input.size());
  shared.size = int64_t(input.size());
  ++shared.begun;
  const std::vector<uint8_t> exact(input.begin(), input.end());  // so that ASan sees a read past its end
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

// The work of the child process.
void run_all(const Settings& settings, const std::string& file_bytes, Shared& shared) {
  if (!settings.file.empty()) return run(file_bytes, shared);
  const auto start = Clock::now();
  for (int64_t i = 0; seconds_since(start) < settings.seconds; ++i) run(input_of(settings, i), shared);
}

int64_t resident_mib(pid_t process) {
  std::ifstream statm("/proc/" + std::to_string(process) + "/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE) >> 20;
}

std::string kill_and_say(pid_t child, const std::string& why) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return why;
}

// Waits for the child. Returns what was wrong with its last input, or "".
std::string watch(pid_t child, const Settings& settings, const Shared& shared) {
  int64_t begun = 0;
  auto changed = Clock::now();
  for (;;) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFSIGNALED(status)) return std::string("ended by a signal: ") + strsignal(WTERMSIG(status));
      return WEXITSTATUS(status) == 0 ? "" : "ended with exit code " + std::to_string(WEXITSTATUS(status));
    }
    if (const int64_t now = shared.begun; now != begun) begun = now, changed = Clock::now();
    if (seconds_since(changed) > settings.input_seconds)
      return kill_and_say(child, "took more than " + std::to_string(int(settings.input_seconds)) + " s");
    if (resident_mib(child) > settings.input_mib)
      return kill_and_say(child, "took more than " + std::to_string(settings.input_mib) + " MiB");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(bool(file), path, " cannot be opened");
  return {std::istreambuf_iterator<char>(file), {}};
}

int run_and_watch(const std::string& program, const Settings& settings) {
  const std::string bytes = settings.file.empty() ? "" : read_file(settings.file);
  check(bytes.size() <= kMostBytes, settings.file, " is larger than ", kMostBytes, " bytes");
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(memory != MAP_FAILED, "no memory to share with the child");
  Shared& shared = *new (memory) Shared;
  std::string folder = (fs::temp_directory_path() / "gradus-fuzz-XXXXXX").string();
  check(mkdtemp(folder.data()) != nullptr, folder, " cannot be created");

  const auto start = Clock::now();
  const pid_t child = fork();
  check(child >= 0, "cannot start a child process");
  if (child == 0) {
    fs::current_path(folder);
    run_all(settings, bytes, shared);
    std::exit(0);  // where LeakSanitizer looks for leaks
  }
  const std::string why = watch(child, settings, shared);
  fs::remove_all(folder);

  const std::string name = fs::path(program).filename().string(), kept = program + ".input";
  const int64_t inputs = shared.begun;
  std::cout << name << ": " << inputs << " inputs in " << int(seconds_since(start) + 0.5) << " s, seed "
            << settings.seed;
  if (why.empty()) return std::cout << ": nothing found\n", 0;
  std::cout << ": FOUND: input " << inputs - 1 << " " << why << "\n";
  if (settings.file.empty()) {
    std::ofstream(kept, std::ios::binary).write(reinterpret_cast<const char*>(shared.bytes), shared.size);
    std::cout << "  its " << shared.size << " bytes are kept; repeat: " << program << " " << kept << "\n";
  }
  return 1;
}

}  // namespace
}  // namespace gradus::fuzz

int main(int argc, char** argv) {
  using namespace gradus;
  LLVMFuzzerInitialize(&argc, &argv);
  try {
    fuzz::Settings settings;
    const bool has_file = argc > 1 && argv[1][0] != '-';
    if (has_file) settings.file = argv[1];
    Args args(argc - has_file, argv + has_file, "fuzz", "runs a harness on a FILE, or on generated inputs");
    settings.seconds = args.number("seconds", settings.seconds, "seconds with new inputs", 0, 1e6);
    settings.seed = args.integer("seed", settings.seed, "seed of the inputs", 0, INT64_MAX);
    settings.input_seconds =
        args.number("input-seconds", settings.input_seconds, "limit per input", 0.1, 1e6);
    settings.input_mib =
        args.integer("input-mib", settings.input_mib, "limit of the process's memory, in MiB", 1, 1 << 20);
    args.done();
    return fuzz::run_and_watch(argv[0], settings);
  } catch (const Error& e) {
    std::cerr << argv[0] << ": " << e.what() << "\n";
    return 2;
  }
}
