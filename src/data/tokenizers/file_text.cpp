#include "data/tokenizers/file_text.h"

#include "core/base/error.h"
#include "io/file.h"

namespace ds {

Json read_tokenizer_json(const std::string& path) {
  std::string text = read_file(path);
  try {
    return Json::parse(text, path);
  } catch (const Error& error) {
    raise(DS_ERROR_CORRUPT, "{}", error.what());
  }
}

}  // namespace ds
