// Stands in for sentencepiece.cpp if the library was not found when libds was built.
#include <memory>
#include <string>

#include "core/base/error.h"
#include "text/tokenizer.h"
#include "text/tokenizers/kinds.h"

namespace ds::text {

std::unique_ptr<const Tokenizer> open_sentencepiece(const std::string& path) {
  raise(DS_ERROR_UNSUPPORTED, "{}: this build has no sentencepiece (Debian: libsentencepiece-dev)",
        path);
}

}  // namespace ds::text
