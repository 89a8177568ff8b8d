#pragma once
#include <functional>
#include <string_view>

namespace ds {

enum class LogLevel { debug = 0, info = 1, warning = 2, error = 3 };

// The log sink of the process. Lines for it are queued, and the next flush_log() on a thread inside
// a ds_ call delivers them, since callbacks run on such threads only. The default sink writes
// warnings and errors to stderr at once.
using LogSink = std::function<void(LogLevel, std::string_view line)>;
// Replaces the sink; an empty one restores the default. When this function returns, no call of the
// old sink is running, unless the sink itself made this call.
void set_log_sink(LogSink sink);
// Logs a line. May be called on any thread.
void log_line(LogLevel level, std::string_view line);
// Delivers the queued lines; does nothing if a thread is delivering already. Must be called on a
// thread that is inside a ds_ call.
void flush_log();

}  // namespace ds
