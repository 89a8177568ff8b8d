#include "checkpoint/gguf/model.h"

#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "checkpoint/gguf/data.h"
#include "checkpoint/gguf/model_keys.h"
#include "core/base/error.h"
#include "io/gguf.h"
#include "io/gguf_tokenizer.h"
#include "io/gguf_values.h"
#include "io/gguf_vocabulary.h"

namespace ds {
namespace {

// Norms and other tensors of f32 may be beside matrices of another type.
DType lossless_type(const GgufHeader& header) {
  std::set<DType> types;
  for (const GgufTensor& tensor : header.tensors) {
    if (tensor.shape.size() > 1) types.insert(folder_dtype(*tensor.type));
  }
  if (types.size() > 1) types.erase(DS_DTYPE_F32);
  return types.size() == 1 ? *types.begin() : DS_DTYPE_BF16;
}

std::vector<float> read_factors(const GgufHeader& header, GgufData& data, const std::string& name) {
  const GgufTensor* tensor = header.find(name);
  if (tensor == nullptr) raise(DS_ERROR_CORRUPT, "tensor '{}' is missing", TensorName(name));
  return data.all(*tensor);
}

}  // namespace

GgufModel read_gguf_model(const std::string& path) {
  const GgufHeader header = read_gguf_header(path);
  GgufData data(path);
  return naming_file(path, [&] {
    GgufModel model;
    model.config = gguf_config(
        header, [&](const std::string& name) { return read_factors(header, data, name); });
    // config.json names the tokens that begin and end a text.
    const GgufVocabulary vocabulary = read_vocabulary(header);
    const int64_t rows = model.config.at("vocab_size").integer();
    if (std::ssize(vocabulary.tokens) > rows)
      raise(DS_ERROR_CONFIG,
            "key 'tokenizer.ggml.tokens' has {} tokens, but tensor 'token_embd.weight' has {} rows",
            vocabulary.tokens.size(), rows);
    for (const char* name : {"bos", "eos", "pad"}) {
      const auto id = vocabulary.find_special(name);
      model.config.set(std::string(name) + "_token_id", id ? Json(*id) : Json());
    }
    model.dtype = lossless_type(header);
    return model;
  });
}

std::vector<std::pair<std::string, std::string>> gguf_side_files(const std::string& path,
                                                                 DType dtype) {
  std::vector<std::pair<std::string, std::string>> files;
  const GgufVocabulary vocabulary = read_vocabulary(path);
  for (const char* name : kGgufTokenizerFiles) {
    if (vocabulary.model == "none") break;
    naming_file(path, [&] { files.emplace_back(name, gguf_tokenizer_text(vocabulary, name)); });
  }
  Json config = read_gguf_model(path).config;
  config.set("torch_dtype", dtype == DS_DTYPE_F32   ? "float32"
                            : dtype == DS_DTYPE_F16 ? "float16"
                                                    : "bfloat16");
  files.emplace_back("config.json", config.dump(2) + "\n");
  return files;
}

}  // namespace ds
