# Whole runs.

struct RunCallbacks
    progress::Any
    batch::Any
end

function call_progress(at::Ptr{ds_run_progress}, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        callbacks = unsafe_pointer_to_objref(user)[1]::RunCallbacks
        callbacks.progress(unsafe_load(at)) === false ? DS_ERROR_USER : DS_OK
    end
end

"""
    next_lr!(progress, rate)

Sets the learning rate of all ranks from the next step on, until it is set again. May be called inside the `progress` function of
`train`. After NaN, the schedule sets the rate again. `next_lr(progress)` returns the rate of the next step.
"""
next_lr!(progress::ds_run_progress, rate::Real) = unsafe_store!(progress.next_lr, Float64(rate))
next_lr(progress::ds_run_progress) = unsafe_load(progress.next_lr)

function call_batch(step::Int64, micro_step::Int32, tokens::Ptr{Int32}, targets::Ptr{Int32}, count::Csize_t,
                    user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        callbacks = unsafe_pointer_to_objref(user)[1]::RunCallbacks
        callbacks.batch(step, micro_step, unsafe_wrap(Array, tokens, count), unsafe_wrap(Array, targets, count))
        DS_OK
    end
end

"""
    train([progress,] config; comm = nothing, resume = nothing, quiet = 0, batch = nothing, stop = nothing)

Trains as `libds train` does; `config` may be nothing with `resume`, a run folder. `progress` is called on rank 0, after each step
that was not skipped, with an object that has `step`, `steps`, `samples` (taken by the whole run), `loss`, `heldout_loss` (NaN if
it was not evaluated), `grad_norm`, `lr`, `tokens_per_second` and `loss_scale`; `next_lr!` sets the learning rate there. If it
returns false, or `stop`, a `Ref{Int32}`, becomes nonzero, the run is saved and ends with an `Error` of DS_ERROR_USER.
`batch(step, micro_step, tokens, targets)` fills both arrays instead of the configured data. An exception of `progress` or `batch`
is rethrown after the run was saved.
"""
function train(progress, config; comm = nothing, resume = nothing, quiet = 0, batch = nothing, stop = nothing)
    # Not a Ref: if only the address of a Ref escapes, Julia may allocate it on the stack.
    box = Any[RunCallbacks(progress, batch)]
    after = progress === nothing ? C_NULL : @cfunction(call_progress, Int32, (Ptr{ds_run_progress}, Ptr{Cvoid}))
    before = batch === nothing ? C_NULL :
        @cfunction(call_batch, Int32, (Int64, Int32, Ptr{Int32}, Ptr{Int32}, Csize_t, Ptr{Cvoid}))
    GC.@preserve comm box check(ds_run_train(raw(comm), optional(config), optional(resume), quiet, before, after,
                                             stop === nothing ? C_NULL : stop, pointer_from_objref(box)))
end
train(config; options...) = train(nothing, config; options...)

function call_text(part::Ptr{Cchar}, user::Ptr{Cvoid})::Int32
    contained(DS_ERROR_USER) do
        unsafe_pointer_to_objref(user)[1](unsafe_string(part)) === false ? DS_ERROR_USER : DS_OK
    end
end

"""
    generate([each,] model, prompt; options = nothing, comm = nothing)

Continues a text with a run, a checkpoint, a model folder or a GGUF file; `options` is JSON. `each` gets every new part of the text.
If it returns false on any rank, the text ends with an `Error` of DS_ERROR_USER on all ranks; its exception ends the text and is
rethrown.
"""
function generate(each, model, prompt; options = nothing, comm = nothing)
    box = Any[each]
    call = each === nothing ? C_NULL : @cfunction(call_text, Int32, (Ptr{Cchar}, Ptr{Cvoid}))
    GC.@preserve comm box text_of(out -> ds_run_generate(raw(comm), model, optional(prompt), optional(options), call,
                                                         pointer_from_objref(box), out))
end
generate(model::AbstractString, prompt; keywords...) = generate(nothing, model, prompt; keywords...)

# Calls a function of libds that counts failures. Returns their number and the report.
function outcome(make)
    failed = Ref{Int32}(-1)
    report = text_of(out -> make(failed, out))
    (failed = Int(failed[]), report = report)
end

"Compares the numbers that are recorded beside a model with those that libds computes; `options` is JSON. Returns `failed` and `report`."
verify(model; options = nothing, format = :text, comm = nothing) = GC.@preserve comm outcome((failed, out) ->
    ds_run_verify(raw(comm), model, optional(options), format_of(format), failed, out))

"Trains a few steps on random tokens and reports where their time goes. Either `config` or `model` must be given; `options` is JSON."
profile(config = nothing; model = nothing, options = nothing, format = :text, comm = nothing) = GC.@preserve comm text_of(out ->
    ds_run_profile(raw(comm), optional(config), optional(model), optional(options), format_of(format), out))

"Runs each instruction of a training step again, alone, against a reference; `options` is JSON. Returns `failed` and `report`."
audit(config; options = nothing, format = :text, comm = nothing) = GC.@preserve comm outcome((failed, out) ->
    ds_run_audit(raw(comm), config, optional(options), format_of(format), failed, out))

"Returns JSON about a checkpoint, or the newest one in a folder of checkpoints or of a run, after comparing its content with its hashes."
checkpoint_info(path) = text_of(out -> ds_checkpoint_info(path, out))

"Converts a checkpoint of DeepSpeed or libds; `options` is JSON as in ds.h. Returns JSON about the conversion."
convert_checkpoint(from, to, options = nothing) = text_of(out -> ds_checkpoint_convert(from, to, optional(options), out))

"Returns the url of the group that a run joins."
communicator(config = nothing, resume = nothing) = text_of(out -> ds_run_communicator(optional(config), optional(resume), out))

"Returns `config` with `patch` merged over it (RFC 7396); both are JSON."
merge_config(config, patch) = text_of(out -> ds_config_merge(config, patch, out))

"Returns what a configuration means for this number of ranks, as `libds config` prints it: the number of refusals and the text."
describe_config(config; ranks = 1, format = :text) =
    outcome((refused, out) -> ds_config_describe(config, ranks, format_of(format), refused, out))
