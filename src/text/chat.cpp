// Encodes lines of fine-tuning data and finds the tokens of their answers.
//
// Problem: a template turns messages into one text, but only some of its tokens are an answer to
// learn.
//
// Algorithm: if the template marks answers, rendering returns their byte ranges. Otherwise the
// conversation is rendered up to each answer and through it, and the answer is the difference,
// provided that each text continues the previous one; a template that rewrites earlier turns is
// refused. The tokenizer then traces each token to its bytes of the text, and tokens that overlap
// an answer are targets.
//
// Cost: one rendering and, without marks, at most two more for each answer. Source: the meaning of
// {% generation %} and of the variables is that of Transformers' apply_chat_template.
#include "text/chat.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_data.h"
#include "core/base/path_kind.h"
#include "core/base/utf8.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "text/chat_forms.h"
#include "text/tokenizers/file_text.h"

namespace ds::text {
namespace {

constexpr const char* kDefault = "default";

// Returns the folder of a tokenizer's files; "" for "bytes".
std::string tokenizer_folder(const std::string& tokenizer) {
  std::vector<TokenizerFile> files = tokenizer_files(tokenizer);
  return files.empty() ? "" : folder_of(files[0].path);
}

// Adds an entry of the list form of chat_template.
void add_template(std::map<std::string, std::string>& out, const std::string& file,
                  const Json& one) {
  const Json* name = one.is_object() ? one.find("name") : nullptr;
  const Json* source = one.is_object() ? one.find("template") : nullptr;
  if (!name || !name->is_string() || !source || !source->is_string()) {
    raise(DS_ERROR_CORRUPT, "{}: an entry of chat_template must have a name and a template", file);
  }
  out[name->string()] = source->string();
}

// Returns the templates of the object form of chat_template, which maps names to templates.
std::map<std::string, std::string> named_templates(const Json::Object& given,
                                                   const std::string& file) {
  std::map<std::string, std::string> out;
  for (const auto& [name, source] : given) {
    if (!source.is_string()) {
      raise(DS_ERROR_CORRUPT, "{}: chat_template '{}' must be a text, got {}", file, name,
            source.kind());
    }
    out[name] = source.string();
  }
  return out;
}

// Returns the message with its reasoning under both names that Transformers passes to templates,
// "thinking" and "reasoning_content". The message may hold it under either of them, or as
// "reasoning".
Json with_reasoning(const Json& message) {
  const Json* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Json* found = message.find(name);
    if (!reasoning && found && !found->is_null()) reasoning = found;
  }
  if (!reasoning) return message;
  Json out;
  out.set("thinking", *reasoning);
  for (const auto& [key, value] : message.object()) out.set(key, value);
  out.set("reasoning_content", *reasoning);
  return out;
}

// Checks that a value is a list of messages, and returns it. Their contents are left to the
// template to check.
Json::Array messages_of(const Json& given, const char* name) {
  if (!given.is_array())
    raise(DS_ERROR_CONFIG, "\"{}\" must be a list of messages, got {}", name, given.kind());
  Json::Array out;
  for (const Json& one : given.array()) {
    if (!one.is_object())
      raise(DS_ERROR_CONFIG, "\"{}\" must be a list of objects, got {}", name, one.kind());
    out.push_back(with_reasoning(one));
  }
  return out;
}

// Refuses a line with fewer than two tokens or without a target. The first token does not count,
// since no token precedes it from which it could be predicted.
void check_targets(const Document& document) {
  if (document.tokens.size() < 2) {
    raise(DS_ERROR_CONFIG, "the line is too short: it becomes {}, but a sample needs at least 2",
          document.tokens.empty() ? "no token" : "1 token");
  }
  if (std::find(document.targets.begin() + 1, document.targets.end(), 1) == document.targets.end())
    raise(DS_ERROR_CONFIG, "no token of the line is a target: there is no answer, or it is empty");
}

}  // namespace

// A file of a template replaces all templates of tokenizer_config.json, as in Transformers, and a
// further file "default.jinja" replaces chat_template.jinja.
std::map<std::string, std::string> read_chat_templates(const std::string& tokenizer) {
  std::map<std::string, std::string> out;
  std::string file;
  for (const TokenizerFile& one : tokenizer_files(tokenizer)) {
    const std::filesystem::path name(one.name);
    if (one.name == "tokenizer_config.json") file = one.path;
    if (name.extension() != ".jinja") continue;
    out[name.has_parent_path() ? name.stem().string() : kDefault] = read_text(one.path);
  }
  if (!out.empty() || file.empty()) return out;
  Json config = read_tokenizer_json(file);
  const Json* given = config.is_object() ? config.find("chat_template") : nullptr;
  if (!given || given->is_null()) return out;
  if (given->is_string()) return {{kDefault, given->string()}};
  if (given->is_object()) return named_templates(given->object(), file);
  if (!given->is_array()) {
    raise(DS_ERROR_CORRUPT, "{}: chat_template must be a text, a list or an object, got {}", file,
          given->kind());
  }
  for (const Json& one : given->array()) add_template(out, file, one);
  return out;
}

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const std::string& tokenizer_name,
                         const std::string& chosen, bool loss_on_all)
    : tokenizer_(&tokenizer), loss_on_all_(loss_on_all), special_(Json::Object{}) {
  std::string folder = tokenizer_folder(tokenizer_name);
  std::map<std::string, std::string> sources = read_chat_templates(tokenizer_name);
  if (!chosen.empty()) {
    if (auto named = sources.find(chosen); named != sources.end()) {
      sources = {{kDefault, named->second}};
    } else if (exists(chosen)) {
      sources = {{kDefault, read_text(chosen)}};
    } else {
      raise(DS_ERROR_NOT_FOUND, "{}: \"{}\" is neither a file nor a chat template of '{}'{}",
            KeyName("data.chat_template"), chosen, tokenizer_name, open_hint(chosen));
    }
  }
  for (const auto& [name, source] : sources) {
    std::string shown = chosen.empty() ? folder : chosen;
    templates_.emplace(name,
                       ChatTemplate(source, name == kDefault ? shown : shown + " (" + name + ")"));
  }
  for (const auto& [name, content] : tokenizer.names()) special_.set(name, content);
}

Document ChatEncoder::encode(const std::string& line, const std::string& where) const {
  try {
    Json json = as_messages(parse_json_data(line, "JSON"));
    if (!json.is_object()) raise(DS_ERROR_CONFIG, "a line must be an object, got {}", json.kind());
    refuse_not_finite(json);
    if (const std::string form = misread_form(json); !form.empty())
      raise(DS_ERROR_CONFIG, "{}", form);
    Document out;
    const Json *messages_given = given_member(json, "messages"),
               *prompt = given_member(json, "prompt"),
               *completion_given = given_member(json, "completion"),
               *text_given = given_member(json, "text");
    if (messages_given) {
      out = messages(json, messages_of(*messages_given, "messages"), 0);
    } else if (prompt && completion_given && prompt->is_string() && completion_given->is_string()) {
      out = completion(prompt->string(), completion_given->string());
    } else if (prompt && completion_given) {
      Json::Array all = messages_of(*prompt, "prompt"),
                  answer = messages_of(*completion_given, "completion");
      size_t first = all.size();
      all.insert(all.end(), answer.begin(), answer.end());
      out = messages(json, std::move(all), first);
    } else if (text_given && text_given->is_string()) {
      out = text(text_given->string());
    } else {
      raise(DS_ERROR_CONFIG,
            "a line must have \"messages\", \"prompt\" and \"completion\", or a \"text\", or have "
            "another form of docs/reference/data.md; {}",
            unread_form(json));
    }
    check_targets(out);
    return out;
  } catch (const Error& error) {
    raise(error.status(), "{}: {}", where, error.what());
  }
}

Document ChatEncoder::text(const std::string& text) const { return framed(everything(text)); }

// The tokens after the text are targets as well, since the model must learn where a completion
// ends.
Document ChatEncoder::completion(const std::string& prompt, const std::string& completion) const {
  std::string text = prompt + completion;
  Document out =
      framed(loss_on_all_ ? everything(text) : marked(text, {{prompt.size(), text.size()}}));
  if (!loss_on_all_) std::fill_n(out.targets.begin(), tokenizer_->frame().before.size(), 0);
  return out;
}

// Returns the tokens of a text, all of them as targets.
Document ChatEncoder::everything(const std::string& text) const {
  Document out{tokenizer_->encode(text, false), {}};
  out.targets.assign(out.tokens.size(), 1);
  return out;
}

// Puts the tokenizer's frame around the tokens of a text. If the frame has no tokens after the
// text, the end-of-text token is added. All added tokens are targets.
Document ChatEncoder::framed(Document inner) const {
  Tokenizer::Frame frame = tokenizer_->frame();
  if (auto end = tokenizer_->end_of_text(); end && frame.after.empty()) frame.after.push_back(*end);
  inner.tokens.insert(inner.tokens.begin(), frame.before.begin(), frame.before.end());
  inner.targets.insert(inner.targets.begin(), frame.before.size(), 1);
  inner.tokens.insert(inner.tokens.end(), frame.after.begin(), frame.after.end());
  inner.targets.resize(inner.tokens.size(), 1);
  return inner;
}

// As Transformers does, prefers the template "tool_use" for a conversation with tools.
const ChatTemplate& ChatEncoder::chosen_template(bool tools) const {
  auto found = tools ? templates_.find("tool_use") : templates_.end();
  if (found == templates_.end()) found = templates_.find(kDefault);
  if (found == templates_.end()) {
    std::string names;
    for (const auto& [name, one] : templates_)
      names += (names.empty() ? "\"" : ", \"") + name + "\"";
    raise(DS_ERROR_NOT_FOUND, "{}: \"messages\" need a chat template, and '{}' has none{}",
          KeyName("data.chat_template"), tokenizer_->name(),
          names.empty() ? "" : " that is named \"default\": choose one of " + names);
  }
  return found->second;
}

// Renders the first `count` messages with the variables that Transformers passes: special tokens,
// the line's keyword arguments, messages, tools, documents, and whether the prompt for an answer
// follows.
ChatTemplate::Rendering ChatEncoder::render(const Json& line, const Json::Array& messages,
                                            size_t count, bool prompt) const {
  Json variables = special_;
  if (const Json* more = line.find("chat_template_kwargs"); more && more->is_object()) {
    for (const auto& [key, value] : more->object()) variables.set(key, value);
  }
  // Some files hold the tools as a JSON text.
  const Json* tools = line.find("tools");
  Json given = tools ? *tools : Json();
  if (given.is_string()) given = Json::parse(given.string(), "tools");
  if (given.is_array() && given.array().empty()) given = Json();
  variables.set("messages", Json::Array(messages.begin(),
                                        messages.begin() + static_cast<std::ptrdiff_t>(count)));
  variables.set("tools", given);
  variables.set("documents", Json());
  variables.set("add_generation_prompt", prompt);
  return chosen_template(!given.is_null()).render(variables);
}

// Marks of the template are used only for whole conversations: in a completion, everything after
// the prompt is the answer.
Document ChatEncoder::messages(const Json& line, Json::Array messages, size_t first_answer) const {
  ChatTemplate::Rendering all = render(line, messages, messages.size(), false);
  if (loss_on_all_) return everything(all.text);
  const Json* tools = line.find("tools");
  bool generation =
      first_answer == 0 && chosen_template(tools && !tools->is_null()).marks_answers();
  return marked(all.text,
                generation ? all.answers : answers(line, messages, first_answer, all.text));
}

// Returns the byte ranges by which the rendered text grows with each answer.
ChatEncoder::Ranges ChatEncoder::answers(const Json& line, const Json::Array& messages,
                                         size_t first, const std::string& all) const {
  Ranges out;
  for (size_t i = first; i < messages.size(); ++i) {
    if (first == 0 && !is_answer(messages[i])) continue;
    size_t end =
        // In a completion, the answer is everything after the prompt.
        first == 0 ? i + 1 : messages.size();
    std::string before = render(line, messages, i, true).text;
    std::string with = end == messages.size() ? all : render(line, messages, end, false).text;
    if (!with.starts_with(before) || !all.starts_with(with)) {
      raise(DS_ERROR_CONFIG,
            "the chat template renders the text before message {} differently once that message "
            "follows, so the tokens of the answer are not known; set data.chat_template to a "
            "template with {{% generation %}}, or data.loss_on to \"all\"",
            i + 1);
    }
    out.emplace_back(before.size(), with.size());
    if (end == messages.size()) break;
  }
  return out;
}

// A token without text belongs to no answer.
Document ChatEncoder::marked(const std::string& text, const Ranges& answers) const {
  Tokenizer::Traced traced = tokenizer_->encode_traced(text);
  Document out{std::move(traced.tokens), {}};
  out.targets.assign(out.tokens.size(), 0);
  for (size_t i = 0; i < out.tokens.size(); ++i) {
    Range source = traced.sources[i];
    if (source.begin == source.end) continue;
    auto meets = [source](const auto& answer) {
      return answer.first < answer.second && answer.first < source.end &&
             source.begin < answer.second;
    };
    out.targets[i] = std::ranges::any_of(answers, meets) ? 1 : 0;
  }
  return out;
}

}  // namespace ds::text
