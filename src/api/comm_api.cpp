// This file implements the calls for groups of ranks and their basic collectives. Each call checks
// its arguments and passes its name as the label of the collective. Logs show labels, and ranks
// compare them to detect that they have called different functions.
#include <cstdint>
#include <memory>
#include <string_view>

#include "api/boundary.h"
#include "api/comm_arguments.h"
#include "api/handles.h"
#include "comm/callback_exchange.h"
#include "comm/communicator.h"

using ds::check_reduced;
using ds::check_root;
using ds::use;

namespace {

// The defaults are rank 0 of 1, a time-out of 5 minutes without progress, and 1 minute to join.
constexpr ds_comm_options kDefaults = {sizeof(ds_comm_options), 0, 1, 300000, 60000};

// Reads the options and checks that rank and size fit.
ds_comm_options read_place(const ds_comm_options* options) {
  ds_comm_options given = ds::read_options(options, kDefaults, "options");
  ds::require(given.size >= 1, "options.size must be at least 1, got {}", given.size);
  ds::require(given.rank >= 0 && given.rank < given.size, "options.rank must be 0 to {}, got {}",
              given.size - 1, given.rank);
  return given;
}

// Checks only this rank's arguments. The collective itself compares the sizes of all ranks.
void check_bytes(const void* in, size_t bytes, const void* out) {
  ds::require(in != nullptr || bytes == 0, "in must not be NULL with {} bytes", bytes);
  ds::require(out != nullptr || bytes == 0, "out must not be NULL with {} bytes", bytes);
}

void check_data(const void* data, size_t data_size) {
  ds::require(data != nullptr || data_size == 0, "data must not be NULL with data_size {}",
              data_size);
}

}  // namespace

ds_status ds_comm_options_init(ds_comm_options* options, size_t struct_size) {
  return ds::boundary(
      [&] { ds::write_options(options, struct_size, &kDefaults, sizeof kDefaults); });
}

ds_status ds_comm_create(const char* url, const ds_comm_options* options, ds_comm** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    std::string_view where = ds::need_text(url, "url");
    ds_comm_options given = read_place(options);
    ds::require(given.timeout_ms > 0, "options.timeout_ms must be positive, got {}",
                given.timeout_ms);
    ds::require(given.join_ms > 0, "options.join_ms must be positive, got {}", given.join_ms);
    ds::CommOptions wanted{given.rank, given.size, given.timeout_ms, given.join_ms};
    auto handle = std::make_unique<ds_comm>();
    handle->hold(ds::create_communicator(where, wanted));
    *out = handle.release();
  });
}

// Copies the callbacks. The comm owns user_data only once it has been created; if creation fails,
// user_data is not destroyed.
ds_status ds_comm_create_from_callbacks(const ds_comm_callbacks* callbacks,
                                        const ds_comm_options* options, ds_comm** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    ds::need(callbacks, "callbacks");
    ds_comm_callbacks given = ds::read_options(callbacks, ds_comm_callbacks{}, "callbacks");
    ds::require(given.all_to_all != nullptr, "callbacks.all_to_all must not be NULL");
    ds::require(
        (given.send != nullptr) == (given.receive != nullptr),
        "callbacks.send and callbacks.receive must both be given or both be NULL, got only {}",
        given.send ? "send" : "receive");
    ds_comm_options place = read_place(options);
    auto handle = std::make_unique<ds_comm>();
    handle->hold(ds::make_called(given, place.rank, place.size));
    *out = handle.release();
  });
}

// ds_comm_rank and ds_comm_size cannot fail, so they do not need boundary().
int32_t ds_comm_rank(const ds_comm* comm) { return comm ? comm->comm->rank() : -1; }

int32_t ds_comm_size(const ds_comm* comm) { return comm ? comm->comm->size() : -1; }

ds_status ds_comm_all_gather(ds_comm* comm, const void* in, size_t in_size, void* out) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_bytes(in, in_size, out);
    group.all_gather(in, out, in_size, "ds_comm_all_gather");
  });
}

ds_status ds_comm_all_reduce(ds_comm* comm, const void* in, size_t count, ds_dtype dtype,
                             void* out) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_reduced(in, count, dtype, DS_REDUCE_OP_SUM, out);
    group.all_reduce(in, out, count, dtype, "ds_comm_all_reduce");
  });
}

ds_status ds_comm_reduce_scatter(ds_comm* comm, const void* in, size_t count, ds_dtype dtype,
                                 void* out) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_reduced(in, count, dtype, DS_REDUCE_OP_SUM, out);
    group.reduce_scatter(in, out, count, dtype, "ds_comm_reduce_scatter");
  });
}

ds_status ds_comm_all_to_all(ds_comm* comm, const void* in, size_t block_size, void* out) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_bytes(in, block_size, out);
    group.all_to_all(in, out, block_size, "ds_comm_all_to_all");
  });
}

ds_status ds_comm_broadcast(ds_comm* comm, void* data, size_t data_size, int32_t root) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_data(data, data_size);
    check_root(group, root);
    group.broadcast(data, data_size, root, "ds_comm_broadcast");
  });
}

ds_status ds_comm_send(ds_comm* comm, const void* data, size_t data_size, int32_t to) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_data(data, data_size);
    group.send(data, data_size, to, "ds_comm_send");
  });
}

ds_status ds_comm_receive(ds_comm* comm, void* data, size_t data_size, int32_t from) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_data(data, data_size);
    // A receive is compared with a send, so it has the name of that call.
    group.receive(data, data_size, from, "ds_comm_send");
  });
}

ds_status ds_comm_split(ds_comm* comm, int32_t color, int32_t key, ds_comm** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    auto handle = std::make_unique<ds_comm>();
    // A rank with a negative color joins no group and gets NULL.
    handle->hold(use(comm).split(color, key, "ds_comm_split"));
    if (handle->comm) *out = handle.release();
  });
}

ds_status ds_comm_barrier(ds_comm* comm) {
  return ds::boundary([&] { use(comm).barrier("ds_comm_barrier"); });
}

// May be called on any thread, while another thread is inside a collective.
ds_status ds_comm_abort(ds_comm* comm, const char* reason) {
  return ds::boundary([&] { use(comm).abort(ds::need_text(reason, "reason")); });
}

void ds_comm_destroy(ds_comm* comm) { ds::destroy(comm); }
