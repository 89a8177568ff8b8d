#include "api/boundary.h"
#include "api/handles.h"

namespace {

constexpr ds_comm_options kDefaults = {sizeof(ds_comm_options), 0, 1, 300000, 60000};

ds::Communicator& use(ds_comm* comm) { return *ds::need(comm, "comm").comm; }

// Summed elements: a wire type and buffers for count elements each.
void check_sum(const void* in, size_t count, ds_dtype dtype, const void* out) {
  ds::require(dtype == DS_DTYPE_F32 || dtype == DS_DTYPE_BF16 || dtype == DS_DTYPE_F64,
              "dtype must be f32, bf16 or f64, got {}", static_cast<int>(dtype));
  ds::require(in != nullptr || count == 0, "in must not be NULL with count {}", count);
  ds::require(out != nullptr || count == 0, "out must not be NULL with count {}", count);
}

void check_bytes(const void* in, size_t bytes, const void* out) {
  ds::require(in != nullptr || bytes == 0, "in must not be NULL with {} bytes", bytes);
  ds::require(out != nullptr || bytes == 0, "out must not be NULL with {} bytes", bytes);
}

}  // namespace

ds_status ds_comm_options_init(ds_comm_options* options, size_t struct_size) {
  return ds::boundary([&] { ds::write_options(options, struct_size, &kDefaults, sizeof kDefaults); });
}

ds_status ds_comm_create(const char* url, const ds_comm_options* options, ds_comm** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    std::string_view where = ds::need_text(url, "url");
    ds_comm_options given = ds::read_options(options, kDefaults, "options");
    ds::require(given.size >= 1, "options.size must be at least 1, got {}", given.size);
    ds::require(given.rank >= 0 && given.rank < given.size, "options.rank must be 0 to {}, got {}",
                given.size - 1, given.rank);
    ds::require(given.timeout_ms > 0, "options.timeout_ms must be positive, got {}", given.timeout_ms);
    ds::require(given.join_ms > 0, "options.join_ms must be positive, got {}", given.join_ms);
    ds::CommOptions wanted{given.rank, given.size, given.timeout_ms, given.join_ms};
    auto handle = std::make_unique<ds_comm>();
    handle->comm = ds::create_communicator(where, wanted);
    *out = handle.release();
  });
}

int32_t ds_comm_rank(const ds_comm* comm) { return comm ? comm->comm->rank() : -1; }

int32_t ds_comm_size(const ds_comm* comm) { return comm ? comm->comm->size() : -1; }

ds_status ds_comm_all_gather(ds_comm* comm, const void* in, size_t in_size, void* out) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_bytes(in, in_size, out);
    group.all_gather(in, out, in_size, "ds_comm_all_gather");
  });
}

ds_status ds_comm_all_reduce(ds_comm* comm, const void* in, size_t count, ds_dtype dtype, void* out) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_sum(in, count, dtype, out);
    group.all_reduce(in, out, count, dtype, "ds_comm_all_reduce");
  });
}

ds_status ds_comm_reduce_scatter(ds_comm* comm, const void* in, size_t count, ds_dtype dtype, void* out) {
  return ds::boundary([&] {
    ds::Communicator& group = use(comm);
    check_sum(in, count, dtype, out);
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
    ds::require(data != nullptr || data_size == 0, "data must not be NULL with data_size {}", data_size);
    ds::require(root >= 0 && root < group.size(), "root must be 0 to {}, got {}", group.size() - 1, root);
    group.broadcast(data, data_size, root, "ds_comm_broadcast");
  });
}

ds_status ds_comm_barrier(ds_comm* comm) {
  return ds::boundary([&] { use(comm).barrier("ds_comm_barrier"); });
}

ds_status ds_comm_abort(ds_comm* comm, const char* reason) {
  return ds::boundary([&] { use(comm).abort(ds::need_text(reason, "reason")); });
}

void ds_comm_destroy(ds_comm* comm) { delete comm; }
