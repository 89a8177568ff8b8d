#pragma once
#include <string>

namespace ds::test {

// The text of docs/reference/config.md.
const std::string& config_page();

// Whether the page has the anchor: that of a key, or of a heading of the second level.
bool is_config_anchor(const std::string& anchor);

// The anchor that a refusal of a configuration ends with; "": none.
std::string config_anchor(const std::string& message);

// A refusal without its anchor, which must be one of the page.
std::string without_config_anchor(const std::string& message);

}  // namespace ds::test
