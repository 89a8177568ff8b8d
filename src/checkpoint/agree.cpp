#include "checkpoint/agree.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

// How a rank's part ended, for all_gather: of fixed size. 4 KiB hold a table of memory.
struct Outcome {
  int32_t status = DS_OK;
  char message[4092] = {};

  void set(ds_status code, std::string_view text) {
    status = code;
    std::memcpy(message, text.data(), std::min(text.size(), sizeof message - 1));
  }
};

Outcome run(const std::function<void()>& body) {
  Outcome mine;
  try {
    body();
  } catch (const Error& error) {
    mine.set(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    mine.set(DS_ERROR_OUT_OF_MEMORY, "the system refuses memory");
  } catch (const std::exception& error) {
    mine.set(DS_ERROR_INTERNAL, error.what());
  }
  return mine;
}

}  // namespace

void agree(Communicator& comm, std::string_view label, const std::function<void()>& body) {
  Outcome mine = run(body);
  std::vector<Outcome> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), sizeof mine, label);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].status == DS_OK) continue;
    auto status = static_cast<ds_status>(all[r].status);
    if (comm.size() == 1) throw Error(status, all[r].message);
    raise(status, "rank {}: {}", r, all[r].message);
  }
}

}  // namespace ds
