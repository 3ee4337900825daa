#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "checkpoint/sample_model.hpp"
#include "checkpoint/save_files.hpp"
#include "examples/temporary_folder.hpp"
#include "harness/ranks.hpp"
#include "runtime/error_matchers.hpp"
#include "weft/checkpoint.hpp"
#include "weft/error.hpp"

// What a saver or a reader may find in its folder.

namespace {

/// Done by this thread once, within its next fstat().
thread_local std::function<void()> g_meanwhile;

}  // namespace

// This program's own instead of the C library's.
extern "C" int fstat(int descriptor, struct stat* status) noexcept {
  if (auto const meanwhile = std::exchange(g_meanwhile, nullptr)) meanwhile();
  return static_cast<int>(syscall(SYS_fstat, descriptor, status));
}

namespace weft::test {
namespace {

class CheckpointFolderTest : public testing::Test {
 protected:
  CheckpointFolderTest() { std::filesystem::create_directories(path()); }

  [[nodiscard]] std::string path(std::string const& name = "") const { return folder_.file("ck" + name); }

  void save(std::int64_t step) const {
    run_thread_ranks(2, [&](Communicator& world) {
      CheckpointSaver saver(world, path());
      saver.save(random_ranges(model_, world.rank(), 2, 3), {.step = step});
      saver.wait();
    });
    EXPECT_EQ(difference(Checkpoint::open(path()), model_), "");
    EXPECT_EQ(Checkpoint::open(path()).info().step, step);
  }

  void expect_refused(ErrorCode code, std::initializer_list<char const*> parts) const {
    run_thread_ranks(2, [&](Communicator& world) {
      expect_error(code, parts, [&] { CheckpointSaver const saver(world, path()); });
    });
  }

  TemporaryFolder folder_;
  SampleModel model_ = sample_model(30, 1000);
};

TEST_F(CheckpointFolderTest, WhatNoSaveWroteStays) {
  std::vector<std::string> const foreign{"/save-000001/thesis.txt", "/save-000001/deeper/model.safetensors",
                                         "/save-000002/model-00001-of-00002.safetensors", "/save-000003", "/notes.txt"};
  for (std::string const& name : foreign) {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    SaveFiles::write(path(name), name);
  }
  std::filesystem::create_directories(folder_.file("elsewhere"));
  SaveFiles::write(folder_.file("elsewhere/model.safetensors"), "linked");
  SaveFiles::write(folder_.file("elsewhere/files-of-this-save.txt"), "model.safetensors\n");
  std::filesystem::create_directory_symlink(folder_.file("elsewhere"), path("/save-000004"));
  for (std::int64_t step = 1; step < 4; ++step) {
    save(step);
    for (std::string const& name : foreign) EXPECT_EQ(SaveFiles::read(path(name)), name);
    EXPECT_EQ(SaveFiles::read(folder_.file("elsewhere/model.safetensors")), "linked");
  }
  // Of the saves only the last is left: save-000005 to 7 were made.
  EXPECT_FALSE(std::filesystem::exists(path("/save-000005")));
  EXPECT_FALSE(std::filesystem::exists(path("/save-000006")));
  EXPECT_TRUE(std::filesystem::exists(path("/save-000007")));
}

TEST_F(CheckpointFolderTest, WhatSomebodyPutBesideASavesFilesStays) {
  save(1);
  SaveFiles::write(path("/save-000001/thesis.txt"), "mine");
  save(2);
  EXPECT_EQ(SaveFiles::read(path("/save-000001/thesis.txt")), "mine");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("/save-000001")), {}), 1);
}

TEST_F(CheckpointFolderTest, AListNamesNothingOutsideOfItsFolder) {
  SaveFiles::write(path("/../mine"), "mine");
  std::filesystem::create_directories(path("/save-000001"));
  SaveFiles::write(path("/save-000001/files-of-this-save.txt"), "../../mine\n..\n" + folder_.file("mine") + "\n\nab");
  SaveFiles::write(path("/save-000001/ab"), "the list's last line is cut short");
  save(1);
  EXPECT_EQ(SaveFiles::read(folder_.file("mine")), "mine");
  EXPECT_TRUE(std::filesystem::exists(path("/save-000001/ab")));
}

TEST_F(CheckpointFolderTest, ACheckpointOfAnotherProgramIsNotReplaced) {
  std::string const index = path("/model.safetensors.index.json");
  std::string const foreign = R"({"metadata": {"total_size": 4}, "weight_map": {"w": "model.safetensors"}})";
  SaveFiles::write(index, foreign);
  expect_refused(ErrorCode::invalid_argument, {index.c_str(), "not written by Weft", "another folder"});
  EXPECT_EQ(SaveFiles::read(index), foreign);
  EXPECT_EQ(SaveFiles(path()).entries(), 1U);
  std::filesystem::remove(index);
  save(1);
  save(2);  // a save of Weft's is replaced
  std::string damaged = SaveFiles::read(index);
  damaged.resize(damaged.size() / 2);
  SaveFiles::write(index, damaged);
  expect_refused(ErrorCode::invalid_argument, {index.c_str(), "another folder"});
  EXPECT_EQ(SaveFiles::read(index), damaged);
}

TEST_F(CheckpointFolderTest, AllRanksSaveIntoOne) {
  run_thread_ranks(3, [&](Communicator& world) {
    expect_error(ErrorCode::mismatch, {"rank 0", path("/a").c_str(), "rank 2", path("/b").c_str()},
                 [&] { CheckpointSaver const saver(world, path(world.rank() == 2 ? "/b" : "/a")); });
    expect_error(ErrorCode::mismatch, {path("/a").c_str(), "rank 1", "without a name"},
                 [&] { CheckpointSaver const saver(world, world.rank() == 1 ? "" : path("/a")); });
  });
  EXPECT_EQ(SaveFiles(path()).entries(), 0U);
  run_thread_ranks(3, [&](Communicator& world) {  // spelled in other ways
    CheckpointSaver const saver(world,
                                path(std::vector{"/c", "/x/../c/", "/./c"}.at(static_cast<std::size_t>(world.rank()))));
  });
}

// A reader has the index open when a save replaces it and removes the files that it names.
TEST_F(CheckpointFolderTest, WhatIsReplacedWhileItIsOpenedIsOpenedAnew) {
  for (bool const together : {false, true}) {
    run_thread_ranks(1, [&](Communicator& world) {
      CheckpointSaver saver(world, path());
      saver.save(whole_tensors(model_), {.step = 1});
      saver.wait();
      g_meanwhile = [&] {
        saver.save(whole_tensors(model_), {.step = 2});
        saver.wait();
      };
      Checkpoint const checkpoint = together ? Checkpoint::open(world, path()) : Checkpoint::open(path());
      EXPECT_FALSE(g_meanwhile);
      EXPECT_EQ(checkpoint.info().step, 2);
      EXPECT_EQ(difference(checkpoint, model_), "");
    });
  }
}

// As a loader of data may have been forked.
TEST_F(CheckpointFolderTest, AForkedProcessKeepsNoSaverOut) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t child = -1;
  run_thread_ranks(1, [&](Communicator& world) {
    CheckpointSaver const saver(world, path());
    child = fork();
    if (child != 0) return;
    close(ends[1]);
    char byte = 0;
    _exit(static_cast<int>(read(ends[0], &byte, 1)));  // until the other end is closed
  });
  EXPECT_NO_THROW(save(1));
  close(ends[1]);
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A user's folder often lies in one that users may pass through and not list.
TEST_F(CheckpointFolderTest, TheFolderAroundNeedNotBeReadable) {
  constexpr uid_t kNobody = 65534;
  auto const only_pass = std::filesystem::perms::owner_write | std::filesystem::perms::owner_exec |
                         std::filesystem::perms::group_exec | std::filesystem::perms::others_exec;
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path().c_str(), kNobody, kNobody), 0);
  }
  std::filesystem::permissions(folder_.file(""), only_pass);
  expect_all_succeeded(run_forked(1, [&](int) {
    if (geteuid() == 0 && seteuid(kNobody) != 0) return 1;
    run_thread_ranks(1, [&](Communicator& world) {
      CheckpointSaver saver(world, path());
      saver.save(whole_tensors(model_), {.step = 1});
      saver.wait();
    });
    return 0;
  }));
  std::filesystem::permissions(folder_.file(""), std::filesystem::perms::owner_all);
  EXPECT_EQ(difference(Checkpoint::open(path()), model_), "");
}

TEST_F(CheckpointFolderTest, AFailedSaveThatNobodyWaitedForNamesItsFolder) {
  testing::internal::CaptureStderr();
  run_thread_ranks(1, [&](Communicator& world) {
    CheckpointSaver saver(world, path());
    std::filesystem::remove_all(path());
    SaveFiles::write(path(), "a file");
    saver.save(whole_tensors(model_), {});
  });
  std::string const said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("checkpoint " + path() + ": the last save failed"), std::string::npos) << said;
  EXPECT_NE(said.find("name another folder"), std::string::npos) << said;
}

}  // namespace
}  // namespace weft::test
