#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

// A file that torch.save wrote: a zip archive, or the older stream of pickles. Errors are those of zip.h and
// pickle.h; each names the file. A tensor that reaches out of its storage is DS_ERROR_CORRUPT; one that is no
// run of elements, and element types that libds does not have, are DS_ERROR_UNSUPPORTED.
class TorchFile {
 public:
  explicit TorchFile(const std::string& path);

  const std::string& path() const { return path_; }
  // The name of the folder inside the archive, which torch.save makes of the name it saves under; "" in the
  // older form.
  const std::string& saved_as() const { return saved_as_; }
  const Pickle& pickle() const { return pickle_; }
  const PickleValue& root() const { return pickle_.at(pickle_.root()); }
  void forget() { pickle_ = {}; }  // its values; tensors can still be read
  void close();                    // its descriptor, until the next read

  // None: the value is no tensor. Parameters are tensors.
  std::optional<TorchTensor> tensor(const PickleValue& value) const;
  // `count` elements from the `begin`th of the tensor on, f32, f16 or bf16 only.
  void read(const TorchData& data, int64_t begin, int64_t count, float* out);
  // A number, or the tensor with one.
  std::optional<double> number(const PickleValue& value);
  // Compares the checksums of an archive with its content. The older form has none.
  void check();

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
  TorchTensor rebuilt(const std::vector<PickleId>& arguments) const;
  size_t storage_of(const PickleValue& reference, DType* dtype) const;

  std::string path_, saved_as_;
  std::unique_ptr<ZipArchive> archive_;
  File stream_;
  Pickle pickle_;
  std::vector<Storage> storages_;
  std::vector<std::byte> block_;
};

}  // namespace ds
