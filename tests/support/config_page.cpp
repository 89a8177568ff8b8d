#include "support/config_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "core/base/ascii.h"

namespace ds::test {
namespace {

constexpr std::string_view kBefore = " (docs/reference/config.md#";

}  // namespace

const std::string& config_page() {
  static const auto& page = *new std::string([] {
    std::ifstream file(DS_SOURCE_DIR "/docs/reference/config.md");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }());
  return page;
}

bool is_config_anchor(const std::string& anchor) {
  std::string heading = anchor;
  std::replace(heading.begin(), heading.end(), '-', ' ');
  return config_page().find("<a id=\"" + anchor + "\"></a>") != std::string::npos ||
         ascii_lower(config_page()).find("\n## " + heading + "\n") != std::string::npos;
}

std::string config_anchor(const std::string& message) {
  const size_t begin = message.find(kBefore);
  if (begin == std::string::npos) return "";
  const std::string rest = message.substr(begin + kBefore.size());
  return rest.substr(0, rest.find(')'));
}

std::string without_config_anchor(const std::string& message) {
  const std::string anchor = config_anchor(message);
  if (anchor.empty()) return message;
  EXPECT_TRUE(is_config_anchor(anchor)) << message;
  const size_t begin = message.find(kBefore);
  return message.substr(0, begin) + message.substr(begin + kBefore.size() + anchor.size() + 1);
}

}  // namespace ds::test
