#pragma once
#include <string>

namespace ds::test {

// Returns the text of docs/reference/config.md.
const std::string& config_page();

// Returns whether the page has this anchor, which belongs to a key or to a second-level heading.
bool is_config_anchor(const std::string& anchor);

// Returns the anchor at the end of a message that refuses a configuration, or "" if it has none.
std::string config_anchor(const std::string& message);

// Returns a message that refuses a configuration without its anchor. The test fails if the page
// lacks this anchor.
std::string without_config_anchor(const std::string& message);

}  // namespace ds::test
