#pragma once
#include <string>

#include "core/base/json.h"

namespace ds::text {

// Returns a member of the line, or nullptr if it is absent or null. Some programs write null for a
// member that only other lines use.
const Json* given_member(const Json& line, const char* name);

// Returns whether a message of a conversation is the assistant's. The message must be an object.
bool is_answer(const Json& message);

// Converts a line of fine-tuning data in another usual form to "messages"; returns any other line
// unchanged. The forms are listed in docs/reference/data.md: ShareGPT's conversations, Alpaca's
// instruction, input and output, and pairs of a question and an answer under their usual names.
// Throws DS_ERROR_CONFIG, naming the member, if a member of such a line has the wrong kind or a
// speaker is unknown.
Json as_messages(Json line);

// Throws DS_ERROR_CONFIG, naming the place, if a member that a template may read contains NaN or
// infinity, which Python's json module writes. They may stand in all other members.
void refuse_not_finite(const Json& line);

// Explains a line that libds does not read: returns its form and what to write instead, such as "it
// is a pair of a chosen and a rejected answer, ...", or else its members, such as "it has \"a\",
// \"b\"". The line must be an object.
std::string unread_form(const Json& line);

// Explains a line that libds could read but that has further members which change its meaning:
// returns what the line is and what to do. Returns "" for any other line.
std::string misread_form(const Json& line);

}  // namespace ds::text
