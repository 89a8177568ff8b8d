// Decoders of a tokenizer.json, each as a function of the list of spellings. The behavior follows
// `tokenizers`.
#include "text/tokenizers/decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/json.h"
#include "core/base/utf8.h"
#include "text/tokenizers/byte_alphabet.h"
#include "text/tokenizers/pattern.h"
#include "text/tokenizers/regex.h"

namespace ds::text {
namespace {

using Texts = std::vector<std::string>;

// Joins all parts to one, with `between` between them.
Texts join(const Texts& tokens, std::string_view between) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  return {text};
}

// Bytes that are not UTF-8, such as half of a character, become U+FFFD.
Texts byte_level(const ByteAlphabet& alphabet, const Texts& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += alphabet.bytes(token).value_or(token);
  return {repair_utf8(bytes)};
}

// Turns runs of "<0xNN>" into the text of their bytes. A run that is not UTF-8 becomes U+FFFD for
// each byte.
Texts byte_fallback(Texts tokens) {
  Texts out;
  std::string run;
  auto flush = [&] {
    if (is_utf8(run)) {
      if (!run.empty()) out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), "\xef\xbf\xbd");
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    if (auto byte = fallback_byte(token)) {
      run += *byte;
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  return out;
}

// Removes `mark` up to `start` times from the beginning and up to `stop` times from the end.
std::string strip(std::string_view text, std::string_view mark, int64_t start, int64_t stop) {
  for (int64_t i = 0; i < start && text.starts_with(mark); ++i) text.remove_prefix(mark.size());
  for (int64_t i = 0; i < stop && text.ends_with(mark); ++i) text.remove_suffix(mark.size());
  return std::string(text);
}

// Replaces space marks by spaces. With a prefix, the marks of the first token are removed.
Texts metaspace(Texts tokens, const std::string& mark, bool prefixed) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string out;
    for (std::string_view rest = tokens[i]; !rest.empty();) {
      bool is_mark = rest.starts_with(mark);
      size_t bytes = is_mark ? mark.size() : 1;
      if (!is_mark) out += rest[0];
      if (is_mark && !(i == 0 && prefixed)) out += ' ';
      rest.remove_prefix(bytes);
    }
    tokens[i] = out;
  }
  return tokens;
}

// Reads a Metaspace. Older files have add_prefix_space, newer ones prepend_scheme.
Decoder read_metaspace(Section& section) {
  std::string mark = section.character("replacement", "\xe2\x96\x81");
  bool add = section.flag("add_prefix_space", true);
  std::string scheme = section.text("prepend_scheme", add ? "always" : "never");
  section.skip("split");
  section.skip("str_rep");
  return [mark, prefixed = scheme != "never"](Texts tokens) {
    return metaspace(std::move(tokens), mark, prefixed);
  };
}

// Reads a Replace. The pattern is compiled once and shared by copies of the returned function.
Decoder read_replace(Section& section) {
  auto pattern = std::make_shared<const Regex>(read_pattern(section));
  return [pattern, by = section.text("content")](Texts tokens) {
    for (std::string& token : tokens)
      token = replace_all(*pattern, {std::move(token), {}, false}, by).text;
    return tokens;
  };
}

// Reads a Strip. The bounds of its counts keep a file from requiring endless work.
Decoder read_strip(Section& section) {
  std::string mark = section.character("content", "");
  int64_t start = section.integer("start", 0, 1 << 20), stop = section.integer("stop", 0, 1 << 20);
  return [=](Texts tokens) {
    for (std::string& token : tokens) token = strip(token, mark, start, stop);
    return tokens;
  };
}

// Reads a BPEDecoder. The suffix of a token means a space after it, except for the last token.
Decoder read_bpe_decoder(Section& section) {
  std::string suffix = section.text("suffix", "</w>");
  auto pattern = std::make_shared<const Regex>(escape_regex(suffix), section.path("suffix"));
  return [pattern](Texts tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] =
          replace_all(*pattern, {std::move(tokens[i]), {}, false}, i + 1 < tokens.size() ? " " : "")
              .text;
    }
    return tokens;
  };
}

// Replaces each `pattern` by `by`, from left to right.
void replace_text(std::string& text, std::string_view pattern, std::string_view by) {
  std::string out;
  size_t from = 0;
  for (size_t at = text.find(pattern); at != std::string::npos; at = text.find(pattern, from)) {
    out.append(text, from, at - from).append(by);
    from = at + pattern.size();
  }
  text = out.append(text, from, std::string::npos);
}

// Puts a space before each token except the first and those with the prefix, which continue a word.
// `cleanup` removes the space before some signs and endings.
Decoder read_word_piece(Section& section) {
  std::string prefix = section.text("prefix", "##");
  bool cleanup = section.flag("cleanup", true);
  return [=](Texts tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
      if (!cleanup) continue;
      for (auto [spaced, joined] : {std::pair{" .", "."},
                                    {" ?", "?"},
                                    {" !", "!"},
                                    {" ,", ","},
                                    {" ' ", "'"},
                                    {" n't", "n't"},
                                    {" 'm", "'m"},
                                    {" do not", " don't"},
                                    {" 's", "'s"},
                                    {" 've", "'ve"},
                                    {" 're", "'re"}}) {
        replace_text(token, spaced, joined);
      }
    }
    return tokens;
  };
}

// Reads a Sequence, in which each decoder processes the parts that the previous one returned.
Decoder read_sequence(Section& section) {
  std::vector<Decoder> steps;
  for (const Json& one : section.array("decoders")) {
    steps.push_back(
        read_decoder(&one, fmt::format("{}[{}]", section.path("decoders"), steps.size())));
  }
  return [steps](Texts tokens) {
    for (const Decoder& step : steps) tokens = step(std::move(tokens));
    return tokens;
  };
}

// Refuses types that libds does not know.
Decoder read_type(const std::string& type, Section& section) {
  if (type == "Sequence") return read_sequence(section);
  if (type == "Replace") return read_replace(section);
  if (type == "Strip") return read_strip(section);
  if (type == "Metaspace") return read_metaspace(section);
  if (type == "WordPiece") return read_word_piece(section);
  if (type == "BPEDecoder") return read_bpe_decoder(section);
  if (type == "ByteFallback") return byte_fallback;
  if (type == "Fuse") return [](const Texts& tokens) { return join(tokens, ""); };
  if (type != "ByteLevel") section.unsupported("type");
  for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) section.skip(key);
  auto alphabet = std::make_shared<const ByteAlphabet>();
  return [alphabet](const Texts& tokens) { return byte_level(*alphabet, tokens); };
}

}  // namespace

// Reads exactly "<0x", two hexadecimal digits and ">".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

// Searches sequences as well.
bool has_byte_fallback(const Json* json) {
  if (!json || !json->is_object()) return false;
  const Json *type = json->find("type"), *steps = json->find("decoders");
  if (type && type->is_string() && type->string() == "ByteFallback") return true;
  return steps && steps->is_array() &&
         std::any_of(steps->array().begin(), steps->array().end(),
                     [](const Json& step) { return has_byte_fallback(&step); });
}

Decoder read_decoder(const Json* json, const std::string& where) {
  if (!json || json->is_null()) return [](const Texts& tokens) { return join(tokens, " "); };
  Section section(*json, where);
  Decoder decoder = read_type(section.text("type"), section);
  section.done();
  return decoder;
}

}  // namespace ds::text
