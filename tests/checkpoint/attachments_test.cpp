#include "checkpoint/attachments.h"

#include "checkpoint/convert.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/payload.h"
#include "checkpoint/rank_files.h"
#include "support/errors.h"
#include "support/flip_byte.h"

namespace ds::test {
namespace {

Attachment bytes_of(const std::string& text) {
  Attachment out{DS_DTYPE_U8, {static_cast<int64_t>(text.size())}, {}};
  for (char c : text) out.bytes.push_back(static_cast<std::byte>(c));
  return out;
}

std::string text_of(const Attachment& attachment) {
  std::string text;
  for (std::byte b : attachment.bytes) text.push_back(static_cast<char>(b));
  return text;
}

// Saves with `world` ranks; rank r attaches "rank r" to each name. Returns the path.
std::string save_attached(const std::string& folder, int world, int64_t step = 1) {
  std::string path;
  run_ranks(world, [&](Communicator& comm) {
    FakeState state(comm, true);
    state.fill();
    Attachments mine;
    for (const char* name : {"loader", "random"})
      mine.emplace(name, bytes_of(fmt::format("{} of rank {}", name, comm.rank())));
    CheckpointInfo info = fake_info(step);
    info.attached = std::make_shared<Attachments>(mine);
    std::string saved = save_checkpoint(state, folder, info);
    if (comm.rank() == 0) path = saved;
  });
  return path;
}

TEST(Attachments, AnyRankReadsThoseOfAllRanks) {
  for (int world : {1, 2, 3}) {
    TempFolder folder;
    const std::string path = save_attached(folder.path(), world);
    const Manifest manifest = read_manifest(path);
    for (size_t r = 0; r < static_cast<size_t>(world); ++r) {
      const Attachment found = read_attachment(manifest, path, r, "random");
      EXPECT_EQ(text_of(found), fmt::format("random of rank {}", r));
      EXPECT_EQ(found.dtype, DS_DTYPE_U8);
    }
    EXPECT_EQ(load_error(path, 2).first, DS_OK);
  }
}

// A load, a verification and a conversion compare the hash, whichever rank the file belongs to.
TEST(Attachments, ADamagedFileIsNamed) {
  for (size_t rank : {0u, 2u}) {
    TempFolder folder;
    const std::string path = save_attached(folder.path(), 3);
    const std::string file = path + "/" + attached_file(rank);
    flip_byte(file, static_cast<int64_t>(std::filesystem::file_size(file)) - 1);
    for (int world : {1, 2}) {
      auto [status, text] = load_error(path, world);
      EXPECT_EQ(status, DS_ERROR_CORRUPT);
      EXPECT_NE(text.find(file), std::string::npos) << text;
    }
    EXPECT_NE(message_of([&] { payload_hash(path); }, DS_ERROR_CORRUPT).find(file),
              std::string::npos);
    const Manifest manifest = read_manifest(path);
    message_of([&] { read_attachments(manifest, path, rank); }, DS_ERROR_CORRUPT);
    EXPECT_EQ(text_of(read_attachment(manifest, path, 1, "loader")), "loader of rank 1");
  }
}

// Without one of its files a checkpoint is incomplete, so the previous one is found.
TEST(Attachments, ACheckpointWithoutAFileIsIncomplete) {
  TempFolder folder;
  const std::string first = save_attached(folder.path(), 2, 1),
                    second = save_attached(folder.path(), 2, 2);
  EXPECT_EQ(latest_checkpoint(folder.path()), second);
  std::filesystem::remove(second + "/" + attached_file(1));
  EXPECT_EQ(find_older_checkpoint(folder.path(), second), first);
  EXPECT_EQ(load_error(second).first, DS_ERROR_CORRUPT);
}

TEST(Attachments, AConversionKeepsThoseOfRank0) {
  TempFolder folder;
  const std::string path = save_attached(folder / "from", 3);
  convert_checkpoint(path, folder / "to", {});
  const std::string made = latest_checkpoint(folder / "to");
  const Manifest manifest = read_manifest(made);
  ASSERT_EQ(manifest.attached.size(), 1u);
  EXPECT_EQ(text_of(read_attachment(manifest, made, 0, "random")), "random of rank 0");
}

}  // namespace
}  // namespace ds::test
