#include "io/file_kind.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <utility>

#include "core/base/path_kind.h"
#include "io/safetensors.h"
#include "io/torch_file.h"
#include "io/torch_weights.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

struct Mistaken {
  std::string bytes, what;
};

// Contents often found in place of the expected file, and how the error message names their kind.
const Mistaken kMistaken[] = {
    {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1610612736\n",
     "Git LFS pointer"},
    {"<!DOCTYPE html><html>Access denied</html>", "web page (HTML)"},
    {"\n  <HTML><head></head></HTML>", "web page (HTML)"},
    {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "page of XML"},
    {"GGUF\x03\0\0\0", "GGUF"},
    {std::string("\x89HDF\r\n\x1a\n\0\0", 10), "HDF5"},
    {"Entry not found", "answer of the hub"},
    {"Repository not found", "answer of the hub"},
    {"Invalid username or password.", "hf auth login"},
    {R"({"error":"Repository not found"})", "answer of the hub"},
    {std::string("PAR1\x15\x04", 6), "Parquet"},
    {std::string("\x1f\x8b\x08\0\0", 5), "gzip"},
    {std::string(600, '\0'), "zeros"},
    {"", "empty file"},
};

class FileKind : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& bytes) {
    write_file_atomic(folder_ / name, bytes);
    return folder_ / name;
  }
  TempFolder folder_;
};

TEST_F(FileKind, EveryReaderNamesTheKindOfAWrongFile) {
  for (const Mistaken& one : kMistaken) {
    std::string path = put("file", one.bytes);
    for (const auto& read : std::initializer_list<std::function<void()>>{
             [&] { read_safetensors_header(path); }, [&] { read_json(path); },
             [&] { read_text(path); },
             [&] {
               try {
                 TorchFile file(path);
               } catch (const Error& fault) {
                 raise_fault(path, fault, Wanted::torch);
               }
             }}) {
      expect_names(message_of(read, DS_ERROR_CORRUPT), {path, one.what});
    }
  }
  std::string path = put("file", kMistaken[0].bytes);
  expect_names(message_of([&] { read_json(path); }, DS_ERROR_CORRUPT),
               {"1.50 GiB", "git lfs pull"});
}

TEST_F(FileKind, ADamagedFileOfTheRightKindHasItsOwnMessage) {
  expect_names(message_of([&] { read_json(put("a.json", "{\"a\": 1,}")); }, DS_ERROR_CORRUPT),
               {"a.json", "line 1, column 9"});
  expect_names(message_of([&] { read_json(put("b.json", "No entry")); }, DS_ERROR_CORRUPT),
               {"b.json", "a text that begins with \"No entry\""});
  std::string header(8, '\0');
  header[0] = 100;
  expect_names(
      message_of([&] { read_safetensors_header(put("c", header + "{}")); }, DS_ERROR_CORRUPT),
      {"c: header has 100 bytes", "cut off"});
  EXPECT_EQ(read_text(put("d", "hello\nthere\n")), "hello\nthere\n");
  expect_names(message_of([&] { read_json(folder_ / "none"); }, DS_ERROR_NOT_FOUND), {"none"});
}

TEST_F(FileKind, FoldersAreNamedByTheirContents) {
  auto hint = [&](Sought sought = Sought::model) { return path_hint(folder_.path(), sought); };
  EXPECT_EQ(hint(), "; the folder is empty");
  const std::pair<const char*, const char*> cases[] = {
      {"flax_model.msgpack", "Flax"},
      {"tf_model.h5", "TensorFlow"},
      {"model.Q4_K_M.gguf", "llama.cpp"},
      {"consolidated.00.pth", "author's form"},
      {"train-00000-of-00001.parquet", "is data, not a model"},
      {"manifest.json", "checkpoint of libds"}};
  for (const auto& [name, what] : cases) {
    std::string path = put(name, "x");
    expect_names(hint(), {what});
    std::filesystem::remove(path);
  }
  put("adapter_config.json", "{\"base_model_name_or_path\" : \"owner/base\"}");
  for (Sought sought : {Sought::config, Sought::model, Sought::weights, Sought::tokenizer,
                        Sought::checkpoint, Sought::run, Sought::data}) {
    expect_names(hint(sought), {"adapter of PEFT", "'owner/base'"});
  }
  expect_names(model_hint(folder_.path()), {"adapter of PEFT"});
}

TEST_F(FileKind, AHintAboutWeightsFitsTheirNames) {
  auto hint = [&](Sought sought) { return path_hint(folder_.path(), sought); };
  put("weights.safetensors", "x");
  expect_names(
      hint(Sought::weights),
      {"'weights.safetensors'", "does not have the name that Transformers gives to weights"});
  put("model-00001-of-00002.safetensors", "x");
  expect_names(hint(Sought::weights),
               {"'model-00001-of-00002.safetensors'", "model.safetensors.index.json", "missing"});
  put("model.safetensors", "x");
  expect_names(hint(Sought::model), {"has weights, but config.json is missing"});
  EXPECT_EQ(hint(Sought::tokenizer), "");
  EXPECT_EQ(model_hint(folder_.path()), "");
  put("config.json", "{}");
  EXPECT_EQ(hint(Sought::model), "");
  for (Sought sought : {Sought::config, Sought::checkpoint, Sought::run})
    expect_names(hint(sought), {"folder of a Hugging Face model"});
  expect_names(model_hint(folder_.path()), {"folder of a Hugging Face model"});
}

TEST_F(FileKind, NamesAndAddressesOfTheHubAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"owner/some-model_7.B", "`hf download owner/some-model_7.B --local-dir"},
      {"gpt2", "`hf download gpt2 --local-dir"},
      {"https://huggingface.co/owner/name", "`hf download owner/name --local-dir"},
      {"https://huggingface.co/owner/name/tree/main", "`hf download owner/name --local-dir"},
      {"huggingface.co/gpt2", "`hf download gpt2 --local-dir"},
      {"https://huggingface.co/gpt2/tree/main", "`hf download gpt2 --local-dir"},
      {"https://huggingface.co/gpt2/resolve/main/config.json", "`hf download gpt2 --local-dir"},
      {"https://huggingface.co/datasets/squad/tree/main", "`hf download squad --repo-type dataset"},
      {"https://huggingface.co/gpt2?x=1", "`hf download gpt2 --local-dir"},
      {"https://huggingface.co/spaces/a/b", "address of the Hugging Face hub, and libds"},
      {"https://huggingface.co/", "address of the Hugging Face hub, and libds"},
      {"file:///tmp/model", "leave file:// out"},
      {"owner/name@refs-1.0", "`hf download owner/name --revision refs-1.0 --local-dir"},
      {"hf://owner/name@main", "`hf download owner/name --local-dir"},
      {"hf://datasets/owner/name/x.parquet", "`hf download owner/name --repo-type dataset"},
      {"s3://bucket/key", "this machine only"},
      {"~/model", "write the whole path"}};
  for (const auto& [path, what] : cases) expect_names(path_hint(path, Sought::model), {what});
  expect_names(path_hint("owner/name", Sought::data), {"data set's name", "--repo-type dataset"});
  for (const char* name : {"/no/such/folder", "./none", "a/b/c", "none/"})
    EXPECT_EQ(path_hint(name, Sought::model), "");
  for (const char* name : {"ds_config.json", "configs/ds.json", "gpt2"})
    EXPECT_EQ(path_hint(name, Sought::config), "");
  expect_names(message_of([] { read_file("hf://owner/name/config.json"); }, DS_ERROR_NOT_FOUND),
               {"`hf download owner/name"});
}

TEST_F(FileKind, TheReasonAFileCannotBeOpenedIsNamed) {
  std::filesystem::create_symlink("../blobs/abc", folder_ / "config.json");
  std::filesystem::create_symlink("nowhere", folder_ / "model");
  put("m.gguf", "GGUF\x03");
  put("notes", "text");
  const std::vector<std::string> link{"config.json'", "symbolic link to '../blobs/abc'",
                                      "does not exist"};
  expect_names(message_of([&] { read_json(folder_ / "config.json"); }, DS_ERROR_NOT_FOUND), link);
  expect_names(message_of([&] { read_json(folder_ / "model/config.json"); }, DS_ERROR_NOT_FOUND),
               {"symbolic link to 'nowhere'"});
  expect_names(message_of([&] { read_json(folder_ / "m.gguf/config.json"); }, DS_ERROR_NOT_FOUND),
               {"m.gguf' is a GGUF file of llama.cpp"});
  expect_names(message_of([&] { read_json(folder_ / "notes/config.json"); }, DS_ERROR_NOT_FOUND),
               {"notes' is a file, not a folder"});
  expect_names(path_hint(folder_ / "m.gguf", Sought::model), {"GGUF file of llama.cpp"});
  expect_names(path_hint(folder_ / "notes", Sought::run), {"it is a file, and a folder is wanted"});
  put("tokenizer.json", "{}");
  expect_names(path_hint(folder_ / "tokenizer.json", Sought::tokenizer),
               {"it is a file: give the folder that it is in"});
  const std::pair<const char*, const char*> elsewhere[] = {
      {"s3://bucket/run", "it is an address, and libds writes files of this machine only"},
      {"hf://owner/name", "it is an address, and libds writes files of this machine only"},
      {"huggingface.co/owner/name", "it is an address, and libds writes"},
      {"file:///tmp/run", "leave file:// out"},
      {"~/run", "only a shell replaces ~ by the home folder"}};
  for (const auto& [path, reason] : elsewhere) {
    const std::string name = path;
    const auto makers = std::initializer_list<std::function<void()>>{
        [&] { make_folders(name); }, [&] { write_file_atomic(name, "x"); },
        [&] { File(name, File::Mode::create); }, [&] { File(name, File::Mode::write); }};
    for (const auto& make : makers) {
      expect_names(message_of(make, DS_ERROR_INVALID_ARGUMENT),
                   {"'" + name + "' cannot be created; ", reason});
    }
  }
  // Folders that already have such a name are used.
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  std::filesystem::create_directories("~old/http:/x");
  make_folders("~old/run");
  std::filesystem::current_path(folder_ / "~old");
  make_folders("http://x/run");
  EXPECT_TRUE(exists(folder_ / "~old/http:/x/run") && exists(folder_ / "~old/run"));
  std::filesystem::current_path(before);
}

TEST_F(FileKind, WeightsOfTheOtherFormatAreNamed) {
  std::string header = R"({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})";
  std::string bytes =
      std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "x";
  expect_names(
      message_of([&] { read_torch_weights(put("pytorch_model.bin", bytes)); }, DS_ERROR_CORRUPT),
      {"a safetensors file: call it model.safetensors"});
  const std::string zip("PK\x03\x04\x14\0\0\0", 8), pickle("\x80\x02}q\0", 5);
  for (const std::string& torch : {zip, pickle}) {
    expect_names(message_of([&] { read_safetensors_header(put("model.safetensors", torch)); },
                            DS_ERROR_CORRUPT),
                 {"torch.save", "pytorch_model.bin"});
  }
}

}  // namespace
}  // namespace ds::test
