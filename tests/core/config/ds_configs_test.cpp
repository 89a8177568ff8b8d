// Reads 92 configurations of real projects (tests/data/ds_configs/index.json names their sources).
// Each is accepted, or refused for a feature that it enables and libds lacks
// (docs/reference/deepspeed_compat.md gives the reasons).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "core/config/refusals.h"

namespace ds {
namespace {

const char* const kFolder = DS_SOURCE_DIR "/tests/data/ds_configs";

Json read_config_file(const std::string& name) {
  std::ifstream file(std::string(kFolder) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return Json::parse(text.str(), name);
}

// The refused files, each with the key of the refusal: they enable compression, random layerwise
// token dropping, sparse attention, MoQ or tensor parallelism.
const std::map<std::string, std::string> kRefused = {
    {"DSE_000.json", "compression_training.layer_reduction.enabled"},
    {"DSE_001.json", "compression_training.weight_quantization.shared_parameters.enabled"},
    {"DSE_002.json", "compression_training.weight_quantization.shared_parameters.enabled"},
    {"DSE_003.json", "compression_training.weight_quantization.shared_parameters.enabled"},
    {"DSE_006.json", "compression_training.weight_quantization.shared_parameters.enabled"},
    {"DSE_007.json", "compression_training.weight_quantization.shared_parameters.enabled"},
    {"DSE_008.json", "compression_training.weight_quantization.shared_parameters.enabled"},
    {"DSE_009.json", "compression_training.weight_quantization.shared_parameters.enabled"},
    {"DSE_034.json", "sparse_attention"},
    {"DSE_036.json", "data_efficiency.data_routing.random_ltd.enabled"},
    {"DSE_037.json", "data_efficiency.data_routing.random_ltd.enabled"},
    {"DSE_038.json", "data_efficiency.data_routing.random_ltd.enabled"},
    {"DSE_039.json", "data_efficiency.data_routing.random_ltd.enabled"},
    {"DSE_044.json", "tensor_parallel.autotp_size"},
    {"DS_076.json", "quantize_training"},
    {"LF_064.json", "tensor_parallel.autotp_size"},
};

// Other unsupported keys that the refused files enable.
const std::set<std::string> kBesides = {"eigenvalue.enabled"};

TEST(DsConfigs, AreAcceptedOrRefusedForASwitchedOnFeature) {
  size_t files = 0;
  const Json index = read_config_file("index.json");
  for (const Json& entry : index.array()) {
    const std::string name = entry.at("file").string();
    SCOPED_TRACE(name);
    ++files;
    ConfigRefusals refusals;
    parse_config(read_config_file(name), 1, refusals);
    std::string all, keys;
    bool found = false;
    auto refused = kRefused.find(name);
    for (const Error& error : refusals.errors) {
      all += std::string(error.what()) + "\n";
      const std::string key = error.details().key;
      const bool expected = refused != kRefused.end() && key == refused->second;
      found = found || expected;
      if (!expected && !(refused != kRefused.end() && kBesides.contains(key))) keys += key + " ";
    }
    EXPECT_EQ(found, refused != kRefused.end()) << all;
    EXPECT_EQ(keys, "") << all;
  }
  EXPECT_EQ(files, 92u);
}

// If a file is accepted, its effective configuration must be accepted, too, and must not change
// again.
TEST(DsConfigs, EffectiveConfigurationsAreAcceptedUnchanged) {
  const Json index = read_config_file("index.json");
  size_t compared = 0;
  for (const Json& entry : index.array()) {
    const std::string name = entry.at("file").string();
    SCOPED_TRACE(name);
    ConfigRefusals refusals;
    const Config config = parse_config(read_config_file(name), 1, refusals);
    if (!refusals.errors.empty()) continue;
    ++compared;
    const Json values = config.effective().at("config");
    EXPECT_EQ(parse_config(values, 1).effective().at("config").dump(), values.dump());
  }
  EXPECT_GT(compared, 20u);
}

}  // namespace
}  // namespace ds
