// The C++ side of the tokenizers of libds_text.so, and decoding of a stream of tokens.
#include "data/tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/base/utf8.h"
#include "data/text_plugin.h"

namespace ds {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

std::optional<int32_t> named_token(int32_t token) {
  return token < 0 ? std::nullopt : std::optional(token);
}

// Returns the number of bytes at the end of `text` that may be the beginning of a character, or
// that replace an incomplete one.
size_t unfinished_tail(std::string_view text) {
  size_t whole = text.size();
  // The decoder writes U+FFFD for a character that is incomplete so far.
  while (whole >= replacement.size() && text.substr(0, whole).ends_with(replacement)) {
    whole -= replacement.size();
  }
  for (size_t back = 1; back <= 3 && back <= whole; ++back) {
    auto byte = static_cast<uint8_t>(text[whole - back]);
    if (byte < 0x80) break;
    // The byte is inside a character; its lead byte is further to the front.
    if (byte < 0xc0) continue;
    if (utf8_sequence(text.substr(whole - back)) == 0) whole -= back;
    break;
  }
  return text.size() - whole;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& name) {
  const ds_plugin_chars chars = plugin_chars(name);
  ds_plugin_tokenizer* opened = nullptr;
  check_text(text_plugin().open(&chars, &opened));
  handle_.reset(opened);
  ds_plugin_tokenizer_info info{};
  text_plugin().info(handle_.get(), &info);
  name_.assign(info.name.data, info.name.size);
  vocab_ = info.vocab;
  end_of_text_ = named_token(info.end_of_text);
  mask_token_ = named_token(info.mask_token);
  frame_.before.assign(info.before, info.before + info.before_count);
  frame_.after.assign(info.after, info.after + info.after_count);
}

void Tokenizer::Close::operator()(ds_plugin_tokenizer* tokenizer) const {
  text_plugin().close(tokenizer);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  const ds_plugin_chars chars = plugin_chars(text);
  TextResult result;
  check_text(text_plugin().encode(handle_.get(), &chars, special, result.out()));
  return {result.tokens().begin(), result.tokens().end()};
}

// Calls the plugin once for all tokens.
std::string Tokenizer::decode(std::span<const int32_t> tokens, bool skip_special) const {
  TextResult result;
  check_text(text_plugin().decode(handle_.get(), tokens.data(), tokens.size(), skip_special,
                                  result.out()));
  return std::string(result.text());
}

bool Tokenizer::joins_next(int32_t token) const {
  return (text_plugin().token_bits(handle_.get(), token) & DS_PLUGIN_TOKEN_JOINS_NEXT) != 0;
}

bool Tokenizer::is_special(int32_t token) const {
  return (text_plugin().token_bits(handle_.get(), token) & DS_PLUGIN_TOKEN_SPECIAL) != 0;
}

std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& name) {
  return std::make_unique<const Tokenizer>(name);
}

std::vector<TokenizerFile> tokenizer_files(const std::string& name) {
  const ds_plugin_chars chars = plugin_chars(name);
  TextResult result;
  check_text(text_plugin().files(&chars, result.out()));
  // The plugin returns path and name of each file, each ended by a NUL.
  std::string_view rest = result.text();
  auto next = [&rest] {
    std::string out(rest.substr(0, rest.find('\0')));
    rest.remove_prefix(out.size() + 1);
    return out;
  };
  std::vector<TokenizerFile> files;
  while (!rest.empty()) {
    std::string path = next();
    files.push_back({std::move(path), next()});
  }
  return files;
}

std::string tokenizer_hash(const std::string& name) {
  const ds_plugin_chars chars = plugin_chars(name);
  TextResult result;
  check_text(text_plugin().hash(&chars, result.out()));
  return std::string(result.text());
}

std::string learn_tokenizer(std::string_view text, int64_t vocab, const std::string& folder,
                            const volatile int32_t* stop) {
  const ds_plugin_chars chars = plugin_chars(text), into = plugin_chars(folder);
  TextResult result;
  check_text(text_plugin().learn(&chars, vocab, &into, stop, result.out()));
  return std::string(result.text());
}

int64_t least_learned() { return text_plugin().least_learned; }

// The known text is decoded once to learn how many bytes of later texts it covers.
void TextStream::begin(std::span<const int32_t> tokens) {
  tokens_.assign(tokens.begin(), tokens.end());
  context_ = tokens_.size();
  shown_ = tokenizer_->decode(tokens_, skip_special_).size();
}

std::string TextStream::push(int32_t token) {
  tokens_.push_back(token);
  if (tokenizer_->joins_next(token)) return "";
  return take(false);
}

// After the end, the stream can be used for another text.
std::string TextStream::finish() {
  std::string rest = take(true);
  tokens_.clear();
  context_ = shown_ = 0;
  return rest;
}

// Decoding depends on the tokens before (the first token of a text loses its leading space), so the
// held tokens are decoded together with the context. Once the text of all tokens has been returned,
// a new context begins at the last tokens that have a text of their own.
std::string TextStream::take(bool all) {
  // If this many tokens have not completed a character, later ones will not do so either.
  constexpr size_t most_held = 64;
  std::string text = tokenizer_->decode(tokens_, skip_special_);
  size_t tail = all || tokens_.size() - context_ > most_held ? 0 : unfinished_tail(text);
  size_t end = std::max(text.size() - tail, shown_);
  std::string part =
      repair_utf8(std::string_view(text).substr(std::min(shown_, text.size()), end - shown_));
  shown_ = end;
  if (tail > 0 || tokens_.size() == context_) return part;
  std::span<const int32_t> fresh = std::span(tokens_).subspan(context_);
  size_t fresh_bytes = tokenizer_->decode(fresh, skip_special_).size();
  if (fresh_bytes == 0) return part;
  tokens_.assign(fresh.begin(), fresh.end());
  context_ = tokens_.size();
  shown_ = fresh_bytes;
  return part;
}

}  // namespace ds
