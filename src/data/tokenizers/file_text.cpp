#include "data/tokenizers/file_text.h"

#include "io/file_kind.h"

namespace ds {

Json read_tokenizer_json(const std::string& path) { return read_json(path); }

}  // namespace ds
