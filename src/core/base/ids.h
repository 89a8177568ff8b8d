#pragma once
#include <fmt/format.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ds {

// Typed indices. Each table has its own id type, which an IdVector accepts as an index without a
// cast. So the compiler refuses the index of a buffer where the index of a bucket is expected.

struct None {};
// Converts to an id that refers to no entry of its table.
inline constexpr None none;

template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr Id(None) {}
  constexpr explicit Id(std::integral auto index) : index_(static_cast<int32_t>(index)) {}

  constexpr bool exists() const { return index_ >= 0; }
  // Returns -1 for an id that does not exist.
  constexpr int32_t number() const { return index_; }
  constexpr size_t index() const { return static_cast<size_t>(index_); }

  constexpr auto operator<=>(const Id&) const = default;
  constexpr Id& operator++() { return ++index_, *this; }
  constexpr Id& operator--() { return --index_, *this; }
  constexpr Id operator++(int) { return Id(index_++); }
  constexpr Id operator--(int) { return Id(index_--); }
  friend constexpr Id operator+(Id id, int32_t more) { return Id(id.index_ + more); }
  friend constexpr Id operator-(Id id, int32_t less) { return Id(id.index_ - less); }
  friend constexpr int32_t operator-(Id a, Id b) { return a.index_ - b.index_; }

 private:
  int32_t index_ = -1;
};

// Turns indices from a caller into ids without checking them.
template <class I>
std::vector<I> ids_of(std::span<const int32_t> numbers) {
  std::vector<I> ids;
  for (int32_t n : numbers) ids.push_back(I(n));
  return ids;
}

// The ids in [first, past), for range-based loops.
template <class I>
class IdRange {
 public:
  struct Iterator {
    I id;
    constexpr I operator*() const { return id; }
    constexpr Iterator& operator++() { return ++id, *this; }
    constexpr bool operator==(const Iterator&) const = default;
  };
  constexpr IdRange(I first, I past) : first_(first), past_(first < past ? past : first) {}
  constexpr Iterator begin() const { return {first_}; }
  constexpr Iterator end() const { return {past_}; }

 private:
  I first_, past_;
};

// A vector indexed by ids of type I as well as by plain indices.
template <class I, class T>
class IdVector : public std::vector<T> {
  using Base = std::vector<T>;

 public:
  using Base::Base;
  using Base::operator[];
  using Base::at;
  IdVector(Base values) : Base(std::move(values)) {}

  typename Base::reference operator[](I id) { return Base::operator[](id.index()); }
  typename Base::const_reference operator[](I id) const { return Base::operator[](id.index()); }
  typename Base::reference at(I id) { return Base::at(id.index()); }
  typename Base::const_reference at(I id) const { return Base::at(id.index()); }

  bool has(I id) const { return id.exists() && id.index() < Base::size(); }
  // Returns the id one after the last entry.
  I past() const { return I(Base::size()); }
  I last() const { return past() - 1; }
  IdRange<I> ids() const { return {I(0), past()}; }
  I add(T value) {
    Base::push_back(std::move(value));
    return last();
  }
};

}  // namespace ds

template <class Tag>
struct fmt::formatter<ds::Id<Tag>> : fmt::formatter<int32_t> {
  template <class Context>
  auto format(ds::Id<Tag> id, Context& context) const {
    return fmt::formatter<int32_t>::format(id.number(), context);
  }
};
