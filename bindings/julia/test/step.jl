# What a call of the package costs: microseconds for each step of a linear model, the best of seven repetitions.
# bench/wrappers.py runs this program beside the same one in the other languages.
#   julia --project=bindings/julia bindings/julia/test/step.jl STEPS
using Libds

const ROWS, WIDTH = 160, 256

function main(steps)
    graph = Graph("copy", ROWS)
    x = Libds.input!(graph, "x", Float32, WIDTH, :)
    weight = Libds.param!(graph, "weight", WIDTH, WIDTH; init = "normal", scale = 0.05)
    bias = Libds.param!(graph, "bias", WIDTH)
    y = Libds.op!(graph, "linear", x, weight, bias)
    Libds.output!(graph, "loss", Libds.op!(graph, "mse", y, x))
    config = """{"train_micro_batch_size_per_gpu": 160, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}"""
    engine = Engine(config, graph; threads = 1)
    data = reshape(Float32[(i * 37 % 101) / 101 - 0.5 for i in 0:ROWS*WIDTH-1], WIDTH, ROWS)
    best = Inf
    for _ in 1:7
        begun = time_ns()
        for _ in 1:steps
            Libds.train_batch!(engine, data)  # makes a tensor over the array
        end
        best = min(best, (time_ns() - begun) / 1000 / steps)
    end
    println(round(best; digits = 2))
end

length(ARGS) == 1 || error("step.jl takes the number of steps")
main(parse(Int, ARGS[1]))
