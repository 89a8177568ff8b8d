#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ds {

// Texts for readers of a report or a terminal. None of these functions depends on the locale.

// Returns, for example, "950", "12.3k" or "4.56M".
std::string count_text(double count);
// Returns, for example, "0:42", "1:05:09" or "3d 04:00"; "-:--" if `seconds` is not finite,
// negative or above 1e12.
std::string duration_text(double seconds);

// Returns, for example, "12.5 us", "41.5 ms", "3.20 s", "5 min 12 s" or "2 h 05 min".
std::string time_text(double seconds);

// Returns, for example, "after step 12"; for step 0 "before the first step".
std::string after_step(int64_t step);

// Returns the name of a baseline for comparison: "gzip -9" or, for example, "unigram of tokens".
std::string baseline_text(std::string_view name);

// Returns the text escaped for HTML elements and attributes. Bytes that are not valid UTF-8, and
// control characters other than line feeds and tabs, become U+FFFD.
std::string html_text(std::string_view text);

}  // namespace ds
