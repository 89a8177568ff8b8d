#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// One dimension: a constant, or n, the only symbol, which is the number of packed tokens. The bound
// of n belongs to the graph or program, not to the dimension.
struct Dim {
  // The constant; ignored if the dimension is symbolic.
  int64_t extent = 0;
  // True if the dimension is n.
  bool symbolic = false;
  Dim() = default;
  Dim(int64_t constant) : extent(constant) {}  // NOLINT: shapes read as {n, 384}
  static Dim n() {
    Dim d;
    d.symbolic = true;
    return d;
  }
  bool operator==(const Dim&) const = default;
};

// The shape of a value: up to four dimensions. A scalar has none.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) : dims_(dims) {}
  explicit Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}

  size_t rank() const { return dims_.size(); }
  const Dim& operator[](size_t i) const { return dims_[i]; }
  const std::vector<Dim>& dims() const { return dims_; }
  bool symbolic() const;
  // Returns the number of elements with n replaced by `n`. Throws if it is above 2^56.
  int64_t numel(int64_t n) const;
  bool operator==(const Shape&) const = default;
  // Returns the text form, such as "[n,384]", or "[]" for a scalar.
  std::string text() const;
  // Parses the output of text(). Throws if a text cannot be read in this form.
  static Shape parse(std::string_view text);

 private:
  std::vector<Dim> dims_;
};

}  // namespace ds
