"""Compares a training step of low-rank adapters with PEFT on torch, in turns:
  ./run bench adapters [ROUNDS] [gpt2|tinyllama] [THREADS] [STEPS] [cpu]

Both sides train adapters of rank 16 on all linear layers of GPT-2 124M, or of a Llama of 1.1B parameters in TinyLlama's shape, both with
random weights in bf16, on a batch of 2 x 512 random tokens: loss, gradient, clip 1.0, AdamW. PEFT has adapters of bf16, or of f32 as it makes
them by default, each eager and compiled, with fused AdamW and scaled_dot_product_attention. The process of libds stays. Each mode of PEFT is
started, warmed up, and takes ROUNDS (5) turns of STEPS (2) steps with it; one side waits while the other computes. For GPT-2, the full step of
libds takes turns with its step of adapters, too. Prints wall and CPU time of the best step of each side, ru_maxrss and the ratios.

Bars: 2 times the speed of the faster eager mode, 1.6 times the speed of the faster compiled mode, and for GPT-2 at most 0.8 of the time of
the full step. With `cpu`, for a machine that is not idle, the bars are judged by CPU time.
"""
import os
import platform
import re
import resource
import sys

import verdict
from train_step import Side, build, serve_steps

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODES = ("bf16", "f32", "bf16+compile", "f32+compile")
ROWS, SEQ, RANK = 2, 512, 16
TICKS = os.sysconf("SC_CLK_TCK")


def peft_side(name, threads, mode):
    import peft
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, vocab = build(name)
    keys = peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM", fan_in_fan_out=name == "gpt2")
    model = peft.get_peft_model(model.to(torch.bfloat16), keys, autocast_adapter_dtype=mode.startswith("f32")).train()
    trained = [param for param in model.parameters() if param.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    forward = torch.compile(model) if "compile" in mode else model
    tokens = torch.randint(0, vocab, (ROWS, SEQ))

    serve_steps(lambda: forward(input_ids=tokens, labels=tokens).loss, trained, optimizer)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peft {peft.__version__} on torch {torch.__version__} {name} {mode} peakRSS {peak:.2f} GiB")


class Timed(Side):
    """A side that measures the CPU time of a step as well."""

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / TICKS

    def pairs(self, count):
        """Returns wall and CPU seconds of each step."""
        found = []
        for _ in range(count):
            before = self.cpu()
            wall = self.steps(1)
            found.append((wall, self.cpu() - before))
        return found


def turns(first, second, rounds, steps):
    """Returns the best wall and CPU seconds of each side."""
    seen = ([], [])
    for _ in range(rounds):
        for side, pairs in zip((first, second), seen):
            pairs += side.pairs(steps)
    return [tuple(min(pair[k] for pair in pairs) for k in (0, 1)) for pairs in seen]


def libds(name, threads, *words):
    binary = os.path.join(ROOT, "build", "bin", "bench_train_step")
    return Timed([binary, name, threads, "0", "--samples", str(ROWS), "--seq", str(SEQ), *words], ROOT)


def row(what, mine, other):
    """mine, other: wall and CPU seconds. Prints a row and returns the ratios of the other's to ours."""
    ratios = other[0] / mine[0], other[1] / mine[1]
    print(f"{what:14} libds {ROWS * SEQ / mine[0]:6.0f} tok/s, CPU {mine[1]:6.2f} s  other {ROWS * SEQ / other[0]:6.0f} tok/s, CPU "
          f"{other[1]:6.2f} s  ratio {ratios[0]:.2f}, CPU {ratios[1]:.2f}", flush=True)
    return ratios


def judge(bars, ratio, full, judged):
    """ratio (by mode) and full (of the full step) are pairs of wall and CPU; the one at index `judged` counts."""
    eager, compiled = min(ratio[mode][judged] for mode in MODES[:2]), min(ratio[mode][judged] for mode in MODES[2:])
    print(f"libds is {eager:.2f} x the faster eager mode ({bars.least('libds / PEFT eager', eager, 2)}), {compiled:.2f} x the faster "
          f"compiled mode ({bars.least('libds / PEFT compiled', compiled, 1.6)})")
    if full:
        print(f"a step of adapters takes {1 / full[judged]:.2f} of the full step "
              f"({bars.most('adapters / full step', 1 / full[judged], 0.8)})")


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"^model name\s*:\s*(.*)$", file.read(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def main(bars):
    words = [word for word in sys.argv[1:] if word != "cpu"]
    rounds, name, threads, steps = (words + ["5", "gpt2", "2", "2"][len(words):])[:4]
    judged = int("cpu" in sys.argv)
    print(f"{name}, adapters of rank {RANK}, {threads} threads on {processor()}, best of {rounds} turns of {steps} steps, judged by "
          f"{('wall', 'CPU')[judged]} time", flush=True)
    ours = libds(name, threads, "--adapter", str(RANK))
    ratio, full = {}, None
    if name == "gpt2":
        other = libds(name, threads)
        full = row("full step", *turns(ours, other, int(rounds), int(steps)))
        print(f"  ru_maxrss {other.peak_gib():.2f} GiB")
    for mode in MODES:
        theirs = Timed([sys.executable, os.path.abspath(__file__), "--peft", name, threads, mode], ROOT)
        ratio[mode] = row(mode, *turns(ours, theirs, int(rounds), int(steps)))
        print(f"  ru_maxrss {theirs.peak_gib():.2f} GiB", flush=True)
    print(f"ru_maxrss of libds {ours.peak_gib():.2f} GiB")
    judge(bars, ratio, full, judged)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peft"]:
        peft_side(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        verdict.run(main)
