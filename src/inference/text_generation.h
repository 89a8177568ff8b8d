#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "inference/text_request.h"

namespace ds {

// Continues a text with the newest checkpoint of a run folder, a checkpoint, or a Hugging Face
// model folder. Returns what was added: text, or with ids numbers between blanks. Collective; the
// same on every rank. piece [nullable] sees it part by part, on every rank, as it comes. A run's
// text may grow beyond its sequence (GenerateOptions::roll); a model folder's ends at its
// eos_token_id and at its positions, beyond which a request is refused. DS_ERROR_NOT_FOUND: no
// complete checkpoint, no model, or a prompt for a folder without tokenizer.
std::string generate_text(Communicator& comm, const std::string& folder, const TextRequest& request,
                          const std::function<void(const std::string&)>& piece = {});

// For reading: a NUL, which ends a file of the training text, as a newline; what is no UTF-8 as
// U+FFFD.
std::string readable(std::string_view bytes);

}  // namespace ds
