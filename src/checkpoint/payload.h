#pragma once
#include <string>

namespace ds {

// Returns the xxh3-128 over (kind, name, dtype, shape, bytes) of every tensor of every kind of
// state; within a kind, tensors are in the order of names. Per-rank states do not count.
// Checkpoints of equal training states have equal hashes, regardless of their partitions. Also
// checks all hashes of the manifest and throws DS_ERROR_CORRUPT naming the file and, if possible,
// the tensor.
std::string payload_hash(const std::string& path);

}  // namespace ds
