#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "ds_plugin.h"

namespace ds {

// One line of a jsonl file, encoded.
struct Document {
  std::vector<int32_t> tokens;
  // 1 for a token that is a target, otherwise 0.
  std::vector<uint8_t> targets;
};

// An encoder of jsonl lines, implemented by libds_text.so. text/chat.h says which forms a line may
// have and which of its tokens are an answer.
class ChatEncoder {
 public:
  // `chosen` is the name of a template of the tokenizer or, if no template has that name, a file
  // with a template; "" selects the tokenizer's templates. With `loss_on_all`, every token is a
  // target. The tokenizer, opened by tokenizer_name, must outlive the encoder. Throws
  // DS_ERROR_NOT_FOUND if `chosen` is neither, DS_ERROR_CORRUPT if the text is not a template, and
  // DS_ERROR_UNSUPPORTED for parts of Jinja that libds lacks.
  ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_name,
              const std::string& chosen, bool loss_on_all);

  // Encodes one line. `where`, such as "FILE line N", begins messages. Throws DS_ERROR_CONFIG for a
  // line that has none of the forms, that the template refuses, or that has no target, and
  // DS_ERROR_UNSUPPORTED beyond a limit of the template.
  Document encode(const std::string& line, const std::string& where) const;

 private:
  struct Close {
    void operator()(ds_plugin_chat* chat) const;
  };
  std::unique_ptr<ds_plugin_chat, Close> chat_;
};

}  // namespace ds
