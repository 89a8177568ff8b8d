#pragma once
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "support/config_page.h"

namespace ds::test {

inline Config parse(const std::string& text, int world = 1) {
  return parse_config(Json::parse(text), world);
}

// Returns the configuration of a document with the mandatory batch size and `rest`.
inline Config with(const std::string& rest, int world = 1) {
  return parse("{\"train_micro_batch_size_per_gpu\": 1, " + rest + "}", world);
}

// Returns the message of the DS_ERROR_CONFIG with which the document is refused, without the anchor
// of the key, or "" if it is accepted.
inline std::string refusal(const Json& document, int world = 1) {
  try {
    parse_config(document, world);
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_CONFIG) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return without_config_anchor(e.what());
  }
}

inline std::string refusal_with(const std::string& rest) {
  return refusal(Json::parse("{\"train_micro_batch_size_per_gpu\": 1, " + rest + "}"));
}

}  // namespace ds::test
