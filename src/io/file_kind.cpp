// A file that cannot be parsed is often a known file of another kind, such as a Git LFS pointer or
// an error page of the Hugging Face hub. To recognize it, the beginning of the file is read again,
// but only after a reader has failed, so good files are read only once.
#include "io/file_kind.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace ds {
namespace {

// Returns a description of the kind of a file that is not of the wanted kind, or "" if the file
// cannot be read or its kind is unknown.
std::string kind_of(const std::string& path, Wanted wanted) {
  try {
    return content_kind(head_of(path), wanted);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string head_of(const std::string& path) {
  File file(path, File::Mode::read);
  std::string head(static_cast<size_t>(std::min<int64_t>(file.size(), kContentHead)), '\0');
  file.read(head.data(), head.size(), 0);
  return head;
}

void raise_fault(const std::string& path, const Error& fault, Wanted wanted) {
  if (fault.status() == DS_ERROR_IO || fault.status() == DS_ERROR_NOT_FOUND) throw fault;
  const std::string kind = kind_of(path, wanted);
  if (!kind.empty()) raise(DS_ERROR_CORRUPT, "{}: is {}", path, kind);
  ds_status status =
      fault.status() == DS_ERROR_UNSUPPORTED ? DS_ERROR_UNSUPPORTED : DS_ERROR_CORRUPT;
  const std::string_view message = fault.what();
  if (message.starts_with(path)) raise(status, "{}", message);
  raise(status, "{}: {}", path, message);
}

Json read_json(const std::string& path, int64_t limit) {
  const std::string text = read_file(path, limit);
  // An error message of the Hugging Face hub may be valid JSON, so it is recognized before parsing.
  if (const std::string answer = hub_answer(text); !answer.empty())
    raise(DS_ERROR_CORRUPT, "{}: is {}", path, answer);
  try {
    return Json::parse(text, path);
  } catch (const Error& fault) {
    raise_fault(path, fault, Wanted::json);
  }
}

std::string read_text(const std::string& path, int64_t limit) {
  std::string text = read_file(path, limit);
  const std::string kind =
      content_kind(std::string_view(text).substr(0, kContentHead), Wanted::text);
  if (!kind.empty()) raise(DS_ERROR_CORRUPT, "{}: is {}", path, kind);
  return text;
}

}  // namespace ds
