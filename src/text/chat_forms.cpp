// Converts other usual forms of fine-tuning data to messages, and explains the lines that cannot be
// converted.
#include "text/chat_forms.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/contains.h"
#include "core/base/error.h"

namespace ds::text {
namespace {

// Names of speakers in ShareGPT's files and those that follow them, with their roles.
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

// The names of the members that hold a question, the material that the question refers to, and the
// answer.
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

Json message(std::string_view role, std::string content) {
  return Json::Object{{"role", std::string(role)}, {"content", std::move(content)}};
}

// Returns the role of a speaker. An unknown speaker is refused, since a guess would decide what is
// learned.
std::string_view role_of(const std::string& speaker) {
  const std::string lower = ascii_lower(speaker);
  for (const auto& [name, role] : kSpeakers) {
    if (name == lower) return role;
  }
  raise(DS_ERROR_CONFIG,
        "\"conversations\" has the speaker \"{}\", which is not one of human, gpt, system, tool",
        speaker);
}

// Names of the system prompt of a line.
constexpr std::array<const char*, 2> kSystem{"system", "system_prompt"};

// Begins `messages` with the system prompt of the line, if it has one.
void begin(const Json& line, Json::Array& messages) {
  for (const char* name : kSystem) {
    const Json* system = given_member(line, name);
    if (!system || text_of(*system, name).empty()) continue;
    return messages.push_back(message("system", system->string()));
  }
}

// Returns the line with "messages" instead of `members` and the system prompt.
Json with_messages(const Json& line, Json::Array messages,
                   std::initializer_list<std::string_view> members) {
  Json out{Json::Object{}};
  for (const auto& [name, value] : line.object()) {
    if (!contains(kSystem, name) && !contains(members, name)) out.set(name, value);
  }
  out.set("messages", std::move(messages));
  return out;
}

// Converts a turn of ShareGPT, which has "from" and "value". A weight is kept, so that an answer
// that must not be learned is refused as in other forms.
Json of_turn(const Json& turn, const Json& from, const Json& value) {
  Json out = message(role_of(text_of(from, "from")), text_of(value, "value"));
  if (const Json* weight = given_member(turn, "weight")) out.set("weight", *weight);
  return out;
}

// Converts a conversation. Turns that already have a role are kept.
Json of_conversations(const Json& line, const Json& conversations) {
  if (!conversations.is_array())
    raise(DS_ERROR_CONFIG, "\"conversations\" must be a list, got {}", conversations.kind());
  Json::Array messages;
  begin(line, messages);
  for (const Json& turn : conversations.array()) {
    if (!turn.is_object())
      raise(DS_ERROR_CONFIG, "\"conversations\" must be a list of objects, got {}", turn.kind());
    const Json *from = given_member(turn, "from"), *value = given_member(turn, "value");
    if (given_member(turn, "role")) {
      messages.push_back(turn);
    } else if (from && value) {
      messages.push_back(of_turn(turn, *from, *value));
    } else {
      raise(DS_ERROR_CONFIG,
            "each of \"conversations\" must have \"from\" and \"value\", or \"role\" and "
            "\"content\"");
    }
  }
  return with_messages(line, std::move(messages), {"conversations"});
}

// Adds the earlier turns, which "history" lists as pairs of a question and an answer.
void add_history(const Json& line, Json::Array& messages) {
  const Json* history = given_member(line, "history");
  if (!history) return;
  if (!history->is_array())
    raise(DS_ERROR_CONFIG, "\"history\" must be a list, got {}", history->kind());
  for (const Json& turn : history->array()) {
    if (!turn.is_array() || turn.array().size() != 2)
      raise(DS_ERROR_CONFIG, "\"history\" must have lists of a question and an answer, got {}",
            turn.is_array() ? fmt::format("a list of {}", turn.array().size()) : turn.kind());
    messages.push_back(message("user", text_of(turn.array()[0], "history")));
    messages.push_back(message("assistant", text_of(turn.array()[1], "history")));
  }
}

// Converts a pair to a question and an answer, after a system prompt and earlier turns.
Json of_pair(const Json& line, const PairForm& form) {
  Json::Array messages;
  begin(line, messages);
  add_history(line, messages);
  std::string question = text_of(line.at(form.question), form.question);
  if (const Json* about = given_member(line, form.about);
      about && !text_of(*about, form.about).empty())
    question += (question.empty() ? "" : "\n") + about->string();
  messages.push_back(message("user", std::move(question)));
  messages.push_back(message("assistant", text_of(line.at(form.answer), form.answer)));
  return with_messages(line, std::move(messages),
                       {form.question, form.about, form.answer, "history"});
}

// Names, in lower case, that other files use for a question, an answer, a conversation or a text.
constexpr std::array kQuestions{"instruction", "question", "query",  "prompt", "problem",
                                "input",       "inputs",   "source", "user",   "human"};
constexpr std::array kAnswers{"output",  "outputs", "response",   "answer",
                              "answers", "chosen",  "completion", "solution",
                              "target",  "targets", "assistant",  "bot"};
constexpr std::array kConversations{"conversation", "dialog", "dialogue", "chat", "turns"};
constexpr std::array kTexts{"text", "content", "body", "document", "sentence", "code"};

// Returns the key of the first member, in the order of `names`, that has one of these names, is not
// null and satisfies fits(); "" if there is none.
template <typename List, typename F>
std::string first_named(const Json& line, const List& names, const F& fits) {
  for (const char* name : names) {
    for (const auto& [key, value] : line.object()) {
      if (ascii_lower(key) == name && !value.is_null() && fits(value)) return key;
    }
  }
  return "";
}

// Lists the first eight members of a line and counts the rest, for a message.
std::string members_of(const Json& line) {
  constexpr size_t most = 8;
  std::string out;
  for (size_t i = 0; i < std::min(line.object().size(), most); ++i) {
    const auto& [name, value] = line.object()[i];
    out += fmt::format("{}\"{}\"{}", i == 0 ? "" : ", ", name, value.is_null() ? " (null)" : "");
  }
  if (line.object().size() > most) out += fmt::format(" and {} more", line.object().size() - most);
  return out.empty() ? "no members" : out;
}

// Returns whether a line has two answers to one question, as DPO and similar methods use.
bool is_preference(const Json& line) {
  return given_member(line, "chosen") && given_member(line, "rejected");
}

// Returns whether an answer has the weight 0, with which OpenAI's files exclude it from learning.
bool has_unlearned_answer(const Json& line) {
  const Json* messages = given_member(line, "messages");
  if (!messages || !messages->is_array()) return false;
  return std::any_of(messages->array().begin(), messages->array().end(), [](const Json& message) {
    if (!message.is_object() || !is_answer(message)) return false;
    const Json* weight = given_member(message, "weight");
    return weight && weight->is_number() && weight->number() == 0;
  });
}

// Returns the place of the first NaN or infinity in a value, such as `[1].weight" is NaN`; nothing
// if there is none.
std::optional<std::string> not_finite(const Json& value) {
  if (value.is_nan() || value.is_infinity()) return fmt::format("\" is {}", value.dump());
  if (value.is_array()) {
    for (size_t i = 0; i < value.array().size(); ++i) {
      if (auto found = not_finite(value.array()[i])) return fmt::format("[{}]{}", i, *found);
    }
  } else if (value.is_object()) {
    for (const auto& [name, member] : value.object()) {
      if (auto found = not_finite(member)) return fmt::format(".{}{}", name, *found);
    }
  }
  return {};
}

constexpr const char* kPreference =
    "it is a pair of answers for preference training (\"chosen\", \"rejected\"): add the section "
    "\"preference\" to the configuration, or write the chosen one as the last of \"messages\", or "
    "with its \"prompt\" as \"completion\"";

}  // namespace

void refuse_not_finite(const Json& line) {
  for (const char* name : {"messages", "prompt", "completion", "tools", "chat_template_kwargs"}) {
    const Json* member = line.find(name);
    if (auto found = member ? not_finite(*member) : std::nullopt) {
      raise(DS_ERROR_CONFIG,
            "\"{}{}, which is not a value of JSON: write null, or leave the member out", name,
            *found);
    }
  }
}

// These lines could be read, but their answers must not be learned as they are.
std::string misread_form(const Json& line) {
  const bool answers = given_member(line, "messages") ||
                       (given_member(line, "prompt") && given_member(line, "completion"));
  if (!answers) return "";
  if (is_preference(line)) return kPreference;
  if (has_unlearned_answer(line)) {
    return "one of its answers has \"weight\" 0, OpenAI's mark of an answer that is not learned, "
           "and libds learns every answer: end the conversation before it, or leave the line out";
  }
  for (const char* name : {"label", "kto_tag"}) {
    const Json* label = given_member(line, name);
    if (!label || !label->is_bool() || label->boolean()) continue;
    return fmt::format(
        "it is an answer to avoid (\"{}\" is false, as KTO has it), and libds learns every answer: "
        "leave the line out",
        name);
  }
  return "";
}

// Tries forms from the most specific one to a plain list of the members.
std::string unread_form(const Json& line) {
  if (is_preference(line)) return kPreference;
  if (given_member(line, "input_ids"))
    return "it has token ids (\"input_ids\"): write its text instead, which libds turns into "
           "tokens";
  const std::string talk =
      first_named(line, kConversations, [](const Json& one) { return one.is_array(); });
  if (!talk.empty()) {
    return fmt::format(
        "it has a conversation under \"{}\": write it as \"messages\", a list of {{\"role\", "
        "\"content\"}}",
        talk);
  }
  auto any = [](const Json&) { return true; };
  const std::string question = first_named(line, kQuestions, any),
                    answer = first_named(line, kAnswers, any);
  if (const Json* texts = line.find(answer); !question.empty() && texts && !texts->is_string()) {
    return fmt::format("its \"{}\" must be a text, got {}: write one answer of it as \"answer\"",
                       answer, texts->kind());
  }
  if (!question.empty() && !answer.empty()) {
    return fmt::format(
        "it has a question under \"{}\" and an answer under \"{}\": write them as texts under "
        "\"question\" and \"answer\", which become a conversation, or under \"prompt\" and "
        "\"completion\"",
        question, answer);
  }
  if (const Json* value = given_member(line, "text"))
    return fmt::format("its \"text\" must be a text, got {}", value->kind());
  const std::string text =
      first_named(line, kTexts, [](const Json& one) { return one.is_string(); });
  if (!text.empty() && answer.empty())
    return fmt::format("it has a text under \"{}\": write it as \"text\"", text);
  return "it has " + members_of(line);
}

bool is_answer(const Json& message) {
  const Json* role = message.find("role");
  return role && role->is_string() && role->string() == "assistant";
}

const Json* given_member(const Json& line, const char* name) {
  const Json* value = line.find(name);
  return value && !value->is_null() ? value : nullptr;
}

// If a line fits several forms, the first one is used.
Json as_messages(Json line) {
  if (!line.is_object() || given_member(line, "messages")) return line;
  if (const Json* conversations = given_member(line, "conversations"))
    return of_conversations(line, *conversations);
  if (given_member(line, "prompt") && given_member(line, "completion")) return line;
  for (const PairForm& form : kPairs) {
    if (given_member(line, form.question) && given_member(line, form.answer))
      return of_pair(line, form);
  }
  return line;
}

}  // namespace ds::text
