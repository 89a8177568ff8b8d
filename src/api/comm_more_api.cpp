#include <cstdint>
#include <memory>
#include <span>

#include "api/boundary.h"
#include "api/comm_arguments.h"
#include "api/handles.h"
#include "comm/comm_log.h"
#include "comm/comm_thread.h"
#include "comm/communicator.h"

// Collectives over lists, started collectives, and what a comm tells about itself.
using ds::check_root;
using ds::use;

namespace {

// The lists of a coalesced call; names as ds.h has them.
template <typename Buffer>
std::span<Buffer const> list(Buffer const* buffers, std::span<const size_t> counts, const char* name,
                             const char* count_name) {
  ds::require(buffers != nullptr || counts.empty(), "{} must not be NULL with {} buffers", name,
              counts.size());
  for (size_t i = 0; i < counts.size(); ++i) {
    ds::require(buffers[i] != nullptr || counts[i] == 0, "{}[{}] must not be NULL with {}[{}] {}", name, i,
                count_name, i, counts[i]);
  }
  return {buffers, counts.size()};
}

std::span<const size_t> counts_of(const size_t* counts, size_t count, const char* name) {
  ds::need_array(counts, count, name);
  return {counts, count};
}

ds::CommRequest::Op operation(ds_comm_op op) {
  ds::require(op >= DS_COMM_OP_ALL_REDUCE && op <= DS_COMM_OP_BARRIER,
              "op must be one of ds_comm_op, 0 to {}, got {}", static_cast<int>(DS_COMM_OP_BARRIER),
              static_cast<int>(op));
  return static_cast<ds::CommRequest::Op>(op);
}

}  // namespace

ds_status ds_comm_all_reduce_coalesced(ds_comm* comm, const void* const* ins, const size_t* counts,
                                       size_t counts_count, ds_dtype dtype, ds_reduce_op op,
                                       void* const* outs) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    ds::check_types(dtype, op);
    std::span<const size_t> sizes = counts_of(counts, counts_count, "counts");
    group.all_reduce_coalesced(list(ins, sizes, "ins", "counts"), list(outs, sizes, "outs", "counts"), sizes,
                               dtype, "ds_comm_all_reduce_coalesced", static_cast<ds::ReduceOp>(op));
  });
}

ds_status ds_comm_all_gather_coalesced(ds_comm* comm, const void* const* ins, const size_t* sizes,
                                       size_t sizes_count, void* const* outs) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    std::span<const size_t> bytes = counts_of(sizes, sizes_count, "sizes");
    group.all_gather_coalesced(list(ins, bytes, "ins", "sizes"), list(outs, bytes, "outs", "sizes"), bytes,
                               "ds_comm_all_gather_coalesced");
  });
}

ds_status ds_comm_reduce_scatter_coalesced(ds_comm* comm, const void* const* ins, const size_t* counts,
                                           size_t counts_count, ds_dtype dtype, ds_reduce_op op,
                                           void* const* outs) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    ds::check_types(dtype, op);
    std::span<const size_t> sizes = counts_of(counts, counts_count, "counts");
    group.reduce_scatter_coalesced(list(ins, sizes, "ins", "counts"), list(outs, sizes, "outs", "counts"),
                                   sizes, dtype, "ds_comm_reduce_scatter_coalesced",
                                   static_cast<ds::ReduceOp>(op));
  });
}

ds_status ds_comm_broadcast_coalesced(ds_comm* comm, void* const* datas, const size_t* sizes,
                                      size_t sizes_count, int32_t root) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_root(group, root);
    std::span<const size_t> bytes = counts_of(sizes, sizes_count, "sizes");
    group.broadcast_coalesced(list(datas, bytes, "datas", "sizes"), bytes, root,
                              "ds_comm_broadcast_coalesced");
  });
}

ds_status ds_comm_start(ds_comm* comm, ds_comm_op op, const void* in, size_t count, ds_dtype dtype,
                        ds_reduce_op op_of_reduction, int32_t root, void* out, ds_work** out_work) {
  return ds::boundary([&] {
    ds::need(out_work, "out_work") = nullptr;
    ds::Communicator& group = use(comm);
    using Op = ds::CommRequest::Op;
    ds::CommRequest request{operation(op), in, out, count};
    if (request.op != Op::barrier) {
      ds::check_types(dtype, op_of_reduction);
      bool gives = request.op != Op::broadcast;
      ds::require(in != nullptr || count == 0 || !gives, "in must not be NULL with count {}", count);
      ds::require(out != nullptr || count == 0, "out must not be NULL with count {}", count);
      request.dtype = dtype;
      request.reduce = static_cast<ds::ReduceOp>(op_of_reduction);
    }
    if (request.op == Op::broadcast) check_root(group, request.root = root);
    auto handle = std::make_unique<ds_work>();
    handle->work = group.start(request, "ds_comm_start");
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

ds_status ds_comm_log(ds_comm* comm, char* buffer, size_t buffer_size, size_t* out_size) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    ds::need_text_out(buffer, buffer_size, out_size);
    ds::put_text(ds::comm_log_text(group.times()), buffer, buffer_size, out_size);
  });
}

ds_status ds_comm_flight_record(const ds_comm* comm, char* buffer, size_t buffer_size, size_t* out_size) {
  return ds::boundary([&] {
    const ds::Communicator& group = *ds::need(comm, "comm").comm;
    ds::need_text_out(buffer, buffer_size, out_size);
    ds::put_text(group.flight_record(), buffer, buffer_size, out_size);
  });
}
