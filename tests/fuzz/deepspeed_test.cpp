// Tests DeepSpeed checkpoints whose pickles were edited and whose checksums are valid again: only
// the description of the tensors is damaged, which decides what is read from where.
#include <filesystem>
#include <vector>

#include "attempt.h"
#include "checkpoint/deepspeed/source.h"
#include "io/zip.h"
#include "support/mutate.h"
#include "support/temp_folder.h"

namespace ds::test::fuzz_deepspeed {
namespace {

const std::string kData = std::string(DS_SOURCE_DIR) + "/tests/data/deepspeed/";

struct Part {
  std::string name, bytes;
};

std::vector<Part> parts_of(const std::string& path) {
  ZipArchive zip(path);
  std::vector<Part> out;
  for (const ZipEntry& entry : zip.entries()) {
    out.push_back({entry.name, std::string(static_cast<size_t>(entry.bytes), '\0')});
    zip.read(entry, 0, std::as_writable_bytes(std::span(out.back().bytes)));
  }
  return out;
}

// Edits the pickle in one file of the checkpoint, opens the checkpoint and reads up to 64 values of
// each tensor.
void attempt(Attempts& attempts, const std::string& folder, const std::string& file,
             std::vector<Part> parts, Dice& dice) {
  std::string path = folder + "/" + file;
  for (Part& part : parts) {
    if (part.name.ends_with("data.pkl")) part.bytes = mutate_bytes(part.bytes, dice);
  }
  std::filesystem::remove(path);
  {
    ZipWriter zip(path);
    for (const Part& part : parts) zip.add(part.name, part.bytes);
    zip.finish();
  }
  attempts.run([&] {
    std::unique_ptr<StateSource> source = open_deepspeed(folder, SourceParts::all);
    std::vector<float> values(64);
    for (size_t k = 0; k < source->kinds.size(); ++k) {
      for (ParamId p : source->names.ids())
        source->read(k, p, 0, std::min<int64_t>(64, source->numel(p)), values.data());
    }
  });
}

TEST(FuzzDeepSpeed, EditedPicklesAreReadOrRefused) {
  Attempts attempts(size_t{16} << 20);
  uint32_t seed = 0;
  for (const auto& [kind, file] :
       {std::pair{"zero2_f32", "mp_rank_00_model_states.pt"},
        {"zero2_round_robin", "zero_pp_rank_1_mp_rank_00_optim_states.pt"},
        {"zero3_frozen", "zero_pp_rank_0_mp_rank_00_model_states.pt"},
        {"zero3_frozen", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"},
        {"universal3", "zero/optimizer_state.pt"},
        {"universal1", "zero/transformer.wpe.weight/exp_avg.pt"}}) {
    TempFolder folder;
    std::filesystem::copy(kData + kind + "/global_step5", folder / "c",
                          std::filesystem::copy_options::recursive);
    std::vector<Part> parts = parts_of(folder / "c/" + file);
    for (uint32_t i = 0; i < draws(150); ++i) {
      Dice dice = dice_of(31, ++seed);
      SCOPED_TRACE(std::string(kind) + "/" + file + " " + std::to_string(seed));
      attempt(attempts, folder / "c", file, parts, dice);
    }
  }
  EXPECT_GT(attempts.loaded, 0);
  EXPECT_GT(attempts.refused, static_cast<int>(draws(400)));
}

}  // namespace
}  // namespace ds::test::fuzz_deepspeed
