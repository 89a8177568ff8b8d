#include "support/post_office.h"

#include <algorithm>
#include <cstring>

struct ds_plugin_link {
  int rank = 0;
  std::vector<ds_plugin_part> wanted;
  std::string error;
};

namespace ds::test {
namespace {

Office* office = nullptr;

int32_t open(const char*, int32_t rank, int32_t size, int64_t, ds_plugin_link** out) {
  std::lock_guard lock(office->mutex);
  office->size = size;
  *out = new ds_plugin_link{rank, {}, {}};
  return 0;
}

int32_t start(ds_plugin_link* link, const ds_plugin_part* sends, const ds_plugin_part* receives) {
  std::lock_guard lock(office->mutex);
  for (int r = 0; r < office->size; ++r) {
    if (r == link->rank || sends[r].size == 0) continue;
    const char* data = static_cast<const char*>(sends[r].data);
    office->letters[{link->rank, r}].emplace_back(data, data + sends[r].size);
  }
  link->wanted.assign(receives, receives + office->size);
  link->wanted[static_cast<size_t>(link->rank)].size = 0;
  return 0;
}

int32_t poll(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* signs) {
  std::lock_guard lock(office->mutex);
  *out_done = 1;
  for (size_t r = 0; r < link->wanted.size(); ++r) {
    ds_plugin_part& part = link->wanted[r];
    auto& letters = office->letters[{static_cast<int>(r), link->rank}];
    if (part.size != 0 && !letters.empty()) {
      std::memcpy(part.data, letters.front().data(), std::min(part.size, letters.front().size()));
      letters.pop_front();
      part.size = 0;
    }
    arrived[r] = part.size == 0;
    if (office->lively) ++office->signs[r];
    signs[r] = office->signs[r];
    if (part.size != 0) *out_done = 0;
  }
  return 0;
}

void beat(ds_plugin_link* link, uint64_t sign) {
  std::lock_guard lock(office->mutex);
  office->signs[static_cast<size_t>(link->rank)] = sign;
}

void abort_group(ds_plugin_link* link, const char* reason) {
  std::lock_guard lock(office->mutex);
  if (office->aborted_by >= 0) return;
  office->aborted_by = link->rank;
  office->reason = reason;
}

int32_t aborted_by(ds_plugin_link* link) {
  std::lock_guard lock(office->mutex);
  return office->aborted_by == link->rank ? -1 : office->aborted_by;
}

int32_t has_left(ds_plugin_link*, int32_t rank) {
  std::lock_guard lock(office->mutex);
  return office->left[static_cast<size_t>(rank)];
}

uint64_t moved(ds_plugin_link*, int32_t rank) {
  std::lock_guard lock(office->mutex);
  return office->moved[static_cast<size_t>(rank)];
}

const char* stall(ds_plugin_link*, int32_t rank) {
  std::lock_guard lock(office->mutex);
  return office->stalls[static_cast<size_t>(rank)].c_str();
}

const char* message(ds_plugin_link*) { return office->reason.c_str(); }

void close(ds_plugin_link* link) {
  std::lock_guard lock(office->mutex);
  office->left[static_cast<size_t>(link->rank)] = 1;
  delete link;
}

const ds_plugin_transport_table kPost = {sizeof(ds_plugin_transport_table),
                                         "post",
                                         DS_PLUGIN_BUILD,
                                         open,
                                         start,
                                         poll,
                                         beat,
                                         abort_group,
                                         aborted_by,
                                         has_left,
                                         moved,
                                         stall,
                                         message,
                                         close};

}  // namespace

void open_office(Office* opened) { office = opened; }

const ds_plugin_transport_table& post_transport() { return kPost; }

bool is_taken(int from, int to) {
  std::lock_guard lock(office->mutex);
  return office->letters[{from, to}].empty();
}

}  // namespace ds::test
