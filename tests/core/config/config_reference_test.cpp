// docs/reference/config.md and config.schema.json must agree with the table of keys. `./run abi`
// regenerates both: with DS_RENEW_REFERENCE set, this test writes them.
#include "support/config_reference.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/json.h"
#include "core/config/schema.h"

namespace ds {
namespace {

const std::string kPage = DS_SOURCE_DIR "/docs/reference/config.md";
const std::string kSchema = DS_SOURCE_DIR "/docs/reference/config.schema.json";

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Compares a file with its expected text or, with DS_RENEW_REFERENCE, writes that text.
void expect_file(const std::string& path, const std::string& text) {
  if (std::getenv("DS_RENEW_REFERENCE")) {
    std::ofstream(path) << text;
    return;
  }
  EXPECT_TRUE(text_of(path) == text) << path << " differs from the rows of the keys; run ./run abi";
}

TEST(ConfigReference, ThePageMatchesTheTableOfKeys) {
  expect_file(kPage, test::config_page_of_rows(text_of(kPage)));
}

TEST(ConfigReference, TheSchemaMatchesTheTableOfKeys) {
  expect_file(kSchema, test::config_schema().dump(2) + "\n");
}

TEST(ConfigReference, EveryKeyIsDescribed) {
  for (const Key& key : config_keys()) EXPECT_FALSE(std::string(key.doc).empty()) << key.path;
}

}  // namespace
}  // namespace ds
