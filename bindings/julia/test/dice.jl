# Random sequences of calls, right and wrong ones. Whatever a program does, a call throws an error that asks something
# of the caller, never a defect of libds; a refused call never costs the engine; and every refusal has one line of text.
# A sequence is determined by its seed.

mutable struct Dice
    state::UInt64
end
function below(d::Dice, n)
    d.state += 0x9e3779b97f4a7c15
    x = d.state
    x = (x ⊻ (x >> 30)) * 0xbf58476d1ce4e5b9
    x = (x ⊻ (x >> 27)) * 0x94d049bb133111eb
    Int((x ⊻ (x >> 31)) % UInt64(n))
end
one_in(d, n) = below(d, n) == 0
one_of(d, list) = list[below(d, length(list))+1]

const TEXTS = ("", "lr", "weight_decay", "param_groups[1].lr", "w", "{", "{}", "[1]", "{\"lr\": 0.1}", "\n", "null", "x")
const STATES = ("master", "momentum_buffer", "exp_avg", "param", "grad", "none")

# Judges a call by the rules for every call. Its status goes into the list.
function took(call, w, name, may_be_lost = false)
    e = failure(call)
    if e isa Libds.Error
        lost = e.status in (Libds.DS_ERROR_INTERNAL, Libds.DS_ERROR_IO, Libds.DS_ERROR_CORRUPT, Libds.DS_ERROR_COMM)
        wrong = lost || (e.status == Libds.DS_ERROR_POISONED && !may_be_lost) || isempty(e.message) ||
            (e.status != Libds.DS_ERROR_OUT_OF_MEMORY && occursin('\n', e.message))
        wrong && error("seed $(w.seed): $name: $(sprint(showerror, e))")
    elseif e isa ErrorException
        e.msg == "of the host" || throw(e)
    elseif e !== nothing
        throw(e)
    end
    # A rank whose init was not called gets the error from the other ranks.
    push!(w.answers, (name, Int(e === nothing ? Libds.DS_OK : e isa Libds.Error ? e.status : Libds.DS_ERROR_USER)))
end

mutable struct World
    comm::Comm
    group::Union{Comm,Nothing}
    dice::Dice
    folder::String
    seed::Int
    engines::Vector{Any}  # pairs: an engine, and whether it may be lost
    works::Vector{Libds.Work}
    answers::Vector{Any}
end

a_param(d) = one_in(d, 8) ? one_of(d, (-1, 3, 99, typemax(Int32))) : below(d, 3)

function keep!(pool, d, made)
    length(pool) < 3 ? push!(pool, made) : (pool[below(d, 3)+1] = made)
end

function make_engine(w)
    d = w.dice
    config = """{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": $(1 + below(d, 2)),
        "zero_optimization": {"stage": $(below(d, one_in(d, 9) ? 5 : 4))}, "bf16": {"enabled": $(one_in(d, 3))},
        "optimizer": {"type": "$(one_of(d, ("SGD", "AdamW", "Adam", "Adafactor")))", "params": {"lr": 0.01}}}"""
    graph, fails, gives = one_in(d, 2) ? linear_graph() : nothing, one_in(d, 6), one_in(d, 2)
    init = gives ? (p, name, first, values) -> fails ? error("of the host") : fill!(values, 0.25) : nothing
    took(w, "Engine") do
        e = Engine(config, graph; comm = w.group, threads = 1, init = init)
        keep!(w.engines, d, (e, fails))
        if graph === nothing
            foreach(name -> took(() -> Libds.add_param!(e, name, 4), w, "add_param!"), ("p0", "p1", "p2"))
            one_in(d, 8) || took(() -> Libds.start!(e), w, "start!", fails)
        end
    end
end

function with_engine(body, w, name)
    isempty(w.engines) && return
    e, may_be_lost = one_of(w.dice, w.engines)
    took(() -> body(e), w, name, may_be_lost)
end

function steps(w)
    d = w.dice
    x, target = batch()
    given = one_of(d, ((x, target), (x, target), (hcat(x, x), hcat(target, target)), (ones(Int32, 3, 4), target),
                       (fill(NaN32, 3, 4), target), (x,), (Tensor(x), Tensor(target)), (x', target)))
    which = below(d, 7)
    with_engine(w, "step $which") do e
        which == 0 || which == 1 ? Libds.train_batch!(e, given...) : which == 2 ? Libds.forward!(e, given...) :
        which == 3 ? Libds.backward!(e) : which == 4 ? Libds.step!(e) :
        which == 5 ? Libds.eval_batch(e, given...) : close(Libds.infer(e, x, nothing))
    end
end

function states(w)
    d = w.dice
    p, text, state, which = a_param(d), one_of(d, TEXTS), one_of(d, STATES), below(d, 6)
    with_engine(w, "state $which") do e
        if which <= 1  # values that are written are read back
            values = reshape(Float32.(1:prod(Libds.param_info(e, p).dims)), Libds.param_info(e, p).dims)
            write(e, p, state, values)
            read(e, p, state) == values || error("other values")
        elseif which == 2
            Libds.write_local(e, p, "master", fill(0.5f0, length(Libds.local_range(e, p))))
            Libds.refresh!(e)
            all(Libds.read_local(e, p) .== 0.5) || error("other values")
        elseif which == 3
            Libds.freeze!(e, [p], one_in(d, 2))
        elseif which == 4
            Libds.add_group!(e, [p], one_of(d, ("{}", "{\"lr\": 0.1}", "{\"betas\": [0.5, 0.6]}")))
        else
            Libds.set!(e, text, one_of(d, (0.0, 1.0, -1.0, NaN, Inf)))
            get(e, text)
        end
    end
end

function delegate(w)
    d = w.dice
    p, q, which = a_param(d), a_param(d), below(d, 6)
    function grad(e, param)
        values = fill(one_in(d, 9) ? NaN32 : 0.5f0, 4)
        kind = below(d, 4)
        kind == 0 ? Libds.write_grad!(g -> fill!(g, eltype(g)(0.5)), e, param) :
        kind == 1 ? Libds.write_grad!(g -> error("of the host"), e, param) :
        kind == 2 ? Libds.grad_ready!(e, param, values[1:3]) : Libds.grad_ready!(e, param, values)
    end
    with_engine(w, "delegate $which") do e
        if which <= 1
            Libds.gather(e, p) do values
                length(values) == 4 || error("other values")
                took(() -> grad(e, p), w, "grad", true)
                Libds.gather((a, b) -> grad(e, q), e, q, p)
            end
        elseif which == 2
            Libds.grad_ready!(e, p, fill(0.5f0, 4))
            Libds.backward!(e)
            Libds.step!(e)
        elseif which == 3
            Libds.evaluate!(e, one_in(d, 2))
        elseif which == 4
            one_in(d, 2) ? Libds.backward!(e) : Libds.step!(e)
        else
            Libds.add_param!(e, "p3", 4)
            Libds.start!(e)
        end
    end
end

function collectives(w)
    d, parts, me = w.dice, size(w.comm), Libds.rank(w.comm)
    n, which = below(d, 6), below(d, 9)
    list, wide = [fill(Int64(me), n), fill(Int64(1), 2n)], [fill(Int64(me), n * parts)]
    root, op = below(d, parts + one_in(d, 9)), one_of(d, (:sum, :max, :mean, :middle))
    kind = one_of(d, (:all_reduce, :all_gather, :broadcast, :reduce, :gather, :reduce_scatter, :all_to_all, :barrier, :scatter))
    arrays = kind in (:reduce_scatter, :all_to_all, :scatter) ? wide : kind === :barrier ? typeof(wide)() : list
    counts = kind === :scatter ? [n] : nothing
    if one_in(d, 2)
        took(() -> Libds.collective(w.comm, kind, arrays; op = op, root = root, counts = counts), w, "made $kind")
    else
        took(w, "started $kind") do
            keep!(w.works, d, Libds.start(w.comm, kind, arrays; op = op, root = root, counts = counts))
        end
    end
    one_in(d, 3) && !isempty(w.works) && took(() -> fetch(popfirst!(w.works)), w, "fetch")
end

function tensors(w)
    d = w.dice
    dims = [one_of(d, (0, 1, 2, 3, 8, -1, 10^15)) for _ in 1:below(d, 4)]
    took(w, "Tensor") do
        t = Tensor(Float32, dims...)
        copyto!(t, one_in(d, 2) ? Array(t) : zeros(Float32, 2, 3))
        size(Tensor(Libds.Capsule(t))) == size(t) || error("another shape")
    end
end

function graphs(w)
    d = w.dice
    took(w, "Graph") do
        g = one_in(d, 2) ? linear_graph() : Graph(one_of(d, TEXTS), below(d, 9))
        took(() -> Libds.input!(g, one_of(d, TEXTS), Float32, [one_of(d, (Colon(), 0, 2, 3)) for _ in 1:below(d, 3)]...), w, "input!")
        for _ in 1:3
            took(w, "op!") do
                Libds.op!(g, one_of(d, ("relu", "linear", "mse", "add", "nothing")), [below(d, 9) - 1 for _ in 1:below(d, 4)]...;
                          attrs = one_in(d, 3) ? one_of(d, TEXTS) : nothing)
            end
        end
        took(() -> Libds.output!(g, one_of(d, TEXTS), below(d, 9)), w, "output!")
        string(parse(Graph, string(g))) == string(g) || error("another text")
        Libds.report(Plan(CONFIG, g; rank = below(d, 3), size = 2))
    end
end

function files(w)
    path, options = joinpath(w.folder, one_of(w.dice, ("one", "two"))), one_of(w.dice, (nothing, "{\"keep\": 2}", "{"))
    saves = one_in(w.dice, 2)
    with_engine(e -> saves ? Libds.save(e, path, options) : Libds.load!(e, path), w, saves ? "save" : "load")
end

function sequence(comm, group, seed, folder, calls = 60)
    w = World(comm, group, Dice(seed * 1_000_003), folder, seed, [], [], [])
    make_engine(w)
    make_engine(w)
    for _ in 1:calls
        kind = below(w.dice, 16)
        kind == 0 ? make_engine(w) : kind == 1 ? (isempty(w.engines) || close(popfirst!(w.engines)[1])) :
        kind == 2 ? graphs(w) : kind == 3 ? tensors(w) : kind <= 6 ? collectives(w) : kind <= 9 ? steps(w) :
        kind <= 11 ? states(w) : kind <= 14 ? delegate(w) : files(w)
    end
    foreach(e -> close(e[1]), w.engines)
    w.answers
end
