#include "support/mutate.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ds::test {
namespace {

size_t place(const std::string& text, Dice& dice) {
  return static_cast<size_t>(dice.below(static_cast<int64_t>(text.size()) + 1));
}

void edit(std::string& text, Dice& dice) {
  size_t at = place(text, dice),
         length = std::min<size_t>(text.size() - at, 1 + place(text, dice) % 32);
  bool inside = at < text.size();
  switch (dice.below(7)) {
    case 0:
      if (inside) text[at] = static_cast<char>(text[at] ^ (1 << dice.below(8)));
      return;
    case 1:
      if (inside)
        text[at] = dice.pick<char>(
            {'\0', '\n', '"', '\\', '{', '}', '[', ']', ',', '-', '9', '\x7f', '\xff'});
      return;
    case 2:
      text.insert(at, 1, static_cast<char>(dice.below(256)));
      return;
    case 3:
      text.erase(at, length);
      return;
    case 4:
      text.insert(at, text.substr(at, length));
      return;
    case 5:
      text.insert(at, static_cast<size_t>(dice.below(600)),
                  dice.pick<char>({'[', '9', ' ', '"', 'a', '\n'}));
      return;
    default:
      text.resize(at);
  }
}

Json odd_value(Dice& dice) {
  switch (dice.below(9)) {
    case 0:
      return dice.pick<int64_t>({INT64_MIN, -1, 0, 1, 2, 3, 8, 255, 4096, 1 << 14, 1 << 28,
                                 int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 53,
                                 int64_t{1} << 62, INT64_MAX});
    case 1:
      return dice.pick<double>(
          {-1.0, -0.0, 1e-320, 0.1, 0.5, 1.5, 4.0, 1e17, 9.3e18, 1.8e19, 1e300, -1e300});
    case 2:
      return dice.pick<const char*>(
          {"", "a\nb\r\x1b[2J", "nan", "auto", "F32", "BF16", "I8", "\u00fc", "../a", "1"});
    case 3:
      return std::string(static_cast<size_t>(dice.below(20000)), 'x');
    case 4:
      return dice.one_in(2);
    case 5:
      return dice.one_in(2) ? Json(Json::Array{}) : Json(Json::Object{});
    case 6:
      return Json(Json::Array(static_cast<size_t>(dice.below(300)), Json(1)));
    case 7:
      return dice.one_in(2) ? Json::nan() : Json::infinity(dice.one_in(2));
    default:
      return {};
  }
}

void collect(Json& value, std::vector<Json*>& all) {
  all.push_back(&value);
  if (value.is_array()) {
    for (Json& element : value.array()) collect(element, all);
  } else if (value.is_object()) {
    for (auto& [name, member] : value.object()) collect(member, all);
  }
}

template <typename List>
size_t index(const List& list, Dice& dice) {
  return static_cast<size_t>(dice.below(static_cast<int64_t>(list.size())));
}

void edit_array(Json::Array& array, Dice& dice) {
  size_t at = index(array, dice);
  auto where = array.begin() + static_cast<std::ptrdiff_t>(at);
  switch (dice.below(3)) {
    case 0:
      array.erase(where);
      return;
    case 1: {
      Json copy = array[at];
      array.push_back(std::move(copy));
      return;
    }
    default:
      std::swap(array[at], array[index(array, dice)]);
  }
}

void edit_object(Json::Object& object, Dice& dice) {
  size_t at = index(object, dice);
  switch (dice.below(5)) {
    case 0:
      object.erase(object.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    case 1:
      object[at].first += dice.pick<const char*>({"s", "\n", "_", "\u00fc"});
      return;
    case 2:
      // This repeats the key.
      object.emplace_back(object[at].first, odd_value(dice));
      return;
    case 3:
      object.emplace_back(dice.one_in(2) ? std::string(5000, 'k') : std::string("new"),
                          odd_value(dice));
      return;
    default:
      std::swap(object[at].second, object[index(object, dice)].second);
  }
}

void edit(Json& document, Dice& dice) {
  std::vector<Json*> all;
  collect(document, all);
  Json& value = *all[index(all, dice)];
  if (value.is_object() && !value.object().empty() && !dice.one_in(8))
    return edit_object(value.object(), dice);
  if (value.is_array() && !value.array().empty() && !dice.one_in(4))
    return edit_array(value.array(), dice);
  bool small = value.is_integer() && value.integer() > -(1 << 30) && value.integer() < (1 << 30);
  if (small && dice.one_in(2)) {
    int64_t x = value.integer();
    value = dice.pick<int64_t>({x + 1, x - 1, -x, 2 * x, x << 20, x << 30, x / 2});
    return;
  }
  value = odd_value(dice);
}

}  // namespace

std::string mutate_bytes(std::string text, Dice& dice) {
  for (int64_t edits = 1 + dice.below(3); edits > 0; --edits) edit(text, dice);
  return text;
}

Json mutate_json(Json document, Dice& dice) {
  for (int64_t edits = 1 + dice.below(3); edits > 0; --edits) edit(document, dice);
  return document;
}

}  // namespace ds::test
