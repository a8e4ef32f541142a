// A write that fails - no space, no folder, no permission - is a sentence, and never damages the earlier
// file.
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>

#include "src/io/atomic_file.h"
#include "tests/io/safetensors_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

class L03_Disk : public SafetensorsTest {};

// Writing `tensor` must fail with a sentence, leave the earlier file as it was and no temporary file.
void expect_write_fails(const std::string& path, const TensorEntry& tensor, const std::string& part) {
  expect_refused(part, [&] { write_safetensors(path, {tensor}); });
}

TEST_F(L03_Disk, AFileSizeLimitLeavesTheEarlierFile) {
  const Sample sample;
  write_safetensors(file_, sample.entries);
  const std::string big(1 << 20, 'b');
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{}, small{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  for (const size_t limit : {0u, 8u, 100u, 4096u, 1u << 19}) {  // in the size, the header, the data
    small = {limit, old.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_write_fails(file_, {"big", DType::U8, {1 << 20}, big.data()},
                       "an earlier file of this name is unchanged");
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_EQ(sample.difference(file_), "") << "limit " << limit;
    EXPECT_EQ(files(), 1) << "limit " << limit;
  }
  std::signal(SIGXFSZ, old_handler);
}

TEST_F(L03_Disk, AFullDiskLeavesTheEarlierFile) {
  const std::string disk = path("disk");
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=256k") != 0) GTEST_SKIP() << "mounting needs root";
  file_ = disk + "/a.safetensors";
  const Sample sample;
  write_safetensors(file_, sample.entries);
  const std::string big(1 << 20, 'b');
  expect_write_fails(file_, {"big", DType::U8, {1 << 20}, big.data()}, "No space left on device");
  EXPECT_EQ(sample.difference(file_), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(disk), fs::directory_iterator()), 1);
  write_safetensors(file_, sample.entries);  // and there is room again
  ASSERT_EQ(::umount(disk.c_str()), 0);
}

TEST_F(L03_Disk, PathsThatCannotBeWrittenAreRefused) {
  const float x = 1;
  expect_write_fails((root_ / "no" / "folder").string(), {"x", DType::F32, {}, &x}, "cannot be written");
  expect_write_fails(root_.string(), {"x", DType::F32, {}, &x}, "no regular file");
  expect_write_fails("/dev/full", {"x", DType::F32, {}, &x}, "no regular file");  // must not be replaced
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_EQ(files(), 0);
}

TEST_F(L03_Disk, AnAtomicFileThatIsNotCommittedLeavesNothing) {
  write(file_, "old");
  {
    AtomicFile file(file_);
    file.write("new", 3);
    EXPECT_EQ(read(file_), "old");
  }
  EXPECT_EQ(read(file_), "old");
  EXPECT_EQ(files(), 1);
  AtomicFile file(file_);
  file.write("new", 3);
  file.write(nullptr, 0);
  file.commit();
  EXPECT_EQ(read(file_), "new");
}

}  // namespace
}  // namespace gradus
