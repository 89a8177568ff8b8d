#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp/key.h"

namespace ds {

// Where the ranks of a job find each other: rank 0 listens there until all have come.
struct MeetingPoint {
  std::string host;  // "": see file
  int port = 0;
  std::string file;  // of a folder that all ranks see; rank 0 writes there where it listens
  std::string job;   // ranks of another name are turned away
};

// address: "HOST:PORT", "HOST:PORT/JOB" or "/PATH"; "": MASTER_ADDR and MASTER_PORT. Throws
// std::runtime_error.
MeetingPoint parse_meeting_point(const std::string& address);

// "HOST:PORT", or the path.
std::string text_of(const MeetingPoint& point);

// The address of this host at which rank 0 listens: the point's own; the loopback where the ranks
// have no key, which throws std::runtime_error for a point of another host; all of this host's
// addresses (everywhere()) only where its name does not say by which of them other hosts reach it.
std::string listening_address(const MeetingPoint& point, JobKey::Kind key);

// "; rank 0 is on this host, and ..." where the point's name is that of another one, to end an
// error of rank 0; or "".
std::string elsewhere(const MeetingPoint& point);

// GLOO_SOCKET_IFNAME, or "".
std::string chosen_interface();

// What the others need to call rank 0.
struct Reach {
  std::vector<std::string> addresses;  // to be tried in this order
  int port = 0;
  Trust trust;
};

// What rank 0 has written into a file for its life; removed with this object unless someone
// replaced it. The file is private to this user. Without a key of the job (Kind::missing) it also
// carries a fresh one: who can read it is this user.
class Publication {
 public:
  Publication(const MeetingPoint& point, const std::string& address, int port,
              const std::optional<std::string>& key_text);
  ~Publication();
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

 private:
  std::string file_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// How rank 0 is reached now; nothing, with the reason in `reason`, while its file is not there or
// is not one that this user wrote. Throws std::runtime_error for a host that has no address, or is
// not this one when there is no key.
std::optional<Reach> reach_of(const MeetingPoint& point, const JobKey& key, std::string& reason);

}  // namespace ds
