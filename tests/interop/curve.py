"""Tests whether losses of training in bf16 with f32 masters follow those of PyTorch (./run interop curve [SEEDS]).

For each seed, libds and PyTorch train the model of main_job.py for 200 steps of 2 x 8 sequences. Both start from the same
weights and use the same batches in the same order. Both have bf16 parameters, activations and gradients of a micro-batch,
f32 sums over micro-batches, clipping at 1, AdamW on f32 masters, and the same learning rates. Two losses are compared: the
loss of the training batch of a step, and the loss of held-out sequences after the step. The test passes if, at steps 50,
100, 150 and 200, the mean over the seeds of the differences of the pairs is at most 0.02. Rounding alone causes nearly as
much: libds with and without AMX, whose sums have another order, differ by up to 0.017 in a seed. A bound in standard errors
of three seeds would reject equal runs one time in nine at each mark; the standard error of the pairs is printed, too.
"""
import json
import os
import sys
import time

import numpy as np
import torch

import main_job
from main_job import MICRO, ROOT, SEQ, check, libds

STEPS, MARKS = 200, (50, 100, 150, 200)
BAR = 0.02
ACCUMULATION, HELDOUT_BATCHES = 2, 16


def corpus():
    """Returns (training text, held-out text) as bytes, as gathered by ./run train; the last 2 % are held out."""
    parts = []
    for folder, _, names in sorted(os.walk(os.path.join(ROOT, ".cache", "text"))):
        for name in sorted(names):
            with open(os.path.join(folder, name), "rb") as file:
                parts.append(np.frombuffer(file.read(), dtype=np.uint8))
    data = np.concatenate(parts).astype(np.int32)
    cut = len(data) * 98 // 100
    return data[:cut], data[cut:]


def draw(data, rng, count):
    """Returns `count` micro-batches (tokens, targets) of [MICRO, SEQ]."""
    for _ in range(count):
        starts = rng.integers(0, len(data) - SEQ - 1, MICRO)
        yield np.stack([data[s:s + SEQ] for s in starts]), np.stack([data[s + 1:s + SEQ + 1] for s in starts])


class Ours:
    """Training by an engine of libds, whose seed draws the weights."""

    def __init__(self, seed):
        made = main_job.config()
        made["gradient_accumulation_steps"] = ACCUMULATION
        made["run"].update(steps=STEPS, seed=seed)
        text = json.dumps(made)
        self.engine = libds.Engine(text)
        self.weights = main_job.read(self.engine, "master")
        self.lrs = []

    def step(self, _, micros):
        inputs = [np.concatenate([m[i].reshape(-1) for m in micros]) for i in (0, 1)]
        loss = self.engine.train_batch(*inputs)
        self.lrs.append(self.engine.last_step.lr)
        return loss

    def heldout(self, batches):
        return [self.engine.eval_batch(*(a.reshape(-1).copy() for a in b)) for b in batches]


class Theirs:
    """Training by PyTorch with f32 masters, which are rounded to bf16 parameters after every step."""

    def __init__(self, weights, lrs):
        self.masters = {k: torch.tensor(v) for k, v in weights.items()}
        self.params = {k: v.to(torch.bfloat16).requires_grad_() for k, v in self.masters.items()}
        self.optimizer = torch.optim.AdamW(self.masters.values(), betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
        self.lrs = lrs

    def loss(self, batch):
        return main_job.forward(self.params, *(torch.from_numpy(a).long() for a in batch))

    def step(self, step, micros):
        losses = []
        for master in self.masters.values():
            master.grad = torch.zeros_like(master)
        for micro in micros:
            loss = self.loss(micro)
            loss.backward()
            losses.append(loss.item())
            for name, param in self.params.items():
                self.masters[name].grad += param.grad.float() / len(micros)
                param.grad = None
        torch.nn.utils.clip_grad_norm_(list(self.masters.values()), 1.0)
        self.optimizer.param_groups[0]["lr"] = self.lrs[step]
        self.optimizer.step()
        with torch.no_grad():
            for name, param in self.params.items():
                param.copy_(self.masters[name])
        return sum(losses) / len(losses)

    def heldout(self, batches):
        with torch.no_grad():
            return [self.loss(b).item() for b in batches]


def train(name, side, seed, text, heldout):
    """Returns losses [2, marks], first of the training batch, then of the held-out text."""
    rng, losses, begin = np.random.default_rng(seed), np.zeros((2, len(MARKS))), time.monotonic()
    for step in range(STEPS):
        loss = side.step(step, list(draw(text, rng, ACCUMULATION)))
        if step + 1 in MARKS:
            losses[:, MARKS.index(step + 1)] = loss, np.mean(side.heldout(heldout))
    seconds = time.monotonic() - begin
    print(f"seed {seed} {name:5}: {seconds:4.0f} s; train {losses[0].round(4)} held-out {losses[1].round(4)}", flush=True)
    return losses


def compare(what, ours, theirs):
    """Prints a table of `ours` and `theirs` [seeds, marks], and returns whether every mark is within the bar."""
    print(f"{what}\n  step   libds   torch  differ  std.err of pairs")
    for i, mark in enumerate(MARKS):
        pairs = ours[:, i] - theirs[:, i]
        print(f"  {mark:4} {ours[:, i].mean():7.4f} {theirs[:, i].mean():7.4f} {pairs.mean():+7.4f}"
              f"  {pairs.std(ddof=1) / np.sqrt(len(pairs)):7.4f}", flush=True)
    most = np.abs((ours - theirs).mean(axis=0)).max()
    return check(what, most <= BAR, f"pairs of {len(ours)} seeds differ by at most {most:.4f} (bar {BAR}) at steps {MARKS}")


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    text, held = corpus()
    heldout = list(draw(held, np.random.default_rng(1234), HELDOUT_BATCHES))
    runs = {"libds": [], "torch": []}
    for seed in range(1, seeds + 1):
        ours = Ours(seed)
        runs["libds"].append(train("libds", ours, seed, text, heldout))
        runs["torch"].append(train("torch", Theirs(ours.weights, ours.lrs), seed, text, heldout))
    ours, theirs = (np.stack(runs[side]) for side in ("libds", "torch"))
    done = [compare(w, ours[:, i], theirs[:, i]) for i, w in enumerate(("training batch", "held-out text"))]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
