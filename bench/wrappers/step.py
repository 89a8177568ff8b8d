"""bench/wrappers/step.c in Python, over NumPy arrays."""
import sys
import time

import numpy as np

import libds

graph = libds.Graph("linear", rows=4)
x, target = graph.input("x", "f32", [None, 3]), graph.input("target", "f32", [None, 2])
y = graph.op("linear", x, graph.param("w", [2, 3], "normal", 0.1), graph.param("b", [2]))
graph.output("loss", graph.op("mse", y, target))
engine = libds.Engine({"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.01}}}, graph, threads=1)
xs, targets = np.zeros((4, 3), np.float32), np.zeros((4, 2), np.float32)
for line in sys.stdin:
    begin = time.perf_counter()
    for _ in range(int(line)):
        engine.train_batch(xs, targets)
    print((time.perf_counter() - begin) / int(line) * 1e6, flush=True)
