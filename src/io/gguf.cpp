// Reads and plans the heads of GGUF files.
//
// Problem. A file may come from an untrusted source, so its head may be damaged or hostile: huge
// lengths and counts, offsets outside of the file, tensors that overlap, extents whose product
// overflows.
// Invariant. After read_gguf_header() each tensor's data is a separate range of the file, so later
// reads need no further checks.
// Source. The specification in the documentation of github.com/ggml-org/ggml: little-endian
// numbers; magic, version, counts of tensors and of metadata, the metadata, the descriptions of the
// tensors, padding, the data.
#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <type_traits>
#include <unordered_set>

#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "io/file.h"
#include "io/file_kind.h"

namespace ds {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kGgufMagic = "GGUF";
constexpr const char* kAlignmentKey = "general.alignment";
constexpr int64_t kUsualAlignment = 32;
// Limits of the metadata in bytes, of the number of tensors, and of the number of extents. A
// vocabulary of 256,000 tokens with merges has about 15 MB; models have some thousands of tensors.
constexpr int64_t kMostMetadata = int64_t{64} << 20;
constexpr uint64_t kMostTensors = 1 << 20, kMostExtents = 4;
// Bytes that are read at a time.
constexpr int64_t kWindow = 1 << 20;

constexpr const char* kEndMissing =
    ": the end of the file is missing, so its download or copy was cut off: get it again";

// A reader of consecutive values, which holds a window of the file.
class HeadCursor {
 public:
  explicit HeadCursor(const File& file) : file_(file), size_(file.size()) {}

  int64_t at() const { return at_; }
  int64_t size() const { return size_; }
  int64_t left() const { return size_ - at_; }

  // Returns the next `count` bytes, which are valid until the next call. `label` names them in the
  // message that says that the file is shorter.
  std::string_view take(uint64_t count, std::string_view label) {
    if (count > static_cast<uint64_t>(left()))
      raise(DS_ERROR_CORRUPT, "{} needs {} bytes at byte {} of {}{}", label, count, at_, size_,
            kEndMissing);
    const auto wanted = static_cast<int64_t>(count);
    if (wanted > kMostMetadata || at_ + wanted > kMostMetadata + kWindow)
      raise(DS_ERROR_UNSUPPORTED, "{} ends at byte {}, but at most {} bytes of metadata are read",
            label, at_ + wanted, kMostMetadata);
    if (at_ < window_begin_ || at_ + wanted > window_begin_ + std::ssize(window_)) {
      window_.resize(static_cast<size_t>(std::min(left(), std::max(wanted, kWindow))));
      file_.read(window_.data(), window_.size(), at_);
      window_begin_ = at_;
    }
    std::string_view out(window_);
    out = out.substr(static_cast<size_t>(at_ - window_begin_), static_cast<size_t>(count));
    at_ += wanted;
    return out;
  }

  template <typename Number>
  Number number(std::string_view label) {
    Number value;
    std::memcpy(&value, take(sizeof(Number), label).data(), sizeof(Number));
    return value;
  }

  std::string text(std::string_view label) {
    const auto length = number<uint64_t>(label);
    std::string out(take(length, label));
    if (!is_utf8(out)) raise(DS_ERROR_CORRUPT, "{} is not UTF-8", label);
    return out;
  }

 private:
  const File& file_;
  int64_t size_, at_ = 0, window_begin_ = 0;
  std::string window_;
};

// Calls use() with a value of the C++ type of a kind of number, or returns false for other kinds.
template <typename Use>
bool with_number_type(GgufKind kind, const Use& use) {
  switch (kind) {
    case GgufKind::u8:
      return use(uint8_t{}), true;
    case GgufKind::i8:
      return use(int8_t{}), true;
    case GgufKind::u16:
      return use(uint16_t{}), true;
    case GgufKind::i16:
      return use(int16_t{}), true;
    case GgufKind::u32:
      return use(uint32_t{}), true;
    case GgufKind::i32:
      return use(int32_t{}), true;
    case GgufKind::f32:
      return use(float{}), true;
    case GgufKind::flag:
      return use(uint8_t{}), true;
    case GgufKind::u64:
      return use(uint64_t{}), true;
    case GgufKind::i64:
      return use(int64_t{}), true;
    case GgufKind::f64:
      return use(double{}), true;
    default:
      return false;
  }
}

template <typename Number>
void read_numbers(HeadCursor& cursor, uint64_t count, const std::string& label, GgufValue& out) {
  using Wide = std::conditional_t<std::is_floating_point_v<Number>, double, int64_t>;
  if (count > static_cast<uint64_t>(cursor.left()) / sizeof(Number))
    raise(DS_ERROR_CORRUPT, "{} has {} elements in {} bytes{}", label, count, cursor.left(),
          kEndMissing);
  const std::string_view bytes = cursor.take(count * sizeof(Number), label);
  std::vector<Wide> elements(count);
  for (size_t i = 0; i < count; ++i) {
    Number value;
    std::memcpy(&value, bytes.data() + i * sizeof(Number), sizeof(Number));
    if (std::is_same_v<Number, uint64_t> && static_cast<int64_t>(value) < 0)
      raise(DS_ERROR_UNSUPPORTED, "{} is {}, which is above 2^63", label, value);
    elements[i] = static_cast<Wide>(value);
  }
  out.elements = std::move(elements);
}

// Reads `count` elements. `label` names the value in messages.
void read_elements(HeadCursor& cursor, uint64_t count, const std::string& label, GgufValue& out) {
  const bool is_number = with_number_type(
      out.kind, [&](auto zero) { read_numbers<decltype(zero)>(cursor, count, label, out); });
  if (is_number) return;
  if (out.kind != GgufKind::text)
    raise(out.kind == GgufKind::array ? DS_ERROR_UNSUPPORTED : DS_ERROR_CORRUPT,
          "{} has elements of type {}", label, static_cast<uint32_t>(out.kind));
  // A text has at least the 8 bytes of its length.
  if (count > static_cast<uint64_t>(cursor.left()) / 8)
    raise(DS_ERROR_CORRUPT, "{} has {} texts in {} bytes{}", label, count, cursor.left(),
          kEndMissing);
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < count; ++i) texts.push_back(cursor.text(label));
  out.elements = std::move(texts);
}

std::pair<std::string, GgufValue> read_pair(HeadCursor& cursor) {
  std::string key = cursor.text("a key of the metadata");
  const std::string label = "key '" + key + "'";
  GgufValue value;
  value.kind = static_cast<GgufKind>(cursor.number<uint32_t>(label));
  uint64_t count = 1;
  if (value.kind == GgufKind::array) {
    value.is_list = true;
    value.kind = static_cast<GgufKind>(cursor.number<uint32_t>(label));
    count = cursor.number<uint64_t>(label);
  }
  read_elements(cursor, count, label, value);
  return {std::move(key), std::move(value)};
}

// Returns the number of elements of a tensor. Throws if it is not below 2^59, so that the number
// of bytes cannot overflow either.
int64_t count_elements(const GgufTensor& tensor) {
  int64_t count = 1;
  for (int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count) || count >= int64_t{1} << 59)
      raise(DS_ERROR_CORRUPT, "tensor '{}' has too many elements: extent {}",
            TensorName(tensor.name), extent);
  }
  return count;
}

// Reads the description of a tensor. `begin` becomes its offset in the data.
GgufTensor read_tensor(HeadCursor& cursor) {
  GgufTensor tensor;
  tensor.name = cursor.text("the name of a tensor");
  const std::string label = "tensor '" + tensor.name + "'";
  const auto extents = cursor.number<uint32_t>(label);
  if (extents > kMostExtents)
    raise(DS_ERROR_CORRUPT, "tensor '{}' has {} extents, but at most {} are possible",
          TensorName(tensor.name), extents, kMostExtents);
  for (uint32_t i = 0; i < extents; ++i) tensor.shape.push_back(cursor.number<int64_t>(label));
  std::ranges::reverse(tensor.shape);
  const auto number = cursor.number<uint32_t>(label);
  tensor.type = find_gguf_type(number);
  tensor.begin = cursor.number<int64_t>(label);
  if (tensor.type == nullptr)
    raise(DS_ERROR_CORRUPT, "tensor '{}' has unknown type {}", TensorName(tensor.name), number);
  if (tensor.type->expand == nullptr)
    raise(DS_ERROR_UNSUPPORTED, "tensor '{}' has type {}; libds reads {}", TensorName(tensor.name),
          tensor.type->name, expandable_gguf_types());
  const int64_t count = count_elements(tensor);
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % tensor.type->block != 0)
    raise(DS_ERROR_CORRUPT, "tensor '{}' has rows of {} elements, but blocks of {} ({})",
          TensorName(tensor.name), row, tensor.type->block, tensor.type->name);
  tensor.bytes = gguf_bytes(*tensor.type, count);
  return tensor;
}

int64_t alignment_of(const GgufHeader& header) {
  const GgufValue* value = header.value(kAlignmentKey);
  if (value == nullptr) return kUsualAlignment;
  const auto* numbers = std::get_if<std::vector<int64_t>>(&value->elements);
  if (numbers == nullptr || value->is_list || (*numbers)[0] < 8 || (*numbers)[0] > kWindow ||
      !std::has_single_bit(static_cast<uint64_t>((*numbers)[0])))
    raise(DS_ERROR_CORRUPT, "key '{}' must be a power of 2 from 8 to {}", kAlignmentKey, kWindow);
  return (*numbers)[0];
}

int64_t aligned_up(int64_t at, int64_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

// Turns offsets in the data into offsets in the file, and checks them. `head` is the end of the
// descriptions.
void place_tensors(GgufHeader& header, int64_t head) {
  const int64_t alignment = alignment_of(header), data = aligned_up(head, alignment);
  for (GgufTensor& tensor : header.tensors) {
    const int64_t room = header.file_bytes - data;
    if (tensor.begin < 0 || tensor.begin % alignment != 0)
      raise(DS_ERROR_CORRUPT, "tensor '{}' begins at {} in the data, but must be a multiple of {}",
            TensorName(tensor.name), tensor.begin, alignment);
    if (tensor.begin > room || tensor.bytes > room - tensor.begin)
      raise(DS_ERROR_CORRUPT, "tensor '{}' has {} bytes at {} in {} data bytes{}",
            TensorName(tensor.name), tensor.bytes, tensor.begin, std::max<int64_t>(room, 0),
            kEndMissing);
    tensor.begin += data;
  }
  std::ranges::stable_sort(header.tensors, [](const GgufTensor& a, const GgufTensor& b) {
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  for (size_t i = 1; i < header.tensors.size(); ++i) {
    const GgufTensor &before = header.tensors[i - 1], &tensor = header.tensors[i];
    if (tensor.begin < before.begin + before.bytes)
      raise(DS_ERROR_CORRUPT, "tensor '{}' begins at byte {}, but '{}' ends at {}",
            TensorName(tensor.name), tensor.begin, before.name, before.begin + before.bytes);
  }
}

void check_version(uint32_t version) {
  if (version == 2 || version == 3) return;
  if (version != 0 && (version & 0xffffff) == 0)
    raise(DS_ERROR_UNSUPPORTED, "a big-endian GGUF file; only little-endian ones are read");
  raise(DS_ERROR_UNSUPPORTED, "a GGUF file of version {}; versions 2 and 3 are read", version);
}

GgufHeader read_gguf(const File& file) {
  HeadCursor cursor(file);
  GgufHeader header;
  header.file_bytes = cursor.size();
  if (cursor.take(kGgufMagic.size(), "the magic") != kGgufMagic)
    raise(DS_ERROR_CORRUPT, "does not begin with GGUF");
  check_version(cursor.number<uint32_t>("the version"));
  const auto tensors = cursor.number<uint64_t>("the number of tensors");
  const auto pairs = cursor.number<uint64_t>("the number of keys");
  if (tensors > kMostTensors)
    raise(DS_ERROR_CORRUPT, "has {} tensors, but at most {} are possible", tensors, kMostTensors);
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < pairs; ++i) {
    header.metadata.push_back(read_pair(cursor));
    const std::string& key = header.metadata.back().first;
    if (!names.insert(key).second) raise(DS_ERROR_CORRUPT, "key '{}' appears twice", key);
  }
  names.clear();
  for (uint64_t i = 0; i < tensors; ++i) {
    header.tensors.push_back(read_tensor(cursor));
    const std::string& name = header.tensors.back().name;
    if (!names.insert(name).second)
      raise(DS_ERROR_CORRUPT, "tensor '{}' appears twice", TensorName(name));
  }
  place_tensors(header, cursor.at());
  return header;
}

template <typename Number>
void put_number(std::string& out, Number value) {
  const size_t at = out.size();
  out.resize(at + sizeof(value));
  std::memcpy(out.data() + at, &value, sizeof(value));
}

void put_text(std::string& out, std::string_view text) {
  put_number<uint64_t>(out, text.size());
  out += text;
}

void put_value(std::string& out, const GgufValue& value) {
  if (value.is_list) put_number(out, static_cast<uint32_t>(GgufKind::array));
  put_number(out, static_cast<uint32_t>(value.kind));
  std::visit(
      [&](const auto& elements) {
        if (value.is_list) put_number<uint64_t>(out, elements.size());
        for (const auto& element : elements) {
          if constexpr (std::is_same_v<std::decay_t<decltype(element)>, std::string>) {
            put_text(out, element);
          } else {
            with_number_type(value.kind, [&](auto zero) {
              put_number(out, static_cast<decltype(zero)>(element));
            });
          }
        }
      },
      value.elements);
}

}  // namespace

const GgufTensor* GgufHeader::find(std::string_view name) const {
  auto found = std::ranges::find(tensors, name, &GgufTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

const GgufValue* GgufHeader::value(std::string_view key) const {
  auto found = std::ranges::find(metadata, key,
                                 [](const auto& pair) -> std::string_view { return pair.first; });
  return found == metadata.end() ? nullptr : &found->second;
}

bool is_gguf(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  return head_of(path).starts_with(kGgufMagic);
}

GgufHeader read_gguf_header(const std::string& path) {
  File file(path, File::Mode::read);
  try {
    return read_gguf(file);
  } catch (const Error& error) {
    raise_fault(path, error, Wanted::gguf);
  }
}

int64_t gguf_bytes(const GgufType& type, int64_t count) { return count / type.block * type.bytes; }

std::string plan_gguf(const GgufMetadata& metadata, std::vector<GgufTensor>& tensors) {
  std::string out(kGgufMagic);
  put_number<uint32_t>(out, 3);
  put_number<uint64_t>(out, tensors.size());
  put_number<uint64_t>(out, metadata.size());
  for (const auto& [key, value] : metadata) {
    put_text(out, key);
    put_value(out, value);
  }
  int64_t at = 0;
  std::unordered_set<std::string_view> names;
  for (GgufTensor& tensor : tensors) {
    require(names.insert(tensor.name).second, "tensor name '{}' is taken", tensor.name);
    put_text(out, tensor.name);
    put_number(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) put_number(out, tensor.shape[i]);
    put_number(out, tensor.type->number);
    put_number(out, at);
    tensor.begin = at;
    tensor.bytes = gguf_bytes(*tensor.type, count_elements(tensor));
    at = aligned_up(at + tensor.bytes, kUsualAlignment);
  }
  out.resize(static_cast<size_t>(aligned_up(std::ssize(out), kUsualAlignment)));
  for (GgufTensor& tensor : tensors) tensor.begin += std::ssize(out);
  return out;
}

}  // namespace ds
