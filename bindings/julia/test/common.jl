# Shared by the tests.
using Libds, Test

const HERE = @__DIR__
const MODELS = joinpath(HERE, "..", "..", "..", "tests", "data", "models")
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

# Returns a graph of y = x * w + b with a mean squared error; output 1 is y.
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

# Expects a call to be refused with this code, in one line; returns the error.
function refused(f, code, part)
    e = failure(f)
    @test e isa Libds.Error && e.status == code && occursin(part, e.message) && !occursin('\n', e.message)
    e isa Libds.Error && e.status == code && occursin(part, e.message) || @info "refused" part e
    e
end

resident() = parse(Int, Base.split(read("/proc/self/statm", String))[2]) * 4096
