#include "src/io/run_time_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <tuple>

#include "kernels/check.h"
#include "src/core/input_file.h"
#include "src/io/atomic_file.h"

namespace gradus {

namespace fs = std::filesystem;

// FNV-1a of 64 bits (Fowler, Noll & Vo), as 16 digits; not safe against deliberately equal hashes.
static std::string hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

static std::string text_of(const std::string& file) {  // "" if there is none
  std::error_code none;
  const auto bytes = fs::file_size(file, none);
  return !none && bytes > 0 ? read_text_file(file) : "";
}

// The texts of the headers that a source may include.
static std::string headers() {
  std::set<std::string> files;
  std::error_code none;
  for (const char* folder : {GRADUS_ROOT "/kernels", GRADUS_ROOT "/kernels/cpu", GRADUS_ROOT "/kernels/cuda",
                             GRADUS_ROOT "/kernels/emu"})
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
      if (entry.path().extension() == ".h" || entry.path().extension() == ".inc")
        files.insert(entry.path().string());
  std::string all;
  for (const std::string& file : files) all += text_of(file);
  return all;
}

// A library ends with the hash of what is before it, so that an incomplete file is noticed.
static bool whole(const std::string& library) {
  const std::string text = text_of(library);
  return text.size() > 16 && text.substr(text.size() - 16) == hash_of(text.substr(0, text.size() - 16));
}

std::string RunTimeCompiler::built_with(const std::string& device) {
#ifdef GRADUS_CUDA
  if (device == "cuda") return GRADUS_NVCC;
#endif
  return (void)device, GRADUS_COMPILE;
}

RunTimeCompiler::RunTimeCompiler(std::string folder, const std::string& command)
    : folder_(std::move(folder)), version_(hash_of(command + headers())) {
  std::istringstream words(command);
  for (std::string word; words >> word;) command_.push_back(word);
  check(!command_.empty() && !folder_.empty(), "compiler: no ", folder_.empty() ? "folder" : "command",
        " is named");
}

void RunTimeCompiler::open_folder() {
  const std::string mark = folder_ + "/version";
  std::error_code error;
  if (!fs::exists(folder_, error)) {
    make_folder_of(mark);
    fs::permissions(folder_, fs::perms::owner_all, error);
  }
  struct stat folder {};
  check(::stat(folder_.c_str(), &folder) == 0 && S_ISDIR(folder.st_mode), "compiler: '", folder_,
        "' is not a folder; name a different one");
  check(folder.st_uid == ::geteuid(), "compiler: the folder '", folder_,
        "' belongs to another user, and its code would be run; name a different one");
  check((folder.st_mode & (S_IWGRP | S_IWOTH)) == 0, "compiler: others may write to the folder '", folder_,
        "', and its code would be run; name a different one, or forbid it (chmod go-w)");
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error))
    check(fs::exists(mark) || entry->path().filename().string().starts_with("version"),
          "compiler: the folder '", folder_,
          "' holds files that are not compiled code; name a new or an empty one");
  check(!error, "compiler: the folder '", folder_, "' cannot be read: ", error.message());
  const std::string before = text_of(mark);
  other_version_ = !before.empty() && before != version_;
  if (before != version_) write_file(mark, version_);
  open_ = true;
}

void* RunTimeCompiler::function(const std::string& source, const char* name) {
  if (!open_) open_folder();
  const std::string stem = fs::absolute(folder_ + "/" + hash_of(version_ + source)).string();
  void*& library = libraries_[stem];
  if (!library) {
    const bool found = whole(stem + ".so");
    if (!found) compile(source, stem);
    library = ::dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    check(library, "compiler: '", stem, ".so' cannot be loaded: ", library ? "" : ::dlerror());
    ++(found ? from_folder_ : compiled_);
  }
  void* const function = ::dlsym(library, name);
  check(function, "compiler: '", stem, ".cpp' has no function '", name, "'");
  return function;
}

std::string RunTimeCompiler::problem() {
  const std::pair counts(compiled_, from_folder_);  // of other sources
  std::string said;
  try {
    function("extern \"C\" void gradus_nothing() {}\n", "gradus_nothing");
  } catch (const Error& e) {
    said = e.what();
  }
  std::tie(compiled_, from_folder_) = counts;
  return said;
}

// Runs a command. If it fails, returns the first error on its two outputs, or its status; else "".
static std::string error_of(std::vector<std::string> command, const std::string& log) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int output : {STDOUT_FILENO, STDERR_FILENO})
    ::posix_spawn_file_actions_addopen(&actions, output, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  pid_t process = 0;
  const int refused = ::posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  check(refused == 0, "compiler: '", command[0], "' cannot be started: ", std::strerror(refused));
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return "";
  const std::string said = text_of(log);
  const size_t error = said.find("error: ");
  if (error == said.npos)
    return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) + " ended it"
                               : "its status is " + std::to_string(WEXITSTATUS(status));
  const size_t begin = said.rfind('\n', error) + 1;
  return said.substr(begin, said.find('\n', error) - begin);
}

void RunTimeCompiler::compile(const std::string& source, const std::string& stem) const {
  struct OwnFiles {  // incomplete files, of this process only
    const std::string stem;
    ~OwnFiles() { ::unlink((stem + ".so").c_str()), ::unlink((stem + ".log").c_str()); }
  } const own{stem + "." + std::to_string(::getpid())};
  ::unlink((own.stem + ".log").c_str());  // of an earlier process with the same number
  write_file(stem + ".cpp", source);
  std::vector<std::string> command = command_;
  for (const std::string& word : {stem + ".cpp", std::string("-o"), own.stem + ".so"})
    command.push_back(word);
  const std::string error = error_of(command, own.stem + ".log");
  check(error.empty(), "compiler: '", command[0], "' failed on '", stem, ".cpp': ", error);
  const std::string library = text_of(own.stem + ".so");
  write_file(stem + ".so", library + hash_of(library));
}

}  // namespace gradus
