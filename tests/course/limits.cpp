// limits CPU WALL MEMORY USER REPORT OUTPUT COMMAND...: runs a command that is not trusted (grade.sh).
//   CPU, WALL   the seconds it may take, of the processor and by the clock
//   MEMORY      the MiB it may hold
//   USER        the id of the user and group that it runs as; 0: as the one who calls
// These hold for all of its processes together. More:
//   REPORT      a file for what it writes to file descriptor 4, if that begins with the key to be read from 3
//   OUTPUT      a file for the first 64 KiB of what it prints
// Prints how it ended, as "exit N SECONDS", "signal N SECONDS", "timeout 0 SECONDS" or "memory 0 SECONDS".
// When this ends, so has everything that the command started. Exit code 2: the command could not be run at
// all.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr rlim_t kMiB = 1 << 20;
constexpr rlim_t kLargestFile = 64 * kMiB;
constexpr rlim_t kMostTasks = 64;  // processes and threads together
constexpr rlim_t kMostFiles = 256;
constexpr size_t kOutputKept = 64 << 10;
constexpr size_t kReportKept = 8 << 20;

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "limits: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(2);
}

struct Limits {
  double cpu, wall;
  rlim_t memory;
  uid_t user;
};

// A pipe whose ends are out of the way of the numbers that the command gets, and closed to it.
struct Pipe {
  int read, write;
  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) give_up("no pipe");
    read = fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
    write = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    close(ends[0]);
    close(ends[1]);
  }
};

struct Pipes {
  Pipe key, report, output, trouble;  // trouble: why the command could not be started
};

// ---- processes ------------------------------------------------------------------------------------
struct Process {
  pid_t pid, parent;
  uid_t owner;
  double cpu;  // seconds
  rlim_t threads, bytes;
};

std::vector<Process> all_processes() {
  const auto page = static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  const auto tick = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::vector<Process> all;
  DIR* folder = opendir("/proc");
  if (!folder) give_up("/proc cannot be read");
  while (const dirent* entry = readdir(folder)) {
    const pid_t pid = std::atoi(entry->d_name);
    const std::string path = std::string("/proc/") + entry->d_name;
    struct stat about;
    std::ifstream file(path + "/stat");
    std::string line;
    if (pid <= 0 || stat(path.c_str(), &about) != 0 || !std::getline(file, line)) continue;
    std::istringstream rest(
        line.substr(line.rfind(')') + 1));  // field 3 of proc(5); the name may hold anything
    const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
    const auto field = [&](size_t number) { return std::atol(fields.at(number - 3).c_str()); };
    all.push_back({pid, static_cast<pid_t>(field(4)), about.st_uid,
                   static_cast<double>(field(14) + field(15)) / tick, static_cast<rlim_t>(field(20)),
                   static_cast<rlim_t>(field(24)) * page});
  }
  closedir(folder);
  return all;
}

// Children, their children and so on. Orphans among them become children of this process (a subreaper).
std::vector<Process> descendants() {
  std::vector<Process> left = all_processes(), found;
  std::vector<pid_t> parents{getpid()};
  while (!parents.empty()) {
    std::vector<pid_t> next;
    for (const Process& p : left) {
      if (std::find(parents.begin(), parents.end(), p.parent) == parents.end()) continue;
      found.push_back(p);
      next.push_back(p.pid);
    }
    parents = next;
  }
  return found;
}

// They are all stopped before the first is killed: the place of one that is gone could be taken by a new one.
void end_all() {
  for (size_t before = 0, rounds = 0; rounds < 1000; rounds++) {
    const auto all = descendants();
    for (const Process& p : all) kill(p.pid, SIGSTOP);
    if (all.size() == before) break;
    before = all.size();
  }
  for (auto all = descendants(); !all.empty(); all = descendants()) {
    for (const Process& p : all) kill(p.pid, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    usleep(1000);
  }
}

// ---- the command ----------------------------------------------------------------------------------------
bool limit(int resource, rlim_t most) {
  const rlimit both{most, most};
  return setrlimit(static_cast<__rlimit_resource>(resource), &both) == 0;
}

// The system counts all tasks of a user: a user of its own has none yet, the one who calls has some.
rlim_t tasks_allowed(uid_t user) {
  rlim_t most = kMostTasks;
  if (user == 0)
    for (const Process& p : all_processes()) most += p.owner == getuid() ? p.threads : 0;
  return most;
}

bool set_limits(const Limits& limits) {
  // If memory runs out on the machine, this goes first.
  if (std::ofstream first{"/proc/self/oom_score_adj"}; first) first << 1000;
  return limit(RLIMIT_DATA, limits.memory) && limit(RLIMIT_CORE, 0) && limit(RLIMIT_FSIZE, kLargestFile) &&
         limit(RLIMIT_NOFILE, kMostFiles) && limit(RLIMIT_NPROC, tasks_allowed(limits.user));
}

bool become(uid_t user) {
  if (user == 0) return true;
  return setgroups(0, nullptr) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0;
}

[[noreturn]] void be_command(const Limits& limits, const Pipes& pipes, char** command) {
  const int nothing = open("/dev/null", O_RDONLY);
  const std::array<int, 5> numbers{nothing, pipes.output.write, pipes.output.write, pipes.key.read,
                                   pipes.report.write};
  bool good = setsid() != -1 && nothing >= 0;
  for (int i = 0; i < 5; i++) good = good && dup2(numbers[i], i) == i;
  good = good && set_limits(limits) && become(limits.user) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (good) execvp(command[0], command);
  const std::string why = std::string(command[0]) + ": " + std::strerror(errno);
  [[maybe_unused]] const auto written = write(pipes.trouble.write, why.data(), why.size());
  _exit(2);
}

// ---- the run --------------------------------------------------------------------------------------------
double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Takes what is there from a pipe that does not block; false at its end.
bool drain(int fd, size_t keep, std::string& text) {
  char part[65536];
  for (;;) {
    const ssize_t got = read(fd, part, sizeof part);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    text.append(part, std::min(static_cast<size_t>(got), keep - text.size()));
    if (got < static_cast<ssize_t>(sizeof part)) return true;
  }
}

struct Result {
  std::string ended, report, output;
};

Result watch(pid_t command, const Limits& limits, const Pipes& pipes) {
  Result result;
  pollfd fds[2] = {{pipes.output.read, POLLIN, 0}, {pipes.report.read, POLLIN, 0}};
  const auto take = [&] {
    if (!drain(pipes.output.read, kOutputKept, result.output)) fds[0].fd = -1;
    if (!drain(pipes.report.read, kReportKept, result.report)) fds[1].fd = -1;
  };
  const double start = seconds();
  while (result.ended.empty()) {
    poll(fds, 2, 50);
    take();
    double cpu = 0;
    rlim_t held = 0;
    for (const Process& p : descendants()) {
      cpu += p.cpu;
      held += p.bytes;
    }
    int status;
    if (waitpid(command, &status, WNOHANG) == command)
      result.ended = WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                                       : "signal " + std::to_string(WTERMSIG(status));
    else if (held > limits.memory)
      result.ended = "memory 0";
    else if (cpu > limits.cpu || seconds() - start > limits.wall)
      result.ended = "timeout 0";
  }
  char took[32];
  std::snprintf(took, sizeof took, " %.2f", seconds() - start);
  result.ended += took;
  end_all();
  take();
  return result;
}

// A key that nobody can guess, as 64 letters.
std::string make_key() {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) give_up("no random numbers");
  std::string key;
  for (const unsigned char byte : bytes) {
    key += static_cast<char>('a' + byte / 16);
    key += static_cast<char>('a' + byte % 16);
  }
  return key;
}

void write_file(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) give_up(path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) {
    std::fprintf(stderr, "limits: write limits CPU WALL MEMORY USER REPORT OUTPUT COMMAND...\n");
    return 2;
  }
  const Limits limits{std::atof(argv[1]), std::atof(argv[2]), std::strtoul(argv[3], nullptr, 10) * kMiB,
                      static_cast<uid_t>(std::strtoul(argv[4], nullptr, 10))};
  const std::string key = make_key();
  const Pipes pipes;
  if (write(pipes.key.write, key.data(), key.size()) != static_cast<ssize_t>(key.size())) give_up("no key");
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) give_up("cannot wait for orphans");
  const pid_t command = fork();
  if (command == -1) give_up("no process");
  if (command == 0) be_command(limits, pipes, argv + 7);
  for (const Pipe* p : {&pipes.report, &pipes.output, &pipes.trouble}) {
    close(p->write);
    fcntl(p->read, F_SETFL, O_NONBLOCK);
  }
  const Result result = watch(command, limits, pipes);
  std::string trouble;
  drain(pipes.trouble.read, 1000, trouble);
  if (!trouble.empty()) {
    std::fprintf(stderr, "limits: %s\n", trouble.c_str());
    return 2;
  }
  const bool sealed = result.report.compare(0, key.size(), key) == 0;
  write_file(argv[5], sealed ? result.report.substr(key.size()) : "");
  write_file(argv[6], result.output);
  std::puts(result.ended.c_str());
}
