#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer.h"

namespace ds::text {

// Returns the chat templates in a tokenizer's files by name ("default", "tool_use"), as
// Transformers finds them: "default" is the text chat_template.jinja, and any other NAME is
// additional_chat_templates/NAME.jinja. If there is no such file, the templates are those of
// chat_template in tokenizer_config.json, which is a text or a list of named ones.
std::map<std::string, std::string> read_chat_templates(const std::string& tokenizer);

// One line of a jsonl file, encoded.
struct Document {
  std::vector<int32_t> tokens;
  // 1 for a token that is a target, otherwise 0.
  std::vector<uint8_t> targets;
};

// An encoder of jsonl lines. A line is {"messages": [{"role", "content"}, ...]}, rendered by the
// chat template together with its "tools" and "chat_template_kwargs"; {"prompt", "completion"},
// which are two texts or two lists of messages; or {"text"}. as_messages() first converts other
// usual forms. Further members are ignored, except those for which misread_form() refuses the line.
//
// The tokens of an answer are those that {% generation %} marks. Without such marks, for each
// message i of the assistant, they are the tokens by which the text grows from messages[:i], with
// the prompt for an answer, to messages[:i+1]. This requires that the text rendered for the first
// messages of a conversation is a prefix of the text for all of them; other templates are refused.
// A token is part of an answer if any of its characters is.
class ChatEncoder {
 public:
  // `chosen` is the name of a template of the tokenizer or, if no template has that name, a file
  // with a template; "" selects the tokenizer's templates. With `loss_on_all`, every token is a
  // target. The tokenizer must outlive the encoder. Throws DS_ERROR_NOT_FOUND if `chosen` is
  // neither, and the errors of ChatTemplate's constructor.
  ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_name,
              const std::string& chosen, bool loss_on_all);

  // Encodes one line. `where`, such as "FILE line N", begins messages. Throws DS_ERROR_CONFIG for a
  // line that has none of these forms, fewer than two tokens or no target, DS_ERROR_NOT_FOUND if a
  // conversation has no suitable template, and the errors of the JSON parser and of
  // ChatTemplate::render().
  Document encode(const std::string& line, const std::string& where) const;

 private:
  // Byte ranges of a text.
  using Ranges = std::vector<std::pair<size_t, size_t>>;

  // Encodes a line with "text".
  Document text(const std::string& text) const;
  // Returns the tokens of a text, all of them as targets.
  Document everything(const std::string& text) const;
  // Puts the tokens that begin and end a text around it, as targets.
  Document framed(Document inner) const;
  // Encodes a line with "prompt" and "completion" as texts.
  Document completion(const std::string& prompt, const std::string& completion) const;
  // Encodes messages. If `first_answer` is not 0, the messages from that index on are a completion.
  Document messages(const Json& line, Json::Array messages, size_t first_answer) const;
  // Returns the template for a conversation with or without tools. Throws DS_ERROR_NOT_FOUND if the
  // tokenizer has no suitable one.
  const ChatTemplate& chosen_template(bool tools) const;
  ChatTemplate::Rendering render(const Json& line, const Json::Array& messages, size_t count,
                                 bool prompt) const;
  Ranges answers(const Json& line, const Json::Array& messages, size_t first,
                 const std::string& all) const;
  Document marked(const std::string& text, const Ranges& answers) const;

  const Tokenizer* tokenizer_;
  bool loss_on_all_;
  std::map<std::string, ChatTemplate> templates_;
  // The special tokens ("bos_token" and others) as a template sees them.
  Json special_;
};

}  // namespace ds::text
