#include "io/file_kind.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/safetensors.h"
#include "io/torch_file.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

struct Mistaken {
  std::string bytes, what;
};

// What people have in place of a file, and what the message calls it.
const Mistaken kMistaken[] = {
    {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1610612736\n",
     "Git LFS pointer"},
    {"<!DOCTYPE html><html>Access denied</html>", "web page (HTML)"},
    {"\n  <HTML><head></head></HTML>", "web page (HTML)"},
    {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "page of XML"},
    {"GGUF\x03\0\0\0", "GGUF"},
    {std::string("\x89HDF\r\n\x1a\n\0\0", 10), "HDF5"},
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

TEST_F(FileKind, EveryReaderNamesWhatAFileIsInstead) {
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

TEST_F(FileKind, WhatIsMeantAndDamagedHasItsOwnMessage) {
  expect_names(message_of([&] { read_json(put("a.json", "{\"a\": 1,}")); }, DS_ERROR_CORRUPT),
               {"a.json", "line 1, column 9"});
  expect_names(message_of([&] { read_json(put("b.json", "Entry not found")); }, DS_ERROR_CORRUPT),
               {"b.json", "a text that begins with \"Entry not found\""});
  std::string header(8, '\0');
  header[0] = 100;
  expect_names(
      message_of([&] { read_safetensors_header(put("c", header + "{}")); }, DS_ERROR_CORRUPT),
      {"c: header has 100 bytes"});
  EXPECT_EQ(read_text(put("d", "hello\nthere\n")), "hello\nthere\n");
  expect_names(message_of([&] { read_json(folder_ / "none"); }, DS_ERROR_NOT_FOUND), {"none"});
}

TEST_F(FileKind, FoldersAreNamedForWhatTheyHave) {
  EXPECT_EQ(folder_hint(folder_.path()), "; the folder is empty");
  const std::pair<const char*, const char*> cases[] = {
      {"flax_model.msgpack", "Flax"},
      {"tf_model.h5", "TensorFlow"},
      {"model.Q4_K_M.gguf", "llama.cpp"},
      {"consolidated.00.pth", "author's form"},
      {"weights.safetensors", "model.safetensors"}};
  for (const auto& [name, what] : cases) {
    std::string path = put(name, "x");
    expect_names(folder_hint(folder_.path()), {name, what});
    std::filesystem::remove(path);
  }
  expect_names(folder_hint(put("model.gguf", "GGUF\x03")), {"GGUF file of llama.cpp"});
  expect_names(folder_hint("owner/some-model_7.B"), {"hf download owner/some-model_7.B"});
  expect_names(folder_hint("gpt2"), {"hf download gpt2"});
  for (const char* name : {"/no/such/folder", "./none", "a/b/c", "none/"})
    EXPECT_EQ(folder_hint(name), "");
  put("adapter_config.json", "{\"base_model_name_or_path\": \"owner/base\"}");
  expect_names(folder_hint(folder_.path()), {"adapter of PEFT", "'owner/base'"});
}

}  // namespace
}  // namespace ds::test
