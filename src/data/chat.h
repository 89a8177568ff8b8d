#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "data/jinja/jinja.h"
#include "data/tokenizer.h"

namespace ds {

// The chat templates of a tokenizer's files, by name ("default", "tool_use"), as Transformers finds
// them: chat_template of tokenizer_config.json, a text or a list of named ones, unless
// chat_template.jinja is there.
std::map<std::string, std::string> read_chat_templates(const std::string& tokenizer);

// One line of a jsonl file as tokens.
struct Document {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> targets;  // 1 for each token that counts
};

// Lines of jsonl to tokens. A line is {"messages": [{"role", "content"}, ...]}, rendered by the
// chat template, with "tools" and "chat_template_kwargs" for it; {"prompt", "completion"}, two
// texts or two lists of messages; or {"text"}. Its other members are ignored.
//
// Which tokens are an answer: those that {% generation %} marks, else those by which the text grows
// from messages[:i] with the prompt for an answer to messages[:i+1], for each message i of the
// assistant. That needs a template whose text of the beginning of a conversation is the beginning
// of its text; others are refused. A token is part of an answer when any character of it is.
class ChatEncoder {
 public:
  // chosen: a file with a template, or the name of one of the tokenizer's, or "". loss_on_all:
  // every token counts. The tokenizer outlives the encoder. DS_ERROR_NOT_FOUND when there is no
  // template of that name, else as ChatTemplate throws.
  ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_name,
              const std::string& chosen, bool loss_on_all);

  // where: "FILE line N". DS_ERROR_CONFIG for a line that is none of these, as ChatTemplate throws,
  // or when the line has no target.
  Document encode(const std::string& line, const std::string& where) const;

 private:
  using Ranges = std::vector<std::pair<size_t, size_t>>;  // of bytes

  Document text(const std::string& text) const;
  Document everything(const std::string& text) const;
  Document framed(Document inner) const;
  Document completion(const std::string& prompt, const std::string& completion) const;
  Document messages(const Json& line, Json::Array messages, size_t first_answer) const;
  const ChatTemplate& chosen_template(bool tools) const;
  ChatTemplate::Rendering render(const Json& line, const Json::Array& messages, size_t count,
                                 bool prompt) const;
  Ranges answers(const Json& line, const Json::Array& messages, size_t first,
                 const std::string& all) const;
  Document marked(const std::string& text, const Ranges& answers) const;

  const Tokenizer* tokenizer_;
  bool loss_on_all_;
  std::map<std::string, ChatTemplate> templates_;
  Json special_;  // bos_token and its like, as a template sees them
};

}  // namespace ds
