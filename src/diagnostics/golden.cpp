// Reads the numbers that tools/make_golden.py has recorded with torch beside a model
// (docs/reference/verify.md). The files may be damaged or have another version, so every member is
// checked. Errors name the member, and most of them the file.

#include "diagnostics/golden.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "core/base/contains.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/json_read.h"
#include "core/base/path_kind.h"
#include "io/file_kind.h"
#include "io/gguf.h"

namespace ds {
namespace {

constexpr std::string_view kGrad = "grad.";

std::vector<double> numbers(const JsonReader& list) {
  std::vector<double> out;
  for (const JsonReader& item : list.items()) out.push_back(item.number());
  return out;
}

std::vector<int32_t> ids(const JsonReader& list) {
  std::vector<int32_t> out;
  for (const JsonReader& item : list.items()) {
    out.push_back(static_cast<int32_t>(item.integer(0, INT32_MAX)));
  }
  return out;
}

// Returns the section `optimizer` of a configuration that is equivalent to the recorded optimizer
// of torch.
Json optimizer_section(const JsonReader& run) {
  const std::string& torch = run.at("optimizer").text();
  bool sgd = torch == "torch.optim.SGD";
  if (!sgd && torch != "torch.optim.AdamW") {
    raise(DS_ERROR_UNSUPPORTED, "optimizer: '{}' is neither torch.optim.AdamW nor torch.optim.SGD",
          torch);
  }
  Json params, section;
  for (const char* name : {"lr", "weight_decay"}) params.set(name, run.at(name).json());
  for (const char* name : {"betas", "eps"}) {
    if (!sgd) params.set(name, run.at(name).json());
  }
  for (const char* name : {"momentum", "dampening", "nesterov"}) {
    if (auto value = sgd ? run.find(name) : std::nullopt) params.set(name, value->json());
  }
  section.set("type", sgd ? "SGD" : "AdamW");
  section.set("params", std::move(params));
  return section;
}

// The name of a run determines its element type and batches: "bf16..." trains in bf16, "...accum"
// on the micro-batches.
GoldenRun read_run(const std::string& name, const JsonReader& run, const JsonReader& tolerance) {
  GoldenRun out;
  out.name = name;
  out.bf16 = name.starts_with("bf16");
  out.accum = name.ends_with("accum");
  out.optimizer = optimizer_section(run);
  if (auto clip = run.find("clip_grad_norm")) out.clip = clip->number();
  out.loss = numbers(run.at("loss"));
  out.grad_norm = numbers(run.at("grad_norm"));
  if (auto final_loss = run.find("final_loss")) out.final_loss = final_loss->number();
  out.loss_abs = tolerance.at("loss_abs").number();
  out.grad_norm_rel = tolerance.at("grad_norm_rel").number();
  if (out.loss.empty() || out.loss.size() != out.grad_norm.size()) {
    raise(DS_ERROR_CORRUPT, "{}: must have losses and as many gradient norms, got {} and {}", name,
          out.loss.size(), out.grad_norm.size());
  }
  return out;
}

}  // namespace

// Reads and checks everything except logits and gradients, so that an invalid record is refused
// before an engine allocates memory.
Golden::Golden(const std::string& model) {
  std::filesystem::path parent = std::filesystem::path(model).parent_path();
  const std::string folder = !is_gguf(model) ? model : parent.empty() ? "." : parent.string();
  std::string numbers = folder + "/golden.json", tensors = folder + "/golden.safetensors";
  for (const std::string& path : {numbers, tensors}) {
    if (!name_exists(path)) {
      raise(DS_ERROR_NOT_FOUND, "no recorded numbers: '{}' does not exist{}", path,
            path_hint(folder, Sought::model));
    }
  }
  header_ = read_safetensors_header(tensors);
  file_ = File(tensors, File::Mode::read);
  batch = read_batch("");
  for (size_t i = 0; header_.find("micro." + std::to_string(i) + ".input_ids"); ++i) {
    micro.push_back(read_batch("micro." + std::to_string(i) + "."));
    if (micro[i].rows != batch.rows || micro[i].tokens != batch.tokens) {
      raise(DS_ERROR_CORRUPT, "'{}': micro-batch {} is [{},{}], but the batch is [{},{}]", tensors,
            i, micro[i].rows, micro[i].tokens, batch.rows, batch.tokens);
    }
  }
  for (const SafetensorEntry& e : header_.entries) {
    if (e.name.starts_with(kGrad)) grad_names.push_back(e.name.substr(kGrad.size()));
  }
  Json document = read_json(numbers);
  try {
    read_document({numbers, document, ": "});
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_CONFIG) throw;
    raise(DS_ERROR_CORRUPT, "{}", error.what());
  }
}

// Runs, final parameters and texts are optional members of a record; all others are required.
void Golden::read_document(const JsonReader& document) {
  const JsonReader tolerance = document.at("tolerance");
  loss = document.at("loss").at("value").number();
  loss_abs = tolerance.at("loss").at("abs").number();
  logits_abs = tolerance.at("logits").at("abs").number();
  grad_abs = tolerance.at("grad").at("abs").number();
  grad_rel = tolerance.at("grad").at("rel").number();
  for (const JsonReader& name : tolerance.at("grad").at("zero").items())
    grad_zero.push_back(name.text());
  for (const char* name : {"adamw", "accum", "sgd", "bf16", "bf16_accum"}) {
    if (auto run = document.find(name)) runs.push_back(read_run(name, *run, tolerance.at(name)));
    if (!runs.empty() && runs.back().accum && micro.empty()) {
      raise(DS_ERROR_CORRUPT, "run '{}' needs micro-batches, but the tensors have none", name);
    }
  }
  if (auto params = document.find("final_params")) {
    for (const auto& [name, p] : params->members()) {
      final_params.push_back({name, p.at("sum").number(), p.at("l2").number(),
                              p.at("sum_tol").number(), p.at("l2_tol").number()});
    }
  }
  if (auto texts = document.find("greedy")) {
    for (const JsonReader& text : texts->items()) {
      greedy.push_back(
          {ids(text.at("prompt")), ids(text.at("tokens")), numbers(text.at("margin"))});
      if (greedy.back().prompt.empty() ||
          greedy.back().tokens.size() != greedy.back().margin.size()) {
        raise(DS_ERROR_CORRUPT,
              "greedy: a text needs a prompt and one margin for each token, got {} prompt tokens, "
              "{} tokens, {} margins",
              greedy.back().prompt.size(), greedy.back().tokens.size(),
              greedy.back().margin.size());
      }
    }
  }
}

bool GoldenBatch::hides_tokens() const { return contains(mask, 0); }

bool Golden::hides_tokens() const {
  return batch.hides_tokens() ||
         std::ranges::any_of(micro, [](const GoldenBatch& b) { return b.hides_tokens(); });
}

const GoldenRun* Golden::run(const std::string& name) const {
  auto at = std::ranges::find_if(runs, [&](const GoldenRun& r) { return r.name == name; });
  return at == runs.end() ? nullptr : &*at;
}

GoldenBatch Golden::read_batch(const std::string& prefix) const {
  GoldenBatch out;
  const SafetensorEntry& e = entry(prefix + "input_ids", DS_DTYPE_I32);
  if (e.shape.size() != 2 || e.shape[0] < 1 || e.shape[1] < 1) {
    raise(DS_ERROR_CORRUPT, "'{}': '{}' must have 2 dimensions of at least 1", file_.path(),
          e.name);
  }
  out.rows = e.shape[0];
  out.tokens = e.shape[1];
  out.ids = read_ints(prefix + "input_ids", out);
  out.labels = read_ints(prefix + "labels", out);
  if (header_.find(prefix + "attention_mask")) out.mask = read_ints(prefix + "attention_mask", out);
  if (header_.find(prefix + "token_type_ids"))
    out.kinds = read_ints(prefix + "token_type_ids", out);
  return out;
}

// Every integer tensor of a batch must have the shape of its input_ids.
std::vector<int32_t> Golden::read_ints(const std::string& name, const GoldenBatch& like) const {
  const SafetensorEntry& e = entry(name, DS_DTYPE_I32);
  std::vector<int32_t> out(static_cast<size_t>(e.bytes) / sizeof(int32_t));
  if (e.shape != std::vector<int64_t>{like.rows, like.tokens}) {
    raise(DS_ERROR_CORRUPT, "'{}': '{}' must be [{},{}] as input_ids", file_.path(), name,
          like.rows, like.tokens);
  }
  file_.read(out.data(), static_cast<size_t>(e.bytes), e.begin);
  return out;
}

std::vector<float> Golden::read_floats(const std::string& name) const {
  const SafetensorEntry& e = entry(name, DS_DTYPE_F32);
  std::vector<float> out(static_cast<size_t>(e.bytes) / sizeof(float));
  file_.read(out.data(), static_cast<size_t>(e.bytes), e.begin);
  return out;
}

// Returns the entry of a tensor, which must exist and have this type.
const SafetensorEntry& Golden::entry(const std::string& name, DType dtype) const {
  const SafetensorEntry* e = header_.find(name);
  if (!e) raise(DS_ERROR_CORRUPT, "'{}' has no tensor '{}'", file_.path(), TensorName(name));
  if (e->dtype != dtype) {
    raise(DS_ERROR_CORRUPT, "'{}': '{}' must be {}, got {}", file_.path(), name, dtype_name(dtype),
          dtype_name(e->dtype));
  }
  return *e;
}

std::vector<float> Golden::logits() const { return read_floats("logits"); }

std::vector<float> Golden::grad(const std::string& name) const {
  return read_floats(std::string(kGrad) + name);
}

}  // namespace ds
