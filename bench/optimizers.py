"""Compares updates with torch's fused AdamW and DeepSpeed's CPUAdam, in turns:
./run bench optimizers [ROUNDS] [THREADS] [MILLIONS];
or compares the held-out losses of forms with fewer bytes: ./run bench optimizers loss [STEPS].

The table has, for each form, the parameters per second (the best of the rounds), the bytes moved per parameter, the share of
STREAM's triad that these bytes reach, and the ratio to DeepSpeed's form with bf16 parameters. Share and ratio are medians of
the rounds: the memory of a virtual machine gives 60 GB/s in one minute and 100 in the next, so triad and DeepSpeed take a turn
next to every form.

The bytes per parameter. DeepSpeed and torch: f32 28 (gradient 4, parameter and two states 8 each), DeepSpeed's bf16 form 22
(gradient 2, parameter 4, f32 states 16). libds, whose gradients are f32 sums (4): with a bf16 parameter, f32 masters and
states move 30, bf16 states 22; bf16 masters that are the parameters, with bf16 states, move 16. States in 8-bit codes move 18
with f32 masters (8) and a bf16 parameter (2), and 12 with bf16 masters that are the parameters (4): codes are read and
written (4), and the scales of blocks of 256 add 1/64 of a byte. Forms with grad16 in their name read gradients in bf16, as
DeepSpeed's form does.

Bars: each form of libds reaches 0.98 of STREAM at equal bytes; with f32 gradients, bf16 masters and states update 1.3 times
the parameters per second of DeepSpeed's 22-byte form, and bf16 masters with 8-bit states 1.6 times. The column "in cache" has
the rate of the same kernel and threads on arrays in the cache, where memory takes no time. If even this rate misses a bar,
the processor's arithmetic cannot meet it, and the table says so.

loss: the run of examples/train.json with f32 masters and states, and with bf16 masters and bf16 or 8-bit states under
stochastic rounding, each with 3 seeds. Bar: the mean of the final held-out losses is at most 0.02 higher. This takes as long
as nine runs.
"""
import os
import statistics
import subprocess
import sys
import time

import heldout
import verdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEEPSPEED_LEAN = "DeepSpeed CPUAdam bf16"
LOSS_BAR = 0.02
NOISE = 0.95  # a value above this share of a bar may be due to noise
CACHED = 32  # units of 1,024 parameters a thread: the L2 cache holds all arrays of a form
BESIDE_DEEPSPEED = {"adamw-lean16": 1.3, "adamw-lean16-drawn": 1.3, "adamw-lean8": 1.6, "adamw-lean8-drawn": 1.6}  # bars


def rival_forms(numel):
    """Returns the forms of torch and DeepSpeed: name, bytes per parameter, a function that makes the function of one update."""
    import torch

    def params(dtype):
        param = torch.nn.Parameter(torch.full((numel,), 0.1, dtype=dtype))
        param.grad = torch.full((numel,), 1e-3, dtype=dtype)
        return [param]

    def fused(dtype):
        return torch.optim.AdamW(params(dtype), lr=1e-6, fused=True).step

    def cpu_adam(dtype):
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        return DeepSpeedCPUAdam(params(dtype), lr=1e-6, adamw_mode=True).step

    return [("torch AdamW fused f32", 28, lambda: fused(torch.float32)),
            ("torch AdamW fused bf16", 14, lambda: fused(torch.bfloat16)),
            ("DeepSpeed CPUAdam f32", 28, lambda: cpu_adam(torch.float32)),
            (DEEPSPEED_LEAN, 22, lambda: cpu_adam(torch.bfloat16))]


def serve_rivals(threads, numel):
    """Reads and writes the same lines as bench_optimizers."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the libraries must not mix with our lines
    import torch
    torch.set_num_threads(threads)
    forms, kept, step = rival_forms(numel), None, None
    for name, size, _ in forms:
        print(f"{name} {size}", file=lines)
    print("ready", file=lines, flush=True)
    for line in sys.stdin:
        name = line.strip()
        if name != kept:
            step = None  # frees the memory before the next form takes some
            step, kept = next(make for known, _, make in forms if known == name)(), name
            step()
        begin = time.perf_counter()
        step()
        print(f"{numel / (time.perf_counter() - begin):.6g}", file=lines, flush=True)


class Side:
    def __init__(self, command):
        environment = dict(os.environ, OMP_NUM_THREADS=sys.argv[2] if len(sys.argv) > 2 else "2")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
                                        env=environment)
        self.bytes = {}
        while (line := self.line()) != "ready":
            name, size = line.rsplit(" ", 1)
            self.bytes[name] = int(size)

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[0]} ended with {self.process.wait()}")
        return line.strip()

    def turn(self, name, count=3):
        best = 0.0
        for _ in range(count):
            print(name, file=self.process.stdin, flush=True)
            best = max(best, float(self.line()))
        return best


def processor():
    with open("/proc/cpuinfo") as info:
        return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown processor")


def judge(bars, ours, rivals, rates, cached, shares, ratios):
    """rates: the best rate of each form; cached: the best rates of our forms on arrays in the cache; shares and ratios: for
    each form the shares of STREAM and the ratios to DeepSpeed's form, one for each round. For a missed bar that is out of
    reach, the line also has the value that the form would reach if memory took no time."""
    def least(name, beside, value, bar):
        beyond = value * cached[name] / rates[name]
        out_of_reach = f", out of reach: {beyond:.2f} in cache" if value < bar and beyond < NOISE * bar else ""
        return bars.least(f"{name} {beside}", value, bar) + out_of_reach

    print(f"{'':32}{'bytes':>6}{'M params/s':>12}{'in cache':>10}{'GB/s':>8}{'of STREAM':>11}{'of DeepSpeed':>14}")
    for name, size in (ours | rivals).items():
        in_cache = f"{cached[name] / 1e6:.1f}" if name in ours else ""
        line = f"{name:32}{size:6}{rates[name] / 1e6:12.1f}{in_cache:>10}{rates[name] * size / 1e9:8.2f}"
        if name in ours:
            share = statistics.median(shares[name])
            line += f"{share:11.3f} ({least(name, 'of STREAM', share, 0.98)})"
        if name in ratios:
            ratio = statistics.median(ratios[name])
            line += f"{ratio:9.2f}"
            if name in BESIDE_DEEPSPEED:
                line += f" ({least(name, 'beside DeepSpeed', ratio, BESIDE_DEEPSPEED[name])})"
        print(line)


def speed(bars):
    rounds, threads, millions = (int(word) for word in (sys.argv[1:] + ["5", "2", "32"][len(sys.argv) - 1:])[:3])
    ours = Side(["build/bin/bench_optimizers", str(threads), str(millions)])
    small = Side(["build/bin/bench_optimizers", str(threads), str(-CACHED * threads)])
    rivals = Side([sys.executable, os.path.abspath(__file__), "--rivals", str(threads), str(millions << 20)])
    rates, cached, shares, ratios, triads = {}, {}, {}, {}, []
    for _ in range(rounds):
        for name, size in ours.bytes.items():
            rate = ours.turn(name)
            triads.append(ours.turn("triad", 1))
            shares.setdefault(name, []).append(rate * size / triads[-1])
            ratios.setdefault(name, []).append(rate / rivals.turn(DEEPSPEED_LEAN))
            rates[name] = max(rates.get(name, 0.0), rate)
            cached[name] = max(cached.get(name, 0.0), small.turn(name, 30))
        for name in rivals.bytes:
            rates[name] = max(rates.get(name, 0.0), rivals.turn(name))
    print(f"{processor()}, {threads} threads, {millions << 20} parameters, {rounds} rounds: the best rate, the median of ratios")
    print(f"STREAM triad {min(triads) / 1e9:.1f} to {max(triads) / 1e9:.1f} GB/s")
    judge(bars, ours.bytes, rivals.bytes, rates, cached, shares, ratios)


def lean(states):
    """Returns a change of the main job: masters in bf16, and states of this type, with stochastic rounding."""
    def change(config):
        config["bf16"] |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": states == "bf16"}
        config["optimizer"]["rounding"] = "stochastic"
        if states != "bf16":
            config["optimizer"]["states"] = states
    return change


def loss(bars, steps):
    f32 = heldout.mean_loss("f32 masters and states", steps, lambda config: None)
    for states in ("bf16", "u8"):
        name = f"bf16 masters, {states} states"
        off = heldout.mean_loss(name, steps, lean(states)) - f32
        print(f"{name}: {off:+.4f}, {bars.most(f'held-out loss of {name} above that of f32', off, LOSS_BAR)}", flush=True)


def main(bars):
    if sys.argv[1:2] == ["loss"]:
        loss(bars, int((sys.argv[2:] + ["1350"])[0]))
    else:
        speed(bars)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rivals"]:
        serve_rivals(int(sys.argv[2]), int(sys.argv[3]))
    else:
        verdict.run(main)
