# Queues of work on an engine's device.

"""
    Stream(engine)

A queue of work on the engine's device. The host does not see the memory of that device. Copies, steps and inference that are called with
`stream = s` run in the order of the calls; `synchronize(s)` waits for them. The tensors that they use are kept until then. "cpu" has
no streams.
"""
mutable struct Stream <: Handle
    raw::Ptr{ds_stream}
    kept::Vector{Tensor}  # the tensors that the work of the stream uses
    function Stream(e)
        out = Ref{Ptr{ds_stream}}(C_NULL)
        GC.@preserve e check(ds_stream_create(raw(e), out))
        made(new(out[], []))
    end
end
destroy(::Stream, at) = ds_stream_destroy(at)  # finishes its work

function synchronize(s::Stream)
    GC.@preserve s check(ds_stream_synchronize(raw(s)))
    foreach(t -> t.busy = nothing, s.kept)
    empty!(s.kept)
    nothing
end

# Waits for the stream before a tensor that it uses is freed. May run in a finalizer.
finish(s::Stream) = isopen(s) && ds_stream_synchronize(s.raw)

# Keeps tensors until the stream has done its work. To limit their number, waits for the stream when
# there are more than 1000.
function keep_for(s::Stream, tensors...)
    for t in tensors
        t === nothing && continue
        t.busy === nothing || t.busy === s || finish(t.busy)
        t.busy = s
        push!(s.kept, t)
    end
    length(s.kept) > 1000 && synchronize(s)
    nothing
end
