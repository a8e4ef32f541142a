// Files as the system provides them: in parts, interrupted, large, or not files at all; and the files that
// killed runs leave.
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>

#include "src/data/corpus.h"
#include "src/io/atomic_file.h"
#include "tests/io/safetensors_testing.h"
#include "tests/io/system_calls.h"

namespace gradus {
namespace {

// Of any length, without a pattern that repeats at a block's size.
std::string bytes_of(size_t length) {
  std::string bytes(length, '\0');
  uint64_t state = length;
  for (char& c : bytes) c = char((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  return bytes;
}

class L03_System : public SafetensorsTest {
 protected:
  static void system_gives(size_t bytes_at_once, int64_t interruptions) {
    system_calls = {};
    system_calls.most_at_once = bytes_at_once, system_calls.interruptions = interruptions;
  }
  void TearDown() override {
    system_calls = {};
    SafetensorsTest::TearDown();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(root_)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
};

TEST_F(L03_System, WritesAndReadsInPartsAreWhole) {
  const std::string data = bytes_of(100'003);
  const std::vector<TensorEntry> tensors{{"x", DType::U8, {100'003}, data.data()}};
  write_safetensors(file_, tensors);
  const std::string whole = read(file_);
  for (const size_t at_once : {size_t(1) << 16, size_t(60'000), size_t(4096), size_t(77)}) {
    system_gives(at_once, INT64_MAX);
    write_safetensors(file_, tensors);
    EXPECT_GT(system_calls.parts, 100'003 / int64_t(at_once)) << "the system wrote all at once";
    system_gives(at_once, INT64_MAX);
    std::string back(data.size(), '?');
    SafetensorsFile(file_).read("x", DType::U8, {100'003}, back.data());
    EXPECT_GT(system_calls.parts, 100'003 / int64_t(at_once)) << "the system read all at once";
    EXPECT_TRUE(back == data) << at_once;
    system_gives(SIZE_MAX, 0);
    EXPECT_TRUE(read(file_) == whole) << at_once;
  }
}

TEST_F(L03_System, FilesOfEverySizeAroundABlockAreExact) {
  for (const size_t size : {65'535u, 65'536u, 65'537u, 131'072u, 300'001u}) {
    const std::string bytes = bytes_of(size);
    write_file(file_, bytes);
    EXPECT_TRUE(read(file_) == bytes) << size;
    EXPECT_TRUE(read_text_file(file_) == bytes) << size;
    write_safetensors(file_, {{"a", DType::U8, {int64_t(size)}, bytes.data()},
                              {"b", DType::U8, {int64_t(size)}, bytes.data()}});
    const SafetensorsFile file(file_);
    for (const char* name : {"a", "b"}) {
      std::string read(size, '?');
      file.read(name, DType::U8, {int64_t(size)}, read.data());
      EXPECT_TRUE(read == bytes) << name << " of " << size;
    }
  }
}

// Runs `body` in a separate process, because a pipe without a writer would block it forever.
std::string error_in_time(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(2);
    std::string said = "no error";
    try {
      body();
    } catch (const Error& e) {
      said = e.what();
    }
    ::_exit(::write(ends[1], said.data(), said.size()) < 0);
  }
  ::close(ends[1]);
  std::string said;
  char part[256];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;) said.append(part, size_t(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? "it was blocked" : said;
}

TEST_F(L03_System, WhatIsNoRegularFileIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  ASSERT_EQ(::symlink(file_.c_str(), (root_ / "link").c_str()), 0);
  const float x = 1;
  for (const std::string& path : {file_, path("link"), root_.string(), std::string("/dev/zero")}) {
    const auto open = [&] { SafetensorsFile{path}; };
    const auto read = [&] { read_text_file(path); };
    const auto write = [&] { write_safetensors(path, {{"x", DType::F32, {}, &x}}); };
    std::vector<std::function<void()>> bodies{open, read};
    if (path != "/dev/zero") bodies.push_back(write);  // a faulty writer, run by root, would replace it
    for (const std::function<void()>& body : bodies) {
      const std::string said = error_in_time(body);
      EXPECT_NE(said.find("no regular file"), std::string::npos) << path << ": " << said;
    }
  }
  EXPECT_NE(error_in_time([&] { load_corpus(file_); }).find("1 no regular file"), std::string::npos);
}

TEST_F(L03_System, TheNextSaveRemovesWhatKilledRunsLeft) {
  write(file_, "old");
  if (const pid_t child = ::fork(); child == 0) {
    AtomicFile half_way(file_);
    half_way.write("half", 4);
    ::kill(::getpid(), SIGKILL);
  } else {
    ::waitpid(child, nullptr, 0);
  }
  write(file_ + ".tmp-mine", "no number: not ours");
  write(file_ + ".tmp-1", "one number");
  write(file_ + ".tmp-2024-11-26", "three");
  write(path("b.safetensors.tmp-1-0"), "of another file");
  fs::create_directory(file_ + ".tmp-2-0");
  ASSERT_EQ(files(), 7);
  EXPECT_EQ(read(file_), "old");
  write_file(file_, "new");
  EXPECT_EQ(read(file_), "new");
  EXPECT_EQ(names(), (std::vector<std::string>{"a.safetensors", "a.safetensors.tmp-1",
                                               "a.safetensors.tmp-2-0", "a.safetensors.tmp-2024-11-26",
                                               "a.safetensors.tmp-mine", "b.safetensors.tmp-1-0"}));
  fs::current_path(root_);
  write_file("b.safetensors", "named without a folder");
  EXPECT_EQ(files(), 6) << "the left-over file must be replaced";
}

TEST_F(L03_System, AFileKeepsItsPermissions) {
  for (const auto mode : {fs::perms(0600), fs::perms(0664), fs::perms(0640)}) {
    write(file_, "old");
    fs::permissions(file_, mode);
    write_file(file_, "new");
    EXPECT_EQ(fs::status(file_).permissions(), mode);
  }
}

TEST_F(L03_System, WhatIsBeingWrittenIsNotRemoved) {
  AtomicFile first(file_), second(file_);  // two writers in one process
  first.write("first", 5);
  second.write("second", 6);
  const pid_t child = ::fork();
  if (child == 0) {  // a different process saves under the same name
    write_file(file_, "third");
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read(file_), "third");
  first.commit();
  EXPECT_EQ(read(file_), "first");
  second.commit();
  EXPECT_EQ(read(file_), "second");
  EXPECT_EQ(files(), 1);
}

}  // namespace
}  // namespace gradus
