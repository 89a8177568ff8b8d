#include "core/base/shape.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "core/base/error.h"

namespace ds {

bool Shape::symbolic() const {
  for (const Dim& d : dims_) {
    if (d.symbolic) return true;
  }
  return false;
}

int64_t Shape::numel(int64_t n) const {
  // The largest number of elements. Their size in bytes fits int64 for any element type.
  constexpr int64_t kMost = int64_t{1} << 56;
  int64_t count = 1;
  for (const Dim& d : dims_) {
    int64_t extent = d.symbolic ? n : d.extent;
    // The product is checked after every factor, because extents come from files and callers.
    if (__builtin_mul_overflow(count, extent, &count) || count > kMost) {
      raise(DS_ERROR_INVALID_ARGUMENT, "shape {} has more than 2^56 elements at n = {}", text(), n);
    }
  }
  return count;
}

std::string Shape::text() const {
  std::string out = "[";
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (i > 0) out += ',';
    out += dims_[i].symbolic ? std::string("n") : std::to_string(dims_[i].extent);
  }
  return out + "]";
}

Shape Shape::parse(std::string_view text) {
  require(text.size() >= 2 && text.front() == '[' && text.back() == ']',
          "shape must be like [n,384], got '{}'", text);
  std::string_view body = text.substr(1, text.size() - 2);
  std::vector<Dim> dims;
  while (!body.empty()) {
    size_t comma = body.find(',');
    std::string_view word = body.substr(0, comma);
    body = comma == std::string_view::npos ? std::string_view() : body.substr(comma + 1);
    if (word == "n") {
      dims.push_back(Dim::n());
      continue;
    }
    int64_t extent = 0;
    auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), extent);
    require(code == std::errc() && end == word.data() + word.size() && extent >= 0,
            "shape dimension must be n or an integer from 0, got '{}' in '{}'", word, text);
    dims.push_back(Dim(extent));
  }
  return Shape(std::move(dims));
}

}  // namespace ds
