#include "data/tokenizers/file_text.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/file_stream.h"

namespace ds {
namespace {

constexpr uintmax_t max_file_bytes = 256 << 20;

}  // namespace

std::string read_tokenizer_file(const std::string& path) {
  std::error_code error;
  std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    raise(DS_ERROR_NOT_FOUND, "{}: no such file", path);
  }
  if (error) raise(DS_ERROR_IO, "{}: {}", path, error.message());
  if (!std::filesystem::is_regular_file(status)) raise(DS_ERROR_CORRUPT, "{}: not a regular file", path);
  uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes > max_file_bytes) {
    raise(DS_ERROR_CORRUPT, "{}: a tokenizer file has at most {} bytes, got {}", path, max_file_bytes, bytes);
  }
  std::string text(bytes, '\0');
  InputFile stream(path);
  if (!stream || !stream.read(text.data(), static_cast<std::streamsize>(bytes))) {
    raise(DS_ERROR_IO, "{}: {}", path, std::strerror(errno));
  }
  return text;
}

Json read_tokenizer_json(const std::string& path) {
  std::string text = read_tokenizer_file(path);
  try {
    return Json::parse(text, path);
  } catch (const Error& error) {
    raise(DS_ERROR_CORRUPT, "{}", error.what());
  }
}

}  // namespace ds
