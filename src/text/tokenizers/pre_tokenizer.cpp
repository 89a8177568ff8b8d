// Pre-tokenizers of a tokenizer.json as a list of steps. Cutting steps only change ranges;
// rewriting steps create a new text.
#include "text/tokenizers/pre_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/base/json.h"
#include "core/base/utf8.h"
#include "text/tokenizers/byte_alphabet.h"
#include "text/tokenizers/pattern.h"
#include "text/tokenizers/regex.h"
#include "text/tokenizers/split.h"

namespace ds::text {
namespace {

// GPT-2's words: contractions; letters, numbers and other signs with the space before them; and
// spaces.
constexpr std::string_view gpt2_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A step that cuts every range at the matches of a pattern.
class Split : public PreTokenizerStep {
 public:
  Split(Regex pattern, SplitBehavior behavior, bool invert = false)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Pieces& pieces, bool) const override {
    std::vector<Range> cut;
    cut.reserve(pieces.ranges.size() + pieces.text.size() / 4);
    for (Range range : pieces.ranges) split(pattern_, behavior_, invert_, pieces.text, range, cut);
    pieces.ranges = std::move(cut);
  }

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// A step that rewrites each piece separately.
class Rewrite : public PreTokenizerStep {
 public:
  void apply(Pieces& pieces, bool at_start) const override {
    Pieces out{TracedText::empty_like(pieces), {}};
    out.text.reserve(pieces.text.size() + pieces.text.size() / 8);
    out.ranges.reserve(pieces.ranges.size());
    for (Range range : pieces.ranges) {
      size_t begin = out.text.size();
      rewrite(pieces, range, at_start && range.begin == 0, out);
      append_range(out.ranges, begin, out.text.size());
    }
    pieces = std::move(out);
  }

 private:
  virtual void rewrite(const TracedText& text, Range piece, bool first, TracedText& out) const = 0;
};

// A step that adds a prefix to the pieces that lack it: to all of them, or only to the piece that
// begins the input.
class Prefix : public Rewrite {
 public:
  Prefix(std::string prefix, bool only_first)
      : prefix_(std::move(prefix)), only_first_(only_first) {}

 private:
  void rewrite(const TracedText& text, Range piece, bool first, TracedText& out) const override {
    std::string_view shown = text.view(piece);
    if ((first || !only_first_) && !shown.starts_with(prefix_)) {
      size_t bytes = utf8_sequence(shown);
      out.write(prefix_, text.source({piece.begin, piece.begin + bytes}));
    }
    out.copy(text, piece);
  }

  std::string prefix_;
  bool only_first_;
};

// A step that replaces every byte by its character in ByteAlphabet.
class SpellBytes : public Rewrite {
 private:
  void rewrite(const TracedText& text, Range piece, bool, TracedText& out) const override {
    for (size_t at = piece.begin; at < piece.end; ++at) {
      out.write(alphabet_.spelling(static_cast<uint8_t>(text.text[at])), text.source({at, at + 1}));
    }
  }

  ByteAlphabet alphabet_;
};

// A step that replaces every space by a mark.
class ReplaceSpaces : public Rewrite {
 public:
  explicit ReplaceSpaces(std::string by) : by_(std::move(by)) {}

 private:
  void rewrite(const TracedText& text, Range piece, bool, TracedText& out) const override {
    for (size_t at = piece.begin; at < piece.end;) {
      size_t end = std::min(text.text.find(' ', at), piece.end);
      out.copy(text, {at, end});
      if (end < piece.end) out.write(by_, text.source({end, end + 1}));
      at = end + 1;
    }
  }

  std::string by_;
};

// The punctuation of `tokenizers`: that of Unicode and every sign of ASCII.
constexpr std::string_view punctuation = "[\\p{P}$+<=>^`|~]";

using Steps = std::vector<std::unique_ptr<const PreTokenizerStep>>;

// Reads "behavior", which has one of the names of `tokenizers`.
SplitBehavior read_behavior(Section& section) {
  std::string name = section.text("behavior");
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  section.unsupported("behavior");
}

// Appends the steps of ByteLevel, which adds a space, cuts GPT-2's words and spells bytes.
void add_byte_level(Section& section, Steps& steps) {
  // This flag changes offsets only.
  section.skip("trim_offsets");
  if (section.flag("add_prefix_space", true)) steps.push_back(std::make_unique<Prefix>(" ", false));
  if (section.flag("use_regex", true)) {
    steps.push_back(
        std::make_unique<Split>(Regex(gpt2_words, section.where()), SplitBehavior::isolated));
  }
  steps.push_back(std::make_unique<SpellBytes>());
}

// Appends the steps of Metaspace, which marks spaces, adds a mark at the beginning, and cuts before
// each mark.
void add_metaspace(Section& section, Steps& steps) {
  std::string space = section.character("replacement", "\xe2\x96\x81");
  // Older files have only this key.
  bool add = section.flag("add_prefix_space", true);
  std::string scheme = section.text("prepend_scheme", add ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    section.unsupported("prepend_scheme");
  // This key repeats the replacement.
  section.skip("str_rep");
  steps.push_back(std::make_unique<ReplaceSpaces>(space));
  if (scheme != "never") steps.push_back(std::make_unique<Prefix>(space, scheme == "first"));
  if (section.flag("split", true)) {
    steps.push_back(std::make_unique<Split>(Regex(escape_regex(space), section.path("replacement")),
                                            SplitBehavior::merged_with_next));
  }
}

// Appends the steps of a pre-tokenizer, those of a Sequence one after another.
void add_steps(const Json* json, const std::string& where, Steps& steps) {
  if (!json || json->is_null()) return;
  Section section(*json, where);
  std::string type = section.text("type");
  auto add_split = [&](std::string_view pattern, SplitBehavior behavior) {
    steps.push_back(std::make_unique<Split>(Regex(pattern, where), behavior));
  };
  if (type == "Sequence") {
    size_t index = 0;
    for (const Json& one : section.array("pretokenizers")) {
      add_steps(&one, fmt::format("{}[{}]", section.path("pretokenizers"), index++), steps);
    }
  } else if (type == "ByteLevel") {
    add_byte_level(section, steps);
  } else if (type == "Metaspace") {
    add_metaspace(section, steps);
  } else if (type == "Split") {
    SplitBehavior behavior = read_behavior(section);
    bool invert = section.flag("invert", false);
    steps.push_back(std::make_unique<Split>(read_pattern(section), behavior, invert));
  } else if (type == "Digits") {
    bool each = section.flag("individual_digits", false);
    add_split("\\p{N}", each ? SplitBehavior::isolated : SplitBehavior::contiguous);
  } else if (type == "Punctuation") {
    bool given = section.find("behavior") != nullptr;
    add_split(punctuation, given ? read_behavior(section) : SplitBehavior::isolated);
  } else if (type == "WhitespaceSplit") {
    add_split("\\s", SplitBehavior::removed);
  } else if (type == "BertPreTokenizer") {
    add_split("\\s", SplitBehavior::removed);
    add_split(punctuation, SplitBehavior::isolated);
  } else {
    section.unsupported("type");
  }
  section.done();
}

}  // namespace

PreTokenizer read_pre_tokenizer(const Json* json, const std::string& where) {
  PreTokenizer out;
  add_steps(json, where, out.steps);
  // The model spells bytes itself, which is faster and lets its cache hold plain words.
  out.spells_bytes = !out.steps.empty() && dynamic_cast<const SpellBytes*>(out.steps.back().get());
  if (out.spells_bytes) out.steps.pop_back();
  return out;
}

// The text begins as one piece.
Pieces PreTokenizer::apply(TracedText text, bool at_start) const {
  Pieces pieces{std::move(text), {}};
  append_range(pieces.ranges, 0, pieces.text.size());
  for (const auto& step : steps) step->apply(pieces, at_start);
  return pieces;
}

}  // namespace ds::text
