// Outputs appear whole or not at all.
#include "io/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "file_helpers.h"

namespace volpipe::io {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;
using Names = std::vector<std::string>;

void write_text(const std::string& path, const std::string& text, bool overwrite = false) {
  AtomicFile file(path, overwrite);
  file.write(text.data(), text.size());
  file.commit();
}

TEST(AtomicFile, AppearsOnlyOnCommit) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder / "a.nii.gz");
    file.write("abc", 3);
    EXPECT_FALSE(fs::exists(folder / "a.nii.gz"));
    EXPECT_EQ(read_bytes(file.partial_path()), "abc");
    file.write("de", 2);
    EXPECT_EQ(file.bytes_written(), 5u);
    file.commit();
  }
  EXPECT_EQ(read_bytes(folder / "a.nii.gz"), "abcde");
  EXPECT_EQ(folder.names(), Names{"a.nii.gz"});
}

TEST(AtomicFile, RemovesWhatWasNotCommitted) {
  TemporaryFolder folder;
  { AtomicFile(folder / "a.bin").write("abc", 3); }
  EXPECT_EQ(folder.names(), Names{});
}

TEST(AtomicFile, PartialNameIsHiddenAndKeepsTheExtension) {
  TemporaryFolder folder;
  const std::string& mark = process_mark();
  EXPECT_EQ(AtomicFile(folder / "a.b.nii.gz").partial_path(), folder / (".a.b." + mark + ".partial.nii.gz"));
  EXPECT_EQ(AtomicFile(folder / "scan.nrrd").partial_path(), folder / (".scan." + mark + ".partial.nrrd"));
  EXPECT_EQ(AtomicFile(folder / "plain").partial_path(), folder / (".plain." + mark + ".partial"));
  for (const std::string& name :
       {".a.b." + mark + ".partial.nii.gz", ".plain." + mark + ".partial", ".a." + mark + "-3.partial.nrrd"}) {
    EXPECT_TRUE(is_partial_file_of(name, mark)) << name;
    EXPECT_FALSE(is_partial_file_of(name, "0123456789abcdef")) << name;
    EXPECT_FALSE(is_partial_file_of(name.substr(1), mark)) << name;
  }
}

TEST(AtomicFile, LeavesAnotherWritersPartialFileAlone) {
  TemporaryFolder folder;
  AtomicFile first(folder / "a.bin", true), second(folder / "a.bin", true);
  EXPECT_NE(first.partial_path(), second.partial_path());
  first.write("first", 5);
  second.write("second", 6);
  first.commit();
  second.commit();
  EXPECT_EQ(read_bytes(folder / "a.bin"), "second");
}

TEST(AtomicFile, MakesFolders) {
  TemporaryFolder folder;
  write_text(folder / "ü 画/b/c.txt", "text");
  EXPECT_EQ(read_bytes(folder / "ü 画/b/c.txt"), "text");
}

TEST(AtomicFile, TakesALongName) {
  TemporaryFolder folder;
  std::string stem;
  for (int i = 0; i < 83; ++i) stem += "画";
  write_text(folder / (stem + ".nii"), "text");
  EXPECT_EQ(read_bytes(folder / (stem + ".nii")), "text");
  expect_error(ErrorCode::unsupported, "too long", [&] { write_text(folder / (stem + stem), "text"); });
}

TEST(AtomicFile, MovesWithoutLosingTheFile) {
  TemporaryFolder folder;
  AtomicFile first(folder / "a.txt");
  first.write("one ", 4);
  AtomicFile second(std::move(first));
  second.write("two", 3);
  second.commit();
  EXPECT_EQ(read_bytes(folder / "a.txt"), "one two");
}

TEST(AtomicFile, RefusesAnExistingFile) {
  TemporaryFolder folder;
  write_bytes(folder / "a.txt", "old");
  expect_error(ErrorCode::exists, "exists already", [&] { write_text(folder / "a.txt", "new"); });
  EXPECT_EQ(read_bytes(folder / "a.txt"), "old");
  EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST(AtomicFile, RefusesAFileThatAppearedMeanwhile) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder / "a.txt");
    file.write("new", 3);
    write_bytes(folder / "a.txt", "theirs");
    expect_error(ErrorCode::exists, "exists already", [&] { file.commit(); });
  }
  EXPECT_EQ(read_bytes(folder / "a.txt"), "theirs");
  EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST(AtomicFile, OverwritesWhenAllowed) {
  TemporaryFolder folder;
  write_bytes(folder / "a.txt", "old and longer");
  write_text(folder / "a.txt", "new", true);
  EXPECT_EQ(read_bytes(folder / "a.txt"), "new");
  EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST(AtomicFile, RefusesTargetsThatAreNotFiles) {
  TemporaryFolder folder;
  fs::create_directory(folder / "sub");
  expect_error(ErrorCode::exists, "not a regular file", [&] { AtomicFile(folder / "sub", true); });
  expect_error(ErrorCode::unsupported, "file name", [&] { AtomicFile(folder.path() + "/", true); });
  expect_error(ErrorCode::exists, "not a regular file", [&] { AtomicFile("/dev/null", true); });
}

TEST(AtomicFile, SaysThatAFolderIsAFile) {
  TemporaryFolder folder;
  write_bytes(folder / "file", "x");
  expect_error(ErrorCode::exists, "a file where a folder is needed", [&] { AtomicFile(folder / "file/a.txt"); });
}

TEST(AtomicFile, RefusesToCommitNothing) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder / "a.txt");
    expect_error(ErrorCode::output, "0 bytes", [&] { file.commit(); });
  }
  EXPECT_EQ(folder.names(), Names{});
}

TEST(AtomicFile, CommitsWhatALibraryWroteByName) {
  TemporaryFolder folder;
  AtomicFile file(folder / "a.nrrd");
  fs::remove(file.partial_path());
  write_bytes(file.partial_path(), "by name");
  file.commit();
  EXPECT_EQ(read_bytes(folder / "a.nrrd"), "by name");
}

TEST(AtomicFile, NoticesThatThePartialFileVanishedOrChanged) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder / "a.txt");
    file.write("abc", 3);
    fs::resize_file(file.partial_path(), 2);
    expect_error(ErrorCode::output, "2 bytes instead of 3", [&] { file.commit(); });
    fs::remove(file.partial_path());
    expect_error(ErrorCode::output, "removed or replaced", [&] { file.commit(); });
    fs::create_symlink("/dev/full", file.partial_path());
    expect_error(ErrorCode::output, "removed or replaced", [&] { file.commit(); });
  }
  EXPECT_EQ(folder.names(), Names{});
}

// Puts /dev/full under the descriptor of an open file, as a full disk would be.
void fill_the_disk(const std::string& path) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (fs::read_symlink(entry.path(), ignored) != path) continue;
    const int full = ::open("/dev/full", O_WRONLY);
    ::dup2(full, std::stoi(entry.path().filename().string()));
    ::close(full);
    return;
  }
  FAIL() << path << " is not open";
}

TEST(AtomicFile, ReportsAFullDisk) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder / "a.txt");
    file.write("abc", 3);
    fill_the_disk(file.partial_path());
    expect_error(ErrorCode::output, "no space left on the device that holds '" + folder.path() + "'",
                 [&] { file.write("d", 1); });
  }
  EXPECT_EQ(folder.names(), Names{});
}

TEST(AtomicFile, ReportsAFileSizeLimit) {
  TemporaryFolder folder;
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small = {1000, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    AtomicFile file(folder / "a.bin");
    const std::string data(1001, 'x');
    expect_error(ErrorCode::output, "ulimit -f", [&] { file.write(data.data(), data.size()); });
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder.names(), Names{});
}

TEST(AtomicFile, ReportsAReadOnlyFolder) {
  TemporaryFolder folder;
  fs::create_directory(folder / "locked");
  fs::permissions(folder / "locked",
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  fs::permissions(folder.path(), fs::perms::all);
  const bool root = ::geteuid() == 0;
  ASSERT_TRUE(!root || ::seteuid(65534) == 0);
  expect_error(ErrorCode::output, "no permission to write in '" + (folder / "locked") + "'",
               [&] { AtomicFile(folder / "locked/a.txt"); });
  expect_error(ErrorCode::output, "no permission", [&] { AtomicFile(folder / "locked/sub/a.txt"); });
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
}

TEST(AtomicFile, ExplainsFailuresInPlainWords) {
  EXPECT_NE(explain_output_failure(EROFS, "/a/b").find("read-only file system"), std::string::npos);
  EXPECT_NE(explain_output_failure(EDQUOT, "/a/b").find("quota"), std::string::npos);
  EXPECT_NE(explain_output_failure(EMFILE, "/a/b").find("ulimit -n"), std::string::npos);
  EXPECT_NE(explain_output_failure(EIO, "/a/b").find("'/a/b'"), std::string::npos);
}

TEST(AtomicFile, AKillLeavesNothingUnderTheFinalName) {
  TemporaryFolder folder;
  const std::string whole(1 << 20, 'v');
  for (int round = 0; round < 40; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      AtomicFile file(folder / "a.bin");
      for (int part = 0; part < 16; ++part) file.write(whole.data(), whole.size() / 16);
      file.commit();
      ::_exit(0);
    }
    ::usleep(useconds_t(round * 60));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    if (fs::exists(folder / "a.bin")) {
      EXPECT_EQ(read_bytes(folder / "a.bin"), whole);
      fs::remove(folder / "a.bin");
    }
  }
}

}  // namespace
}  // namespace volpipe::io
