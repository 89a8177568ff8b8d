# bench/wrappers/step.c in Julia, over Julia's arrays.
using Libds

function measure(engine, x, target, steps)
    begin_ns = time_ns()
    for _ in 1:steps
        Libds.train_batch!(engine, x, target)
    end
    (time_ns() - begin_ns) / steps / 1e3
end

graph = Graph("linear", 4)
x, target = Libds.input!(graph, "x", Float32, 3, :), Libds.input!(graph, "target", Float32, 2, :)
w, b = Libds.param!(graph, "w", 3, 2; init = "normal", scale = 0.1), Libds.param!(graph, "b", 2)
Libds.output!(graph, "loss", Libds.op!(graph, "mse", Libds.op!(graph, "linear", x, w, b), target))
engine = Engine("""{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.01}}}""", graph; threads = 1)
xs, targets = zeros(Float32, 3, 4), zeros(Float32, 2, 4)
for line in eachline(stdin)
    println(measure(engine, xs, targets, parse(Int, line)))
    flush(stdout)
end
