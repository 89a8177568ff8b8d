#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "text/tokenizers/section.h"

namespace ds::text {

// The tokens that the "post_processor" of a tokenizer.json puts around a single text. Types:
// Sequence TemplateProcessing RobertaProcessing BertProcessing, and ByteLevel, which changes
// offsets only.
struct Template {
  std::vector<int32_t> before, after;
};
Template read_template(const Json* json, const std::string& where);

}  // namespace ds::text
