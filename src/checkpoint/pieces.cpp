// Problem. A manifest lists what the ranks wrote of a tensor. Together that must be every element
// once, and a hostile manifest may claim pieces of 10^15 rows.
//
// Algorithm. Pieces of one row follow each other. Where a rank held some columns, its pieces have
// rows, all with one stride. The tensor is then a matrix of rows of that length, and a piece at
// most three rectangles of it: the end of a row, whole rows, the beginning of a row. Rectangles
// within the matrix whose areas add up to it and of which no two overlap tile it. A sweep over the
// rows keeps the columns that are taken; a rectangle that begins looks at its neighbours there
// alone.
#include "checkpoint/pieces.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <vector>

namespace ds {
namespace {

struct Rectangle {
  int64_t top, bottom, left, right;  // [top, bottom) x [left, right)
  int64_t piece_begin;
};

std::string text(const Piece& p) {
  if (p.rows == 1) return fmt::format("a piece of {} elements begins at {}", p.count, p.begin);
  return fmt::format("a piece of {} times {} elements, {} apart, begins at {}", p.rows, p.count,
                     p.stride, p.begin);
}

std::string find_bad_line(std::span<const Piece> pieces, int64_t numel) {
  int64_t at = 0;
  for (const Piece& p : pieces) {
    if (p.begin != at || p.count <= 0 || p.count > numel - at || p.stride != 0)
      return fmt::format("{}, expected {} of {}", text(p), at, numel);
    at += p.count;
  }
  return at == numel ? "" : fmt::format("pieces end at element {} of {}", at, numel);
}

// Whether the piece lies in a matrix of so many elements in rows of `width`.
bool fits(const Piece& p, int64_t numel, int64_t width) {
  if (p.begin < 0 || p.begin >= numel || p.count <= 0) return false;
  if (p.rows == 1) return p.stride == 0 && p.count <= numel - p.begin;
  return p.rows > 1 && p.stride == width && p.count <= width - p.begin % width &&
         p.rows <= numel / width - p.begin / width;
}

void add_rectangles(const Piece& p, int64_t width, std::vector<Rectangle>& out) {
  int64_t top = p.begin / width, left = p.begin % width;
  if (p.rows > 1) return out.push_back({top, top + p.rows, left, left + p.count, p.begin});
  int64_t count = p.count;
  if (left > 0) {
    int64_t n = std::min(count, width - left);
    out.push_back({top, top + 1, left, left + n, p.begin});
    count -= n, ++top;
  }
  if (count / width > 0) out.push_back({top, top + count / width, 0, width, p.begin});
  if (count % width > 0)
    out.push_back({top + count / width, top + count / width + 1, 0, count % width, p.begin});
}

std::string find_overlap(const std::vector<Rectangle>& rectangles) {
  struct Event {
    int64_t row;
    bool begins;  // ends come first
    const Rectangle* rectangle;
  };
  std::vector<Event> events;
  for (const Rectangle& r : rectangles) {
    events.push_back({r.top, true, &r});
    events.push_back({r.bottom, false, &r});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.row, a.begins) < std::tie(b.row, b.begins);
  });
  std::map<int64_t, const Rectangle*> taken;  // columns, by their left
  for (const Event& e : events) {
    const Rectangle& r = *e.rectangle;
    if (!e.begins) {
      taken.erase(r.left);
      continue;
    }
    auto right = taken.lower_bound(r.left);
    const Rectangle* other =
        right != taken.end() && right->first < r.right ? right->second : nullptr;
    if (!other && right != taken.begin() && std::prev(right)->second->right > r.left)
      other = std::prev(right)->second;
    if (other) {
      auto [low, high] = std::minmax(r.piece_begin, other->piece_begin);
      return fmt::format("the pieces that begin at {} and at {} share elements", low, high);
    }
    taken.emplace(r.left, &r);
  }
  return "";
}

}  // namespace

std::string find_bad_tiling(std::span<const Piece> pieces, int64_t numel) {
  auto strided =
      std::find_if(pieces.begin(), pieces.end(), [](const Piece& p) { return p.rows != 1; });
  if (strided == pieces.end()) return find_bad_line(pieces, numel);
  int64_t width = strided->stride;
  if (width <= 0 || numel % width != 0)
    return fmt::format("{}; its stride must divide the tensor's {} elements", text(*strided),
                       numel);
  std::vector<Rectangle> rectangles;
  int64_t held = 0;
  for (const Piece& p : pieces) {
    if (!fits(p, numel, width))
      return fmt::format("{}, which is not within {} rows of {}", text(p), numel / width, width);
    if (__builtin_add_overflow(held, p.rows * p.count, &held))
      return fmt::format("pieces hold more than {} elements", numel);
    add_rectangles(p, width, rectangles);
  }
  if (std::string overlap = find_overlap(rectangles); !overlap.empty()) return overlap;
  return held == numel ? "" : fmt::format("pieces hold {} of {} elements", held, numel);
}

}  // namespace ds
