// Compares `--to fp32` of DeepSpeed's checkpoints with the output of its zero_to_fp32 (fp32.json in
// tests/data/deepspeed), for every optimizer. Also reads the states of DeepSpeed's Muon.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/convert.h"
#include "checkpoint/open_source.h"
#include "checkpoint/state_source.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file.h"
#include "io/zip.h"
#include "support/errors.h"
#include "support/flip_byte.h"
#include "support/temp_folder.h"

namespace ds::test::deepspeed_fp32_test {
namespace {

namespace fs = std::filesystem;

const std::string kData = std::string(DS_SOURCE_DIR) + "/tests/data/deepspeed";
// Maximum size in bytes of the tensors in a file of the recorded output, which is divided into
// shards.
constexpr int64_t kShard = 3000;

uint32_t crc_of(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

struct Tensor {
  std::string dtype;
  Json shape;
  uint32_t crc = 0;
  std::string file;
};

std::map<std::string, Tensor> tensors_of(const std::string& folder) {
  std::map<std::string, Tensor> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string bytes = read_file(entry.path().string(), 1 << 24);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const Json header = Json::parse(std::string_view(bytes).substr(8, length), "header");
    for (const auto& [name, value] : header.object()) {
      if (name == "__metadata__") continue;
      const Json::Array& place = value.at("data_offsets").array();
      const auto begin = static_cast<size_t>(place[0].integer()),
                 end = static_cast<size_t>(place[1].integer());
      const std::string_view data = std::string_view(bytes).substr(8 + length + begin, end - begin);
      out[name] = {value.at("dtype").string(), value.at("shape"), crc_of(data),
                   entry.path().filename()};
    }
  }
  return out;
}

std::string format_of(const std::string& torch) {
  static const std::map<std::string, std::string> names{
      {"float32", "F32"}, {"int64", "I64"}, {"int32", "I32"}, {"int16", "I16"},
      {"int8", "I8"},     {"uint8", "U8"},  {"bool", "BOOL"}, {"complex64", "C64"}};
  return names.at(torch);
}

void convert(const std::string& from, const std::string& to, const ConvertRequest& request) {
  convert_checkpoint(from, to, request);
}

// Proves {checkpoint.convert.forms}: the files contain the same tensors, with equal names and bits.
TEST(DeepSpeedFp32, EqualsTheResultOfZeroToFp32) {
  const Json all = Json::parse(read_file(kData + "/fp32.json"));
  size_t buffers = 0, ties = 0;
  for (const auto& [kind, expected] : all.object()) {
    SCOPED_TRACE(kind);
    TempFolder folder;
    convert(kData + "/" + kind, folder / "shards", {.form = "fp32", .file_bytes = kShard});
    convert(kData + "/" + kind, folder / "one", {.form = "fp32"});
    const std::map<std::string, Tensor> shards = tensors_of(folder / "shards"),
                                        one = tensors_of(folder / "one");
    const Json places =
        Json::parse(read_file(folder / "shards/model.safetensors.index.json")).at("weight_map");
    EXPECT_EQ(shards.size(), expected.object().size());
    EXPECT_EQ(one.size(), expected.object().size());
    EXPECT_EQ(places.object().size(), expected.object().size());
    for (const auto& [name, tensor] : expected.object()) {
      SCOPED_TRACE(name);
      const Json::Array& value = tensor.array();
      ASSERT_TRUE(shards.contains(name) && one.contains(name));
      for (const auto* found : {&shards.at(name), &one.at(name)}) {
        EXPECT_EQ(found->dtype, format_of(value[0].string()));
        EXPECT_EQ(found->shape.dump(), value[1].dump());
        EXPECT_EQ(found->crc, value[2].integer());
      }
      const std::string file = shards.at(name).file;
      EXPECT_EQ(std::stoll(file.substr(6, 5)), value[3].integer());
      EXPECT_EQ(places.at(name).string(), file);
      buffers += name.find("kept_") != std::string::npos;
      ties += name == "lm_head.weight";
    }
  }
  EXPECT_GE(buffers, 3 * 16u);
  EXPECT_EQ(ties, all.object().size());
}

// A converted checkpoint has no buffers, but it keeps both names of a shared tensor.
TEST(DeepSpeedFp32, SecondNamesSurviveAConversion) {
  TempFolder folder;
  convert(kData + "/zero2_names", folder / "libds", {});
  convert(folder / "libds", folder / "universal", {.form = "universal"});
  for (const char* form : {"libds", "universal"}) {
    SCOPED_TRACE(form);
    const std::string to = folder / (std::string(form) + "_fp32");
    convert(folder / form, to, {.form = "fp32"});
    const std::map<std::string, Tensor> found = tensors_of(to);
    ASSERT_TRUE(found.contains("lm_head.weight"));
    EXPECT_EQ(found.at("lm_head.weight").crc, found.at("transformer.wte.weight").crc);
    EXPECT_FALSE(found.contains("transformer.kept_f32"));
  }
}

// Copies a recorded checkpoint to `folder` and returns that path.
std::string copy_of(const std::string& kind, const std::string& folder) {
  fs::copy(kData + "/" + kind, folder, fs::copy_options::recursive);
  return folder;
}

std::vector<std::string> states_of(const std::string& folder) {
  std::vector<std::string> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder + "/global_step5")) {
    if (entry.path().string().ends_with("_optim_states.pt")) out.push_back(entry.path().string());
  }
  return out;
}

// Replaces a word by another word of the same length in the pickles of all ranks' optimizer states.
void rename_in(const std::string& folder, std::string_view from, std::string_view to) {
  for (const std::string& path : states_of(folder)) {
    std::vector<std::pair<std::string, std::string>> members;
    {
      ZipArchive zip(path);
      for (const ZipEntry& entry : zip.entries()) {
        std::string bytes(static_cast<size_t>(entry.bytes), '\0');
        zip.read(entry, 0, std::as_writable_bytes(std::span(bytes)));
        members.emplace_back(entry.name, bytes);
      }
    }
    fs::remove(path);
    ZipWriter zip(path);
    for (auto& [name, bytes] : members) {
      if (name.ends_with("data.pkl")) {
        for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos;)
          bytes.replace(at, from.size(), to);
      }
      zip.add(name, bytes);
    }
    zip.finish();
  }
}

// Only masters are needed: damage of other states must be detected only where they are read.
TEST(DeepSpeedFp32, NeedsNoStates) {
  for (const char* kind : {"zero2_bf16", "zero3_f32", "zero2_muon"}) {
    SCOPED_TRACE(kind);
    TempFolder folder;
    const std::string place = copy_of(kind, folder / "c"), file = states_of(place)[0];
    int noticed = 0, unread = 0;
    const ZipArchive zip(file);
    for (const ZipEntry& one : zip.entries()) {
      if (one.name.find("/data/") == std::string::npos || one.bytes == 0) continue;
      flip_byte(file, one.begin);
      expect_names(message_of([&] { open_source(place); }, DS_ERROR_CORRUPT),
                   {one.name, "checksum"});
      try {
        open_source(place, SourceParts::masters);
        ++unread;
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), DS_ERROR_CORRUPT);
        ++noticed;
      }
      flip_byte(file, one.begin);
    }
    EXPECT_GE(noticed, 1);
    EXPECT_GE(unread, 2);
  }
}

// If the optimizer is unknown to libds, it reads the masters and refuses the states by name.
TEST(DeepSpeedFp32, ForeignStatesAreNamed) {
  TempFolder folder;
  auto weights = [&](const std::string& from) {
    const std::string to = folder / (fs::path(from).filename().string() + "_fp32");
    convert(from, to, {.form = "fp32"});
    return tensors_of(to).size();
  };
  const std::string sizes = copy_of("zero2_f32", folder / "sizes");
  // A state with one number for each group.
  rename_in(sizes, "step", "coef");
  expect_names(message_of([&] { open_source(sizes); }, DS_ERROR_UNSUPPORTED),
               {"'coef'", "has 1 elements", "of the master"});
  EXPECT_EQ(weights(sizes), 17u);
  const std::string mixed = copy_of("zero1_muon", folder / "mixed");
  rename_in(mixed, "momentum_buffer", "other_momentum_");
  expect_names(message_of([&] { open_source(mixed); }, DS_ERROR_UNSUPPORTED),
               {"group", "has no 'exp_avg'", "Muon"});
  EXPECT_EQ(weights(mixed), 17u);
}

// Muon's momenta are the exp_avg of the matrices, which have no exp_avg_sq. They are stored in
// slices, in whole copies and in sub-groups.
TEST(DeepSpeedFp32, StatesOfMuonAreRead) {
  for (const char* kind : {"zero1_muon", "zero2_muon", "zero3_muon"}) {
    SCOPED_TRACE(kind);
    std::unique_ptr<StateSource> source = open_source(kData + "/" + kind);
    EXPECT_EQ(source->kinds, (std::vector<std::string>{"master", "exp_avg", "exp_avg_sq"}));
    size_t matrices = 0;
    for (ParamId p : source->names.ids()) {
      SCOPED_TRACE(source->names[p]);
      const auto count = static_cast<size_t>(source->numel(p));
      std::vector<float> momentum(count), squares(count);
      source->read(1, p, 0, source->numel(p), momentum.data());
      source->read(2, p, 0, source->numel(p), squares.data());
      const bool matrix = source->shapes[p].size() == 2;
      matrices += matrix;
      EXPECT_NE(momentum, std::vector<float>(count));
      EXPECT_EQ(squares == std::vector<float>(count), matrix);
    }
    EXPECT_EQ(matrices, 6u);
    TempFolder folder;
    expect_names(
        message_of(
            [&] { convert(kData + "/" + kind, folder / "universal", {.form = "universal"}); },
            DS_ERROR_UNSUPPORTED),
        {"Muon", "not exported"});
  }
}

}  // namespace
}  // namespace ds::test::deepspeed_fp32_test
