// Cuts a range at the matches of a pattern, with the behaviors of `tokenizers`.
#include "text/tokenizers/split.h"

#include <string_view>

#include "text/tokenizers/regex.h"

namespace ds::text {
namespace {

struct Part {
  Range range;
  bool match;
};

void append_part(std::vector<Part>& parts, size_t begin, size_t end, bool match) {
  if (begin < end) parts.push_back({{begin, end}, match});
}

// Joins each match to the part before it, unless that part is a match as well.
void merge_with_previous(const std::vector<Part>& parts, std::vector<Range>& out) {
  // True if the last range may be extended.
  bool open = false;
  for (const Part& part : parts) {
    if (part.match && open) {
      out.back().end = part.range.end;
    } else {
      out.push_back(part.range);
    }
    open = !part.match;
  }
}

// Joins each match to the part after it, unless that part is a match as well.
void merge_with_next(const std::vector<Part>& parts, std::vector<Range>& out) {
  for (size_t i = 0; i < parts.size(); ++i) {
    Range range = parts[i].range;
    if (parts[i].match && i + 1 < parts.size() && !parts[i + 1].match)
      range.end = parts[++i].range.end;
    out.push_back(range);
  }
}

// Joins neighbours of the same kind, matches as well as the stretches between them.
void merge_alike(const std::vector<Part>& parts, std::vector<Range>& out) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && parts[i].match == parts[i - 1].match) {
      out.back().end = parts[i].range.end;
    } else {
      out.push_back(parts[i].range);
    }
  }
}

}  // namespace

void split(const Regex& pattern, SplitBehavior behavior, bool invert, std::string_view text,
           Range range, std::vector<Range>& out) {
  Regex::Matches matches(pattern, text.substr(range.begin, range.end - range.begin));
  size_t done = range.begin;
  // The common behavior needs no list of parts.
  if (behavior == SplitBehavior::isolated) {
    while (auto match = matches.next()) {
      append_range(out, done, range.begin + match->begin);
      append_range(out, range.begin + match->begin, range.begin + match->end);
      done = range.begin + match->end;
    }
    return append_range(out, done, range.end);
  }
  std::vector<Part> parts;
  while (auto match = matches.next()) {
    append_part(parts, done, range.begin + match->begin, invert);
    append_part(parts, range.begin + match->begin, range.begin + match->end, !invert);
    done = range.begin + match->end;
  }
  append_part(parts, done, range.end, invert);
  switch (behavior) {
    case SplitBehavior::isolated:
      break;
    case SplitBehavior::merged_with_previous:
      return merge_with_previous(parts, out);
    case SplitBehavior::merged_with_next:
      return merge_with_next(parts, out);
    case SplitBehavior::contiguous:
      return merge_alike(parts, out);
    case SplitBehavior::removed:
      for (const Part& part : parts) {
        if (!part.match) out.push_back(part.range);
      }
  }
}

}  // namespace ds::text
