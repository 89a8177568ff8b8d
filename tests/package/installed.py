"""Checks an installed package, on one rank or as a rank of `libds launch`."""
import libds

with libds.Comm() as comm:
    assert comm.all_reduce(libds.tensor([1.0])).tolist() == [comm.size]
    graph = libds.Graph("g", rows=2)
    x = graph.input("x", "f32", [None, 2])
    graph.output("loss", libds.ops.mse(graph, libds.ops.linear(graph, x, graph.param("w", [2, 2], "normal", 0.1)), x))
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
              "zero_optimization": {"stage": 2}}
    with libds.Engine(config, graph, comm=comm) as engine:
        losses = [engine.train_batch(libds.tensor([[1.0, 2.0], [3.0, 4.0]])) for _ in range(50)]
    assert losses[-1] < losses[0] / 2, losses
    print(f"rank {comm.rank} of {comm.size}: {losses[0]:.3f} to {losses[-1]:.3f}")
