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
  std::string name() const;  // "4x2"
  auto operator<=>(const RankGroup&) const = default;
};

// The axis over which batches differ and ZeRO cuts. A mesh may have two in its place, the experts'
// view of the same ranks: those along `expert` have different experts, those along `expert_data`
// the same ones.
inline constexpr const char* kData = "data";
inline constexpr const char* kExpert = "expert";
inline constexpr const char* kExpertData = "expert_data";

// The ranks of a run as a grid with named axes, of which the first is the fastest: on the mesh
// (tensor 2, data 3) rank 1 is tensor 1 of data 0. A rank is named by its coordinates; a collective
// by the axes that its ranks differ in.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size = 1;
    bool operator==(const Axis&) const = default;
  };
  Mesh(int data = 1) : Mesh(std::vector<Axis>{Axis{kData, data}}) {}
  explicit Mesh(std::vector<Axis> axes);     // throws DS_ERROR_INVALID_ARGUMENT
  static Mesh parse(std::string_view text);  // inverse of name()

  const std::vector<Axis>& axes() const { return axes_; }
  int ranks() const;
  // Of an axis that it has not: 1, and 0. `data` is one also where two stand for it.
  int size(std::string_view axis) const;
  int coordinate(int rank, std::string_view axis) const;
  // Those that `data` means: itself, or the two.
  std::vector<std::string_view> data_axes() const;
  // The ranks that differ in these axes alone, which must be neighbours, and none of them twice.
  RankGroup group(const std::vector<std::string_view>& axes) const;
  RankGroup data_group() const { return group(data_axes()); }
  int data_size() const { return size(kData); }
  // The number of the micro-batch that a rank has in a micro-step: equal for ranks with one data
  // coordinate.
  int64_t leaf(int64_t micro, int rank) const {
    return micro * data_size() + coordinate(rank, kData);
  }
  std::string name() const;  // "tensor:2,data:3"
  bool operator==(const Mesh&) const = default;

 private:
  int stride(size_t axis) const;
  std::vector<Axis> axes_;
};

}  // namespace ds
