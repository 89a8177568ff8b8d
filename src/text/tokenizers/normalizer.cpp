// Normalizers of a tokenizer.json. Each keeps the origin of every byte if the text is traced.
#include "text/tokenizers/normalizer.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "core/base/contains.h"
#include "core/base/json.h"
#include "core/base/utf8.h"
#include "text/tokenizers/pattern.h"
#include "text/tokenizers/regex.h"
#include "text/tokenizers/unicode_form.h"

namespace ds::text {
namespace {

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// A normalization form of Unicode.
class Form : public Normalizer {
 public:
  Form(UnicodeForm form, std::string where) : Normalizer(std::move(where)), form_(form) {}

 private:
  TracedText step(TracedText text, size_t) const override {
    return to_unicode_form(std::move(text), form_);
  }

  UnicodeForm form_;
};

// Replaces characters one by one: `change` appends what a character becomes.
template <typename F>
TracedText by_character(const TracedText& text, const F& change) {
  TracedText out = TracedText::empty_like(text);
  out.text.reserve(text.text.size());
  for (size_t at = 0; at < text.text.size();) {
    std::string_view rest = std::string_view(text.text).substr(at);
    size_t end = at + utf8_sequence(rest), before = out.text.size();
    change(utf8_first(rest), out.text);
    if (text.traced)
      out.origin.insert(out.origin.end(), out.text.size() - before, text.source({at, end}));
    at = end;
  }
  return out;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

void append_lower(char32_t c, std::string& out) {
  // The one character whose lower case is two: i and a dot above.
  if (c == 0x130) {
    out += "i\xcc\x87";
  } else {
    utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

// A step that converts to lower case, character by character.
class Lowercase : public Normalizer {
 public:
  using Normalizer::Normalizer;

 private:
  TracedText step(TracedText text, size_t) const override {
    return by_character(text, append_lower);
  }
};

// A step that removes the characters of some categories.
class Drop : public Normalizer {
 public:
  Drop(std::vector<utf8proc_category_t> dropped, std::string where)
      : Normalizer(std::move(where)), dropped_(std::move(dropped)) {}

 private:
  TracedText step(TracedText text, size_t) const override {
    if (is_ascii(text.text)) return text;
    return by_character(text, [this](char32_t c, std::string& out) {
      if (!contains(dropped_, category(c))) utf8_append(out, c);
    });
  }

  std::vector<utf8proc_category_t> dropped_;
};

// BERT's clean_text, a step that removes control, format and private-use characters and U+FFFD, and
// replaces every space or separator by ' '.
class CleanText : public Normalizer {
 public:
  using Normalizer::Normalizer;

 private:
  TracedText step(TracedText text, size_t) const override {
    return by_character(text, [](char32_t c, std::string& out) {
      utf8proc_category_t kind = category(c);
      bool separates = kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
                       kind == UTF8PROC_CATEGORY_ZP;
      if (c == '\t' || c == '\n' || c == '\r' || separates) {
        out += ' ';
      } else if (c != 0xfffd && kind != UTF8PROC_CATEGORY_CC && kind != UTF8PROC_CATEGORY_CF &&
                 kind != UTF8PROC_CATEGORY_CO) {
        utf8_append(out, c);
      }
    });
  }
};

// BERT's handle_chinese_chars, a step that puts a space on both sides of each character of the
// blocks that BERT treats as Chinese.
class SpaceChinese : public Normalizer {
 public:
  using Normalizer::Normalizer;

 private:
  static bool chinese(char32_t c) {
    constexpr char32_t blocks[][2] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                      {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                      {0x2f800, 0x2fa1f}};
    return std::ranges::any_of(
        blocks, [c](const char32_t(&block)[2]) { return c >= block[0] && c <= block[1]; });
  }
  TracedText step(TracedText text, size_t) const override {
    if (is_ascii(text.text)) return text;
    return by_character(text, [](char32_t c, std::string& out) {
      bool spaced = chinese(c);
      if (spaced) out += ' ';
      utf8_append(out, c);
      if (spaced) out += ' ';
    });
  }
};

// A step that puts a prefix in front of a text that is not empty. The prefix has the origin of the
// first character.
class Prepend : public Normalizer {
 public:
  Prepend(std::string prefix, std::string where)
      : Normalizer(std::move(where)), prefix_(std::move(prefix)) {}

 private:
  TracedText step(TracedText text, size_t) const override {
    if (text.text.empty()) return text;
    TracedText out = TracedText::empty_like(text);
    out.write(prefix_, text.source({0, utf8_sequence(text.text)}));
    out.copy(text, {0, text.text.size()});
    return out;
  }

  std::string prefix_;
};

// A step that replaces every match and stops early if the result grows too large.
class Replace : public Normalizer {
 public:
  Replace(Regex pattern, std::string content, std::string where)
      : Normalizer(std::move(where)), pattern_(std::move(pattern)), content_(std::move(content)) {}

 private:
  TracedText step(TracedText text, size_t most) const override {
    return replace_all(pattern_, text, content_, most);
  }

  Regex pattern_;
  std::string content_;
};

// A step that removes spaces at one end or both.
class Strip : public Normalizer {
 public:
  Strip(bool left, bool right, const std::string& where)
      : Normalizer(where), left_(left), right_(right), space_("\\s+", where) {}

 private:
  TracedText step(TracedText text, size_t) const override {
    size_t begin = 0, end = text.text.size();
    Regex::Matches spaces(space_, text.text);
    while (auto space = spaces.next()) {
      if (right_ && space->end == text.text.size()) end = space->begin;
      if (left_ && space->begin == 0) begin = space->end;
    }
    TracedText out = TracedText::empty_like(text);
    if (begin < end) out.copy(text, {begin, end});
    return out;
  }

  bool left_, right_;
  Regex space_;
};

// A step that runs other steps one after another. The limit of growth is computed from the text
// before the first step and applies to each step.
class Sequence : public Normalizer {
 public:
  Sequence(std::vector<std::unique_ptr<const Normalizer>> steps, std::string where)
      : Normalizer(std::move(where)), steps_(std::move(steps)) {}

 private:
  TracedText step(TracedText text, size_t most) const override {
    for (const auto& step : steps_) text = step->apply(std::move(text), most);
    return text;
  }

  std::vector<std::unique_ptr<const Normalizer>> steps_;
};

// Returns the steps of BERT's normalizer. A flag turns each step off.
std::unique_ptr<const Normalizer> make_bert(Section& section) {
  std::vector<std::unique_ptr<const Normalizer>> steps;
  const std::string& where = section.where();
  bool lower = section.flag("lowercase", true);
  if (section.flag("clean_text", true)) steps.push_back(std::make_unique<CleanText>(where));
  if (section.flag("handle_chinese_chars", true))
    steps.push_back(std::make_unique<SpaceChinese>(where));
  // Unless the file says otherwise, BERT strips accents if it converts to lower case.
  if (section.flag("strip_accents", lower)) {
    steps.push_back(std::make_unique<Form>(UnicodeForm{}, where));
    steps.push_back(std::make_unique<Drop>(std::vector{UTF8PROC_CATEGORY_MN}, where));
  }
  if (lower) steps.push_back(std::make_unique<Lowercase>(where));
  return std::make_unique<Sequence>(std::move(steps), where);
}

// Returns the step of a type; refuses types that libds does not know.
std::unique_ptr<const Normalizer> make(const std::string& type, Section& section) {
  if (auto form = unicode_form(type)) return std::make_unique<Form>(*form, section.where());
  if (type == "Prepend") return std::make_unique<Prepend>(section.text("prepend"), section.where());
  if (type == "Replace") {
    Regex pattern = read_pattern(section);
    return std::make_unique<Replace>(std::move(pattern), section.text("content"), section.where());
  }
  if (type == "Strip") {
    return std::make_unique<Strip>(section.flag("strip_left", true),
                                   section.flag("strip_right", true), section.where());
  }
  if (type == "BertNormalizer") return make_bert(section);
  if (type == "Lowercase") return std::make_unique<Lowercase>(section.where());
  if (type == "StripAccents") {
    return std::make_unique<Drop>(
        std::vector{UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ME},
        section.where());
  }
  if (type != "Sequence") section.unsupported("type");
  std::vector<std::unique_ptr<const Normalizer>> steps;
  for (const Json& one : section.array("normalizers")) {
    auto step =
        read_normalizer(&one, fmt::format("{}[{}]", section.path("normalizers"), steps.size()));
    if (step) steps.push_back(std::move(step));
  }
  return std::make_unique<Sequence>(std::move(steps), section.where());
}

}  // namespace

// A hostile file could make each step multiply the text, so its growth is bounded.
TracedText Normalizer::apply(TracedText text, size_t most) const {
  TracedText out = step(std::move(text), most);
  if (out.text.size() > most) {
    raise(DS_ERROR_UNSUPPORTED,
          "{}: a text grew above the limit of {} bytes, which is 64 times its own and 1 MiB",
          where_, most);
  }
  return out;
}

std::unique_ptr<const Normalizer> read_normalizer(const Json* json, const std::string& where) {
  if (!json || json->is_null()) return nullptr;
  Section section(*json, where);
  auto step = make(section.text("type"), section);
  section.done();
  return step;
}

}  // namespace ds::text
