#pragma once
#include <string>

#include "core/base/json.h"

namespace ds::test {

// Returns the page docs/reference/config.md with the entry of each key regenerated from the key's
// row in the table of keys. The text around the entries is kept. A missing entry is inserted after
// the entry of the preceding key.
std::string config_page_of_rows(std::string page);

// Returns the JSON schema (draft 7) of a configuration, for docs/reference/config.schema.json.
Json config_schema();

}  // namespace ds::test
