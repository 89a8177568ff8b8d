"""
Training of large models from Julia: engines, graphs, collectives, tensors and runs of libds.

Handles are freed by `close` or when they are garbage-collected; a call on a closed handle throws. Every error of libds is an
`Error`. Arrays are lent without copies. Julia's arrays are column-major and libds's tensors row-major, so **the dimensions
of a tensor are those of the array in reverse**: an array of size (3, 4), three numbers in each of four columns, is a tensor
of shape [4, 3], three numbers in each of four rows. All functions here use Julia's order.
"""
module Libds

export Comm, Tensor, Graph, Plan, Engine

# The library is opened by its soname: __init__ has already loaded it.
const libds = "libds.so.0"

include("lowlevel.jl")

# ---------------------------------------------------------------- errors and texts

"The error of a call of libds. `status` is one of the DS_ERROR_ constants. `key` (of the configuration), `tensor` and `rank` say
what the message is about; each is nothing if the message names none."
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

# For each thread, the exception that a callback on it has thrown. It is rethrown after the
# surrounding call.
const thrown = Any[]

function check(status)
    thread = Threads.threadid()
    exception = thrown[thread]
    if exception !== nothing
        thrown[thread] = nothing
        throw(exception)
    end
    status == DS_OK || throw(last_error(status))
    nothing
end

# Runs the body of a callback. Its exception is kept, the surrounding call ends, and `check` rethrows it.
function contained(body, failed)
    try
        body()
    catch exception
        thread = Threads.threadid()
        thrown[thread] === nothing && (thrown[thread] = exception)
        failed
    end
end

argument_error(message) = throw(Error(DS_ERROR_INVALID_ARGUMENT, message, nothing, nothing, nothing))

# Calls make(out) and returns the text that the call has created.
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

"Returns the version of the library."
version() = VersionNumber(unsafe_string(ds_version()))

"Returns facts about this machine and build; `format` is :text or :json."
env_report(format = :text) = text_of(out -> ds_env_report(format_of(format), out))


"The severities of log lines, for `set_log`."
const log_levels = (:debug, :info, :warning, :error)
const log_sink = Ref{Any}(nothing)

function call_log(level::Int32, line::Ptr{Cchar}, user::Ptr{Cvoid})::Cvoid
    contained(nothing) do
        log_sink[](log_levels[clamp(level, 0, 3)+1], unsafe_string(line))
        nothing
    end
end

"Calls `f(level, line)` for the log lines of the process, where level is one of log_levels. `set_log(nothing)` restores the
default: warnings and errors go to stderr."
function set_log(f)
    f === nothing || (log_sink[] = f)
    check(ds_log_set_fn(f === nothing ? C_NULL : @cfunction(call_log, Cvoid, (Int32, Ptr{Cchar}, Ptr{Cvoid})), C_NULL))
end

# ---------------------------------------------------------------- handles

abstract type Handle end

# Returns the address for a call. The handle lives as long as its holder is preserved.
function raw(h::Handle)
    h.raw == C_NULL && throw(Error(DS_ERROR_STATE, "this $(nameof(typeof(h))) is closed", nothing, nothing, nothing))
    h.raw
end
raw(::Nothing) = C_NULL

Base.isopen(h::Handle) = h.raw != C_NULL

function Base.close(h::Handle)
    at = h.raw
    h.raw = typeof(at)(C_NULL)
    at == C_NULL || destroy(h, at)
    nothing
end

made(h::Handle) = finalizer(close, h)

# DS_LIBRARY names libds.so if the system's loader would not find it.
function __init__()
    if haskey(ENV, "DS_LIBRARY")
        lazily = 1  # RTLD_LAZY
        ccall(:dlopen, Ptr{Cvoid}, (Cstring, Cint), ENV["DS_LIBRARY"], lazily) == C_NULL &&
            error("DS_LIBRARY: ", unsafe_string(ccall(:dlerror, Cstring, ())))
    end
    threads = isdefined(Threads, :maxthreadid) ? Threads.maxthreadid() : Threads.nthreads()
    append!(empty!(thrown), fill(nothing, threads))
end

include("tensor.jl")
include("stream.jl")
include("comm.jl")
include("graph.jl")
include("ops.jl")
include("custom.jl")
include("engine.jl")
include("run.jl")

end
