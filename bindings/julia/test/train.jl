# Native mode: training, states, checkpoints, graphs and plans.

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

@testset "losses of targets are inferred" begin
    texts = """{"train_micro_batch_size_per_gpu": 1, "inferred": "token_losses",
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "run": {"sequence": 4},
        "model": {"family": "gpt", "vocab": 8, "layers": 1, "hidden": 8, "heads": 1}}"""
    e = Engine(texts, Graph(texts))
    batch = (Int32[1, 2, 3, 4], Int32[2, 3, -100, 5])
    losses = Array(Libds.infer(e, batch...))
    @test size(losses) == (4,) && losses[3] == 0
    @test abs(sum(losses) / 3 - Libds.eval_batch(e, batch...)) < 1e-6
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
    @test Libds.describe_config("{\"train_batch_size\": 8, \"zero_optimization\": {\"stag\": 1}}")[1] == 1
    @test Libds.merge_config("{\"a\": 1}", "{\"a\": null, \"b\": 2}") == "{\n  \"b\": 2\n}"
end

@testset "a step in pieces has the same bits" begin
    whole, pieces = Engine(CONFIG, linear_graph()), Engine(CONFIG, linear_graph())
    for _ in 1:3
        loss = Libds.train_batch!(whole, batch()...)
        @test Libds.forward!(pieces, batch()...) == loss
        Libds.backward!(pieces)
        Libds.step!(pieces)
        @test read(whole, 0) == read(pieces, 0)
    end
    @test Libds.join!(whole) == 0
    @test Libds.eval_batch(whole, batch()...) < Libds.last_step(whole).loss
end

@testset "initial values come from a function" begin
    init = (p, name, first, values) -> (@test name == ("w", "b")[p+1]; values .= 10p .+ first .+ (0:length(values)-1))
    e = Engine(CONFIG, linear_graph(); init = init)
    @test read(e, 0) == reshape(0:5, 3, 2) && read(e, 1, "param") == [10, 11]
    @test failure(() -> Engine(CONFIG, linear_graph(); init = (a...) -> error("no values"))).msg == "no values"
    @test read(e, 1) == [10, 11]
end

@testset "what is saved is loaded" begin
    folder = mktempdir()
    e = Engine(CONFIG, linear_graph())
    Libds.train_batch!(e, batch()...)
    Libds.save(e, folder, """{"client_state": [1, 2], "keep": 1}""")
    w = read(e, 0)
    @test occursin("\"step\": 1", Libds.checkpoint_info(folder))
    other = Engine(CONFIG, linear_graph())
    @test replace(Libds.load!(other, folder), r"\s" => "") == "[1,2]"
    @test read(other, 0) == w && get(other, "step") == 1
    Libds.save(e, folder, "{\"tag\": \"best\", \"async\": true}")
    Libds.wait_saved(e)
    refused(() -> Libds.load!(e, folder, "{\"tag\": \"worst\"}"), Libds.DS_ERROR_NOT_FOUND, "worst")
    @test Libds.load!(e, folder, "{\"tag\": \"best\"}") == "null"
    Libds.save_model(e, joinpath(folder, "model"))
    write(e, 0, "master", zeros(Float32, 3, 2))
    Libds.load_model!(e, joinpath(folder, "model"))
    @test read(e, 0) == w
    @test Libds.local_range(e, 0) == 0:5
    Libds.write_local(e, 0, "master", Float32[1, 2, 3, 4, 5, 6])
    refused(() -> Libds.eval_batch(e, batch()...), Libds.DS_ERROR_STATE, "ds_engine_refresh")
    Libds.refresh!(e)
    @test Libds.read_local(e, 0) == 1:6
    Libds.freeze!(e, [0])
    Libds.train_batch!(e, batch()...)
    @test read(e, 0) == reshape(1:6, 3, 2)
end

@testset "pictures, certificates, gradients, traces" begin
    g = linear_graph()
    plans = [Plan(CONFIG, g; rank = r, size = 2) for r in 0:1]
    @test startswith(Libds.picture(plans), "<svg") && length(Libds.certificate(plans)) > 1000
    @test length(string(plans[1])) > 100
    @test all(!isnothing, Libds.grad!(g, 5, [2, 0]))
    e = Engine(CONFIG, linear_graph(); trace = true, threads = 1)
    Libds.train_batch!(e, batch()...)
    path = joinpath(mktempdir(), "trace.json")
    Libds.trace(e, path)
    @test occursin("traceEvents", read(path, String)) && length(string(e)) > 100
end
