# Engines: training, states, checkpoints, delegate mode.

function call_init(param::Int32, name::Ptr{Cchar}, first::Int64, data::Ptr{Cfloat}, count::Csize_t, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        init = unsafe_pointer_to_objref(user)[]
        init(param, unsafe_string(name), first, unsafe_wrap(Array, data, count))
        DS_OK
    end
end

"""
Consecutive elements of one parameter that the `update` of an [`Engine`](@ref) changes: the number of the parameter, the first of
these elements (from 0 on, in libds's order), the number of this update (from 1 on), `values` and `states`, which change in place,
and the mean gradients `grads`. The arrays are valid during the call. The numbers are those of the parameter's group.
"""
struct Elements
    param::Int32
    first::Int64
    update::Int64
    values::Vector{Float32}
    grads::Vector{Float32}
    states::Vector{Vector{Float32}}
    lr::Float64
    weight_decay::Float64
    beta1::Float64
    beta2::Float64
    eps::Float64
    momentum::Float64
end

function call_update(given::Ptr{ds_update}, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        u = unsafe_load(given)
        lent(at) = unsafe_wrap(Array, at, u.count)
        states = [lent(unsafe_load(u.states, k)) for k in 1:u.states_count]
        update = unsafe_pointer_to_objref(user)[]
        update(Elements(u.param, u.first, u.update, lent(u.values), lent(u.grads), states, u.lr, u.weight_decay, u.beta1, u.beta2,
                        u.eps, u.momentum))
        DS_OK
    end
end

"""
    Engine(config, graph = nothing; comm = nothing, threads = 0, trace = false, init = nothing, update = nothing)

A training engine; without a graph it is in delegate mode. `init(param, name, first, values)` may overwrite the initial values of
elements `first`, `first` + 1, ... of a parameter, counted from 0 in libds's order; it is called for the elements that this rank keeps.
`update(elements)` is the optimizer of `{"type": "Callback"}`: it changes each element by its value, gradient and states alone
([`Elements`](@ref)).
"""
mutable struct Engine <: Handle
    raw::Ptr{ds_engine}
    init::Base.RefValue{Any}
    update::Base.RefValue{Any}
    function Engine(config::AbstractString, graph::Union{Graph,Nothing} = nothing; comm::Union{Comm,Nothing} = nothing,
                    threads = 0, trace = false, init = nothing, update = nothing)
        out, box, rule = Ref{Ptr{ds_engine}}(C_NULL), Ref{Any}(init), Ref{Any}(update)
        call = init === nothing ? C_NULL :
            @cfunction(call_init, Int32, (Int32, Ptr{Cchar}, Int64, Ptr{Cfloat}, Csize_t, Ptr{Cvoid}))
        own = update === nothing ? C_NULL : @cfunction(call_update, Int32, (Ptr{ds_update}, Ptr{Cvoid}))
        options = Ref(ds_engine_options(sizeof(ds_engine_options), threads, trace, call, pointer_from_objref(box), own,
                                        pointer_from_objref(rule)))
        GC.@preserve comm graph box rule check(ds_engine_create(raw(comm), config, raw(graph), options, out))
        made(new(out[], box, rule))
    end
end
destroy(::Engine, at) = ds_engine_destroy(at)
Base.show(io::IO, e::Engine) = isopen(e) ?
    print(io, "Engine($(param_count(e)) parameters, step $(Int(get(e, "step"))))") : print(io, "Engine(closed)")

# Returns a handle for one call: an array is lent for the call, a tensor has its own handle, and
# nothing becomes NULL.
input(t::Tensor) = raw(t)
input(data::AbstractArray) = lend(data)
input(::Nothing) = Ptr{ds_tensor}(C_NULL)
input(x) = argument_error("an input must be an array, a Tensor or nothing, got $(typeof(x))")
end_input(::AbstractArray, at) = at == C_NULL || ds_tensor_destroy(at)
end_input(_, at) = nothing

function with_inputs(call, inputs::Tuple, stream)
    if stream !== nothing  # the work of the stream uses the inputs after the call
        tensors = map(i -> i isa AbstractArray ? Tensor(i) : i, inputs)
        GC.@preserve tensors stream check(call(Ptr{ds_tensor}[input(t) for t in tensors], length(tensors)))
        return keep_for(stream, tensors...)
    end
    handles = fill(Ptr{ds_tensor}(C_NULL), length(inputs))
    GC.@preserve inputs try
        for i in 1:length(inputs)
            handles[i] = input(inputs[i])
        end
        check(call(handles, length(handles)))
    finally
        foreach(end_input, inputs, handles)
    end
end
function loss_of(call, e, inputs, stream)
    loss = Ref{Cdouble}(NaN)
    GC.@preserve e stream with_inputs((handles, count) -> call(raw(e), handles, count, raw(stream), loss), inputs, stream)
    loss[]
end

"""
Trains one step on arrays or tensors, in the order of the graph's inputs, and returns the mean loss.
Tensors on a device need their `stream`.
"""
train_batch!(e::Engine, inputs...; stream = nothing) = loss_of(ds_train_batch, e, inputs, stream)
forward!(e::Engine, inputs...; stream = nothing) = loss_of(ds_forward, e, inputs, stream)
"""
Takes part in the steps of the other ranks, after this rank has run out of data, until all ranks have called join!. Returns the
number of these steps.
"""
function join!(e::Engine)
    steps = Ref{Int64}(0)
    GC.@preserve e check(ds_engine_join(raw(e), steps))
    steps[]
end
backward!(e::Engine) = GC.@preserve e check(ds_backward(raw(e)))
step!(e::Engine) = GC.@preserve e check(ds_step(raw(e)))
"Returns the loss of a micro-batch without dropout."
eval_batch(e::Engine, inputs...; stream = nothing) = loss_of(ds_eval_batch, e, inputs, stream)
"Returns output 1 of the graph or, with the key `inferred`, the loss of each target. An input on which it does not depend may be nothing."
function infer(e::Engine, inputs...; stream = nothing)
    out = Ref{Ptr{ds_tensor}}(C_NULL)
    GC.@preserve e stream with_inputs((handles, count) -> ds_infer(raw(e), handles, count, raw(stream), out), inputs, stream)
    y = Tensor(out[], nothing)
    stream === nothing || keep_for(stream, y)
    y
end

param_count(e::Engine) = Int(GC.@preserve e ds_engine_param_count(raw(e)))
"Returns the number of a parameter, from 0."
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
"Returns a whole tensor of a parameter; `state` is one of state_names."
function Base.read(e::Engine, param::Integer, state::AbstractString = "master")
    out = Array{Float32}(undef, param_info(e, param).dims)
    GC.@preserve e check(ds_engine_read(raw(e), param, state, out, length(out)))
    out
end
function Base.write(e::Engine, param::Integer, state::AbstractString, data::AbstractArray{Float32})
    dense(data)
    GC.@preserve e data check(ds_engine_write(raw(e), param, state, pointer(data), length(data)))
end
"Returns the elements of a flattened parameter whose states this rank updates, counted from 0 in libds's order."
function local_range(e::Engine, param::Integer)
    first, count = Ref{Int64}(0), Ref{Int64}(0)
    GC.@preserve e check(ds_engine_local_range(raw(e), param, first, count))
    first[]:first[]+count[]-1
end
"Returns the elements of local_range, without communication."
function read_local(e::Engine, param::Integer, state::AbstractString = "master")
    out = Vector{Float32}(undef, length(local_range(e, param)))
    GC.@preserve e check(ds_engine_read_local(raw(e), param, state, out, length(out)))
    out
end
"Replaces the elements of local_range. Call it on all ranks, then call refresh!."
function write_local(e::Engine, param::Integer, state::AbstractString, data::AbstractVector{Float32})
    dense(data)
    GC.@preserve e data check(ds_engine_write_local(raw(e), param, state, pointer(data), length(data)))
end
"Recomputes all compute copies from their masters."
refresh!(e::Engine) = GC.@preserve e check(ds_engine_refresh(raw(e)))
freeze!(e::Engine, params, frozen = true) =
    GC.@preserve e check(ds_engine_freeze(raw(e), Int32[params...], length(params), frozen))
"Moves parameters to a new group with its own values for updates; `options` is JSON. Returns the number of the group."
add_group!(e::Engine, params, options = nothing) = GC.@preserve e value_of(out ->
    ds_engine_group_add(raw(e), Int32[params...], length(params), optional(options), out))
function Base.get(e::Engine, name::AbstractString)
    out = Ref{Cdouble}(NaN)
    GC.@preserve e check(ds_engine_get(raw(e), name, out))
    out[]
end
set!(e::Engine, name, value) = GC.@preserve e check(ds_engine_set(raw(e), name, value))
function last_step(e::Engine)
    out = Ref(ds_step_result(sizeof(ds_step_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    GC.@preserve e check(ds_engine_last_step(raw(e), out, sizeof(ds_step_result)))
    r = out[]
    (step = r.step, updates = r.updates, loss = r.loss, grad_norm = r.grad_norm, lr = r.lr, skipped = r.skipped == 1,
     loss_scale = r.loss_scale, loss_scale_at_floor = r.loss_scale_at_floor == 1)
end
skip_reason(e::Engine) = GC.@preserve e text_of(out -> ds_engine_skip_reason(raw(e), out))
report(e::Engine, format = :text) = GC.@preserve e text_of(out -> ds_engine_plan_report(raw(e), format_of(format), out))
"Returns the program of a step in its text form."
Base.string(e::Engine) = GC.@preserve e text_of(out -> ds_engine_plan_print(raw(e), out))
"Writes the spans recorded since the last call as Chrome trace-event JSON. The engine must have been created with trace = true."
trace(e::Engine, path) = GC.@preserve e check(ds_engine_trace(raw(e), path))

"Saves a checkpoint; `options` is JSON: \"client_state\", \"tag\", \"keep\", \"async\"."
save(e::Engine, folder, options = nothing) = GC.@preserve e check(ds_checkpoint_save(raw(e), folder, optional(options)))
"Waits until a save with \"async\" has ended, and throws its error."
wait_saved(e::Engine) = GC.@preserve e check(ds_checkpoint_wait(raw(e)))
"Loads the newest checkpoint below a folder and returns the client state as JSON; `options` is JSON: \"tag\"."
load!(e::Engine, folder, options = nothing) =
    GC.@preserve e text_of(out -> ds_checkpoint_load(raw(e), folder, optional(options), out))
"Attaches a tensor or array to the next save, for this rank. A later value of the same name replaces it."
attach!(e::Engine, name, value) = GC.@preserve e with_inputs(
    (handles, _) -> ds_checkpoint_attach(raw(e), name, handles[1]), (value,), nothing)
"Returns what a rank, counted from 0, attached to the checkpoint that was loaded last."
function attachment(e::Engine, name, rank::Integer = 0)
    out = Ref{Ptr{ds_tensor}}(C_NULL)
    GC.@preserve e check(ds_checkpoint_attachment(raw(e), name, rank, out))
    Tensor(out[], nothing)
end
load_model!(e::Engine, folder) = GC.@preserve e check(ds_checkpoint_load_model(raw(e), folder))
save_model(e::Engine, folder, like = nothing) =
    GC.@preserve e check(ds_checkpoint_save_model(raw(e), folder, optional(like)))

# ---------------------------------------------------------------- delegate mode

"Registers a parameter and returns its number, from 0. Its views and gradients have the compute type of the configuration, or
`dtype` Float32."
add_param!(e::Engine, name, dims::Integer...; dtype = nothing) = GC.@preserve e value_of(out ->
    (d = graph_dims(dims); ds_engine_param_add(raw(e), name, dtype === nothing ? DS_DTYPE_NONE : dtype_of(dtype), d, length(d), out)))
"Ends the registration and allocates the memory."
start!(e::Engine) = GC.@preserve e check(ds_engine_start(raw(e)))
"Forgets the gradients and micro-steps of the current step, as after an error in the host's backward pass. Collective."
drop_step!(e::Engine) = GC.@preserve e check(ds_engine_drop_step(raw(e)))
evaluate!(e::Engine, on::Bool) = GC.@preserve e check(ds_engine_evaluate(raw(e), on))

"""
Returns a parameter as a tensor of the engine's own memory, in the compute type. A parameter that is whole on every rank (all at
ZeRO stages 0 to 2) needs no lease, and the tensor shows its values as long as the engine lives.
"""
function param_view(e::Engine, param::Integer)
    out = Ref{Ptr{ds_tensor}}(C_NULL)
    GC.@preserve e check(ds_engine_param_view(raw(e), param, C_NULL, out))
    Tensor(out[], nothing)
end
"""
    gather(f, engine, params...)

Leases parameters while `f` runs. `f` gets the parameters as arrays without copies, in the compute type (BFloat16Bits for bf16). Do not use
the arrays afterwards.
"""
function gather(f, e::Engine, params::Integer...)
    numbers = Int32[params...]
    GC.@preserve e begin
        check(ds_gather_params(raw(e), numbers, length(numbers), C_NULL))
        views = Tensor[]
        try
            for p in numbers
                push!(views, param_view(e, p))
            end
            arrays = map(v -> (i = info(v); unsafe_wrap(Array, convert(Ptr{i.type}, i.data), i.dims)), views)
            return GC.@preserve views f(arrays...)
        finally
            foreach(close, views)
            check(ds_release_params(raw(e), numbers, length(numbers), C_NULL))
        end
    end
end
"Hands over this rank's gradient of a parameter. The gradient is copied, unless it already is the engine's memory."
grad_ready!(e::Engine, param::Integer, grad; stream = nothing) = GC.@preserve e stream with_inputs(
    (handles, _) -> ds_grad_ready(raw(e), param, handles[1], raw(stream)), (grad,), stream)
"Hands over this rank's gradients of several parameters in one call, in this order."
function grads_ready!(e::Engine, params, grads; stream = nothing)
    length(params) == length(grads) || argument_error("got $(length(params)) parameters and $(length(grads)) gradients")
    GC.@preserve e stream with_inputs(
        (handles, count) -> ds_grads_ready(raw(e), Int32[params...], count, handles, raw(stream)), Tuple(grads), stream)
end
"Hands over a gradient without a copy on the host: calls `f` with the engine's memory for the gradient, which f must fill."
function write_grad!(f, e::Engine, param::Integer)
    out = Ref{Ptr{ds_tensor}}(C_NULL)
    GC.@preserve e check(ds_engine_grad_view(raw(e), param, C_NULL, out))
    view = Tensor(out[], nothing)
    try
        with_array(f, view)
        grad_ready!(e, param, view)
    finally
        close(view)
    end
end
