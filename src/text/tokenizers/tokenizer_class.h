#pragma once
#include <string>
#include <string_view>

#include "core/base/json.h"

namespace ds::text {

// Returns the class of Transformers 5.23, without "Fast", that opens a folder with a
// tokenizer.json: the class that tokenizer_config.json names (`given`, or ""), unless config.json
// decides otherwise (`config`, or an empty object). "TokenizersBackend" loads the file as it is.
// Classes of equal behavior share one name.
std::string tokenizer_class(const std::string& given, const Json& config);

// These functions return whether the class applies add_prefix_space, or the flags of BERT's
// normalizer, from tokenizer_config.json.
bool takes_prefix_space(std::string_view class_name);
bool takes_bert_flags(std::string_view class_name);

}  // namespace ds::text
