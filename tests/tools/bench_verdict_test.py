#!/usr/bin/env python3
"""Tests that every bench fails when a bar is missed, with the verdict as the last line. Passes made-up figures to its judge.

usage: bench_verdict_test.py BENCH_FOLDER
"""
import contextlib
import importlib
import io
import math
import pathlib
import re
import subprocess
import sys
import tempfile

PLAN = """compile: 9403 instructions, 8341 buffers in {:.3f} s (all programs of the engine)
executor: {:.3f} us an instruction (10,000 on queues in turn, each waits for the one before; no files)
executor: {:.3f} us an instruction (10,000 on queues in turn; a tenth on the file lanes, empty)
executor: 9.000 us an instruction (10,000 on queues in turn; a tenth on the file lanes, 4 KiB each)
"""
RATIOS = dict(zip(("autocast", "bf16", "autocast+compile", "bf16+compile"), (2.0, 1.8, 1.4, 1.3)))
PEFT = dict(zip(("bf16", "f32", "bf16+compile", "f32+compile"), ((2.5, 2.6), (2.2, 2.1), (1.7, 1.8), (1.9, 1.7))))
MIB = 2**20


def comm_times(ours=10.0, gloo=40.0, mpi=11.0):
    times = {}
    for name in ("all_gather", "reduce_scatter", "all_reduce"):
        for bytes_ in [4096 << (2 * i) for i in range(9)]:
            for kind in ("user", "arena"):
                times |= {("libds", name, kind, bytes_): [ours], ("mpi", name, kind, bytes_): [mpi]}
            times |= {("gloo", name, "user", bytes_): [gloo], ("libds", "copy", "arena", bytes_): [5.0]}
    return times


def hosts(ours=1.1, wall=1.1, peak=1.9, rival="deepspeed"):
    return ("f32, stage 2, 2 ranks", 2, {"bare": [1.0, 1.0], "libds": [ours, wall], rival: [1.55 if rival == "fsdp" else 2.0, 2.0]},
            {"bare": 1.0, "libds": peak, rival: 2.0}, rival, 32, ("CPU", "wall"))


def tiers(nvme):
    return {"device": 100.0, "nvme": nvme}, {"device": 100.0, "nvme": nvme}


def updates(ours=1.0, rival=0.7, cached=2.0):
    """Returns the figures of the optimizers bench: parameters per second, computed from shares of STREAM's bandwidth. `cached`
    is the ratio of the rates of a state in the cache to the others."""
    sizes, rivals, triad = {"adamw": 30, "adamw-states16": 22, "adamw-lean16": 16, "adamw-lean16-drawn": 16,
                            "adamw-lean8": 12, "adamw-lean8-drawn": 12, "adamw-states8-drawn": 18}, {"DeepSpeed CPUAdam bf16": 22}, 2e10
    rates = {name: ours * triad / size for name, size in sizes.items()} | {name: rival * triad / size for name, size in rivals.items()}
    lean = rates["DeepSpeed CPUAdam bf16"]
    return (sizes, rivals, rates, {name: cached * rates[name] for name in sizes}, {name: [rates[name] * size / triad] * 3 for name, size in sizes.items()},
            {name: [rates[name] / lean] * 3 for name in sizes})


def disk(ours=1.8, torch=1.0, safetensors=1.5, fio=2.0):
    """Returns the bytes per second of each side."""
    rates = {"libds": ours, "torch": torch, "safetensors": safetensors, "fio": 1.2, "fio direct": fio}
    return {side: rate * 1e9 for side, rate in rates.items()}


# Modules shared by benches.
HELPERS = ("verdict.py", "heldout.py")

# For each judge: (bench, judge, figures that meet every bar, list of figures that each miss a bar).
CASES = [
    ("adapters", "judge", (PEFT, (1.4, 1.4), 1),
     [(PEFT | {"f32": (2.2, 1.9)}, None, 1), (PEFT | {"f32+compile": (1.5, 1.7)}, None, 0), (PEFT, (1.4, 1.2), 1), (PEFT, (math.nan, 1.4), 0)]),
    ("before", "judge", ("train_step", [1.0] * 24), [("train_step", [1.02] * 24)]),
    ("before", "judge_rows", ("comm", {"a": 1.0, "b": 1.04}), [("comm", {"a": 1.0, "b": 1.2})]),
    ("checkpoint", "judge", (1.5e9, disk(), disk()),
     [(1.5e9, disk(ours=1.6), disk()), (1.5e9, disk(), disk(ours=1.6)), (1.5e9, disk(torch=1.9), disk()),
      (1.5e9, disk(), disk(safetensors=1.9))]),
    ("checkpoint", "judge_steps", ([1000.0, 1010.0], [980.0, 990.0]), [([1000.0], [960.0])]),
    ("comm", "judge", (2, comm_times()), [(2, comm_times(gloo=29.0)), (2, comm_times(mpi=9.9))]),
    ("comm", "judge", (4, comm_times(mpi=8.5)), [(4, comm_times(mpi=8.0))]),
    ("decode", "judge", ("share           68.0 % (of STREAM)\n",), [("share           49.9 % (of STREAM)\n",)]),
    ("llama_opt", "judge", ((1.0, 2.0), (3.5, 6.5), (2.0, 2.1), 0),
     [((1.0, 2.0), (2.9, 6.5), (2.0, 2.1), 0), ((1.0, 2.0), (3.5, 5.5), (2.0, 2.1), 1), ((1.0, 2.0), (3.5, 6.5), (2.2, 2.1), 0)]),
    ("memory", "judge", (2, {0: 164 * MIB, 1: 90 * MIB}, [100 * MIB] * 2, 115 * MIB, 100 * MIB),
     [(2, {0: 165 * MIB, 1: 90 * MIB}, [100 * MIB] * 2, 100 * MIB, 100 * MIB),
      (2, {0: 100 * MIB, 1: 90 * MIB}, [100 * MIB] * 2, 116 * MIB, 100 * MIB)]),
    ("memory", "judge_adapters", ("layers", 3900 * MIB, 3850 * MIB),
     [("layers", 4100 * MIB, 4050 * MIB), ("none", 5100 * MIB, 5000 * MIB), ("none", 5200 * MIB, 5190 * MIB)]),
    ("optimizers", "judge", updates(), [updates(ours=0.9), updates(rival=1.1), updates(ours=0.8, cached=1.05)]),
    ("plan", "judge", (PLAN.format(0.4, 1.9, 1.9),),
     [(PLAN.format(0.6, 1.9, 1.9),), (PLAN.format(0.4, 2.1, 1.9),), (PLAN.format(0.4, 1.9, 2.1),)]),
    ("tiers", "judge", (1000000, *tiers(81.0)), [(1000000, *tiers(79.0))]),
    ("tokenizer", "judge", ("gpt2", 4 << 20, 0.1, 1.0, True),
     [("gpt2", 4 << 20, 0.1, 1.0, False), ("gpt2", 4 << 20, 0.3, 1.0, True)]),
    ("train_small", "judge", (3, 1300.0, 1000.0), [(3, 1100.0, 1000.0), (3, math.nan, 1000.0)]),
    ("torch_hosts", "judge", hosts(), [hosts(ours=1.3), hosts(ours=1.3, rival="fsdp"), hosts(wall=1.4), hosts(peak=2.1)]),
    ("train_step", "judge_torch", (RATIOS, 3.0, 3.1),
     [(RATIOS | {"autocast": 1.6}, 3.0, 3.1), (RATIOS | {"bf16+compile": 1.1}, 3.0, 3.1), (RATIOS, 3.2, 3.1)]),
    ("train_step", "judge_stage", ("2", [1.6, 1.7], 2.0), [("2", [1.4, 1.7], 2.0)]),
    ("train_step", "judge_stages", (1.0, 1.1), [(1.0, 1.2)]),
    ("wrappers", "judge", ({"C": [3.0, 2.0, 9.0], "Python": [15.0, 14.0, 90.0]},), [({"C": [2.0], "Python": [15.0], "Rust": [23.0]},)]),
    ("train_step", "judge_reproducible", ("0", 8192, 1.0, 1.05), [("0", 8192, 1.0, 1.2)]),
]
wrong = []


def expect(ok, complaint):
    if not ok:
        wrong.append(complaint)


def outcome(verdict, judge, figures):
    """Returns the exit code and text of a bench whose only measurement is `figures`."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            verdict.run(lambda bars: judge(bars, *figures))
        except SystemExit as end:
            return end.code, text.getvalue()


def judged(folder):
    verdict = importlib.import_module("verdict")
    seen = set()
    for bench, name, good, bad in CASES:
        judge = getattr(importlib.import_module(bench), name)
        seen.add((bench, name))
        code, text = outcome(verdict, judge, good)
        expect(code == 0 and re.match(r"PASS: (\d+) of \1 bars hold", text.splitlines()[-1]) and "MISSED" not in text,
               f"{bench}.{name} of {good}: exit code {code}, {text}")
        for figures in bad:
            code, text = outcome(verdict, judge, figures)
            expect(code == 1 and text.splitlines()[-1].startswith("FAIL: ") and "MISSED" in text,
                   f"{bench}.{name} of {figures}: exit code {code}, {text}")
    # A bar is out of reach if even a state in the cache misses it.
    for cached, reach in ((2.0, False), (1.05, True)):
        _, text = outcome(verdict, importlib.import_module("optimizers").judge, updates(ours=0.8, cached=cached))
        expect(("out of reach" in text) == reach, f"optimizers.judge of a cache of {cached}: {text}")
    # Every judge has a case.
    for path in folder.glob("*.py"):
        for name in re.findall(r"^def (judge\w*)\(", path.read_text(), re.MULTILINE):
            expect((path.stem, name) in seen, f"{path.name}: {name} has no case in this test")


def one_way(folder):
    """Checks that every bench judges by verdict.py."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".py", ".cpp", ".c", ".h", ".sh") or path.name in HELPERS:
            continue
        text = path.read_text()
        expect("MISSED" not in text and "PASS" not in text, f"{path.name} prints a verdict of its own")
        if path.suffix == ".py":
            expect("    verdict.run(main)\n" in text[-40:], f"{path.name} does not end with verdict.run(main)")
        else:
            expect(not re.search(r"\bbars? (of|at|is|\d)", text), f"{path.name} has a bar, which belongs to a .py beside it")


def ends_early(folder):
    """Runs small benches that end in different ways, and checks their exit codes and that the verdict is the last line."""
    for body, code, last in [("pass", 1, "FAIL: no bar was judged"), ("1 / 0", 1, "FAIL: the bench ended"),
                             ("bars.least('a', 2, 1); sys.exit(0)", 2, "FAIL: the bench ended"),
                             ("bars.least('a', 0, 1); bars.least('b', 2, 1)", 1, "FAIL: 1 of 2 bars missed: a 0 of at least 1"),
                             ("bars.only_figures('a figure')", 0, "PASS: no bars, a figure"),
                             ("bars.least('a', 2, 1); bars.left_out('MPI')", 0, "PASS: 1 of 1 bars hold; left out: MPI")]:
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "bench.py"
            path.write_text(f"import sys\nsys.path.insert(0, {str(folder)!r})\nimport verdict\n\n\ndef main(bars):\n"
                            f"    print('figures')\n    {body}\n\n\nverdict.run(main)\n")
            done = subprocess.run([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect(done.returncode == code and done.stdout.splitlines()[-1].startswith(last),
               f"a bench of '{body}': exit code {done.returncode}, {done.stdout}")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(folder))
    judged(folder)
    one_way(folder)
    ends_early(folder)
    for line in wrong:
        print(line)
    print(f"bench_verdict_test: {len(CASES)} judges, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
