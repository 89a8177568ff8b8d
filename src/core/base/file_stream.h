#pragma once
#include <array>
#include <cerrno>
#include <cstddef>
#include <istream>
#include <ostream>
#include <streambuf>
#include <string>

#include "core/base/descriptor.h"
#include "core/base/interrupted.h"

// Text and small files as streams. Use them instead of std::ifstream and std::ofstream, which may
// get descriptor 0, 1 or 2 and leak open files into programs that the host starts. After a failure,
// errno is the value that the failed system call set.
namespace ds {

// A stream buffer for one direction: opened either for reading or for writing.
class FileBuffer final : public std::streambuf {
 public:
  FileBuffer(const std::string& path, int flags) {
    fd_ = uninterrupted(
        [&] { return above_standard(::open(path.c_str(), flags | O_CLOEXEC, 0666)); });
  }
  FileBuffer(const FileBuffer&) = delete;
  FileBuffer& operator=(const FileBuffer&) = delete;
  ~FileBuffer() override { close(); }

  bool is_open() const { return fd_ >= 0; }
  // Writes the buffered bytes and closes the file. Returns false if the system refused either, or
  // if no file is open.
  bool close() {
    if (fd_ < 0) return false;
    bool good = sync() == 0;
    // An interrupted close() has closed the file.
    const int code = ::close(fd_);
    good = good && (code == 0 || is_interrupted(code));
    fd_ = -1;
    return good;
  }

 protected:
  int_type underflow() override {
    ssize_t got =
        fd_ < 0 ? 0 : uninterrupted([&] { return ::read(fd_, bytes_.data(), bytes_.size()); });
    // The stream that owns this buffer turns the exception into badbit.
    if (got < 0) throw std::ios_base::failure("read");
    if (got == 0) return traits_type::eof();
    setg(bytes_.data(), bytes_.data(), bytes_.data() + got);
    return traits_type::to_int_type(bytes_[0]);
  }

  int_type overflow(int_type character) override {
    if (sync() != 0) return traits_type::eof();
    setp(bytes_.data(), bytes_.data() + bytes_.size());
    if (!traits_type::eq_int_type(character, traits_type::eof()))
      sputc(traits_type::to_char_type(character));
    return traits_type::not_eof(character);
  }

  std::streamsize xsputn(const char* data, std::streamsize size) override {
    // A block of at least a buffer's size goes to the file directly, after what was buffered before
    // it.
    if (size < static_cast<std::streamsize>(bytes_.size()))
      return std::streambuf::xsputn(data, size);
    return sync() == 0 && put(data, static_cast<size_t>(size)) ? size : 0;
  }

  int sync() override {
    size_t waiting = static_cast<size_t>(pptr() - pbase());
    bool good = put(pbase(), waiting);
    // An empty put area makes the next character call overflow().
    setp(bytes_.data(), bytes_.data());
    return good ? 0 : -1;
  }

 private:
  bool put(const char* data, size_t size) {
    while (size > 0) {
      if (fd_ < 0) return false;
      const ssize_t written = ::write(fd_, data, size);
      if (is_interrupted(written)) continue;
      if (written < 0) return false;
      data += written;
      size -= static_cast<size_t>(written);
    }
    return true;
  }

  int fd_ = -1;
  std::array<char, 8192> bytes_;
};

// A file read from its beginning. If it cannot be opened, the stream starts in a failed state.
class InputFile final : public std::istream {
 public:
  explicit InputFile(const std::string& path) : std::istream(nullptr), buffer_(path, O_RDONLY) {
    rdbuf(&buffer_);
    if (!buffer_.is_open()) setstate(failbit);
  }

 private:
  FileBuffer buffer_;
};

// A new file for writing. Opening fails if a file or link already exists at the path. A flush
// passes everything to the system but does not sync it to disk.
class OutputFile final : public std::ostream {
 public:
  explicit OutputFile(const std::string& path)
      : std::ostream(nullptr), buffer_(path, O_WRONLY | O_CREAT | O_EXCL) {
    rdbuf(&buffer_);
    if (!buffer_.is_open()) setstate(failbit);
  }
  void close() {
    if (!buffer_.close()) setstate(failbit);
  }

 private:
  FileBuffer buffer_;
};

}  // namespace ds
