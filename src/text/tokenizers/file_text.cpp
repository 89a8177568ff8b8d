// Reads the JSON files of tokenizers.
#include "text/tokenizers/file_text.h"

#include <algorithm>
#include <cstddef>

#include "core/base/error.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "io/gguf_tokenizer.h"

namespace ds::text {

Json read_tokenizer_json(const std::string& path) {
  return name_exists(path) ? read_json(path) : Json::parse(read_tokenizer_file(path), path);
}

Json read_tokenizer_object(const std::string& path) {
  if (!has_tokenizer_file(path)) return Json(Json::Object{});
  Json json = read_tokenizer_json(path);
  if (!json.is_object()) raise(DS_ERROR_CORRUPT, "{} must be an object, got {}", path, json.kind());
  return json;
}

std::string folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == path.npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
}

}  // namespace ds::text
