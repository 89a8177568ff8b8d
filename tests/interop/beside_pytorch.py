"""Compares libds with other frameworks, outside the test suite (./run interop pytorch [STEPS]).

1. PyTorch trains the model of main_job.py with libds's initial weights and the same batches, AdamW, schedule and clipping.
   In f32, losses agree to 1e-5 of the loss, and the final parameters to 1e-3 of each tensor's largest value.
2. The `safetensors` package reads a libds checkpoint and finds the same tensors as ds_engine_read.
3. The `tensorboard` package reads the event file of a run.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

import main_job
from distance import largest
from main_job import MICRO, ROOT, SEQ, check, forward, libds, read

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20


def config(total):
    made = main_job.config()
    made["bf16"]["enabled"] = False
    made["scheduler"]["params"]["total_num_steps"] = total
    made["run"]["steps"] = total
    return made


def text():
    """Returns the bytes of every C header in /usr/include, a text that every Debian with a compiler has."""
    parts = []
    for path in sorted(glob.glob("/usr/include/*.h")):
        with open(path, "rb") as file:
            parts.append(np.frombuffer(file.read(), dtype=np.uint8))
    return np.concatenate(parts).astype(np.int32)


def batches(data, steps):
    draw = np.random.default_rng(5)
    for _ in range(steps):
        starts = draw.integers(0, len(data) - SEQ - 1, MICRO)
        yield np.stack([data[s:s + SEQ] for s in starts]), np.stack([data[s + 1:s + SEQ + 1] for s in starts])


def same_training(engine, total):
    params = {k: torch.tensor(v, requires_grad=True) for k, v in read(engine, "master").items()}
    optimizer = torch.optim.AdamW(params.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    distances, losses = {}, []
    for step, (tokens, targets) in enumerate(batches(text(), total)):
        ours = engine.train_batch(*(a.reshape(-1).copy() for a in (tokens, targets)))
        optimizer.param_groups[0]["lr"] = engine.last_step.lr
        loss = forward(params, torch.from_numpy(tokens).long(), torch.from_numpy(targets).long())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(params.values()), 1.0)
        optimizer.step()
        losses.append(ours)
        distances[step] = abs(ours - loss.item()) / abs(loss.item())
        if step % 50 == 49:
            print(f"     step {step + 1}: libds {ours:.5f} torch {loss.item():.5f}", flush=True)
    worst, _ = largest(distances)
    ok = check("losses", worst <= 1e-5,
               f"{total} steps, {losses[0]:.4f} -> {losses[-1]:.4f}, largest difference {worst:.2e}")
    errors = {}
    for name, mine in read(engine, "master").items():
        theirs = params[name].detach().numpy()
        errors[name] = float(np.abs(mine - theirs).max() / np.abs(theirs).max())
    error, where = largest(errors)
    return check("parameters", error <= 1e-3, f"largest difference {error:.2e} of the largest value, in {where}") and ok


def same_checkpoint(engine, folder):
    from safetensors.numpy import load_file

    engine.save(folder)
    kinds = {"master": "master", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
    files = glob.glob(os.path.join(folder, "**", "*.safetensors"), recursive=True)
    wrong, seen = [], 0
    for kind, word in kinds.items():
        (path,) = [f for f in files if os.path.basename(f).split(".")[0] == word]
        saved, mine = load_file(path), read(engine, kind)
        seen += len(saved)
        wrong += [f"{word} {n}" for n in mine if n not in saved or not np.array_equal(saved[n], mine[n])]
    return check("safetensors", seen > 0 and not wrong, f"{seen} tensors, wrong: {wrong[:3]}")


def same_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = config(6)
    made["model"].update(layers=1, hidden=32, heads=2)
    made["run"].update(dir=os.path.join(folder, "runs"), eval_every=3, save_every=6)
    os.mkdir(os.path.join(folder, "text"))
    with open(os.path.join(folder, "text", "a.txt"), "w", encoding="utf-8") as file:
        file.writelines(f"line {i} of a text about nothing much, number {i * i}\n" for i in range(20000))
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(made, file)
    command = [os.path.join(ROOT, "build", "bin", "libds"), "train", "--config", path, "--data", os.path.join(folder, "text")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (events,) = glob.glob(os.path.join(folder, "runs", "**", "*tfevents*"), recursive=True)
    accumulator = EventAccumulator(events)
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    steps = max((len(accumulator.Scalars(t)) for t in tags), default=0)
    return check("tensorboard", steps == 6, f"{len(tags)} scalars, {steps} steps")


def main():
    made = config(STEPS)
    engine = libds.Engine(made)
    with tempfile.TemporaryDirectory() as folder:
        done = [same_training(engine, STEPS), same_checkpoint(engine, os.path.join(folder, "checkpoints")), same_events(folder)]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
