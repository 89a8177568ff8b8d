"""finetune.c in Python: an adapter for a model folder or a GGUF file, on a text in memory. Run: python3 finetune.py MODEL RUN"""
import sys

import libds

TEXT = ("The tide comes in, the tide goes out. The boats rise with the water and wait. The tide comes "
        "in, the tide goes out. The bell on the pier counts the waves, and nobody else does.")
MODEL, RUN = sys.argv[1:]
CONFIG = {
    "model": {"folder": MODEL},
    "run": {"dir": RUN, "sequence": 16, "steps": 40},
    "adapter": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    "data": {"text": TEXT, "heldout": 0},
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
}


def show(now):
    """Called after each step. To return False would stop the run."""
    losses.append(now.loss)
    if now.step % 10 == 0:
        print(f"step {now.step} loss {now.loss:.2f}")


losses = []
print("before:", libds.generate(MODEL, "The tide", tokens=12, temperature=0))
libds.train(CONFIG, progress=show)
print("after:", libds.generate(RUN, "The tide", tokens=12, temperature=0))
assert losses[-1] < losses[0]
