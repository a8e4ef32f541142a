// The main of a test program when it is graded (grade.sh), in place of GoogleTest's. The program holds a
// student's code, so what it prints or writes proves nothing. What counts is GoogleTest's report, written to
// memory and sent to the grader (file descriptor 4) behind the key that the grader gave (3). The key is read
// when the tests are over, and the submission may call nothing that reads or writes what is open
// (graded_build.cpp); a program that ends before this main does has no report. Who bends C's streams in
// memory by hand can still cheat: code of one process cannot be kept from another part of it. Read what was
// handed in.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace {

constexpr int kKey = 3, kReport = 4;

void send(const char* text, size_t size) {
  while (size > 0) {
    const ssize_t sent = write(kReport, text, size);
    if (sent <= 0) _exit(2);
    text += sent;
    size -= static_cast<size_t>(sent);
  }
}

}  // namespace

int main(int, char** argv) {
  const int memory = memfd_create("report", MFD_CLOEXEC);
  std::string output = "--gtest_output=json:/proc/self/fd/" + std::to_string(memory);
  char* arguments[] = {argv[0], argv[1], output.data(), nullptr};  // the second is the filter
  int number = 3;
  testing::InitGoogleTest(&number, arguments);
  const int status = testing::UnitTest::GetInstance()->Run();
  std::string report(static_cast<size_t>(lseek(memory, 0, SEEK_END)), ' ');
  if (pread(memory, report.data(), report.size(), 0) != static_cast<ssize_t>(report.size())) _exit(2);
  char key[64];
  if (read(kKey, key, sizeof key) != sizeof key) _exit(2);
  send(key, sizeof key);
  send(report.data(), report.size());
  close(kReport);
  return status;
}
