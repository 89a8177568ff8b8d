"""Fewer bytes on the wire beside exact training: ./run bench onebit [wire|loss] [STEPS].

wire: two ranks in network namespaces of their own, joined at 1 Gbit/s (tc tbf), train a small GPT in bf16 over gloo. A
step behind the freeze takes at most 0.7 of the time of Adam's, and receives at most 1/14 of the bytes of an all-reduce
of bf16 gradients (stage 0; stage 1, where parameters are gathered in any case, is printed without a bar). So does a step of ZeRO-3 with ZeRO++'s
codes (int8 weights, int4 gradients) beside exact ZeRO-3. It needs the right to make namespaces, else it is left out.

loss: the run of examples/train.json at stage 1 with Adam and with 1-bit Adam, whose freeze_step is 20 % of the steps,
each with 3 seeds: the mean of the final held-out losses is at most 0.02 higher. Both have an eps of 1e-5: behind the
freeze an element whose variance was nearly 0, of the row of a rare word, say, would step by the rate times its momentum
over eps; with 1e-8 the loss of 1-bit Adam was 0.17 higher. This takes as long as six runs.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import overlap
import verdict

STEP_BAR, BYTES_BAR, LOSS_BAR = 0.7, 1 / 14, 0.02
EPS = 1e-5
SEEDS = (1, 2, 3)
BUILD = os.environ.get("DS_BUILD", "build")
BENCH = os.path.join(BUILD, "bin", "bench_onebit")
PARAMETERS = 8192 * 512 + 128 * 512 + 4 * (12 * 512 * 512)  # but norms and biases


def measure(stage, steps):
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank, name in enumerate(overlap.NAMES):
            named = ["unshare", "--uts", "sh", "-c", f'echo {name} > /proc/sys/kernel/hostname; exec "$@"', "sh"]
            command = ["ip", "netns", "exec", name, *named, BENCH, str(rank), "2", f"gloo://{folder}/meet", str(stage),
                       str(steps)]
            environment = dict(os.environ) | {"GLOO_SOCKET_IFNAME": "v0", "DS_JOB_KEY": "of the onebit bench"}
            ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        out = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            sys.exit("onebit: a rank has failed")
    return [[float(word) for word in line.split()] for line in out[0].splitlines()]


def wire(bars, steps):
    try:
        overlap.join_namespaces()
    except (OSError, subprocess.CalledProcessError):
        bars.left_out("network namespaces, which this user may not make")
        return
    try:
        (exact, exact_bytes), (codes, codes_bytes) = measure(3, steps)
        print(f"1 Gbit/s, stage 3: exact {exact:.3f} s and {exact_bytes / 1e6:.1f} MB a step, with codes {codes:.3f} s and "
              f"{codes_bytes / 1e6:.1f} MB: {codes / exact:.2f} of the time, "
              f"{bars.most('time of a step of ZeRO-3 with codes', codes / exact, STEP_BAR)}", flush=True)
        for stage in (0, 1):
            (adam, adam_bytes), (onebit, onebit_bytes) = measure(stage, steps)
            least = 2 * 2 * PARAMETERS / 2  # of an all-reduce of two ranks
            line = (f"1 Gbit/s, stage {stage}: Adam {adam:.3f} s and {adam_bytes / 1e6:.1f} MB a step, 1-bit Adam behind "
                    f"its freeze {onebit:.3f} s and {onebit_bytes / 1e6:.2f} MB: {onebit / adam:.2f} of the time, 1/"
                    f"{least / onebit_bytes:.1f} of the bytes of bf16 gradients")
            if stage == 0:
                line += f", {bars.most('time of a step', onebit / adam, STEP_BAR)}"
                line += f", {bars.most('bytes of a step', onebit_bytes / least, BYTES_BAR)}"
            print(line, flush=True)
    finally:
        for name in overlap.NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False)


def final_loss(optimizer, seed, steps):
    with open("examples/train.json", encoding="utf-8") as file:
        config = json.loads(re.sub(r"//[^\n\"]*$", "", file.read(), flags=re.M))
    config["optimizer"]["type"] = optimizer
    config["optimizer"]["params"]["eps"] = EPS
    if optimizer == "OneBitAdam":
        config["optimizer"]["params"]["freeze_step"] = steps // 5
    config["zero_optimization"] = {"stage": 1}
    config["scheduler"]["params"]["total_num_steps"] = steps
    config["run"] |= {"seed": seed, "steps": steps, "eval_every": 0, "save_every": 0, "sample_every": 0, "bars": []}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.json")
        config["run"]["dir"] = os.path.join(folder, "run")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        libds = os.path.join(BUILD, "bin", "libds")
        said = subprocess.run([libds, "launch", "-n", "2", libds, "train", "--config", path, "--data", ".cache/text"],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(re.findall(r"held-out loss ([0-9.]+)", said)[-1])


def loss(bars, steps):
    means = {}
    for optimizer in ("AdamW", "OneBitAdam"):
        losses = [final_loss(optimizer, seed, steps) for seed in SEEDS]
        means[optimizer] = sum(losses) / len(losses)
        print(f"{optimizer}: held-out loss {means[optimizer]:.4f}, seeds {' '.join(f'{x:.4f}' for x in losses)}",
              flush=True)
    off = means["OneBitAdam"] - means["AdamW"]
    print(f"1-bit Adam, freeze_step at 20 %: {off:+.4f}, {bars.most('held-out loss above that of Adam', off, LOSS_BAR)}")


def main(bars):
    parts = {"wire": (wire, 10), "loss": (loss, 1350)}
    words = sys.argv[1:]
    named = words.pop(0) if words and words[0] in parts else "wire"
    part, steps = parts[named]
    part(bars, int(words[0]) if words else steps)


if __name__ == "__main__":
    verdict.run(main)
