// Continues a text from a folder. Tokens become text through a TextStream, which returns whole
// characters only.
#include "generation/generate_text.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/tokenizer.h"
#include "generation/generate.h"
#include "generation/generation_source.h"

namespace ds {
std::string readable(std::string_view bytes) {
  std::string text = repair_utf8(bytes);
  std::ranges::replace(text, '\0', '\n');
  return text;
}

std::string generate_text(Communicator& comm, const std::string& folder,
                          const GenerationRequest& request,
                          const std::function<bool(const std::string&)>& piece) {
  GenerationSource source = open_source(comm, folder, request);
  std::optional<TextStream> stream;
  if (source.tokenizer) stream.emplace(*source.tokenizer).begin(source.prompt);
  std::string text;
  int64_t tokens = 0;
  // Passes a part on. Throws on all ranks if any of them asks to stop, since each token is computed
  // by all of them together.
  auto tell = [&](const std::string& part) {
    text += part;
    const bool stops = piece && !part.empty() && !piece(part);
    if (agree_max(comm, stops ? 1 : 0, "text") != 0)
      raise(DS_ERROR_USER, "a callback asked to stop after {} tokens", tokens);
  };
  auto each = [&](int32_t token) {
    ++tokens;
    tell(stream ? readable(stream->push(token))
                : (text.empty() ? "" : " ") + std::to_string(token));
    return true;
  };
  GenerationOptions options{request.tokens, request.sampling, source.ends, source.roll};
  generate(source.engine->generation(), source.prompt, options, each);
  if (stream) tell(readable(stream->finish()));
  return text;
}

}  // namespace ds
