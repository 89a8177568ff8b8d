#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// One dimension: a constant, or the program's one bounded symbol n (packed tokens), printed "n".
// The bound of n is a property of the graph or program, not of the dimension.
struct Dim {
  int64_t extent = 0;     // the constant; ignored when symbolic
  bool symbolic = false;  // true: n
  Dim() = default;
  Dim(int64_t constant) : extent(constant) {}  // NOLINT: shapes read as {n, 384}
  static Dim n() {
    Dim d;
    d.symbolic = true;
    return d;
  }
  bool operator==(const Dim&) const = default;
};

// Shape of a value: up to four dimensions; no dimensions is a scalar.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) : dims_(dims) {}
  explicit Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}

  size_t rank() const { return dims_.size(); }
  const Dim& operator[](size_t i) const { return dims_[i]; }
  const std::vector<Dim>& dims() const { return dims_; }
  bool symbolic() const;
  // Number of elements with n replaced by `n`.
  int64_t numel(int64_t n) const;
  bool operator==(const Shape&) const = default;
  std::string text() const;                   // "[n,384]", "[]"
  static Shape parse(std::string_view text);  // inverse of text(); throws

 private:
  std::vector<Dim> dims_;
};

}  // namespace ds
