// This file implements the functions of ds_plugin.h for the transport plugin libds_mpi.so. Parts
// are sent as messages over a duplicate of MPI_COMM_WORLD. MPI is initialised once for the process,
// and all calls are made under one lock, so MPI_THREAD_SERIALIZED is enough.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/plugin_entry.h"
#include "core/base/descriptor.h"
#include "core/program/mesh.h"

// A rank's connection to the group. Heartbeats, aborts and departures are small messages without an
// answer ("notes"), each kind with a different tag.
struct ds_plugin_link {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::vector<MPI_Request> sends, receives, notes;
  std::vector<uint64_t> signs;
  std::vector<uint8_t> left;
  // Texts of notes that may not have been sent completely.
  std::deque<std::string> texts;
  int aborted_by = -1;
  std::string reason, error;
};

namespace ds::transport {

const char* const kName = "mpi";

namespace {

enum Tag { kData = 1, kBeat, kAbort, kLeft };

std::mutex mutex;
std::string open_error;

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    return "MPI error " + std::to_string(code);
  return std::string(text, static_cast<size_t>(length));
}

// The process that initialised MPI. A forked child must not finalize it.
pid_t process;
// All links that were opened. They exist until the process ends.
std::vector<ds_plugin_link*> links;
// Whether a group has ended with an error.
bool failed = false;

int fail(ds_plugin_link* link, const char* call, int code) {
  failed = true;
  link->error = std::string(call) + ": " + text_of(code);
  return 1;
}

// Sends a note and keeps its request until all notes have been sent.
void note(ds_plugin_link* link, int to, Tag tag, const std::string& text) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, to, tag, link->comm, &request);
  link->notes.push_back(request);
}

void note_all(ds_plugin_link* link, Tag tag, const std::string& text) {
  link->texts.push_back(text);
  for (int r = 0; r < link->size; ++r) {
    if (r != link->rank) note(link, r, tag, link->texts.back());
  }
}

bool notes_done(ds_plugin_link* link) {
  int done = 1;
  if (!link->notes.empty()) {
    MPI_Testall(static_cast<int>(link->notes.size()), link->notes.data(), &done,
                MPI_STATUSES_IGNORE);
  }
  if (done) {
    link->notes.clear();
    link->texts.clear();
  }
  return done != 0;
}

void take(ds_plugin_link* link, const MPI_Status& status) {
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  std::string text(static_cast<size_t>(bytes), '\0');
  MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, link->comm,
           MPI_STATUS_IGNORE);
  auto from = static_cast<size_t>(status.MPI_SOURCE);
  if (status.MPI_TAG == kBeat)
    std::memcpy(&link->signs[from], text.data(), std::min(text.size(), sizeof(uint64_t)));
  if (status.MPI_TAG == kLeft) link->left[from] = 1;
  if (status.MPI_TAG == kAbort && link->aborted_by < 0) {
    failed = true;
    link->aborted_by = status.MPI_SOURCE;
    link->reason = text;
  }
}

// Receives and processes all notes that have arrived.
int listen(ds_plugin_link* link) {
  for (int tag : {kBeat, kAbort, kLeft}) {
    for (;;) {
      int waiting = 0;
      MPI_Status status;
      int code = MPI_Iprobe(MPI_ANY_SOURCE, tag, link->comm, &waiting, &status);
      if (code != MPI_SUCCESS) return fail(link, "MPI_Iprobe", code);
      if (!waiting) break;
      take(link, status);
    }
  }
  return 0;
}

// Returns whether this rank's notes have been sent and all other ranks have left every group. These
// ranks are then about to call MPI_Finalize, too.
bool all_have_left() {
  bool all = true;
  for (ds_plugin_link* link : links) {
    if (link->comm == MPI_COMM_NULL || listen(link) != 0) return false;
    for (int r = 0; r < link->size; ++r)
      all &= r == link->rank || link->left[static_cast<size_t>(r)] != 0;
    all &= notes_done(link);
  }
  return all;
}

// MPI_Finalize waits for every rank, even for one that hangs or cannot be reached. So a process
// whose group has failed calls it only if all others are about to do so, too; otherwise the process
// exits without calling it, and mpirun or srun then ends the job.
void finalize() {
  constexpr std::chrono::milliseconds kPatience{5000}, kNap{5};
  if (getpid() != process) return;
  std::lock_guard lock(mutex);
  int done = 0;
  if (MPI_Finalized(&done) != MPI_SUCCESS || done) return;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (failed && !all_have_left()) {
    if (std::chrono::steady_clock::now() > end) return;
    std::this_thread::sleep_for(kNap);
  }
  MPI_Finalize();
}

// Creates the link's communicator; collective. Returns "" or an error.
std::string duplicate(ds_plugin_link* link, int64_t timeout_ms) {
  constexpr std::chrono::milliseconds kNap{1};
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_Comm_idup(MPI_COMM_WORLD, &link->comm, &request), done = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (code == MPI_SUCCESS && !done) {
    code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done || code != MPI_SUCCESS) break;
    if (std::chrono::steady_clock::now() > end)
      return "not all " + std::to_string(link->size) + " ranks have joined within " +
             std::to_string(timeout_ms) + " ms";
    std::this_thread::sleep_for(kNap);
  }
  return code == MPI_SUCCESS ? "" : "MPI_Comm_idup: " + text_of(code);
}

// Initialises MPI, unless the host application has done so. Returns false, with the reason in
// open_error, if that fails or the thread level does not suffice.
bool initialise() {
  int ready = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&ready);
  if (ready) {
    MPI_Query_thread(&level);
  } else {
    // MPI opens descriptors, which must not get the numbers of standard input, output or error.
    StandardFilled filled;
    int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS) {
      open_error = "MPI_Init_thread: " + text_of(code);
      return false;
    }
    process = getpid();
    std::atexit(finalize);
  }
  if (level >= MPI_THREAD_SERIALIZED) return true;
  open_error = "MPI must be initialised with MPI_THREAD_SERIALIZED or more";
  return false;
}

}  // namespace

int32_t open_link(const char* address, int32_t rank, int32_t size, int64_t timeout_ms,
                  ds_plugin_link** out) {
  std::lock_guard lock(mutex);
  *out = nullptr;
  if (*address != '\0') {
    open_error = "comm url 'mpi' takes no address, got '" + std::string(address) + "'";
    return 1;
  }
  if (!initialise()) return 1;
  int own = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (own != rank || world != size) {
    open_error = "this process joins as rank " + std::to_string(rank) + " of " +
                 std::to_string(size) + ", but in MPI it is rank " + std::to_string(own) + " of " +
                 std::to_string(world);
    return 1;
  }
  auto* link = new ds_plugin_link;
  link->rank = rank;
  link->size = size;
  link->signs.resize(static_cast<size_t>(size));
  link->left.resize(static_cast<size_t>(size));
  link->receives.assign(static_cast<size_t>(size), MPI_REQUEST_NULL);
  link->sends.assign(static_cast<size_t>(size), MPI_REQUEST_NULL);
  // The link is added before the wait, because after a time-out finalize() must see that its ranks
  // have not left, so that it does not wait in MPI_Finalize.
  links.push_back(link);
  const std::string error = duplicate(link, timeout_ms);
  if (!error.empty()) {
    open_error = error;
    failed = true;
    return 1;
  }
  MPI_Comm_set_errhandler(link->comm, MPI_ERRORS_RETURN);
  *out = link;
  return 0;
}

int32_t start(ds_plugin_link* link, const ds_plugin_part* sends, const ds_plugin_part* receives) {
  std::lock_guard lock(mutex);
  for (int r = 0; r < link->size; ++r) {
    if (r == link->rank || receives[r].size == 0) continue;
    int code = MPI_Irecv(receives[r].data, static_cast<int>(receives[r].size), MPI_BYTE, r, kData,
                         link->comm, &link->receives[static_cast<size_t>(r)]);
    if (code != MPI_SUCCESS) return fail(link, "MPI_Irecv", code);
  }
  // Each rank sends to its next neighbour first, so that not all ranks send to the same rank at
  // once.
  for (int step = 1; step < link->size; ++step) {
    int r = (link->rank + step) % link->size;
    if (sends[r].size == 0) continue;
    int code = MPI_Isend(sends[r].data, static_cast<int>(sends[r].size), MPI_BYTE, r, kData,
                         link->comm, &link->sends[static_cast<size_t>(r)]);
    if (code != MPI_SUCCESS) return fail(link, "MPI_Isend", code);
  }
  return 0;
}

int32_t poll(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* signs) {
  std::lock_guard lock(mutex);
  int all = 1;
  for (size_t r = 0; r < link->receives.size(); ++r) {
    // A completed request is MPI_REQUEST_NULL, for which MPI_Test reports completion.
    int here = 1, taken = 1;
    int code = MPI_Test(&link->receives[r], &here, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS) code = MPI_Test(&link->sends[r], &taken, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return fail(link, "MPI_Test", code);
    // A rank that does not receive its part counts as missing, too.
    arrived[r] = static_cast<uint8_t>(here & taken);
    all &= here & taken;
  }
  *out_done = all;
  if (!*out_done && listen(link) != 0) return 1;
  std::ranges::copy(link->signs, signs);
  return 0;
}

void beat(ds_plugin_link* link, uint64_t sign) {
  std::lock_guard lock(mutex);
  if (notes_done(link))
    note_all(link, kBeat, std::string(reinterpret_cast<const char*>(&sign), sizeof sign));
}

void abort_group(ds_plugin_link* link, const char* reason) {
  std::lock_guard lock(mutex);
  failed = true;
  note_all(link, kAbort, reason);
}

int32_t aborted_by(ds_plugin_link* link) {
  std::lock_guard lock(mutex);
  listen(link);
  return link->aborted_by;
}

int32_t has_left(ds_plugin_link* link, int32_t rank) {
  std::lock_guard lock(mutex);
  return link->left[static_cast<size_t>(rank)];
}

// MPI does not report how much of a message has been transferred.
uint64_t moved(ds_plugin_link*, int32_t) { return 0; }
const char* stall(ds_plugin_link*, int32_t) { return ""; }

const char* message(ds_plugin_link* link) {
  if (link == nullptr) return open_error.c_str();
  return link->aborted_by >= 0 ? link->reason.c_str() : link->error.c_str();
}

// The communicator exists until MPI_Finalize, because freeing it would wait for the other ranks.
// The link is not deleted either, because requests may still point into it.
void close_link(ds_plugin_link* link) {
  if (link == nullptr) return;
  std::lock_guard lock(mutex);
  int done = 0;
  MPI_Finalized(&done);
  if (done) return;
  note_all(link, kLeft, "");
  for (MPI_Request& request : link->receives) {
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  }
}

}  // namespace ds::transport
