# Written by tools/bindings.py from include/ds.h; do not edit.
# What it declares, as it stands there.

const DS_VERSION_MAJOR = 0
const DS_VERSION_MINOR = 1
const DS_VERSION_PATCH = 0

# ds_status
const DS_OK = Int32(0)
const DS_ERROR_INVALID_ARGUMENT = Int32(-1)
const DS_ERROR_CONFIG = Int32(-2)
const DS_ERROR_NOT_FOUND = Int32(-3)
const DS_ERROR_STATE = Int32(-4)
const DS_ERROR_UNSUPPORTED = Int32(-5)
const DS_ERROR_OUT_OF_MEMORY = Int32(-6)
const DS_ERROR_IO = Int32(-7)
const DS_ERROR_CORRUPT = Int32(-8)
const DS_ERROR_COMM = Int32(-9)
const DS_ERROR_NUMERIC = Int32(-10)
const DS_ERROR_POISONED = Int32(-11)
const DS_ERROR_USER = Int32(-12)
const DS_ERROR_INTERNAL = Int32(-13)

# ds_dtype
const DS_DTYPE_NONE = Int32(0)
const DS_DTYPE_F32 = Int32(1)
const DS_DTYPE_BF16 = Int32(2)
const DS_DTYPE_F16 = Int32(3)
const DS_DTYPE_F64 = Int32(4)
const DS_DTYPE_I32 = Int32(5)
const DS_DTYPE_I64 = Int32(6)
const DS_DTYPE_U8 = Int32(7)

# ds_log_level
const DS_LOG_LEVEL_DEBUG = Int32(0)
const DS_LOG_LEVEL_INFO = Int32(1)
const DS_LOG_LEVEL_WARNING = Int32(2)
const DS_LOG_LEVEL_ERROR = Int32(3)

# ds_format
const DS_FORMAT_TEXT = Int32(0)
const DS_FORMAT_JSON = Int32(1)

# ds_reduce_op
const DS_REDUCE_OP_SUM = Int32(0)
const DS_REDUCE_OP_MEAN = Int32(1)
const DS_REDUCE_OP_MAX = Int32(2)
const DS_REDUCE_OP_MIN = Int32(3)

# ds_comm_op
const DS_COMM_OP_ALL_REDUCE = Int32(0)
const DS_COMM_OP_ALL_GATHER = Int32(1)
const DS_COMM_OP_REDUCE_SCATTER = Int32(2)
const DS_COMM_OP_ALL_TO_ALL = Int32(3)
const DS_COMM_OP_BROADCAST = Int32(4)
const DS_COMM_OP_BARRIER = Int32(5)
const DS_COMM_OP_REDUCE = Int32(6)
const DS_COMM_OP_GATHER = Int32(7)
const DS_COMM_OP_SCATTER = Int32(8)

mutable struct ds_comm end
mutable struct ds_work end
mutable struct ds_stream end
mutable struct ds_tensor end
mutable struct ds_graph end
mutable struct ds_plan end
mutable struct ds_engine end
mutable struct DLManagedTensor end
mutable struct DLManagedTensorVersioned end

"""
How to join a group.
"""
struct ds_comm_options
    struct_size::Csize_t
    rank::Int32
    size::Int32
    timeout_ms::Int64
    join_ms::Int64
end

"""
The collectives of another library, with ranks 0 to size - 1. Each blocks until this rank has sent and
received its bytes. All ranks call them in the same order, except that a send and a receive concern only two
ranks. All ranks set the same members. Pointers are valid inside the callback. With one rank, no callback but
destroy is called. The struct has no defaults and no _init function: fill it with zeros, set struct_size, then
the members.
"""
struct ds_comm_callbacks
    struct_size::Csize_t
    all_gather::Ptr{Cvoid}
    all_to_all::Ptr{Cvoid}
    send::Ptr{Cvoid}
    receive::Ptr{Cvoid}
    abort::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
    user_data::Ptr{Cvoid}
end

"""
A collective as data: any operation, over a list of buffers or over blocks of unequal size. All members except
`ins` and `outs` are the same on all ranks.
"""
struct ds_comm_call
    struct_size::Csize_t
    op::Int32
    dtype::Int32
    reduce::Int32
    root::Int32
    ins::Ptr{Ptr{Cvoid}}
    outs::Ptr{Ptr{Cvoid}}
    counts::Ptr{Csize_t}
    buffers_count::Csize_t
    blocks::Ptr{Csize_t}
    out_blocks::Ptr{Csize_t}
    blocks_count::Csize_t
end

"""
An operation whose work is done by callbacks. It has no defaults and no _init function: fill it with zeros,
set struct_size, then the members.
"""
struct ds_custom_op
    struct_size::Csize_t
    forward::Ptr{Cvoid}
    backward::Ptr{Cvoid}
    user_data::Ptr{Cvoid}
    destroy::Ptr{Cvoid}
    outputs_count::Csize_t
    dtypes::Ptr{Int32}
    dims_counts::Ptr{Csize_t}
    dims::Ptr{Int64}
end

"""
Consecutive elements of one parameter that a ds_update_fn updates. [borrowed: call]
"""
struct ds_update
    struct_size::Csize_t
    param::Int32
    first::Int64
    count::Csize_t
    values::Ptr{Cfloat}
    grads::Ptr{Cfloat}
    states::Ptr{Ptr{Cfloat}}
    states_count::Csize_t
    update::Int64
    lr::Cdouble
    weight_decay::Cdouble
    beta1::Cdouble
    beta2::Cdouble
    eps::Cdouble
    momentum::Cdouble
end

"""
The resources of an engine. Training options are JSON.
"""
struct ds_engine_options
    struct_size::Csize_t
    threads::Int32
    trace::Int32
    init::Ptr{Cvoid}
    init_user_data::Ptr{Cvoid}
    update::Ptr{Cvoid}
    update_user_data::Ptr{Cvoid}
end

"""
The outcome of the last step.
"""
struct ds_step_result
    struct_size::Csize_t
    step::Int64
    updates::Int64
    loss::Cdouble
    grad_norm::Cdouble
    lr::Cdouble
    skipped::Int32
    reserved::Int32
    loss_scale::Cdouble
    loss_scale_at_floor::Int32
    reserved_2::Int32
end

"""
State of a run after a step.
"""
struct ds_run_progress
    struct_size::Csize_t
    step::Int64
    steps::Int64
    loss::Cdouble
    heldout_loss::Cdouble
    grad_norm::Cdouble
    lr::Cdouble
    tokens_per_second::Cdouble
    next_lr::Ptr{Cdouble}
    samples::Int64
    loss_scale::Cdouble
end

"""
Returns the version of the library as \"major.minor.patch\". [threadsafe] The text lives as long as the
process.
"""
function ds_version()
    @ccall libds.ds_version()::Cstring
end

"""
Returns the name of a status, for example \"invalid argument\". [threadsafe] The text lives as long as the
process.
"""
function ds_status_name(status)
    @ccall libds.ds_status_name(status::Int32)::Cstring
end

"""
Returns the message of the last call that failed on this thread, or \"\" if none has. [threadsafe] The text is
valid until the next failing call on this thread.
"""
function ds_last_error_message()
    @ccall libds.ds_last_error_message()::Cstring
end

"""
Tells programs what the last error message of this thread is about: the configuration key (dotted), the
parameter or tensor, and the rank, as far as the message names one; otherwise \"\", \"\" and -1. [threadsafe]
The texts are valid as long as the message.
- `out_key`: [out] [nullable]
- `out_tensor`: [out] [nullable]
- `out_rank`: [out] [nullable]
"""
function ds_last_error_details(out_key, out_tensor, out_rank)
    @ccall libds.ds_last_error_details(out_key::Ptr{Ptr{Cchar}}, out_tensor::Ptr{Ptr{Cchar}}, out_rank::Ptr{Int32})::Cvoid
end

"""
Sends the log lines of this process to fn. NULL restores the default: warnings and errors go to stderr.
- `fn`: [nullable]
- `user_data`: [nullable] passed to fn
"""
function ds_log_set_fn(fn, user_data)
    @ccall libds.ds_log_set_fn(fn::Ptr{Cvoid}, user_data::Ptr{Cvoid})::Int32
end

"""
Frees a text that a call has returned.
- `text`: [nullable] [threadsafe]
"""
function ds_text_destroy(text)
    @ccall libds.ds_text_destroy(text::Ptr{Cchar})::Cvoid
end

"""
Describes this machine and build: instruction sets, which kernels run and why, libraries, cores and memory.
"""
function ds_env_report(format, out_text)
    @ccall libds.ds_env_report(format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Fills in the defaults: rank 0 of 1.
- `struct_size`: sizeof(ds_comm_options) of the caller
"""
function ds_comm_options_init(options, struct_size)
    @ccall libds.ds_comm_options_init(options::Ptr{ds_comm_options}, struct_size::Csize_t)::Int32
end

"""
Joins a group of ranks. Collective.
- `url`: \"self\" (one rank), \"threads://NAME\" (ranks are threads of this process), \"shm://NAME\"
  (processes of one host), \"mpi\" (the job that mpirun or srun started, on any hosts; needs the job's own
  rank and size), \"tcp://HOST:PORT\", with or without \"/JOB\" (rank 0 listens there while the ranks of that
  job meet, on any hosts), \"tcp:///PATH\" (rank 0 writes its address to this file, in a folder that all ranks
  see), \"tcp\" (as MASTER_ADDR and MASTER_PORT say), \"env\" (what `libds launch`, torchrun, mpirun or srun
  put into the environment; one rank if they did not), \"env:URL\" (rank and size from the environment, over
  URL). mpi and tcp are plugins, libds_NAME.so; any other NAME or \"NAME://ADDRESS\" is looked for in the same
  way (ds_plugin.h)
- `options`: [nullable]
- `out`: [out] [owned]
Returns DS_ERROR_COMM if a rank is missing after join_ms, if two ranks claim the same number, or if ranks
differ in size or version.
"""
function ds_comm_create(url, options, out)
    @ccall libds.ds_comm_create(url::Cstring, options::Ptr{ds_comm_options}, out::Ptr{Ptr{ds_comm}})::Int32
end

"""
Creates a comm over the collectives of the caller, which keeps its own process groups. They only move bytes.
libds forms the sums, in its own order, and compares the calls of all ranks, so results have the same bits as
over every url. Callbacks run on the thread that is inside a call of the comm, of a comm split from it, or of
an engine on either; a collective that ds_comm_submit starts has therefore ended when it returns. A call with
one of these handles inside a callback returns DS_ERROR_STATE. A handle that a callback destroys ends with the
outermost call on that thread. A device whose work has threads of its own refuses such a comm. Collective.
libds cannot see a rank that the callbacks wait for, so time-outs are those of the callbacks, and timeout_ms
and join_ms of the options are not used. If a callback returns an error, the call ends with DS_ERROR_COMM, and
so does every later one. `destroy` is called once, inside the destroy call that ends the last handle that uses
the comm.
- `callbacks`: copied
- `options`: rank and size
- `out`: [out] [owned]
Returns After an error, user_data remains yours. DS_ERROR_COMM if ranks differ in size, version or callbacks,
or if all_gather or all_to_all delivers other bytes than were sent when they are tried here; the message names
a rank. Without `send` and `receive`, ds_comm_send, ds_comm_receive and ds_comm_split return
DS_ERROR_UNSUPPORTED.
"""
function ds_comm_create_from_callbacks(callbacks, options, out)
    @ccall libds.ds_comm_create_from_callbacks(callbacks::Ptr{ds_comm_callbacks}, options::Ptr{ds_comm_options}, out::Ptr{Ptr{ds_comm}})::Int32
end

"""
Returns this rank, 0 to size - 1, or -1 if comm is NULL.
"""
function ds_comm_rank(comm)
    @ccall libds.ds_comm_rank(comm::Ptr{ds_comm})::Int32
end

"""
Returns the number of ranks, or -1 if comm is NULL.
"""
function ds_comm_size(comm)
    @ccall libds.ds_comm_size(comm::Ptr{ds_comm})::Int32
end

"""
Concatenates every rank's `in` (in_size bytes) in rank order into `out` (in_size * size bytes). Collective.
"""
function ds_comm_all_gather(comm, in_, in_size, out)
    @ccall libds.ds_comm_all_gather(comm::Ptr{ds_comm}, in_::Ptr{Cvoid}, in_size::Csize_t, out::Ptr{Cvoid})::Int32
end

"""
Sums `count` elements over all ranks as a balanced tree in rank order, so that every transport gives the same
bits. f32, bf16 and f16 are summed in f32, other types in their own type; integers wrap around. Collective.
- `in`: f32, bf16, f16, f64, i32, i64 or u8
- `out`: f32 elements if `in` is bf16 or f16, in memory that does not overlap it; otherwise elements of the
  type of `in`, and out may be the same buffer.
"""
function ds_comm_all_reduce(comm, in_, count, dtype, out)
    @ccall libds.ds_comm_all_reduce(comm::Ptr{ds_comm}, in_::Ptr{Cvoid}, count::Csize_t, dtype::Int32, out::Ptr{Cvoid})::Int32
end

"""
Sums size * count elements as ds_comm_all_reduce does. Rank r gets the elements [r * count, (r + 1) * count).
Collective.
"""
function ds_comm_reduce_scatter(comm, in_, count, dtype, out)
    @ccall libds.ds_comm_reduce_scatter(comm::Ptr{ds_comm}, in_::Ptr{Cvoid}, count::Csize_t, dtype::Int32, out::Ptr{Cvoid})::Int32
end

"""
Sends block b of `in` to rank b and receives block r of `out` from rank r. Each block has block_size bytes.
Collective.
"""
function ds_comm_all_to_all(comm, in_, block_size, out)
    @ccall libds.ds_comm_all_to_all(comm::Ptr{ds_comm}, in_::Ptr{Cvoid}, block_size::Csize_t, out::Ptr{Cvoid})::Int32
end

"""
Copies data_size bytes from rank `root` to all ranks. Collective.
"""
function ds_comm_broadcast(comm, data, data_size, root)
    @ccall libds.ds_comm_broadcast(comm::Ptr{ds_comm}, data::Ptr{Cvoid}, data_size::Csize_t, root::Int32)::Int32
end

"""
Sends data_size bytes to rank `to`, which calls ds_comm_receive with the same size. If two ranks send to each
other at once, both get DS_ERROR_COMM.
"""
function ds_comm_send(comm, data, data_size, to)
    @ccall libds.ds_comm_send(comm::Ptr{ds_comm}, data::Ptr{Cvoid}, data_size::Csize_t, to::Int32)::Int32
end

"""
Receives data_size bytes that rank `from` sends. If the sizes differ, both ranks get DS_ERROR_COMM.
"""
function ds_comm_receive(comm, data, data_size, from)
    @ccall libds.ds_comm_receive(comm::Ptr{ds_comm}, data::Ptr{Cvoid}, data_size::Csize_t, from::Int32)::Int32
end

"""
Splits the group: the ranks that give the same color form a group, ordered by key, then by rank. Collective.
An abort of this group also ends the groups split from it. Over a plugin and over callbacks, whatever ends one
of these groups ends all of them.
- `color`: negative: this rank joins no group, and *out is NULL
- `out`: [out] [owned]
"""
function ds_comm_split(comm, color, key, out)
    @ccall libds.ds_comm_split(comm::Ptr{ds_comm}, color::Int32, key::Int32, out::Ptr{Ptr{ds_comm}})::Int32
end

"""
Returns when every rank has called it. Collective.
"""
function ds_comm_barrier(comm)
    @ccall libds.ds_comm_barrier(comm::Ptr{ds_comm})::Int32
end

"""
Ends the current and every later collective of all ranks with DS_ERROR_COMM and this reason. [threadsafe]
"""
function ds_comm_abort(comm, reason)
    @ccall libds.ds_comm_abort(comm::Ptr{ds_comm}, reason::Cstring)::Int32
end

"""
Fills in the defaults.
- `struct_size`: sizeof(ds_comm_call) of the caller
"""
function ds_comm_call_init(call, struct_size)
    @ccall libds.ds_comm_call_init(call::Ptr{ds_comm_call}, struct_size::Csize_t)::Int32
end

"""
Runs a collective, or starts it. A list is one collective over its buffers, and each buffer gets the bits of a
call of its own. A list is faster than single calls if its buffers are small, except that reduce, gather,
scatter and all_to_all run one buffer after the other. Collective. With out_work, the call starts the
collective and returns; a thread of the comm runs it after everything that was started before. Started
collectives run in the order of these calls. A direct collective on this comm, or on a comm related to it by a
split, first waits for them. ds_comm_abort ends them like any other collective. A rank that leaves the group
by a destroy gives up its started collectives that have not ended. The buffers are lent to the comm until
ds_work_wait has returned, a later direct collective has returned DS_OK, or the rank has left the group; then
they are yours again. The loan does not end with ds_comm_abort, with another started collective or with a call
that only tells facts about the comm. The call struct and its lists are copied.
- `out_work`: [out] [nullable] [owned] NULL: the call returns when the collective has ended.
Returns DS_ERROR_INVALID_ARGUMENT if the call contradicts itself; nothing is started then, and the comm stays
usable. DS_ERROR_COMM if a rank of an all_to_all sends another number of elements than its peer expects; the
message names both.
"""
function ds_comm_submit(comm, call, out_work)
    @ccall libds.ds_comm_submit(comm::Ptr{ds_comm}, call::Ptr{ds_comm_call}, out_work::Ptr{Ptr{ds_work}})::Int32
end

"""
Waits until a started collective has ended and returns its status. You may call it again. [threadsafe]
"""
function ds_work_wait(work)
    @ccall libds.ds_work_wait(work::Ptr{ds_work})::Int32
end

"""
Tells whether a started collective has ended, well or not, without waiting.
- `out_done`: [out] 0 or 1 [threadsafe]
"""
function ds_work_test(work, out_done)
    @ccall libds.ds_work_test(work::Ptr{ds_work}, out_done::Ptr{Int32})::Int32
end

"""
Destroys the handle; the collective goes on.
- `work`: [nullable]
"""
function ds_work_destroy(work)
    @ccall libds.ds_work_destroy(work::Ptr{ds_work})::Cvoid
end

"""
Starts to time the collectives of this comm, and of comms that are split from it afterwards. Collective: call
it between the same collectives on all ranks. Every 1024th collective then also compares times between ranks.
"""
function ds_comm_log_start(comm)
    @ccall libds.ds_comm_log_start(comm::Ptr{ds_comm})::Int32
end

"""
Writes a table of what this rank's collectives have cost, by operation and size: calls, bytes, time, algorithm
and bus bandwidth, and time spent waiting for the slowest rank (docs/reference/communication.md). Collective.
Returns DS_ERROR_STATE before ds_comm_log_start.
"""
function ds_comm_log(comm, format, out_text)
    @ccall libds.ds_comm_log(comm::Ptr{ds_comm}, format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Lists the last 64 operations of this rank on this comm and on comms related to it by a split, oldest first,
each with its state (running, done or failed). If such a group ends with an error, the text is also saved as
rank_N.txt in the folder that the environment variable DS_FLIGHT_DIR names. [threadsafe]
"""
function ds_comm_flight_record(comm, format, out_text)
    @ccall libds.ds_comm_flight_record(comm::Ptr{ds_comm}, format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Leaves the group.
- `comm`: [nullable]
"""
function ds_comm_destroy(comm)
    @ccall libds.ds_comm_destroy(comm::Ptr{ds_comm})::Cvoid
end

"""
Creates a stream on the device of an engine. The stream goes on working, and you may destroy it, after the
engine is gone. If the engine fails in a step, its streams are unusable, too, and calls with them return
DS_ERROR_POISONED.
- `out`: [out] [owned]
Returns DS_ERROR_UNSUPPORTED if the memory of the device is the host's, where every stream is NULL.
"""
function ds_stream_create(engine, out)
    @ccall libds.ds_stream_create(engine::Ptr{ds_engine}, out::Ptr{Ptr{ds_stream}})::Int32
end

"""
Returns when the stream has done all the work that it has been given.
"""
function ds_stream_synchronize(stream)
    @ccall libds.ds_stream_synchronize(stream::Ptr{ds_stream})::Int32
end

"""
Finishes the work of the stream and destroys it.
- `stream`: [nullable]
"""
function ds_stream_destroy(stream)
    @ccall libds.ds_stream_destroy(stream::Ptr{ds_stream})::Cvoid
end

"""
Creates a tensor of up to 8 dimensions, in memory of the host or, with a stream, of the stream's device.
- `strides`: [nullable] distances between neighbours in each dimension, in elements and of any sign; data is
  then the element at index 0. NULL: compact and row-major
- `data`: [nullable] borrowed memory; keep it until the tensor is destroyed. NULL: the tensor has its own
  memory, compact and filled with zeros
- `stream`: [nullable] names the device
- `out`: [out] [owned]
"""
function ds_tensor_create(dtype, dims, dims_count, strides, data, stream, out)
    @ccall libds.ds_tensor_create(dtype::Int32, dims::Ptr{Int64}, dims_count::Csize_t, strides::Ptr{Int64}, data::Ptr{Cvoid}, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Creates a tensor from a DLPack tensor of f32, f64, bf16, f16, i32, i64 or u8 with any strides, without a copy.
Its memory is on the CPU or, with a stream, on the CPU or the stream's device. Its deleter runs when the
tensor is destroyed and streams that work with it have been synchronized or destroyed; after an error it still
belongs to you. Give exactly one of managed and versioned.
- `managed`: [nullable]
- `versioned`: [nullable] a tensor of DLPack 1.x. If it is read-only, a copy to it is refused.
- `stream`: [nullable]
- `out`: [out] [owned]
"""
function ds_tensor_from_dlpack(managed, versioned, stream, out)
    @ccall libds.ds_tensor_from_dlpack(managed::Ptr{DLManagedTensor}, versioned::Ptr{DLManagedTensorVersioned}, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Creates a DLPack tensor over the same memory, without a copy. It keeps the memory alive after
ds_tensor_destroy. Give exactly one of out and out_versioned. A tensor on \"cuda:N\" gets device type 2
(kDLCUDA) and number N, one on another device type 12 (kDLExtDev).
- `out`: [out] [nullable] the consumer calls its deleter. A tensor that is read-only is refused.
- `out_versioned`: [out] [nullable] the same in the form of DLPack 1.x
"""
function ds_tensor_to_dlpack(tensor, out, out_versioned)
    @ccall libds.ds_tensor_to_dlpack(tensor::Ptr{ds_tensor}, out::Ptr{Ptr{DLManagedTensor}}, out_versioned::Ptr{Ptr{DLManagedTensorVersioned}})::Int32
end

"""
Describes a tensor: element type, dimensions and strides (up to dims_size of each are written), device
(\"cpu\" or another name of the configuration's key `device`) and address. All outputs [nullable].
- `out_strides`: [out] in elements
- `out_device`: [out] lives as long as the process
- `out_data`: [out] [borrowed: tensor] an address for the device; the host can use it on \"cpu\" only
"""
function ds_tensor_info(tensor, out_dtype, out_dims, out_strides, dims_size, out_dims_count, out_device, out_data)
    @ccall libds.ds_tensor_info(tensor::Ptr{ds_tensor}, out_dtype::Ptr{Int32}, out_dims::Ptr{Int64}, out_strides::Ptr{Int64}, dims_size::Csize_t, out_dims_count::Ptr{Csize_t}, out_device::Ptr{Ptr{Cchar}}, out_data::Ptr{Ptr{Cvoid}})::Int32
end

"""
Copies all elements between tensors of one element type and shape, whatever their strides and devices. The
tensors may overlap if both are compact. A copy between two devices is refused.
- `stream`: [nullable] of the device that one of them is on
"""
function ds_tensor_copy(to, from, stream)
    @ccall libds.ds_tensor_copy(to::Ptr{ds_tensor}, from::Ptr{ds_tensor}, stream::Ptr{ds_stream})::Int32
end

"""
Destroys the tensor.
- `tensor`: [nullable]
"""
function ds_tensor_destroy(tensor)
    @ccall libds.ds_tensor_destroy(tensor::Ptr{ds_tensor})::Cvoid
end

"""
Creates an empty model graph. The calls below identify values by numbers. docs/reference/ops.md lists the
operations.
- `bound`: largest number of rows n of one micro-step
- `out`: [out] [owned]
"""
function ds_graph_create(name, bound, out)
    @ccall libds.ds_graph_create(name::Cstring, bound::Int64, out::Ptr{Ptr{ds_graph}})::Int32
end

"""
Creates the graph that the `model` section of a configuration describes.
- `config`: JSON text
- `size`: ranks that will train it: the micro-batch, and with it the bound, can depend on it
- `out`: [out] [owned]
"""
function ds_graph_from_config(config, size, out)
    @ccall libds.ds_graph_from_config(config::Cstring, size::Int32, out::Ptr{Ptr{ds_graph}})::Int32
end

"""
Reads the text form that ds_graph_print writes.
- `out`: [out] [owned]
"""
function ds_graph_parse(text, out)
    @ccall libds.ds_graph_parse(text::Cstring, out::Ptr{Ptr{ds_graph}})::Int32
end

"""
Writes the text form of a graph.
"""
function ds_graph_print(graph, out_text)
    @ccall libds.ds_graph_print(graph::Ptr{ds_graph}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Adds an input. At most one dimension is -1, which means n, the rows of a micro-step. In an engine whose
compute type is bf16 or f16, inputs declared as f32 have the compute type, unless all operations read them as
an operand of type A (docs/reference/ops.md).
- `out`: [out] its value
"""
function ds_graph_input(graph, name, dtype, dims, dims_count, out)
    @ccall libds.ds_graph_input(graph::Ptr{ds_graph}, name::Cstring, dtype::Int32, dims::Ptr{Int64}, dims_count::Csize_t, out::Ptr{Int32})::Int32
end

"""
Adds an f32 parameter. A parameter with a dimension of 0 is empty; no operation accepts it.
- `init`: \"zeros\", \"ones\", \"normal\" or \"uniform\"
- `scale`: standard deviation of \"normal\", or largest magnitude of \"uniform\"
- `out`: [out] its value
"""
function ds_graph_param(graph, name, dims, dims_count, init, scale, out)
    @ccall libds.ds_graph_param(graph::Ptr{ds_graph}, name::Cstring, dims::Ptr{Int64}, dims_count::Csize_t, init::Cstring, scale::Cdouble, out::Ptr{Int32})::Int32
end

"""
Describes the operations that ds_graph_op knows, as JSON: operands, results and attributes with their types,
defaults and meaning. docs/reference/ops.md names the members. [threadsafe]
"""
function ds_op_schema(out_text)
    @ccall libds.ds_op_schema(out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Adds an operation.
- `op`: name in docs/reference/ops.md
- `inputs`: values
- `attrs`: [nullable] JSON object, for example {\"eps\": 1e-5}
- `out`: [out] its first output; further outputs are the numbers after it
"""
function ds_graph_op(graph, op, inputs, inputs_count, attrs, out)
    @ccall libds.ds_graph_op(graph::Ptr{ds_graph}, op::Cstring, inputs::Ptr{Int32}, inputs_count::Csize_t, attrs::Cstring, out::Ptr{Int32})::Int32
end

"""
Adds a custom operation. Its callbacks run on the thread that is inside a call of the engine, in training,
evaluation and inference, and again when a skipped step looks for its first bad tensor; a rank without samples
(ds_engine_join) does not call them. Calls with that engine return DS_ERROR_STATE inside a callback. Let
callbacks compute the same on all ranks. If a callback fails, the call returns DS_ERROR_USER on this rank, the
others get DS_ERROR_COMM as soon as they communicate, and the engines are poisoned. The graph, its copies in
engines and plans share user_data. `destroy` is called once, inside the destroy call that ends the last of
them. An operation that is refused leaves user_data to you. The text form shows the operation, but
ds_graph_parse refuses it. On a device other than \"cpu\", whose threads are not yours, engines and plans
return DS_ERROR_UNSUPPORTED.
- `name`: the name of the operation in texts and messages
- `op`: copied
- `inputs`: up to 64 values
- `out`: [out] its first output; further outputs are the numbers after it
Returns Engines and plans return DS_ERROR_INVALID_ARGUMENT if a gradient has to pass an operation without
`backward`.
"""
function ds_graph_custom_op(graph, name, op, inputs, inputs_count, out)
    @ccall libds.ds_graph_custom_op(graph::Ptr{ds_graph}, name::Cstring, op::Ptr{ds_custom_op}, inputs::Ptr{Int32}, inputs_count::Csize_t, out::Ptr{Int32})::Int32
end

"""
Tells the element type and the dimensions of a value. At most dims_size dimensions are written; -1 is n. All
outputs are [nullable].
"""
function ds_graph_value_info(graph, value, out_dtype, out_dims, dims_size, out_dims_count)
    @ccall libds.ds_graph_value_info(graph::Ptr{ds_graph}, value::Int32, out_dtype::Ptr{Int32}, out_dims::Ptr{Int64}, dims_size::Csize_t, out_dims_count::Ptr{Csize_t})::Int32
end

"""
Makes a value the next output. The value may also be an input or a parameter. Output 0 of a graph that is
trained is its scalar loss, and ds_infer returns output 1.
- `name`: unlike the names of the other outputs
"""
function ds_graph_output(graph, name, value)
    @ccall libds.ds_graph_output(graph::Ptr{ds_graph}, name::Cstring, value::Int32)::Int32
end

"""
Finds a value by the name of an output, or else by the name of an input, a parameter or a result.
- `out`: [out] its value
Returns DS_ERROR_NOT_FOUND if there is none; the message names the nearest name.
"""
function ds_graph_find(graph, name, out)
    @ccall libds.ds_graph_find(graph::Ptr{ds_graph}, name::Cstring, out::Ptr{Int32})::Int32
end

"""
Appends the gradients of scalar `loss` by `values` (parameters, inputs or intermediate results), once per
graph. Training does not need this call, because an engine differentiates its copy by itself; a differentiated
graph is for printing and study.
- `out`: [out] values_count gradients, -1 where loss does not depend on the value
"""
function ds_graph_grad(graph, loss, values, values_count, out)
    @ccall libds.ds_graph_grad(graph::Ptr{ds_graph}, loss::Int32, values::Ptr{Int32}, values_count::Csize_t, out::Ptr{Int32})::Int32
end

"""
Destroys the graph.
- `graph`: [nullable]
"""
function ds_graph_destroy(graph)
    @ccall libds.ds_graph_destroy(graph::Ptr{ds_graph})::Cvoid
end

"""
Compiles the plan that an engine with this configuration and graph has on one rank of a group, or a run of
this configuration if graph is NULL. It can be done on any machine: the call neither allocates the memory of
the plan nor communicates. A plan that exceeds memory_budget is not an error of the call; its report says so.
- `config`: JSON text
- `graph`: [nullable] NULL: the configuration's model
- `out`: [out] [owned]
"""
function ds_plan_create(config, graph, rank, size, out)
    @ccall libds.ds_plan_create(config::Cstring, graph::Ptr{ds_graph}, rank::Int32, size::Int32, out::Ptr{Ptr{ds_plan}})::Int32
end

"""
Reports whether the plan fits this machine and memory_budget, and what would make it fit; parameters, tokens
per step, the largest tensors, bytes per tier and kind, instructions per queue, and collectives. The first
line of the text begins with \"fits: \" or \"does not fit: \".
"""
function ds_plan_report(plan, format, out_text)
    @ccall libds.ds_plan_report(plan::Ptr{ds_plan}, format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Prints the step program in its text form.
"""
function ds_plan_print(plan, out_text)
    @ccall libds.ds_plan_print(plan::Ptr{ds_plan}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Draws an SVG document: what each queue of a rank does during a step, above the bytes in use, for 1 to 16 plans
side by side on the same scales. Order and memory are those of the plan. The times are those of the machine
that plans assume, which the picture names.
"""
function ds_plan_picture(plans, count, out_text)
    @ccall libds.ds_plan_picture(plans::Ptr{Ptr{ds_plan}}, count::Csize_t, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Prints the certificate of a plan: the programs of all ranks as text, and what they claim about memory,
lifetimes, traffic and the order of collectives. It is meant for a checker that shares no code with the
compiler (docs/concepts/certificate.md).
- `plans`: one for each rank, in the order of ranks
"""
function ds_plan_certificate(plans, count, out_text)
    @ccall libds.ds_plan_certificate(plans::Ptr{Ptr{ds_plan}}, count::Csize_t, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Destroys the plan.
- `plan`: [nullable]
"""
function ds_plan_destroy(plan)
    @ccall libds.ds_plan_destroy(plan::Ptr{ds_plan})::Cvoid
end

"""
Fills in the defaults.
- `struct_size`: sizeof(ds_engine_options) of the caller
"""
function ds_engine_options_init(options, struct_size)
    @ccall libds.ds_engine_options_init(options::Ptr{ds_engine_options}, struct_size::Csize_t)::Int32
end

"""
Creates a training engine. Plans its memory, checks the plan against memory_budget and allocates the memory
(in delegate mode, ds_engine_start does this). Collective.
- `comm`: [nullable] NULL: one rank. The engine uses it until it is destroyed.
- `config`: JSON text (docs/reference/config.md)
- `graph`: [nullable] copied; NULL: delegate mode, in which ds_engine_param_add adds the parameters
- `options`: [nullable]
- `out`: [out] [owned]
Returns DS_ERROR_CONFIG if the configuration is wrong, or if ranks have different ones.
DS_ERROR_OUT_OF_MEMORY, with a table in the message, if a budget is too small.
"""
function ds_engine_create(comm, config, graph, options, out)
    @ccall libds.ds_engine_create(comm::Ptr{ds_comm}, config::Cstring, graph::Ptr{ds_graph}, options::Ptr{ds_engine_options}, out::Ptr{Ptr{ds_engine}})::Int32
end

"""
Trains one step. Inputs are in graph order, each with gradient_accumulation_steps micro-batches one after the
other in the first dimension; give NULL for an input that the loss does not depend on. They lie on the host,
or compact on the engine's device. Collective. A step whose loss or gradients are not finite is skipped: the
call returns DS_OK, parameters and states stay as they were, ds_engine_last_step says so, and
ds_engine_skip_reason names the first such tensor. With loss_average \"tokens\", so is a step without any
target.
- `stream`: [nullable]
- `out_loss`: [out] [nullable] mean loss over all ranks, as the configuration's loss_average has it
"""
function ds_train_batch(engine, inputs, inputs_count, stream, out_loss)
    @ccall libds.ds_train_batch(engine::Ptr{ds_engine}, inputs::Ptr{Ptr{ds_tensor}}, inputs_count::Csize_t, stream::Ptr{ds_stream}, out_loss::Ptr{Cdouble})::Int32
end

"""
For a rank that has no data left in this epoch: takes part in the steps of the other ranks, without samples of
its own, until all ranks have called it. After that, all ranks can train on data again. Loss and gradient of
such a step are means over the samples, or targets, of the ranks that have data. In its first such step, a
rank must have the same numbers (ds_engine_set) as the other ranks, set before its call, or all ranks get
DS_ERROR_CONFIG; in later steps it uses the numbers that the others set. Native mode. Collective with the
steps of the other ranks and with their call of this function.
- `out_steps`: [out] [nullable] steps that this rank took part in, including skipped ones
"""
function ds_engine_join(engine, out_steps)
    @ccall libds.ds_engine_join(engine::Ptr{ds_engine}, out_steps::Ptr{Int64})::Int32
end

"""
A step in pieces: ds_forward and ds_backward gradient_accumulation_steps times, then ds_step. It has the same
bits as ds_train_batch. Any other order of these calls is DS_ERROR_STATE. Collective. In delegate mode
ds_forward is not used, and ds_backward ends a micro-step: the gradient of a parameter that was not handed
over counts as zero.
- `stream`: [nullable]
- `out_loss`: [out] [nullable] this rank's loss of this micro-batch
"""
function ds_forward(engine, inputs, inputs_count, stream, out_loss)
    @ccall libds.ds_forward(engine::Ptr{ds_engine}, inputs::Ptr{Ptr{ds_tensor}}, inputs_count::Csize_t, stream::Ptr{ds_stream}, out_loss::Ptr{Cdouble})::Int32
end

function ds_backward(engine)
    @ccall libds.ds_backward(engine::Ptr{ds_engine})::Int32
end

function ds_step(engine)
    @ccall libds.ds_step(engine::Ptr{ds_engine})::Int32
end

"""
Computes the loss of one micro-batch without dropout, as the mean over ranks; with loss_average \"tokens\"
over the targets of all ranks, 0 if there are none. With adapters, it runs with the one that ds_engine_set
chose, as ds_infer does. Collective.
- `stream`: [nullable]
"""
function ds_eval_batch(engine, inputs, inputs_count, stream, out_loss)
    @ccall libds.ds_eval_batch(engine::Ptr{ds_engine}, inputs::Ptr{Ptr{ds_tensor}}, inputs_count::Csize_t, stream::Ptr{ds_stream}, out_loss::Ptr{Cdouble})::Int32
end

"""
Computes output 1 of the graph for one micro-batch, as f32; with the key \"inferred\" the loss of each target,
-log p. Collective.
- `inputs`: in graph order; NULL for one that it does not depend on
- `stream`: [nullable]
- `out`: [out] [owned] on the host, or with a stream on the engine's device
"""
function ds_infer(engine, inputs, inputs_count, stream, out)
    @ccall libds.ds_infer(engine::Ptr{ds_engine}, inputs::Ptr{Ptr{ds_tensor}}, inputs_count::Csize_t, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Delegate mode: registers a parameter. Parameters are numbered in the order of these calls. A parameter with a
dimension of 0 is empty. The values are zeros, or those that options.init sets.
- `dtype`: the type of its views and gradients: DS_DTYPE_NONE for the compute type of the configuration, or
  DS_DTYPE_F32, for example for the router of a model in bf16.
- `out`: [out] number of the parameter
Returns DS_ERROR_STATE after ds_engine_start.
"""
function ds_engine_param_add(engine, name, dtype, dims, dims_count, out)
    @ccall libds.ds_engine_param_add(engine::Ptr{ds_engine}, name::Cstring, dtype::Int32, dims::Ptr{Int64}, dims_count::Csize_t, out::Ptr{Int32})::Int32
end

"""
Delegate mode: ends the registration, plans the memory, checks the plan against memory_budget and allocates
the memory. Call it once, before every call below and all calls that read or change parameters, states or
checkpoints; until then these return DS_ERROR_STATE. Collective, with the same parameters on all ranks;
otherwise all ranks get DS_ERROR_CONFIG. After DS_ERROR_USER the engine is poisoned.
Returns DS_ERROR_OUT_OF_MEMORY, with a table in the message, if a budget is too small.
"""
function ds_engine_start(engine)
    @ccall libds.ds_engine_start(engine::Ptr{ds_engine})::Int32
end

"""
Leases whole parameters in the compute type. A lease ends when the parameter has been released as often as
gathered. Collective: all ranks make the calls of delegate mode in the same order with the same parameters. If
the order differs between ranks, all of them get DS_ERROR_COMM, in ds_step at the latest and before it updates
anything; no rank hangs. The order may change at any call and from step to step. A step is fastest if it
repeats the order of the one before. A step begins with its first gradient or ds_backward, so the leases
before that can just as well be those of an evaluation. Until then you may read and save parameters at any
time, and load, write, freeze and refresh them while none is leased.
- `stream`: [nullable] its work from here on sees the values
"""
function ds_gather_params(engine, params, params_count, stream)
    @ccall libds.ds_gather_params(engine::Ptr{ds_engine}, params::Ptr{Int32}, params_count::Csize_t, stream::Ptr{ds_stream})::Int32
end

"""
Returns a tensor over the leased values, which stay at the same address until the last release of the
parameter. A parameter that no rank partitions (all at ZeRO stages 0 to 2, small ones at stage 3) needs no
lease: a view of the engine's own memory shows its values at one address until the engine ends, after every
step, load, write and refresh. On a GPU, get such views anew after ds_engine_freeze. Use ds_engine_write to
change the parameter: what you write to a view reaches no master.
- `stream`: [nullable] NULL: a tensor on the host, which is a copy if the memory of the device is not the
  host's; otherwise the device's own tensor, for work of this stream
- `out`: [out] [owned] tensor whose memory is [borrowed: lease]. After the lease, and even after the engine,
  you may still read it, but its values are undefined.
"""
function ds_engine_param_view(engine, param, stream, out)
    @ccall libds.ds_engine_param_view(engine::Ptr{ds_engine}, param::Int32, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Ends leases, at any time before ds_step, also after the last ds_backward. Collective.
- `stream`: [nullable] its work up to here still sees the values
Returns DS_ERROR_STATE if a parameter is released more often than it has leases; nothing changes then.
"""
function ds_release_params(engine, params, params_count, stream)
    @ccall libds.ds_release_params(engine::Ptr{ds_engine}, params::Ptr{Int32}, params_count::Csize_t, stream::Ptr{ds_stream})::Int32
end

"""
Delegate mode, between steps and without leases: announces that what follows is an evaluation (1), or training
again (0). An engine begins with training. Leases of an evaluation do not count as the order of a step, and
gradients, ds_backward and ds_step return DS_ERROR_STATE. An evaluation that you do not announce costs
prefetches, but never changes results. Collective.
"""
function ds_engine_evaluate(engine, on)
    @ccall libds.ds_engine_evaluate(engine::Ptr{ds_engine}, on::Int32)::Int32
end

"""
Delegate mode, without leases: forgets the gradients and micro-steps of the current step, for example after an
error in the host's backward pass. The next gradient begins the step anew, as if the forgotten calls had not
been made. Between steps it does nothing. Collective.
"""
function ds_engine_drop_step(engine)
    @ccall libds.ds_engine_drop_step(engine::Ptr{ds_engine})::Int32
end

"""
Gives the place for this rank's gradient of a parameter in the running micro-step, in the compute type. Write
the gradient there and hand the tensor to ds_grad_ready, which then copies nothing. The place has arbitrary
values at first, and it is yours until ds_grad_ready or ds_backward. Like a gradient, this call may begin a
step; called again, it gives the same place. Collective like the other calls of delegate mode.
- `stream`: [nullable] NULL: a place on the host, from which ds_grad_ready copies if the memory of the device
  is not the host's; otherwise the device's own place, for work of this stream
- `out`: [out] [owned] tensor whose memory is like that of ds_engine_param_view
"""
function ds_engine_grad_view(engine, param, stream, out)
    @ccall libds.ds_engine_grad_view(engine::Ptr{ds_engine}, param::Int32, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Hands over this rank's gradient of a parameter for the running micro-step, once per parameter and micro-step
and in any order. It is copied: from the host in the compute type or f32, or from the engine's device, compact
and in the compute type. Collective: either all ranks hand over a gradient of a parameter, or none does; hand
over zeros if only some ranks have one.
- `stream`: [nullable]
"""
function ds_grad_ready(engine, param, grad, stream)
    @ccall libds.ds_grad_ready(engine::Ptr{ds_engine}, param::Int32, grad::Ptr{ds_tensor}, stream::Ptr{ds_stream})::Int32
end

"""
Hands over the gradients of several parameters, as ds_grad_ready does for each in this order. After an error,
those before the one that the message names have been handed over.
- `grads`: params_count tensors
- `stream`: [nullable]
"""
function ds_grads_ready(engine, params, params_count, grads, stream)
    @ccall libds.ds_grads_ready(engine::Ptr{ds_engine}, params::Ptr{Int32}, params_count::Csize_t, grads::Ptr{Ptr{ds_tensor}}, stream::Ptr{ds_stream})::Int32
end

"""
Returns the number of parameters, or -1 if engine is NULL.
"""
function ds_engine_param_count(engine)
    @ccall libds.ds_engine_param_count(engine::Ptr{ds_engine})::Int32
end

"""
Finds the number of a parameter by its name.
Returns DS_ERROR_NOT_FOUND if there is none; the message names the one with the nearest name.
"""
function ds_engine_param_find(engine, name, out)
    @ccall libds.ds_engine_param_find(engine::Ptr{ds_engine}, name::Cstring, out::Ptr{Int32})::Int32
end

"""
Gives the name and shape of a parameter; up to dims_size dimensions are written. All outputs [nullable].
- `out_name`: [out] [borrowed: engine]
"""
function ds_engine_param_info(engine, param, out_name, out_dims, dims_size, out_dims_count)
    @ccall libds.ds_engine_param_info(engine::Ptr{ds_engine}, param::Int32, out_name::Ptr{Ptr{Cchar}}, out_dims::Ptr{Int64}, dims_size::Csize_t, out_dims_count::Ptr{Csize_t})::Int32
end

"""
Enumerates the names of the states that ds_engine_read and ds_engine_write access. Index 0 is \"master\". The
states of the optimizer follow under PyTorch's names (\"exp_avg\" and \"exp_avg_sq\" for Adam and AdamW,
\"momentum_buffer\" for SGD), then \"param\" and \"grad\". For any other index, and if engine is NULL, it
returns NULL. [borrowed: engine] \"param\" is the compute copy; writing it also writes its master. \"grad\" is
the mean gradient over all samples of the step, before clipping. You may read it at any time, except while a
step has only some of its gradients; a frozen parameter has none. You may write it between the last backward
of a step and ds_step; on nvme that is DS_ERROR_UNSUPPORTED. Clipping and the update use what you wrote, and
NaN or infinity skips the step.
"""
function ds_engine_state_name(engine, index)
    @ccall libds.ds_engine_state_name(engine::Ptr{ds_engine}, index::Int32)::Cstring
end

"""
Copies a whole tensor to data, as f32. Every rank gets all elements. Collective.
"""
function ds_engine_read(engine, param, state, data, data_count)
    @ccall libds.ds_engine_read(engine::Ptr{ds_engine}, param::Int32, state::Cstring, data::Ptr{Cfloat}, data_count::Csize_t)::Int32
end

"""
Replaces a whole tensor; the compute copy follows its master. Give the same values on all ranks. Collective.
"""
function ds_engine_write(engine, param, state, data, data_count)
    @ccall libds.ds_engine_write(engine::Ptr{ds_engine}, param::Int32, state::Cstring, data::Ptr{Cfloat}, data_count::Csize_t)::Int32
end

"""
Tells which elements of a flattened parameter have states that this rank updates: *out_count elements from
*out_first on, where a count of 0 means none. All ranks together have the whole parameter, once per copy. The
call does not communicate.
- `out_first`: [out]
- `out_count`: [out]
"""
function ds_engine_local_range(engine, param, out_first, out_count)
    @ccall libds.ds_engine_local_range(engine::Ptr{ds_engine}, param::Int32, out_first::Ptr{Int64}, out_count::Ptr{Int64})::Int32
end

"""
Like ds_engine_read and ds_engine_write, but for the elements of ds_engine_local_range only and without
communication. data_count is the count of ds_engine_local_range. Give the same values on all ranks that have
the same elements. After a write of \"param\" or \"master\", even of no elements, the next step, evaluation,
inference or read of \"param\" returns DS_ERROR_STATE on this rank until ds_engine_refresh was called. Write
on all ranks, even if data_count is 0, and then refresh: a rank that has written nothing would begin the step
and wait for the others.
"""
function ds_engine_read_local(engine, param, state, data, data_count)
    @ccall libds.ds_engine_read_local(engine::Ptr{ds_engine}, param::Int32, state::Cstring, data::Ptr{Cfloat}, data_count::Csize_t)::Int32
end

function ds_engine_write_local(engine, param, state, data, data_count)
    @ccall libds.ds_engine_write_local(engine::Ptr{ds_engine}, param::Int32, state::Cstring, data::Ptr{Cfloat}, data_count::Csize_t)::Int32
end

"""
Computes all compute copies from their masters, including those of frozen parameters. Collective.
"""
function ds_engine_refresh(engine)
    @ccall libds.ds_engine_refresh(engine::Ptr{ds_engine})::Int32
end

"""
Between steps: from the next step on, the parameters are not trained (frozen 1), or trained again (0).
Parameters that have optimizer states keep them. A parameter that is trained for the first time starts with
zero states. The bias correction of each parameter counts its own updates, as in PyTorch. Once the variance of
a 1-bit optimizer is frozen, a parameter without an update, whose variance would be 0, cannot be trained. The
configuration's frozen_parameters says which parameters begin frozen. The call compiles the step again, and it
is refused while a parameter is leased. Collective, with the same arguments on all ranks. If the arguments of
one rank are wrong or different, all ranks get an error, and nothing changes.
"""
function ds_engine_freeze(engine, params, params_count, frozen)
    @ccall libds.ds_engine_freeze(engine::Ptr{ds_engine}, params::Ptr{Int32}, params_count::Csize_t, frozen::Int32)::Int32
end

"""
Between steps: from the next step on, these parameters form a group whose updates have their own values; each
leaves the group that it was in. Group 0 has all parameters that are in no other group. Groups 1 and up are
those of the configuration (optimizer.param_groups), then those of this call. Checkpoints contain no groups:
an engine that loads one keeps its own. The call compiles the step again, and it is refused while a parameter
is leased. Collective, with the same arguments on all ranks. If the arguments of one rank are wrong or
different, all ranks get an error, and nothing changes.
- `options`: [nullable] JSON: \"lr\", \"weight_decay\", with Adam and AdamW \"betas\" (two numbers) and
  \"eps\", with SGD and Muon \"momentum\", with Muon \"muon_lr\" and \"adam_lr\", which override \"lr\"; the
  default of each is the configuration's. A schedule begins from the group's lr; beside one that names the
  rate of every group (warmup_max_lr, cycle_min_lr, lr_range_test_min_lr) a group's lr is refused.
- `out`: [out] number of the group
"""
function ds_engine_group_add(engine, params, params_count, options, out)
    @ccall libds.ds_engine_group_add(engine::Ptr{ds_engine}, params::Ptr{Int32}, params_count::Csize_t, options::Cstring, out::Ptr{Int32})::Int32
end

"""
Tells the outcome of the last step. Before the first step, all members but struct_size are zero.
- `struct_size`: sizeof(ds_step_result) of the caller
- `out`: [out]
"""
function ds_engine_last_step(engine, out, struct_size)
    @ccall libds.ds_engine_last_step(engine::Ptr{ds_engine}, out::Ptr{ds_step_result}, struct_size::Csize_t)::Int32
end

"""
Tells why the last step was skipped, with the first bad tensor of this rank. If it was not skipped, the text
is \"\".
"""
function ds_engine_skip_reason(engine, out_text)
    @ccall libds.ds_engine_skip_reason(engine::Ptr{ds_engine}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Gives a number by its name: \"step\" (steps made, including skipped ones), \"updates\" (of the optimizer),
\"loss\" and \"grad_norm\" (of the last step), \"device_bytes\", \"host_bytes\" and \"nvme_bytes\"
(allocated), \"overhead_bytes\" (library memory outside the plan, measured at creation), \"param_groups\"
(number of groups), \"loss_scale\" (of the next step: with fp16, a host in delegate mode multiplies its loss
by it), \"micro_weight\" (delegate mode: what was set for the running micro-step; NaN: nothing),
\"micro_steps\" and \"mean_micro_steps\" (delegate mode), and the numbers of ds_engine_set as the next step
will use them; a name without a group means group 0, and \"lr\" is with Muon the rate of matrices.
"""
function ds_engine_get(engine, name, out)
    @ccall libds.ds_engine_get(engine::Ptr{ds_engine}, name::Cstring, out::Ptr{Cdouble})::Int32
end

"""
Changes a number from the next step on, in place of configuration and schedule, until it is changed again:
\"lr\", \"weight_decay\", with Adam and AdamW \"beta1\", \"beta2\" and \"eps\", with SGD and Muon
\"momentum\". NaN gives it back to configuration and schedule. Such a name changes all groups of parameters,
\"param_groups[1].lr\" one. With Muon, \"lr\" changes both rates of a group, \"muon_lr\" that of its matrices
and \"adam_lr\" that of its other parameters; of two calls for one rate the later one counts. A checkpoint
saves what was set. Call it between the same steps and with the same value on all ranks; it does not
communicate. In delegate mode you may also call it within a step: the update of that step uses the value.
\"micro_steps\" is the number of micro-steps of the current step in delegate mode, if it is not
gradient_accumulation_steps; NaN means that number again. Set it before the first gradient of a micro-step, at
the latest of the last one. If the last micro-step has ended already, set it to the number that were made;
ds_step then reduces once more. Such a step runs call by call. The gradients are divided by the number of
micro-steps that were made, or by \"mean_micro_steps\", which holds until it is changed; NaN means that number
again. Set the same values on all ranks. \"micro_weight\" is another kind of number: with loss_average
\"tokens\" in delegate mode, what this rank's gradients of the running micro-step count for, 0 or more, for
example its number of targets. Hand over gradients that are to be added up as they are, those of the sum of
the losses of the targets; the step divides their sum by the sum of the weights of all its micro-steps and
ranks. Set it in each micro-step, on every rank, before ds_backward, which otherwise returns DS_ERROR_STATE.
\"adapter.NAME\" with the value 1 chooses the adapter with which ds_eval_batch and ds_infer run from now on:
one of adapter.others, \"adapter.default\" for the one that is trained, or \"adapter.base\" for the model
without adapters; NaN gives the choice back. Steps always train the own adapter. Make the same choice on all
ranks.
Returns DS_ERROR_NOT_FOUND for any other name. DS_ERROR_INVALID_ARGUMENT for a value that the configuration
would refuse.
"""
function ds_engine_set(engine, name, value)
    @ccall libds.ds_engine_set(engine::Ptr{ds_engine}, name::Cstring, value::Cdouble)::Int32
end

"""
Prints the step program in its text form; in delegate mode the recorded one, from the second step on.
"""
function ds_engine_plan_print(engine, out_text)
    @ccall libds.ds_engine_plan_print(engine::Ptr{ds_engine}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Reports bytes per tier and kind, and the overhead outside the plan by part.
"""
function ds_engine_plan_report(engine, format, out_text)
    @ccall libds.ds_engine_plan_report(engine::Ptr{ds_engine}, format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Writes the spans recorded since the last call to `path` as Chrome trace-event JSON, with this rank's queues as
tracks.
Returns DS_ERROR_STATE if options.trace was 0.
"""
function ds_engine_trace(engine, path)
    @ccall libds.ds_engine_trace(engine::Ptr{ds_engine}, path::Cstring)::Int32
end

"""
Destroys the engine. Never communicates.
- `engine`: [nullable]
"""
function ds_engine_destroy(engine)
    @ccall libds.ds_engine_destroy(engine::Ptr{ds_engine})::Cvoid
end

"""
Saves masters, moments, the step and the numbers of ds_engine_set below `folder`
(docs/reference/checkpoint_format.md). When the call returns DS_OK, the checkpoint is complete and on disk.
Collective.
- `options`: [nullable] JSON: \"client_state\" (null; any value, which ds_checkpoint_load hands out again; the
  options of rank 0 are used), \"tag\" (none; 1 to 32 of A-Z a-z 0-9 . _ - by which ds_checkpoint_load finds
  it), \"keep\" (0: keep all checkpoints of the folder; n: keep the newest n, this one included, the newest
  whole one of each tag and the one with a tag that was loaded last), \"async\" (false). With \"async\" true,
  the call returns as soon as the state is copied to memory of the host, and a thread of each rank writes it
  while steps go on.
"""
function ds_checkpoint_save(engine, folder, options)
    @ccall libds.ds_checkpoint_save(engine::Ptr{ds_engine}, folder::Cstring, options::Cstring)::Int32
end

"""
Waits until the save that \"async\" began has ended and returns its status; DS_OK if there was none since the
last wait. The next save or load waits as well and returns the error of a save that failed. ds_engine_destroy
waits and logs the error. Collective.
"""
function ds_checkpoint_wait(engine)
    @ccall libds.ds_checkpoint_wait(engine::Ptr{ds_engine})::Int32
end

"""
Loads the newest complete checkpoint below `folder`, or the checkpoint at `folder`. It may come from any world
size, stage and tier. If the newest one is damaged or cannot be read, the one before it is loaded, with a
warning; a checkpoint that you name itself is loaded or refused. A refused load changes nothing, but if a file
stops being readable after it was checked, while its states are copied in, the engine is poisoned. If both
configurations list the same frozen_parameters and this engine never called ds_engine_freeze, it adopts the
frozen set of the checkpoint. Otherwise it keeps its own and logs a warning where they differ. Collective.
- `options`: [nullable] JSON: \"tag\" (none; loads the newest checkpoint that was saved with this tag)
- `out_text`: [out] [nullable] the saved client state as JSON, or \"null\" if there is none
Returns DS_ERROR_NOT_FOUND if there is no checkpoint. DS_ERROR_CORRUPT with the name of the damaged file.
"""
function ds_checkpoint_load(engine, folder, options, out_text)
    @ccall libds.ds_checkpoint_load(engine::Ptr{ds_engine}, folder::Cstring, options::Cstring, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Attaches a tensor to the next ds_checkpoint_save of this engine: what a program needs besides parameters and
states, such as the buffers of its modules or the state of its random numbers. Each rank attaches its own
tensors, or none. The value is copied at once, to memory outside the plan; a later one of the same name
replaces it. A save that fails keeps them for the next save.
- `name`: not empty
"""
function ds_checkpoint_attach(engine, name, value)
    @ccall libds.ds_checkpoint_attach(engine::Ptr{ds_engine}, name::Cstring, value::Ptr{ds_tensor})::Int32
end

"""
Reads what a rank attached to the checkpoint that this engine loaded last. Any rank reads the attachments of
all ranks.
- `rank`: 0 to one less than the number of ranks that saved the checkpoint
- `out`: [out] [owned] on the host
Returns DS_ERROR_NOT_FOUND if that rank attached nothing of that name. DS_ERROR_STATE before the first load.
"""
function ds_checkpoint_attachment(engine, name, rank, out)
    @ccall libds.ds_checkpoint_attachment(engine::Ptr{ds_engine}, name::Cstring, rank::Int32, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Loads the weights of a Hugging Face model folder (docs/reference/models.md) or of a GGUF file
(docs/guides/gguf.md) into the engine's parameters, by name. Optimizer states and the step stay as they are.
An engine with an adapter (docs/guides/adapters.md) also loads the folder of an adapter. Collective.
Returns DS_ERROR_NOT_FOUND for a missing file. DS_ERROR_CONFIG with the name of a tensor that is missing or of
another shape; a tensor that the engine does not have is left out with a warning. DS_ERROR_CORRUPT with the
name of a damaged file.
"""
function ds_checkpoint_load_model(engine, folder)
    @ccall libds.ds_checkpoint_load_model(engine::Ptr{ds_engine}, folder::Cstring)::Int32
end

"""
Writes the masters to `folder` as a Hugging Face model. An engine with an adapter writes the folder of the
adapter, as PEFT does. Each file appears at once and whole. Collective.
- `like`: [nullable] the model folder or GGUF file that gives names, dtypes, configuration and tokenizer;
  NULL, or a folder without weights: a single model.safetensors of f32
"""
function ds_checkpoint_save_model(engine, folder, like)
    @ccall libds.ds_checkpoint_save_model(engine::Ptr{ds_engine}, folder::Cstring, like::Cstring)::Int32
end

"""
Describes as JSON a checkpoint, or the newest one of a run or of a folder of checkpoints: path, tag, step,
seed, numerics key, payload hash and configuration. Reads all of its content and compares the content with the
hashes of its manifest.
Returns DS_ERROR_CORRUPT with the names of the file and of the tensor that differs.
"""
function ds_checkpoint_info(path, out_text)
    @ccall libds.ds_checkpoint_info(path::Cstring, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Converts a checkpoint or a model in this process alone. `from` is a folder that DeepSpeed saved with ZeRO 1, 2
or 3 or in its universal layout (the folder with the file \"latest\", or that of a tag), a checkpoint of libds
as for ds_checkpoint_info, or a GGUF file, a model folder or the folder of an adapter for the forms that say
so. Pickles are parsed as data; nothing in them is run. A checkpoint can become \"libds\", \"universal\" and
\"fp32\", whichever of the three layouts it has.
- `to`: a folder. With \"libds\" it gets one more checkpoint; with \"gguf\" it is a file that must not exist;
  with the other forms it must not exist or must be empty.
- `options`: [nullable] JSON: \"to\" (\"libds\": a checkpoint; \"universal\": what DeepSpeed loads with
  load_universal_checkpoint; \"fp32\": masters, buffers and second names as in the output of zero_to_fp32;
  \"model\": the folder of a GGUF file; \"gguf\": a GGUF file of a model, an adapter or a checkpoint;
  \"merged\" and \"unmerged\": the model of an adapter's base with the adapter added to its weights or taken
  out; by default \"gguf\" if `to` ends with .gguf, \"model\" for a GGUF file, and otherwise \"libds\"),
  \"tag\" (none; for \"libds\"), \"like\" (none; for \"fp32\", as for ds_checkpoint_save_model; for \"gguf\"
  of a checkpoint its model; for \"merged\", \"unmerged\" and adapters the base, by default the one that the
  adapter names), \"file_bytes\" (5e9; for \"fp32\": more bytes become several files), \"step_tensor\" (false;
  for \"universal\": steps are tensors, as in torch), \"type\" (for \"model\" and \"gguf\": \"f32\", \"f16\",
  \"bf16\" or, in a GGUF file, \"q8_0\"; by default one that loses nothing, or bf16 for codes)
- `out_text`: [out] [nullable] JSON: path, form, steps, parameters and states of what was converted
Returns DS_ERROR_NOT_FOUND if `from` cannot be converted or lacks the file of a rank. DS_ERROR_CORRUPT with
the name of a damaged file. DS_ERROR_UNSUPPORTED for what libds cannot represent, such as tensor parallelism,
and for a pickle that names a function of the system.
"""
function ds_checkpoint_convert(from, to, options, out_text)
    @ccall libds.ds_checkpoint_convert(from::Cstring, to::Cstring, options::Cstring, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Lays `patch` over `config`, both JSON texts: members of patch replace those of config, objects are merged, and
null removes a member (JSON merge patch, RFC 7396).
"""
function ds_config_merge(config, patch, out_text)
    @ccall libds.ds_config_merge(config::Cstring, patch::Cstring, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Describes what `config`, JSON text, means for `size` ranks: each value with its origin (\"config\", \"auto\",
\"derived\", \"default\" or \"refused\"), keys without effect, warnings, refusals. A refused configuration is
described, too; this is not an error of the call.
- `format`: DS_FORMAT_JSON: an object of schema, config, origins, without_effect, warnings and refusals
- `out_refused`: [nullable] how many refusals the text has; 0: the library takes this configuration
"""
function ds_config_describe(config, size, format, out_refused, out_text)
    @ccall libds.ds_config_describe(config::Cstring, size::Int32, format::Int32, out_refused::Ptr{Int32}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Returns the url, for ds_comm_create, of the group that a run joins: the key `communicator` of `config`, else
that of the run that `resume` names, else \"env\". The call does not communicate, and it ignores a folder that
this host cannot see.
- `config`: [nullable] JSON text
- `resume`: [nullable] as for ds_run_train
"""
function ds_run_communicator(config, resume, out_text)
    @ccall libds.ds_run_communicator(config::Cstring, resume::Cstring, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Trains as `libds train` does, with data, model, run folder, checkpoints and report. Collective.
- `comm`: [nullable] NULL: one rank
- `config`: JSON text
- `resume`: [nullable] a run folder, which continues from its newest checkpoint, or one of its checkpoints;
  config is then [nullable] and laid over the run's own as by ds_config_merge
- `quiet`: 1: plain lines instead of a progress bar, 2: no output
- `batch`: [nullable] replaces the configured data
- `progress`: [nullable]
- `stop`: [nullable] when you make it non-zero, which you may do at any time and in a signal handler, the run
  saves a checkpoint and ends.
Returns DS_OK when all steps are done. DS_ERROR_USER if the stop flag or a callback ended the run early: it is
saved, and a call with `resume` continues it. DS_ERROR_STATE if the stop flag ended it before anything was
created. DS_ERROR_NUMERIC if run.max_skipped_steps steps in a row were not finite, or if the loss of the
finished model is not; the run is saved all the same. DS_ERROR_CONFIG if the finished run misses one of its
run.bars.
"""
function ds_run_train(comm, config, resume, quiet, batch, progress, stop, user_data)
    @ccall libds.ds_run_train(comm::Ptr{ds_comm}, config::Cstring, resume::Cstring, quiet::Int32, batch::Ptr{Cvoid}, progress::Ptr{Cvoid}, stop::Ptr{Int32}, user_data::Ptr{Cvoid})::Int32
end

"""
Writes the text or jsonl that `data` of a configuration means as one token file, as `libds tokenize` does, for
runs with data.format \"tokens\". The path is replaced when the file is complete and on disk.
- `config`: JSON text
- `path`: the token file
- `stop`: [nullable] when you make it non-zero, the call ends with DS_ERROR_USER and writes nothing.
- `out_text`: one line that describes the file
"""
function ds_run_tokenize(config, path, stop, out_text)
    @ccall libds.ds_run_tokenize(config::Cstring, path::Cstring, stop::Ptr{Int32}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Continues a text with caches of keys and values, as `libds generate` does. Collective; all ranks get the same
text.
- `model`: a run folder (for its newest checkpoint), a checkpoint, the folder of a Hugging Face model, or a
  GGUF file
- `prompt`: [nullable] text to continue; NULL with \"ids\". An empty text is continued from the tokens that
  the tokenizer puts before every text
- `options`: [nullable] JSON: \"ids\" (token numbers in place of a prompt, continued with numbers), \"tokens\"
  (256), \"temperature\" (0.8; 0: the most probable token), \"top_k\" (0: all), \"seed\" (0), \"dtype\"
  (\"f32\", \"bf16\", \"f16\"; default: that of the run, f32 for a model folder), \"threads\" (0), \"stage\"
  (default: that of the run, 0 for a model folder), \"device\" (\"cpu\"; \"cuda\", \"cuda:0\"), \"adapters\"
  (none; adapters on a model folder, as texts NAME=DIR), \"adapter\" (the name of the one to use, of
  \"adapters\" or of the run, \"base\" for none; default: the only one), \"base\" (the model folder of a run
  with an adapter, if it has moved), \"ignore_eos\" (false)
- `text`: [nullable] called on every rank
"""
function ds_run_generate(comm, model, prompt, options, text, user_data, out_text)
    @ccall libds.ds_run_generate(comm::Ptr{ds_comm}, model::Cstring, prompt::Cstring, options::Cstring, text::Ptr{Cvoid}, user_data::Ptr{Cvoid}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Computes the numbers that are recorded beside a model (golden.json and golden.safetensors,
docs/reference/verify.md) and compares them, as `libds verify` does. The text has one line per comparison with
the largest error, its tolerance and where it is. Collective; all ranks get the same result.
- `model`: folder of a Hugging Face model, or a GGUF file with golden.* beside it
- `options`: [nullable] JSON: \"stage\" (0), \"tier\" (\"device\", \"cpu\", \"nvme\"), \"dtype\" (\"f32\",
  \"bf16\", \"both\"), \"kinds\" (all that are recorded), \"nvme_path\" (\".\"), \"threads\" (0)
- `out_failed`: [out] number of comparisons beyond their tolerance
"""
function ds_run_verify(comm, model, options, format, out_failed, out_text)
    @ccall libds.ds_run_verify(comm::Ptr{ds_comm}, model::Cstring, options::Cstring, format::Int32, out_failed::Ptr{Int32}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Trains a few steps on random tokens and tells where their time goes, as `libds profile` does: calls, time,
floating-point operations, bytes and the share of what this machine can reach, by operation
(docs/reference/profile.md). Collective; every rank gets its own table.
- `config`: [nullable] JSON text; NULL: defaults, bf16, stage 0
- `model`: [nullable] folder of a Hugging Face model or GGUF file, which replaces the model of the
  configuration; its weights are drawn at random. You must give config, model or both.
- `options`: [nullable] JSON: \"micro_batch\" and \"sequence\" (default: those of the configuration, without
  one 4 and 128), \"dtype\" (\"f32\", \"bf16\", \"f16\"), \"threads\" (0), \"steps\" (3), \"by\" (\"op\",
  \"instruction\")
"""
function ds_run_profile(comm, config, model, options, format, out_text)
    @ccall libds.ds_run_profile(comm::Ptr{ds_comm}, config::Cstring, model::Cstring, options::Cstring, format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Trains a few steps and runs each instruction of the last one again, alone, as `libds audit` does
(docs/reference/audit.md). It compares kernels with the reference in double, and collectives, copies and files
bit by bit. The text has a line for each instruction with its error and bound, largest first, and ends with
the verdict. Collective; all ranks get the same result.
- `config`: JSON text
- `options`: [nullable] JSON: \"steps\" (2), \"top\" (20 lines; 0: all), \"threads\" (0)
- `out_failed`: [out] number of instructions beyond their bound or with other bits, on any rank
"""
function ds_run_audit(comm, config, options, format, out_failed, out_text)
    @ccall libds.ds_run_audit(comm::Ptr{ds_comm}, config::Cstring, options::Cstring, format::Int32, out_failed::Ptr{Int32}, out_text::Ptr{Ptr{Cchar}})::Int32
end
