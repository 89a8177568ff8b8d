#include "support/hf_golden.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/model_folder.h"
#include "core/base/error.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "support/semantics.h"

namespace ds::test {
namespace {

// Returns the row of the position table for each token; see HfModel.
Tensor positions(const Tensor& mask, int64_t seq, int64_t offset) {
  Tensor out(DS_DTYPE_I32, {mask.numel()});
  int64_t seen = 0;
  for (int64_t r = 0; r < mask.numel(); ++r) {
    if (r % seq == 0) seen = 0;
    bool token = mask.at(r) != 0;
    seen += token;
    out.set(r, static_cast<double>(offset - 1 + (token ? seen : 0)));
  }
  return out;
}

Tensor shifted(const Tensor& labels, int64_t seq) {
  Tensor out(DS_DTYPE_I32, {labels.numel()});
  for (int64_t r = 0; r < labels.numel(); ++r)
    out.set(r, (r + 1) % seq == 0 ? -100 : labels.at(r + 1));
  return out;
}

Tensor flat(const Tensor& x) {
  Tensor out(x.dtype(), {x.numel()});
  for (int64_t e = 0; e < x.numel(); ++e) out.set(e, x.at(e));
  return out;
}

}  // namespace

std::map<std::string, Tensor> read_tensors(const std::string& path) {
  SafetensorHeader header = read_safetensors_header(path);
  File file(path, File::Mode::read);
  std::map<std::string, Tensor> tensors;
  for (const SafetensorEntry& entry : header.entries) {
    Tensor tensor(entry.dtype, entry.shape);
    file.read(tensor.bytes().data(), static_cast<size_t>(entry.bytes), entry.begin);
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

HfGolden::HfGolden(const std::string& path)
    : folder(path),
      numbers(Json::parse(read_file(path + "/golden.json"))),
      inputs(read_tensors(path + "/golden.safetensors")),
      weights(read_tensors(path + "/model.safetensors")) {}

Tensor HfGolden::input(const HfModel& model, const std::string& name) const {
  if (name == "tokens") return flat(inputs.at("input_ids"));
  if (name == "targets")
    return model.causal ? shifted(inputs.at("labels"), seq()) : flat(inputs.at("labels"));
  if (name == "mask") return flat(inputs.at("attention_mask"));
  if (name == "token_types") return flat(inputs.at("token_type_ids"));
  if (name == "positions")
    return positions(inputs.at("attention_mask"), seq(), model.position_offset);
  raise(DS_ERROR_INVALID_ARGUMENT, "the models' inputs are described in hf.h, got '{}'", name);
}

HfModel HfGolden::build() const { return build_hf_model(folder, rows(), seq()); }

void HfGolden::fill(Interpreter& run, const HfModel& model) const {
  for (ValueId id : model.graph.inputs) {
    run.set(id, input(model, model.graph.values[id].name));
  }
  for (const Parameter& param : model.graph.params) run.set(param.value, weights.at(param.name));
}

std::vector<std::string> golden_models() {
  return {"gpt2",    "llama", "mixtral", "bert",   "qwen2",   "opt",
          "mistral", "qwen3", "phi3",    "gemma2", "gpt_neox"};
}

std::string golden_path(const std::string& name) { return data_path("models/" + name); }

double largest_distance(const Tensor& a, const Tensor& b,
                        const std::function<bool(int64_t)>& keep) {
  if (a.numel() != b.numel()) return INFINITY;
  double most = 0;
  for (int64_t e = 0; e < a.numel(); ++e) {
    if (keep && !keep(e)) continue;
    const double distance = std::fabs(a.at(e) - b.at(e));
    if (std::isnan(distance)) return distance;
    most = std::max(most, distance);
  }
  return most;
}

}  // namespace ds::test
