#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ds {

// Numbers for people, independent of the locale.
std::string count_text(double count);       // "950", "12.3k", "4.56M"
std::string duration_text(double seconds);  // "0:42", "1:05:09", "3d 04:00"; "-:--" when not finite

std::string time_text(
    double seconds);  // "12.5 us", "41.5 ms", "3.20 s", "5 min 12 s", "2 h 05 min"

std::string after_step(int64_t step);  // "after step 12"; of 0 "before the first step"

// What a level of comparison in bits a byte is called: "gzip -9", "unigram of tokens".
std::string baseline_text(std::string_view name);

// Text inside HTML elements and attributes; what is not UTF-8 text becomes U+FFFD.
std::string html_text(std::string_view text);

}  // namespace ds
