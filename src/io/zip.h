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
  // Offset of the data in the archive.
  int64_t begin = 0;
  // Size of the data in the archive, in bytes.
  int64_t packed = 0;
  // Size of the unpacked data, in bytes.
  int64_t bytes = 0;
  uint32_t crc = 0;
  bool deflated = false;
};

// A zip archive that another program wrote, possibly with zip64. The constructor checks the whole
// directory before any data is read. It throws DS_ERROR_CORRUPT, naming the archive, if the archive
// is truncated or inconsistent, has entries that overlap or repeat a name, or claims that an entry
// unpacks to more than deflate can pack. It throws DS_ERROR_UNSUPPORTED for encryption, several
// disks, and methods other than stored and deflate.
class ZipArchive {
 public:
  explicit ZipArchive(const std::string& path);
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  const std::string& path() const { return path_; }
  // Closes the file descriptor until the next read, which throws DS_ERROR_CORRUPT if the size of
  // the file has changed.
  void close();
  // Returns the entries in the order of their data.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // Returns the entry of that name, or null.
  const ZipEntry* find(std::string_view name) const;
  // Reads bytes [begin, begin + out.size()) of an entry. Throws DS_ERROR_CORRUPT if the entry has
  // fewer bytes. Deflated data is unpacked from its beginning, or from the end of the last read if
  // that read the same entry and ended at or before `begin`.
  void read(const ZipEntry& entry, int64_t begin, std::span<std::byte> out);
  // Reads an entire entry and compares its checksum. Throws DS_ERROR_CORRUPT naming archive and
  // entry if it differs.
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

// A new archive of stored (uncompressed) entries. The data of each entry begins at a multiple of 64
// bytes, as in files of torch, and sizes from 4 GiB on are 64-bit. The archive is complete and
// synced only after finish().
class ZipWriter {
 public:
  // Creates the file, which must not exist. Sizes and offsets of at least `zip64_from` get 64-bit
  // fields; tests pass a small value.
  explicit ZipWriter(const std::string& path, int64_t zip64_from = 0xffffffff);
  using Write = std::function<void(std::span<const std::byte>)>;
  // Adds an entry of `bytes` bytes. `fill` calls its argument with consecutive blocks of them.
  void add(const std::string& name, int64_t bytes, const std::function<void(const Write&)>& fill);
  // Adds an entry with the given content.
  void add(const std::string& name, std::string_view text);
  // Writes the directory and syncs the file. No other call may follow.
  void finish();

 private:
  File file_;
  int64_t zip64_from_;
  int64_t at_ = 0;
  std::string directory_;
  int64_t count_ = 0;
};

}  // namespace ds
