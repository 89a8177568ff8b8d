#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "io/file.h"
#include "io/pickle.h"
#include "io/zip.h"

namespace ds {

// A position in a storage of a torch file.
struct TorchData {
  // Index of the storage.
  size_t storage = 0;
  DType dtype = DS_DTYPE_NONE;
  // Index of the first element in the storage.
  int64_t first = 0;
};

// A tensor whose elements are contiguous in its storage.
struct TorchTensor {
  TorchData data;
  std::vector<int64_t> shape;
  int64_t numel = 0;
};

// A tensor with any strides, and of any element type that plan_safetensors() can write.
struct TorchView {
  // Location of the elements. The dtype is DS_DTYPE_NONE if `type` names the element type.
  TorchData data;
  // Element type, as in SafetensorEntry.
  std::string_view type;
  // Size of an element in bytes.
  int64_t unit = 0;
  std::vector<int64_t> shape, strides;
  int64_t numel = 0;
  // Whether the elements are contiguous in the storage.
  bool run = false;
};

// A file that torch.save wrote: a zip archive, or the older stream of pickles. Errors are those of
// zip.h and pickle.h, and each names the file. tensor() and view() throw DS_ERROR_CORRUPT for a
// tensor that exceeds its storage, and DS_ERROR_UNSUPPORTED for an unknown element type. tensor()
// throws DS_ERROR_UNSUPPORTED for elements that are not contiguous, and read() into f32 for
// elements other than f32, f16 and bf16.
class TorchFile {
 public:
  explicit TorchFile(const std::string& path);

  const std::string& path() const { return path_; }
  // Returns the name of the folder inside the archive, which torch.save derives from the name of
  // the file; "" in the older form.
  const std::string& saved_as() const { return saved_as_; }
  const Pickle& pickle() const { return pickle_; }
  const PickleValue& root() const { return pickle_.at(pickle_.root()); }
  // Frees the values of the pickle. Tensors can still be read.
  void forget() { pickle_ = {}; }
  // Closes the descriptor until the next read.
  void close();

  // Returns the tensor that a value describes, possibly wrapped in a parameter, or nullopt if the
  // value is not a tensor.
  std::optional<TorchTensor> tensor(const PickleValue& value) const;
  // Returns the offset in the file at which the data begins. Throws DS_ERROR_UNSUPPORTED if the
  // data is compressed.
  int64_t place(const TorchData& data) const;
  // Reads `count` elements of the tensor, starting at element `begin`, as f32. The tensor must be
  // f32, f16 or bf16.
  void read(const TorchData& data, int64_t begin, int64_t count, float* out);
  // Like tensor(), but for any strides and element types.
  std::optional<TorchView> view(const PickleValue& value) const;
  // Calls use() with the bytes of the view's elements, block by block in order.
  void read(const TorchView& view, const std::function<void(std::span<const std::byte>)>& use);
  // Returns the value of a number or of the only element of a tensor, or nullopt for other values.
  std::optional<double> number(const PickleValue& value);
  // Compares all checksums of an archive with its content. The older form has no checksums.
  void check();
  // Compares only the checksum of one storage.
  void check(const TorchData& data);

 private:
  // A storage: an entry of the archive or, in the older form, a range of bytes of the file.
  struct Storage {
    std::string key;
    const ZipEntry* entry = nullptr;
    int64_t begin = 0;
    int64_t bytes = 0;
  };
  void open_archive();
  void open_stream();
  void read_bytes(const Storage& storage, int64_t begin, std::span<std::byte> out);
  const std::vector<PickleId>* parts_of(const PickleValue& value) const;
  TorchView rebuilt(const std::vector<PickleId>& arguments) const;
  void place_storage(const PickleValue& reference, TorchView& out) const;
  void read_strided(const TorchView& view,
                    const std::function<void(std::span<const std::byte>)>& use);

  std::string path_, saved_as_;
  std::unique_ptr<ZipArchive> archive_;
  File stream_;
  Pickle pickle_;
  std::vector<Storage> storages_;
  std::vector<std::byte> block_;
};

}  // namespace ds
