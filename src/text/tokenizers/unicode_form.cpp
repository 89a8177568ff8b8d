// Normalization forms. Text without tracing goes through utf8proc; traced text is decomposed,
// ordered and composed here, since the origin of each character must be known.
#include "text/tokenizers/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/utf8.h"

namespace ds::text {
namespace {

// A character of the result. `more` is the number of characters of the text that it replaces, minus
// one: -1 for each character of a decomposition after the first.
struct Unit {
  utf8proc_int32_t character;
  int combining_class;
  std::ptrdiff_t more;
};

int class_of(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

// Returns the character that two neighbours compose to, or -1 if they do not.
utf8proc_int32_t composed(utf8proc_int32_t first, utf8proc_int32_t second) {
  if (second < 0x80) return -1;
  utf8proc_int32_t pair[2] = {first, second};
  auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  return utf8proc_normalize_utf32(pair, 2, options) == 1 ? pair[0] : -1;
}

// Composes characters canonically: a mark joins the last starter unless a mark of its class or a
// higher one lies between them.
std::vector<Unit> compose(const std::vector<Unit>& units) {
  std::vector<Unit> out;
  std::ptrdiff_t starter = -1;
  int last_class = -1;
  for (const Unit& unit : units) {
    if (starter >= 0 && last_class < unit.combining_class) {
      Unit& first = out[static_cast<size_t>(starter)];
      if (utf8proc_int32_t both = composed(first.character, unit.character); both >= 0) {
        first.character = both;
        first.more += unit.more + 1;
        continue;
      }
    }
    out.push_back(unit);
    last_class = unit.combining_class;
    if (unit.combining_class != 0) continue;
    starter = static_cast<std::ptrdiff_t>(out.size()) - 1;
    last_class = -1;
  }
  return out;
}

utf8proc_option_t options_of(UnicodeForm form) {
  int options = UTF8PROC_STABLE | (form.composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  return static_cast<utf8proc_option_t>(form.compatible ? options | UTF8PROC_COMPAT : options);
}

// Normalizes a text that is not traced. utf8proc allocates the result with malloc.
std::string normalize(std::string_view text, UnicodeForm form) {
  utf8proc_uint8_t* mapped = nullptr;
  utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_of(form));
  std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, std::free);
  if (length < 0) {
    raise(DS_ERROR_OUT_OF_MEMORY, "a text of {} bytes cannot be normalized: {}", text.size(),
          utf8proc_errmsg(length));
  }
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(length)};
}

void decompose(char32_t character, UnicodeForm form, std::vector<Unit>& out) {
  // The longest decomposition has 18 characters.
  utf8proc_int32_t parts[32];
  utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character), parts,
                                                   std::size(parts), options_of(form), nullptr);
  require(count >= 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)),
          "U+{:04X} decomposes to {} characters", static_cast<uint32_t>(character), count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    out.push_back({parts[i], class_of(parts[i]), i == 0 ? 0 : -1});
  }
}

// Puts characters into canonical order: sorts the marks between starters by their class.
void order(std::vector<Unit>& units) {
  auto marks = [](const Unit& unit) { return unit.combining_class != 0; };
  for (auto at = units.begin(); at != units.end();) {
    auto begin = std::find_if(at, units.end(), marks);
    at = std::find_if_not(begin, units.end(), marks);
    std::stable_sort(begin, at, [](const Unit& a, const Unit& b) {
      return a.combining_class < b.combining_class;
    });
  }
}

// Normalizes a traced text. `next` is the number of characters of the text that the result has
// replaced so far.
TracedText trace(const TracedText& text, UnicodeForm form) {
  std::vector<Unit> units;
  // Origins of the text's characters.
  std::vector<Range> places;
  for (size_t at = 0; at < text.text.size();) {
    std::string_view rest = std::string_view(text.text).substr(at);
    size_t end = at + utf8_sequence(rest);
    decompose(utf8_first(rest), form, units);
    places.push_back(text.source({at, end}));
    at = end;
  }
  order(units);
  if (form.composed) units = compose(units);
  TracedText out = TracedText::empty_like(text);
  std::ptrdiff_t next = 0;
  for (const Unit& unit : units) {
    std::string character;
    utf8_append(character, static_cast<char32_t>(unit.character));
    std::ptrdiff_t place = unit.more < 0 ? std::max<std::ptrdiff_t>(next - 1, 0) : next;
    out.write(character, places[std::min(static_cast<size_t>(place), places.size() - 1)]);
    next += unit.more + 1;
  }
  return out;
}

}  // namespace

std::optional<UnicodeForm> unicode_form(std::string_view name) {
  if (name == "NFC" || name == "NFKC") return UnicodeForm{true, name == "NFKC"};
  if (name == "NFD" || name == "NFKD") return UnicodeForm{false, name == "NFKD"};
  return std::nullopt;
}

// ASCII is in every form.
TracedText to_unicode_form(TracedText text, UnicodeForm form) {
  bool ascii =
      std::ranges::all_of(text.text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return text;
  if (!text.traced) return {normalize(text.text, form), {}, false};
  return trace(text, form);
}

}  // namespace ds::text
