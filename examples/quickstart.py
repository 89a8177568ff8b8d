"""quickstart.c in Python: a small GPT on four fixed sentences. Run: PYTHONPATH=build/python python3 quickstart.py"""
import libds

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
    "zero_optimization": {"stage": 3},
    "run": {"sequence": 32},
    "model": {"family": "gpt", "layers": 2, "hidden": 64, "heads": 4, "vocab": 256, "positions": 32},
}
TEXT = (b"To be, or not to be, is asked. Whether nobler is to suffer so. The slings, the arrows of "
        b"fortune. Or take arms against troubles, all")

tokens = libds.tensor([TEXT[i % len(TEXT)] for i in range(128)])
targets = libds.tensor([-100 if i % 32 == 31 else TEXT[(i + 1) % len(TEXT)] for i in range(128)])
with libds.Engine(CONFIG) as engine:
    for step in range(1, 41):
        loss = engine.train_batch(tokens, targets)
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f}")
assert loss < 2
