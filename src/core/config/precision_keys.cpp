#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/contains.h"
#include "core/base/dtype.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/core_sections.h"
#include "core/config/key.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

// Reads the name of a floating type: DeepSpeed's, or torch's with or without "torch.".
DType precision_word(const std::string& path, const Json& given, const KeyWords& supported) {
  const std::string word = read_value<std::string>(path, given);
  std::string name = ascii_lower(word);
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (!contains(supported, name))
    refuse(path, "\"{}\" is unknown; supported: {}", word, fmt::join(supported, ", "));
  if (name == "fp16" || name == "float16" || name == "half") return DS_DTYPE_F16;
  return name == "bf16" || name == "bfloat16" ? DS_DTYPE_BF16 : DS_DTYPE_F32;
}

// Returns the key bf16.enabled or fp16.enabled. fp16.enabled is set after bf16.enabled, so its
// setter detects that both are on.
Key enabled_key(const std::string& path, DType dtype, const char* doc) {
  auto set = [=](Config& c, const Json& given) {
    if (!read_value<bool>(path, given)) return;
    if (c.compute != DS_DTYPE_F32)
      refuse(path, "true excludes bf16.enabled: true; enable one of them");
    c.compute = dtype;
  };
  return {path, set, [=](const Config& c) { return Json(c.compute == dtype); }, KeyKind::boolean,
          doc};
}

// A static scale and the first dynamic scale must be finite in f32.
constexpr Limits scale_limits{.low = 0, .high = 1e38}, power_limits{.low = 0, .high = 126};

// Returns DeepSpeed's word for a type; null for DS_DTYPE_NONE.
Json word_of(DType dtype) {
  switch (dtype) {
    case DS_DTYPE_NONE:
      return Json();
    case DS_DTYPE_F32:
      return Json("fp32");
    case DS_DTYPE_F16:
      return Json("fp16");
    default:
      return Json("bf16");
  }
}

const KeyWords& type_words() {
  static const auto& words =
      *new KeyWords{"fp32", "fp16", "bf16", "float32", "float16", "bfloat16", "float", "half"};
  return words;
}

// Returns the key data_types.param_dtype. As in DeepSpeed, it has no effect of its own but must
// agree with bf16.enabled and fp16.enabled, which are set before it.
Key param_type_key(const std::string& path) {
  auto set = [=](Config& c, const Json& given) {
    if (precision_word(path, given, type_words()) == c.compute) return;
    refuse(path, "\"{}\" differs from \"{}\", the type that bf16.enabled and fp16.enabled choose",
           given.string(), word_of(c.compute).string());
  };
  return {path,
          set,
          [](const Config& c) { return word_of(c.compute); },
          KeyKind::text,
          "must agree with the type of parameters, which `bf16.enabled` and `fp16.enabled` choose; "
          "another value is refused",
          {},
          type_words()};
}

void loss_scale_keys(KeyList& keys) {
  using L = LossScaleConfig;
  KeyRows rows(keys, "fp16.", &Config::loss_scale);
  rows.add("loss_scale", &L::loss_scale,
           "factor of the loss in every step, from 1e-38 to 1e38, or 0 for a dynamic scale, which "
           "the next five keys control",
           scale_limits);
  rows.add("initial_scale_power", &L::initial_scale_power,
           "the dynamic scale begins at 2 to this power; 0 to 126", power_limits);
  rows.add("loss_scale_window", &L::window, "steps without overflow after which the scale doubles",
           count);
  rows.add(
      "hysteresis", &L::hysteresis,
      "overflows until the scale halves, counted anew when it doubles. 0: the scale never halves",
      count);
  rows.add("consecutive_hysteresis", &L::consecutive_hysteresis,
           "every step without overflow restores the hysteresis");
  rows.add("min_loss_scale", &L::min_loss_scale, "the scale never falls below this; 1e-38 to 1e38",
           scale_limits);
}

}  // namespace

void precision_keys(KeyList& keys) {
  KeyRows rows(keys, "", std::identity());
  const auto type = [&](const char* name, DType Config::*field, const KeyWords& words,
                        const char* doc) -> Key& {
    const auto read = [=](const std::string& path, const Json& given) {
      return precision_word(path, given, words);
    };
    return rows.row(name, field, read, word_of, KeyKind::text, doc, {}, words);
  };
  rows.put(enabled_key(
      "bf16.enabled", DS_DTYPE_BF16,
      "compute in bf16, with f32 masters and f32 accumulation; if neither this key nor "
      "`fp16.enabled` is true, compute in f32. The section may also be called `bfloat16`"));
  rows.add("bf16.check_grad_overflow", &Config::check_grad_overflow,
           "false: a bf16 step whose gradients have NaN or infinity is not skipped; only a step "
           "without any data is. f32 and fp16 always check");
  rows.put(enabled_key("fp16.enabled", DS_DTYPE_F16,
                       "parameters, activations and gradients are f16, with f32 masters, states "
                       "and sums of gradients, and the loss is scaled. Products are formed in f32 "
                       "and rounded once. Excludes `bf16.enabled`"));
  rows.add("fp16.auto_cast", &Config::auto_cast,
           "floating-point inputs of a graph may be f32, and are rounded to f16");
  loss_scale_keys(keys);
  type("communication_data_type", &Config::communication, {"fp32", "fp16", "bf16"},
       "the type in which gradients are sent. Each rank rounds its gradients to it once per "
       "micro-step, and they are summed in f32; if ranks have several levels, sums are sent in f32 "
       "from the second level on. `fp32` for narrower gradients gives the same bits and changes "
       "nothing. A single rank rounds as well, so that its bits are those of several. With "
       "`zero_quantized_gradients`, codes are sent instead. With `reduction` \"boundary\" each "
       "rank rounds the sum of its micro-steps instead, once per step, and `fp32` for narrower "
       "gradients sends that sum unrounded, in twice the bytes")
      .shown("none: the compute type");
  type("data_types.grad_accum_dtype", &Config::grad_accum, type_words(),
       "the type of the sum over micro-steps, which is kept until the update. After each "
       "micro-step the sum over ranks is computed in f32, added in f32 and then rounded to this "
       "type; with `reduction` \"boundary\" each rank's own sum is rounded after each of its "
       "micro-steps, and the sum over ranks at the end. Halves the memory of gradients. Excludes "
       "`reproducible` and 1-bit optimizers. `null` is fp32");
  rows.put(param_type_key("data_types.param_dtype")).shown("what is enabled");
  KeyRows autocast(keys, "torch_autocast.", &Config::autocast);
  autocast.add("enabled", &AutocastConfig::enabled,
               "parameters, gradients and masters are f32, and products (linear layers, attention) "
               "are made in `torch_autocast.dtype`; norms and losses are f32, and so are results "
               "that combine both. With `bf16.enabled` parameters and gradients are bf16, and "
               "norms and losses are still f32; excludes `fp16.enabled`. Text is generated in f32");
  const KeyWords halves{"bfloat16", "bf16", "float16", "half", "fp16"};
  autocast.row(
      "dtype", &AutocastConfig::dtype,
      [=](const std::string& path, const Json& given) {
        return precision_word(path, given, halves) == DS_DTYPE_F16 ? "f16" : "bf16";
      },
      [](const std::string& dtype) {
        return Json(dtype == "f16" ? "torch.float16" : "torch.bfloat16");
      },
      KeyKind::text,
      "the type of products; `torch.` may be left out. With `float16` the loss is scaled as "
      "torch's GradScaler does: the scale starts at 65536, doubles after 2000 clean steps and "
      "halves at an overflow, whose step is skipped; the keys of `fp16` are not read",
      {}, halves);
}

}  // namespace ds
