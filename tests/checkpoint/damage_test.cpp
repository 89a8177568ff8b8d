#include "checkpoint/checkpoint.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "io/safetensors.h"
#include "support/errors.h"
#include "support/flip_byte.h"

namespace ds::test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CheckpointDamage, ADamagedTensorIsNamed) {
  for (int world : {1, 3}) {
    TempFolder folder;
    std::string path = save_fake(folder.path(), 1, 2), file = path + "/exp_avg_sq.safetensors";
    flip_byte(file, read_safetensors_header(file).find("h.1.weight")->begin + 1000);
    auto [status, text] = load_error(path, world);
    EXPECT_EQ(status, DS_ERROR_CORRUPT);
    EXPECT_TRUE(has(text, "'h.1.weight'") && has(text, file)) << text;
  }
}

// The payload hash is computed only from bytes that have passed their own checks.
TEST(CheckpointDamage, AHashOfADamagedCheckpointIsRefused) {
  TempFolder folder;
  std::string path = save_fake(folder.path(), 1, 2), file = path + "/exp_avg_sq.safetensors";
  flip_byte(file, read_safetensors_header(file).find("h.1.weight")->begin + 1000);
  std::string text = message_of([&] { payload_hash(path); }, DS_ERROR_CORRUPT);
  EXPECT_TRUE(has(text, "'h.1.weight'") && has(text, file)) << text;
}

TEST(CheckpointDamage, OlderCheckpointsAreFoundIfTheNewestIsDamaged) {
  TempFolder folder;
  std::string first = save_fake(folder / "checkpoints", 2),
              second = save_fake(folder / "checkpoints", 4);
  for (const std::string& place : {folder.path(), folder / "checkpoints"}) {
    EXPECT_EQ(find_checkpoint(place), second);
    EXPECT_EQ(find_older_checkpoint(place, second), first);
    EXPECT_EQ(find_older_checkpoint(place, first), "");
  }
  // If a checkpoint was named explicitly, no older one replaces it.
  EXPECT_EQ(find_older_checkpoint(second, second), "");
}

TEST(CheckpointDamage, ADamagedHeaderIsRefused) {
  TempFolder folder;
  std::string path = save_fake(folder.path(), 1), file = path + "/master.safetensors";
  std::string text = read_file(file);
  flip_byte(file, static_cast<int64_t>(text.find("wte")) + 1);
  EXPECT_EQ(load_error(path).first, DS_ERROR_CORRUPT);
}

TEST(CheckpointDamage, EveryByteOfTheManifestIsChecked) {
  TempFolder folder;
  std::string path = save_fake(folder.path(), 1), file = path + "/manifest.json";
  std::string text = read_file(file);
  // The final newline is not covered.
  for (size_t i = 0; i + 2 < text.size(); i += 13) {
    flip_byte(file, static_cast<int64_t>(i));
    EXPECT_NE(load_error(path).first, DS_OK) << "byte " << i << " '" << text[i] << "'";
    flip_byte(file, static_cast<int64_t>(i));
  }
  EXPECT_EQ(load_error(path).first, DS_OK);
}

TEST(CheckpointDamage, ATruncatedManifestIsRefused) {
  TempFolder folder;
  std::string path = save_fake(folder.path(), 1), file = path + "/manifest.json";
  std::string text = read_file(file);
  for (size_t size : {size_t{0}, size_t{1}, text.size() / 3, text.size() - 2}) {
    std::filesystem::resize_file(file, size);
    auto [status, message] = load_error(path);
    EXPECT_EQ(status, DS_ERROR_CORRUPT) << size << " bytes";
    EXPECT_EQ(message.find(file), message.rfind(file)) << message;
    EXPECT_EQ(latest_checkpoint(folder.path()), "");
    write_file_atomic(file, text);
  }
}

TEST(CheckpointDamage, MissingAndShortFilesAreNamed) {
  TempFolder folder;
  std::string first = save_fake(folder.path(), 1), second = save_fake(folder.path(), 2);
  std::string file = second + "/exp_avg.safetensors";
  EXPECT_EQ(latest_checkpoint(folder.path()), second);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(latest_checkpoint(folder.path()), first);
  std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(has(warning, "checkpoint '" + second + "' is skipped: '" + file + "' has "))
      << warning;
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1);
  EXPECT_EQ(load_error(second).first, DS_ERROR_CORRUPT);
  std::filesystem::remove(file);
  EXPECT_EQ(latest_checkpoint(folder.path()), first);
  auto [status, text] = load_error(second);
  EXPECT_EQ(status, DS_ERROR_CORRUPT);
  EXPECT_TRUE(has(text, file)) << text;
}

TEST(CheckpointDamage, OtherModelsAreRefusedByName) {
  TempFolder folder;
  std::string path = save_fake(folder.path(), 1, 2);
  std::vector<FakeParam> shape = fake_params(), more = fake_params(), fewer = fake_params();
  shape[3].shape = {100, 7};
  more.push_back({"lm_head", {3}});
  fewer.erase(fewer.begin() + 2);
  auto [status, text] = load_error(path, 2, shape);
  EXPECT_EQ(status, DS_ERROR_CONFIG);
  EXPECT_TRUE(has(text, "'h.1.weight'") && has(text, "[100,7]") && has(text, "[7,100]")) << text;
  EXPECT_TRUE(has(load_error(path, 1, more).second, "'lm_head'"));
  EXPECT_TRUE(has(load_error(path, 1, fewer).second, "'h.0.bias'"));
}

// Checks that a checkpoint with this information is complete, but is refused by a load.
void expect_refused(const CheckpointInfo& info, const std::string& wanted) {
  TempFolder folder;
  std::string path;
  run_ranks(1, [&](Communicator& comm) {
    FakeState state(comm, false);
    state.fill();
    path = save_checkpoint(state, folder.path(), info);
  });
  auto [status, message] = load_error(path);
  EXPECT_EQ(status, DS_ERROR_CORRUPT);
  EXPECT_NE(message.find(wanted), std::string::npos) << message;
}

TEST(CheckpointDamage, FrozenNamesMustBeTensors) {
  for (const auto& [frozen, wanted] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"z", "y"}, "frozen names 'y', which is not a tensor or is named twice"},
           {{"z", "z"}, "frozen names 'z', which is not a tensor or is named twice"},
           {{"z", "wte", "h.0.weight", "h.0.bias", "h.1.weight"}, "frozen names all 5 tensors"}}) {
    CheckpointInfo info = fake_info(1);
    info.frozen = frozen;
    expect_refused(info, wanted);
  }
}

TEST(CheckpointDamage, UpdatesMustBeFewerThanTheSteps) {
  for (const auto& [updates, wanted] :
       std::vector<std::pair<std::pair<std::string, int64_t>, std::string>>{
           {{"y", 0}, "updates names 'y', which is not a tensor"},
           {{"z", -1}, "updates of 'z' must be 0 to 0, fewer than those of the run, got -1"},
           {{"z", 1}, "updates of 'z' must be 0 to 0, fewer than those of the run, got 1"}}) {
    CheckpointInfo info = fake_info(1);
    info.updates = {updates};
    expect_refused(info, wanted);
  }
}

// Two hosts may see different contents of a folder while its newest checkpoint is being replaced.
TEST(CheckpointDamage, RanksThatSeeDifferentCheckpointsAreRefused) {
  TempFolder folder;
  std::string paths[2] = {save_fake(folder / "a", 1, 1), save_fake(folder / "b", 2, 1)};
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, true);
    std::string message =
        message_of([&] { load_checkpoint(state, paths[comm.rank()]); }, DS_ERROR_CORRUPT);
    EXPECT_NE(message.find("on rank 1"), std::string::npos) << message;
  });
}

TEST(CheckpointDamage, AFolderWithoutACheckpointIsRefused) {
  TempFolder folder;
  EXPECT_EQ(latest_checkpoint(folder / "nowhere"), "");
  EXPECT_EQ(load_error(folder / "nowhere", 2).first, DS_ERROR_NOT_FOUND);
}

// A program that starts from the beginning if it finds no checkpoint must not mistake a folder with
// damaged checkpoints for an empty folder.
TEST(CheckpointDamage, FoldersWithOnlyDamagedCheckpointsAreNotEmpty) {
  TempFolder folder;
  std::string checkpoints = folder / "checkpoints", file;
  for (int64_t step : {1, 2}) {
    file = save_fake(checkpoints, step) + "/exp_avg.safetensors";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  }
  testing::internal::CaptureStderr();
  for (const std::string& place : {checkpoints, folder.path()}) {
    std::string message = message_of([&] { find_checkpoint(place); }, DS_ERROR_CORRUPT);
    EXPECT_TRUE(has(message, file)) << message;
  }
  testing::internal::GetCapturedStderr();
  EXPECT_THROW(find_checkpoint(checkpoints, "best"), Error);
}

}  // namespace
}  // namespace ds::test
