#include "core/config/config_text.h"

#include <gtest/gtest.h>

#include "core/base/block_yaml.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "support/errors.h"

namespace ds::test {
namespace {

std::string read(const std::string& text) { return parse_config_text(text, "file").dump(); }
std::string same(const std::string& json) { return Json::parse(json).dump(); }
std::string refused(const std::string& text) {
  return message_of([&] { parse_config_text(text, "file"); }, DS_ERROR_CONFIG);
}

constexpr const char* kAccelerate = R"(compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_multinode_launcher: standard
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0   # the norm
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
mixed_precision: bf16
num_processes: 2
)";

TEST(ConfigText, HjsonsCommentsAndTrailingCommasAreRead) {
  EXPECT_EQ(read("{\n  \"bf16\": { # widen\n \"enabled\": true\n },\n \"a\": [1, 2 , ], // x\n}"),
            same(R"({"bf16":{"enabled":true},"a":[1,2]})"));
  EXPECT_EQ(read(R"({"a": "# no, comment,]", "b": "\"#,}",})"),
            same(R"({"a":"# no, comment,]","b":"\"#,}"})"));
  for (const char* text : {"{\"a\": 1,,}", "{,}", "[,]", "{\"a\":,}", "{\"a\": 1", "{\"a\" 1}"})
    refused(text);
  expect_names(refused("{ bf16: {enabled: true} }"),
               {"file: line 1, column 3", "hjson", "double quotes"});
  expect_names(refused("{'a': 1}"), {"file: line 1", "double quotes"});
}

TEST(ConfigText, AcceleratesFileGivesAcceleratesConfiguration) {
  EXPECT_EQ(
      read(kAccelerate),
      same(
          R"({"train_micro_batch_size_per_gpu":"auto","gradient_accumulation_steps":4,)"
          R"("gradient_clipping":1.0,"zero_optimization":{"stage":3,"offload_optimizer":{"device":"cpu"},)"
          R"("offload_param":{"device":"none"},"stage3_gather_16bit_weights_on_model_save":true},)"
          R"("bf16":{"enabled":true}})"));
  Config config = parse_config(parse_config_text(kAccelerate, "file"), 2);
  EXPECT_EQ(config.zero.stage, 3);
  EXPECT_EQ(config.accumulation, 4);
  EXPECT_EQ(config.compute, DS_DTYPE_BF16);
  // If keys are missing, Accelerate fills in stage 2, clipping at 1 and one micro-step.
  config =
      parse_config(parse_config_text("deepspeed_config: {}\nmixed_precision: 'no'\n", "file"), 1);
  EXPECT_EQ(config.zero.stage, 2);
  EXPECT_EQ(config.gradient_clipping, 1);
  EXPECT_EQ(config.accumulation, 1);
  EXPECT_EQ(config.compute, DS_DTYPE_F32);
  // The file format of older versions of Accelerate.
  const char* older =
      "command_file: null\ncommands: null\ndeepspeed_config: {}\ndynamo_backend: 'NO'\nfp16: true\n"
      "fsdp_config: {}\ntpu_vm: []\n";
  EXPECT_EQ(parse_config(parse_config_text(older, "file"), 1).compute, DS_DTYPE_F16);
}

// Accelerate passes its values through the environment and converts them there: int("3") is 3, and
// float("1e-5"), which is a text in YAML, is 1e-5.
TEST(ConfigText, AcceleratesValuesMayBeInQuotes) {
  EXPECT_EQ(
      read("deepspeed_config:\n  zero_stage: '3'\n  gradient_accumulation_steps: \"4\"\n  "
           "gradient_clipping: 1e-5\n"
           "  zero3_save_16bit_model: 'True'\n"),
      same(
          R"({"train_micro_batch_size_per_gpu":"auto","gradient_accumulation_steps":4,"gradient_clipping":1e-05,)"
          R"("zero_optimization":{"stage":3,"stage3_gather_16bit_weights_on_model_save":true}})"));
  const char* words =
      "deepspeed_config:\n  gradient_accumulation_steps: auto\n  zero_stage: three\n";
  EXPECT_THROW(parse_config(parse_config_text(words, "file"), 1), Error);
}

TEST(ConfigText, OtherYamlIsRefusedByName) {
  expect_names(refused("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"),
               {"file", "YAML", "deepspeed_config", "FSDP"});
  expect_names(refused("deepspeed_config:\n  deepspeed_config_file: ds.json\n"),
               {"give that file, \"ds.json\""});
  expect_names(refused("deepspeed_config:\n  zero_stages: 3\n"),
               {"deepspeed_config.zero_stages", "zero_stage"});
  expect_names(refused("deepspeed_config: {}\nmixed_precision: fp8\n"), {"mixed_precision", "fp8"});
  expect_names(refused("deepspeed_config: {}\nmixed_precison: bf16\n"),
               {"file: mixed_precison", "'mixed_precision'"});
  expect_names(refused("deepspeed_config:\n  gradient_clipping: 1.0\nzero_stage: 3\n"),
               {"file: zero_stage", "section deepspeed_config"});
  expect_names(refused("deepspeed_config:\n  gradient_clipping: 1.0\n\tzero_stage: 3\n"),
               {"file: line 3", "zero_stage: 3", "tab"});
  expect_names(refused("a: 1\n b: 2\n"), {"file: line 2", "indented"});
  expect_names(refused("a: &x 1\n"), {"file: line 1", "YAML syntax"});
  expect_names(refused("a:\n  b\n"), {"file: line 2", "key: value"});
  expect_names(refused("a: 1\na: 2\n"), {"file: line 2", "repeats a key"});
}

TEST(ConfigText, OtherFileFormatsAreNamed) {
  expect_names(refused("version https://git-lfs.github.com/spec/v1\nsize 12\n"),
               {"file: is a Git LFS pointer"});
  expect_names(refused("<!doctype html><p>"), {"file: is a web page"});
  expect_names(refused("Entry not found"), {"file: is an answer of the hub"});
  expect_names(refused(""), {"file: line 1, column 1", "it is empty"});
  for (const char* nothing : {"---\n", "# a comment\n\n", " \n"})
    expect_names(refused(nothing), {"file: is a text without settings"});
  for (const char* settings : {"[train]\nlr = 1\n", "# c\nlr = 1\n", "config = {\"a\": 1}\n"})
    expect_names(refused(settings), {"file: is TOML, or a file of settings like it", "JSON"});
  expect_names(refused("a,b\n1,2\n"), {"file: is a table (CSV)", "JSON"});
  expect_names(refused("# A model\n\nIt is small, and good.\n"),
               {"begins with \"# A model\"", "JSON"});
  expect_names(refused("{\"a\": tru}"), {"line 1, column 7"});
  expect_names(refused("\x80"
                       "abc"),
               {"file: is not a text: a configuration is JSON"});
}

TEST(ConfigText, JsonThatIsNotAnObjectIsRefusedByName) {
  for (auto [text, kind] :
       {std::pair{"[1]", "array"}, {"3", "integer"}, {"null", "null"}, {"\"x\"", "string"}})
    expect_names(refused(text), {"file: must be an object", kind});
}

TEST(ConfigText, JsonFilesOfAModelFolderAreNamed) {
  expect_names(refused(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"})"),
               {"file: is the config.json of a Hugging Face model", "--model", "model.folder"});
  expect_names(refused(R"({"peft_type": "LORA", "base_model_name_or_path": "gpt2"})"),
               {"file: is the configuration of an adapter of PEFT"});
  expect_names(refused(R"({"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024})"),
               {"file: is the configuration of a tokenizer"});
}

TEST(BlockYaml, ScalarsHaveTheTypesOfPyYaml) {
  EXPECT_EQ(
      parse_block_yaml(
          "---\na: yes\nb: 'it''s'\nc: \"x\\ty # z\"\nd: 1e-5\ne: 1.0e-5\nf: ~\ng:\nh: -3\n"
          "i: a:b#c\nj:\n- 1\n- x\nk:\n  l: off\n  m:\n    n: 0.5\n",
          "file")
          .dump(),
      same(
          R"({"a":true,"b":"it's","c":"x\ty # z","d":"1e-5","e":1e-05,"f":null,"g":null,"h":-3,"i":"a:b#c",)"
          R"("j":[1,"x"],"k":{"l":false,"m":{"n":0.5}}})"));
}

}  // namespace
}  // namespace ds::test
