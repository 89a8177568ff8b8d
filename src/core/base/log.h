#pragma once
#include <functional>
#include <string_view>

namespace ds {

enum class LogLevel { debug = 0, info = 1, warning = 2, error = 3 };

// Log sink of the process. Lines written on a thread that is not inside a ds_ call are queued and
// delivered by the next flush_log() on the thread that is. Default sink: stderr, warnings and
// errors only.
using LogSink = std::function<void(LogLevel, std::string_view line)>;
void set_log_sink(LogSink sink);
void log_line(LogLevel level, std::string_view line);  // thread-safe
void flush_log();                                      // call on the thread inside a ds_ call

}  // namespace ds
