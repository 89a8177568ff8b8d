// This file implements collectives that a struct describes, performed at once or started, and the
// logs of a comm.
//
// The struct describes any operation over a list of buffers or over blocks of unequal size. It is
// translated here into a CommRequest with copies of all lists, so that the caller may free the
// lists at once; only the buffers themselves are borrowed until the work has ended.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "api/boundary.h"
#include "api/comm_arguments.h"
#include "api/handles.h"
#include "comm/comm_log.h"
#include "comm/comm_thread.h"
#include "comm/communicator.h"
#include "comm/flight.h"

using ds::use;

namespace {

using Op = ds::CommRequest::Op;

constexpr ds_comm_call kCallDefaults = {sizeof(ds_comm_call),
                                        DS_COMM_OP_ALL_REDUCE,
                                        DS_DTYPE_U8,
                                        DS_REDUCE_OP_SUM,
                                        0,
                                        nullptr,
                                        nullptr,
                                        nullptr,
                                        1,
                                        nullptr,
                                        nullptr,
                                        0};

// Checks an operation and converts it; ds_comm_op and CommRequest::Op have the same values.
Op operation(ds_comm_op op) {
  ds::require(op >= DS_COMM_OP_ALL_REDUCE && op <= DS_COMM_OP_SCATTER,
              "call.op must be one of ds_comm_op, 0 to {}, got {}",
              static_cast<int>(DS_COMM_OP_SCATTER), static_cast<int>(op));
  return static_cast<Op>(op);
}

// Returns the input or output buffers of a call. If `used` is false, this rank does not need them,
// and they are null.
template <typename Buffer>
std::vector<Buffer> buffers(Buffer const* list, size_t count, const std::vector<size_t>& elements,
                            bool used, const char* name) {
  std::vector<Buffer> out(count);
  if (!used) return out;
  ds::require(list != nullptr || count == 0, "call.{} must not be NULL with buffers_count {}", name,
              count);
  for (size_t i = 0; i < count; ++i) {
    ds::require(list[i] != nullptr || elements[i] == 0,
                "call.{}[{}] must not be NULL with {} elements", name, i, elements[i]);
    out[i] = list[i];
  }
  return out;
}

// Returns the sizes of unequal blocks, or an empty list if the caller passes NULL, which means
// equal blocks.
std::vector<size_t> blocks(const ds::Communicator& group, const size_t* blocks, size_t count) {
  if (!blocks) return {};
  ds::require(count == static_cast<size_t>(group.size()), "call.blocks_count must be {}, got {}",
              group.size(), count);
  return {blocks, blocks + count};
}

size_t sum(const std::vector<size_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), size_t{0});
}

// Converts the caller's struct to a request and checks that this rank has passed all buffers that
// it needs. Ranks other than the root need no input for a scatter and no output for a reduce or
// gather.
ds::CommRequest request_of(const ds::Communicator& group, const ds_comm_call& call) {
  ds::CommRequest r;
  r.op = operation(call.op);
  if (r.op == Op::barrier) return r;
  ds::check_types(call.dtype, call.reduce);
  r.dtype = call.dtype;
  r.reduce = static_cast<ds::ReduceOp>(call.reduce);
  r.root = call.root;
  r.blocks = blocks(group, call.blocks, call.blocks_count);
  r.out_blocks = blocks(group, call.out_blocks, call.blocks_count);
  size_t count = call.buffers_count;
  // Number of elements of each input and output buffer; a buffer with elements must not be NULL.
  std::vector<size_t> given, taken;
  if (r.blocks.empty()) {
    ds::require(call.counts != nullptr || count == 0,
                "call.counts must not be NULL with buffers_count {}", count);
    if (count > 0) r.counts.assign(call.counts, call.counts + count);
    // With equal blocks, `counts` has one entry for each buffer. With blocks of different sizes
    // there is only one buffer, and its number of elements on this rank depends on the operation.
    given = taken = r.counts;
  } else {
    ds::require(count == 1, "call.buffers_count must be 1 with blocks, got {}", count);
    size_t own = r.blocks[static_cast<size_t>(group.rank())], all = sum(r.blocks);
    given = {r.op == Op::all_gather ? own : all};
    taken = {r.op == Op::all_gather ? all : r.op == Op::all_to_all ? sum(r.out_blocks) : own};
  }
  bool root = group.rank() == call.root;
  r.in = buffers(call.ins, count, given, r.op != Op::broadcast && (r.op != Op::scatter || root),
                 "ins");
  r.out =
      buffers(call.outs, count, taken, root || (r.op != Op::reduce && r.op != Op::gather), "outs");
  return r;
}

}  // namespace

ds_status ds_comm_call_init(ds_comm_call* call, size_t struct_size) {
  return ds::boundary(
      [&] { ds::write_options(call, struct_size, &kCallDefaults, sizeof kCallDefaults, "call"); });
}

// If out_work is NULL, the collective runs at once; otherwise a thread of the comm runs started
// collectives in the order of these calls.
ds_status ds_comm_submit(ds_comm* comm, const ds_comm_call* call, ds_work** out_work) {
  return ds::boundary([&] {
    if (out_work) *out_work = nullptr;
    ds::Communicator& group = use(comm);
    ds::need(call, "call");
    ds::CommRequest request = request_of(group, ds::read_options(call, kCallDefaults, "call"));
    if (!out_work) return group.make(request, "ds_comm_submit");
    auto handle = std::make_unique<ds_work>();
    handle->work = group.start(std::move(request), "ds_comm_submit");
    *out_work = handle.release();
  });
}

ds_status ds_work_wait(ds_work* work) {
  return ds::boundary([&] { ds::need(work, "work").work->wait(); });
}

ds_status ds_work_test(const ds_work* work, int32_t* out_done) {
  return ds::boundary([&] {
    const ds::Work& started = *ds::need(work, "work").work;
    ds::need(out_done, "out_done") = started.done() ? 1 : 0;
  });
}

void ds_work_destroy(ds_work* work) { ds::destroy(work); }

ds_status ds_comm_log_start(ds_comm* comm) {
  return ds::boundary([&] { use(comm).start_log(); });
}

ds_status ds_comm_log(ds_comm* comm, ds_format format, char** out_text) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    ds::need(out_text, "out_text") = nullptr;
    bool json = ds::wants_json(format);
    std::vector<ds::CommTime> rows = group.times();
    ds::put_text(json ? ds::comm_log_json(rows).dump(1) : ds::comm_log_text(rows), out_text);
  });
}

ds_status ds_comm_flight_record(const ds_comm* comm, ds_format format, char** out_text) {
  return ds::boundary([&] {
    const ds::Communicator& group = *ds::need(comm, "comm").comm;
    ds::need(out_text, "out_text") = nullptr;
    bool json = ds::wants_json(format);
    ds::put_text(json ? group.flight().json().dump(1) : group.flight().text(), out_text);
  });
}
