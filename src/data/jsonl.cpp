// Files of jsonl are read twice. The first reading hashes all lines and counts the lines that their
// hashes hold out; if they hold out no line or every line, the last lines are held out instead. The
// second reading encodes the lines. In a file that is one JSON list, each element is treated as a
// line.
#include "data/jsonl.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/json_data.h"
#include "core/config/refuse.h"
#include "data/data_files.h"
#include "data/line_file.h"
#include "data/pairs.h"
#include "io/file.h"
#include "io/file_kind.h"

namespace ds {
namespace {

// The largest size in bytes of a list, which is read as a whole, and of all lists together that are
// kept from the first reading to the second. Lines are read one at a time.
constexpr int64_t kMostList = int64_t{1} << 30;

// The files of a folder that Hugging Face's datasets reads, without the descriptions that it writes
// beside them. A .json file beside files of lines is rarely data, so it is read only if there are
// no such files.
const FolderFiles kOfFolders{
    {".jsonl", ".ndjson"},
    {".json"},
    {"config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json"}};

using OnLine = std::function<void(const std::string& line, const std::string& where)>;

// Returns whether a file that begins with `head` is one JSON list: whether its first character
// other than white space is '['.
bool is_list(std::string_view head) {
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  const size_t first = head.find_first_not_of(" \t\r\n");
  return first != head.npos && head[first] == '[';
}

// A text of lines, in a file or given.
struct Lines {
  // The path of the file, or "data.text".
  std::string path;
  // The given text, or null for a file.
  const std::string* text = nullptr;

  LineFile open() const { return text ? LineFile(path, *text) : LineFile(path); }
};

// Returns the elements of a text that is one JSON list, each as a line.
std::vector<std::string> read_list(const Lines& lines, const volatile int32_t* stop) {
  Json list;
  try {
    list = parse_json_data(lines.text ? *lines.text : read_file(lines.path, kMostList), lines.path);
  } catch (const Error& fault) {
    if (lines.text) throw;
    raise_fault(lines.path, fault, Wanted::json);
  }
  std::vector<std::string> out;
  out.reserve(list.array().size());
  for (const Json& element : list.array()) {
    check_text_stop(stop);
    out.push_back(element.dump());
  }
  return out;
}

// The lines of all files, which are read once to learn facts about all of them and once for their
// tokens.
class JsonlFiles {
 public:
  explicit JsonlFiles(const JsonlOptions& options) : stop_(options.stop) {
    if (!options.text.empty()) {
      files_.push_back({{"data.text", &options.text}});
      return;
    }
    FoundFiles found = find_data_files(options.paths, stop_, kOfFolders);
    for (const DataFile& file : found.files) files_.push_back({{file.path}});
    left_out_ = left_out_text(found.left_out);
  }

  const std::string& left_out() const { return left_out_; }

  // Calls on_line for each line that is not blank, in the order of files.
  void for_each_line(const OnLine& on_line) {
    for (One& one : files_) {
      if (!one.list) {
        lines_of(one, on_line);
      } else if (one.kept) {
        elements_of(one.lines.path, *one.kept, on_line);
      } else {
        elements_of(one.lines.path, read_list(one.lines, stop_), on_line);
      }
      one.known = true;
    }
  }

 private:
  struct One {
    Lines lines;
    // `known` is true once the file has been read, and `list` if it is one JSON list.
    bool known = false, list = false;
    // The elements of a list, if they are kept for the second reading.
    std::optional<std::vector<std::string>> kept;
  };

  void lines_of(One& one, const OnLine& on_line) {
    LineFile file = one.lines.open();
    if (!one.known) {
      const std::string_view head = file.head(kContentHead);
      if (is_list(head)) return list_of(one, on_line);
      if (const std::string kind = content_kind(head, Wanted::text); !kind.empty() && !head.empty())
        raise(DS_ERROR_CORRUPT, "'{}' is {}", file.path(), kind);
    }
    bool first = !one.known;
    for (std::string line; file.next(line);) {
      check_text_stop(stop_);
      const size_t last = line.find_last_not_of(" \t\r");
      if (last == line.npos) continue;
      if (first) check_first(line, last, fmt::format("'{}' line {}", file.path(), file.number()));
      first = false;
      on_line(line, fmt::format("'{}' line {}", file.path(), file.number()));
    }
  }

  // Refuses a first line that is the beginning of CSV, of another text or of an object of several
  // lines, for which the message of the JSON parser would not say what to do. `last` is the place
  // of the last character of the line other than white space.
  static void check_first(const std::string& line, size_t last, const std::string& place) {
    const std::string_view text = std::string_view(line).substr(line.find_first_not_of(" \t\r"));
    if (!text.starts_with('{')) {
      raise(
          DS_ERROR_CORRUPT,
          "{}: is {}; each line must be a JSON object, so write CSV and other texts as jsonl first "
          "(docs/reference/data.md)",
          place, content_kind(text, Wanted::json));
    }
    if (std::string_view("{[,").find(line[last]) != std::string_view::npos)
      refuse_first(line.substr(0, last), place);
  }

  // Refuses a first line that ends in a comma or an opening bracket; `line` is the text before that
  // character.
  [[noreturn]] static void refuse_first(const std::string& line, const std::string& place) {
    bool whole = true;
    try {
      parse_json_data(line, place);
    } catch (const Error&) {
      whole = false;
    }
    raise(DS_ERROR_CORRUPT, "{}: {}", place,
          whole
              ? "a comma follows the object: leave the commas at the ends of lines out, or put [ "
                "before the first object and ] after the last"
              : "an object continues in the next line: write each object into one line, or all of "
                "them as one list ([...])");
  }

  // Calls on_line for each element of a file that is one list. Parsing needs the whole file, so the
  // elements are kept for the second reading if they are small enough.
  void list_of(One& one, const OnLine& on_line) {
    one.list = true;
    std::vector<std::string> elements = read_list(one.lines, stop_);
    elements_of(one.lines.path, elements, on_line);
    int64_t bytes = kept_;
    for (const std::string& element : elements) bytes += static_cast<int64_t>(element.size());
    if (bytes > kMostList) return;
    kept_ = bytes;
    one.kept = std::move(elements);
  }

  void elements_of(const std::string& path, const std::vector<std::string>& elements,
                   const OnLine& on_line) {
    size_t number = 0;
    for (const std::string& element : elements) {
      check_text_stop(stop_);
      on_line(element, fmt::format("'{}' element {}", path, ++number));
    }
  }

  const volatile int32_t* stop_;
  std::vector<One> files_;
  std::string left_out_;
  // Bytes of all lists that are kept.
  int64_t kept_ = 0;
};

// Returns the texts of a line. Each becomes a document.
std::vector<std::string> texts_of(const std::string& line, const std::string& where, bool pairs) {
  if (!pairs) return {line};
  const std::array<std::string, 2> both = pair_lines(line, where);
  return {both.begin(), both.end()};
}

// Returns whether a line is held out. As for files of a corpus, the hash of its content decides.
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
  JsonlFiles files(options);
  files.for_each_line([&](const std::string& line, const std::string&) {
    hash.update(line);
    hash.update("\n");
    ++lines;
    held += by_hash(line, options.heldout) ? 1 : 0;
  });
  if (lines == 0) {
    if (!options.text.empty())
      refuse("data.text", "holds no line of jsonl in its {} bytes", options.text.size());
    raise(DS_ERROR_CONFIG, "data.paths hold no line of jsonl; the first path is '{}'{}",
          options.paths.at(0), files.left_out());
  }
  facts.left_out = files.left_out();
  bool tail = options.heldout > 0 && (held == 0 || held == lines);
  auto kept = static_cast<int64_t>(static_cast<double>(lines) * (1 - options.heldout));
  hash.update(fmt::format("{} {}\n", lines, tail ? lines - kept : held));
  facts.hash = hash.hex();

  TokenWriter train(train_path, format);
  std::optional<TokenWriter> heldout;
  if (!heldout_path.empty()) heldout.emplace(heldout_path, format);
  int64_t number = 0;
  files.for_each_line([&](const std::string& line, const std::string& where) {
    bool out = heldout && (tail ? number >= kept : by_hash(line, options.heldout));
    ++number;
    for (const std::string& text : texts_of(line, where, options.pairs)) {
      Document document = encoder.encode(text, where);
      // A file without marks holds only documents in which every token is a target.
      std::span<const uint8_t> marks = document.targets;
      (out ? *heldout : train).add(document.tokens, format.marked ? marks : marks.first(0));
      if (!out) facts.targets += std::ranges::count(document.targets, 1);
    }
    ++(out ? facts.heldout : facts.train);
  });
  // The hash and the choice of held-out lines come from the first reading.
  if (number != lines) {
    raise(DS_ERROR_CORRUPT,
          "the jsonl files had {} lines and have {} now: they must not change while they are read",
          lines, number);
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
      "jsonl: {} lines, {} tokens, {} of them targets, to train; {} lines, {} tokens held out; "
      "hash {}{}",
      f.train, f.train_tokens, f.targets, f.heldout, f.heldout_tokens, f.hash, f.left_out);
}

}  // namespace ds
