// Reads and writes zip archives, as far as torch.save and similar writers need them.
//
// Problem. A checkpoint may come from an untrusted source: it may be truncated, damaged, or made to
// harm its reader (an entry that claims to unpack to terabytes, thousands of entries that share the
// same bytes, sizes whose sum overflows).
//
// Invariant. After the constructor, every entry is within the file, precedes the directory, and
// overlaps no other entry. Its unpacked size is at most the largest that deflate can produce from
// its packed size. Therefore later reads need to check only that they stay inside the entry, work
// is bounded by the size of the file, and memory is bounded by the size of the directory.
//
// Algorithm. The end record is searched for from the end of the file; if a zip64 record precedes
// it, that record applies instead. The directory is read at once. The local header of each entry
// says where the entry's data begins. Data is read with pread and not mapped, so a file that is
// truncated meanwhile causes an error and not a signal.
//
// Source. APPNOTE.TXT of PKWARE, 4.3 and 4.5 (zip64 extra field); zlib for the deflate stream.
#include "io/zip.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/round.h"
#include "io/zlib.h"

namespace ds {
namespace {

constexpr int64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kCentralBytes = 46,
                  kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50;
constexpr uint32_t kCentralMark = 0x02014b50, kLocalMark = 0x04034b50;
// Size of the largest directory that is read, in bytes. It has room for a million entries.
constexpr int64_t kMostDirectory = int64_t{64} << 20;
// The highest compression ratio that deflate can reach.
constexpr int64_t kMostRatio = 1032;
constexpr size_t kBlock = size_t{1} << 16;
constexpr int64_t kAlign = 64;
constexpr uint32_t kAll32 = 0xffffffff;

template <typename Number>
Number get(std::string_view bytes, size_t at) {
  Number n = 0;
  std::memcpy(&n, bytes.data() + at, sizeof n);
  return n;
}

template <typename Number>
void put(std::string& out, std::type_identity_t<Number> value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Sizes and offset of an entry in the directory. Fields that have the 32-bit maximum are stored in
// the zip64 extra field, in this order.
struct Sizes {
  uint64_t bytes = 0, packed = 0, header = 0;
};

// Replaces the fields that have the 32-bit maximum by the values in the zip64 extra field. Returns
// false if the extra fields are truncated.
bool take_zip64(std::string_view extra, Sizes& sizes) {
  while (extra.size() >= 4) {
    auto id = get<uint16_t>(extra, 0);
    size_t length = get<uint16_t>(extra, 2);
    if (length > extra.size() - 4) return false;
    std::string_view field = extra.substr(4, length);
    extra.remove_prefix(4 + length);
    if (id != 1) continue;
    for (uint64_t* value : {&sizes.bytes, &sizes.packed, &sizes.header}) {
      if (*value != kAll32) continue;
      if (field.size() < 8) return false;
      *value = get<uint64_t>(field, 0);
      field.remove_prefix(8);
    }
  }
  return true;
}

}  // namespace

// A stream that unpacks one entry sequentially from its beginning.
class ZipArchive::Unpacker {
 public:
  Unpacker(const File& file, const ZipEntry& entry) : entry(entry), file_(file) {
    if (zlib_.begin_inflate(&stream_, -MAX_WBITS, ZLIB_VERSION, sizeof stream_) != Z_OK) {
      raise(DS_ERROR_OUT_OF_MEMORY, "{}: not enough memory to unpack", file.path());
    }
  }
  ~Unpacker() { zlib_.end_inflate(&stream_); }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  int64_t at() const { return at_; }

  // Unpacks the next out.size() bytes. Throws if the stream ends before that many bytes, or needs
  // more input for them than the entry has.
  void read(std::span<std::byte> out) {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    size_t left = out.size();
    while (left > 0) {
      if (stream_.avail_in == 0) refill();
      auto step = static_cast<uInt>(std::min<size_t>(left, uInt{1} << 30));
      stream_.avail_out = step;
      int result = zlib_.inflate(&stream_, Z_NO_FLUSH);
      left -= step - stream_.avail_out;
      if (result == Z_OK || (result == Z_BUF_ERROR && fed_ < entry.packed)) continue;
      if (result == Z_STREAM_END && left == 0) break;
      raise(DS_ERROR_CORRUPT, "{}: the deflated data of '{}' is damaged or ends early",
            file_.path(), entry.name);
    }
    at_ += static_cast<int64_t>(out.size());
  }

  const ZipEntry entry;

 private:
  void refill() {
    auto n = static_cast<size_t>(std::min<int64_t>(entry.packed - fed_, kBlock));
    file_.read(input_.data(), n, entry.begin + fed_);
    fed_ += static_cast<int64_t>(n);
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(n);
  }

  const File& file_;
  const Zlib& zlib_ = zlib();
  z_stream stream_ = {};
  std::vector<Bytef> input_ = std::vector<Bytef>(kBlock);
  int64_t fed_ = 0, at_ = 0;
};

ZipArchive::ZipArchive(const std::string& path) : path_(path), file_(path, File::Mode::read) {
  size_ = file_.size();
  read_directory();
}

void ZipArchive::close() {
  unpacker_.reset();
  file_ = File();
}

// Reads the directory. A comment of up to 65535 bytes may follow the end record and must reach the
// end of the file, so the record is searched for backwards.
void ZipArchive::read_directory() {
  int64_t size = size_;
  auto tail_bytes = std::min<int64_t>(size, kEndBytes + 65535 + kLocatorBytes);
  std::string tail(static_cast<size_t>(tail_bytes), '\0');
  file_.read(tail.data(), tail.size(), size - tail_bytes);
  size_t end = std::string::npos;
  for (int64_t at = tail_bytes - kEndBytes; at >= 0 && end == std::string::npos; --at) {
    auto place = static_cast<size_t>(at);
    bool marked = get<uint32_t>(tail, place) == kEndMark;
    if (marked && at + kEndBytes + get<uint16_t>(tail, place + 20) == tail_bytes) end = place;
  }
  if (end == std::string::npos) {
    raise(DS_ERROR_CORRUPT,
          "{}: has no end record of a zip archive: the file is cut off, or is not an archive",
          path());
  }
  uint64_t disk = get<uint16_t>(tail, end + 4), count = get<uint16_t>(tail, end + 10);
  uint64_t bytes = get<uint32_t>(tail, end + 12), begin = get<uint32_t>(tail, end + 16);
  auto limit = size - tail_bytes + static_cast<int64_t>(end);
  if (end >= kLocatorBytes && get<uint32_t>(tail, end - kLocatorBytes) == kLocatorMark) {
    auto at = get<uint64_t>(tail, end - kLocatorBytes + 8);
    limit -= kLocatorBytes;
    if (limit < kEnd64Bytes || at > static_cast<uint64_t>(limit - kEnd64Bytes)) {
      raise(DS_ERROR_CORRUPT, "{}: the zip64 record cannot be at byte {} of {}", path(), at, size);
    }
    std::string record(kEnd64Bytes, '\0');
    file_.read(record.data(), record.size(), static_cast<int64_t>(at));
    if (get<uint32_t>(record, 0) != kEnd64Mark) {
      raise(DS_ERROR_CORRUPT, "{}: there is no zip64 record at byte {}", path(), at);
    }
    limit = static_cast<int64_t>(at);
    disk = get<uint32_t>(record, 16);
    count = get<uint64_t>(record, 32);
    bytes = get<uint64_t>(record, 40);
    begin = get<uint64_t>(record, 48);
  }
  if (disk != 0)
    raise(DS_ERROR_UNSUPPORTED, "{}: is an archive of several disks, which libds does not read",
          path());
  if (begin > static_cast<uint64_t>(limit) || bytes > static_cast<uint64_t>(limit) - begin) {
    raise(DS_ERROR_CORRUPT, "{}: the directory has {} bytes from byte {} on, but the file has {}",
          path(), bytes, begin, size);
  }
  if (bytes > kMostDirectory || count > bytes / kCentralBytes) {
    raise(DS_ERROR_CORRUPT, "{}: a directory of {} bytes for {} entries is too small or above {}",
          path(), bytes, count, kMostDirectory);
  }
  std::string directory(bytes, '\0');
  file_.read(directory.data(), directory.size(), static_cast<int64_t>(begin));
  std::string_view rest = directory;
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < count; ++i) {
    bool whole = rest.size() >= kCentralBytes && get<uint32_t>(rest, 0) == kCentralMark;
    size_t name = whole ? get<uint16_t>(rest, 28) : 0, extra = whole ? get<uint16_t>(rest, 30) : 0;
    size_t all = kCentralBytes + name + extra + (whole ? get<uint16_t>(rest, 32) : 0);
    Sizes sizes;
    if (whole) sizes = {get<uint32_t>(rest, 24), get<uint32_t>(rest, 20), get<uint32_t>(rest, 42)};
    if (!whole || all > rest.size() ||
        !take_zip64(rest.substr(kCentralBytes + name, extra), sizes)) {
      raise(DS_ERROR_CORRUPT, "{}: entry {} of {} of the directory is damaged", path(), i, count);
    }
    ZipEntry entry;
    entry.name = rest.substr(kCentralBytes, name);
    entry.crc = get<uint32_t>(rest, 16);
    auto flags = get<uint16_t>(rest, 8), method = get<uint16_t>(rest, 10);
    // Bits 0 and 6 mean encryption, and bit 13 means that the directory is masked.
    if ((flags & 0x2041) != 0)
      raise(DS_ERROR_UNSUPPORTED, "{}: '{}' is encrypted", path(), entry.name);
    if (method != 0 && method != 8) {
      raise(DS_ERROR_UNSUPPORTED,
            "{}: '{}' is packed by method {}, but only stored (0) and deflate (8) are read", path(),
            entry.name, method);
    }
    entry.deflated = method == 8;
    // All data precedes the directory.
    auto most = static_cast<uint64_t>(begin);
    if (sizes.header > most || sizes.packed > most ||
        (entry.deflated ? sizes.bytes / kMostRatio > sizes.packed : sizes.bytes != sizes.packed)) {
      raise(DS_ERROR_CORRUPT, "{}: '{}' cannot have {} bytes, packed into {}, at byte {} of {}",
            path(), entry.name, sizes.bytes, sizes.packed, sizes.header, size);
    }
    entry.packed = static_cast<int64_t>(sizes.packed);
    entry.bytes = static_cast<int64_t>(sizes.bytes);
    place_entry(entry, static_cast<int64_t>(sizes.header), static_cast<int64_t>(begin));
    if (!names.insert(entry.name).second) {
      raise(DS_ERROR_CORRUPT, "{}: two entries are called '{}'", path(), entry.name);
    }
    entries_.push_back(std::move(entry));
    rest.remove_prefix(all);
  }
  std::ranges::sort(entries_, [](auto& a, auto& b) { return a.begin < b.begin; });
  // Entries are sorted by the place of their data. Between neighbors there must be room for a local
  // header; otherwise they overlap.
  for (size_t i = 1; i < entries_.size(); ++i) {
    if (entries_[i - 1].begin + entries_[i - 1].packed + kLocalBytes > entries_[i].begin) {
      raise(DS_ERROR_CORRUPT, "{}: '{}' and '{}' overlap", path(), entries_[i - 1].name,
            entries_[i].name);
    }
  }
}

// Sets where the data of an entry begins, which only its local header says, and throws unless that
// header has the same name as the directory.
void ZipArchive::place_entry(ZipEntry& entry, int64_t header, int64_t limit) const {
  std::string local(kLocalBytes, '\0');
  if (header > limit - kLocalBytes) {
    raise(DS_ERROR_CORRUPT, "{}: '{}' begins at byte {}, without room before the directory at {}",
          path(), entry.name, header, limit);
  }
  file_.read(local.data(), local.size(), header);
  int64_t name = get<uint16_t>(local, 26), extra = get<uint16_t>(local, 28);
  entry.begin = header + kLocalBytes + name + extra;
  std::string own(entry.name.size(), '\0');
  bool same = get<uint32_t>(local, 0) == kLocalMark && name == static_cast<int64_t>(own.size()) &&
              entry.begin <= limit && entry.packed <= limit - entry.begin;
  if (same) file_.read(own.data(), own.size(), header + kLocalBytes);
  if (!same || own != entry.name) {
    raise(DS_ERROR_CORRUPT, "{}: the header of '{}' at byte {} differs from the directory", path(),
          entry.name, header);
  }
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  for (const ZipEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// Returns an unpacker of the entry at position `begin`: the present one if it unpacks this entry
// and is not beyond `begin`, otherwise a new one. Bytes before `begin` are unpacked and dropped.
ZipArchive::Unpacker& ZipArchive::unpacker(const ZipEntry& entry, int64_t begin) {
  if (!unpacker_ || unpacker_->entry.begin != entry.begin || unpacker_->at() > begin) {
    unpacker_ = std::make_shared<Unpacker>(file_, entry);
  }
  std::vector<std::byte> skipped(kBlock);
  while (unpacker_->at() < begin) {
    auto n = static_cast<size_t>(std::min<int64_t>(begin - unpacker_->at(), kBlock));
    unpacker_->read(std::span(skipped).first(n));
  }
  return *unpacker_;
}

void ZipArchive::read(const ZipEntry& entry, int64_t begin, std::span<std::byte> out) {
  auto count = static_cast<int64_t>(out.size());
  if (begin < 0 || begin > entry.bytes || count > entry.bytes - begin) {
    raise(DS_ERROR_CORRUPT, "{}: {} bytes wanted at byte {} of '{}', which has {}", path(), count,
          begin, entry.name, entry.bytes);
  }
  if (count == 0) return;
  if (!file_.open()) {
    file_ = File(path_, File::Mode::read);
    if (file_.size() != size_)
      raise(DS_ERROR_CORRUPT, "{}: had {} bytes, now it has {}", path_, size_, file_.size());
  }
  if (entry.deflated) {
    unpacker(entry, begin).read(out);
  } else {
    file_.read(out.data(), out.size(), entry.begin + begin);
  }
}

void ZipArchive::check(const ZipEntry& entry) {
  std::vector<std::byte> block(kBlock);
  uLong crc = 0;
  for (int64_t at = 0; at < entry.bytes;) {
    auto n = static_cast<size_t>(std::min<int64_t>(entry.bytes - at, kBlock));
    read(entry, at, std::span(block).first(n));
    crc = zlib().checksum(crc, reinterpret_cast<const Bytef*>(block.data()), n);
    at += static_cast<int64_t>(n);
  }
  if (crc == entry.crc) return;
  raise(DS_ERROR_CORRUPT, "{}: '{}' has checksum {:08x}, but the archive says {:08x}", path(),
        entry.name, crc, entry.crc);
}

ZipWriter::ZipWriter(const std::string& path, int64_t zip64_from)
    : file_(path, File::Mode::create), zip64_from_(zip64_from) {}

// Adds an entry. The checksum is known only after the data has been written, so the local header,
// which precedes the data in the file, is written last.
void ZipWriter::add(const std::string& name, int64_t bytes,
                    const std::function<void(const Write&)>& fill) {
  bool large = bytes >= zip64_from_;
  int64_t begin = at_ + kLocalBytes + static_cast<int64_t>(name.size());
  int64_t data = round_up(begin + (large ? 20 : 0) + 4, kAlign), extra = data - begin, end = data;
  uLong crc = 0;
  fill([&](std::span<const std::byte> block) {
    crc = zlib().checksum(crc, reinterpret_cast<const Bytef*>(block.data()), block.size());
    file_.write(block.data(), block.size(), end);
    end += static_cast<int64_t>(block.size());
  });
  ensure(end - data == bytes, "entry '{}' must have {} bytes, but {} were written", name, bytes,
         end - data);
  auto common = [&](std::string& out) {
    put<uint16_t>(out, large ? 45 : 20);
    put<uint16_t>(out, 0x0800);      // the name is UTF-8
    put<uint16_t>(out, 0);           // stored
    put<uint32_t>(out, 0x00210000);  // 1980-01-01
    put<uint32_t>(out, static_cast<uint32_t>(crc));
    put<uint32_t>(out, large ? kAll32 : static_cast<uint32_t>(bytes));
    put<uint32_t>(out, large ? kAll32 : static_cast<uint32_t>(bytes));
    put<uint16_t>(out, static_cast<uint16_t>(name.size()));
  };
  std::string local;
  put<uint32_t>(local, kLocalMark);
  common(local);
  put<uint16_t>(local, static_cast<uint16_t>(extra));
  local += name;
  if (large) {
    put<uint32_t>(local, 0x00100001);  // field 1 with 16 bytes: zip64
    put<uint64_t>(local, static_cast<uint64_t>(bytes));
    put<uint64_t>(local, static_cast<uint64_t>(bytes));
    extra -= 20;
  }
  // torch marks its padding with this id.
  local += "FB";
  put<uint16_t>(local, static_cast<uint16_t>(extra - 4));
  local.append(static_cast<size_t>(extra - 4), 'Z');
  file_.write(local.data(), local.size(), at_);
  put<uint32_t>(directory_, kCentralMark);
  put<uint16_t>(directory_, 45);
  common(directory_);
  bool far = at_ >= zip64_from_;
  auto more = static_cast<uint16_t>((large ? 16 : 0) + (far ? 8 : 0));
  put<uint16_t>(directory_, static_cast<uint16_t>(more > 0 ? more + 4 : 0));
  directory_.append(10, '\0');  // comment, disk, attributes
  put<uint32_t>(directory_, far ? kAll32 : static_cast<uint32_t>(at_));
  directory_ += name;
  if (more > 0) {
    put<uint16_t>(directory_, 1);
    put<uint16_t>(directory_, more);
    if (large) put<uint64_t>(directory_, static_cast<uint64_t>(bytes));
    if (large) put<uint64_t>(directory_, static_cast<uint64_t>(bytes));
    if (far) put<uint64_t>(directory_, static_cast<uint64_t>(at_));
  }
  at_ = end;
  ++count_;
}

void ZipWriter::add(const std::string& name, std::string_view text) {
  add(name, static_cast<int64_t>(text.size()),
      [&](const Write& write) { write(std::as_bytes(std::span(text.data(), text.size()))); });
}

void ZipWriter::finish() {
  // The directory follows the data. With zip64, a 64-bit end record and its locator precede the
  // usual end record.
  auto bytes = static_cast<int64_t>(directory_.size());
  std::string end;
  bool large = at_ >= zip64_from_ || count_ >= 65535;
  if (large) {
    put<uint32_t>(end, kEnd64Mark);
    put<uint64_t>(end, kEnd64Bytes - 12);
    put<uint32_t>(end, 0x002d002d);
    put<uint64_t>(end, 0);
    put<uint64_t>(end, static_cast<uint64_t>(count_));
    put<uint64_t>(end, static_cast<uint64_t>(count_));
    put<uint64_t>(end, static_cast<uint64_t>(bytes));
    put<uint64_t>(end, static_cast<uint64_t>(at_));
    put<uint32_t>(end, kLocatorMark);
    put<uint32_t>(end, 0);
    put<uint64_t>(end, static_cast<uint64_t>(at_ + bytes));
    put<uint32_t>(end, 1);
  }
  auto count = static_cast<uint16_t>(large ? 65535 : count_);
  put<uint32_t>(end, kEndMark);
  put<uint32_t>(end, 0);
  put<uint16_t>(end, count);
  put<uint16_t>(end, count);
  put<uint32_t>(end, static_cast<uint32_t>(bytes));
  put<uint32_t>(end, large ? kAll32 : static_cast<uint32_t>(at_));
  put<uint16_t>(end, 0);
  std::string all = directory_ + end;
  file_.write(all.data(), all.size(), at_);
  file_.sync();
}

}  // namespace ds
