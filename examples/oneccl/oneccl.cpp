// Problem. Ranks of libds exchange bytes through oneCCL (ccl::send and ccl::recv on memory of the
// host). oneCCL has no unsolicited messages and cannot cancel a message, and its errors do not say
// which rank was lost.
//
// Algorithm. A group has two communicators of oneCCL. One carries the parts: a start gives it one
// send and one receive for each rank, and a poll tests them. The other carries notes of 1 KiB: a
// sign of life, the reason why the group ended, or the news that a rank leaves, which is the last
// note of that rank. One receive of a note from each other rank is always posted, and is posted
// again when a note has arrived, until that rank's last note. With CCL_WORKER_OFFLOAD=0 oneCCL has
// no thread: bytes move while a rank tests. All calls to oneCCL are made under one lock.
//
// Errors. When a rank dies, oneCCL throws, from any call, for a message that can no longer be sent,
// and continues with the others. So only a start that fails is an error here. The plugin keeps
// other errors of oneCCL for stall(): libds finds the lost rank by its missing signs of life, and
// adds the text of the error to its message.
//
// Lifetime. A posted receive cannot be cancelled, and it points into its link. So links with
// communicators live until the process ends; a group of one rank has none.
#include <ds_plugin.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <oneapi/ccl.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "meeting.h"

namespace {

enum Kind : uint32_t { kBeat = 1, kAbort, kLeft };

struct Note {
  uint64_t sign;
  Kind kind;
  char text[1012];
};
static_assert(sizeof(Note) == 1024);

// A message that is being sent or received; empty when it has arrived.
using Event = std::optional<ccl::event>;

struct Sent {
  Note note;
  int to;
  Event event;
};

}  // namespace

struct ds_plugin_link {
  int rank = 0, size = 1;
  // Both are empty in a group of one rank.
  std::optional<ccl::communicator> parts, notes;
  // Messages of the current start, by rank.
  std::vector<Event> sends, receives;
  // The posted receive of a note from each rank, and the place for the note.
  std::vector<Event> notes_posted;
  std::vector<Note> notes_in;
  std::list<Sent> notes_out;
  std::vector<uint64_t> signs;
  std::vector<uint8_t> left;
  // Whether this rank or another one has aborted. If it was another one: its rank and its reason.
  bool ended = false;
  int aborted_by = -1;
  std::string reason;
  // The last error text of oneCCL, and the last text that stall() returned.
  std::string error, clause;
};

namespace {

std::mutex mutex;
std::string open_error;
std::vector<ds_plugin_link*> links;
// The process that initialised oneCCL. A forked child cannot use it.
pid_t process = 0;

// The table by which oneCCL makes one communicator: the keys of a meeting that begin with a prefix.
class Keys final : public ccl::kvs_interface {
 public:
  Keys(std::shared_ptr<oneccl::Meeting> meeting, std::string prefix)
      : meeting_(std::move(meeting)), prefix_(std::move(prefix)) {}
  ccl::vector_class<char> get(const ccl::string_class& key) override {
    const std::string value = meeting_->get(prefix_ + key);
    return {value.begin(), value.end()};
  }
  // oneCCL removes a key by setting it to an empty text.
  void set(const ccl::string_class& key, const ccl::vector_class<char>& value) override {
    const bool removed = value.empty() || value[0] == '\0';
    meeting_->set(prefix_ + key, removed ? "" : std::string(value.begin(), value.end()));
  }

 private:
  std::shared_ptr<oneccl::Meeting> meeting_;
  std::string prefix_;
};

// Returns whether the message has arrived. Also makes progress on all messages.
bool test(Event& event) {
  if (event && event->test()) event.reset();
  return !event;
}

Event receive(const ccl::communicator& comm, void* data, size_t size, int from) {
  return ccl::recv(data, size, ccl::datatype::int8, from, comm);
}

Event send(const ccl::communicator& comm, void* data, size_t size, int to) {
  return ccl::send(data, size, ccl::datatype::int8, to, comm);
}

void post_note(ds_plugin_link* link, int from) {
  const auto r = static_cast<size_t>(from);
  link->notes_posted[r] = receive(*link->notes, &link->notes_in[r], sizeof(Note), from);
}

// A rank that has not yet received the note before this one gets no further sign of life.
void note_all(ds_plugin_link* link, Kind kind, uint64_t sign, const char* text) {
  for (int r = 0; r < link->size; ++r) {
    const auto to_r = [r](const Sent& sent) { return sent.to == r; };
    if (r == link->rank || link->left[static_cast<size_t>(r)] != 0) continue;
    if (kind == kBeat && std::any_of(link->notes_out.begin(), link->notes_out.end(), to_r))
      continue;
    Sent& sent = link->notes_out.emplace_back(Sent{{sign, kind, {}}, r, {}});
    std::strncpy(sent.note.text, text, sizeof sent.note.text - 1);
    sent.event = send(*link->notes, &sent.note, sizeof(Note), r);
  }
}

// Makes progress on notes in both directions.
void move_notes(ds_plugin_link* link) {
  link->notes_out.remove_if([](Sent& sent) { return test(sent.event); });
  for (int from = 0; from < link->size; ++from) {
    const auto r = static_cast<size_t>(from);
    while (from != link->rank && link->left[r] == 0 && test(link->notes_posted[r])) {
      Note& note = link->notes_in[r];
      if (note.kind == kBeat) link->signs[r] = note.sign;
      if (note.kind == kLeft) link->left[r] = 1;
      if (note.kind == kAbort && link->aborted_by < 0) {
        link->ended = true;
        link->aborted_by = from;
        link->reason.assign(note.text, strnlen(note.text, sizeof note.text));
      }
      if (note.kind != kLeft) post_note(link, from);
    }
  }
}

// Runs a body that calls oneCCL, unless the group has one rank. Returns false if oneCCL threw.
template <class Body>
bool guarded(ds_plugin_link* link, const Body& body) {
  std::lock_guard lock(mutex);
  if (!link->notes) return true;
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    link->error = error.what();
    return false;
  }
}

// A process that ends closes its connections, and bytes that another rank has not yet received are
// lost. So the process waits some time for ranks that have not sent their last note, unless their
// group has been aborted.
void finish() {
  constexpr std::chrono::milliseconds kPatience{2000}, kNap{2};
  if (getpid() != process) return;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (ds_plugin_link* link : links) {
    // `left` never counts this rank itself, so one 0 always remains.
    const auto waits = [&] {
      return link->notes && std::count(link->left.begin(), link->left.end(), 0) > 1;
    };
    while (!link->ended && waits() && std::chrono::steady_clock::now() < end) {
      guarded(link, [&] { move_notes(link); });
      std::this_thread::sleep_for(kNap);
    }
  }
}

// Sets oneCCL's options unless the user has set them. A message to a dead rank cannot begin. oneCCL
// then tries only once for each test, instead of 10,000 times in a row, so that tests of other
// messages still return.
void initialise() {
  if (process == getpid()) return;
  if (process != 0)
    throw std::runtime_error("a forked child cannot use oneCCL, which its parent has initialised");
  setenv("CCL_ATL_TRANSPORT", "ofi", 0);
  setenv("CCL_WORKER_OFFLOAD", "0", 0);
  setenv("CCL_ATL_OFI_MAX_RETRY_COUNT", "1", 0);
  setenv("CCL_LOG_LEVEL", "error", 0);
  ccl::init();
  process = getpid();
  std::atexit(finish);
}

// Makes the communicators of a rank. From then on the link is kept, even if an error follows.
ds_plugin_link* join(std::unique_ptr<ds_plugin_link> joining, const char* address,
                     oneccl::Clock::time_point deadline) {
  if (joining->size == 1) return joining.release();
  const auto place = [](const ds_plugin_link& link) {
    return "rank " + std::to_string(link.rank) + " of " + std::to_string(link.size);
  };
  if (!links.empty() && place(*links[0]) != place(*joining)) {
    throw std::runtime_error("a process is one rank over oneCCL: it was " + place(*links[0]) +
                             ", and " + place(*joining) + " is asked for");
  }
  auto meeting = std::make_shared<oneccl::Meeting>(address, joining->rank, joining->size, deadline);
  initialise();
  ds_plugin_link* link = links.emplace_back(joining.release());
  for (auto [comm, prefix] :
       {std::pair(&link->parts, "parts/"), std::pair(&link->notes, "notes/")}) {
    comm->emplace(
        ccl::create_communicator(link->size, link->rank, std::make_shared<Keys>(meeting, prefix)));
  }
  for (int r = 0; r < link->size; ++r) {
    if (r != link->rank) post_note(link, r);
  }
  meeting->end();
  return link;
}

int32_t open_link(const char* address, int32_t rank, int32_t size, int64_t join_ms,
                  ds_plugin_link** out) {
  std::lock_guard lock(mutex);
  *out = nullptr;
  try {
    const std::chrono::milliseconds time(std::clamp<int64_t>(join_ms, 0, int64_t{1} << 40));
    const auto ranks = static_cast<size_t>(size);
    auto link = std::make_unique<ds_plugin_link>();
    link->rank = rank;
    link->size = size;
    for (auto* events : {&link->sends, &link->receives, &link->notes_posted}) events->resize(ranks);
    link->notes_in.resize(ranks);
    link->signs.resize(ranks);
    link->left.resize(ranks);
    *out = join(std::move(link), address, oneccl::Clock::now() + time);
    return 0;
  } catch (const std::exception& error) {
    open_error = error.what();
    return 1;
  }
}

int32_t start(ds_plugin_link* link, const ds_plugin_part* sends, const ds_plugin_part* receives) {
  const bool started = guarded(link, [&] {
    for (int r = 0; r < link->size; ++r) {
      if (r == link->rank || receives[r].size == 0) continue;
      link->receives[static_cast<size_t>(r)] =
          receive(*link->parts, receives[r].data, receives[r].size, r);
    }
    // Each rank begins with the next one, so that not all of them send to the same rank at once.
    for (int step = 1; step < link->size; ++step) {
      const int r = (link->rank + step) % link->size;
      if (sends[r].size == 0) continue;
      link->sends[static_cast<size_t>(r)] = send(*link->parts, sends[r].data, sends[r].size, r);
    }
  });
  return started ? 0 : 1;
}

int32_t poll(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* signs) {
  bool done = true;
  done &= guarded(link, [&] {
    for (size_t r = 0; r < link->sends.size(); ++r) {
      const bool here = test(link->receives[r]), taken = test(link->sends[r]);
      arrived[r] = here && taken;
      done &= here && taken;
    }
    if (!done) move_notes(link);
  });
  *out_done = done;
  std::copy(link->signs.begin(), link->signs.end(), signs);
  return 0;
}

void beat(ds_plugin_link* link, uint64_t sign) {
  guarded(link, [&] {
    note_all(link, kBeat, sign, "");
    move_notes(link);
  });
}

void abort_group(ds_plugin_link* link, const char* reason) {
  guarded(link, [&] {
    link->ended = true;
    note_all(link, kAbort, 0, reason);
    move_notes(link);
  });
}

int32_t aborted_by(ds_plugin_link* link) {
  guarded(link, [&] { move_notes(link); });
  return link->aborted_by;
}

int32_t has_left(ds_plugin_link* link, int32_t rank) {
  std::lock_guard lock(mutex);
  return link->left[static_cast<size_t>(rank)];
}

// oneCCL does not say how many bytes of a message have arrived.
uint64_t moved(ds_plugin_link*, int32_t) { return 0; }

const char* stall(ds_plugin_link* link, int32_t) {
  std::lock_guard lock(mutex);
  link->clause = link->error.empty() ? "" : "oneCCL says: " + link->error;
  return link->clause.c_str();
}

const char* message(ds_plugin_link* link) {
  if (link == nullptr) return open_error.c_str();
  return link->aborted_by >= 0 ? link->reason.c_str() : link->error.c_str();
}

void close_link(ds_plugin_link* link) {
  if (link == nullptr) return;
  if (link->size == 1) {
    delete link;
    return;
  }
  // Waits some time until the other ranks have received the note that this rank leaves.
  constexpr std::chrono::milliseconds kPatience{500}, kNap{1};
  const auto end = std::chrono::steady_clock::now() + kPatience;
  guarded(link, [&] { note_all(link, kLeft, 0, ""); });
  while (!link->notes_out.empty() && std::chrono::steady_clock::now() < end) {
    guarded(link, [&] { move_notes(link); });
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ds_plugin_transport_table*
ds_plugin_transport(void) {
  static const ds_plugin_transport_table table = {
      sizeof table, "oneccl",   DS_PLUGIN_BUILD, open_link, start, poll,    beat,
      abort_group,  aborted_by, has_left,        moved,     stall, message, close_link};
  return &table;
}
