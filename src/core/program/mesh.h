#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// `size` ranks whose numbers differ by multiples of `stride`.
struct RankGroup {
  int size = 1;
  int stride = 1;
  // Returns the size and the stride: "4x2".
  std::string name() const;
  auto operator<=>(const RankGroup&) const = default;
};

// `data` is the axis along which batches differ and ZeRO partitions. A mesh may replace `data` by
// two axes: ranks along `expert` hold different experts, and ranks along `expert_data` hold the
// same experts.
inline constexpr const char* kData = "data";
inline constexpr const char* kExpert = "expert";
inline constexpr const char* kExpertData = "expert_data";

// The ranks of a run as a grid with named axes. The first axis varies fastest: on the mesh (tensor
// 2, data 3), rank 1 is tensor 1 of data 0. A rank is identified by its coordinates, a collective
// by the axes in which its ranks differ.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size = 1;
    bool operator==(const Axis&) const = default;
  };
  Mesh(int data = 1) : Mesh(std::vector<Axis>{Axis{kData, data}}) {}
  // Throws DS_ERROR_INVALID_ARGUMENT for an illegal list of axes.
  explicit Mesh(std::vector<Axis> axes);
  // Parses the output of name().
  static Mesh parse(std::string_view text);

  const std::vector<Axis>& axes() const { return axes_; }
  int ranks() const;
  // An axis that the mesh lacks has size 1 and coordinate 0. Both functions accept `data` even if
  // two axes replace it.
  int size(std::string_view axis) const;
  int coordinate(int rank, std::string_view axis) const;
  // Returns the axes of the mesh that make up `data`: `data` itself, or the two axes that replace
  // it.
  std::vector<std::string_view> data_axes() const;
  // Returns the group of ranks that differ only in these axes, which must be distinct and adjacent
  // in the mesh.
  RankGroup group(const std::vector<std::string_view>& axes) const;
  RankGroup data_group() const { return group(data_axes()); }
  int data_size() const { return size(kData); }
  // Returns the index, within a step, of the micro-batch that a rank processes in a micro-step.
  // Ranks with the same data coordinate process the same micro-batch.
  int64_t leaf(int64_t micro, int rank) const {
    return micro * data_size() + coordinate(rank, kData);
  }
  // Returns the axes and their sizes: "tensor:2,data:3".
  std::string name() const;
  bool operator==(const Mesh&) const = default;

 private:
  int stride(size_t axis) const;
  std::vector<Axis> axes_;
};

}  // namespace ds
