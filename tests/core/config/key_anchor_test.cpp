// docs/reference/config.md has an anchor for each key, and refusals name that anchor.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/describe.h"
#include "core/config/parse_config.h"
#include "core/config/refusals.h"
#include "core/config/schema.h"
#include "support/config_page.h"

namespace ds {
namespace {

// Returns the message with which the document is refused, or "" if it is accepted.
std::string refusal_of(const std::string& rest) {
  try {
    parse_config(Json::parse("{\"train_micro_batch_size_per_gpu\": 1, " + rest + "}"), 1);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Every key of libds has an entry with an anchor, and every entry belongs to such a key. The page
// lists other keys of DeepSpeed in backquotes.
TEST(KeyAnchor, EveryKeyIsDocumented) {
  const std::string& text = test::config_page();
  std::set<std::string> known;
  for (const Key& key : config_keys()) {
    known.insert(key.path);
    EXPECT_NE(text.find("<a id=\"" + key.path + "\"></a>`" + key.path + "`, "), std::string::npos)
        << key.path;
  }
  const std::string begin = "<a id=\"";
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    const size_t name = at + begin.size();
    const std::string anchor = text.substr(name, text.find('"', name) - name);
    EXPECT_EQ(known.count(anchor), 1u) << "no key is called " << anchor;
  }
  for (const ForeignKey& key : foreign_keys()) {
    const std::string name = key.path.substr(key.path.rfind('.') + 1);
    EXPECT_NE(text.find("`" + name + "`"), std::string::npos) << key.path;
  }
}

// A refusal names the anchor of its key, even if the document uses another name of the key or
// misspells it, and if the key is a section.
TEST(KeyAnchor, RefusalsNameTheAnchorOfTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("zero_optimization": {"stage": 4})", "zero_optimization.stage"},
      {R"("zero_optimization": {"prefetch_bucket_size": -1})",
       "zero_optimization.stage3_prefetch_bucket_size"},
      {R"("zero_optimization": {"cpu_offload": 7})", "zero_optimization.offload_optimizer.device"},
      {R"("bfloat16": {"enabled": "perhaps"})", "bf16.enabled"},
      {R"("zero_optimization": {"stag": 1})", "zero_optimization.stage"},
      {R"("gradient_cliping": 1)", "gradient_clipping"},
      {R"("zero_optimization": 2)", "zero_optimization.stage"},
      {R"("optimizer": {"params": {"max_grad_norm": -1}})", "gradient_clipping"},
      {R"("optimizer": {"param_groups": [{"params": ["w"], "lr": "fast"}]})",
       "optimizer.param_groups"},
      {R"("amp": {"enabled": true})", "accepted-only-with-the-value-that-means-off"},
      {R"("tensor_parallel": {"autotp_size": 2})", "accepted-without-effect"},
      {R"("zero_optimization": {"contiguous_gradients": 7})", "accepted-without-effect"}};
  for (const auto& [text, anchor] : cases) {
    const std::string message = refusal_of(text);
    EXPECT_EQ(test::config_anchor(message), anchor) << text << "\n" << message;
    EXPECT_TRUE(test::is_config_anchor(anchor)) << anchor;
    EXPECT_TRUE(message.ends_with(")")) << message;
  }
}

// `libds config` also lists refusals with their anchors.
TEST(KeyAnchor, ListedRefusalsNameTheAnchorOfTheKey) {
  const Json document = Json::parse(R"({"train_batch_size": 1, "gradient_clipping": -1})");
  ConfigRefusals refusals;
  const Config config = parse_config(document, 1, refusals);
  const std::string text = config_text(config, refusals, document);
  EXPECT_NE(text.find(" (docs/reference/config.md#gradient_clipping)\n"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace ds
