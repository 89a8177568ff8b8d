# Operations that Julia functions compute.

# The linear graph with its prediction scaled by `scaled(graph, y)`.
function graph_with(scaled)
    g = Graph("linear", 4)
    x, target = Libds.input!(g, "x", Float32, 3, :), Libds.input!(g, "target", Float32, 2, :)
    w, b = Libds.param!(g, "w", 3, 2; init = "normal", scale = 0.1), Libds.param!(g, "b", 2)
    z = scaled(g, Libds.op!(g, "linear", x, w, b))
    Libds.output!(g, "loss", Libds.op!(g, "mse", z, target))
    Libds.output!(g, "prediction", z)
    g
end
forward(inputs, outputs) = outputs[1] .= 2 .* inputs[1]
backward(inputs, outputs, output_grads, input_grads) =
    input_grads[1] === nothing || (input_grads[1] .= 2 .* output_grads[1])
scaled(g, y; forward = forward, backward = backward) =
    Libds.custom!(forward, g, "my.scale", [y], [(nothing, 2, :)]; backward = backward)

@testset "a custom operation trains as the one of libds, and ends" begin
    g = graph_with(scaled)
    own = Engine(CONFIG, g)
    op = last(Libds.custom_ops)
    close(g)  # the engine keeps the functions
    theirs = Engine(CONFIG, graph_with((g, y) -> Libds.Ops.scale(g, y; factor = 2)))
    foreach(_ -> GC.gc(), 1:2)
    @test op.live
    for _ in 1:5
        @test Libds.train_batch!(own, batch()...) == Libds.train_batch!(theirs, batch()...)
    end
    @test read(own, 0) == read(theirs, 0)
    @test Array(Libds.infer(own, batch()[1], nothing)) == Array(Libds.infer(theirs, batch()[1], nothing))
    close(own)
    @test !op.live
    kept = graph_with(scaled)
    @test !(op in Libds.custom_ops)
    refused(() -> Engine(CONFIG, graph_with((g, y) -> scaled(g, y; backward = nothing))), Libds.DS_ERROR_INVALID_ARGUMENT, "my.scale")
    refused(() -> scaled(kept, 99), Libds.DS_ERROR_INVALID_ARGUMENT, "99")
    @test occursin("rms_norm", Libds.op_schema()) && Libds.find(kept, "w") == 2
    refused(() -> Libds.find(kept, "ww"), Libds.DS_ERROR_NOT_FOUND, "ww")
end

@testset "an exception of an operation poisons its engine" begin
    e = Engine(CONFIG, graph_with((g, y) -> scaled(g, y; forward = (a...) -> error("out of ideas"))))
    @test failure(() -> Libds.train_batch!(e, batch()...)).msg == "out of ideas"
    refused(() -> Libds.train_batch!(e, batch()...), Libds.DS_ERROR_POISONED, "unusable")
end
