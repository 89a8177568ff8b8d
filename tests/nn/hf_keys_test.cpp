// Compares the families' tables of keys with the values that Transformers' configuration classes
// use for absent keys, as recorded by tests/interop/key_defaults.py.
#include "nn/models/hf_keys.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "core/base/json.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test {
namespace {

Recording recorded() { return {data_path("hf_defaults.json"), {"families"}}; }

// Returns a record for each family.
std::map<std::string, Record> families(const Recording& all) {
  std::map<std::string, Record> out;
  for (const auto& [family, record] : all.document().at("families").object())
    out.emplace(family, Record(record, family));
  return out;
}

// Sizes that libds requires; Transformers uses those of the family's first model instead.
const std::set<std::string_view> kNeeded{"vocab_size",
                                         "hidden_size",
                                         "num_hidden_layers",
                                         "num_attention_heads",
                                         "intermediate_size",
                                         "n_embd",
                                         "n_layer",
                                         "n_head",
                                         "ffn_dim"};
// Keys of a configuration class that the code of its model does not read.
const std::set<std::pair<std::string_view, std::string_view>> kUnread{{"phi3", "embd_pdrop"}};
// Keys that all configuration classes or the models' code read, and older names of keys.
const std::set<std::string_view> kShared{"is_causal",
                                         "is_encoder_decoder",
                                         "per_layer_config",
                                         "rope_theta",
                                         "partial_rotary_factor",
                                         "rope_scaling",
                                         "rotary_pct",
                                         "rotary_emb_base",
                                         "position_embedding_type",
                                         "head_dim",
                                         "quantization_config",
                                         "transformers_weights",
                                         "original_max_position_embeddings"};

// Returns whether two values are equal; null equals false, and 1 equals 1.0.
bool same(const Json& one, const Json& other) {
  if (one.is_number() && other.is_number()) return one.number() == other.number();
  auto none = [](const Json& value) {
    return value.is_null() || (value.is_bool() && !value.boolean());
  };
  return (none(one) && none(other)) || one.dump() == other.dump();
}

void expect_default(const std::string& family, const std::string& key, const Json& value) {
  const HfKey* row = hf_keys(family)->find(key);
  if (row == nullptr) {
    EXPECT_TRUE(is_plain_key(key) || kUnread.contains({family, key})) << family << ": " << key;
  } else if (row->otherwise.is_null() && kNeeded.contains(key)) {
    EXPECT_FALSE(value.is_null()) << family << ": " << key;
  } else {
    EXPECT_TRUE(same(row->otherwise, value))
        << family << ": " << key << " is " << row->otherwise.dump() << ", in Transformers "
        << value.dump();
  }
}

TEST(HfKeys, DefaultsEqualThoseOfTransformers) {
  const Recording all = recorded();
  const std::map<std::string, Record> each = families(all);
  for (const auto& [family, record] : each) {
    ASSERT_NE(hf_keys(family), nullptr) << family;
    record.told({"other_names"});
    for (const auto& [key, value] : record.at("keys").object()) expect_default(family, key, value);
    for (const auto& [key, value] : record.at("rope").object()) {
      bool neox = family == "gpt_neox";
      std::string ours = key == "rope_theta" && neox              ? "rotary_emb_base"
                         : key == "partial_rotary_factor" && neox ? "rotary_pct"
                                                                  : key;
      if (key == "rope_type") {
        EXPECT_EQ(value.string(), "default") << family;
      } else {
        expect_default(family, ours, value);
      }
    }
  }
  std::set<std::string> names;
  for (const auto& [family, record] : each) names.insert(family);
  EXPECT_EQ(names,
            (std::set<std::string>{"bert", "gemma2", "gpt2", "gpt_neox", "llama", "ministral",
                                   "mistral", "mixtral", "opt", "phi3", "qwen2", "qwen3"}));
}

TEST(HfKeys, EveryKeyIsKnownToTransformers) {
  const Recording all = recorded();
  for (const auto& [family, record] : families(all)) {
    record.told({"rope", "other_names"});
    for (const HfKey& key : hf_keys(family)->keys) {
      bool theirs = record.at("keys").find(key.name) != nullptr;
      EXPECT_TRUE(theirs || kShared.contains(key.name)) << family << ": " << key.name;
    }
  }
}

TEST(HfKeys, OtherNamesEqualThoseOfTransformers) {
  const Recording all = recorded();
  for (const auto& [family, record] : families(all)) {
    record.told({"keys", "rope"});
    const HfKeys& ours = *hf_keys(family);
    EXPECT_EQ(ours.aliases.size(), record.at("other_names").object().size()) << family;
    for (const auto& [other, key] : record.at("other_names").object()) {
      EXPECT_EQ(ours.alias_of(other), key.string()) << family;
    }
  }
}

}  // namespace
}  // namespace ds::test
