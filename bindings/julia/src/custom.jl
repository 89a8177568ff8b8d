# Operations that Julia functions compute.

mutable struct CustomOp
    forward::Any
    backward::Any
    inputs::Int
    outputs::Int
    # True until libds has dropped the operation.
    live::Bool
end
# libds may drop an operation in a finalizer. That only clears `live`; the next operation that is
# created removes those that are not live.
const custom_ops = CustomOp[]
const custom_lock = ReentrantLock()

custom_of(user) = unsafe_pointer_to_objref(user)::CustomOp
# Returns the arrays of a list, with nothing for each tensor that libds does not pass.
arrays_of(list, count) = [(at = unsafe_load(list, i)) == C_NULL ? nothing : array_of(at) for i in 1:count]

function call_forward(inputs::Ptr{Ptr{ds_tensor}}, outputs::Ptr{Ptr{ds_tensor}}, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        op = custom_of(user)
        op.forward(arrays_of(inputs, op.inputs), arrays_of(outputs, op.outputs))
        DS_OK
    end
end
function call_backward(inputs::Ptr{Ptr{ds_tensor}}, outputs::Ptr{Ptr{ds_tensor}}, output_grads::Ptr{Ptr{ds_tensor}},
                       input_grads::Ptr{Ptr{ds_tensor}}, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        op = custom_of(user)
        op.backward(arrays_of(inputs, op.inputs), arrays_of(outputs, op.outputs), arrays_of(output_grads, op.outputs),
                    arrays_of(input_grads, op.inputs))
        DS_OK
    end
end
end_custom(user::Ptr{Cvoid})::Cvoid = (custom_of(user).live = false; nothing)

"""
    custom!(forward, graph, name, inputs, outputs; backward = nothing)

Adds an operation of your own and returns its first output. `outputs` has for each output its element type and dimensions, as in
`(Float32, 2, :)`; a type of nothing means the compute type of the engine. `forward(inputs, outputs)` fills the arrays `outputs`;
`backward(inputs, outputs, output_grads, input_grads)` fills those of `input_grads` that are not nothing. Without `backward`, the
operation is not differentiable. Do not use the arrays after the call. The functions must not use the engine that calls them; after
an exception in them, that engine is poisoned. Only the device "cpu" supports custom operations.
"""
function custom!(forward, g::Graph, name, inputs, outputs; backward = nothing)
    op = CustomOp(forward, backward, length(inputs), length(outputs), true)
    dtypes = Int32[o[1] === nothing ? DS_DTYPE_NONE : dtype_of(o[1]) for o in outputs]
    shapes = [graph_dims(o[2:end]) for o in outputs]
    counts, dims = Csize_t[length(s) for s in shapes], Int64[d for s in shapes for d in s]
    value = GC.@preserve g op dtypes counts dims value_of() do out
        own = Ref(ds_custom_op(sizeof(ds_custom_op),
            @cfunction(call_forward, Int32, (Ptr{Ptr{ds_tensor}}, Ptr{Ptr{ds_tensor}}, Ptr{Cvoid})),
            backward === nothing ? C_NULL : @cfunction(call_backward, Int32,
                (Ptr{Ptr{ds_tensor}}, Ptr{Ptr{ds_tensor}}, Ptr{Ptr{ds_tensor}}, Ptr{Ptr{ds_tensor}}, Ptr{Cvoid})),
            pointer_from_objref(op), @cfunction(end_custom, Cvoid, (Ptr{Cvoid},)), length(outputs), pointer(dtypes),
            pointer(counts), pointer(dims)))
        ds_graph_custom_op(raw(g), name, own, Int32[inputs...], length(inputs), out)
    end
    lock(custom_lock) do
        filter!(other -> other.live, custom_ops)
        push!(custom_ops, op)
    end
    value
end

"Returns the operations that `op!` knows, as JSON (docs/reference/ops.md)."
op_schema() = text_of(ds_op_schema)
