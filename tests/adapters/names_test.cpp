// The choice of layers beside PEFT's own answers, which tests/interop/adapters.py recorded.
#include <gtest/gtest.h>

#include "core/base/json.h"
#include "core/config/parse_config.h"
#include "io/file.h"
#include "nn/adapter_keys.h"
#include "nn/adapter_names.h"
#include "support/semantics.h"

namespace ds::test {
namespace {

TEST(AdapterNames, TargetsRanksAndFactorsAreThoseOfPeft) {
  const Json record = Json::parse(read_file(data_path("adapters/names.json")));
  for (const Json& one : record.at("cases").array()) {
    Json document;
    document.set("train_batch_size", 1);
    document.set("adapter", one.at("keys"));
    const AdapterKeys keys = parse_config(document, 1).get<AdapterKeys>();
    for (const Json& item : record.at("modules").array()) {
      const std::string& module = item.string();
      const Json* chosen = one.at("chosen").find(module);
      EXPECT_EQ(is_target(keys, module), chosen != nullptr) << module << document.dump();
      if (!chosen) continue;
      EXPECT_EQ(rank_of(keys, module), chosen->array()[0].integer()) << module;
      EXPECT_EQ(scale_of(keys, module), chosen->array()[1].number() / chosen->array()[0].number())
          << module;
    }
  }
}

TEST(AdapterNames, ParametersKnowTheirLayer) {
  const std::string a = adapter_param("h.0.attn.qkv", AdapterPart::a);
  EXPECT_EQ(a, "h.0.attn.qkv.lora_A.default.weight");
  EXPECT_EQ(adapted_module(a), "h.0.attn.qkv");
  EXPECT_EQ(adapted_module("h.0.attn.qkv.weight"), "");
}

}  // namespace
}  // namespace ds::test
