#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace ds {

// A file inside a zip archive.
struct ZipEntry {
  std::string name;
  int64_t begin = 0;   // of its data in the archive
  int64_t packed = 0;  // bytes there
  int64_t bytes = 0;   // bytes after unpacking
  uint32_t crc = 0;
  bool deflated = false;
};

// A zip archive that others wrote, zip64 included. All of its directory is checked before anything
// else is read: DS_ERROR_CORRUPT, naming the archive, for one that is cut off, contradicts itself,
// has entries that overlap or repeat a name, or says that an entry unpacks to more than deflate can
// pack; DS_ERROR_UNSUPPORTED for encryption, several disks, and methods other than stored and
// deflate.
class ZipArchive {
 public:
  explicit ZipArchive(const std::string& path);
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  const std::string& path() const { return path_; }
  // Gives the descriptor back until the next read, which finds DS_ERROR_CORRUPT if the size has
  // changed.
  void close();
  const std::vector<ZipEntry>& entries() const { return entries_; }  // in the order of their data
  const ZipEntry* find(std::string_view name) const;
  // Bytes [begin, begin + out.size()) of an entry; outside of it is DS_ERROR_CORRUPT. Deflated data
  // is unpacked from the beginning, or from where the last read of the same entry ended.
  void read(const ZipEntry& entry, int64_t begin, std::span<std::byte> out);
  // Reads all of an entry and compares its checksum: DS_ERROR_CORRUPT naming archive and entry.
  void check(const ZipEntry& entry);

 private:
  class Unpacker;
  void read_directory();
  void place_entry(ZipEntry& entry, int64_t header, int64_t limit) const;
  Unpacker& unpacker(const ZipEntry& entry, int64_t begin);

  std::string path_;
  int64_t size_ = 0;
  File file_;
  std::vector<ZipEntry> entries_;
  std::shared_ptr<Unpacker> unpacker_;
};

// Writes a new archive of stored entries; the data of each begins at a multiple of 64, as torch has
// it, and everything is 64-bit from 4 GiB on. Nothing is complete before finish(), which syncs.
class ZipWriter {
 public:
  // The file must not exist. zip64_from: what is that large has 64-bit fields; less than 4 GiB is
  // for tests.
  explicit ZipWriter(const std::string& path, int64_t zip64_from = 0xffffffff);
  using Write = std::function<void(std::span<const std::byte>)>;
  // `fill` calls its argument until `bytes` bytes are written.
  void add(const std::string& name, int64_t bytes, const std::function<void(const Write&)>& fill);
  void add(const std::string& name, std::string_view text);
  void finish();

 private:
  File file_;
  int64_t zip64_from_;
  int64_t at_ = 0;
  std::string directory_;
  int64_t count_ = 0;
};

}  // namespace ds
