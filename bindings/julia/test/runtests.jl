# The scenarios of every wrapper. julia --project=bindings/julia bindings/julia/test/runtests.jl
using Libds, Test

const HERE = @__DIR__
const CONFIG = """{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0,
    "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "zero_optimization": {"stage": 2}}"""

status(f) = try
    f()
    Libds.DS_OK
catch e
    e isa Libds.Error ? e.status : rethrow()
end
failure(f) = try
    f()
    nothing
catch e
    e
end

# y = x * w + b with a mean squared error; output 1 is y.
function linear_graph()
    g = Graph("linear", 4)
    x, target = Libds.input!(g, "x", Float32, 3, :), Libds.input!(g, "target", Float32, 2, :)
    w, b = Libds.param!(g, "w", 3, 2; init = "normal", scale = 0.1), Libds.param!(g, "b", 2)
    y = Libds.op!(g, "linear", x, w, b)
    @test Libds.dims(g, y) == (2, :)
    Libds.output!(g, "loss", Libds.op!(g, "mse", y, target))
    Libds.output!(g, "prediction", y)
    g
end
function batch()
    x = Float32[(i % 5) * 0.25 - 0.5 for i in 0:11]
    x = reshape(x, 3, 4)
    x, vcat((x[1, :] - x[2, :])', (0.5f0 * x[3, :] .+ 1)')
end

@testset "training lowers the loss and infers without targets" begin
    e = Engine(CONFIG, linear_graph())
    x, target = batch()
    first = Libds.train_batch!(e, x, target)
    last = first
    for _ in 1:50
        last = Libds.train_batch!(e, x, target)
    end
    @test last < first / 20
    @test get(e, "step") == 51
    y = Libds.infer(e, x, nothing)
    @test size(y) == (2, 4)
    @test maximum(abs.(Array(y) - target)) < 0.5
    @test Libds.state_names(e) == ["master", "momentum_buffer", "param", "grad"]
    @test Libds.param_info(e, 0) == (name = "w", dims = (3, 2))
    w = read(e, Libds.find_param(e, "w"))
    @test size(w) == (3, 2) && maximum(abs.(w' * x .+ read(e, 1) - Array(y))) < 1e-6
    @test occursin("step 51", repr(e))
end

@testset "arrays are lent, not copied" begin
    a = Float32[i + 10j for i in 1:3, j in 1:4]
    t = Tensor(a)
    @test Libds.info(t).data == pointer(a) && size(t) == (3, 4)
    Libds.with_array(v -> v[2, 3] = -1, t)
    @test a[2, 3] == -1
    @test Libds.info(Tensor(view(a, :, 2:3))).data == pointer(a, 4)
    @test status(() -> Tensor(view(a, 1:2, :))) == Libds.DS_ERROR_INVALID_ARGUMENT
    @test status(() -> Tensor(a')) == Libds.DS_ERROR_INVALID_ARGUMENT
    @test status(() -> Tensor(["no"])) == Libds.DS_ERROR_INVALID_ARGUMENT
    close(t)
    @test !isopen(t) && status(() -> size(t)) == Libds.DS_ERROR_STATE
    close(t)
end

@testset "a host with gradients of its own" begin
    e = Engine("""{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0,
                  "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}""";
               init = (p, name, first, values) -> values .= first .+ (1:length(values)))
    p = Libds.add_param!(e, "p", 5)
    @test status(() -> Libds.gather(identity, e, p)) == Libds.DS_ERROR_STATE
    Libds.start!(e)
    address = Ref{Any}(nothing)
    Libds.gather(e, p) do values
        @test values == 1:5
        Libds.grad_ready!(e, p, ones(Float32, 5))
    end
    Libds.backward!(e)
    Libds.step!(e)
    @test read(e, p) == (1:5) .- 0.5f0
    for s in 1:2
        Libds.gather(v -> nothing, e, p)
        Libds.write_grad!(g -> g .= 1, e, p)
        Libds.backward!(e)
        Libds.step!(e)
        @test read(e, p) == (1:5) .- 0.5f0 * (s + 1)
    end
    Libds.evaluate!(e, true)
    @test status(() -> Libds.backward!(e)) == Libds.DS_ERROR_STATE
    @test Libds.gather(sum, e, p) == 7.5
    Libds.evaluate!(e, false)
    @test failure(() -> Libds.gather(v -> error("of the host"), e, p)).msg == "of the host"
    folder = mktempdir()
    Libds.save(e, folder, """{"client_state": {"epoch": 2}}""")
    write(e, p, "master", zeros(Float32, 5))
    @test Libds.load!(e, folder) == "{\"epoch\": 2}"
    @test read(e, p) == (1:5) .- 1.5f0
    broken = Engine("{\"train_batch_size\": 1}"; init = (a...) -> error("no values"))
    Libds.add_param!(broken, "p", 5)
    @test failure(() -> Libds.start!(broken)).msg == "no values"
    @test status(() -> Libds.start!(broken)) == Libds.DS_ERROR_POISONED
end

include("ops.jl")

@testset "errors say what they are about and harm nothing" begin
    e = failure(() -> Engine("""{"train_micro_batch_size_per_gpu": 4, "optimizer": {"params": {"lr": -1}}}""", linear_graph()))
    @test (e.status, e.key) == (Libds.DS_ERROR_CONFIG, "optimizer.params.lr")
    @test occursin("libds: ", sprint(showerror, e))
    e = Engine(CONFIG, linear_graph())
    x, target = batch()
    @test occursin("rows", failure(() -> Libds.train_batch!(e, x, zeros(Float32, 2, 6))).message)
    @test occursin("'x' must be f32, got i32", failure(() -> Libds.train_batch!(e, ones(Int32, 3, 4), target)).message)
    @test status(() -> Libds.step!(e)) == Libds.DS_ERROR_STATE
    @test status(() -> Libds.find_param(e, "bb")) == Libds.DS_ERROR_NOT_FOUND
    @test status(() -> read(e, 0, "mastr")) == Libds.DS_ERROR_INVALID_ARGUMENT
    @test failure(() -> write(e, 1, "master", zeros(Float32, 3))).tensor == "b"
    @test status(() -> Libds.load!(e, mktempdir())) == Libds.DS_ERROR_NOT_FOUND
    Libds.train_batch!(e, fill(NaN32, 3, 4), target)
    @test Libds.last_step(e).skipped && !isempty(Libds.skip_reason(e))
    Libds.train_batch!(e, x, target)
    @test Libds.last_step(e).updates == 1
    close(e)
    @test status(() -> Libds.train_batch!(e, x, target)) == Libds.DS_ERROR_STATE
end

@testset "groups of parameters" begin
    e = Engine(CONFIG, linear_graph())
    b = Libds.find_param(e, "b")
    @test Libds.add_group!(e, [b], "{\"lr\": 0}") == 1
    Libds.train_batch!(e, batch()...)
    @test read(e, b) == [0, 0]
    Libds.set!(e, "param_groups[1].lr", 0.25)
    @test get(e, "param_groups[1].lr") == 0.25 && get(e, "lr") == 0.5
end

@testset "texts, plans and reports" begin
    g = linear_graph()
    @test string(parse(Graph, string(g))) == string(g)
    @test startswith(Libds.report(Plan(CONFIG, g; rank = 1, size = 4), :json), "{")
    @test startswith(Libds.env_report(:json), "{") && Libds.version() >= v"0.1"
    @test status(() -> Libds.env_report(:yaml)) == Libds.DS_ERROR_INVALID_ARGUMENT
    @test Libds.merge_config("{\"a\": 1}", "{\"a\": null, \"b\": 2}") == "{\n  \"b\": 2\n}"
end

@testset "a callback's exception goes on behind the run" begin
    folder = mktempdir()
    write(joinpath(folder, "text.txt"), "to train or not to train "^400)
    config(name) = """{"train_micro_batch_size_per_gpu": 2, "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2},
        "data": {"paths": ["$folder/text.txt"]},
        "run": {"dir": "$folder/$name", "eval_batches": 1, "steps": 5, "sequence": 16, "threads": 1}}"""
    seen = []
    Libds.train(p -> push!(seen, p.loss), config("one"); quiet = 2)
    @test length(seen) == 5 && all(isfinite, seen)
    @test status(() -> Libds.train(p -> p.step < 2, config("two"); quiet = 2)) == Libds.DS_ERROR_USER
    @test failure(() -> Libds.train(p -> error("of the callback"), config("three"); quiet = 2)).msg == "of the callback"
    @test length(Libds.generate(joinpath(folder, "one"), "to "; options = "{\"tokens\": 5}")) > 0
end

resident() = parse(Int, Base.split(read("/proc/self/statm", String))[2]) * 4096

@testset "ten thousand handles leave nothing behind, in any order" begin
    function cycle(i)
        made = Any[Tensor(Float32, 64, 64), Graph("g", 4), Comm("self")]
        for k in ((1, 2, 3), (3, 1, 2), (2, 3, 1))[i%3+1]
            close(made[k])
        end
    end
    foreach(cycle, 1:500)
    GC.gc()
    before = resident()
    foreach(cycle, 1:10_000)
    GC.gc()
    @test resident() - before < 8 << 20
    left = Any[Engine(CONFIG, linear_graph(); comm = Comm("self")) for _ in 1:20]
    left = nothing
    GC.gc()
    GC.gc()
end

# Each in a module of its own.
@testset "the programs of the guide" begin
    text = read(joinpath(HERE, "..", "..", "..", "docs", "start", "julia.md"), String)
    blocks = [m.captures[1] for m in eachmatch(r"```julia\n(.*?)```"s, text)]
    @test length(blocks) == 3
    for block in blocks
        Base.include_string(Module(), block)
    end
end

# Ranks are processes: Julia 1.5 has one thread for callbacks.
@testset "ranks" begin
    launch = get(ENV, "DS_COMMAND", "libds")
    julia = `$(Base.julia_cmd()) --project=$(dirname(HERE)) $(joinpath(HERE, "ranks.jl"))`
    @test success(pipeline(`$launch launch -n 3 $julia`; stdout = stdout, stderr = stderr))
end
