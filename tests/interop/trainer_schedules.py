#!/usr/bin/env python3
"""Draws random schedules of Transformers and computes their rates.

usage: trainer_schedules.py FILE [NUMBER [SEED]]

As a program, writes schedules with their rates to FILE, for tests without Transformers. tests/data/trainer_schedules.json was
written with NUMBER 100 and SEED 1.
"""
import importlib.metadata
import json
import random
import sys

import torch
from transformers import optimization

STEPS, RATE = 60, 0.1
TOTALS, WARMUPS, DECAYS = [1, 2, 5, 10, 30, 50, 60, 100], [0, 1, 2, 3, 7, 10, 40, 60], [0, 1, 2, 5, 10, 29, 60]
RATIOS, CYCLES, WAYS = [0.0, 1e-4, 0.1, 0.5, 1.0], [0.0, 0.25, 0.5, 1.0, 1.5, 2.5], ["linear", "cosine", "1-sqrt"]
WARMUP = {"warmup_num_steps": ("num_warmup_steps", WARMUPS)}
TOTAL = {"total_num_steps": ("num_training_steps", TOTALS)}
# For each schedule type of libds: the function of Transformers, and the required and optional parameters, each with its name
# in Transformers and the values to draw from. KNOWN has libds's default of parameters that only Transformers requires.
SCHEDULES = {
    "constant": ("get_constant_schedule_with_warmup", {}, WARMUP),
    "linear": ("get_linear_schedule_with_warmup", TOTAL, WARMUP),
    "cosine": ("get_cosine_with_min_lr_schedule_with_warmup", TOTAL,
               {**WARMUP, "min_lr_ratio": ("min_lr_rate", RATIOS), "num_cycles": ("num_cycles", CYCLES)}),
    "WSD": ("get_wsd_schedule", TOTAL,
            {**WARMUP, "decay_num_steps": ("num_decay_steps", DECAYS), "min_lr_ratio": ("min_lr_ratio", RATIOS),
             "num_cycles": ("num_cycles", CYCLES), "warmup_type": ("warmup_type", WAYS), "decay_type": ("decay_type", WAYS)})}
KNOWN = {"num_warmup_steps": lambda params: 0, "min_lr_rate": lambda params: 0.0,
         "num_decay_steps": lambda params: params["total_num_steps"] // 10}
NEEDED = {"constant": ["num_warmup_steps"], "linear": ["num_warmup_steps"], "cosine": ["num_warmup_steps", "min_lr_rate"],
          "WSD": ["num_warmup_steps", "num_decay_steps"]}


def draw(numbers):
    """Returns a random schedule type of libds, and random parameters."""
    name = numbers.choice(list(SCHEDULES))
    _, needed, optional = SCHEDULES[name]
    params = {key: numbers.choice(choices) for key, (_, choices) in needed.items()}
    params.update({key: numbers.choice(choices) for key, (_, choices) in optional.items() if numbers.random() < 0.7})
    return name, params


def rates(name, params):
    """Returns the rates of the steps of an optimizer with rate RATE. Only the steps up to the end of the schedule are compared,
    because afterwards the cosine of Transformers rises again, unlike the cosine of libds."""
    function, needed, optional = SCHEDULES[name]
    names = {**needed, **optional}
    theirs = {key: KNOWN[key](params) for key in NEEDED[name]}
    theirs.update({names[key][0]: value for key, value in params.items()})
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    schedule, out = getattr(optimization, function)(optimizer, **theirs), []
    for _ in range(min(STEPS, params["total_num_steps"] + 1) if name == "cosine" else STEPS):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return out


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    runs = []
    for number in range(count):
        name, params = draw(random.Random(f"{seed} {number}"))
        runs.append({"scheduler": name, "params": params, "lr": rates(name, params)})
    record = {"about": "lr[k] is the rate of optimizer step k, counted from 0, of an optimizer with rate group_lr",
              "source": "tests/interop/trainer_schedules.py", "transformers": importlib.metadata.version("transformers"),
              "group_lr": RATE, "runs": runs}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        lines = ",\n".join("  " + json.dumps(run) for run in record.pop("runs"))
        file.write(json.dumps(record)[:-1] + ', "runs": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
