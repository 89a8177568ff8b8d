#include "core/program/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "core/base/error.h"

namespace ds {

std::string RankGroup::name() const { return fmt::format("{}x{}", size, stride); }

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  int64_t ranks = 1;
  for (size_t i = 0; i < axes_.size(); ++i) {
    require(axes_[i].size > 0, "mesh axis '{}' must have at least one rank, got {}", axes_[i].name,
            axes_[i].size);
    ranks *= axes_[i].size;
    require(ranks <= INT32_MAX, "a mesh of {} ranks is too large", ranks);
    bool twice = axes_[i].name == kExpert || axes_[i].name == kExpertData;
    // `data` and the two axes that may replace it exclude each other.
    for (size_t k = 0; k < axes_.size(); ++k)
      require(!twice || axes_[k].name != kData,
              "mesh axis '{}' is a part of 'data', which the mesh also has", axes_[i].name);
    for (size_t k = 0; k < i; ++k)
      require(axes_[k].name != axes_[i].name, "mesh axis '{}' appears twice", axes_[i].name);
  }
}

Mesh Mesh::parse(std::string_view text) {
  std::vector<Axis> axes;
  while (!text.empty()) {
    std::string_view axis = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), axis.size() + 1));
    size_t colon = axis.find(':');
    require(colon != axis.npos, "a mesh axis must be like data:4, got '{}'", axis);
    int size = 0;
    auto [end, code] = std::from_chars(axis.data() + colon + 1, axis.data() + axis.size(), size);
    require(code == std::errc() && end == axis.data() + axis.size(),
            "a mesh axis must be like data:4, got '{}'", axis);
    axes.push_back({std::string(axis.substr(0, colon)), size});
  }
  return Mesh(std::move(axes));
}

int Mesh::stride(size_t axis) const {
  int stride = 1;
  for (size_t i = 0; i < axis; ++i) stride *= axes_[i].size;
  return stride;
}

int Mesh::ranks() const { return stride(axes_.size()); }

int Mesh::size(std::string_view axis) const {
  for (const Axis& a : axes_) {
    if (a.name == axis) return a.size;
  }
  return axis == kData ? data_group().size : 1;
}

int Mesh::coordinate(int rank, std::string_view axis) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return rank / stride(i) % axes_[i].size;
  }
  if (axis != kData) return 0;
  RankGroup data = data_group();
  return rank / data.stride % data.size;
}

std::vector<std::string_view> Mesh::data_axes() const {
  std::vector<std::string_view> out;
  for (const Axis& a : axes_) {
    if (a.name == kData || a.name == kExpert || a.name == kExpertData) out.push_back(a.name);
  }
  return out;
}

RankGroup Mesh::group(const std::vector<std::string_view>& axes) const {
  RankGroup out;
  // Every further axis must directly follow the axis found before it.
  size_t found = 0, behind = axes_.size();
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), axes_[i].name) == axes.end()) continue;
    require(found == 0 || behind == i, "mesh {} has other axes between {}", name(),
            fmt::join(axes, " and "));
    if (found++ == 0) out.stride = stride(i);
    out.size *= axes_[i].size;
    behind = i + 1;
  }
  return out;
}

std::string Mesh::name() const {
  std::string out;
  for (const Axis& a : axes_) out += fmt::format("{}{}:{}", out.empty() ? "" : ",", a.name, a.size);
  return out;
}

}  // namespace ds
