"""Compares training with fewer bytes on the wire with exact training: ./run bench onebit [wire|loss] [STEPS].

wire: two ranks in network namespaces of their own, connected at 1 Gbit/s (tc tbf), train a small GPT in bf16 over tcp. Bars:
- A step after the freeze takes at most 0.7 of the time of Adam's step, and receives at most 1/14 of the bytes of an all-reduce
  of bf16 gradients.
- A run that freezes at 20 % of its steps receives at most 1/3.5 of the bytes of a run with Adam, whose sums travel back in f32.
- A step of ZeRO-3 with ZeRO++'s codes (int8 weights, int4 gradients) takes at most 0.7 of the time of exact ZeRO-3.
The first two are for stage 0. Stage 1, where parameters are gathered in any case, is printed without bars. This part is left out
if the user may not make namespaces.

loss: the run of examples/train.json at stage 1 with AdamW, and with 1-bit Adam, whose freeze_step is 20 % of the steps, each
with 3 seeds. Bar: the mean of the final held-out losses is at most 0.02 higher. Both have an eps of 1e-5. With a smaller eps,
an element whose variance was nearly 0 at the freeze, for example in the row of a rare word, would step by the rate times its
momentum over eps; with 1e-8 the loss of 1-bit Adam was 0.17 higher. This part takes as long as six runs.
"""
import os
import subprocess
import sys
import tempfile

import heldout
import overlap
import verdict

STEP_BAR, BYTES_BAR, RUN_BAR, LOSS_BAR = 0.7, 1 / 14, 1 / 3.5, 0.02
FROZEN = 0.8  # share of the steps of a run after the freeze
EPS = 1e-5
BENCH = os.path.join(heldout.BUILD, "bin", "bench_onebit")
PARAMETERS = 8192 * 512 + 128 * 512 + 4 * (12 * 512 * 512)  # without norms and biases


def measure(stage, steps):
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank, name in enumerate(overlap.NAMES):
            named = ["unshare", "--uts", "sh", "-c", f'echo {name} > /proc/sys/kernel/hostname; exec "$@"', "sh"]
            command = ["ip", "netns", "exec", name, *named, BENCH, str(rank), "2", f"tcp://{folder}/meet", str(stage),
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
        (exact, exact_bytes, _), (codes, codes_bytes, _) = measure(3, steps)
        print(f"1 Gbit/s, stage 3: exact {exact:.3f} s and {exact_bytes / 1e6:.1f} MB a step, with codes {codes:.3f} s and "
              f"{codes_bytes / 1e6:.1f} MB: {codes / exact:.2f} of the time, "
              f"{bars.most('time of a step of ZeRO-3 with codes', codes / exact, STEP_BAR)}", flush=True)
        for stage in (0, 1):
            (adam, adam_bytes, _), (onebit, onebit_bytes, first_bytes) = measure(stage, steps)
            least = 2 * 2 * PARAMETERS / 2  # bytes of an all-reduce of two ranks
            line = (f"1 Gbit/s, stage {stage}: Adam {adam:.3f} s and {adam_bytes / 1e6:.1f} MB a step, 1-bit Adam after "
                    f"its freeze {onebit:.3f} s and {onebit_bytes / 1e6:.2f} MB: {onebit / adam:.2f} of the time, 1/"
                    f"{least / onebit_bytes:.1f} of the bytes of bf16 gradients")
            if stage == 0:
                line += f", {bars.most('time of a step', onebit / adam, STEP_BAR)}"
                line += f", {bars.most('bytes of a step', onebit_bytes / least, BYTES_BAR)}"
                run = FROZEN * onebit_bytes + (1 - FROZEN) * first_bytes
                line += (f"; over a run 1/{adam_bytes / run:.1f} of Adam's, {bars.most('bytes of a run', run / adam_bytes, RUN_BAR)}"
                         f", and 1/{least / run:.1f} of bf16 gradients")
            print(line, flush=True)
    finally:
        for name in overlap.NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False)


def loss(bars, steps):
    def trained(optimizer):
        def change(config):
            config["optimizer"]["type"] = optimizer
            config["optimizer"]["params"]["eps"] = EPS
            if optimizer == "OneBitAdam":
                config["optimizer"]["params"]["freeze_step"] = steps // 5
            config["zero_optimization"] = {"stage": 1}
        return heldout.mean_loss(optimizer, steps, change)

    off = -trained("AdamW") + trained("OneBitAdam")
    print(f"1-bit Adam, freeze_step at 20 %: {off:+.4f}, {bars.most('held-out loss above that of Adam', off, LOSS_BAR)}")


def main(bars):
    parts = {"wire": (wire, 10), "loss": (loss, 1350)}
    words = sys.argv[1:]
    named = words.pop(0) if words and words[0] in parts else "wire"
    part, steps = parts[named]
    part(bars, int(words[0]) if words else steps)


if __name__ == "__main__":
    verdict.run(main)
