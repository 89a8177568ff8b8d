#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace ds {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Times beyond 30 years are that long: no clock runs over.
inline std::chrono::milliseconds patience_of(int64_t ms) {
  return std::chrono::milliseconds(std::clamp<int64_t>(ms, 0, int64_t{1} << 40));
}

// Where the ranks of a job find each other: rank 0 listens there until all have come.
struct MeetingPoint {
  std::string host;  // "": see file
  int port = 0;
  std::string file;  // of a folder that all ranks see; rank 0 writes a host and a free port into it
  std::string job;   // ranks of another name are turned away
};

// address: "HOST:PORT", "HOST:PORT/JOB" or "/PATH"; "": MASTER_ADDR and MASTER_PORT. Throws
// std::runtime_error.
MeetingPoint parse_meeting_point(const std::string& address);

// "HOST:PORT", or the path.
std::string text_of(const MeetingPoint& point);

// Rank 0 says in the point's file that it listens at this port. Nothing without a file.
void publish(const MeetingPoint& point, int port);
void withdraw(const MeetingPoint& point);

// The host and port that the file of a point names now, or the point's own; port 0: no file yet.
MeetingPoint looked_up(const MeetingPoint& point);

}  // namespace ds
