# The functions of Libds.Ops make the graph that operations by name make.

function begin_graph()
    g = Graph("g", 16)
    x, mask = Libds.input!(g, "x", Float32, 12, :), Libds.input!(g, "mask", Int32, :)
    g, x, Libds.param!(g, "w", 12, 12, init = "normal", scale = 0.5), Libds.param!(g, "b", 12), mask
end

@testset "operations by function" begin
    g, x, w, b, mask = begin_graph()
    y = Libds.op!(g, "linear", x, w, b)
    y = Libds.op!(g, "rms_norm", y, b, attrs = "{\"eps\": 1e-5, \"offset\": 1}")
    y = Libds.op!(g, "gelu", y, attrs = "{\"form\": \"erf\"}")
    y = Libds.op!(g, "attention", y, mask, attrs = "{\"heads\": 2, \"seq\": 8, \"causal\": 0, \"scale\": 0.1}")
    Libds.op!(g, "load_balance", y, y, mask, attrs = "{\"k\": 2}")

    f, x, w, b, mask = begin_graph()
    y = Libds.Ops.linear(f, x, w, b; transposed = false)
    y, rstd = Libds.Ops.rms_norm(f, y, b; eps = 1e-5, offset = true)
    @test rstd == y + 1
    y = Libds.Ops.gelu(f, y; form = "erf")
    y, lse = Libds.Ops.attention_packed(f, y, mask; heads = 2, seq = 8, causal = false, scale = 0.1)
    Libds.Ops.load_balance(f, [y, y], mask; k = 2)
    @test string(f) == string(g)
    @test_throws Libds.Error Libds.Ops.gelu(f, x; form = "\"erf")
    @test_throws UndefKeywordError Libds.Ops.scale(f, x)
end
