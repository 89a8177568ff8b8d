#include "data/chat_forms.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"

namespace ds {
namespace {

// Who speaks, as ShareGPT's files and those that follow them say it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kSpeakers{
    {{"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"assistant", "assistant"},
     {"chatgpt", "assistant"},
     {"bing", "assistant"},
     {"bard", "assistant"},
     {"model", "assistant"},
     {"function_call", "assistant"},
     {"system", "system"},
     {"tool", "tool"},
     {"observation", "tool"},
     {"function_response", "tool"},
     {"function", "tool"}}};

// Members of a question, of what it is about, and of its answer.
struct PairForm {
  const char *question, *about, *answer;
};
constexpr PairForm kPairs[] = {
    {"instruction", "input", "output"},      // Alpaca
    {"instruction", "context", "response"},  // Dolly
    {"question", "context", "answer"},      {"question", "context", "response"},
    {"query", "context", "response"},       {"prompt", "context", "response"}};

const std::string& text_of(const Json& value, const std::string& name) {
  if (!value.is_string())
    raise(DS_ERROR_CONFIG, "\"{}\" must be a text, got {}", name, value.kind());
  return value.string();
}

const Json* given(const Json& line, const char* name) {
  const Json* value = line.find(name);
  return value && !value->is_null() ? value : nullptr;
}

Json message(std::string_view role, std::string content) {
  return Json::Object{{"role", std::string(role)}, {"content", std::move(content)}};
}

std::string_view role_of(const std::string& speaker) {
  for (const auto& [name, role] : kSpeakers) {
    if (name == speaker) return role;
  }
  raise(DS_ERROR_CONFIG,
        "\"conversations\" have the speaker \"{}\", which is none of human, gpt, system, tool",
        speaker);
}

void begin(const Json& line, Json::Array& messages) {
  const Json* system = given(line, "system");
  if (system && !text_of(*system, "system").empty())
    messages.push_back(message("system", system->string()));
}

// The line with messages in place of `members`.
Json with_messages(const Json& line, Json::Array messages,
                   std::initializer_list<std::string_view> members) {
  Json out{Json::Object{}};
  for (const auto& [name, value] : line.object()) {
    if (name != "system" && std::find(members.begin(), members.end(), name) == members.end())
      out.set(name, value);
  }
  out.set("messages", std::move(messages));
  return out;
}

Json of_conversations(const Json& line, const Json& conversations) {
  if (!conversations.is_array())
    raise(DS_ERROR_CONFIG, "\"conversations\" must be a list, got {}", conversations.kind());
  Json::Array messages;
  begin(line, messages);
  for (const Json& turn : conversations.array()) {
    if (!turn.is_object())
      raise(DS_ERROR_CONFIG, "\"conversations\" must have objects, got {}", turn.kind());
    const Json *from = turn.find("from"), *value = turn.find("value");
    if (turn.find("role")) {
      messages.push_back(turn);
    } else if (from && value) {
      messages.push_back(message(role_of(text_of(*from, "from")), text_of(*value, "value")));
    } else {
      raise(DS_ERROR_CONFIG,
            "\"conversations\" must have \"from\" and \"value\", or \"role\" and \"content\"");
    }
  }
  return with_messages(line, std::move(messages), {"conversations"});
}

// Earlier turns, as pairs.
void add_history(const Json& line, Json::Array& messages) {
  const Json* history = given(line, "history");
  if (!history) return;
  if (!history->is_array())
    raise(DS_ERROR_CONFIG, "\"history\" must be a list, got {}", history->kind());
  for (const Json& turn : history->array()) {
    if (!turn.is_array() || turn.array().size() != 2)
      raise(DS_ERROR_CONFIG, "\"history\" must have pairs of a question and an answer");
    messages.push_back(message("user", text_of(turn.array()[0], "history")));
    messages.push_back(message("assistant", text_of(turn.array()[1], "history")));
  }
}

Json of_pair(const Json& line, const PairForm& form) {
  Json::Array messages;
  begin(line, messages);
  add_history(line, messages);
  std::string question = text_of(line.at(form.question), form.question);
  if (const Json* about = given(line, form.about); about && !text_of(*about, form.about).empty())
    question += (question.empty() ? "" : "\n") + about->string();
  messages.push_back(message("user", std::move(question)));
  messages.push_back(message("assistant", text_of(line.at(form.answer), form.answer)));
  return with_messages(line, std::move(messages),
                       {form.question, form.about, form.answer, "history"});
}

}  // namespace

Json as_messages(Json line) {
  if (!line.is_object() || given(line, "messages")) return line;
  if (const Json* conversations = given(line, "conversations"))
    return of_conversations(line, *conversations);
  if (given(line, "prompt") && given(line, "completion")) return line;
  for (const PairForm& form : kPairs) {
    if (given(line, form.question) && given(line, form.answer)) return of_pair(line, form);
  }
  return line;
}

}  // namespace ds
