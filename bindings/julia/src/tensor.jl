# Element types; tensors; tensors of other libraries by DLPack.

const Element = Union{Float32,Float64,Float16,Int32,Int64,UInt8}
"The bits of a bfloat16 number, for which Julia 1.5 has no type."
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
"Rounds to the nearest number, ties to even."
function BFloat16Bits(x::Real)
    bits = reinterpret(UInt32, Float32(x))
    isnan(x) && return reinterpret(BFloat16Bits, (bits >> 16) % UInt16 | 0x0040)
    reinterpret(BFloat16Bits, ((UInt64(bits) + 0x7fff + (bits >> 16 & 1)) >> 16) % UInt16)
end
Base.zero(::Type{BFloat16Bits}) = reinterpret(BFloat16Bits, 0x0000)
Base.show(io::IO, x::BFloat16Bits) = print(io, "BFloat16Bits(", Float32(x), ")")

# Returns `data` if its memory is contiguous, as that of an Array is; otherwise throws.
function dense(data::AbstractArray{T}) where {T}
    dtype_of(T)
    data isa Array && return data
    stride = 1
    for d in 1:ndims(data)
        size(data, d) == 1 || length(data) == 0 || Base.stride(data, d) == stride ||
            argument_error("array must be dense: its dimension $d has stride $(Base.stride(data, d)), not $stride")
        stride *= size(data, d)
    end
    data
end

"""
A tensor on the host or, with a stream, on an engine's device. `Tensor(array)` lends the array without a copy and keeps it alive;
the array may be a view with gaps. `Tensor(T, dims...; stream = nothing)` creates a tensor of zeros.
"""
mutable struct Tensor <: Handle
    raw::Ptr{ds_tensor}
    lent::Any  # the owner of the memory
    busy::Any  # the stream whose work uses the tensor
    Tensor(raw::Ptr{ds_tensor}, lent) = made(new(raw, lent, nothing))
end
function destroy(t::Tensor, at)
    t.busy === nothing || finish(t.busy)
    ds_tensor_destroy(at)
end

# Creates a tensor by the only call of ds_tensor_create. The memory must outlive the handle.
function create(::Type{T}, dims, strides, data::Ptr, stream) where {T}
    out = Ref{Ptr{ds_tensor}}(C_NULL)
    reversed = Int64[dims[d] for d in length(dims):-1:1]
    GC.@preserve stream check(ds_tensor_create(dtype_of(T), reversed, length(reversed), strides, data, raw(stream), out))
    out[]
end

# Returns a handle over an array's memory, valid as long as the array is preserved.
lend(data::Array{T}) where {T} = create(T, size(data), C_NULL, pointer(data), nothing)
function lend(data::AbstractArray{T}) where {T}
    dtype_of(T)
    data isa StridedArray || argument_error("array must be strided memory, got $(typeof(data))")
    create(T, size(data), Int64[stride(data, d) for d in ndims(data):-1:1], pointer(data), nothing)
end

Tensor(data::AbstractArray) = GC.@preserve data Tensor(lend(data), data)
Tensor(T::Type, dims::Integer...; stream = nothing) = Tensor(create(T, dims, C_NULL, C_NULL, stream), nothing)

# Returns the description of a tensor by the only call of ds_tensor_info.
function info_of(at::Ptr{ds_tensor})
    dtype, dims, strides, count = Ref{Int32}(0), zeros(Int64, 8), zeros(Int64, 8), Ref{Csize_t}(0)
    device, data = Ref{Ptr{Cchar}}(C_NULL), Ref{Ptr{Cvoid}}(C_NULL)
    check(ds_tensor_info(at, dtype, dims, strides, 8, count, device, data))
    (type = element_types[dtype[]], dims = Tuple(reverse(dims[1:count[]])), strides = Tuple(reverse(strides[1:count[]])),
     device = unsafe_string(device[]), data = data[])
end
info(t::Tensor) = GC.@preserve t info_of(raw(t))
Base.size(t::Tensor) = info(t).dims
Base.strides(t::Tensor) = info(t).strides
Base.eltype(t::Tensor) = info(t).type
device(t::Tensor) = info(t).device
Base.show(io::IO, t::Tensor) = isopen(t) ? print(io, "Tensor($(eltype(t)), $(size(t)))") : print(io, "Tensor(closed)")

# Returns the memory of a tensor as an array, valid as long as the tensor.
function array_of(at::Ptr{ds_tensor})
    i = info_of(at)
    i.device == "cpu" || argument_error("the tensor must be on the host for an array, got device '$(i.device)'")
    compact = cumprod([1; collect(i.dims)])
    for d in 1:length(i.dims)
        prod(i.dims) == 0 || i.dims[d] == 1 || i.strides[d] == compact[d] ||
            argument_error("the tensor must be compact for an array, got strides $(i.strides)")
    end
    unsafe_wrap(Array, convert(Ptr{i.type}, i.data), i.dims)
end
"Calls `f` with the tensor's memory as an array, without a copy. The array must not be used after the call."
with_array(f, t::Tensor) = GC.@preserve t f(array_of(raw(t)))
"Returns a copy of the elements."
Base.Array(t::Tensor) = with_array(copy, t)

"Copies the elements of a tensor or array of the same type and shape, whatever their strides and devices."
function Base.copyto!(to::Tensor, from::Union{Tensor,AbstractArray}; stream = nothing)
    source = from isa Tensor ? from : Tensor(from)
    GC.@preserve to source stream check(ds_tensor_copy(raw(to), raw(source), raw(stream)))
    stream === nothing ? from isa Tensor || close(source) : keep_for(stream, to, source)
    to
end

# ---------------------------------------------------------------- DLPack

"DLTensor: the memory, device, type and shape of a DLPack tensor."
struct DLTensor
    data::Ptr{Cvoid}
    device_kind::Int32  # 1: host memory
    device_index::Int32
    ndim::Int32
    code::UInt8  # 0: signed, 1: unsigned, 2: float, 4: bfloat
    bits::UInt8
    lanes::UInt16
    shape::Ptr{Int64}
    strides::Ptr{Int64}  # in elements; NULL means compact row-major
    byte_offset::UInt64
end

"DLManagedTensor. The owner calls the deleter once."
struct DLManaged
    tensor::DLTensor
    context::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
end

"DLManagedTensorVersioned, of DLPack 1.x."
struct DLVersioned
    major::UInt32
    minor::UInt32
    context::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
    flags::UInt64  # bit 0 means that the memory is lent for reading only
    tensor::DLTensor
end

"""
A DLPack tensor, without a copy. `Capsule(tensor)` shares the memory of a tensor, `Capsule(array)` that of an array, and
`Capsule(pointer)` takes over a tensor of another library, given as a `Ptr` to DLManaged or DLVersioned. `Tensor(capsule)` imports
it. `release(capsule)` returns the pointer and gives up ownership: the receiver must call the deleter, on a thread of Julia if the
memory belongs to an array.
"""
mutable struct Capsule <: Handle
    raw::Union{Ptr{DLManaged},Ptr{DLVersioned}}
    Capsule(raw::Union{Ptr{DLManaged},Ptr{DLVersioned}}) =
        raw == C_NULL ? argument_error("a DLPack tensor must not be NULL") : made(new(raw))
end
function destroy(::Capsule, at)
    deleter = unsafe_load(at).deleter
    deleter == C_NULL || ccall(deleter, Cvoid, (Ptr{Cvoid},), at)
end
function release(c::Capsule)
    at = raw(c)
    c.raw = typeof(at)(C_NULL)
    at
end

# Arrays whose memory a DLPack tensor shares. Deleters run in finalizers, which may interrupt a
# change of the list, so they only set a mark in `context`; the next export removes the marked ones.
const shown = Vector{Any}[]
const shown_lock = ReentrantLock()
const ended = Ptr{Cvoid}(1)

function end_shown(at::Ptr{DLManaged})::Cvoid
    unsafe_store!(Ptr{Ptr{Cvoid}}(at + fieldoffset(DLManaged, 2)), ended)
    nothing
end

const dl_types = Dict(Float32 => (2, 32), Float64 => (2, 64), Float16 => (2, 16), BFloat16Bits => (4, 16), Int32 => (0, 32),
                      Int64 => (0, 64), UInt8 => (1, 8))

function Capsule(data::AbstractArray{T}) where {T}
    dense(data)
    code, bits = dl_types[T]
    shape = Int64[reverse(size(data))...]
    managed = [DLManaged(DLTensor(pointer(data), 1, 0, ndims(data), code, bits, 1, pointer(shape), C_NULL, 0), C_NULL,
                         @cfunction(end_shown, Cvoid, (Ptr{DLManaged},)))]
    lock(shown_lock) do
        filter!(entry -> entry[1][1].context != ended, shown)
        push!(shown, Any[managed, data, shape])
    end
    Capsule(pointer(managed))
end

# Exports a tensor in the form of DLPack before 1.0. The capsule keeps memory of libds alive; for a
# lent array, the array itself is exported anew.
function Capsule(t::Tensor)
    t.lent isa AbstractArray && isopen(t) && return Capsule(t.lent)
    out = Ref{Ptr{DLManagedTensor}}(C_NULL)
    GC.@preserve t check(ds_tensor_to_dlpack(raw(t), out, C_NULL))
    Capsule(convert(Ptr{DLManaged}, out[]))
end
"Like Capsule(tensor), in the form of DLPack 1.x."
function VersionedCapsule(t::Tensor)
    out = Ref{Ptr{DLManagedTensorVersioned}}(C_NULL)
    lent = t.lent isa AbstractArray && isopen(t) ? Tensor(Capsule(t.lent)) : t
    GC.@preserve lent check(ds_tensor_to_dlpack(raw(lent), C_NULL, out))
    Capsule(convert(Ptr{DLVersioned}, out[]))
end

# Imports a capsule. A capsule that is refused stays unchanged.
function Tensor(c::Capsule)
    old, new, out = Ptr{DLManagedTensor}(C_NULL), Ptr{DLManagedTensorVersioned}(C_NULL), Ref{Ptr{ds_tensor}}(C_NULL)
    at = raw(c)
    at isa Ptr{DLManaged} ? (old = convert(typeof(old), at)) : (new = convert(typeof(new), at))
    check(ds_tensor_from_dlpack(old, new, C_NULL, out))
    release(c)
    Tensor(out[], nothing)
end
