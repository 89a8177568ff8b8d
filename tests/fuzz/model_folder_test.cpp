#include "checkpoint/model_folder.h"

#include <array>
#include <filesystem>

#include "attempt.h"
#include "io/safetensors.h"
#include "support/mutate.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr const char* kConfig = R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 11, "hidden_size": 8,
  "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
  "hidden_act": "silu", "max_position_embeddings": 32, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16},
  "initializer_range": 0.02, "tie_word_embeddings": true, "bos_token_id": 1, "torch_dtype": "float32"})";

// A folder as on the Hugging Face hub: config.json, an index and two shards.
class FuzzModelFolder : public testing::Test {
 protected:
  static constexpr std::array<const char*, 2> kShards{"a.safetensors", "b.safetensors"};

  void SetUp() override {
    config_ = Json::parse(kConfig);
    write_config(config_);
    HfModel model = build_hf_model(folder_.path(), 16, 8);
    Json map;
    for (size_t shard = 0; shard < 2; ++shard) {
      std::vector<SafetensorEntry> entries;
      for (size_t p = shard; p < model.graph.params.size(); p += 2) {
        const Parameter& param = model.graph.params[p];
        SafetensorEntry entry{param.name, DS_DTYPE_F32, {}, 0, 0};
        for (const Dim& dim : model.graph.type(param.value).shape.dims())
          entry.shape.push_back(dim.extent);
        entries.push_back(entry);
        map.set(param.name, kShards[shard]);
      }
      std::string head = plan_safetensors(entries, {{"format", "pt"}});
      headers_[shard] = Json::parse(std::string_view(head).substr(8));
      data_[shard].assign(
          static_cast<size_t>(entries.back().begin + entries.back().bytes) - head.size(), '\1');
      write_shard(shard, headers_[shard]);
    }
    index_.set("metadata", Json::parse(R"({"total_size": 1000})"));
    index_.set("weight_map", map);
    write_index(index_);
  }

  void write_config(const Json& config) { put_file(folder_ / "config.json", config.dump(2)); }
  void write_index(const Json& index) {
    put_file(folder_ / "model.safetensors.index.json", index.dump(2));
  }
  void write_shard(size_t shard, const Json& header) {
    std::string text = header.dump(), length(8, '\0');
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> 8 * i & 255);
    put_file(folder_ / kShards[shard], length + text + data_[shard]);
  }
  bool attempt() {
    return attempts_.run([&] { build_hf_model(folder_.path(), 16, 8); });
  }

  TempFolder folder_;
  Json config_, index_;
  std::array<Json, 2> headers_;
  std::array<std::string, 2> data_;
  // A valid configuration may have hundreds of layers, whose graph needs several MiB.
  Attempts attempts_{size_t{8} << 20};
};

TEST_F(FuzzModelFolder, EveryTensorIsCheckedInEveryFile) {
  ASSERT_TRUE(attempt());
  const Json::Object& map = index_.at("weight_map").object();
  for (size_t i = 0; i < map.size(); ++i) {
    Json index = index_;
    Json::Object& members = index.object()[1].second.object();
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(i));
    write_index(index);
    EXPECT_FALSE(attempt()) << map[i].first;
    index = index_;
    index.object()[1].second.set(map[i].first, kShards[map[i].second.string() == kShards[0]]);
    write_index(index);
    EXPECT_FALSE(attempt()) << map[i].first;
    index = index_;
    index.object()[1].second.object().push_back(map[i]);
    write_index(index);
    EXPECT_FALSE(attempt()) << map[i].first;
  }
  write_index(index_);
  for (size_t i = 1; i < headers_[0].object().size(); ++i) {
    Json header = headers_[0];
    header.object()[i].first += "s";
    write_shard(0, header);
    EXPECT_FALSE(attempt()) << i;
    header = headers_[0];
    header.object()[i].second.set("dtype", "I32");
    write_shard(0, header);
    EXPECT_FALSE(attempt()) << i;
    header = headers_[0];
    header.object()[i].second.object()[1].second.array().emplace_back(1);
    write_shard(0, header);
    EXPECT_FALSE(attempt()) << i;
  }
}

TEST_F(FuzzModelFolder, LinksAreFollowedAndLoopsAreRefused) {
  namespace fs = std::filesystem;
  auto link = [&](const std::string& to, const std::string& name) {
    fs::remove_all(folder_ / name);
    fs::create_symlink(to, folder_ / name);
  };
  fs::create_directory(folder_ / "blobs");
  fs::rename(folder_ / "a.safetensors", folder_ / "blobs/0");
  // The hub's cache links files in this way.
  link("blobs/0", "a.safetensors");
  EXPECT_TRUE(attempt());
  link("a.safetensors", "a.safetensors");
  EXPECT_FALSE(attempt());
  link("c.safetensors", "a.safetensors");
  link("a.safetensors", "c.safetensors");
  EXPECT_FALSE(attempt());
  link("blobs", "a.safetensors");
  EXPECT_FALSE(attempt());
  link("/dev/zero", "a.safetensors");
  EXPECT_FALSE(attempt());
  link("model.safetensors.index.json", "model.safetensors.index.json");
  EXPECT_FALSE(attempt());
  link("model.safetensors", "model.safetensors");
  EXPECT_FALSE(attempt());
  link("loop", "loop");
  EXPECT_FALSE(attempts_.run([&] { build_hf_model(folder_ / "loop", 16, 8); }));
  for (const char* to : {"config.json", ".", "/dev/zero", "nothing"}) {
    link(to, "config.json");
    EXPECT_FALSE(attempt()) << to;
  }
}

TEST_F(FuzzModelFolder, DamagedFilesAreReadOrRefused) {
  for (uint32_t i = 0; i < draws(2500); ++i) {
    Dice dice = dice_of(21, i);
    SCOPED_TRACE(i);
    size_t shard = static_cast<size_t>(dice.below(2));
    switch (dice.below(4)) {
      case 0:
        write_config(mutate_json(config_, dice));
        attempt();
        write_config(config_);
        break;
      case 1:
        write_index(mutate_json(index_, dice));
        attempt();
        write_index(index_);
        break;
      case 2:
        write_shard(shard, mutate_json(headers_[shard], dice));
        attempt();
        write_shard(shard, headers_[shard]);
        break;
      default: {
        std::string path =
            folder_ / dice.pick<const char*>({"config.json", "model.safetensors.index.json",
                                              "a.safetensors", "b.safetensors"});
        std::string bytes = get_file(path);
        put_file(path, mutate_bytes(bytes, dice));
        attempt();
        put_file(path, bytes);
      }
    }
  }
  EXPECT_TRUE(attempt());
  EXPECT_GT(attempts_.loaded, static_cast<int>(draws(100)));
  EXPECT_GT(attempts_.refused, static_cast<int>(draws(1000)));
}

}  // namespace
}  // namespace ds::test
