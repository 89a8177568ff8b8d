// Recognizes files that people often have in place of the file they meant: the remains of a failed
// or partial download, or the same data in another format. The first kContentHead bytes suffice to
// recognize each kind. Order matters: a Git LFS pointer and an answer of the hub are also plain
// text, so they are tried before text.
#include "core/base/content_kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

#include "core/base/ascii.h"
#include "core/base/bytes_text.h"
#include "core/base/utf8.h"

namespace ds {
namespace {

constexpr const char* kWebPage =
    ": the download was answered with a page (of a log-in, an error, a viewer), so get the file "
    "itself, for example by `hf download`";
constexpr const char* kAnswer =
    ": the download was answered with an error, so check the name, and log in by `hf auth login` "
    "if the model requires it";
constexpr const char* kCompressed = ": unpack it first";
constexpr const char* kOtherData =
    ": write it as text, .jsonl or token files (docs/reference/data.md)";

// A format that is known by its first bytes.
struct Magic {
  std::string_view bytes;
  const char* name;
  const char* advice;
  // The reader for which this is the right format.
  std::optional<Wanted> of = {};
};
constexpr std::array<Magic, 14> kMagics{{
    {"GGUF", "a GGUF file of llama.cpp", ": give it in place of a model folder (--model FILE.gguf)",
     Wanted::gguf},
    {std::string_view("PK\x03\x04", 4), "a zip archive, as torch.save and numpy write",
     ": weights of torch are read as pytorch_model.bin; unpack any other archive first",
     Wanted::torch},
    {"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras and TensorFlow write",
     ": load it in Transformers and save it by save_pretrained(), which writes safetensors"},
    {"\x93NUMPY", "an array of numpy", ""},
    {"PAR1", "a Parquet file", kOtherData},
    {"ARROW1", "an Arrow file", kOtherData},
    {"dstokens", "a token file of `libds tokenize`", ": it is data for data.format \"tokens\"",
     Wanted::tokens},
    {"\x1f\x8b", "compressed by gzip", kCompressed},
    {std::string_view("\x28\xb5\x2f\xfd", 4), "compressed by zstd", kCompressed},
    {"\xfd"
     "7zXZ",
     "compressed by xz", kCompressed},
    {"BZh", "compressed by bzip2", kCompressed},
    {"7z\xbc\xaf", "a 7z archive", kCompressed},
    {"%PDF-", "a PDF", ""},
    {"SQLite format 3", "a database of SQLite", ""},
}};

// Returns whether content begins like a safetensors file: 8 bytes with the length of the header,
// here below 1 TiB, and then the header's '{'.
bool is_safetensors(std::string_view head) {
  return head.size() > 9 && head[8] == '{' && head.substr(5, 3) == std::string_view("\0\0\0", 3);
}

std::string safetensors_kind(Wanted wanted) {
  if (wanted == Wanted::safetensors) return "";
  return std::string("a safetensors file: ") +
         (wanted == Wanted::torch
              ? "call it model.safetensors, which is read in place of pytorch_model.bin"
              : "weights of a model: give the folder that they are in");
}

// Returns whether a file begins like a pickle of protocol 2 to 5.
bool is_pickle(std::string_view head) {
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

// Returns whether a text is UTF-8 without control characters other than line ends and tabs.
bool is_text(std::string_view head) {
  size_t bad = 0;
  for (std::string_view rest = head; !rest.empty();) {
    size_t length = utf8_sequence(rest);
    // The last character of a full head may be cut.
    if (length == 0 && rest.size() < 4 && head.size() >= kContentHead) break;
    bad += length == 0 || (is_control(utf8_first(rest)) && rest[0] != '\n' && rest[0] != '\t' &&
                           rest[0] != '\r')
               ? 1
               : 0;
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return bad == 0;
}

// Returns the beginning of the first line, for a message.
std::string first_words(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  std::string out(text.substr(0, 60));
  // The cut at 60 bytes may have split a character.
  while (!out.empty() && !is_text(out)) out.pop_back();
  while (out.ends_with('\r') || out.ends_with(' ')) out.pop_back();
  return out + (text.size() > 60 ? "..." : "");
}

// The largest size of an answer of the hub, in bytes. A longer text is content.
constexpr size_t kMostAnswer = 500;

// The beginnings of the texts with which the hub refuses a file.
constexpr std::array<std::string_view, 8> kAnswers{
    "Entry not found",    "Repository not found",
    "Revision not found", "Invalid username or password",
    "Invalid rev id",     "Not Found",
    "Access to model ",   "Access to dataset "};

std::string text_kind(std::string_view text, Wanted wanted) {
  if (wanted == Wanted::text) return "";
  bool json = text.starts_with('{') || text.starts_with('[');
  // The text is JSON, as wanted, but has a mistake; the parser reports where.
  if (json && wanted == Wanted::json) return "";
  return fmt::format("{} that begins with \"{}\"", json ? "a text of JSON" : "a text",
                     first_words(text));
}

}  // namespace

// A pointer has three lines: version https://git-lfs.github.com/spec/v1, oid sha256:... and size N.
// Before 2015 the host was hawser.github.com.
std::string git_lfs_pointer(std::string_view head) {
  if (!head.starts_with("version https://git-lfs.github.com/spec/") &&
      !head.starts_with("version https://hawser.github.com/spec/"))
    return "";
  std::string size;
  if (size_t at = head.find("\nsize "); at != head.npos) {
    int64_t bytes = -1;
    const char* begin = head.data() + at + 6;
    if (std::from_chars(begin, head.data() + head.size(), bytes).ec == std::errc() && bytes >= 0)
      size = " of " + bytes_text(bytes);
  }
  return fmt::format(
      "a Git LFS pointer, which stands for a file{}: get that by `git lfs install && git lfs pull` "
      "in the clone, or by `hf download`",
      size);
}

std::string hub_answer(std::string_view head) {
  if (head.size() > kMostAnswer) return "";
  std::string_view text = head;
  if (text.starts_with("{\"error\""))
    text.remove_prefix(std::min(text.find_first_not_of(": \t\"", 8), text.size()));
  const bool known =
      std::ranges::any_of(kAnswers, [&](auto answer) { return text.starts_with(answer); });
  text = text.substr(0, text.find('"'));
  return known ? fmt::format("an answer of the hub, \"{}\"{}", first_words(text), kAnswer) : "";
}

std::string content_kind(std::string_view head, Wanted wanted) {
  if (head.empty()) return "an empty file: its download or copy was cut off";
  if (std::string pointer = git_lfs_pointer(head); !pointer.empty()) return pointer;
  for (const Magic& magic : kMagics) {
    if (head.starts_with(magic.bytes) && magic.of != wanted)
      return std::string(magic.name) + magic.advice;
  }
  if (is_safetensors(head)) return safetensors_kind(wanted);
  if (is_pickle(head) && wanted == Wanted::torch) return "";
  if (is_pickle(head))
    return "a pickle of Python, as old versions of torch.save write: weights of torch are read as "
           "pytorch_model.bin";
  if (head.find_first_not_of('\0') == head.npos)
    return "nothing but zeros: its download or copy was cut off";
  std::string_view text = head;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const std::string begin = ascii_lower(text.substr(0, 16));
  for (const char* page : {"<!doctype html", "<html", "<head", "<body"}) {
    if (begin.starts_with(page)) return std::string("a web page (HTML)") + kWebPage;
  }
  for (const char* page : {"<?xml", "<error", "<!--"}) {
    if (begin.starts_with(page)) return std::string("a page of XML") + kWebPage;
  }
  // The magic of a tar archive is at offset 257, not at the beginning.
  if (head.substr(std::min<size_t>(257, head.size())).starts_with("ustar"))
    return std::string("a tar archive") + kCompressed;
  if (std::string answer = hub_answer(text); !answer.empty()) return answer;
  return is_text(head) ? text_kind(text, wanted) : "";
}

}  // namespace ds
