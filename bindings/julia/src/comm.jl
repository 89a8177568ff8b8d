# Groups of ranks and their collectives.

"A group of ranks. `Comm(url; rank, size)` joins a group; the urls are those of ds_comm_create."
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

# The functions of another library's collectives, kept while libds may call them. libds may drop
# them in a finalizer, which only clears `live`; the next transport that is created removes those
# that are not live.
mutable struct Transport
    all_to_all::Any
    send::Any
    receive::Any
    size::Int
    live::Bool
end
const transports = Transport[]
const transports_lock = ReentrantLock()

transport_of(user) = unsafe_pointer_to_objref(user)::Transport
bytes_of(at, count) = unsafe_wrap(Array, count == 0 ? Ptr{UInt8}(1) : Ptr{UInt8}(at), count)
lists_of(at, counts, size) = [bytes_of(unsafe_load(at, r), Int(unsafe_load(counts, r))) for r in 1:size]

function call_all_to_all(ins::Ptr{Ptr{Cvoid}}, in_sizes::Ptr{Csize_t}, outs::Ptr{Ptr{Cvoid}}, out_sizes::Ptr{Csize_t},
                         user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        t = transport_of(user)
        t.all_to_all(lists_of(ins, in_sizes, t.size), lists_of(outs, out_sizes, t.size))
        DS_OK
    end
end
function call_send(data::Ptr{Cvoid}, count::Csize_t, to::Int32, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        transport_of(user).send(bytes_of(data, Int(count)), Int(to))
        DS_OK
    end
end
function call_receive(data::Ptr{Cvoid}, count::Csize_t, from::Int32, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        transport_of(user).receive(bytes_of(data, Int(count)), Int(from))
        DS_OK
    end
end
end_transport(user::Ptr{Cvoid})::Cvoid = (transport_of(user).live = false; nothing)

"""
    Comm(all_to_all; rank, size, send = nothing, receive = nothing)

Creates a group whose bytes go through the functions of another library, which keeps its own process groups. Sums have the same bits
as over every url. `all_to_all(outgoing, incoming)` gets a vector of bytes for each rank: it sends `outgoing[r + 1]` to rank r and
fills `incoming[r + 1]` with the bytes that rank r sends; the vectors of this rank are empty. `send(data, to)` and
`receive(data, from)` move bytes between two ranks; without them, sends, receives and splits are not supported. Each function must
return only when the bytes of this rank have been sent and received. The vectors must not be used after the call, and the functions
must not use the group. While a function waits for other tasks, those tasks must not call libds, and the function must stay on its
thread. The functions need their own time-outs, because libds cannot see which rank they wait for. An exception in a function ends
the group for this rank, and the surrounding call throws it.
"""
function Comm(all_to_all::Function; rank, size, send = nothing, receive = nothing)
    t = Transport(all_to_all, send, receive, size, true)
    options, out = Ref(ds_comm_options(sizeof(ds_comm_options), rank, size, 300_000, 60_000)), Ref{Ptr{ds_comm}}(C_NULL)
    status = GC.@preserve t begin
        own = Ref(ds_comm_callbacks(sizeof(ds_comm_callbacks), C_NULL,
            @cfunction(call_all_to_all, Int32, (Ptr{Ptr{Cvoid}}, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}, Ptr{Csize_t}, Ptr{Cvoid})),
            send === nothing ? C_NULL : @cfunction(call_send, Int32, (Ptr{Cvoid}, Csize_t, Int32, Ptr{Cvoid})),
            receive === nothing ? C_NULL : @cfunction(call_receive, Int32, (Ptr{Cvoid}, Csize_t, Int32, Ptr{Cvoid})),
            C_NULL, @cfunction(end_transport, Cvoid, (Ptr{Cvoid},)), pointer_from_objref(t)))
        ds_comm_create_from_callbacks(own, options, out)
    end
    check(status)
    lock(transports_lock) do
        filter!(other -> other.live, transports)
        push!(transports, t)
    end
    Comm(out[])
end

rank(comm::Comm) = Int(GC.@preserve comm ds_comm_rank(raw(comm)))
Base.size(comm::Comm) = Int(GC.@preserve comm ds_comm_size(raw(comm)))
Base.show(io::IO, c::Comm) = isopen(c) ? print(io, "Comm(rank $(rank(c)) of $(size(c)))") : print(io, "Comm(closed)")

const reduce_ops = Dict(:sum => DS_REDUCE_OP_SUM, :mean => DS_REDUCE_OP_MEAN, :max => DS_REDUCE_OP_MAX, :min => DS_REDUCE_OP_MIN)
reduce_op(op) = get(() -> argument_error("op must be :sum, :mean, :max or :min, got $(repr(op))"), reduce_ops, op)

# Types whose sums have the same type, so that the sum can replace the data.
const Summed = Union{Float32,Float64,Int32,Int64,UInt8}
sum_type(T) = T <: Union{Float16,BFloat16Bits} ? Float32 : T

"Replaces the array of each rank by the sum (or :mean, :max, :min) of all ranks' arrays, with the same bits over any transport."
function all_reduce!(comm::Comm, data::AbstractArray{T}; op = :sum) where {T<:Summed}
    collective(comm, :all_reduce, [data]; op = op)
    data
end

"Returns the arrays of all ranks, in the order of ranks along a new last dimension."
function all_gather(comm::Comm, data::AbstractArray{T}) where {T<:AnyElement}
    dense(data)
    out = Array{T}(undef, size(data)..., size(comm))
    GC.@preserve comm data out check(ds_comm_all_gather(raw(comm), pointer(data), sizeof(T) * length(data), pointer(out)))
    out
end

"Sums `data` over the ranks and returns this rank's part: the last dimension of the sum is split by ranks. 16-bit floats give Float32."
function reduce_scatter(comm::Comm, data::AbstractArray{T}) where {T<:AnyElement}
    dense(data)
    parts = size(comm)
    ndims(data) > 0 && size(data, ndims(data)) % parts == 0 ||
        argument_error("the last dimension of data must be a multiple of $parts ranks, got size $(size(data))")
    out = Array{sum_type(T)}(undef, size(data)[1:end-1]..., size(data, ndims(data)) ÷ parts)
    GC.@preserve comm data out check(
        ds_comm_reduce_scatter(raw(comm), pointer(data), length(out), dtype_of(T), pointer(out)))
    out
end

"Sends block r of `data`, counted along the last dimension, to rank r; block r of the result comes from rank r."
function all_to_all(comm::Comm, data::AbstractArray{T}) where {T<:AnyElement}
    dense(data)
    parts = size(comm)
    length(data) % parts == 0 || argument_error("data must have a multiple of $parts elements, got $(length(data))")
    out = similar(Array{T}, axes(data))
    GC.@preserve comm data out check(
        ds_comm_all_to_all(raw(comm), pointer(data), sizeof(T) * (length(data) ÷ parts), pointer(out)))
    out
end

"Copies the array of rank `root` to all ranks."
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

"Returns a group of the ranks that pass the same color, ordered by key; nothing for the color nothing."
function split(comm::Comm, color, key = 0)
    out = Ref{Ptr{ds_comm}}(C_NULL)
    GC.@preserve comm check(ds_comm_split(raw(comm), color === nothing ? -1 : color, key, out))
    out[] == C_NULL ? nothing : Comm(out[])
end

barrier(comm::Comm) = GC.@preserve comm check(ds_comm_barrier(raw(comm)))
abort(comm::Comm, reason) = GC.@preserve comm check(ds_comm_abort(raw(comm), reason))
flight_record(comm::Comm, format = :text) =
    GC.@preserve comm text_of(out -> ds_comm_flight_record(raw(comm), format_of(format), out))
"Times the collectives of this group from now on; `log(comm)` returns the table."
log_start(comm::Comm) = GC.@preserve comm check(ds_comm_log_start(raw(comm)))
log(comm::Comm, format = :text) = GC.@preserve comm text_of(out -> ds_comm_log(raw(comm), format_of(format), out))

# ---------------------------------------------------------------- collectives as values

const comm_ops = Dict(:all_reduce => DS_COMM_OP_ALL_REDUCE, :all_gather => DS_COMM_OP_ALL_GATHER,
                      :reduce_scatter => DS_COMM_OP_REDUCE_SCATTER, :all_to_all => DS_COMM_OP_ALL_TO_ALL,
                      :broadcast => DS_COMM_OP_BROADCAST, :barrier => DS_COMM_OP_BARRIER, :reduce => DS_COMM_OP_REDUCE,
                      :gather => DS_COMM_OP_GATHER, :scatter => DS_COMM_OP_SCATTER)

"A collective that was started. `fetch(work)` waits for it and returns the arrays, which belong to libds until then."
mutable struct Work <: Handle
    raw::Ptr{ds_work}
    ins::Any   # arrays that libds uses
    outs::Any
end
destroy(::Work, at) = ds_work_destroy(at)

# Started collectives. Their arrays must not be garbage-collected before the collectives have ended,
# even if nobody holds the Work.
const started = Work[]
const started_lock = ReentrantLock()
keep(test) = lock(() -> filter!(test, started), started_lock)

"Returns whether a started collective has ended, with success or not."
function isdone(w::Work)
    done = Ref{Int32}(0)
    GC.@preserve w check(ds_work_test(raw(w), done))
    done[] == 1
end
function Base.wait(w::Work)
    status = GC.@preserve w ds_work_wait(raw(w))
    keep(other -> other !== w)
    check(status)
end
function Base.fetch(w::Work)
    wait(w)
    w.outs
end
"Waits until the collective has ended, with success or not, and frees the handle."
function Base.close(w::Work)
    isopen(w) || return
    GC.@preserve w ds_work_wait(w.raw)
    keep(other -> other !== w)
    at, w.raw = w.raw, C_NULL
    ds_work_destroy(at)
end
# Finalizers must not wait, so a Work stays in `started` until it has ended.
function forget(w::Work)
    at, w.raw = w.raw, C_NULL
    at == C_NULL || ds_work_destroy(at)
    nothing
end
Base.show(io::IO, w::Work) = print(io, !isopen(w) ? "Work(closed)" : isdone(w) ? "Work(done)" : "Work(running)")

divided(n, parts) = n % parts == 0 ? n ÷ parts : argument_error("an array must have a multiple of $parts elements, got $n")
expect(n, expected, what) = n == expected || argument_error("$what must have $expected elements, got $n")

# Checks one array in blocks; returns the number of elements of the result.
function check_blocks(comm, kind, arrays, blocks, out_blocks)
    parts, n = size(comm), length(arrays) == 1 ? length(arrays[1]) : argument_error("blocks take one array, got $(length(arrays))")
    length(blocks) == parts || argument_error("blocks must be one for each of $parts ranks, got $(length(blocks))")
    own, all = blocks[rank(comm)+1], sum(blocks)
    if kind === :all_to_all
        out_blocks === nothing && argument_error("all_to_all with blocks needs out_blocks")
        length(out_blocks) == parts || argument_error("out_blocks must be one for each of $parts ranks, got $(length(out_blocks))")
        expect(n, all, "the array of these blocks")
        return Csize_t[], [sum(out_blocks)]
    end
    kind === :all_gather || kind === :reduce_scatter || argument_error("blocks are of all_gather, reduce_scatter and all_to_all")
    expect(n, kind === :all_gather ? own : all, "the array of these blocks")
    Csize_t[], [kind === :all_gather ? all : own]
end

# Checks a list; returns the count of each array as ds.h counts it, and the numbers of elements of the results.
function check_list(comm, kind, arrays, counts, root)
    parts, at_root = size(comm), rank(comm) == root
    if kind === :scatter
        counts === nothing && argument_error("scatter needs counts: elements of a block of each array")
        if at_root
            expect(length(arrays), length(counts), "the list of arrays")
            foreach((a, n) -> expect(length(a), n * parts, "an array of the root"), arrays, counts)
        end
        return Csize_t[counts...], Int[counts...]
    end
    lengths = Int[length(a) for a in arrays]
    kind === :all_gather && return Csize_t[lengths...], lengths .* parts
    kind === :reduce_scatter && (part = divided.(lengths, parts); return Csize_t[part...], part)
    kind === :all_to_all && return Csize_t[divided.(lengths, parts)...], lengths
    kind === :reduce && return Csize_t[lengths...], at_root ? lengths : zero(lengths)
    kind === :gather && return Csize_t[lengths...], at_root ? lengths .* parts : zero(lengths)
    Csize_t[lengths...], lengths
end

# Checks the arrays and calls ds_comm_submit; with out_work C_NULL the collective runs at once.
# Returns the arrays that the collective uses.
function submit(comm, kind, arrays, out_work; op = :sum, root = 0, counts = nothing, blocks = nothing, out_blocks = nothing)
    haskey(comm_ops, kind) ||
        argument_error("no collective is named $(repr(kind)); there are $(join(sort!(collect(keys(comm_ops))), ", "))")
    code = comm_ops[kind]
    foreach(dense, arrays)
    T = isempty(arrays) ? eltype(eltype(arrays)) : eltype(first(arrays))
    T === Any && (T = UInt8)
    all(a -> eltype(a) === T, arrays) || argument_error("arrays of one collective must have one type, got $(eltype.(arrays))")
    lengths = blocks === nothing ? check_list(comm, kind, arrays, counts, root) :
        check_blocks(comm, kind, arrays, blocks, out_blocks)
    kind === :barrier && (lengths = (Csize_t[], Int[]))
    O = kind in (:all_reduce, :reduce_scatter, :reduce) ? sum_type(T) : T
    outs = kind === :broadcast || (kind === :all_reduce && O === T) ? collect(arrays) : [Vector{O}(undef, n) for n in lengths[2]]
    GC.@preserve comm arrays outs begin
        froms = Ptr{Cvoid}[pointer(a) for a in (isempty(arrays) ? outs : arrays)]
        tos = Ptr{Cvoid}[pointer(a) for a in outs]
        sizes = lengths[1]
        sends = blocks === nothing ? Csize_t[] : Csize_t[blocks...]
        takes = out_blocks === nothing ? Csize_t[] : Csize_t[out_blocks...]
        list(sizes) = isempty(sizes) ? Ptr{Csize_t}(C_NULL) : pointer(sizes)
        GC.@preserve froms tos sizes sends takes begin
            call = Ref(ds_comm_call(sizeof(ds_comm_call), code, dtype_of(T), reduce_op(op), root, pointer(froms), pointer(tos),
                                    list(sizes), length(tos), list(sends), list(takes), length(sends)))
            check(ds_comm_submit(raw(comm), call, out_work))
        end
    end
    arrays, outs
end

"""
    collective(comm, kind, arrays = []; op = :sum, root = 0, counts, blocks, out_blocks)

Runs one collective over a list of arrays of one type: `kind` is :all_reduce, :all_gather, :reduce_scatter, :all_to_all,
:broadcast, :barrier, :reduce, :gather or :scatter, `op` :sum, :mean, :max or :min. Returns the list of results; an all_reduce
(except of 16-bit floats, whose sum is Float32) and a broadcast change the arrays themselves. Only the root gets the results of
`reduce` and `gather`. For a `scatter`, give the arrays of the root, and `counts`, the number of elements in a block of each. With
`blocks`, an :all_gather, :reduce_scatter or :all_to_all takes one array, with blocks of unequal size: blocks[r + 1] elements belong
to rank r; an :all_to_all also needs `out_blocks`, the number of elements from each rank.
"""
collective(comm::Comm, kind::Symbol, arrays = Vector{UInt8}[]; options...) = submit(comm, kind, arrays, C_NULL; options...)[2]

"""
    start(comm, kind, arrays = []; options...)

Starts the collective that `collective` would run, and returns a `Work`. The arrays belong to libds until `fetch(work)` or
`wait(work)` has returned: do not use them before. They are kept alive until then, even if nobody holds the work.
"""
function start(comm::Comm, kind::Symbol, arrays = Vector{UInt8}[]; options...)
    keep(w -> isopen(w) && !isdone(w))
    out = Ref{Ptr{ds_work}}(C_NULL)
    ins, outs = submit(comm, kind, arrays, out; options...)
    work = finalizer(forget, Work(out[], ins, outs))
    lock(() -> push!(started, work), started_lock)
    work
end
