// Reads, without torch, checkpoints that DeepSpeed 0.19.8 saved (tests/data/deepspeed, recorded by
// `./run interop checkpoints --record`): their masters and states, the losses of the following
// steps, and refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "checkpoint/convert.h"
#include "checkpoint/deepspeed/source.h"
#include "checkpoint/folder.h"
#include "checkpoint/open_source.h"
#include "checkpoint/payload.h"
#include "checkpoint/reader.h"
#include "checkpoint/state_source.h"
#include "core/base/error.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "engine/engine.h"
#include "io/file.h"
#include "io/pickle.h"
#include "io/tensor_folder.h"
#include "io/torch_file.h"
#include "io/zip.h"
#include "nn/models/hf.h"
#include "support/errors.h"
#include "support/flip_byte.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/record.h"
#include "support/semantics.h"
#include "support/temp_folder.h"

namespace ds::test::deepspeed_test {
namespace {

namespace fs = std::filesystem;

const std::string kData = data_path("deepspeed");

Json recorded() { return read_json(kData + "/losses.json"); }

std::vector<std::string> all_kinds() {
  std::vector<std::string> out;
  const Json record = recorded();
  for (const auto& [kind, losses] : record.at("losses").object()) out.push_back(kind);
  return out;
}

// Copies a recorded checkpoint to `folder`, where it may be damaged, and returns that path.
std::string copy_of(const std::string& kind, const std::string& folder) {
  fs::copy(kData + "/" + kind, folder, fs::copy_options::recursive);
  return folder;
}

std::string convert(const std::string& from, const std::string& to,
                    const ConvertRequest& request = {}) {
  return convert_checkpoint(from, to, request).at("path").string();
}

bool is_bf16(const std::string& kind) {
  const std::set<std::string> others{"zero3_frozen", "universal3", "stream", "zero2_names",
                                     "zero2_muon"};
  return kind.find("bf16") != std::string::npos || others.contains(kind);
}

// The loss scale at each step of the last resume().
std::vector<double> last_scales;

// Returns the losses of the recorded steps, trained on two ranks from a converted checkpoint.
std::vector<double> resume(const std::string& kind, const std::string& path) {
  Json record = recorded(), document = record.at("config");
  int64_t stage = kind.find('3') == std::string::npos ? 2 : 3;
  bool bf16 = is_bf16(kind);
  if (kind.find("muon") != std::string::npos) document.set("optimizer", record.at("muon"));
  document.set("zero_optimization", Json::Object{{"stage", stage}});
  document.set("bf16", Json::Object{{"enabled", bf16}});
  if (kind.ends_with("f16") && !bf16)
    document.set("fp16", Json::Object{{"enabled", true}, {"loss_scale_window", int64_t{3}}});
  document.set("model", Json::Object{{"folder", kData}});
  document.set("run", Json::Object{{"sequence", 16}});
  Json scheduler = document.at("scheduler"), params = scheduler.at("params");
  params.set("warmup_num_steps", 2);
  scheduler.set("params", params);
  document.set("scheduler", scheduler);
  if (kind.ends_with("frozen") || kind == "zero2_names" || kind == "zero3_names")
    document.set("frozen_parameters", Json::Array{"transformer.wpe.weight"});
  Config config = parse_config(document, 2);
  const int64_t samples = document.at("train_micro_batch_size_per_gpu").integer() *
                          document.at("gradient_accumulation_steps").integer();
  std::vector<double> losses;
  last_scales.clear();
  run_ranks(2, [&](Communicator& comm) {
    HfModel model = hf_model(read_json(kData + "/config.json"), 32, 16, HfMode::training);
    Engine engine(config, model.graph, comm, {});
    engine.checkpoints().load(path);
    for (const Json& step : record.at("ids").array()) {
      std::vector<int32_t> ids, targets;
      for (const Json& id : step.array()[static_cast<size_t>(comm.rank())].array())
        ids.push_back(static_cast<int32_t>(id.integer()));
      EXPECT_EQ(static_cast<int64_t>(ids.size()), 16 * samples);
      for (size_t i = 0; i < ids.size(); ++i) targets.push_back(i % 16 == 15 ? -100 : ids[i + 1]);
      std::vector<InputView> inputs{{ids.data(), DS_DTYPE_I32, 32},
                                    {targets.data(), DS_DTYPE_I32, 32}};
      StepResult result = engine.train_batch(inputs);
      if (comm.rank() == 0) losses.push_back(result.loss), last_scales.push_back(result.loss_scale);
    }
  });
  return losses;
}

// Proves {checkpoint.convert.forms}: training continues with DeepSpeed's losses.
TEST(DeepSpeed, TrainingContinuesWithItsLosses) {
  const Recording all(kData + "/losses.json", {"config", "muon", "ids", "losses"});
  EXPECT_TRUE(hf_model(read_json(kData + "/config.json"), 32, 16).unread.empty());
  for (const std::string& kind : all_kinds()) {
    SCOPED_TRACE(kind);
    TempFolder folder;
    std::vector<double> losses = resume(kind, convert(kData + "/" + kind, folder.path()));
    const Json record = recorded();
    const Json::Array& theirs = record.at("losses").at(kind).array();
    // DeepSpeed orthogonalizes Muon's momentum in bf16, whatever the type of the parameters.
    const bool exact = !is_bf16(kind) && kind.find("muon") == std::string::npos;
    ASSERT_EQ(losses.size(), theirs.size());
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i] / theirs[i].number(), 1, exact ? 1e-6 : 1e-3) << "step " << i;
  }
}

TEST(DeepSpeed, EqualStatesHaveEqualPayloads) {
  TempFolder folder;
  auto payload = [&](const std::string& kind) {
    return payload_hash(convert(kData + "/" + kind, folder / kind));
  };
  // universal1 and universal3 were converted by DeepSpeed; stream is in the legacy format of
  // torch.save.
  EXPECT_EQ(payload("universal1"), payload("zero1_f32"));
  EXPECT_EQ(payload("universal3"), payload("zero3_bf16"));
  EXPECT_EQ(payload("stream"), payload("zero2_bf16"));
  EXPECT_NE(payload("zero2_f32"), payload("zero3_bf16"));
}

TEST(DeepSpeed, CountersAndSettingsAreConverted) {
  std::unique_ptr<StateSource> source = open_source(kData + "/zero2_bf16");
  EXPECT_EQ(source->info.step, 5);
  EXPECT_EQ(source->info.skipped, 0);
  EXPECT_EQ(source->kinds, (std::vector<std::string>{"master", "exp_avg", "exp_avg_sq"}));
  const Json& record = source->info.client.at("deepspeed");
  EXPECT_EQ(record.at("zero_stage").integer(), 2);
  EXPECT_EQ(record.at("module").at("lr_scheduler").at("last_batch_iteration").integer(), 4);
  EXPECT_EQ(record.at("module").at("note").string(), "kept");
  EXPECT_EQ(record.at("module").at("shared_params").at("lm_head.weight").string(),
            "transformer.wte.weight");
  EXPECT_EQ(record.at("param_groups").array().at(0).at("weight_decay").number(), 0.1);
  EXPECT_NE(record.find("loss_scaler"), nullptr);
  EXPECT_EQ(source->info.config.at("config").at("gradient_clipping").number(), 1.0);
}

// The run has f16 weights, f32 masters, and a dynamic loss scale that has changed (`checkpoints.py
// --half`).
TEST(DeepSpeed, AHalfPrecisionRunContinuesWithItsLossScale) {
  const LossScaler recorded_scaler{.scale = 512, .steps = 5, .last_overflow = 3, .hysteresis = 1};
  std::unique_ptr<StateSource> source = open_source(kData + "/zero2_f16");
  ASSERT_TRUE(source->info.scaler.has_value());
  EXPECT_EQ(*source->info.scaler, recorded_scaler);
  EXPECT_FALSE(open_source(kData + "/zero2_bf16")->info.scaler.has_value());
  TempFolder folder;
  const std::string path = convert(kData + "/zero2_f16", folder.path());
  EXPECT_EQ(payload_hash(path), payload_hash(convert(kData + "/zero2_f32", folder / "f32")));
  EXPECT_EQ(read_checkpoint_info(path).scaler, recorded_scaler);
  std::vector<double> losses = resume("zero2_f16", path), scales = last_scales;
  const Json record = recorded();
  const Json::Array& f32 = record.at("losses").at("zero2_f32").array();
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i] / f32[i].number(), 1, 2e-3) << "step " << i;
  // Steps 4 to 6 do not overflow: from the recorded scaler on, the scale follows the rule and
  // doubles at the end of a window.
  LossScaler expected = recorded_scaler;
  LossScaleConfig rule;
  rule.window = 3;
  for (double scale : scales) {
    EXPECT_EQ(scale, expected.scale);
    expected = next_scaler(rule, expected, false);
  }
  EXPECT_GT(scales.back(), 512);
}

TEST(DeepSpeed, FrozenParametersHaveNoStates) {
  for (const char* kind : {"zero2_frozen", "zero3_frozen"}) {
    std::unique_ptr<StateSource> source = open_source(kData + "/" + kind);
    EXPECT_EQ(source->info.frozen, std::vector<std::string>{"transformer.wpe.weight"});
    std::vector<float> master(192), state(192, 1.0f);
    ParamId param(source->names.size() - 1);
    ASSERT_EQ(source->names[param], "transformer.wpe.weight");
    ASSERT_EQ(source->shapes[param], (std::vector<int64_t>{16, 12}));
    source->read(0, param, 0, 192, master.data());
    source->read(1, param, 0, 192, state.data());
    float largest = 0;
    for (float value : master) largest = std::max(largest, std::fabs(value));
    EXPECT_GT(largest, 0.03f);
    EXPECT_EQ(state, std::vector<float>(192));
  }
}

TEST(DeepSpeed, AnyPartOfAParameterCanBeRead) {
  std::unique_ptr<StateSource> source = open_source(kData + "/zero3_f32");
  for (ParamId p : source->names.ids()) {
    int64_t numel = source->numel(p);
    std::vector<float> all(static_cast<size_t>(numel)), part(all.size());
    for (size_t kind = 0; kind < source->kinds.size(); ++kind) {
      source->read(kind, p, 0, numel, all.data());
      for (int64_t at = 0; at < numel; at += 7)
        source->read(kind, p, at, std::min<int64_t>(7, numel - at), part.data() + at);
      EXPECT_EQ(all, part) << source->names[p];
    }
  }
}

// Proves {checkpoint.convert.forms}: the forms convert without loss.
TEST(DeepSpeed, EveryFormConvertsToEveryOther) {
  TempFolder folder;
  std::string first = convert(kData + "/zero3_frozen", folder / "first"),
              hash = payload_hash(first);
  for (bool tensor : {false, true}) {
    std::string to = folder / (tensor ? "universal_tensor" : "universal");
    convert(first, to, {.form = "universal", .step_tensor = tensor});
    EXPECT_EQ(payload_hash(convert(to, to + "_back")), hash);
    EXPECT_EQ(read_checkpoint_info(find_checkpoint(to + "_back")).step, 5);
    convert(to, to + "_again", {.form = "universal"});
    EXPECT_EQ(payload_hash(convert(to + "_again", to + "_again_back")), hash);
  }
  convert(first, folder / "model", {.form = "fp32"});
  convert(kData + "/zero3_frozen", folder / "model2", {.form = "fp32"});
  EXPECT_EQ(read_file(folder / "model/model.safetensors"),
            read_file(folder / "model2/model.safetensors"));
  SafetensorHeader header = read_safetensors_header(folder / "model/model.safetensors");
  EXPECT_EQ(header.find("transformer.wpe.weight")->shape, (std::vector<int64_t>{16, 12}));
}

// Saves a checkpoint of a new engine and returns its path.
std::string saved_by(const Config& config, const std::string& folder) {
  std::unique_ptr<Communicator> comm = create_communicator("self", {});
  Engine engine(config, make_mlp(1, 8, 2), *comm, EngineOptions{});
  return engine.checkpoints().save(folder);
}

// DeepSpeed unpickles the loss scaler as its own class, so the export needs every member that
// DeepSpeed's updates read.
TEST(DeepSpeed, AnExportHasTheDynamicLossScale) {
  TempFolder folder;
  Config config = make_config(0, 1, 1);
  config.compute = DS_DTYPE_F16;
  config.loss_scale = {.initial_scale_power = 9,
                       .window = 7,
                       .hysteresis = 3,
                       .consecutive_hysteresis = true,
                       .min_loss_scale = 4};
  struct Case {
    std::string name, from;
    double window, hysteresis;
  };
  for (const Case& c : {Case{"own", saved_by(config, folder / "own"), 7, 3},
                        Case{"theirs", kData + "/zero2_f16", 3, 2}}) {
    SCOPED_TRACE(c.name);
    const std::optional<LossScaler> before = open_source(c.from)->info.scaler;
    const std::string to = folder / (c.name + "_exported");
    convert(c.from, to, {.form = "universal"});
    std::unique_ptr<StateSource> after = open_source(to);
    ASSERT_TRUE(before && after->info.scaler);
    EXPECT_EQ(*after->info.scaler, *before);
    const Json& record = after->info.client.at("deepspeed");
    EXPECT_TRUE(record.at("dynamic_loss_scale").boolean());
    EXPECT_EQ(record.at("loss_scaler").at("class").string(),
              "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler");
    const Json& state = record.at("loss_scaler").at("state");
    EXPECT_EQ(state.at("scale_window").number(), c.window);
    EXPECT_EQ(state.at("delayed_shift").number(), c.hysteresis);
    EXPECT_EQ(state.at("consecutive_hysteresis").boolean(), c.name == "own");
    EXPECT_EQ(state.at("min_scale").number(), c.name == "own" ? 4 : 1);
    EXPECT_EQ(state.at("scale_factor").number(), 2);
    EXPECT_EQ(state.at("dtype").string(), "torch.float16");
  }
  // A static scale is part of the configuration, and a bf16 run has none.
  config.loss_scale.loss_scale = 128;
  for (DType dtype : {DS_DTYPE_F16, DS_DTYPE_BF16}) {
    config.compute = dtype;
    const std::string name = dtype_name(dtype);
    convert(saved_by(config, folder / name), folder / (name + "_exported"), {.form = "universal"});
    EXPECT_EQ(
        open_source(folder / (name + "_exported"))->info.client.at("deepspeed").find("loss_scaler"),
        nullptr);
  }
}

TEST(DeepSpeed, StatesOfMuonAreNotExported) {
  TempFolder folder;
  Config config = make_config(0, 1, 1);
  config.optimizer.type = "Muon";
  const std::string saved = saved_by(config, folder / "own");
  expect_names(message_of([&] { convert(saved, folder / "exported", {.form = "universal"}); },
                          DS_ERROR_UNSUPPORTED),
               {"Muon", "export weights only"});
  EXPECT_TRUE(is_absent(folder / "exported/latest_universal"));
  convert(saved, folder / "weights", {.form = "fp32"});
  EXPECT_TRUE(exists(folder / "weights/model.safetensors"));
}

// Proves {checkpoint.convert.report}.
TEST(DeepSpeed, AConversionReportsItsWork) {
  TempFolder folder;
  Json report = convert_checkpoint(kData + "/zero3_frozen", folder.path(), {.tag = "theirs"});
  EXPECT_EQ(report.at("from").string(), kData + "/zero3_frozen/global_step5");
  EXPECT_EQ(report.at("form").string(), "deepspeed");
  EXPECT_EQ(report.at("path").string(), folder / "step-00000005-1.theirs");
  EXPECT_EQ(report.at("step").integer(), 5);
  EXPECT_EQ(report.at("tensors").integer(), 16);
  EXPECT_EQ(report.at("parameters").integer(), 1905);
  EXPECT_EQ(report.at("states").array().size(), 3u);
  EXPECT_EQ(report.at("frozen").array().at(0).string(), "transformer.wpe.weight");
}

// Proves {checkpoint.convert.place}.
TEST(DeepSpeed, NothingIsOverwritten) {
  TempFolder folder;
  File(folder / "here", File::Mode::create);
  for (const char* form : {"universal", "fp32"}) {
    expect_names(message_of([&] { convert(kData + "/zero1_f32", folder.path(), {.form = form}); },
                            DS_ERROR_INVALID_ARGUMENT),
                 {folder.path(), "must be empty"});
  }
  std::string first = convert(kData + "/zero1_f32", folder / "runs"),
              second = convert(kData + "/zero1_f32", folder / "runs");
  EXPECT_NE(first, second);
  EXPECT_TRUE(exists(first + "/manifest.json"));
}

// Proves {checkpoint.convert.none}.
TEST(DeepSpeed, MissingFilesAreNamed) {
  TempFolder folder;
  expect_names(message_of([&] { open_source(folder.path()); }, DS_ERROR_NOT_FOUND),
               {folder.path(), "not a checkpoint"});
  for (const char* kind : {"zero1_f32", "zero3_bf16"}) {
    for (const fs::directory_entry& file :
         fs::directory_iterator(kData + "/" + kind + "/global_step5")) {
      std::string name = file.path().filename();
      SCOPED_TRACE(name);
      TempFolder copy;
      copy_of(kind, copy / "c");
      fs::remove(copy / "c/global_step5/" + name);
      expect_names(message_of([&] { open_source(copy / "c"); }, DS_ERROR_NOT_FOUND),
                   {name, "does not exist"});
    }
  }
  copy_of("zero1_f32", folder / "c");
  fs::remove_all(folder / "c/global_step5");
  expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_NOT_FOUND),
               {"latest", "global_step5"});
}

TEST(DeepSpeed, ALatestFileThatNamesNoFolderIsNamed) {
  TempFolder folder;
  copy_of("zero1_f32", folder / "c");
  for (std::string_view tag :
       {std::string_view("global_step5\0", 13), std::string_view("global_step5\0x", 14),
        std::string_view("global_\nstep5"), std::string_view("\xff\xfe"),
        std::string_view("../c")}) {
    SCOPED_TRACE(tag);
    write_file_atomic(folder / "c/latest", tag);
    expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT),
                 {"c/latest", "is not the name of a folder"});
  }
  write_file_atomic(folder / "c/latest", "");
  expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT),
               {"c/latest: is an empty file"});
  write_file_atomic(folder / "c/latest", "version https://hawser.github.com/spec/v1\nsize 12\n");
  expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT),
               {"c/latest: is a Git LFS pointer"});
}

TEST(DeepSpeed, AFileOfStatesThatIsAPointerIsNamed) {
  TempFolder folder;
  copy_of("zero1_f32", folder / "c");
  const std::string path = folder / "c/global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt";
  write_file_atomic(path, "version https://git-lfs.github.com/spec/v1\nsize 12\n");
  expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT),
               {"optim_states.pt: is a Git LFS pointer"});
}

// Another pickle in place of DeepSpeed's module states lacks steps or shapes and must be refused.
TEST(DeepSpeed, ModuleStatesAreNeededForStepsAndShapes) {
  const auto without = [](const char* kind, const auto& root) {
    TempFolder folder;
    const std::string place =
        copy_of(kind, folder / "c") + "/global_step5/mp_rank_00_model_states.pt";
    fs::remove(place);
    PickleWriter pickle;
    root(pickle);
    ZipWriter zip(place);
    zip.add("archive/data.pkl", pickle.finish());
    zip.finish();
    return message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT);
  };
  for (const char* kind : {"universal1", "zero2_f32"}) {
    expect_names(without(kind, [](PickleWriter& out) { out.empty_dict(); }),
                 {"mp_rank_00_model", "has no 'global_steps'"});
    expect_names(without(kind, [](PickleWriter& out) { out.integer(5); }),
                 {"mp_rank_00_model", "has no 'global_steps'"});
    expect_names(without(kind,
                         [](PickleWriter& out) {
                           out.empty_dict().mark().text("global_steps").integer(5).items();
                         }),
                 {"mp_rank_00_model", "has no 'param_shapes'"});
  }
}

// A missing state of one parameter would silently become 0.
TEST(DeepSpeed, AMissingStateOfAUniversalCheckpointIsNamed) {
  for (const char* kind : {"universal1", "universal3"}) {
    TempFolder folder;
    const std::string place =
        copy_of(kind, folder / "c") + "/global_step5/zero/transformer.h.0.attn.c_attn.bias/";
    open_source(folder / "c");
    // Even if both states are missing, the module states list the parameter as a trained one.
    for (const char* state : {"exp_avg_sq", "exp_avg"}) {
      fs::remove(place + state + ".pt");
      expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_NOT_FOUND),
                   {"c_attn.bias/exp_avg", "does not exist"});
    }
  }
}

// Proves {checkpoint.convert.corrupt}: a changed byte at either end of an entry in the files of a
// checkpoint is detected.
TEST(DeepSpeed, DamageIsNamed) {
  for (const char* kind : {"zero2_bf16", "zero3_f32"}) {
    for (const fs::directory_entry& entry :
         fs::directory_iterator(kData + "/" + kind + "/global_step5")) {
      std::string name = entry.path().filename();
      SCOPED_TRACE(name);
      TempFolder folder;
      std::string file = copy_of(kind, folder / "c") + "/global_step5/" + name;
      ZipArchive zip(file);
      for (const ZipEntry& one : zip.entries()) {
        if (one.bytes == 0) continue;
        for (int64_t at : {one.begin, one.begin + one.packed - 1}) {
          flip_byte(file, at);
          expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT),
                       {name, one.name, "checksum"});
          flip_byte(file, at);
        }
      }
      open_source(folder / "c");
      for (int64_t size : {int64_t{0}, int64_t{3}, zip.entries()[0].begin,
                           File(file, File::Mode::read).size() - 1}) {
        fs::resize_file(file, static_cast<uintmax_t>(size));
        expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT), {name});
      }
    }
  }
}

TEST(DeepSpeed, ShardsOfAnotherSaveAreRefused) {
  TempFolder folder;
  std::string place = copy_of("zero2_f32", folder / "c") + "/global_step5/";
  std::string rank1 = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
  fs::copy(place + rank1, place + "zero_pp_rank_2_mp_rank_00_optim_states.pt");
  expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT),
               {"rank 2", "2 ranks"});
  fs::remove(place + "zero_pp_rank_2_mp_rank_00_optim_states.pt");
  fs::copy(place + rank1, place + "bf16_" + rank1);
  expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT),
               {"both belong to rank 1"});
  fs::remove(place + "bf16_" + rank1);
  fs::copy(kData + "/zero2_frozen/global_step5/" + rank1, place + rank1,
           fs::copy_options::overwrite_existing);
  expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT),
               {"group 0", "elements"});
}

// The exchanged file has the right size; only the name or the stage stored inside reveals the
// exchange.
TEST(DeepSpeed, ExchangedShardsAreRefused) {
  const std::string rank0 = "zero_pp_rank_0_mp_rank_00_optim_states.pt",
                    rank1 = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
  auto with = [&](const std::string& kind, const std::string& from, const std::string& precision) {
    TempFolder folder;
    std::string place = copy_of(kind, folder / "c") + "/global_step5/";
    fs::copy(kData + "/" + from, place + precision + rank1, fs::copy_options::overwrite_existing);
    return message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT);
  };
  expect_names(with("zero2_f32", "zero2_f32/global_step5/" + rank0, ""),
               {rank1, "was saved as", rank0});
  expect_names(with("zero3_bf16", "zero3_bf16/global_step5/bf16_" + rank0, "bf16_"),
               {rank1, "saved as"});
  expect_names(with("zero2_f32", "zero1_f32/global_step5/" + rank1, ""),
               {rank1, "stage 1", "stage 2"});
  expect_names(with("zero2_f32", "zero2_bf16/global_step5/bf16_" + rank1, ""),
               {rank1, "saved as 'bf16_"});
}

// Proves {checkpoint.convert.unsupported}.
TEST(DeepSpeed, FormsThatLibdsLacksAreRefusedByName) {
  for (const char* name :
       {"mp_rank_01_model_states.pt", "layer_0_expert_1_mp_rank_00_model_states.pt",
        "expp_rank_0_mp_rank_00_optim_states.pt", "offloaded_tensors"}) {
    TempFolder folder;
    copy_of("zero2_f32", folder / "c");
    File(folder / "c/global_step5/" + name, File::Mode::create);
    expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_UNSUPPORTED), {name});
  }
  TempFolder folder;
  copy_of("zero2_f32", folder / "c");
  for (int rank : {0, 1})
    fs::remove(folder / "c/global_step5/zero_pp_rank_" + std::to_string(rank) +
               "_mp_rank_00_optim_states.pt");
  expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_UNSUPPORTED),
               {"without ZeRO"});
}

// Proves {checkpoint.convert.data}: a pickle that would call os.system is refused, and nothing is
// executed.
TEST(DeepSpeed, NothingInAPickleIsExecuted) {
  TempFolder folder;
  std::string place =
      copy_of("zero2_f32", folder / "c") + "/global_step5/mp_rank_00_model_states.pt";
  std::string proof = folder / "proof";
  for (const auto& [module, name] : {std::pair{"os", "system"},
                                     {"posix", "system"},
                                     {"subprocess", "Popen"},
                                     {"builtins", "eval"},
                                     {"__builtin__", "exec"},
                                     {"builtins", "getattr"}}) {
    fs::remove(place);
    PickleWriter pickle;
    pickle.global(module, name).mark().text("touch '" + proof + "'").tuple().reduce();
    ZipWriter zip(place);
    zip.add("archive/data.pkl", pickle.finish());
    zip.finish();
    expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_UNSUPPORTED),
                 {place, std::string(module) + "." + name, "no part of it was run"});
    EXPECT_FALSE(exists(proof));
  }
  // A call of an unknown function creates a placeholder object; the load then fails because
  // required members are missing.
  fs::remove(place);
  PickleWriter pickle;
  pickle.global("my.module", "make").mark().text("touch '" + proof + "'").tuple().reduce();
  ZipWriter zip(place);
  zip.add("archive/data.pkl", pickle.finish());
  zip.finish();
  expect_names(message_of([&] { open_source(folder / "c"); }, DS_ERROR_CORRUPT),
               {place, "global_steps"});
  EXPECT_FALSE(exists(proof));
}

}  // namespace
}  // namespace ds::test::deepspeed_test
