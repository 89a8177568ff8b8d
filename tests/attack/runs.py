#!/usr/bin/env python3
"""Trains random small models with `libds train` and recomputes their data, losses and rates independently.

usage: runs.py BUILD [DRAWS [SEED]] [--short] [--only DRAW] [--seconds]     (default: 2000 draws, seed 0; --short: 24)

A draw consists of a model, a text in one of several forms, and a run in one to three parts. Each part has different batch
sizes, ranks and ZeRO stage. numpy computes the expected results from docs/reference/data.md and config.md alone (outside/):
- the samples of each step: none is skipped or repeated, whatever configuration the run is resumed with;
- the loss of each step with known weights, in f64, and the held-out loss;
- the rate of each step by the definitions of DeepSpeed and Transformers.
If weights change, a second run with the computed rate of one step in its configuration must compute this step with the same
bits. A run that was interrupted, but kept its batch, must have the bits of an uninterrupted run. A draw whose results differ
is printed with its configuration, and --only repeats it. Needs numpy.
"""
import argparse
import concurrent.futures
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time

try:
    import numpy  # noqa: F401 (outside/ needs it)
except ImportError:
    print("attack.runs is skipped: there is no numpy")
    sys.exit(77)
sys.dont_write_bytecode = True
from outside import draws, library, models, verdict

# Seconds allowed for one draw, on a busy machine.
TIMEOUT = 120.0


class Worker:
    """A process that tests one draw after another, in a private folder."""

    def __init__(self, build, work):
        self.library = library.Library(build)
        self.build, self.work = build, work
        self.models = {}

    def model(self, family, variant):
        """Returns a tiny model with known weights. Each model is created once."""
        if (family, variant) not in self.models:
            rng = random.Random(f"{family}.{variant}")
            model = models.Model(family, rng.choice([16, 32]), rng.choice([1, 1, 2]), rng.choice([2, 4]), rng)
            if family != "gpt":
                model.draw(variant + 1, draws.POSITIONS)
                model.write(os.path.join(self.work, f"{family}-{variant}"), draws.POSITIONS)
            self.models[family, variant] = model
        return self.models[family, variant]

    def make(self, seed, number):
        """Returns the differences as text, or "" if there are none."""
        rng = random.Random(f"{seed}.{number}")
        folder = os.path.join(self.work, "draw")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        draw = draws.Draw(rng, folder, self.model)
        try:
            verdict.check(draw, self.library, self.build)
        except (verdict.Differs, library.Refused) as error:
            return f"{type(error).__name__}: {error}\n  {draw.describe()}"
        return ""


worker = None


def begin(build, work):
    global worker  # pylint: disable=global-statement
    worker = Worker(build, os.path.join(work, str(os.getpid())))
    os.makedirs(worker.work)


def make(seed, number):
    def hangs():
        print(f"draw {number} of seed {seed} does not end", flush=True)
        os._exit(3)

    timer = threading.Timer(TIMEOUT, hangs)
    timer.daemon = True
    timer.start()
    began = time.monotonic()
    try:
        return number, worker.make(seed, number), time.monotonic() - began
    finally:
        timer.cancel()


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("build")
    parser.add_argument("draws", nargs="?", type=int, default=2000)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", type=int)
    parser.add_argument("--seconds", action="store_true", help="print the time of each draw")
    words = parser.parse_args()
    numbers = [words.only] if words.only is not None else range(24 if words.short else words.draws)
    build, differ, began = os.path.abspath(words.build), 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ds-runs-") as work:
        jobs = 1 if words.only is not None else max(1, min(len(os.sched_getaffinity(0)), 8))
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(jobs, context, begin, (build, work)) as pool:
            for number, text, seconds in pool.map(make, [words.seed] * len(numbers), numbers):
                if words.seconds:
                    print(f"draw {number}: {seconds:.2f} s", flush=True)
                if text:
                    differ += 1
                    print(f"draw {number} of seed {words.seed}: {text}\n  again: runs.py {words.build} 1 {words.seed} --only {number}",
                          flush=True)
    print(f"runs: {len(numbers)} draws of seed {words.seed}, {differ} differ, {time.monotonic() - began:.0f} s")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
