# Bad input throws with the message of libds, and the object stays usable.

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

@testset "whatever is wrong has a message" begin
    e = Engine(CONFIG, linear_graph())
    x, target = batch()
    bad, state = Libds.DS_ERROR_INVALID_ARGUMENT, Libds.DS_ERROR_STATE
    refused(() -> Libds.train_batch!(e, x), bad, "2 inputs, got 1")
    refused(() -> Libds.train_batch!(e, x, "no"), bad, "must be an array, a Tensor or nothing, got String")
    refused(() -> Libds.train_batch!(e, copy(x')', target), bad, "must be strided memory, got LinearAlgebra.Adjoint")
    refused(() -> Libds.train_batch!(e, view(x, [1, 2, 3], :), target), bad, "must be strided memory")
    refused(() -> Libds.backward!(e), state, "")
    refused(() -> Libds.gather(identity, e, 0), state, "delegate")
    refused(() -> Libds.set!(e, "lr", -1), bad, "lr")
    refused(() -> get(e, "speed"), Libds.DS_ERROR_NOT_FOUND, "speed")
    refused(() -> Libds.infer(e, nothing, nothing), bad, "'x', must not be NULL")
    refused(() -> Libds.trace(e, "t.json"), state, "trace")
    refused(() -> parse(Graph, "nonsense"), bad, "")
    g = Graph("g", 4)
    v = Libds.input!(g, "x", Float32, 3, :)
    refused(() -> Libds.op!(g, "relux", v), bad, "did you mean 'relu'?")
    refused(() -> Libds.output!(g, "o", 99), bad, "99")
    @test_throws ArgumentError Graph("a\0b", 1)
    @test get(e, "step") == 0
    Libds.train_batch!(e, x, target)
    @test Libds.last_step(e).updates == 1
end

@testset "a closed handle throws" begin
    e, t, g, c = Engine(CONFIG, linear_graph()), Tensor(Float32, 4), Graph("g", 4), Comm("self")
    p, s = Plan(CONFIG, linear_graph()), Libds.Capsule(zeros(2))
    for h in (e, t, g, c, p, s)
        @test isopen(h)
        close(h)
        close(h)
        @test !isopen(h)
    end
    for f in (() -> Libds.train_batch!(e, batch()...), () -> size(t), () -> string(g), () -> Libds.barrier(c),
              () -> Libds.report(p), () -> Tensor(s), () -> Libds.start(c, :barrier), () -> Libds.train_batch!(e, t))
        refused(f, Libds.DS_ERROR_STATE, "is closed")
    end
    fresh = Engine(CONFIG, linear_graph())
    refused(() -> Libds.train_batch!(fresh, t, batch()[2]), Libds.DS_ERROR_STATE, "this Tensor is closed")
    Libds.train_batch!(fresh, batch()...)
end

@testset "log lines go to a function" begin
    lines = []
    Libds.set_log((level, line) -> push!(lines, (level, line)))
    close(Engine(CONFIG, linear_graph()))
    @test any(l -> l[1] === :debug && occursin("plan ", l[2]), lines)
    Libds.set_log((level, line) -> error("of the log"))
    @test failure(() -> Engine(CONFIG, linear_graph())).msg == "of the log"
    Libds.set_log(nothing)
    count = length(lines)
    close(Engine(CONFIG, linear_graph()))
    @test length(lines) == count
end
