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
Joining a group.
"""
struct ds_comm_options
    struct_size::Csize_t
    rank::Int32
    size::Int32
    timeout_ms::Int64
    join_ms::Int64
end

"""
A collective as data: of any operation, over a list of buffers, or over blocks of unequal size. Besides `ins`
and `outs`, all members are the same on all ranks.
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
What an engine runs on; training options are JSON.
"""
struct ds_engine_options
    struct_size::Csize_t
    threads::Int32
    trace::Int32
    init::Ptr{Cvoid}
    init_user_data::Ptr{Cvoid}
end

"""
What became of the last step.
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
end

"""
Version of the library as \"major.minor.patch\". [threadsafe] Process lifetime.
"""
function ds_version()
    @ccall libds.ds_version()::Cstring
end

"""
Name of a status, for example \"invalid argument\". [threadsafe] Process lifetime.
"""
function ds_status_name(status)
    @ccall libds.ds_status_name(status::Int32)::Cstring
end

"""
Message of the last call that failed on this thread, \"\" before any. [threadsafe] Valid until the next
failing call of this thread.
"""
function ds_last_error_message()
    @ccall libds.ds_last_error_message()::Cstring
end

"""
What that call's error is about, for programs: the configuration key (dotted), the parameter or tensor, the
rank, each as far as the message names one; \"\", \"\" and -1 otherwise. [threadsafe] Valid as long as the
message.
- `out_key`: [out] [nullable]
- `out_tensor`: [out] [nullable]
- `out_rank`: [out] [nullable]
"""
function ds_last_error_details(out_key, out_tensor, out_rank)
    @ccall libds.ds_last_error_details(out_key::Ptr{Ptr{Cchar}}, out_tensor::Ptr{Ptr{Cchar}}, out_rank::Ptr{Int32})::Cvoid
end

"""
Sends the process's log lines to fn; NULL restores the default (warnings and errors to stderr).
- `fn`: [nullable]
- `user_data`: [nullable] passed to fn
"""
function ds_log_set_fn(fn, user_data)
    @ccall libds.ds_log_set_fn(fn::Ptr{Cvoid}, user_data::Ptr{Cvoid})::Int32
end

"""
Ends a text that a call has made.
- `text`: [nullable] [threadsafe]
"""
function ds_text_destroy(text)
    @ccall libds.ds_text_destroy(text::Ptr{Cchar})::Cvoid
end

"""
Facts of this machine and build: instruction sets, which kernels run and why, libraries, cores, memory.
"""
function ds_env_report(format, out_text)
    @ccall libds.ds_env_report(format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Fills the defaults: rank 0 of 1.
- `struct_size`: sizeof(ds_comm_options) of the caller
"""
function ds_comm_options_init(options, struct_size)
    @ccall libds.ds_comm_options_init(options::Ptr{ds_comm_options}, struct_size::Csize_t)::Int32
end

"""
Joins a group of ranks. Collective.
- `url`: \"self\" (one rank), \"threads://NAME\" (ranks are threads of this process), \"shm://NAME\"
  (processes of one host), \"mpi\" (the job that mpirun or srun started, on any hosts; needs the job's own
  rank and size), \"gloo://HOST:PORT\", with or without \"/JOB\" (rank 0 listens there while the ranks of that
  job meet, on any hosts), \"gloo:///PATH\" (a file of a folder that all ranks see says where), \"gloo\"
  (MASTER_ADDR and MASTER_PORT do), \"env\" (as `libds launch`, torchrun, mpirun or srun set the environment;
  one rank without any), \"env:URL\" (rank and size of the environment, over URL). mpi and gloo are plugins,
  libds_NAME.so; any other NAME or \"NAME://ADDRESS\" is looked for likewise (ds_plugin.h)
- `options`: [nullable]
- `out`: [out] [owned]
Returns DS_ERROR_COMM when a rank is missing after join_ms, given twice, or differs in size or version
"""
function ds_comm_create(url, options, out)
    @ccall libds.ds_comm_create(url::Cstring, options::Ptr{ds_comm_options}, out::Ptr{Ptr{ds_comm}})::Int32
end

"""
This rank, 0 .. size-1; -1 for NULL.
"""
function ds_comm_rank(comm)
    @ccall libds.ds_comm_rank(comm::Ptr{ds_comm})::Int32
end

"""
Number of ranks; -1 for NULL.
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
Sums `count` elements over all ranks as a balanced tree in rank order: the same bits on any transport. f32,
bf16 and f16 are summed in f32, other types in their own, integers wrapping around. Collective.
- `in`: f32, bf16, f16, f64, i32, i64 or u8
- `out`: f32 for bf16 and f16, not overlapping in; else of the type of in, and may be in
"""
function ds_comm_all_reduce(comm, in_, count, dtype, out)
    @ccall libds.ds_comm_all_reduce(comm::Ptr{ds_comm}, in_::Ptr{Cvoid}, count::Csize_t, dtype::Int32, out::Ptr{Cvoid})::Int32
end

"""
The same sum of size * count elements; rank r gets elements [r * count, (r + 1) * count). Collective.
"""
function ds_comm_reduce_scatter(comm, in_, count, dtype, out)
    @ccall libds.ds_comm_reduce_scatter(comm::Ptr{ds_comm}, in_::Ptr{Cvoid}, count::Csize_t, dtype::Int32, out::Ptr{Cvoid})::Int32
end

"""
Block b of `in` goes to rank b, block r of `out` comes from rank r; block_size bytes each. Collective.
"""
function ds_comm_all_to_all(comm, in_, block_size, out)
    @ccall libds.ds_comm_all_to_all(comm::Ptr{ds_comm}, in_::Ptr{Cvoid}, block_size::Csize_t, out::Ptr{Cvoid})::Int32
end

"""
Copies data_size bytes from rank `root` to all. Collective.
"""
function ds_comm_broadcast(comm, data, data_size, root)
    @ccall libds.ds_comm_broadcast(comm::Ptr{ds_comm}, data::Ptr{Cvoid}, data_size::Csize_t, root::Int32)::Int32
end

"""
Sends data_size bytes to rank `to`, which calls ds_comm_receive with the same size; returns when they are
there. Two ranks that send to each other at once are an error.
"""
function ds_comm_send(comm, data, data_size, to)
    @ccall libds.ds_comm_send(comm::Ptr{ds_comm}, data::Ptr{Cvoid}, data_size::Csize_t, to::Int32)::Int32
end

"""
Receives data_size bytes that rank `from` sends.
"""
function ds_comm_receive(comm, data, data_size, from)
    @ccall libds.ds_comm_receive(comm::Ptr{ds_comm}, data::Ptr{Cvoid}, data_size::Csize_t, from::Int32)::Int32
end

"""
Makes groups of the ranks that give the same color, ordered by key, then by rank. Collective. An abort of this
group ends them too; over a plugin, whatever ends one of them ends all.
- `color`: negative: this rank is in none, *out is NULL
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
Ends this and every later collective of all ranks with DS_ERROR_COMM and this reason. [threadsafe]
"""
function ds_comm_abort(comm, reason)
    @ccall libds.ds_comm_abort(comm::Ptr{ds_comm}, reason::Cstring)::Int32
end

"""
Fills the defaults.
- `struct_size`: sizeof(ds_comm_call) of the caller
"""
function ds_comm_call_init(call, struct_size)
    @ccall libds.ds_comm_call_init(call::Ptr{ds_comm_call}, struct_size::Csize_t)::Int32
end

"""
Makes a collective, or starts it. A list is one collective over its buffers, each with the bits of a call of
its own, and faster than single calls where buffers are small (reduce, gather, scatter and all_to_all are made
one after the other). Collective. With out_work the call starts it and returns; it is made on a thread of the
comm, after what was started before. Its place among the collectives of all ranks is that of this call, and
every collective that is made, of this comm, of the one it was split from and of those split from either,
first waits for what was started. ds_comm_abort ends it as any other. Leaving the group by a destroy gives up
what is unfinished. Buffers are lent: they are the caller's again when ds_work_wait has returned, or a
collective that is made has returned DS_OK, or the rank has left the group. ds_comm_abort, another start and
calls that only ask do not end the loan. The call itself and its lists are copied.
- `out_work`: [out] [nullable] [owned] NULL: returns when the collective is made
Returns DS_ERROR_INVALID_ARGUMENT for what is refused before anything is started; DS_ERROR_COMM when a rank of
an all_to_all sends other elements than its peer expects, and both are named
"""
function ds_comm_submit(comm, call, out_work)
    @ccall libds.ds_comm_submit(comm::Ptr{ds_comm}, call::Ptr{ds_comm_call}, out_work::Ptr{Ptr{ds_work}})::Int32
end

"""
Waits for the end of a started collective and returns its status; also again. [threadsafe]
"""
function ds_work_wait(work)
    @ccall libds.ds_work_wait(work::Ptr{ds_work})::Int32
end

"""
Whether it has ended, well or not, without waiting.
- `out_done`: [out] 0 or 1 [threadsafe]
"""
function ds_work_test(work, out_done)
    @ccall libds.ds_work_test(work::Ptr{ds_work}, out_done::Ptr{Int32})::Int32
end

"""
Forgets it; the collective goes on.
- `work`: [nullable]
"""
function ds_work_destroy(work)
    @ccall libds.ds_work_destroy(work::Ptr{ds_work})::Cvoid
end

"""
Times the collectives of this comm from now on, and of those split from it afterwards. Collective: between the
same calls on all ranks. Every 1024th call then also compares times between ranks.
"""
function ds_comm_log_start(comm)
    @ccall libds.ds_comm_log_start(comm::Ptr{ds_comm})::Int32
end

"""
A table of what this rank's collectives have cost by operation and size: calls, bytes, time, algorithm and bus
bandwidth, time spent waiting for the slowest rank (docs/reference/communication.md). Collective.
Returns DS_ERROR_STATE before ds_comm_log_start
"""
function ds_comm_log(comm, format, out_text)
    @ccall libds.ds_comm_log(comm::Ptr{ds_comm}, format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
The last 64 operations of this rank in this comm, the one it was split from and those split from either,
oldest first, each with its state (running, done, failed). When such a group ends by an error, the text is
also left as rank_N.txt in the folder that the environment variable DS_FLIGHT_DIR names. [threadsafe]
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
Makes a stream of the engine's device. It works on, and may be destroyed later, when the engine is gone. After
a failed engine (DS_ERROR_POISONED) its streams are unusable, too.
- `out`: [out] [owned]
Returns DS_ERROR_UNSUPPORTED where the memory of the device is the host's: streams are NULL there
"""
function ds_stream_create(engine, out)
    @ccall libds.ds_stream_create(engine::Ptr{ds_engine}, out::Ptr{Ptr{ds_stream}})::Int32
end

"""
Waits until the stream has done all the work that it has been given.
"""
function ds_stream_synchronize(stream)
    @ccall libds.ds_stream_synchronize(stream::Ptr{ds_stream})::Int32
end

"""
Finishes the work of the stream and ends it.
- `stream`: [nullable]
"""
function ds_stream_destroy(stream)
    @ccall libds.ds_stream_destroy(stream::Ptr{ds_stream})::Cvoid
end

"""
Makes a tensor of up to 8 dimensions, in memory of the host or, with a stream, of the stream's device.
- `strides`: [nullable] distance of neighbours in each dimension, in elements, of any sign; data is then the
  element at index 0. NULL: compact row-major
- `data`: [nullable] borrowed memory that must outlive the tensor; NULL: the tensor has memory of its own,
  zero-filled and compact
- `stream`: [nullable] names the device
- `out`: [out] [owned]
"""
function ds_tensor_create(dtype, dims, dims_count, strides, data, stream, out)
    @ccall libds.ds_tensor_create(dtype::Int32, dims::Ptr{Int64}, dims_count::Csize_t, strides::Ptr{Int64}, data::Ptr{Cvoid}, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Takes a DLPack tensor of f32, f64, bf16, f16, i32, i64 or u8 with any strides, without a copy: one on the CPU,
or with a stream also one of the stream's device. Its deleter runs when the tensor is destroyed. On an error
the caller keeps it. Exactly one of managed and versioned is given.
- `managed`: [nullable]
- `versioned`: [nullable] of DLPack 1.x. One that is read-only may not be copied to
- `stream`: [nullable]
- `out`: [out] [owned]
"""
function ds_tensor_from_dlpack(managed, versioned, stream, out)
    @ccall libds.ds_tensor_from_dlpack(managed::Ptr{DLManagedTensor}, versioned::Ptr{DLManagedTensorVersioned}, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Makes a DLPack tensor over the same memory, without a copy; it keeps the memory alive after ds_tensor_destroy.
Exactly one of out and out_versioned is given. A tensor of a device that DLPack has no number for is on device
type 12 (kDLExtDev).
- `out`: [out] [nullable] the consumer calls its deleter; refused for a tensor that is read-only
- `out_versioned`: [out] [nullable] the same in the form of DLPack 1.x
"""
function ds_tensor_to_dlpack(tensor, out, out_versioned)
    @ccall libds.ds_tensor_to_dlpack(tensor::Ptr{ds_tensor}, out::Ptr{Ptr{DLManagedTensor}}, out_versioned::Ptr{Ptr{DLManagedTensorVersioned}})::Int32
end

"""
Element type, dimensions and strides (up to dims_size of each are written), device (\"cpu\" or another name of
the configuration's key `device`) and address. All outputs [nullable].
- `out_strides`: [out] in elements
- `out_device`: [out] process lifetime
- `out_data`: [out] [borrowed: tensor] host code must not use it on a device other than \"cpu\"
"""
function ds_tensor_info(tensor, out_dtype, out_dims, out_strides, dims_size, out_dims_count, out_device, out_data)
    @ccall libds.ds_tensor_info(tensor::Ptr{ds_tensor}, out_dtype::Ptr{Int32}, out_dims::Ptr{Int64}, out_strides::Ptr{Int64}, dims_size::Csize_t, out_dims_count::Ptr{Csize_t}, out_device::Ptr{Ptr{Cchar}}, out_data::Ptr{Ptr{Cvoid}})::Int32
end

"""
Copies elements between tensors of one element type and shape, whatever their strides and devices. They may
overlap only where both are compact. A copy between two devices is refused.
- `stream`: [nullable] of the device that one of them is on
"""
function ds_tensor_copy(to, from, stream)
    @ccall libds.ds_tensor_copy(to::Ptr{ds_tensor}, from::Ptr{ds_tensor}, stream::Ptr{ds_stream})::Int32
end

"""
- `tensor`: [nullable]
"""
function ds_tensor_destroy(tensor)
    @ccall libds.ds_tensor_destroy(tensor::Ptr{ds_tensor})::Cvoid
end

"""
Makes an empty model graph. The calls below give values as numbers. docs/reference/ops.md lists operations.
- `bound`: largest number of rows n of one micro-step
- `out`: [out] [owned]
"""
function ds_graph_create(name, bound, out)
    @ccall libds.ds_graph_create(name::Cstring, bound::Int64, out::Ptr{Ptr{ds_graph}})::Int32
end

"""
Makes the graph that the `model` section of a configuration describes.
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
Adds an input. A dimension of -1 is n, the rows of a micro-step.
- `out`: [out] its value
"""
function ds_graph_input(graph, name, dtype, dims, dims_count, out)
    @ccall libds.ds_graph_input(graph::Ptr{ds_graph}, name::Cstring, dtype::Int32, dims::Ptr{Int64}, dims_count::Csize_t, out::Ptr{Int32})::Int32
end

"""
Adds an f32 parameter. A parameter with a dimension of 0 is empty; no operation takes it.
- `init`: \"zeros\", \"ones\" or \"normal\"
- `scale`: standard deviation of \"normal\"
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
(ds_engine_join) does not call them. Keep them away from that engine, and let them compute the same on all
ranks. If a callback fails, the call returns DS_ERROR_USER on this rank and DS_ERROR_COMM on the others, and
their engines are poisoned. {graph.custom_error} The graph, its copies in engines and plans share user_data.
`destroy` is called once, inside the destroy call that ends the last of them. An operation that is refused
leaves user_data to you. {graph.custom_refused} The text form shows the operation, but ds_graph_parse refuses
it. {graph.custom_text}
- `name`: what texts and messages call the operation
- `op`: copied
- `inputs`: up to 64 values
- `out`: [out] its first output; further outputs are the numbers after it
Returns Engines and plans return DS_ERROR_INVALID_ARGUMENT if a gradient has to pass an operation without
`backward`, {graph.custom_backward} and DS_ERROR_UNSUPPORTED on another device than \"cpu\", whose threads are
not yours. {graph.custom_device}
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
Makes a value the next output. The value may also be an input or a parameter. {graph.output_of_any} Output 0
of a graph that is trained is its scalar loss. ds_infer returns output 1. {graph.output_inferred}
- `name`: unlike the names of the other outputs
"""
function ds_graph_output(graph, name, value)
    @ccall libds.ds_graph_output(graph::Ptr{ds_graph}, name::Cstring, value::Int32)::Int32
end

"""
Finds a value by the name of an output, or else by the name of an input, a parameter or a result.
- `out`: [out] its value
Returns DS_ERROR_NOT_FOUND with the nearest name {graph.find}
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
- `graph`: [nullable]
"""
function ds_graph_destroy(graph)
    @ccall libds.ds_graph_destroy(graph::Ptr{ds_graph})::Cvoid
end

"""
Compiles a configuration for one rank of a group without taking memory or communicating.
- `config`: JSON text
- `graph`: [nullable] NULL: the configuration's model
- `out`: [out] [owned]
"""
function ds_plan_create(config, graph, rank, size, out)
    @ccall libds.ds_plan_create(config::Cstring, graph::Ptr{ds_graph}, rank::Int32, size::Int32, out::Ptr{Ptr{ds_plan}})::Int32
end

"""
Parameters, tokens a step, the largest tensors, bytes per tier and kind, instructions per queue, collectives.
"""
function ds_plan_report(plan, format, out_text)
    @ccall libds.ds_plan_report(plan::Ptr{ds_plan}, format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
The step program in its text form.
"""
function ds_plan_print(plan, out_text)
    @ccall libds.ds_plan_print(plan::Ptr{ds_plan}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
An SVG document: what each queue of a rank does over a step, above the bytes in use, for 1 to 16 plans side by
side with the same scales. Order and memory are the plan's; times are those of the machine that plans assume,
which the picture names.
"""
function ds_plan_picture(plans, count, out_text)
    @ccall libds.ds_plan_picture(plans::Ptr{Ptr{ds_plan}}, count::Csize_t, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
The certificate of a plan: the programs of all ranks as text, and what they claim about memory, lifetimes,
traffic and the order of collectives, for a checker that shares no code with the compiler
(docs/concepts/certificate.md). plans: one for each rank, in the order of ranks.
"""
function ds_plan_certificate(plans, count, out_text)
    @ccall libds.ds_plan_certificate(plans::Ptr{Ptr{ds_plan}}, count::Csize_t, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
- `plan`: [nullable]
"""
function ds_plan_destroy(plan)
    @ccall libds.ds_plan_destroy(plan::Ptr{ds_plan})::Cvoid
end

"""
Fills the defaults.
- `struct_size`: sizeof(ds_engine_options) of the caller
"""
function ds_engine_options_init(options, struct_size)
    @ccall libds.ds_engine_options_init(options::Ptr{ds_engine_options}, struct_size::Csize_t)::Int32
end

"""
Creates a training engine. Collective. The memory is planned, checked against memory_budget and taken here (in
delegate mode by ds_engine_start).
- `comm`: [nullable] NULL: one rank. It is used until the engine is destroyed.
- `config`: JSON text (docs/reference/config.md)
- `graph`: [nullable] copied; NULL: delegate mode, parameters come by ds_engine_param_add
- `options`: [nullable]
- `out`: [out] [owned]
Returns DS_ERROR_CONFIG also when ranks have different configurations; DS_ERROR_OUT_OF_MEMORY with a table
when a budget is too small
"""
function ds_engine_create(comm, config, graph, options, out)
    @ccall libds.ds_engine_create(comm::Ptr{ds_comm}, config::Cstring, graph::Ptr{ds_graph}, options::Ptr{ds_engine_options}, out::Ptr{Ptr{ds_engine}})::Int32
end

"""
One step: inputs in graph order, each with gradient_accumulation_steps micro-batches one after the other in
the first dimension; NULL for one that the loss does not depend on. Inputs lie on the host or on the engine's
device, where they are compact. A step whose loss or gradients are not finite is skipped: DS_OK, parameters
and states are as before, ds_engine_last_step says so and ds_engine_skip_reason names the first such tensor.
Collective.
- `stream`: [nullable]
- `out_loss`: [out] [nullable] mean loss over all ranks
"""
function ds_train_batch(engine, inputs, inputs_count, stream, out_loss)
    @ccall libds.ds_train_batch(engine::Ptr{ds_engine}, inputs::Ptr{Ptr{ds_tensor}}, inputs_count::Csize_t, stream::Ptr{ds_stream}, out_loss::Ptr{Cdouble})::Int32
end

"""
For a rank that has no data left in this epoch: takes part in the steps of the other ranks, without samples of
its own, until all ranks have called this; then data may come again. Loss and gradient of such a step are
means over the samples that there are. Native mode. Collective with the steps and this call of the others.
- `out_steps`: [out] [nullable] steps that this rank took part in, skipped ones included
"""
function ds_engine_join(engine, out_steps)
    @ccall libds.ds_engine_join(engine::Ptr{ds_engine}, out_steps::Ptr{Int64})::Int32
end

"""
A step in pieces: (ds_forward, ds_backward) x gradient_accumulation_steps, ds_step; the same bits. Collective.
In delegate mode ds_forward is not used and ds_backward ends a micro-step: parameters whose gradient did not
come count as zero.
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
Loss of one micro-batch without dropout, mean over ranks. Collective.
- `stream`: [nullable]
"""
function ds_eval_batch(engine, inputs, inputs_count, stream, out_loss)
    @ccall libds.ds_eval_batch(engine::Ptr{ds_engine}, inputs::Ptr{Ptr{ds_tensor}}, inputs_count::Csize_t, stream::Ptr{ds_stream}, out_loss::Ptr{Cdouble})::Int32
end

"""
Output 1 of the graph for one micro-batch, as f32. Collective.
- `inputs`: in graph order; NULL for one that output 1 does not depend on
- `stream`: [nullable]
- `out`: [out] [owned] on the host, with a stream on the engine's device
"""
function ds_infer(engine, inputs, inputs_count, stream, out)
    @ccall libds.ds_infer(engine::Ptr{ds_engine}, inputs::Ptr{Ptr{ds_tensor}}, inputs_count::Csize_t, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Delegate mode: registers a parameter; the order of calls is its number. One with a dimension of 0 is empty.
Its values are zeros, or what options.init gives.
- `out`: [out] parameter number
Returns DS_ERROR_STATE after ds_engine_start
"""
function ds_engine_param_add(engine, name, dims, dims_count, out)
    @ccall libds.ds_engine_param_add(engine::Ptr{ds_engine}, name::Cstring, dims::Ptr{Int64}, dims_count::Csize_t, out::Ptr{Int32})::Int32
end

"""
Delegate mode: ends the registration, plans the memory, checks it against memory_budget and takes it. Once,
before every call below and all that read or change parameters, states or checkpoints: DS_ERROR_STATE until
then. Collective: the same parameters on all ranks. After DS_ERROR_USER the engine is poisoned.
Returns DS_ERROR_OUT_OF_MEMORY with a table when a budget is too small
"""
function ds_engine_start(engine)
    @ccall libds.ds_engine_start(engine::Ptr{ds_engine})::Int32
end

"""
Leases whole parameters in the compute type, until released as often as gathered. Collective: all ranks make
the calls of delegate mode in the same order with the same parameters. An order that differs between ranks is
DS_ERROR_COMM on all, at the latest in ds_step and before it updates; it is not a hang. The order may change
at any call and from step to step; the fastest step repeats the one before. A step begins with its first
gradient or ds_backward: leases before that may as well be an evaluation. Until then parameters can be read
and saved at any time, and loaded, written, frozen and refreshed while none is leased.
- `stream`: [nullable] its work from here on sees the values
"""
function ds_gather_params(engine, params, params_count, stream)
    @ccall libds.ds_gather_params(engine::Ptr{ds_engine}, params::Ptr{Int32}, params_count::Csize_t, stream::Ptr{ds_stream})::Int32
end

"""
The leased values; they stay where they are until the last release of the parameter.
- `stream`: [nullable] NULL: a tensor on the host, which is a copy where memory of the device is not the
  host's; else the device's own, for work of this stream
- `out`: [out] [owned] tensor whose memory is [borrowed: lease]: later, also when the engine is gone, it may
  be read, but its values mean nothing
"""
function ds_engine_param_view(engine, param, stream, out)
    @ccall libds.ds_engine_param_view(engine::Ptr{ds_engine}, param::Int32, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Ends leases: at any time before ds_step, also behind the last ds_backward. Collective.
- `stream`: [nullable] its work up to here still sees the values
Returns DS_ERROR_STATE, and nothing changes, when a parameter is released more often than it has leases
"""
function ds_release_params(engine, params, params_count, stream)
    @ccall libds.ds_release_params(engine::Ptr{ds_engine}, params::Ptr{Int32}, params_count::Csize_t, stream::Ptr{ds_stream})::Int32
end

"""
Between steps and without leases: says that what follows is an evaluation (1), or training again (0), which an
engine begins with. Nothing that is leased in an evaluation counts as the order of a step, and gradients,
ds_backward and ds_step are DS_ERROR_STATE. An evaluation that is not announced costs prefetches, never
results. Delegate mode. Collective.
"""
function ds_engine_evaluate(engine, on)
    @ccall libds.ds_engine_evaluate(engine::Ptr{ds_engine}, on::Int32)::Int32
end

"""
Where this rank's gradient of a parameter in the running micro-step goes, in the compute type: write it there
and hand the tensor to ds_grad_ready, which then copies nothing. What is there before means nothing, and the
place is the caller's until ds_grad_ready or ds_backward. Like a gradient it may begin a step; called again,
it shows the same place. Collective: a call of delegate mode like the others.
- `stream`: [nullable] NULL: a place on the host, from which ds_grad_ready copies after all where memory of
  the device is not the host's; else the device's own, for work of this stream
- `out`: [out] [owned] tensor whose memory is as that of ds_engine_param_view
"""
function ds_engine_grad_view(engine, param, stream, out)
    @ccall libds.ds_engine_grad_view(engine::Ptr{ds_engine}, param::Int32, stream::Ptr{ds_stream}, out::Ptr{Ptr{ds_tensor}})::Int32
end

"""
Hands over this rank's gradient of a parameter for the running micro-step, copied: on the host in the compute
type or f32, or compact on the engine's device in the compute type. Once per parameter and micro-step, in any
order. Collective: a gradient that does not come, does not come on any rank; hand over zeros where only some
ranks have it.
- `stream`: [nullable]
"""
function ds_grad_ready(engine, param, grad, stream)
    @ccall libds.ds_grad_ready(engine::Ptr{ds_engine}, param::Int32, grad::Ptr{ds_tensor}, stream::Ptr{ds_stream})::Int32
end

"""
Number of parameters; -1 for NULL.
"""
function ds_engine_param_count(engine)
    @ccall libds.ds_engine_param_count(engine::Ptr{ds_engine})::Int32
end

"""
Number of a name.
Returns DS_ERROR_NOT_FOUND with the nearest name
"""
function ds_engine_param_find(engine, name, out)
    @ccall libds.ds_engine_param_find(engine::Ptr{ds_engine}, name::Cstring, out::Ptr{Int32})::Int32
end

"""
Name and shape. All outputs [nullable].
- `out_name`: [out] [borrowed: engine]
"""
function ds_engine_param_info(engine, param, out_name, out_dims, dims_size, out_dims_count)
    @ccall libds.ds_engine_param_info(engine::Ptr{ds_engine}, param::Int32, out_name::Ptr{Ptr{Cchar}}, out_dims::Ptr{Int64}, dims_size::Csize_t, out_dims_count::Ptr{Csize_t})::Int32
end

"""
Names of what ds_engine_read and _write access, one after the other from index 0: \"master\", then the states
of the optimizer by PyTorch's names (\"exp_avg\" and \"exp_avg_sq\" of Adam and AdamW, \"momentum_buffer\" of
SGD), \"param\" and \"grad\"; NULL behind the last, and for NULL. [borrowed: engine] \"param\" is the compute
copy; writing it writes its master. \"grad\" is the mean gradient over the samples that there are, before
clipping. Read: refused while a step has some of its gradients. Written: between the last backward of a step
and ds_step, not on nvme; clipping sees what was written, and NaN or infinity skips the step.
"""
function ds_engine_state_name(engine, index)
    @ccall libds.ds_engine_state_name(engine::Ptr{ds_engine}, index::Int32)::Cstring
end

"""
Copies a whole tensor out (f32, numel elements on every rank). Collective.
"""
function ds_engine_read(engine, param, state, data, data_count)
    @ccall libds.ds_engine_read(engine::Ptr{ds_engine}, param::Int32, state::Cstring, data::Ptr{Cfloat}, data_count::Csize_t)::Int32
end

"""
Replaces a whole tensor; the compute copy follows its master. The same values on all ranks. Collective.
"""
function ds_engine_write(engine, param, state, data, data_count)
    @ccall libds.ds_engine_write(engine::Ptr{ds_engine}, param::Int32, state::Cstring, data::Ptr{Cfloat}, data_count::Csize_t)::Int32
end

"""
Elements of a flattened parameter of which this rank updates the states: [*out_first, *out_first +
*out_count), count 0 where it has none. Over the ranks they are the whole parameter, once per copy; ranks that
have the same elements must write the same values. No communication.
- `out_first`: [out]
- `out_count`: [out]
"""
function ds_engine_local_range(engine, param, out_first, out_count)
    @ccall libds.ds_engine_local_range(engine::Ptr{ds_engine}, param::Int32, out_first::Ptr{Int64}, out_count::Ptr{Int64})::Int32
end

"""
The same as ds_engine_read and _write of these elements only; no communication. data_count: that of
ds_engine_local_range. After a write of \"param\" or \"master\", also one of no element, ds_engine_refresh
must be called before the next step, evaluation, inference or read of \"param\", which are DS_ERROR_STATE on
this rank until then. Write on all ranks, also where data_count is 0, then refresh: a rank that has written
nothing would begin the step and wait for the others.
"""
function ds_engine_read_local(engine, param, state, data, data_count)
    @ccall libds.ds_engine_read_local(engine::Ptr{ds_engine}, param::Int32, state::Cstring, data::Ptr{Cfloat}, data_count::Csize_t)::Int32
end

function ds_engine_write_local(engine, param, state, data, data_count)
    @ccall libds.ds_engine_write_local(engine::Ptr{ds_engine}, param::Int32, state::Cstring, data::Ptr{Cfloat}, data_count::Csize_t)::Int32
end

"""
Makes all compute copies from their masters, those of frozen parameters too. Collective.
"""
function ds_engine_refresh(engine)
    @ccall libds.ds_engine_refresh(engine::Ptr{ds_engine})::Int32
end

"""
Between steps: from the next step on the parameters are not trained (frozen 1), or trained again (0).
Parameters that have optimizer states keep them. A parameter trained for the first time starts with zero
states. The bias correction of each counts its own updates, as in PyTorch. Compiles the step again; refused
while a parameter is leased. Collective, the same arguments on all ranks: what one rank asks wrongly or
otherwise is an error on all, and nothing changes. Which parameters begin frozen: configuration,
frozen_parameters.
"""
function ds_engine_freeze(engine, params, params_count, frozen)
    @ccall libds.ds_engine_freeze(engine::Ptr{ds_engine}, params::Ptr{Int32}, params_count::Csize_t, frozen::Int32)::Int32
end

"""
Between steps: from the next step on these parameters are a group whose updates have values of their own; each
leaves the group that it was in. Group 0 has all parameters of no other group, 1 and further ones are those of
the configuration (optimizer.param_groups), then those of this call. Checkpoints have no groups: an engine
that loads has its own. Compiles the step again; refused while a parameter is leased. Collective, the same
arguments on all ranks: what one rank asks wrongly or otherwise is an error on all, and nothing changes.
- `options`: [nullable] JSON: \"lr\", \"weight_decay\", with Adam and AdamW \"betas\" (two numbers) and
  \"eps\", with SGD \"momentum\"; without one the configuration's. A schedule begins from the group's lr
- `out`: [out] number of the group
"""
function ds_engine_group_add(engine, params, params_count, options, out)
    @ccall libds.ds_engine_group_add(engine::Ptr{ds_engine}, params::Ptr{Int32}, params_count::Csize_t, options::Cstring, out::Ptr{Int32})::Int32
end

"""
Fills zeros before the first step.
- `struct_size`: sizeof(ds_step_result) of the caller
- `out`: [out]
"""
function ds_engine_last_step(engine, out, struct_size)
    @ccall libds.ds_engine_last_step(engine::Ptr{ds_engine}, out::Ptr{ds_step_result}, struct_size::Csize_t)::Int32
end

"""
Why the last step was skipped, with the first bad tensor of this rank; \"\" when it was not.
"""
function ds_engine_skip_reason(engine, out_text)
    @ccall libds.ds_engine_skip_reason(engine::Ptr{ds_engine}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
A number by name: \"step\" (steps made, skipped ones included), \"updates\" (of the optimizer), \"loss\",
\"grad_norm\" (of the last step), \"device_bytes\", \"host_bytes\", \"nvme_bytes\" (allocated),
\"overhead_bytes\" (library memory outside the plan, measured at creation), \"param_groups\" (groups of
parameters), and those of ds_engine_set, as the next step uses them; without a group they are those of group
0.
"""
function ds_engine_get(engine, name, out)
    @ccall libds.ds_engine_get(engine::Ptr{ds_engine}, name::Cstring, out::Ptr{Cdouble})::Int32
end

"""
Changes a number from the next step on, in place of configuration and schedule; NaN gives it back to them:
\"lr\", \"weight_decay\", with Adam and AdamW \"beta1\", \"beta2\" and \"eps\", with SGD \"momentum\". Such a
name is of all groups of parameters, \"param_groups[1].lr\" of one. What is set is part of a checkpoint.
Between the same steps, with the same value on all ranks; no communication.
Returns DS_ERROR_NOT_FOUND for another name, DS_ERROR_INVALID_ARGUMENT for a value that the configuration
would refuse
"""
function ds_engine_set(engine, name, value)
    @ccall libds.ds_engine_set(engine::Ptr{ds_engine}, name::Cstring, value::Cdouble)::Int32
end

"""
The step program in its text form; in delegate mode the recorded one, from the second step on.
"""
function ds_engine_plan_print(engine, out_text)
    @ccall libds.ds_engine_plan_print(engine::Ptr{ds_engine}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Bytes per tier and kind, and the overhead outside the plan by part.
"""
function ds_engine_plan_report(engine, format, out_text)
    @ccall libds.ds_engine_plan_report(engine::Ptr{ds_engine}, format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Writes the spans recorded since the last call to `path` as Chrome trace-event JSON, this rank's queues as
tracks.
Returns DS_ERROR_STATE when options.trace was 0
"""
function ds_engine_trace(engine, path)
    @ccall libds.ds_engine_trace(engine::Ptr{ds_engine}, path::Cstring)::Int32
end

"""
- `engine`: [nullable] Never communicates.
"""
function ds_engine_destroy(engine)
    @ccall libds.ds_engine_destroy(engine::Ptr{ds_engine})::Cvoid
end

"""
Saves masters, moments, the step and what ds_engine_set has set below `folder`
(docs/reference/checkpoint_format.md); complete and on disk on return. Collective.
- `options`: [nullable] JSON: \"client_state\" (null: any value, which ds_checkpoint_load hands out again;
  that of rank 0 is saved), \"tag\" (none: 1 to 32 of A-Z a-z 0-9 . _ - by which ds_checkpoint_load finds it),
  \"keep\" (0: all; n: the newest n of the folder, with this one, and the newest one of each tag are left)
"""
function ds_checkpoint_save(engine, folder, options)
    @ccall libds.ds_checkpoint_save(engine::Ptr{ds_engine}, folder::Cstring, options::Cstring)::Int32
end

"""
Loads the newest complete checkpoint below `folder`, or the one at `folder`; made at any world size, stage and
tier. When the newest one is damaged or cannot be read, the one before is loaded, with a warning; a checkpoint
that is named itself is loaded or refused. A load that is refused changes nothing. Where frozen_parameters of
both configurations are the same and ds_engine_freeze was not called here, what it had frozen or thawed when
the checkpoint was saved is frozen or thawed here too; otherwise this engine's own setting stands, and a
warning says where they differ. Collective.
- `options`: [nullable] JSON: \"tag\" (none: the newest checkpoint that was saved with it)
- `out_text`: [out] [nullable] the client state that was saved, as JSON; \"null\" without
Returns DS_ERROR_NOT_FOUND when there is none, DS_ERROR_CORRUPT naming the file
"""
function ds_checkpoint_load(engine, folder, options, out_text)
    @ccall libds.ds_checkpoint_load(engine::Ptr{ds_engine}, folder::Cstring, options::Cstring, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Takes the weights of a Hugging Face model folder (docs/reference/models.md) for the engine's parameters, by
name; optimizer states and the step stay. Collective.
Returns DS_ERROR_NOT_FOUND for a missing file, DS_ERROR_CONFIG naming a tensor that is missing, too many or of
another shape, DS_ERROR_CORRUPT naming a damaged file
"""
function ds_checkpoint_load_model(engine, folder)
    @ccall libds.ds_checkpoint_load_model(engine::Ptr{ds_engine}, folder::Cstring)::Int32
end

"""
Writes the masters to `folder` as a Hugging Face model, each file at once and whole. Collective.
- `like`: [nullable] the model folder whose files, names, dtypes, configuration and tokenizer it gets; none,
  or one without weights: a single model.safetensors of f32
"""
function ds_checkpoint_save_model(engine, folder, like)
    @ccall libds.ds_checkpoint_save_model(engine::Ptr{ds_engine}, folder::Cstring, like::Cstring)::Int32
end

"""
JSON about a checkpoint, or the newest one of a folder of them or of a run: path, tag, step, seed, numerics
key, payload hash, configuration. All of its content is read and compared with the hashes of its manifest.
Returns DS_ERROR_CORRUPT naming the file, and the tensor that differs
"""
function ds_checkpoint_info(path, out_text)
    @ccall libds.ds_checkpoint_info(path::Cstring, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Lays `patch` over `config`, both JSON texts: members of patch replace those of config, objects are merged,
null removes (JSON merge patch, RFC 7396).
"""
function ds_config_merge(config, patch, out_text)
    @ccall libds.ds_config_merge(config::Cstring, patch::Cstring, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
The url for ds_comm_create of the group that a run joins: key `communicator` of `config`, else of the run that
`resume` names, else \"env\". No communication; a folder that this host cannot see says nothing.
- `config`: [nullable] JSON text
- `resume`: [nullable] as for ds_run_train
"""
function ds_run_communicator(config, resume, out_text)
    @ccall libds.ds_run_communicator(config::Cstring, resume::Cstring, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Trains as `libds train` does: data, model, run folder, checkpoints, report. Collective.
- `comm`: [nullable] NULL: one rank
- `config`: JSON text
- `resume`: [nullable] run folder to go on with, from its newest checkpoint, or one of its checkpoints; config
  is then [nullable] and laid over the run's own as ds_config_merge does
- `quiet`: 1: plain lines instead of a progress bar, 2: no output
- `batch`: [nullable] replaces the configured data
- `progress`: [nullable]
- `stop`: [nullable] may become non-zero at any time (also in a signal handler): the run saves and ends
Returns DS_OK when all steps are done; DS_ERROR_USER when the stop flag or a callback ended the run before: it
is saved, and a call with `resume` goes on; DS_ERROR_STATE when the stop flag ended it before anything was
made; DS_ERROR_NUMERIC when run.max_skipped_steps in a row were not finite: saved likewise; DS_ERROR_CONFIG:
run.bars
"""
function ds_run_train(comm, config, resume, quiet, batch, progress, stop, user_data)
    @ccall libds.ds_run_train(comm::Ptr{ds_comm}, config::Cstring, resume::Cstring, quiet::Int32, batch::Ptr{Cvoid}, progress::Ptr{Cvoid}, stop::Ptr{Int32}, user_data::Ptr{Cvoid})::Int32
end

"""
Continues a text over caches of keys and values, as `libds generate` does. Collective; the same text on all
ranks.
- `model`: run folder (its newest checkpoint), checkpoint, or folder of a Hugging Face model
- `prompt`: [nullable] text to continue; NULL or empty when options has \"ids\"
- `options`: [nullable] JSON: \"ids\" (token numbers instead of a prompt, continued with numbers), \"tokens\"
  (256), \"temperature\" (0.8; 0: the most probable token), \"top_k\" (0: all), \"seed\" (0), \"dtype\"
  (\"f32\", \"bf16\"; a run's own, f32 for a model folder), \"threads\" (0), \"stage\" (a run's own, 0 for a
  model folder), \"ignore_eos\" (false)
- `text`: [nullable] called on every rank
"""
function ds_run_generate(comm, model, prompt, options, text, user_data, out_text)
    @ccall libds.ds_run_generate(comm::Ptr{ds_comm}, model::Cstring, prompt::Cstring, options::Cstring, text::Ptr{Cvoid}, user_data::Ptr{Cvoid}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Computes the numbers that are recorded beside a model (golden.json and golden.safetensors,
docs/reference/verify.md) and compares, as `libds verify` does: one line per comparison with the largest
error, its tolerance and where it is. Collective; the same result on all ranks.
- `model`: folder of a Hugging Face model
- `options`: [nullable] JSON: \"stage\" (0), \"tier\" (\"device\", \"cpu\", \"nvme\"), \"dtype\" (\"f32\",
  \"bf16\", \"both\"), \"kinds\" (all that are recorded), \"nvme_path\" (\".\"), \"threads\" (0)
- `out_failed`: [out] comparisons beyond their tolerance
"""
function ds_run_verify(comm, model, options, format, out_failed, out_text)
    @ccall libds.ds_run_verify(comm::Ptr{ds_comm}, model::Cstring, options::Cstring, format::Int32, out_failed::Ptr{Int32}, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Trains a few steps on random tokens and says where their time goes, as `libds profile` does: calls, time,
floating-point operations, bytes and the share of what this machine can reach, by operation
(docs/reference/profile.md). Collective; every rank gets its own table.
- `config`: [nullable] JSON text; NULL: defaults, bf16, stage 0
- `model`: [nullable] folder of a Hugging Face model in place of the configuration's; weights are drawn. One
  of config and model must be given
- `options`: [nullable] JSON: \"micro_batch\" and \"sequence\" (the configuration's, without one 4 and 128),
  \"dtype\" (\"f32\", \"bf16\"), \"threads\" (0), \"steps\" (3), \"by\" (\"op\", \"instruction\")
"""
function ds_run_profile(comm, config, model, options, format, out_text)
    @ccall libds.ds_run_profile(comm::Ptr{ds_comm}, config::Cstring, model::Cstring, options::Cstring, format::Int32, out_text::Ptr{Ptr{Cchar}})::Int32
end

"""
Trains a few steps and runs each instruction of the last one again, alone, as `libds audit` does
(docs/reference/audit.md): kernels against the reference in double, collectives, copies and files bit by bit.
The text has a line for each instruction with its error and bound, largest first, and ends with the verdict.
Collective; the same result on all ranks.
- `config`: JSON text
- `options`: [nullable] JSON: \"steps\" (2), \"top\" (20 lines; 0: all), \"threads\" (0)
- `out_failed`: [out] instructions beyond their bound or with other bits, on any rank
"""
function ds_run_audit(comm, config, options, format, out_failed, out_text)
    @ccall libds.ds_run_audit(comm::Ptr{ds_comm}, config::Cstring, options::Cstring, format::Int32, out_failed::Ptr{Int32}, out_text::Ptr{Ptr{Cchar}})::Int32
end
