// Reads files that torch.save wrote, in either form. Nothing in them is executed; see pickle.cpp.
//
// The newer form is a zip archive. The pickle in NAME/data.pkl refers to the storage of each tensor
// by a key, and NAME/data/KEY has the bytes of that storage. The older form is a stream of five
// pickles (magic number, version, facts about the machine, the object, the keys), followed by the
// storages, each preceded by its number of elements.
//
// Invariant. Every storage is within the file, and every tensor that view() returns is within its
// storage, whatever extents and strides the pickle claims.
//
// Source. torch/serialization.py and torch/_utils.py.
#include "io/torch_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <span>
#include <string_view>

#include "core/base/contains.h"
#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "io/file_kind.h"

namespace ds {

using Kind = PickleValue::Kind;

namespace {

constexpr int64_t kMostPickle = int64_t{64} << 20;
constexpr std::string_view kMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);

// A storage class of torch and its element type.
struct StorageType {
  std::string_view name;
  DType dtype;
  // The name of the type as in TorchView::type, and the bytes of an element, if libds has no such
  // dtype.
  std::string_view type = {};
  int64_t unit = 0;
};
constexpr std::array<StorageType, 11> kStorageTypes{
    {{"torch.FloatStorage", DS_DTYPE_F32},
     {"torch.HalfStorage", DS_DTYPE_F16},
     {"torch.BFloat16Storage", DS_DTYPE_BF16},
     {"torch.DoubleStorage", DS_DTYPE_F64},
     {"torch.LongStorage", DS_DTYPE_I64},
     {"torch.IntStorage", DS_DTYPE_I32},
     {"torch.ByteStorage", DS_DTYPE_U8},
     {"torch.CharStorage", DS_DTYPE_NONE, "I8", 1},
     {"torch.BoolStorage", DS_DTYPE_NONE, "BOOL", 1},
     {"torch.ShortStorage", DS_DTYPE_NONE, "I16", 2},
     {"torch.ComplexFloatStorage", DS_DTYPE_NONE, "C64", 8}}};
// The largest number of elements of a tensor that is not contiguous. Such a tensor is copied
// element by element.
constexpr int64_t kMostOfViews = int64_t{1} << 31;
// Bytes that are passed to the caller at a time.
constexpr size_t kViewBlock = 1 << 20;

int64_t unit_of(const StorageType& type) {
  return type.dtype == DS_DTYPE_NONE ? type.unit : size_of(type.dtype);
}

const StorageType& storage_type(const std::string& path, const PickleValue& type) {
  for (const StorageType& known : kStorageTypes) {
    if (type.kind == Kind::global && type.text == known.name) return known;
  }
  raise(DS_ERROR_UNSUPPORTED, "{}: a tensor is in a '{}', which libds does not have", path,
        type.kind == Kind::global ? type.text : "storage of unknown type");
}

}  // namespace

TorchFile::TorchFile(const std::string& path) : path_(path) {
  File file(path, File::Mode::read);
  std::array<char, 4> head = {};
  file.read(head.data(), static_cast<size_t>(std::min<int64_t>(file.size(), head.size())), 0);
  if (std::string_view(head.data(), head.size()) == std::string_view("PK\x03\x04", 4)) {
    open_archive();
  } else {
    stream_ = std::move(file);
    open_stream();
  }
}

namespace {

// Returns whether the archive's entry `byteorder` is "little".
bool says_little(ZipArchive& archive, const ZipEntry& order) {
  std::array<char, 6> word = {};
  archive.check(order);
  if (order.bytes == std::ssize(word))
    archive.read(order, 0, std::as_writable_bytes(std::span(word)));
  return std::string_view(word.data(), word.size()) == "little";
}

}  // namespace

// Opens a zip archive. data.pkl is in the only top-level folder of the archive, whose name varies.
void TorchFile::open_archive() {
  archive_ = std::make_unique<ZipArchive>(path_);
  constexpr std::string_view name = "/data.pkl";
  const ZipEntry* text = nullptr;
  for (const ZipEntry& entry : archive_->entries()) {
    bool top =
        entry.name.ends_with(name) && entry.name.find('/') == entry.name.size() - name.size();
    if (top) text = &entry;
  }
  if (!text)
    raise(DS_ERROR_CORRUPT, "{}: the archive has no data.pkl: torch.save did not write it", path_);
  std::string prefix = text->name.substr(0, text->name.find('/') + 1);
  saved_as_ = prefix.substr(0, prefix.size() - 1);
  if (text->bytes > kMostPickle) {
    raise(DS_ERROR_UNSUPPORTED, "{}: '{}' has {} bytes, but at most {} are read", path_, text->name,
          text->bytes, kMostPickle);
  }
  if (const ZipEntry* order = archive_->find(prefix + "byteorder");
      order && !says_little(*archive_, *order))
    raise(DS_ERROR_UNSUPPORTED, "{}: its numbers are not little-endian", path_);
  archive_->check(*text);
  std::string bytes(static_cast<size_t>(text->bytes), '\0');
  archive_->read(*text, 0, std::as_writable_bytes(std::span(bytes)));
  for (const ZipEntry& entry : archive_->entries()) {
    std::string_view rest = entry.name;
    if (!rest.starts_with(prefix + "data/")) continue;
    rest.remove_prefix(prefix.size() + 5);
    storages_.push_back({std::string(rest), &entry, 0, entry.bytes});
  }
  std::ranges::sort(storages_, [](auto& a, auto& b) { return a.key < b.key; });
  pickle_ = Pickle(bytes, path_);
}

// Opens a stream. The length of the pickles is known only after parsing them, so a prefix of the
// file is read and doubled until it contains them all.
void TorchFile::open_stream() {
  int64_t size = stream_.size();
  std::string bytes;
  for (int64_t part = int64_t{1} << 16;; part *= 2) {
    int64_t now = std::min(part, size);
    bytes.resize(static_cast<size_t>(now));
    stream_.read(bytes.data(), bytes.size(), 0);
    if (!bytes.starts_with(kMagic)) {
      raise_fault(path_,
                  Error(DS_ERROR_CORRUPT,
                        "is neither a zip archive nor a stream as torch.save writes them"),
                  Wanted::torch);
    }
    try {
      std::string_view rest = bytes;
      Pickle keys;
      for (int i = 0; i < 5; ++i) {
        Pickle next(rest, path_);
        rest.remove_prefix(next.end());
        (i == 3 ? pickle_ : keys) = std::move(next);
      }
      int64_t at = now - static_cast<int64_t>(rest.size());
      for (PickleId id : keys.elements(keys.at(keys.root())))
        storages_.push_back({keys.at(id).text, nullptr, at, 0});
      break;
    } catch (const Error& error) {
      if (now == size || now >= kMostPickle || error.status() != DS_ERROR_CORRUPT) throw;
    }
  }
  // The size of an element, in bytes, of each storage, by key. The stream has the number of
  // elements of each storage but not their type, which is in the pickle's persistent ids. These
  // refer to the storage by its key.
  std::map<std::string, int64_t> unit;
  for (PickleId id = 0; pickle_.size() > id; ++id) {
    if (pickle_.at(id).kind != Kind::persistent) continue;
    const auto& parts = pickle_.elements(pickle_.at(pickle_.at(id).items[0]));
    if (parts.size() < 3) continue;
    unit[pickle_.at(parts[2]).text] = unit_of(storage_type(path_, pickle_.at(parts[1])));
  }
  int64_t at = storages_.empty() ? size : storages_[0].begin;
  for (Storage& storage : storages_) {
    int64_t count = 0;
    if (!unit.contains(storage.key))
      raise(DS_ERROR_CORRUPT, "{}: no tensor uses storage '{}'", path_, storage.key);
    if (at > size - 8)
      raise(DS_ERROR_CORRUPT, "{}: is cut off before storage '{}'", path_, storage.key);
    stream_.read(&count, sizeof count, at);
    storage.begin = at + 8;
    int64_t most = size - storage.begin;
    if (count < 0 || count > most / unit[storage.key]) {
      raise(DS_ERROR_CORRUPT, "{}: storage '{}' has {} elements, but {} bytes are left of the file",
            path_, storage.key, count, most);
    }
    storage.bytes = count * unit[storage.key];
    at = storage.begin + storage.bytes;
  }
  std::ranges::sort(storages_, [](auto& a, auto& b) { return a.key < b.key; });
}

void TorchFile::close() {
  stream_ = File();
  if (archive_) archive_->close();
}

void TorchFile::check() {
  if (!archive_) return;
  for (const ZipEntry& entry : archive_->entries()) archive_->check(entry);
}

void TorchFile::check(const TorchData& data) {
  if (archive_) archive_->check(*storages_[data.storage].entry);
}

// Finds the storage that a persistent id refers to: ("storage", type, key, device, elements).
void TorchFile::place_storage(const PickleValue& reference, TorchView& out) const {
  static const std::vector<PickleId> nothing;
  const auto& parts = reference.kind == Kind::persistent
                          ? pickle_.elements(pickle_.at(reference.items[0]))
                          : nothing;
  if (parts.size() < 5 || pickle_.at(parts[2]).kind != Kind::text ||
      pickle_.at(parts[4]).kind != Kind::integer)
    raise(DS_ERROR_CORRUPT, "{}: a tensor has no storage", path_);
  const StorageType& type = storage_type(path_, pickle_.at(parts[1]));
  out.data.dtype = type.dtype;
  out.type = type.type;
  out.unit = unit_of(type);
  const std::string& key = pickle_.at(parts[2]).text;
  auto it = std::ranges::lower_bound(storages_, key, {}, &Storage::key);
  if (it == storages_.end() || it->key != key)
    raise(DS_ERROR_CORRUPT, "{}: the data of a tensor is missing: there is no storage '{}'", path_,
          key);
  int64_t numel = pickle_.at(parts[4]).integer;
  if (numel < 0 || numel > it->bytes / out.unit) {
    raise(DS_ERROR_CORRUPT, "{}: storage '{}' has {} bytes, {} elements of {} are wanted", path_,
          key, it->bytes, numel, type.name);
  }
  out.data.storage = static_cast<size_t>(it - storages_.begin());
}

// Returns the arguments of the function that creates a tensor, or null if the value is not a
// tensor. Parameters and tensors with attributes contain such a call.
const std::vector<PickleId>* TorchFile::parts_of(const PickleValue& value) const {
  std::string_view maker = pickle_.maker(value);
  if (maker.empty() || value.items.size() < 2) return nullptr;
  const std::vector<PickleId>* arguments = &pickle_.elements(pickle_.at(value.items[1]));
  // A tensor with attributes has four arguments: the function that creates the tensor, the class,
  // that function's arguments, and the attributes.
  if (maker == "torch._tensor._rebuild_from_type_v2" && arguments->size() >= 3) {
    maker = pickle_.at((*arguments)[0]).text;
    arguments = &pickle_.elements(pickle_.at((*arguments)[2]));
  }
  if (maker.starts_with("torch._utils._rebuild_parameter") && !arguments->empty()) {
    const PickleValue& inner = pickle_.at((*arguments)[0]);
    if (pickle_.maker(inner).empty() || inner.items.size() < 2) return nullptr;
    maker = pickle_.maker(inner);
    arguments = &pickle_.elements(pickle_.at(inner.items[1]));
  }
  return maker.starts_with("torch._utils._rebuild_tensor") ? arguments : nullptr;
}

std::optional<TorchView> TorchFile::view(const PickleValue& value) const {
  const std::vector<PickleId>* arguments = parts_of(value);
  if (!arguments) return std::nullopt;
  return rebuilt(*arguments);
}

std::optional<TorchTensor> TorchFile::tensor(const PickleValue& value) const {
  std::optional<TorchView> of = view(value);
  if (!of) return std::nullopt;
  if (!of->run)
    raise(DS_ERROR_UNSUPPORTED,
          "{}: the elements of a tensor do not follow one another (a transposed view, or a slice)",
          path_);
  return TorchTensor{of->data, std::move(of->shape), of->numel};
}

// Returns the view described by (storage, first element, shape, strides, ...) after checking its
// bounds.
TorchView TorchFile::rebuilt(const std::vector<PickleId>& arguments) const {
  if (arguments.size() < 4) raise(DS_ERROR_CORRUPT, "{}: a tensor has no shape", path_);
  TorchView out;
  place_storage(pickle_.at(arguments[0]), out);
  out.data.first = pickle_.at(arguments[1]).integer;
  const auto& extents = pickle_.elements(pickle_.at(arguments[2]));
  const auto& strides = pickle_.elements(pickle_.at(arguments[3]));
  if (extents.size() != strides.size())
    raise(DS_ERROR_CORRUPT, "{}: a tensor has different numbers of extents and strides", path_);
  out.numel = 1;
  out.run = true;
  // The distance in the storage, in elements, from the tensor's first element to its last.
  int64_t last = 0;
  for (size_t i = extents.size(); i-- > 0;) {
    int64_t extent = pickle_.at(extents[i]).integer, stride = pickle_.at(strides[i]).integer,
            reach = 0;
    // From the last dimension to the first, the strides of a dense tensor are the products of the
    // extents so far. The stride of a dimension of extent 1 does not matter.
    out.run = out.run && (extent == 1 || stride == out.numel);
    if (extent < 0 || __builtin_mul_overflow(out.numel, std::max<int64_t>(extent, 1), &out.numel))
      raise(DS_ERROR_CORRUPT,
            "{}: a tensor has an extent of {}, which is negative or makes its size exceed 64 bits",
            path_, extent);
    if (stride < 0 || __builtin_mul_overflow(std::max<int64_t>(extent - 1, 0), stride, &reach) ||
        __builtin_add_overflow(last, reach, &last))
      raise(DS_ERROR_CORRUPT,
            "{}: a tensor has a stride of {}, which is negative or, with an extent of {}, reaches "
            "beyond 64 bits",
            path_, stride, extent);
    out.shape.insert(out.shape.begin(), extent);
    out.strides.insert(out.strides.begin(), stride);
  }
  bool empty = contains(out.shape, 0);
  if (empty) out.numel = 0, out.run = true;
  int64_t have = storages_[out.data.storage].bytes / out.unit;
  if (out.data.first < 0 || out.data.first > have || (!empty && last >= have - out.data.first)) {
    raise(DS_ERROR_CORRUPT, "{}: a tensor has elements {} to {} of a storage that has {}", path_,
          out.data.first, out.data.first + last, have);
  }
  if (!out.run && out.numel > kMostOfViews)
    raise(DS_ERROR_UNSUPPORTED,
          "{}: a tensor that repeats or rearranges elements has {}, but at most {} are read", path_,
          out.numel, kMostOfViews);
  return out;
}

int64_t TorchFile::place(const TorchData& data) const {
  const Storage& storage = storages_.at(data.storage);
  if (storage.entry && storage.entry->deflated)
    raise(DS_ERROR_UNSUPPORTED, "{}: its archive is compressed; torch.save writes it stored",
          path_);
  return (storage.entry ? storage.entry->begin : storage.begin) + data.first * size_of(data.dtype);
}

void TorchFile::read_bytes(const Storage& storage, int64_t begin, std::span<std::byte> out) {
  if (storage.entry) {
    archive_->read(*storage.entry, begin, out);
  } else {
    if (!stream_.open()) stream_ = File(path_, File::Mode::read);
    stream_.read(out.data(), out.size(), storage.begin + begin);
  }
}

void TorchFile::read(const TorchData& data, int64_t begin, int64_t count, float* out) {
  if (data.dtype != DS_DTYPE_F32 && data.dtype != DS_DTYPE_F16 && data.dtype != DS_DTYPE_BF16)
    raise(DS_ERROR_UNSUPPORTED, "{}: training state must be f32, f16 or bf16, got {}", path_,
          data.dtype == DS_DTYPE_NONE ? "another type" : dtype_name(data.dtype));
  if (data.storage >= storages_.size())
    raise(DS_ERROR_CORRUPT, "{}: has changed: storage {} of {} is wanted", path_, data.storage,
          storages_.size());
  const Storage& storage = storages_[data.storage];
  int64_t unit = size_of(data.dtype), from = (data.first + begin) * unit;
  if (from < 0 || count * unit > storage.bytes - from) {
    raise(DS_ERROR_CORRUPT, "{}: {} bytes wanted at byte {} of storage '{}', which has {}", path_,
          count * unit, from, storage.key, storage.bytes);
  }
  if (data.dtype == DS_DTYPE_F32) {
    read_bytes(storage, from, std::as_writable_bytes(std::span(out, static_cast<size_t>(count))));
    return;
  }
  block_.resize(static_cast<size_t>(count * unit));
  read_bytes(storage, from, block_);
  widen(data.dtype, block_.data(), count, out);
}

void TorchFile::read(const TorchView& view,
                     const std::function<void(std::span<const std::byte>)>& use) {
  if (!view.run) return read_strided(view, use);
  const Storage& storage = storages_[view.data.storage];
  std::vector<std::byte> block(kViewBlock);
  for (int64_t at = 0, end = view.numel * view.unit; at < end;) {
    auto part = std::span(block).first(std::min(block.size(), static_cast<size_t>(end - at)));
    read_bytes(storage, view.data.first * view.unit + at, part);
    use(part);
    at += std::ssize(part);
  }
}

// Reads a view with any strides. The entire range of the storage that it spans is in memory at
// once.
void TorchFile::read_strided(const TorchView& view,
                             const std::function<void(std::span<const std::byte>)>& use) {
  int64_t last = 0;
  for (size_t i = 0; i < view.shape.size(); ++i) last += (view.shape[i] - 1) * view.strides[i];
  const auto unit = static_cast<size_t>(view.unit);
  std::vector<std::byte> all(static_cast<size_t>(last + 1) * unit), block;
  read_bytes(storages_[view.data.storage], view.data.first * view.unit, all);
  std::vector<int64_t> index(view.shape.size());
  // The position in `all` of the element at `index`.
  int64_t at = 0;
  for (int64_t i = 0; i < view.numel; ++i) {
    const std::byte* from = all.data() + static_cast<size_t>(at) * unit;
    block.insert(block.end(), from, from + unit);
    if (block.size() >= kViewBlock || i + 1 == view.numel) {
      use(block);
      block.clear();
    }
    // Increments `index` like an odometer, and `at` with it.
    for (size_t d = index.size(); d-- > 0;) {
      at += view.strides[d];
      if (++index[d] < view.shape[d]) break;
      at -= index[d] * view.strides[d];
      index[d] = 0;
    }
  }
}

std::optional<double> TorchFile::number(const PickleValue& value) {
  if (value.kind == Kind::integer) return static_cast<double>(value.integer);
  if (value.kind == Kind::number) return value.number;
  std::optional<TorchTensor> one = tensor(value);
  if (!one || one->numel != 1 || one->data.dtype == DS_DTYPE_NONE) return std::nullopt;
  std::array<std::byte, 8> bytes = {};
  int64_t unit = size_of(one->data.dtype);
  read_bytes(storages_[one->data.storage], one->data.first * unit,
             std::span(bytes).first(static_cast<size_t>(unit)));
  int64_t integer = 0;
  double real = 0;
  float single = 0;
  switch (one->data.dtype) {
    case DS_DTYPE_F64:
      std::memcpy(&real, bytes.data(), sizeof real);
      return real;
    case DS_DTYPE_I64:
    case DS_DTYPE_I32:
    case DS_DTYPE_U8:
      // The bytes are little-endian and zero-extended, which is correct because no count is
      // negative.
      std::memcpy(&integer, bytes.data(), sizeof integer);
      return static_cast<double>(integer);
    default:
      read(one->data, 0, 1, &single);
      return single;
  }
}

}  // namespace ds
