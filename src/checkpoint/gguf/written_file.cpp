#include "checkpoint/gguf/written_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "core/base/error.h"

namespace ds {
namespace {

// The smallest numbers that these types round to infinity. The scale of a block of q8_0 is an f16
// number and its codes are at most 127.
constexpr float kBeyondF16 = 65520, kBeyondQ8 = 127 * kBeyondF16;
// The version of the block types, which files of every type state.
constexpr int64_t kQuantizationVersion = 2;

// Suffixes of the names of matrices, and of those that are f32 nevertheless.
constexpr std::array<std::string_view, 3> kMatrices{".weight", ".lora_a", ".lora_b"};
constexpr std::array<std::string_view, 3> kAlwaysF32{"_norm.weight", "position_embd.weight",
                                                     "ffn_gate_inp.weight"};

// The numbers that general.file_type has for the types of matrices.
int64_t file_type(std::string_view type) {
  return type == "f32" ? 0 : type == "f16" ? 1 : type == "q8_0" ? 7 : 32;
}

bool ends_with_one_of(std::string_view name, std::span<const std::string_view> suffixes) {
  return std::ranges::any_of(suffixes, [&](auto suffix) { return name.ends_with(suffix); });
}

}  // namespace

const GgufType& stored_gguf_type(const GgufTensor& tensor, std::string_view wanted) {
  const bool matrix = tensor.shape.size() > 1 && ends_with_one_of(tensor.name, kMatrices);
  if (!matrix || ends_with_one_of(tensor.name, kAlwaysF32)) return written_gguf_type("f32");
  const GgufType& type = written_gguf_type(wanted);
  return tensor.shape.back() % type.block == 0 ? type : written_gguf_type("f16");
}

void add_gguf_type(std::string_view type, GgufMetadata& metadata) {
  metadata.emplace_back("general.file_type", GgufValue::u32(file_type(type)));
  metadata.emplace_back("general.quantization_version", GgufValue::u32(kQuantizationVersion));
}

std::string shown_gguf_name(const std::string& path) {
  std::filesystem::path name = std::filesystem::absolute(path).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  return (name.extension() == ".gguf" ? name.stem() : name.filename()).string();
}

void check_gguf_range(const GgufTensor& tensor, const std::string& source, int64_t begin,
                      std::span<const float> values) {
  const std::string_view type = tensor.type->name;
  if (type != "F16" && type != "Q8_0") return;
  const float most = type == "F16" ? kBeyondF16 : kBeyondQ8;
  const auto bad = std::ranges::find_if(values, [&](float v) { return !(std::abs(v) < most); });
  if (bad == values.end()) return;
  raise(DS_ERROR_CONFIG,
        "'{}': element {} of tensor '{}' is {}, which {} cannot hold: give the type bf16 or f32",
        source, begin + (bad - values.begin()), TensorName(tensor.name), *bad, type);
}

void make_gguf_file(const std::string& path, const std::function<void(File&)>& fill) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent, temporary = fresh_name(path);
  make_folders(folder);
  try {
    File file(temporary, File::Mode::create);
    fill(file);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  rename_file(temporary, path);
  sync_folder(folder);
}

}  // namespace ds
