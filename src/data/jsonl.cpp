#include "data/jsonl.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/json_data.h"
#include "data/data_files.h"
#include "data/line_file.h"
#include "io/file.h"
#include "io/file_kind.h"

namespace ds {
namespace {

// One list is read whole; lines are read one at a time.
constexpr int64_t kMostList = int64_t{1} << 30;

using OnLine = std::function<void(const std::string& line, const std::string& where)>;

// Of a file that is one list of JSON, each element as a line of its own.
void for_each_element(const std::string& path, const volatile int32_t* stop, const OnLine& on_line) {
  const std::string text = read_file(path, kMostList);
  Json list;
  try {
    list = parse_json_data(text, path);
  } catch (const Error& fault) {
    raise_fault(path, fault, Wanted::json);
  }
  size_t number = 0;
  for (const Json& element : list.array()) {
    check_text_stop(stop);
    on_line(element.dump(), fmt::format("'{}' element {}", path, ++number));
  }
}

bool is_list(std::string_view head) {
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  const size_t first = head.find_first_not_of(" \t\r\n");
  return first != head.npos && head[first] == '[';
}

// Lines that are not blank, in order of files.
void for_each_line(const JsonlOptions& options, const OnLine& on_line) {
  std::string line;
  for (const DataFile& found : find_data_files(options.paths, options.stop, ".jsonl")) {
    const std::string head = head_of(found.path);
    if (is_list(head)) {
      for_each_element(found.path, options.stop, on_line);
      continue;
    }
    if (const std::string kind = content_kind(head, Wanted::text); !kind.empty() && !head.empty())
      raise(DS_ERROR_CORRUPT, "'{}': is {}", found.path, kind);
    LineFile file(found.path);
    while (file.next(line)) {
      check_text_stop(options.stop);
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      on_line(line, fmt::format("'{}' line {}", file.path(), file.number()));
    }
  }
}

bool by_hash(const std::string& line, double share) {
  return static_cast<double>(hash64(line)) * 0x1p-64 < share;
}

}  // namespace

JsonlFacts write_jsonl_documents(const JsonlOptions& options, const ChatEncoder& encoder,
                                 const TokenWriter::Options& format, const std::string& train_path,
                                 const std::string& heldout_path) {
  JsonlFacts facts;
  Hash128 hash;
  int64_t lines = 0, held = 0;
  for_each_line(options, [&](const std::string& line, const std::string&) {
    hash.update(line);
    hash.update("\n");
    ++lines;
    held += by_hash(line, options.heldout) ? 1 : 0;
  });
  if (lines == 0)
    raise(DS_ERROR_CONFIG, "data paths hold no line of jsonl: first is '{}'", options.paths.at(0));
  bool tail = options.heldout > 0 && (held == 0 || held == lines);
  auto kept = static_cast<int64_t>(static_cast<double>(lines) * (1 - options.heldout));
  hash.update(fmt::format("{} {}\n", lines, tail ? lines - kept : held));
  facts.hash = hash.hex();

  TokenWriter train(train_path, format);
  std::optional<TokenWriter> heldout;
  if (!heldout_path.empty()) heldout.emplace(heldout_path, format);
  int64_t number = 0;
  for_each_line(options, [&](const std::string& line, const std::string& where) {
    bool out = heldout && (tail ? number >= kept : by_hash(line, options.heldout));
    ++number;
    Document document = encoder.encode(line, where);
    // Where every token is a target, the file needs no marks.
    std::span<const uint8_t> marks = document.targets;
    (out ? *heldout : train).add(document.tokens, format.marked ? marks : marks.first(0));
    ++(out ? facts.heldout : facts.train);
    if (!out) facts.targets += std::count(document.targets.begin(), document.targets.end(), 1);
  });
  if (number != lines) {
    raise(DS_ERROR_CORRUPT, "the jsonl files had {} lines and have {} now: they must stay", lines, number);
  }
  facts.train_tokens = train.size();
  train.finish(facts.hash);
  if (heldout) {
    facts.heldout_tokens = heldout->size();
    heldout->finish(facts.hash);
  }
  return facts;
}

std::string describe(const JsonlFacts& f) {
  return fmt::format(
      "jsonl: {} lines, {} tokens, {} of them targets, to train; {} lines, {} tokens held out; hash {}",
      f.train, f.train_tokens, f.targets, f.heldout, f.heldout_tokens, f.hash);
}

}  // namespace ds
