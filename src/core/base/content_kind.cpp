// Files that people have in place of the one that they mean: what a failed or partial download
// leaves, and the same thing in another format. Each is known by its first bytes.
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
    "itself, for "
    "example by `hf download`";
constexpr const char* kCompressed = ": unpack it first";
constexpr const char* kOtherData =
    ": write it as text, .jsonl or token files (docs/reference/data.md)";

struct Magic {
  std::string_view bytes;
  const char* name;
  const char* advice;
  std::optional<Wanted> of = {};  // the reader whose own format it is
};
constexpr std::array<Magic, 14> kMagics{{
    {"GGUF", "a GGUF file of llama.cpp",
     ": libds reads the model's folder on the hub, with config.json and safetensors"},
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

bool is_safetensors(std::string_view head) {
  return head.size() > 9 && head[8] == '{' && head.substr(5, 3) == std::string_view("\0\0\0", 3);
}

// The first bytes of a pickle of protocol 2 to 5.
bool is_pickle(std::string_view head) {
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

bool is_text(std::string_view head) {
  size_t bad = 0;
  for (std::string_view rest = head; !rest.empty();) {
    size_t length = utf8_sequence(rest);
    // The last character of the head may be cut.
    if (length == 0 && rest.size() < 4 && head.size() >= kContentHead) break;
    bad += length == 0 || (is_control(utf8_first(rest)) && rest[0] != '\n' && rest[0] != '\t' &&
                           rest[0] != '\r')
               ? 1
               : 0;
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return bad == 0;
}

std::string first_words(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  std::string out(text.substr(0, 60));
  while (!out.empty() && !is_text(out)) out.pop_back();  // a cut character
  while (out.ends_with('\r') || out.ends_with(' ')) out.pop_back();
  return out + (text.size() > 60 ? "..." : "");
}

std::string text_kind(std::string_view text, Wanted wanted) {
  if (wanted == Wanted::text) return "";
  bool json = text.starts_with('{') || text.starts_with('[');
  if (json && wanted == Wanted::json) return "";  // a mistake in it, whose place the parser tells
  return fmt::format("{} that begins with \"{}\"", json ? "a text of JSON" : "a text",
                     first_words(text));
}

}  // namespace

// version https://git-lfs.github.com/spec/v1 / oid sha256:... / size N
std::string git_lfs_pointer(std::string_view head) {
  if (!head.starts_with("version https://git-lfs.github.com/spec/")) return "";
  std::string size;
  if (size_t at = head.find("\nsize "); at != head.npos) {
    int64_t bytes = -1;
    const char* begin = head.data() + at + 6;
    if (std::from_chars(begin, head.data() + head.size(), bytes).ec == std::errc() && bytes >= 0)
      size = " of " + bytes_text(bytes);
  }
  return fmt::format(
      "a Git LFS pointer, which stands for a file{}: get that by `git lfs install && git lfs pull` "
      "in the "
      "clone, or by `hf download`",
      size);
}

std::string content_kind(std::string_view head, Wanted wanted) {
  if (head.empty()) return "an empty file: its download or copy was cut off";
  if (std::string pointer = git_lfs_pointer(head); !pointer.empty()) return pointer;
  for (const Magic& magic : kMagics) {
    if (head.starts_with(magic.bytes) && magic.of != wanted)
      return std::string(magic.name) + magic.advice;
  }
  if (is_safetensors(head)) return wanted == Wanted::safetensors ? "" : "a safetensors file";
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
  if (head.substr(std::min<size_t>(257, head.size())).starts_with("ustar"))
    return std::string("a tar archive") + kCompressed;
  return is_text(head) ? text_kind(text, wanted) : "";
}

}  // namespace ds
