#include <bit>
#include <cstring>
#include <filesystem>
#include <map>

#include "checkpoint/fake_state.h"
#include "checkpoint/weights_load.h"
#include "checkpoint/weights_save.h"
#include "core/base/half.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "io/pickle.h"
#include "io/safetensors.h"
#include "io/zip.h"
#include "support/errors.h"

namespace ds::test {
namespace {

struct Stored {
  std::string name;
  DType dtype = DS_DTYPE_F32;
  std::vector<int64_t> shape;
  // The parameter whose values the tensor contains, or -1 for a tensor of ones.
  int32_t param = -1;
};

// Returns the value of a parameter's element i in these tests. Every dtype of a file represents it
// exactly.
float weight(ParamId id, int64_t i) {
  int32_t param = id.number();
  return static_cast<float>((i * 7 + param * 3) % 127 - 63) * (param % 2 == 0 ? 1.0f : 0x1p-20f);
}

std::string element(DType dtype, float value) {
  std::string bytes(static_cast<size_t>(size_of(dtype)), '\0');
  uint16_t half = dtype == DS_DTYPE_F16 ? narrow_half(value) : bf16(value).bits;
  if (dtype == DS_DTYPE_F32) {
    std::memcpy(bytes.data(), &value, 4);
  } else {
    std::memcpy(bytes.data(), &half, bytes.size() < 2 ? 1 : 2);
  }
  return bytes;
}

std::string file_bytes(const std::vector<Stored>& tensors) {
  std::vector<SafetensorEntry> entries;
  for (const Stored& t : tensors) entries.push_back({t.name, t.dtype, t.shape, 0, 0});
  std::string bytes = plan_safetensors(entries, {{"format", "pt"}});
  for (size_t t = 0; t < tensors.size(); ++t) {
    int64_t numel = entries[t].bytes / size_of(tensors[t].dtype);
    for (int64_t i = 0; i < numel; ++i) {
      bytes += element(tensors[t].dtype,
                       tensors[t].param < 0 ? 1.0f : weight(ParamId(tensors[t].param), i));
    }
  }
  return bytes;
}

// Returns the tensors of fake_params() in another order, under their own names.
std::vector<Stored> plain() {
  std::vector<FakeParam> params = fake_params();
  std::vector<Stored> tensors;
  for (int32_t p : {3, 0, 4, 1, 2}) {
    const FakeParam& param = params[p];
    tensors.push_back({param.name, DS_DTYPE_F32, param.shape, p});
  }
  return tensors;
}

// A log sink that collects lines as long as it lives.
class CapturedLog {
 public:
  CapturedLog() {
    set_log_sink([this](LogLevel, std::string_view line) { text_ += line; });
  }
  ~CapturedLog() { set_log_sink({}); }
  const std::string& text() {
    flush_log();
    return text_;
  }

 private:
  std::string text_;
};

class Weights : public testing::Test {
 protected:
  void write(const std::vector<Stored>& tensors, const std::string& name = "model.safetensors") {
    make_folders(folder_ / "model");
    write_file_atomic(folder_ / "model/" + name, file_bytes(tensors));
  }
  std::string path() const { return folder_ / "model"; }

  // Loads with `world` ranks, checks every element, and saves to `saved`.
  void round_trip(int world, bool partitioned, const std::string& saved, const std::string& like,
                  const std::vector<FakeParam>& params = fake_params()) {
    run_ranks(world, [&](Communicator& comm) {
      FakeState state(comm, partitioned, params);
      load_weights(state, path());
      int64_t wrong = 0;
      state.each([&](int kind, ParamId param, int64_t i, float& value) {
        if (kind == 0)
          wrong += std::bit_cast<uint32_t>(value) != std::bit_cast<uint32_t>(weight(param, i));
        // Loading does not change moments: they are still NaN.
        if (kind != 0) wrong += value == value;
      });
      EXPECT_EQ(wrong, 0) << world << " ranks";
      save_weights(state, saved, like);
    });
  }

  std::string refusal(ds_status status = DS_ERROR_CONFIG,
                      const std::vector<FakeParam>& params = fake_params()) {
    return message_of(
        [&] {
          run_ranks(2, [&](Communicator& comm) {
            FakeState state(comm, true, params);
            try {
              load_weights(state, path());
            } catch (const Error&) {
              EXPECT_EQ(state.written, 0);
              throw;
            }
          });
        },
        status);
  }
  std::string saved_file(const std::string& folder,
                         const std::string& name = "model.safetensors") const {
    return read_file(folder_ / folder + "/" + name);
  }
  TempFolder folder_;
};

TEST_F(Weights, AreSavedBackByteForByteOnAnyNumberOfRanks) {
  write(plain());
  for (int world : {1, 2, 3}) {
    for (bool partitioned : {false, true}) {
      round_trip(world, partitioned, folder_ / "back", path());
      EXPECT_EQ(saved_file("back"), saved_file("model"));
      EXPECT_EQ(list_folder(folder_ / "back"), std::vector<std::string>{"model.safetensors"});
    }
  }
}

TEST_F(Weights, SixteenBitTensorsWidenExactlyAndKeepTheirType) {
  std::vector<Stored> tensors = plain();
  tensors[0].dtype = DS_DTYPE_BF16;
  tensors[1].dtype = DS_DTYPE_F16;
  // This tensor has subnormal values.
  tensors[3].dtype = DS_DTYPE_F16;
  write(tensors);
  round_trip(2, true, folder_ / "back", path());
  EXPECT_EQ(saved_file("back"), saved_file("model"));
}

TEST_F(Weights, WithoutALikeFolderAnF32FileInParameterOrderIsSaved) {
  write(plain());
  round_trip(2, true, folder_ / "new", "");
  std::vector<Stored> wanted;
  for (size_t p = 0; p < fake_params().size(); ++p) {
    wanted.push_back(
        {fake_params()[p].name, DS_DTYPE_F32, fake_params()[p].shape, static_cast<int32_t>(p)});
  }
  EXPECT_EQ(saved_file("new"), file_bytes(wanted));
}

TEST_F(Weights, ShardsAreSavedAsShardsWithIndexConfigAndTokenizer) {
  std::vector<Stored> all = plain();
  write({all[0], all[1]}, "model-1.safetensors");
  write({all[2], all[3], all[4]}, "model-2.safetensors");
  std::string map = R"({"weight_map":{)";
  for (size_t t = 0; t < all.size(); ++t) {
    map +=
        fmt::format("{}\"{}\":\"model-{}.safetensors\"", t ? "," : "", all[t].name, t < 2 ? 1 : 2);
  }
  write_file_atomic(path() + "/model.safetensors.index.json", map + "}}");
  write_file_atomic(path() + "/config.json", "{}");
  write_file_atomic(path() + "/tokenizer.json", "{1}");
  write_file_atomic(path() + "/chat_template.jinja", "{{ 1 }}");
  write_file_atomic(path() + "/notes.txt", "not copied");
  round_trip(2, true, folder_ / "back", path());
  std::vector<std::string> names{"chat_template.jinja",          "config.json",
                                 "model-1.safetensors",          "model-2.safetensors",
                                 "model.safetensors.index.json", "tokenizer.json"};
  EXPECT_EQ(list_folder(folder_ / "back"), names);
  for (const std::string& name : names)
    EXPECT_EQ(saved_file("back", name), saved_file("model", name));
  // This overwrites the model in place.
  round_trip(1, true, path(), path());
  for (const std::string& name : names)
    EXPECT_EQ(saved_file("back", name), saved_file("model", name));
}

// Parameters of a model that is saved under old names, with a tied head that is stored twice, and
// with constants.
std::vector<FakeParam> gpt2_params() {
  return {{"transformer.wte.weight", {9, 4}}, {"transformer.h.0.ln_1.weight", {4}}};
}

TEST_F(Weights, OldNamesAreAcceptedAndSavedBack) {
  std::vector<Stored> tensors{{"h.0.ln_1.weight", DS_DTYPE_F32, {4}, 1},
                              {"h.0.attn.bias", DS_DTYPE_U8, {1, 1, 3, 3}, -1},
                              {"wte.weight", DS_DTYPE_F32, {9, 4}, 0}};
  write(tensors);
  round_trip(2, true, folder_ / "back", path(), gpt2_params());
  EXPECT_EQ(saved_file("back"), saved_file("model"));
  tensors.push_back({"lm_head.weight", DS_DTYPE_F32, {9, 4}, 0});
  write(tensors);
  round_trip(2, false, folder_ / "twice", path(), gpt2_params());
  EXPECT_EQ(saved_file("twice"), saved_file("model"));
  // Leaves the parameter in the file under its other name only.
  tensors.erase(tensors.begin() + 2);
  write(tensors);
  round_trip(2, true, folder_ / "other", path(), gpt2_params());
  EXPECT_EQ(saved_file("other"), saved_file("model"));
  std::vector<FakeParam> bert{{"bert.embeddings.LayerNorm.weight", {4}},
                              {"bert.embeddings.LayerNorm.bias", {4}}};
  write({{"bert.embeddings.LayerNorm.beta", DS_DTYPE_F32, {4}, 1},
         {"bert.embeddings.LayerNorm.gamma", DS_DTYPE_F32, {4}, 0},
         {"bert.pooler.dense.bias", DS_DTYPE_F32, {4}, -1}});
  round_trip(1, true, folder_ / "bert", path(), bert);
  EXPECT_EQ(saved_file("bert"), saved_file("model"));
}

TEST_F(Weights, TwoTensorsOfOneParameterMustBeEqual) {
  write({{"transformer.wte.weight", DS_DTYPE_F32, {9, 4}, 0},
         {"wte.weight", DS_DTYPE_F32, {9, 4}, 0},
         {"h.0.ln_1.weight", DS_DTYPE_F32, {4}, 1}});
  expect_names(refusal(DS_ERROR_CONFIG, gpt2_params()),
               {"'transformer.wte.weight'", "'wte.weight'"});
  write({{"wte.weight", DS_DTYPE_F32, {9, 4}, 0},
         {"lm_head.weight", DS_DTYPE_F32, {9, 4}, 1},
         {"h.0.ln_1.weight", DS_DTYPE_F32, {4}, 1}});
  expect_names(refusal(DS_ERROR_CONFIG, gpt2_params()),
               {"'lm_head.weight'", "'wte.weight'", "not equal"});
}

TEST_F(Weights, MissingSurplusAndDifferentTensorsAreNamed) {
  std::vector<Stored> tensors = plain();
  tensors.pop_back();
  write(tensors);
  expect_names(refusal(), {"'h.0.bias'", path()});
  tensors = plain();
  tensors[0].shape = {100, 7};
  write(tensors);
  expect_names(refusal(), {"'h.1.weight'", "[100,7]", "[7,100]"});
  for (DType dtype : {DS_DTYPE_I32, DS_DTYPE_F64, DS_DTYPE_U8}) {
    tensors = plain();
    tensors[1].dtype = dtype;
    write(tensors);
    expect_names(refusal(), {"'wte'", dtype_name(dtype)});
  }
}

TEST_F(Weights, NamesWithAWrappersPrefixAreExplained) {
  for (auto [prefix, what] : {std::pair{"module.", "model.module.save_pretrained()"},
                              {"base_model.model.", "merge_and_unload()"},
                              {"_orig_mod.", "torch.compile"},
                              {"_fsdp_wrapped_module.", "FSDP"}}) {
    std::vector<Stored> tensors = plain();
    for (Stored& tensor : tensors) tensor.name = prefix + tensor.name;
    write(tensors);
    expect_names(refusal(), {path(), prefix, what});
  }
  std::vector<Stored> tensors = plain();
  const std::string inner = "h.0._checkpoint_wrapped_module.attn.weight";
  tensors.back().name = inner;
  write(tensors);
  expect_names(refusal(), {path(), inner.c_str(), "checkpoint_wrapper"});
  tensors = plain();
  tensors.back().name = "h.0.attn.lora_A.weight";
  write(tensors);
  expect_names(refusal(), {path(), "'h.0.attn.lora_A.weight'", "adapter"});
}

TEST_F(Weights, SurplusTensorsAreSavedBackWithAWarning) {
  std::vector<Stored> tensors = plain();
  tensors.push_back({"h.7.bias", DS_DTYPE_F32, {2}, -1});
  write(tensors);
  CapturedLog log;
  round_trip(2, true, folder_ / "back", path());
  EXPECT_EQ(saved_file("back"), saved_file("model"));
  expect_names(log.text(), {path(), "left out", "h.7.bias"});
}

// The folder contains a base model: its names lack the prefix, and it has no head. The head keeps
// its values and is saved.
TEST_F(Weights, AMissingHeadKeepsItsValuesAndIsSaved) {
  std::vector<FakeParam> params{{"bert.embeddings.word_embeddings.weight", {9, 4}},
                                {"cls.predictions.transform.dense.weight", {4, 4}},
                                {"bert.encoder.layer.0.output.dense.bias", {4}}};
  write({{"embeddings.word_embeddings.weight", DS_DTYPE_F32, {9, 4}, 0},
         {"encoder.layer.0.output.dense.bias", DS_DTYPE_F32, {4}, 2},
         {"pooler.dense.bias", DS_DTYPE_F32, {4}, -1}});
  CapturedLog log;
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, true, params);
    state.each([&](int kind, ParamId param, int64_t i, float& value) {
      if (kind == 0) value = weight(param, i);
    });
    load_weights(state, path());
    save_weights(state, folder_ / "back", path());
  });
  expect_names(log.text(),
               {"pooler.dense.bias", "random", "cls.predictions.transform.dense.weight"});
  EXPECT_EQ(saved_file("back"),
            file_bytes({{"bert.embeddings.word_embeddings.weight", DS_DTYPE_F32, {9, 4}, 0},
                        {"bert.encoder.layer.0.output.dense.bias", DS_DTYPE_F32, {4}, 2},
                        {"cls.predictions.transform.dense.weight", DS_DTYPE_F32, {4, 4}, 1}}));
  std::filesystem::rename(folder_ / "back", folder_ / "model/whole");
  std::filesystem::rename(folder_ / "model/whole/model.safetensors",
                          folder_ / "model/model.safetensors");
  round_trip(2, true, folder_ / "again", path(), params);
  EXPECT_EQ(saved_file("again"), saved_file("model"));
}

// Writes a state dict as torch.save does; tensors of one parameter share a storage.
void write_torch(const std::string& path, const std::vector<Stored>& tensors) {
  PickleWriter out;
  out.empty_dict().mark();
  std::map<int32_t, size_t> storages;
  std::vector<std::string> data;
  for (const Stored& t : tensors) {
    int64_t numel = 1;
    for (int64_t extent : t.shape) numel *= extent;
    auto [storage, fresh] = storages.emplace(t.param, data.size());
    if (fresh) {
      data.emplace_back();
      for (int64_t i = 0; i < numel; ++i)
        data.back() += element(t.dtype, t.param < 0 ? 1.0f : weight(ParamId(t.param), i));
    }
    out.text(t.name).global("torch._utils", "_rebuild_tensor_v2").mark().mark().text("storage");
    out.global("torch", t.dtype == DS_DTYPE_F32 ? "FloatStorage" : "BFloat16Storage");
    out.text(std::to_string(storage->second))
        .text("cpu")
        .integer(numel)
        .tuple()
        .persistent()
        .integer(0);
    out.mark();
    for (int64_t extent : t.shape) out.integer(extent);
    out.tuple().mark();
    int64_t stride = numel;
    for (int64_t extent : t.shape) out.integer(stride /= extent);
    out.tuple()
        .boolean(false)
        .global("collections", "OrderedDict")
        .empty_tuple()
        .reduce()
        .tuple()
        .reduce();
  }
  out.items();
  ZipWriter zip(path);
  zip.add("pytorch_model/data.pkl", out.finish());
  zip.add("pytorch_model/byteorder", "little");
  for (size_t s = 0; s < data.size(); ++s)
    zip.add(fmt::format("pytorch_model/data/{}", s), data[s]);
  zip.add("pytorch_model/version", "3\n");
  zip.finish();
}

TEST_F(Weights, TorchFilesAreReadAndSavedAsSafetensors) {
  make_folders(path());
  std::vector<Stored> tensors{{"transformer.wte.weight", DS_DTYPE_F32, {9, 4}, 0},
                              {"transformer.h.0.ln_1.weight", DS_DTYPE_F32, {4}, 1},
                              {"h.0.attn.bias", DS_DTYPE_F32, {2}, -1},
                              {"lm_head.weight", DS_DTYPE_F32, {9, 4}, 0}};
  write_torch(path() + "/pytorch_model.bin", tensors);
  for (int world : {1, 2}) round_trip(world, true, folder_ / "back", path(), gpt2_params());
  tensors.pop_back();
  EXPECT_EQ(saved_file("back"), file_bytes(tensors));
}

TEST_F(Weights, ShardsOfTorchAreSavedAsShardsOfSafetensors) {
  make_folders(path());
  std::vector<Stored> all = plain();
  write_torch(path() + "/pytorch_model-00001-of-00002.bin", {all[0], all[1]});
  write_torch(path() + "/pytorch_model-00002-of-00002.bin", {all[2], all[3], all[4]});
  Json::Object map;
  for (size_t t = 0; t < all.size(); ++t)
    map.emplace_back(all[t].name, fmt::format("pytorch_model-0000{}-of-00002.bin", t < 2 ? 1 : 2));
  Json index;
  index.set("weight_map", std::move(map));
  write_file_atomic(path() + "/pytorch_model.bin.index.json", index.dump());
  round_trip(2, true, folder_ / "back", path());
  EXPECT_EQ(saved_file("back", "model-00001-of-00002.safetensors"), file_bytes({all[0], all[1]}));
  EXPECT_EQ(saved_file("back", "model-00002-of-00002.safetensors"),
            file_bytes({all[2], all[3], all[4]}));
  round_trip(1, true, folder_ / "again", folder_ / "back");
  for (const std::string& name : list_folder(folder_ / "back"))
    EXPECT_EQ(saved_file("again", name), saved_file("back", name));
  write_file_atomic(path() + "/pytorch_model-00002-of-00002.bin",
                    "version https://git-lfs.github.com/spec/v1\n");
  expect_names(refusal(DS_ERROR_CORRUPT), {"pytorch_model-00002-of-00002.bin", "Git LFS pointer"});
}

TEST_F(Weights, DamagedFilesAreRefusedBeforeAnyStateChanges) {
  expect_names(refusal(DS_ERROR_NOT_FOUND), {"model.safetensors"});
  write(plain());
  std::string file = path() + "/model.safetensors", good = read_file(file);
  for (size_t size : {size_t{0}, size_t{7}, size_t{8}, size_t{100}, good.size() - 1}) {
    write_file_atomic(file, good.substr(0, size));
    expect_names(refusal(DS_ERROR_CORRUPT), {file});
  }
  std::string huge = good;
  uint64_t length = uint64_t{1} << 62;
  std::memcpy(huge.data(), &length, 8);
  write_file_atomic(file, huge);
  expect_names(refusal(DS_ERROR_CORRUPT), {file, "4611686018427387904"});
}

TEST_F(Weights, AFailedSaveLeavesNoFile) {
  write(plain());
  write_file_atomic(folder_ / "file", "");
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, true);
    load_weights(state, path());
    EXPECT_THROW(save_weights(state, folder_ / "file"), Error);
    EXPECT_THROW(save_weights(state, folder_ / "none", folder_ / "nowhere"), Error);
    state.on_read = [&] {
      if (comm.rank() == 1) raise(DS_ERROR_IO, "no state");
    };
    std::string text =
        message_of([&] { save_weights(state, folder_ / "half", path()); }, DS_ERROR_IO);
    expect_names(text, {"rank 1", "no state"});
  });
  EXPECT_TRUE(list_folder(folder_ / "half").empty());
  EXPECT_FALSE(exists(folder_ / "none"));
}

}  // namespace
}  // namespace ds::test
