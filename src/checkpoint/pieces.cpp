// Checks that pieces tile a tensor.
//
// Problem. A manifest lists what each rank wrote of a tensor. Together, the pieces must cover every
// element exactly once, and a hostile manifest may claim pieces of 10^15 rows.
//
// Algorithm. If all pieces have one row, each must begin where the previous one ends. If a rank
// held only some columns, its pieces have several rows, all with the same stride. The tensor is
// then treated as a matrix whose row length is that stride, and a piece is at most three rectangles
// in it: the end of a row, full rows, the beginning of a row. Rectangles within the matrix tile it
// if their areas add up to its area and no two of them overlap. A sweep over the rows keeps the set
// of covered columns, and compares each rectangle that begins only with its neighbors in that set.
//
// Cost. n log n for n pieces, independent of their rows.
#include "checkpoint/pieces.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <vector>

namespace ds {
namespace {

// The rows [top, bottom) and columns [left, right) of a matrix, covered by one piece.
struct Rectangle {
  int64_t top, bottom, left, right;
  int64_t piece_begin;
};

// Returns a description of a piece for a message.
std::string text(const Piece& p) {
  if (p.rows == 1) return fmt::format("a piece of {} elements begins at {}", p.count, p.begin);
  return fmt::format("a piece of {} times {} elements, {} apart, begins at {}", p.rows, p.count,
                     p.stride, p.begin);
}

// Checks pieces of one row: each must begin where the previous one ends.
std::string find_bad_line(std::span<const Piece> pieces, int64_t numel) {
  int64_t at = 0;
  for (const Piece& p : pieces) {
    if (p.begin != at || p.count <= 0 || p.count > numel - at || p.stride != 0)
      return fmt::format("{}, expected {} of {}", text(p), at, numel);
    at += p.count;
  }
  return at == numel ? "" : fmt::format("pieces end at element {} of {}", at, numel);
}

// Returns whether the piece lies within a matrix of `numel` elements and rows of `width`. Divides
// instead of multiplying, because rows * stride may overflow.
bool fits(const Piece& p, int64_t numel, int64_t width) {
  if (p.begin < 0 || p.begin >= numel || p.count <= 0) return false;
  if (p.rows == 1) return p.stride == 0 && p.count <= numel - p.begin;
  return p.rows > 1 && p.stride == width && p.count <= width - p.begin % width &&
         p.rows <= numel / width - p.begin / width;
}

// Appends the one to three rectangles that the piece covers in a matrix of `width` columns.
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

// Returns a message about two rectangles that overlap, or "" if none exist.
std::string find_overlap(const std::vector<Rectangle>& rectangles) {
  struct Event {
    int64_t row;
    // Whether the rectangle begins or ends at this row. Ends sort before beginnings, so that a
    // rectangle frees its columns before another rectangle begins in the same row.
    bool begins;
    const Rectangle* rectangle;
  };
  std::vector<Event> events;
  for (const Rectangle& r : rectangles) {
    events.push_back({r.top, true, &r});
    events.push_back({r.bottom, false, &r});
  }
  std::ranges::sort(events, [](const Event& a, const Event& b) {
    return std::tie(a.row, a.begins) < std::tie(b.row, b.begins);
  });
  // Rectangles that cover the current row, by their left column. They are disjoint, so a new
  // rectangle can overlap only its right or its left neighbor.
  std::map<int64_t, const Rectangle*> taken;
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
  auto strided = std::ranges::find_if(pieces, [](const Piece& p) { return p.rows != 1; });
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
