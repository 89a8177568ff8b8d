#pragma once
#include "core/base/json.h"

namespace ds {

// A line of fine-tuning data in the form that ChatEncoder reads: one of another usual form as
// "messages", any other line as it is. The forms are a table in docs/reference/data.md: ShareGPT's
// conversations, Alpaca's instruction, input and output, and pairs of a question and an answer
// under their usual names. Throws DS_ERROR_CONFIG naming the member for a line of these forms with
// a member of another kind or an unknown speaker.
Json as_messages(Json line);

}  // namespace ds
