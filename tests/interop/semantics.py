#!/usr/bin/env python3
"""Compares random schedules, loss scales, batch sizes, lengths and groups with DeepSpeed and Transformers (./run
interop semantics [NUMBER [SEED]]).

Draws NUMBER cases of each kind:
- a schedule of DeepSpeed and one of Transformers, with an optimizer of one rate or with Muon, which has two: the rates of 60
  steps must agree to 1e-12;
- a dynamic loss scale and the steps that overflow: the scale after each step must agree, and so must the end of the run;
- the three batch sizes for a number of ranks: both must refuse them or compute the same values;
- a curriculum: its lengths must be those of the steps of a run of a small model;
- documents with a bound of tokens: their groups must have the same numbers of tokens and documents in each step of a run.

DeepSpeed and Transformers are unchanged; libds is called through its Python package. libds may also refuse a wrong value that
DeepSpeed accepts, such as a negative number or a value of another type.
"""
import csv
import json
import logging
import os
import pathlib
import random
import sys
import tempfile
import types

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch  # noqa: E402
from deepspeed.runtime import config as deepspeed_config  # noqa: E402
from deepspeed.runtime import lr_schedules  # noqa: E402
from deepspeed.runtime.data_pipeline.curriculum_scheduler import CurriculumScheduler  # noqa: E402
from deepspeed.runtime.data_pipeline.data_sampling.variable_batch_size_and_lr import batch_by_seqlens  # noqa: E402
from deepspeed.runtime.fp16 import loss_scaler  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "python"))
import libds  # noqa: E402
import trainer_schedules  # noqa: E402

STEPS = 60
# Most optimizers have one rate. Muon has two, one for each of its halves, which are two groups in DeepSpeed.
ONE_RATE = {"type": "SGD", "params": {"lr": 0.1}}
TWO_RATES = {"type": "Muon", "params": {"muon_lr": 0.1, "adam_lr": 0.03}}


def host(**more):
    """Returns a started engine without a program, with one parameter."""
    engine = libds.DelegateEngine({"train_micro_batch_size_per_gpu": 1, "optimizer": ONE_RATE, **more})
    engine.add_param("p", [2])
    engine.start()
    return engine


def step(engine, gradient):
    engine.grad_ready("p", torch.full([2], gradient))
    engine.backward()
    return engine.step()


# ---------------------------------------------------------------- schedules

TOTALS, WARMUPS, SIZES = [1, 2, 5, 10, 30, 50, 60, 100], [1, 2, 3, 7, 10, 40, 59, 60, 100], [1, 2, 5, 10, 31, 60, 7.5, 2000]
TYPES, RATIOS = ["linear", "log"], [0.0, 1e-4, 0.1, 0.5, 1.0, 2.0]
# For each schedule, the required and the optional parameters, each with the values to draw from. None means a rate.
SCHEDULES = {
    "WarmupLR": ({}, {"warmup_min_lr": None, "warmup_max_lr": None, "warmup_num_steps": WARMUPS, "warmup_type": TYPES}),
    "WarmupDecayLR": ({"total_num_steps": TOTALS},
                      {"warmup_min_lr": None, "warmup_max_lr": None, "warmup_num_steps": WARMUPS, "warmup_type": TYPES}),
    "WarmupCosineLR": ({"total_num_steps": TOTALS}, {"warmup_min_ratio": RATIOS, "warmup_num_steps": WARMUPS, "cos_min_ratio": RATIOS,
                                                     "warmup_type": TYPES}),
    "OneCycle": ({"cycle_min_lr": None, "cycle_max_lr": None},
                 {"cycle_first_step_size": SIZES, "cycle_second_step_size": SIZES, "cycle_first_stair_count": [0, 1, 2, 4, 9],
                  "cycle_second_stair_count": [0, 1, 3], "decay_step_size": [0, 1, 5, 10], "decay_lr_rate": [0.0, 0.1, 0.5, 2.0],
                  "cycle_momentum": [False]}),
    "LRRangeTest": ({}, {"lr_range_test_min_lr": None, "lr_range_test_step_size": [1, 4, 7, 10, 200],
                         "lr_range_test_step_rate": [0.0, 0.5, 1.0, 2.5, 5.0], "lr_range_test_staircase": [False, True]})}
WRONG = [0, -1, 2.5, "x", []]


def draw_schedule(numbers):
    name = numbers.choice(list(SCHEDULES))
    needed, optional = SCHEDULES[name]
    def of(choices):
        return numbers.choice(choices) if choices else numbers.choice([0.0, 1e-3, 0.1, numbers.uniform(1e-5, 0.1)])
    params = {key: of(choices) for key, choices in needed.items()}
    params.update({key: of(choices) for key, choices in optional.items() if numbers.random() < 0.6})
    spoiled = bool(params) and numbers.random() < 0.1
    if spoiled:
        params[numbers.choice(list(params))] = numbers.choice(WRONG)
    return name, params, spoiled


def own_rates(optimizer):
    """Returns the parameters under the names of libds."""
    return dict(optimizer["params"])


def rates_of_deepspeed(optimizer, name, params):
    """Returns the rates of the steps, or None if the schedule raises an error when it is created or stepped."""
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in own_rates(optimizer).values()]
    theirs = torch.optim.SGD(groups, lr=0.1)
    try:
        schedule, rates = getattr(lr_schedules, name)(theirs, **params), []
        for _ in range(STEPS):
            rates.append([group["lr"] for group in theirs.param_groups])
            schedule.step()
    except Exception:  # also Python's own errors
        return None
    return rates


def rates_of_libds(optimizer, name, params):
    """Returns the rates of the steps in libds, or its message if it refuses the schedule."""
    try:
        engine = host(optimizer=optimizer, scheduler={"type": name, "params": params})
    except libds.Error as error:
        return str(error)
    rates = []
    with engine:
        for _ in range(STEPS):
            rates.append([engine[key] for key in own_rates(optimizer)])
            step(engine, 0.0)
    return rates


def compared(what, got, want):
    """Returns "same", or the first step with another rate."""
    def far(one, other):
        return any(abs(a - b) > 1e-12 * abs(b) + 1e-15 for a, b in zip(one, other, strict=True))
    worst = [k for k in range(len(want)) if far(got[k], want[k])]
    return "same" if not worst else f"{what}: step {worst[0]} has {got[worst[0]]}, not {want[worst[0]]}"


def same_rates(numbers):
    optimizer = numbers.choice([ONE_RATE, TWO_RATES])
    name, params, spoiled = draw_schedule(numbers)
    want, got = rates_of_deepspeed(optimizer, name, params), rates_of_libds(optimizer, name, params)
    what = f"{optimizer['type']} {name} {params}"
    if want is None:
        return "both refuse" if isinstance(got, str) else f"{what}: DeepSpeed refuses it"
    if isinstance(got, str):
        return "refused, with a wrong value" if spoiled else f"{what}: {got}"
    return compared(what, got, want)


def same_trainer_rates(numbers):
    """Compares with Transformers, whose schedules are multiples of the rate of a group."""
    optimizer = numbers.choice([ONE_RATE, TWO_RATES])
    name, params = trainer_schedules.draw(numbers)
    what = f"{optimizer['type']} {name} {params}"
    got = rates_of_libds(optimizer, name, params)
    if isinstance(got, str):
        return f"{what}: {got}"
    shares = [rate / trainer_schedules.RATE for rate in trainer_schedules.rates(name, params)]
    return compared(what, got, [[rate * share for rate in own_rates(optimizer).values()] for share in shares])


# ---------------------------------------------------------------- loss scales


def same_scales(numbers):
    power, window, hysteresis = numbers.randint(0, 20), numbers.choice([1, 2, 3, 5, 10, 1000]), numbers.randint(1, 5)
    consecutive, least = numbers.random() < 0.5, numbers.choice([0.25, 1, 2, 3, 64])
    chance = numbers.choice([0.05, 0.2, 0.5, 0.9])
    pattern = [numbers.random() < chance for _ in range(STEPS)]
    theirs = loss_scaler.DynamicLossScaler(init_scale=2 ** power, scale_window=window, min_scale=least, delayed_shift=hysteresis,
                                           consecutive_hysteresis=consecutive)
    what = (f"2^{power}, window {window}, hysteresis {hysteresis}{', consecutive' if consecutive else ''}, at least {least}, "
            f"{''.join('.x'[bad] for bad in pattern)}")
    ours = host(fp16={"enabled": True, "initial_scale_power": power, "loss_scale_window": window, "hysteresis": hysteresis,
                      "consecutive_hysteresis": consecutive, "min_loss_scale": least}, zero_optimization={"stage": 1})
    with ours:
        for number, bad in enumerate(pattern):
            result = step(ours, float("inf") if bad else 0.0)
            try:
                theirs.update_scale(bad)
            # The scale is at the minimum, and the run ends.
            except Exception:
                return "same end" if result.loss_scale_at_floor else f"{what}: DeepSpeed ends at step {number}"
            if result.loss_scale_at_floor:
                return f"{what}: libds is at the minimum in step {number}"
            if result.skipped != bad or ours["loss_scale"] != theirs.cur_scale:
                return f"{what}: after step {number} {ours['loss_scale']}, DeepSpeed {theirs.cur_scale}"
    return "same"


# ---------------------------------------------------------------- batch sizes

TRAIN, MICRO, STEPS_KEY = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def same_batches(numbers):
    ranks = numbers.choice([1, 2, 3, 4, 5, 7, 8])
    micro, steps = numbers.choice([1, 2, 3, 4, 8]), numbers.choice([1, 2, 3, 4, 8])
    given = {TRAIN: micro * steps * ranks, MICRO: micro, STEPS_KEY: steps}
    for key in list(given):
        if numbers.random() < 0.45:
            del given[key]
        elif numbers.random() < 0.15:
            given[key] = numbers.choice([0, -1, 1, 2, 5, 64, 4.0])
    deepspeed_config.dist = types.SimpleNamespace(get_world_size=lambda *a, **k: ranks, get_rank=lambda *a, **k: 0)
    try:
        theirs = deepspeed_config.DeepSpeedConfig(dict(given))
        want = {TRAIN: theirs.train_batch_size, MICRO: theirs.train_micro_batch_size_per_gpu,
                STEPS_KEY: theirs.gradient_accumulation_steps}
    except Exception:  # also assertions
        want = None
    told = libds.describe_config(given, ranks)
    what = f"{given} on {ranks} ranks"
    if told["refusals"]:
        return "both refuse" if want is None else f"{what}: {told['refusals']}, DeepSpeed {want}"
    got = {key: told["config"][key] for key in (TRAIN, MICRO, STEPS_KEY)}
    return "same" if got == want else f"{what}: {got}, DeepSpeed {want}"


# ---------------------------------------------------------------- runs of a small model


def steps_of_run(folder, text, name, steps, more):
    """Returns (tokens, learning rate) of each step of a run on a file with this text, or the message if libds refuses."""
    folder = pathlib.Path(folder)
    (folder / name).write_text(text, encoding="utf-8")
    config = {"optimizer": {"type": "SGD", "params": {"lr": 0.001}}, "train_batch_size": 1,
              "model": {"family": "gpt", "layers": 1, "hidden": 8, "heads": 1},
              "data": {"paths": str(folder / name), "format": "jsonl" if name.endswith(".jsonl") else "text", "heldout": 0}, **more,
              "run": {"sequence": 64, "steps": steps, "threads": 1, "sample_tokens": 0, "dir": str(folder / "run")}}
    try:
        libds.train(config, progress=False)
    except libds.Error as error:
        return str(error)
    with open(folder / "run" / "metrics.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["loss"]]
    return [(round(float(row["tokens_per_second"]) * float(row["seconds"])), float(row["lr"])) for row in rows]


def draw_curriculum(numbers):
    low, high = sorted(numbers.choice([1, 2, 7, 8, 10, 16, 24, 33, 63, 64]) for _ in range(2))
    kind = numbers.choice(["fixed_linear", "fixed_root", "fixed_discrete"])
    lengths = sorted(numbers.randint(1, high) for _ in range(numbers.randint(1, 5)))
    if numbers.random() < 0.3:
        numbers.shuffle(lengths)
    if numbers.random() < 0.5:
        lengths[numbers.randrange(len(lengths))] = high
    if kind == "fixed_discrete":
        schedule = {"difficulty": lengths + [numbers.randint(1, high)], "max_step": sorted(numbers.randint(1, 20) for _ in lengths)}
    else:
        schedule = {"total_curriculum_step": numbers.choice([1, 2, 5, 12, 20, 100]), "difficulty_step": numbers.choice([1, 2, 7, 8, 16, 32])}
    if kind == "fixed_root":
        schedule["root_degree"] = numbers.choice([1, 2, 3, 1.5])
    spoiled = numbers.random() < 0.1
    if spoiled:
        schedule[numbers.choice(list(schedule))] = numbers.choice([0, -1, "x", []])
    return {"enabled": True, "curriculum_type": "seqlen", "min_difficulty": low, "max_difficulty": high, "schedule_type": kind,
            "schedule_config": schedule}, spoiled


def same_lengths(numbers):
    curriculum, spoiled = draw_curriculum(numbers)
    steps = 24
    try:
        scheduler = CurriculumScheduler(curriculum)
        want = [scheduler.update_difficulty(step + 1) for step in range(steps)]
    except Exception:  # also Python's own errors
        want = None
    with tempfile.TemporaryDirectory() as folder:
        got = steps_of_run(folder, "".join(numbers.choices("abcdefgh \n", k=3000)), "text.txt", steps, {"curriculum_learning": curriculum})
    what = f"{curriculum}"
    if isinstance(got, str):
        return "both refuse" if want is None else "refused, with a wrong value" if spoiled else f"{what}: {got}, DeepSpeed {want}"
    lengths = [tokens for tokens, _ in got]
    return "same" if lengths == want else f"{what}: {lengths}, DeepSpeed {want}"


def same_groups(numbers):
    sizes = [numbers.randint(1, numbers.choice([6, 20, 60])) for _ in range(numbers.randint(2, 40))]
    most, batch = numbers.choice([8, 20, 64, 100, 200]), numbers.choice([1, 1, 2, 3])
    given = {"enabled": True, "max_tokens": most, "lr_scaling_method": "linear",
             "sequence_picking_order": numbers.choice(["dataloader", "seqlen"])}
    if numbers.random() < 0.4:
        given["min_batch_size"] = numbers.choice([1, 2, 3])
    if numbers.random() < 0.4:
        given["max_batch_size"] = numbers.choice([1, 2, 5, 8])
    documents = ["".join(numbers.choices("abcdefgh", k=size)) for size in sizes]
    # A document consists of a token for each of its bytes, and an end token.
    lengths = [size + 1 for size in sizes]
    try:
        groups, counts, _ = batch_by_seqlens(lengths, most, min_batch_size=given.get("min_batch_size", 1),
                                             max_batch_size=given.get("max_batch_size"), effective_batch_size=batch,
                                             sequence_picking_order=given["sequence_picking_order"])
        # Padding of the shorter groups of a step does not count as tokens.
        tokens = [sum(lengths[i] for _, ids in groups[at:at + batch] for i in ids) for at in range(0, len(groups), batch)]
        steps = len(counts) + 2
        want = [(tokens[k % len(counts)], counts[k % len(counts)]) for k in range(steps)]
    except AssertionError:
        want, steps = None, 1
    more = {"train_batch_size": batch, "train_micro_batch_size_per_gpu": 1,
            "data_efficiency": {"enabled": True, "data_sampling": {"enabled": True, "dynamic_batching": given}}}
    with tempfile.TemporaryDirectory() as folder:
        text = "".join(json.dumps({"text": document}) + "\n" for document in documents)
        got = steps_of_run(folder, text, "documents.jsonl", steps, more)
    what = f"{lengths}, {batch} groups a step, {given}"
    if isinstance(got, str):
        return "both refuse" if want is None else f"{what}: {got}, DeepSpeed {want}"
    if want is None:
        return f"{what}: {got}, DeepSpeed refuses"
    found = [(tokens, round(rate / 0.001 * batch)) for tokens, rate in got]
    return "same" if found == want else f"{what}: {found}, DeepSpeed {want}"


JUDGES = {"schedules": same_rates, "Trainer's schedules": same_trainer_rates, "loss scales": same_scales, "batch sizes": same_batches, "lengths": same_lengths,
          "groups": same_groups}


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    loss_scaler.dist = types.SimpleNamespace(get_rank=lambda *a, **k: 1)  # only asked to decide which rank logs
    good = True
    for name, judge in JUDGES.items():
        found = {}
        for number in range(count):
            what = judge(random.Random(f"{seed} {name} {number}"))
            found[what] = found.get(what, 0) + 1
        bad = [what for what in found if ": " in what]
        for what in bad[:10]:
            print(f"FAIL {name}: {what}")
        good = good and not bad and found.get("same", 0) > count / 10
        print(f"{'ok  ' if not bad else 'FAIL'} {name}: {len(bad)} of {count} differ; "
              + ", ".join(f"{times} {what}" for what, times in found.items() if what not in bad), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
