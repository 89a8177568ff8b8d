#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "data/tokenizers/section.h"

namespace ds {

// The tokens that a tokenizer.json's "post_processor" puts around a single text. Types: Sequence
// ByteLevel (it moves offsets only) TemplateProcessing RobertaProcessing BertProcessing.
struct Template {
  std::vector<int32_t> before, after;
};
Template read_template(const Json* json, const std::string& where);

}  // namespace ds
