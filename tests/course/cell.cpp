#include "tests/course/cell.h"

#include <pwd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>

namespace gradus::course {

constexpr int kMemory = 512, kLargestFile = 64;  // MiB

// Folders outside the cell in which a run may leave files.
static std::string folders_of_all() { return say(fs::temp_directory_path(), " /dev/shm /var/tmp"); }

// An unused user id that owns no process, file or IPC object, so that everything it owns later comes from the
// run. 0: this process is not root, so the student's code runs as the user of this process.
static uid_t free_user() {
  if (getuid() != 0) return 0;
  for (uid_t user = 20000 + uid_t(getpid()) % 40000;; ++user)
    if (!getpwuid(user) &&
        !run(say("grep -q '^Uid:.*[[:blank:]]", user, "' /proc/[0-9]*/status || grep -qw ", user,
                 " /proc/sysvipc/* || find ", folders_of_all(), " -user ", user, " 2>/dev/null | grep -q ."))
             .good())
      return user;
}

// A key of 64 letters that the student's code cannot guess.
static std::string new_key() {
  std::random_device draw;
  std::string key;
  for (int i = 0; i < 64; ++i) key += char('a' + draw() % 16);
  return key;
}

static std::string environment(const std::string& scratch) {
  const auto setting = [](const char* name, const char* usual) {
    const char* value = std::getenv(name);
    return say(" ", name, "=", shell_word(value ? value : usual));
  };
  return say("env -i HOME=", scratch, " TMPDIR=", scratch, " LC_ALL=C OMP_NUM_THREADS=2 GOMP_SPINCOUNT=1000",
             setting("PATH", ""), setting("CXX", "g++"), setting("ARCH", "-march=native"),
             setting("ONEDNN", ""), " ");
}

Cell::Cell() : user_(free_user()) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  fs::permissions(work_.path(), fs::perms(0711));
  for (const char* folder : {"tree", "bin", "objects", "answers", "out"})
    fs::create_directory(work_ / folder);
  fs::permissions(work_ / "out", fs::perms(0700));  // closed to the student's code
}
Cell::~Cell() {
  if (user_ == 0) return;
  run(say("find ", folders_of_all(), " -user ", user_, " -delete"));
  run(as_user() + "ipcrm --all");  // shared memory etc. outlives the process that made it
}

std::string Cell::as_user() const {
  return user_ == 0 ? ""
                    : say("setpriv --reuid=", user_, " --regid=", user_, " --clear-groups --no-new-privs ");
}

Ended Cell::limited(double seconds, const std::string& command) {
  const std::string scratch = (work_ / "scratch").string(), out = (work_ / "out").string(), key = new_key();
  fs::remove_all(scratch);
  fs::create_directory(scratch);
  fs::permissions(scratch, fs::perms(0700));
  if (user_ != 0 && chown(scratch.c_str(), user_, user_) != 0)
    throw GraderError("the student's user cannot own a folder");
  write(out + "/key", key);
  const std::string limits =
      say("timeout -k 1 ", seconds, " prlimit --core=0 --nofile=256 --fsize=", kLargestFile << 20,
          " --data=", kMemory << 20, isolated() ? " --nproc=64 " : " ");
  // The signal reaches all processes of the user in one step, so none of them can start a new one meanwhile.
  // A process that it cannot end may keep the pipes open, so their readers have a time limit, too.
  const std::string end_all = user_ == 0 ? "true" : as_user() + "sh -c 'kill -KILL -1'",
                    reader = say("timeout ", seconds + 9);
  const auto start = std::chrono::steady_clock::now();
  // File descriptors: 3 the key; 4 the report, a pipe, so that written data cannot be changed; 5 the output.
  run(say("cd ", work_ / "tree", " && exec 3<", out, "/key && { { ", limits, as_user(), environment(scratch),
          command, " 4>&1 >&5 2>&5 5>&-; echo $? >", out, "/code; ", end_all, "; } | ", reader,
          " head -c 8M >", out, "/report; } 5>&1 | { ", reader, " head -c 64K >", out, "/output; ", reader,
          " cat >/dev/null; }"));
  Ended e;
  e.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Orphans became children of this process. Until they are reaped, they count towards the user's --nproc.
  for (int i = 0; i < 500; ++i) {
    const pid_t gone = waitpid(-1, nullptr, WNOHANG);
    if (gone < 0) break;
    if (gone == 0) usleep(10000);
  }
  e.code = std::atoi(read(out + "/code").c_str());
  e.late = e.code == 124 || (e.code == 137 && e.seconds >= seconds);
  e.output = read(out + "/output");
  if (const std::string report = read(out + "/report"); report.starts_with(key))
    e.report = report.substr(key.size());
  return e;
}

}  // namespace gradus::course
