#include "text/tokenizers/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "core/base/ascii.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/utf8.h"

namespace ds::text {
namespace {

constexpr size_t max_pattern_bytes = 1 << 16;
// The largest number of steps that PCRE2 may take for one match.
constexpr uint32_t match_limit = 4000000;
constexpr size_t jit_stack_bytes = 1 << 20;

// General categories and binary properties, as opposed to scripts.
constexpr std::string_view properties[] = {
    "C",           "Cc",        "Cf",       "Cn", "Co", "Cs",  "L",          "Ll",
    "Lm",          "Lo",        "Lt",       "Lu", "M",  "Mc",  "Me",         "Mn",
    "N",           "Nd",        "Nl",       "No", "P",  "Pc",  "Pd",         "Pe",
    "Pf",          "Pi",        "Po",       "Ps", "S",  "Sc",  "Sk",         "Sm",
    "So",          "Z",         "Zl",       "Zp", "Zs", "Any", "Alphabetic", "Join_Control",
    "White_Space", "Lowercase", "Uppercase"};

// A translator of patterns to PCRE2. Escapes that mean the same in both engines are kept, \s and \S
// become Unicode properties, and all others are refused (\w as well: the engines disagree about a
// thousand characters).
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string translate() {
    while (at_ < in_.size()) {
      char c = in_[at_];
      if (c == '\\') {
        escape();
        continue;
      }
      if (in_class_ && in_.substr(at_, 2) == "&&") refuse(2);
      // The bracket begins a set within a set, or [:name:].
      if (c == '[' && in_class_) refuse(2);
      if (c == '[' || c == ']') in_class_ = c == '[';
      if (c == '(' && !in_class_) check_group();
      // PCRE2 and Oniguruma read {,n}, {n,m}+ and {n}? differently.
      if (!in_class_ && c == '{') check_count();
      if (!in_class_ && (in_.substr(at_, 2) == "{," || in_.substr(at_, 2) == "}+")) refuse(2);
      out_ += c;
      ++at_;
    }
    return out_;
  }

 private:
  // Translates the escape that begins with the backslash here.
  void escape() {
    if (at_ + 1 >= in_.size()) refuse(1);
    char c = in_[at_ + 1];
    if (c == 's' || c == 'S') return replace(2, c == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    constexpr std::string_view same = "dDpPnrtfx";
    bool digit = c >= '0' && c <= '9';
    if ((letter && same.find(c) == std::string_view::npos) || digit) refuse(2);
    size_t braces =
        in_.substr(at_ + 2).starts_with('{') ? in_.find('}', at_) : std::string_view::npos;
    bool named = (c == 'p' || c == 'P' || c == 'x') && braces != std::string_view::npos;
    if ((c == 'p' || c == 'P') && !named) refuse(2);
    size_t bytes = named ? braces + 1 - at_ : 2;
    if (named && c != 'x') return property(bytes);
    replace(bytes, in_.substr(at_, bytes));
  }

  // Translates the `bytes` bytes of \p{name}. For the name of a script, Oniguruma matches the
  // property Script, but PCRE2 matches Script_Extensions by default, so any name that is not in
  // `properties` gets the prefix "sc:". PCRE2 then refuses a name that is not a script either.
  void property(size_t bytes) {
    std::string_view name = in_.substr(at_ + 3, bytes - 4);
    bool inverted = name.starts_with('^');
    if (inverted) name.remove_prefix(1);
    bool letters = !name.empty() &&
                   std::ranges::all_of(name, [](char c) { return is_ascii_letter(c) || c == '_'; });
    if (!letters) refuse(bytes);
    bool known = contains(properties, name);
    out_ += in_.substr(at_, 3);
    if (inverted) out_ += '^';
    if (!known) out_ += "sc:";
    out_ += name;
    out_ += '}';
    at_ += bytes;
  }

  // Refuses counts that the engines read differently: {n}? is a lazy count in PCRE2 and an optional
  // one in Oniguruma.
  void check_count() const {
    size_t end = at_ + 1;
    while (end < in_.size() && in_[end] >= '0' && in_[end] <= '9') ++end;
    if (end > at_ + 1 && in_.substr(end, 2) == "}?") refuse(end + 2 - at_);
  }

  // Accepts only groups whose meaning is the same in both engines.
  void check_group() const {
    if (in_.substr(at_, 2) == "(*") refuse(2);
    if (in_.substr(at_, 2) != "(?") return;
    constexpr std::string_view same[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    for (std::string_view group : same) {
      if (in_.substr(at_).starts_with(group)) return;
    }
    if (at_ == 0 && in_.starts_with("(?i)")) return;
    refuse(3);
  }

  void replace(size_t bytes, std::string_view by) {
    out_ += by;
    at_ += bytes;
  }

  [[noreturn]] void refuse(size_t bytes) const {
    raise(DS_ERROR_UNSUPPORTED, "{}: '{}' at byte {} of the regular expression is not supported",
          where_, in_.substr(at_, bytes), at_);
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
};

// Returns PCRE2's own text for an error code.
std::string pcre_message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

// The compiled expression and its limits, which all threads share.
struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  ~Code() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }
};

// MULTILINE gives ^ and $ Oniguruma's meaning; \C, which could split a character, is switched off.
Regex::Regex(std::string_view pattern, std::string where)
    : where_(std::move(where)), code_(new Code) {
  if (pattern.empty() || pattern.size() > max_pattern_bytes || !is_utf8(pattern)) {
    raise(DS_ERROR_UNSUPPORTED, "{}: a regular expression must be 1 to {} bytes of UTF-8, got {}",
          where_, max_pattern_bytes, pattern.size());
  }
  std::string text = Translator(pattern, where_).translate();
  int error = 0;
  PCRE2_SIZE offset = 0;
  constexpr uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options,
                              &error, &offset, context.get());
  if (!code_->code)
    raise(DS_ERROR_UNSUPPORTED, "{}: regular expression: {}", where_, pcre_message(error));
  if (!code_->context)
    raise(DS_ERROR_OUT_OF_MEMORY, "{}: not enough memory for a regular expression", where_);
  pcre2_set_match_limit(code_->context, match_limit);
  // Without a JIT, the interpreter matches.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

// The buffers of one series of matches, which belong to one thread.
struct Regex::Matches::State {
  pcre2_match_data* data = nullptr;
  // A context with a stack of its own, created when the usual stack was too small.
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

Regex::Matches::Matches(const Regex& regex, std::string_view text)
    : regex_(&regex), text_(text), state_(new State) {
  state_->data = pcre2_match_data_create_from_pattern(regex.code_->code, nullptr);
  if (!state_->data) raise(DS_ERROR_OUT_OF_MEMORY, "{}: not enough memory to match", regex.where_);
}

Regex::Matches::~Matches() = default;

int Regex::Matches::match() {
  pcre2_match_context* context = state_->context ? state_->context : regex_->code_->context;
  return pcre2_match(regex_->code_->code, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                     at_, PCRE2_NO_UTF_CHECK, state_->data, context);
}

// The JIT's usual stack of 32 KiB is enough for almost all matches.
int Regex::Matches::match_with_stack() {
  state_->stack = pcre2_jit_stack_create(1 << 15, jit_stack_bytes, nullptr);
  state_->context = pcre2_match_context_copy(regex_->code_->context);
  if (!state_->stack || !state_->context)
    raise(DS_ERROR_OUT_OF_MEMORY, "{}: not enough memory to match", regex_->where_);
  pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
  return match();
}

// The text is known to be UTF-8, so PCRE2 does not check it for every match.
std::optional<Range> Regex::Matches::next() {
  if (at_ > text_.size()) return std::nullopt;
  int rc = match();
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !state_->stack) rc = match_with_stack();
  if (rc == PCRE2_ERROR_NOMATCH) {
    at_ = text_.size() + 1;
    return std::nullopt;
  }
  if (rc < 0) {
    raise(DS_ERROR_UNSUPPORTED,
          "{}: the regular expression failed at byte {} of a text of {} bytes: {}", regex_->where_,
          at_, text_.size(), pcre_message(rc));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state_->data);
  Range range{ends[0], ends[1]};
  at_ = range.end;
  // After an empty match, continues at the next character.
  if (range.begin == range.end) at_ += std::max<size_t>(1, utf8_sequence(text_.substr(at_)));
  return range;
}

// Escapes every ASCII character that is not a letter, digit, blank or control character. An escaped
// letter or digit would have a special meaning.
std::string escape_regex(std::string_view literal) {
  std::string out;
  for (char c : literal) {
    if (c > ' ' && c < 0x7f && !is_ascii_letter(c) && !is_ascii_digit(c)) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace ds::text
