"""quickstart.c in Python: a small GPT on four fixed sentences. Run: PYTHONPATH=build/python python3 quickstart.py"""
import array
import json
import sys

import libds as ds

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
    "zero_optimization": {"stage": 3},
    "run": {"sequence": 32},
    "model": {"family": "gpt", "layers": 2, "hidden": 64, "heads": 4, "vocab": 256, "positions": 32},
}
TEXT = ("To be, or not to be, is asked. Whether nobler is to suffer so. The slings, the arrows of "
        "fortune. Or take arms against troubles, all").encode()


def tensor(values):
    made = ds.tensor_create(ds.DTYPE_I32, [len(values)])
    made.memory().cast("i")[:] = array.array("i", values)
    return made


tokens = [TEXT[i % len(TEXT)] for i in range(128)]
targets = [-100 if i % 32 == 31 else TEXT[(i + 1) % len(TEXT)] for i in range(128)]
config = json.dumps(CONFIG)
engine = ds.engine_create(None, config, ds.graph_from_config(config, 1), None)
inputs = [tensor(tokens), tensor(targets)]
for step in range(1, 41):
    loss = ds.train_batch(engine, inputs)
    if step % 10 == 0:
        print(f"step {step} loss {loss:.4f}")
sys.exit(loss > 2)
