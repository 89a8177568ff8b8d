"""Compares training of PyTorch models through libds.torch with plain torch (./run interop torch [PART [N [SEED]]]).

PART is models (five of Transformers at each ZeRO stage and tier), uses (what programs do between steps), clients (optimizers that torch
computes, missing gradients, backwards that fail), features (zero.Init, the optimizer for plain loops, checkpoints of DeepSpeed), shim
(Accelerate and the Trainer), lightning, peft (LoRA, also in TRL), surface (names of DeepSpeed that these programs use), drawn (N random
modules from number SEED on) or page (the commands of docs/guides/torch.md and moving-from-deepspeed.md). Each runs on 1 and on 2 ranks in
f32, surface on 1. A rank also trains on the micro-batches of all ranks with torch.optim.AdamW, and compares the losses of 20 steps.
"""
import importlib
import math
import os
import random
import subprocess
import sys
import tempfile
import traceback

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "build", "python"))
import libds  # noqa: E402
import libds.torch  # noqa: E402

import ranks  # noqa: E402
import torch_models  # noqa: E402

LIMIT = 2e-6
STEPS = 20
RATE, DECAY, CLIP = 1e-3, 0.1, 1.0
# The parts that are functions of the same name in other files.
OTHERS = {"uses": "torch_uses", "clients": "torch_clients", "features": "torch_features", "shim": "torch_shim", "surface": "torch_surface",
          "lightning": "torch_lightning", "peft": "torch_peft"}
failed = []


def check(name, ok, detail=""):
    if not ok:
        failed.append(name)
    if libds.torch.communicator().rank == 0 or not ok:
        print(f"{'ok  ' if ok else 'FAIL'} {name} {detail}".rstrip(), file=sys.stderr, flush=True)


def config(stage=0, micro_steps=1, **others):
    made = {"train_micro_batch_size_per_gpu": torch_models.ROWS, "gradient_accumulation_steps": micro_steps, "gradient_clipping": CLIP,
            "optimizer": {"type": "AdamW", "params": {"lr": RATE, "weight_decay": DECAY}},
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0, "reduce_bucket_size": 5000}}
    made["zero_optimization"].update(others.pop("zero", {}))
    return {**made, **others}


def seeded(make, seed=1):
    torch.manual_seed(seed)
    return make()


class Plain:
    """The same training by torch alone: each step has the micro-batches of all ranks."""

    def __init__(self, make, loss_of, groups=None):
        self.model, self.loss_of = seeded(make), loss_of
        self.params = [param for param in self.model.parameters() if param.requires_grad]
        self.optimizer = torch.optim.AdamW(self.params if groups is None else groups(self.model), lr=RATE, weight_decay=DECAY)

    def step(self, batches, rank, divisor=None):
        """Trains on batches[micro_step][rank]; returns the losses of one rank."""
        losses = []
        leaves = (divisor or len(batches)) * len(batches[0])
        for micro in batches:
            for number, seed in enumerate(micro):
                loss = self.loss_of(self.model, seed)
                (loss / leaves).backward()
                if number == rank:
                    losses.append(loss.item())
        for param in self.params:
            if param.grad is None and param.requires_grad:
                param.grad = torch.zeros_like(param)  # a gradient that no rank has counts as zero
        torch.nn.utils.clip_grad_norm_(self.params, CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return losses


def batches_of(step, micro_steps, size):
    return [[(step * micro_steps + micro) * size + rank for rank in range(size)] for micro in range(micro_steps)]


def train(engine, plain, loss_of, steps=STEPS, micro_steps=1, first=0):
    """Trains both; returns the largest difference of a loss."""
    comm = libds.torch.communicator()
    worst = 0.0
    for step in range(first, first + steps):
        batches = batches_of(step, micro_steps, comm.size)
        mine = []
        for micro in batches:
            loss = loss_of(engine, micro[comm.rank])
            mine.append(loss.item())
            if step % 2:
                loss.backward()
            else:
                engine.backward(loss)
            engine.step()
        theirs = plain.step(batches, comm.rank)
        worst = max([worst, *(abs(a - b) if math.isfinite(a - b) else math.inf for a, b in zip(mine, theirs))])
    return worst


def compare(name, make, loss_of, made, micro_steps=1, steps=STEPS, limit=LIMIT):
    model = seeded(make, 1 + libds.torch.communicator().rank)
    if any(isinstance(module, torch_models.Choice) for module in model.modules()):
        libds.torch.states.set_z3_leaf_modules(model, ["Choice"])  # ranks may choose differently
    engine, *_ = libds.torch.initialize(model=model, config=made)
    plain = Plain(make, loss_of)
    try:
        worst = train(engine, plain, loss_of, steps, micro_steps)
        check(name, worst <= limit, f"largest difference {worst:.1e}")
    finally:
        engine.destroy()


def models():
    with tempfile.TemporaryDirectory() as scratch:
        offload = {"device": "cpu"}
        nvme = {"device": "nvme", "nvme_path": scratch}
        for name, (make, loss_of) in torch_models.MODELS.items():
            for stage in (0, 2, 3):
                for micro_steps in (1, 3):
                    compare(f"{name} stage {stage} micro-steps {micro_steps}", make, loss_of, config(stage, micro_steps), micro_steps)
            compare(f"{name} stage 3 all on cpu", make, loss_of,
                    config(3, zero={"offload_optimizer": offload, "offload_param": offload}, emulate_tiers=True))
            compare(f"{name} stage 2 optimizer on nvme", make, loss_of, config(2, zero={"offload_optimizer": nvme}))


def drawn(count=40, first=1):
    for seed in range(first, first + count):
        draw = random.Random(seed)
        micro_steps = draw.choice([1, 1, 2, 3])
        stages = (0, 2, 3) if libds.torch.communicator().size == 1 else (2, 3)
        for stage in stages:
            name = f"drawn {seed} stage {stage}"
            try:
                compare(name, lambda: torch_models.drawn(seed), torch_models.drawn_loss, config(stage, micro_steps), micro_steps, steps=5,
                        limit=2e-5)
            except Exception as error:  # pylint: disable=broad-exception-caught
                traceback.print_exc()
                check(name, False, f"{type(error).__name__}: {error} ({torch_models.drawn(seed).kinds})")
                if libds.torch.communicator().size > 1:
                    return


def run_rank(part, *arguments):
    torch.set_num_threads(1)
    if part in OTHERS:
        getattr(importlib.import_module(OTHERS[part]), part)(*(int(word) if word.isdigit() else word for word in arguments))
    else:
        {"models": models, "drawn": drawn}[part](*map(int, arguments))
    return 1 if failed else 0


def page():
    """Runs the commands of docs/guides/torch.md. Their python3 is this one, which has torch, in a build folder made of links."""
    build = os.path.join(ROOT, "build")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "bin"))
        os.symlink(os.path.join(build, "bin", "libds"), os.path.join(folder, "bin", "libds"))
        os.symlink(os.path.join(build, "python"), os.path.join(folder, "python"))
        python = os.path.join(folder, "bin", "python3")
        with open(python, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
        os.chmod(python, 0o755)
        return max(subprocess.call([sys.executable, os.path.join(ROOT, "tests", "readme", "pages.py"), ROOT, folder,
                                    os.path.join(ROOT, "docs", "guides", name)]) for name in ("torch.md", "moving-from-deepspeed.md"))


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        # The parts import this file by its name.
        sys.modules["torch_host"] = sys.modules["__main__"]
        return run_rank(*sys.argv[2:])
    parts = sys.argv[1:2] or ["page", "surface", "models", "uses", "clients", "features", "shim", "lightning", "peft", "drawn"]
    bad = 0
    for part in parts:
        if part == "page":
            bad += page() != 0
            continue
        for count in (1,) if part == "surface" else (1, 2):
            words = [os.path.abspath(__file__), "--rank", part, *sys.argv[2:]]
            codes, errors = ranks.start(lambda rank, words=words: words, count, {"OMP_NUM_THREADS": "1", "LIBDS_CHECK": "1"})
            for text in errors:
                print(text, end="")
            print(f"{'ok  ' if not any(codes) else 'FAIL'} {part} on {count} ranks", flush=True)
            bad += any(codes)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
