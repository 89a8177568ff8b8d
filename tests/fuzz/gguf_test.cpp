#include "io/gguf.h"

#include "attempt.h"
#include "checkpoint/folder_source.h"
#include "checkpoint/gguf/adapter.h"
#include "checkpoint/open_weights.h"
#include "data/tokenizer.h"
#include "support/mutate.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

class FuzzGguf : public testing::Test {
 protected:
  // Reads the bytes as a file and checks the result against the promises of io/gguf.h.
  bool attempt_head(const std::string& bytes) {
    put_file(path_, bytes);
    return attempts_.run([&] {
      const GgufHeader header = read_gguf_header(path_);
      int64_t at = 0;
      for (const GgufTensor& tensor : header.tensors) {
        EXPECT_GE(tensor.begin, at);
        EXPECT_GE(tensor.bytes, 0);
        at = tensor.begin + tensor.bytes;
      }
      EXPECT_LE(at, header.file_bytes);
    });
  }

  // Opens the bytes as a model and reads every parameter.
  bool attempt_model(const std::string& bytes) {
    put_file(path_, bytes);
    return attempts_.run([&] {
      const std::unique_ptr<StateSource> source = open_folder_source(path_);
      for (ParamId p : source->names.ids()) {
        ASSERT_LE(source->numel(p), 1 << 20);
        std::vector<float> values(static_cast<size_t>(source->numel(p)));
        source->read(0, p, 0, source->numel(p), values.data());
      }
    });
  }

  // Opens the bytes as an adapter and reads every matrix.
  bool attempt_adapter(const std::string& bytes) {
    put_file(path_, bytes);
    return attempts_.run([&] {
      const std::unique_ptr<AdapterSource> source = open_gguf_adapter(path_, base_);
      for (ParamId p : source->names.ids()) {
        ASSERT_LE(source->numel(p), 1 << 20);
        std::vector<float> values(static_cast<size_t>(source->numel(p)));
        source->read(0, p, 0, source->numel(p), values.data());
      }
    });
  }

  // Opens the tokenizer in the bytes, and encodes a text.
  bool attempt_tokenizer(const std::string& bytes) {
    put_file(path_, bytes);
    return attempts_.run([&] { open_tokenizer(path_)->encode("a text <s> 42"); });
  }

  TempFolder folder_;
  std::string base_ = std::string(DS_SOURCE_DIR) + "/tests/data/models/llama";
  std::string path_ = folder_ / "m.gguf";
  std::string good_ = get_file(std::string(DS_SOURCE_DIR) + "/tests/data/gguf/llama.gguf");
  Attempts attempts_{size_t{16} << 20};
};

TEST_F(FuzzGguf, CutModelsAreRefused) {
  ASSERT_TRUE(attempt_model(good_));
  for (size_t size = 0; size < good_.size() - 32; size += 97)
    EXPECT_FALSE(attempt_head(good_.substr(0, size))) << size;
}

TEST_F(FuzzGguf, DamagedHeadsAreReadOrRefused) {
  // A file with little data, so that many changes hit its head.
  const std::string small = get_file(std::string(DS_SOURCE_DIR) + "/tests/data/gguf/blocks.gguf");
  for (uint32_t i = 0; i < draws(3000); ++i) {
    Dice dice = dice_of(21, i);
    SCOPED_TRACE(i);
    attempt_head(mutate_bytes(small, dice));
  }
  EXPECT_GT(attempts_.loaded, static_cast<int>(draws(20)));
  EXPECT_GT(attempts_.refused, static_cast<int>(draws(300)));
}

TEST_F(FuzzGguf, DamagedModelsAreReadOrRefused) {
  for (uint32_t i = 0; i < draws(1500); ++i) {
    Dice dice = dice_of(22, i);
    SCOPED_TRACE(i);
    attempt_model(mutate_bytes(good_, dice));
  }
  EXPECT_GT(attempts_.refused, static_cast<int>(draws(20)));
}

TEST_F(FuzzGguf, DamagedTokenizersAreReadOrRefused) {
  ASSERT_TRUE(attempt_tokenizer(good_));
  for (uint32_t i = 0; i < draws(300); ++i) {
    Dice dice = dice_of(23, i);
    SCOPED_TRACE(i);
    attempt_tokenizer(mutate_bytes(good_, dice));
  }
  EXPECT_GT(attempts_.refused, static_cast<int>(draws(10)));
}

TEST_F(FuzzGguf, DamagedAdaptersAreReadOrRefused) {
  const std::string adapter = std::string(DS_SOURCE_DIR) + "/tests/data/adapters/llama";
  write_gguf_adapter(*open_adapter_source(adapter, base_), base_, "f32", folder_ / "good.gguf");
  const std::string good = get_file(folder_ / "good.gguf");
  ASSERT_TRUE(attempt_adapter(good));
  for (uint32_t i = 0; i < draws(1000); ++i) {
    Dice dice = dice_of(24, i);
    SCOPED_TRACE(i);
    attempt_adapter(mutate_bytes(good, dice));
  }
  EXPECT_GT(attempts_.refused, static_cast<int>(draws(20)));
}

}  // namespace
}  // namespace ds::test
