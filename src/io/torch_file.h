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

// Elements in a storage of a torch file.
struct TorchData {
  size_t storage = 0;  // by number
  DType dtype = DS_DTYPE_NONE;
  int64_t first = 0;  // element of the storage
};

struct TorchTensor {
  TorchData data;
  std::vector<int64_t> shape;
  int64_t numel = 0;
};

// A tensor of any element type that a file of safetensors has, and of any strides.
struct TorchView {
  TorchData data;         // dtype: none where `type` names it
  std::string_view type;  // as SafetensorEntry's
  int64_t unit = 0;       // bytes of an element
  std::vector<int64_t> shape, strides;
  int64_t numel = 0;
  bool run = false;  // its elements lie one behind the other
};

// A file that torch.save wrote: a zip archive, or the older stream of pickles. Errors are those of
// zip.h and pickle.h; each names the file. A tensor that reaches out of its storage is
// DS_ERROR_CORRUPT; one that is no run of elements, and element types that libds does not have, are
// DS_ERROR_UNSUPPORTED.
class TorchFile {
 public:
  explicit TorchFile(const std::string& path);

  const std::string& path() const { return path_; }
  // The name of the folder inside the archive, which torch.save makes of the name it saves under;
  // "" in the older form.
  const std::string& saved_as() const { return saved_as_; }
  const Pickle& pickle() const { return pickle_; }
  const PickleValue& root() const { return pickle_.at(pickle_.root()); }
  void forget() { pickle_ = {}; }  // its values; tensors can still be read
  void close();                    // its descriptor, until the next read

  // None: the value is no tensor. Parameters are tensors.
  std::optional<TorchTensor> tensor(const PickleValue& value) const;
  // The byte of the file at which the data begin. DS_ERROR_UNSUPPORTED in an archive that
  // compresses them.
  int64_t place(const TorchData& data) const;
  // `count` elements from the `begin`th of the tensor on, f32, f16 or bf16 only.
  void read(const TorchData& data, int64_t begin, int64_t count, float* out);
  // None: the value is no tensor.
  std::optional<TorchView> view(const PickleValue& value) const;
  // Hands out the bytes of its elements in order, in blocks.
  void read(const TorchView& view, const std::function<void(std::span<const std::byte>)>& use);
  // A number, or the tensor with one.
  std::optional<double> number(const PickleValue& value);
  // Compares the checksums of an archive with its content. The older form has none.
  void check();
  void check(const TorchData& data);  // of that storage alone

 private:
  struct Storage {
    std::string key;
    const ZipEntry* entry = nullptr;  // or, in the older form:
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
