"""
Training of large models from Julia: engines, graphs, collectives, tensors and runs of libds.

Handles are freed by `close` or when they are collected; a call on one that is closed throws. Every error of libds is an
`Error`. Arrays are lent without copies. Julia's arrays are column-major and libds's tensors row-major, so **the dimensions
of a tensor are those of the array in reverse**: an array of size (3, 4), three numbers in each of four columns, is a tensor
of shape [4, 3], three numbers in each of four rows. All functions here take and give Julia's order.
"""
module Libds

export Comm, Tensor, Graph, Plan, Engine

# DS_LIBRARY names libds.so where the system's loader would not find it.
const libds = get(ENV, "DS_LIBRARY", "libds.so")

include("lowlevel.jl")

# ---------------------------------------------------------------- errors and texts

"What a call of libds has to say: `status` is one of the DS_ERROR_ constants; `key` (of the configuration), `tensor` and
`rank` are what it is about, nothing where the message names none."
struct Error <: Exception
    status::Int32
    message::String
    key::Union{Nothing,String}
    tensor::Union{Nothing,String}
    rank::Union{Nothing,Int}
end

Base.showerror(io::IO, e::Error) = print(io, "libds: ", unsafe_string(ds_status_name(e.status)), ": ", e.message)

function last_error(status)
    key, tensor, rank = Ref{Ptr{Cchar}}(C_NULL), Ref{Ptr{Cchar}}(C_NULL), Ref{Int32}(-1)
    ds_last_error_details(key, tensor, rank)
    text(p) = p[] == C_NULL || unsafe_load(p[]) == 0 ? nothing : unsafe_string(p[])
    Error(status, unsafe_string(ds_last_error_message()), text(key), text(tensor), rank[] < 0 ? nothing : Int(rank[]))
end

# What a callback has thrown goes on behind the call that it was called in.
const thrown = Ref{Any}(nothing)

function check(status)
    exception = thrown[]
    thrown[] = nothing
    exception === nothing || throw(exception)
    status == DS_OK || throw(last_error(status))
    nothing
end

argument_error(message) = throw(Error(DS_ERROR_INVALID_ARGUMENT, message, nothing, nothing, nothing))

# Calls make(out), and takes the text that it has made.
function text_of(make)
    out = Ref{Ptr{Cchar}}(C_NULL)
    check(make(out))
    text = unsafe_string(out[])
    ds_text_destroy(out[])
    text
end

optional(text) = text === nothing ? C_NULL : text
format_of(format) = format === :text ? DS_FORMAT_TEXT : format === :json ? DS_FORMAT_JSON :
    argument_error("format must be :text or :json, got $(repr(format))")

"Version of the library."
version() = VersionNumber(unsafe_string(ds_version()))

"Facts of this machine and build; `format` is :text or :json."
env_report(format = :text) = text_of(out -> ds_env_report(format_of(format), out))

# ---------------------------------------------------------------- types of elements

const Element = Union{Float32,Float64,Float16,Int32,Int64,UInt8}
"One bfloat16 number as its bits, which Julia 1.5 has no type for."
primitive type BFloat16Bits 16 end
const AnyElement = Union{Element,BFloat16Bits}

dtype_of(::Type{Float32}) = DS_DTYPE_F32
dtype_of(::Type{Float64}) = DS_DTYPE_F64
dtype_of(::Type{Float16}) = DS_DTYPE_F16
dtype_of(::Type{BFloat16Bits}) = DS_DTYPE_BF16
dtype_of(::Type{Int32}) = DS_DTYPE_I32
dtype_of(::Type{Int64}) = DS_DTYPE_I64
dtype_of(::Type{UInt8}) = DS_DTYPE_U8
dtype_of(T::Type) = argument_error("element type must be Float32, Float64, Float16, Int32, Int64 or UInt8, got $T")

const element_types = Dict(DS_DTYPE_F32 => Float32, DS_DTYPE_F64 => Float64, DS_DTYPE_F16 => Float16,
                           DS_DTYPE_BF16 => BFloat16Bits, DS_DTYPE_I32 => Int32, DS_DTYPE_I64 => Int64, DS_DTYPE_U8 => UInt8)

Base.Float32(x::BFloat16Bits) = reinterpret(Float32, UInt32(reinterpret(UInt16, x)) << 16)

# Memory that libds may use as it is: Array, and views and reshapes of one that lie together.
function dense(data::AbstractArray{T}) where {T}
    dtype_of(T)
    stride = 1
    for d in 1:ndims(data)
        size(data, d) == 1 || length(data) == 0 || Base.stride(data, d) == stride ||
            argument_error("array must be dense: its dimension $d has stride $(Base.stride(data, d)), not $stride")
        stride *= size(data, d)
    end
    data
end

# ---------------------------------------------------------------- handles

abstract type Handle end

# The address, for calls; a handle is alive for as long as its holder is preserved.
function raw(h::Handle)
    h.raw == C_NULL && throw(Error(DS_ERROR_STATE, "this $(nameof(typeof(h))) is closed", nothing, nothing, nothing))
    h.raw
end
raw(::Nothing) = C_NULL

Base.isopen(h::Handle) = h.raw != C_NULL

function Base.close(h::Handle)
    at, h.raw = h.raw, C_NULL
    at == C_NULL || destroy(h, at)
    nothing
end

made(h::Handle) = finalizer(close, h)

# ---------------------------------------------------------------- comm

"A group of ranks. `Comm(url; rank, size)` joins one; urls are those of ds_comm_create."
mutable struct Comm <: Handle
    raw::Ptr{ds_comm}
    function Comm(url::AbstractString = "env"; rank = 0, size = 1, timeout_ms = 300_000, join_ms = 60_000)
        out = Ref{Ptr{ds_comm}}(C_NULL)
        options = Ref(ds_comm_options(sizeof(ds_comm_options), rank, size, timeout_ms, join_ms))
        check(ds_comm_create(url, options, out))
        made(new(out[]))
    end
    Comm(raw::Ptr{ds_comm}) = made(new(raw))
end
destroy(::Comm, at) = ds_comm_destroy(at)

rank(comm::Comm) = Int(GC.@preserve comm ds_comm_rank(raw(comm)))
Base.size(comm::Comm) = Int(GC.@preserve comm ds_comm_size(raw(comm)))
Base.show(io::IO, c::Comm) = isopen(c) ? print(io, "Comm(rank $(rank(c)) of $(size(c)))") : print(io, "Comm(closed)")

const reduce_ops = Dict(:sum => DS_REDUCE_OP_SUM, :mean => DS_REDUCE_OP_MEAN, :max => DS_REDUCE_OP_MAX, :min => DS_REDUCE_OP_MIN)
reduce_op(op) = get(() -> argument_error("op must be :sum, :mean, :max or :min, got $(repr(op))"), reduce_ops, op)

# A collective of one buffer.
function submit(comm::Comm, op, dtype, reduce, root, in, out, count)
    GC.@preserve comm begin
        ins, outs, counts = [convert(Ptr{Cvoid}, in)], [convert(Ptr{Cvoid}, out)], Csize_t[count]
        GC.@preserve ins outs counts begin
            call = Ref(ds_comm_call(sizeof(ds_comm_call), op, dtype, reduce, root, pointer(ins), pointer(outs),
                                    pointer(counts), 1, C_NULL, C_NULL, 0))
            check(ds_comm_submit(raw(comm), call, C_NULL))
        end
    end
end

"Puts the sum (or :mean, :max, :min) of the ranks' arrays in the place of each: the same bits over any transport."
function all_reduce!(comm::Comm, data::AbstractArray{T}; op = :sum) where {T<:Union{Float32,Float64,Int32,Int64,UInt8}}
    dense(data)
    GC.@preserve data submit(comm, DS_COMM_OP_ALL_REDUCE, dtype_of(T), reduce_op(op), 0, pointer(data), pointer(data),
                             length(data))
    data
end

"The arrays of all ranks, one behind the other along a new last dimension."
function all_gather(comm::Comm, data::AbstractArray{T}) where {T<:AnyElement}
    dense(data)
    out = Array{T}(undef, size(data)..., size(comm))
    GC.@preserve comm data out check(ds_comm_all_gather(raw(comm), pointer(data), sizeof(T) * length(data), pointer(out)))
    out
end

"The sum over the ranks of `data`, of which each rank gets its part: the last dimension is split by ranks."
function reduce_scatter(comm::Comm, data::AbstractArray{T}) where {T<:Union{Float32,Float64,Int32,Int64,UInt8}}
    dense(data)
    parts = size(comm)
    ndims(data) > 0 && size(data, ndims(data)) % parts == 0 ||
        argument_error("the last dimension of data must be a multiple of $parts ranks, got size $(size(data))")
    out = Array{T}(undef, size(data)[1:end-1]..., size(data, ndims(data)) ÷ parts)
    GC.@preserve comm data out check(
        ds_comm_reduce_scatter(raw(comm), pointer(data), length(out), dtype_of(T), pointer(out)))
    out
end

"Block r of `data`, of its last dimension, goes to rank r; block r of the result comes from rank r."
function all_to_all(comm::Comm, data::AbstractArray{T}) where {T<:AnyElement}
    dense(data)
    parts = size(comm)
    length(data) % parts == 0 || argument_error("data must have a multiple of $parts elements, got $(length(data))")
    out = similar(Array{T}, axes(data))
    GC.@preserve comm data out check(
        ds_comm_all_to_all(raw(comm), pointer(data), sizeof(T) * (length(data) ÷ parts), pointer(out)))
    out
end

"Copies the array of rank `root` to all."
function broadcast!(comm::Comm, data::AbstractArray{T}, root = 0) where {T<:AnyElement}
    dense(data)
    GC.@preserve comm data check(ds_comm_broadcast(raw(comm), pointer(data), sizeof(T) * length(data), root))
    data
end

function send(comm::Comm, data::AbstractArray{T}, to) where {T<:AnyElement}
    dense(data)
    GC.@preserve comm data check(ds_comm_send(raw(comm), pointer(data), sizeof(T) * length(data), to))
end
function receive!(comm::Comm, data::AbstractArray{T}, from) where {T<:AnyElement}
    dense(data)
    GC.@preserve comm data check(ds_comm_receive(raw(comm), pointer(data), sizeof(T) * length(data), from))
    data
end

"A group of the ranks that give the same color, ordered by key; nothing for the color nothing."
function split(comm::Comm, color, key = 0)
    out = Ref{Ptr{ds_comm}}(C_NULL)
    GC.@preserve comm check(ds_comm_split(raw(comm), color === nothing ? -1 : color, key, out))
    out[] == C_NULL ? nothing : Comm(out[])
end

barrier(comm::Comm) = GC.@preserve comm check(ds_comm_barrier(raw(comm)))
abort(comm::Comm, reason) = GC.@preserve comm check(ds_comm_abort(raw(comm), reason))
flight_record(comm::Comm, format = :text) =
    GC.@preserve comm text_of(out -> ds_comm_flight_record(raw(comm), format_of(format), out))

# ---------------------------------------------------------------- tensor

"A tensor on the host. `Tensor(array)` lends the array without a copy and keeps it; `Tensor(T, dims...)` is of zeros."
mutable struct Tensor <: Handle
    raw::Ptr{ds_tensor}
    lent::Any  # whose memory it is
    Tensor(raw::Ptr{ds_tensor}, lent) = made(new(raw, lent))
end
destroy(::Tensor, at) = ds_tensor_destroy(at)

function tensor(T, dims, data, lent)
    out = Ref{Ptr{ds_tensor}}(C_NULL)
    reversed = Int64[d for d in reverse(dims)]
    GC.@preserve lent check(ds_tensor_create(dtype_of(T), reversed, length(reversed), data, out))
    Tensor(out[], lent)
end
Tensor(data::AbstractArray{T}) where {T} = tensor(T, size(dense(data)), pointer(data), data)
Tensor(T::Type, dims::Integer...) = tensor(T, dims, C_NULL, nothing)

function info(t::Tensor)
    dtype, dims, count, data = Ref{Int32}(0), zeros(Int64, 8), Ref{Csize_t}(0), Ref{Ptr{Cvoid}}(C_NULL)
    GC.@preserve t check(ds_tensor_info(raw(t), dtype, dims, 8, count, data))
    (type = element_types[dtype[]], dims = Tuple(reverse(dims[1:count[]])), data = data[])
end
Base.size(t::Tensor) = info(t).dims
Base.eltype(t::Tensor) = info(t).type
Base.show(io::IO, t::Tensor) = isopen(t) ? print(io, "Tensor($(eltype(t)), $(size(t)))") : print(io, "Tensor(closed)")

"Calls `f` with the tensor's memory as an array, without a copy. The array must not be used behind that."
function with_array(f, t::Tensor)
    i = info(t)
    GC.@preserve t f(unsafe_wrap(Array, convert(Ptr{i.type}, i.data), i.dims))
end
"A copy of the elements."
Base.Array(t::Tensor) = with_array(copy, t)

# ---------------------------------------------------------------- graph

"A model graph. `Graph(name, bound)` is empty; `Graph(config)` is a configuration's model; `parse(Graph, text)` reads one."
mutable struct Graph <: Handle
    raw::Ptr{ds_graph}
    Graph(raw::Ptr{ds_graph}) = made(new(raw))
end
destroy(::Graph, at) = ds_graph_destroy(at)

function graph_of(make)
    out = Ref{Ptr{ds_graph}}(C_NULL)
    check(make(out))
    Graph(out[])
end
Graph(name::AbstractString, bound::Integer) = graph_of(out -> ds_graph_create(name, bound, out))
Graph(config::AbstractString; size = 1) = graph_of(out -> ds_graph_from_config(config, size, out))
Base.parse(::Type{Graph}, text::AbstractString) = graph_of(out -> ds_graph_parse(text, out))
Base.string(g::Graph) = GC.@preserve g text_of(out -> ds_graph_print(raw(g), out))

# Of Julia's order: the rows of a micro-step are the last dimension, `:`.
graph_dims(dims) = Int64[d === Colon() ? -1 : d for d in reverse(dims)]

function value_of(make)
    out = Ref{Int32}(-1)
    check(make(out))
    out[]
end
"Adds an input; its last dimension is `:` where it has the rows of a micro-step."
input!(g::Graph, name, T::Type, dims...) = GC.@preserve g value_of(out ->
    (d = graph_dims(dims); ds_graph_input(raw(g), name, dtype_of(T), d, length(d), out)))
"Adds a parameter; `init` is \"zeros\", \"ones\" or \"normal\", `scale` its standard deviation."
param!(g::Graph, name, dims::Integer...; init = "zeros", scale = 0.0) = GC.@preserve g value_of(out ->
    (d = graph_dims(dims); ds_graph_param(raw(g), name, d, length(d), init, scale, out)))
"Adds an operation of docs/reference/ops.md; `attrs` is JSON."
op!(g::Graph, op, inputs...; attrs = nothing) = GC.@preserve g value_of(out ->
    ds_graph_op(raw(g), op, Int32[inputs...], length(inputs), optional(attrs), out))
"Makes a value the next output: the first one is the loss, the second one what `infer` returns."
output!(g::Graph, name, value) = GC.@preserve g check(ds_graph_output(raw(g), name, value))
"The value that an output, an input, a parameter or a result of this name is."
find(g::Graph, name) = GC.@preserve g value_of(out -> ds_graph_find(raw(g), name, out))

"Dimensions of a value; `:` is the rows of a micro-step."
function dims(g::Graph, value)
    out, count = zeros(Int64, 8), Ref{Csize_t}(0)
    GC.@preserve g check(ds_graph_value_info(raw(g), value, C_NULL, out, 8, count))
    Tuple(d == -1 ? Colon() : Int(d) for d in reverse(out[1:count[]]))
end

include("ops.jl")

# ---------------------------------------------------------------- plan

"A configuration, compiled for one rank, without memory or communication."
mutable struct Plan <: Handle
    raw::Ptr{ds_plan}
    function Plan(config::AbstractString, graph::Union{Graph,Nothing} = nothing; rank = 0, size = 1)
        out = Ref{Ptr{ds_plan}}(C_NULL)
        GC.@preserve graph check(ds_plan_create(config, raw(graph), rank, size, out))
        made(new(out[]))
    end
end
destroy(::Plan, at) = ds_plan_destroy(at)
report(p::Plan, format = :text) = GC.@preserve p text_of(out -> ds_plan_report(raw(p), format_of(format), out))
Base.string(p::Plan) = GC.@preserve p text_of(out -> ds_plan_print(raw(p), out))

# ---------------------------------------------------------------- engine

# A callback's exception is kept, the call that it is in ends, and `check` throws it again.
function contained(body, failed)
    try
        body()
    catch exception
        thrown[] === nothing && (thrown[] = exception)
        failed
    end
end

function call_init(param::Int32, name::Ptr{Cchar}, first::Int64, data::Ptr{Cfloat}, count::Csize_t, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        init = unsafe_pointer_to_objref(user)[]
        init(param, unsafe_string(name), first, unsafe_wrap(Array, data, count))
        DS_OK
    end
end

"""
    Engine(config, graph = nothing; comm = nothing, threads = 0, trace = false, init = nothing)

A training engine; without a graph one in delegate mode. `init(param, name, first, values)` may overwrite the initial values of
elements `first`, `first` + 1, ... of a parameter, counted from 0 in libds's order; it is called for what this rank keeps.
"""
mutable struct Engine <: Handle
    raw::Ptr{ds_engine}
    init::Base.RefValue{Any}
    function Engine(config::AbstractString, graph::Union{Graph,Nothing} = nothing; comm::Union{Comm,Nothing} = nothing,
                    threads = 0, trace = false, init = nothing)
        out, box = Ref{Ptr{ds_engine}}(C_NULL), Ref{Any}(init)
        call = init === nothing ? C_NULL :
            @cfunction(call_init, Int32, (Int32, Ptr{Cchar}, Int64, Ptr{Cfloat}, Csize_t, Ptr{Cvoid}))
        options = Ref(ds_engine_options(sizeof(ds_engine_options), threads, trace, call, pointer_from_objref(box)))
        GC.@preserve comm graph box check(ds_engine_create(raw(comm), config, raw(graph), options, out))
        made(new(out[], box))
    end
end
destroy(::Engine, at) = ds_engine_destroy(at)
Base.show(io::IO, e::Engine) = isopen(e) ?
    print(io, "Engine($(param_count(e)) parameters, step $(Int(get(e, "step"))))") : print(io, "Engine(closed)")

as_tensor(t::Tensor) = t
as_tensor(data::AbstractArray) = Tensor(data)
as_tensor(::Nothing) = nothing

# Inputs as tensors: arrays are lent for the call.
function with_inputs(call, inputs)
    tensors = map(as_tensor, inputs)
    GC.@preserve tensors begin
        handles = Ptr{ds_tensor}[raw(t) for t in tensors]
        check(call(handles, length(handles)))
    end
    foreach(i -> inputs[i] isa AbstractArray && close(tensors[i]), eachindex(tensors))
end
function loss_of(call, e, inputs)
    loss = Ref{Cdouble}(NaN)
    GC.@preserve e with_inputs((handles, count) -> call(raw(e), handles, count, loss), inputs)
    loss[]
end

"One step over arrays or tensors in the order of the graph's inputs; returns the mean loss."
train_batch!(e::Engine, inputs...) = loss_of(ds_train_batch, e, inputs)
forward!(e::Engine, inputs...) = loss_of(ds_forward, e, inputs)
backward!(e::Engine) = GC.@preserve e check(ds_backward(raw(e)))
step!(e::Engine) = GC.@preserve e check(ds_step(raw(e)))
"Loss of a micro-batch without dropout."
eval_batch(e::Engine, inputs...) = loss_of(ds_eval_batch, e, inputs)
"Output 1 of the graph; nothing for an input that it does not depend on."
function infer(e::Engine, inputs...)
    out = Ref{Ptr{ds_tensor}}(C_NULL)
    GC.@preserve e with_inputs((handles, count) -> ds_infer(raw(e), handles, count, out), inputs)
    Tensor(out[], nothing)
end

param_count(e::Engine) = Int(GC.@preserve e ds_engine_param_count(raw(e)))
"Number of a parameter, from 0."
find_param(e::Engine, name) = GC.@preserve e value_of(out -> ds_engine_param_find(raw(e), name, out))
function param_info(e::Engine, param)
    name, out, count = Ref{Ptr{Cchar}}(C_NULL), zeros(Int64, 8), Ref{Csize_t}(0)
    GC.@preserve e begin
        check(ds_engine_param_info(raw(e), param, name, out, 8, count))
        (name = unsafe_string(name[]), dims = Tuple(Int.(reverse(out[1:count[]]))))
    end
end
function state_names(e::Engine)
    names = String[]
    GC.@preserve e while (at = ds_engine_state_name(raw(e), length(names))) != C_NULL
        push!(names, unsafe_string(at))
    end
    names
end
"A whole tensor of the engine: \"param\", \"grad\", or one of state_names."
function Base.read(e::Engine, param::Integer, state::AbstractString = "master")
    out = Array{Float32}(undef, param_info(e, param).dims)
    GC.@preserve e check(ds_engine_read(raw(e), param, state, out, length(out)))
    out
end
function Base.write(e::Engine, param::Integer, state::AbstractString, data::AbstractArray{Float32})
    dense(data)
    GC.@preserve e data check(ds_engine_write(raw(e), param, state, pointer(data), length(data)))
end
freeze!(e::Engine, params, frozen = true) =
    GC.@preserve e check(ds_engine_freeze(raw(e), Int32[params...], length(params), frozen))
"A further group of parameters; `options` is JSON. Returns its number."
add_group!(e::Engine, params, options = nothing) = GC.@preserve e value_of(out ->
    ds_engine_group_add(raw(e), Int32[params...], length(params), optional(options), out))
function Base.get(e::Engine, name::AbstractString)
    out = Ref{Cdouble}(NaN)
    GC.@preserve e check(ds_engine_get(raw(e), name, out))
    out[]
end
set!(e::Engine, name, value) = GC.@preserve e check(ds_engine_set(raw(e), name, value))
function last_step(e::Engine)
    out = Ref(ds_step_result(sizeof(ds_step_result), 0, 0, 0, 0, 0, 0, 0))
    GC.@preserve e check(ds_engine_last_step(raw(e), out, sizeof(ds_step_result)))
    r = out[]
    (step = r.step, updates = r.updates, loss = r.loss, grad_norm = r.grad_norm, lr = r.lr, skipped = r.skipped == 1)
end
skip_reason(e::Engine) = GC.@preserve e text_of(out -> ds_engine_skip_reason(raw(e), out))
report(e::Engine, format = :text) = GC.@preserve e text_of(out -> ds_engine_plan_report(raw(e), format_of(format), out))

"Saves a checkpoint; `options` is JSON: \"client_state\", \"keep\"."
save(e::Engine, folder, options = nothing) = GC.@preserve e check(ds_checkpoint_save(raw(e), folder, optional(options)))
"Loads the newest checkpoint below a folder and returns the client state as JSON."
load!(e::Engine, folder) = GC.@preserve e text_of(out -> ds_checkpoint_load(raw(e), folder, out))
load_model!(e::Engine, folder) = GC.@preserve e check(ds_checkpoint_load_model(raw(e), folder))
save_model(e::Engine, folder, like = nothing) =
    GC.@preserve e check(ds_checkpoint_save_model(raw(e), folder, optional(like)))

# ---------------------------------------------------------------- delegate mode

"Registers a parameter and returns its number, from 0."
add_param!(e::Engine, name, dims::Integer...) = GC.@preserve e value_of(out ->
    (d = graph_dims(dims); ds_engine_param_add(raw(e), name, d, length(d), out)))
"Ends the registration and takes the memory."
start!(e::Engine) = GC.@preserve e check(ds_engine_start(raw(e)))
evaluate!(e::Engine, on::Bool) = GC.@preserve e check(ds_engine_evaluate(raw(e), on))

"""
    gather(f, engine, params...)

Leases parameters while `f` runs, which gets them as arrays without copies, of the compute type (BFloat16Bits for bf16). The
arrays must not be used behind that.
"""
function gather(f, e::Engine, params::Integer...)
    numbers = Int32[params...]
    GC.@preserve e begin
        check(ds_gather_params(raw(e), numbers, length(numbers)))
        views = Tensor[]
        try
            for p in numbers
                out = Ref{Ptr{ds_tensor}}(C_NULL)
                check(ds_engine_param_view(raw(e), p, out))
                push!(views, Tensor(out[], nothing))
            end
            arrays = map(v -> (i = info(v); unsafe_wrap(Array, convert(Ptr{i.type}, i.data), i.dims)), views)
            return GC.@preserve views f(arrays...)
        finally
            foreach(close, views)
            check(ds_release_params(raw(e), numbers, length(numbers)))
        end
    end
end
"Hands over this rank's gradient of a parameter."
function grad_ready!(e::Engine, param::Integer, grad)
    tensor = as_tensor(grad)
    GC.@preserve e tensor check(ds_grad_ready(raw(e), param, raw(tensor)))
    grad isa Tensor || close(tensor)
    nothing
end
"Calls `f` with the place where a gradient goes, which f fills, and hands it over: nothing is copied."
function write_grad!(f, e::Engine, param::Integer)
    out = Ref{Ptr{ds_tensor}}(C_NULL)
    GC.@preserve e check(ds_engine_grad_view(raw(e), param, out))
    view = Tensor(out[], nothing)
    with_array(f, view)
    grad_ready!(e, param, view)
    close(view)
end

# ---------------------------------------------------------------- runs

function call_progress(at::Ptr{ds_run_progress}, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        progress = unsafe_pointer_to_objref(user)[]
        progress(unsafe_load(at)) === false ? DS_ERROR_USER : DS_OK
    end
end

"""
    train([progress,] config; comm = nothing, resume = nothing, quiet = 0)

Trains as `libds train` does. `progress` is called behind each step, on rank 0, with what has `step`, `steps`, `loss`,
`heldout_loss` (NaN where it was not evaluated), `grad_norm`, `lr` and `tokens_per_second`. When it returns false the run is saved
and ends with an `Error` of DS_ERROR_USER.
"""
function train(progress, config; comm = nothing, resume = nothing, quiet = 0)
    box = Any[progress]  # not a Ref: one that leaves this function by its address alone would lie on the stack
    call = progress === nothing ? C_NULL : @cfunction(call_progress, Int32, (Ptr{ds_run_progress}, Ptr{Cvoid}))
    GC.@preserve comm box check(ds_run_train(raw(comm), optional(config), optional(resume), quiet, C_NULL, call, C_NULL,
                                             pointer_from_objref(box)))
end
train(config; options...) = train(nothing, config; options...)

"Continues a text with a run, a checkpoint or a model folder; `options` is JSON."
generate(model, prompt; options = nothing, comm = Comm("self")) = GC.@preserve comm text_of(out ->
    ds_run_generate(raw(comm), model, optional(prompt), optional(options), C_NULL, C_NULL, out))

"`patch` over `config` (RFC 7396), both JSON."
merge_config(config, patch) = text_of(out -> ds_config_merge(config, patch, out))

end
