#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/program/choices.h"

namespace ds {

// Returns the choice that the configuration requests, followed by choices that trade more and more
// time for memory.
std::vector<Choices> choices_by_memory(const Config& config);

// A position after the end of every list of choices, which means that no choice fits.
inline constexpr size_t kNoChoice = 255;

// Returns the position of the first candidate, from position `first` on, for which `compile`
// returns true because it fits the budget. If no candidate fits, returns the position of the last
// candidate, which was compiled last.
size_t search(const std::vector<Choices>& candidates, size_t first,
              const std::function<bool(const Choices&)>& compile);

// Returns a sentence for each part of `wanted` that `chosen` gives up, but none for late reuse if
// prefetch is given up, too.
std::vector<std::string> notes_of(const Choices& chosen, const Choices& wanted);

}  // namespace ds
