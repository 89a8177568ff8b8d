#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "generation/generation_request.h"

namespace ds {

// Continues a text with the newest checkpoint of a run folder, with a checkpoint, or with a Hugging
// Face model folder. Returns the new text or, if the request has ids, the new token ids separated
// by blanks. Collective, with the same result on every rank. `piece` [nullable] is called with each
// part of the result on every rank; if it returns false on any rank, all ranks throw DS_ERROR_USER.
// The text of a run may grow beyond its sequence (GenerationOptions::roll). The text of a model
// folder ends at its eos_token_id unless the request ignores it, and a request beyond the model's
// positions is refused. Throws DS_ERROR_NOT_FOUND if there is neither a complete checkpoint nor a
// model, or if a prompt needs a tokenizer that is missing.
std::string generate_text(Communicator& comm, const std::string& folder,
                          const GenerationRequest& request,
                          const std::function<bool(const std::string&)>& piece = {});

// Returns the bytes as readable text: a NUL, which ends a file in training texts, becomes a
// newline, and bytes that are not UTF-8 become U+FFFD.
std::string readable(std::string_view bytes);

}  // namespace ds
