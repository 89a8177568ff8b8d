"""Compares the memory of training with the plan:
  ./run bench memory [LAYERS] [WORLDS] [STEPS]    ZeRO-3 at several world sizes
  ./run bench memory adapters [STEPS]             adapters on GPT-2 XL, kept and recomputed

In the first form, the model is a GPT of width 1,024 in bf16 with AdamW. Masters and moments of 29 layers take 4.1 GiB. Micro-batches have 1 x 16
bytes, so that everything else is small. Each digit of WORLDS (1248) is a world size, which trains with one thread a rank
under `libds launch`. Every 20 ms, the program reads RssAnon + RssShmem of every rank and, for the sum over ranks, Pss_Anon +
Pss_Shmem, which counts shared memory once. Bars: each rank takes at most the memory of its plan (device and host, without the
overhead that only a running engine knows) and 64 MiB, and the sum over ranks is at most 1.15 times the sum of the first world
size.

In the second form, adapters of rank 16 on all linear layers of GPT-2 XL (1.5B) are trained on 1 x 512 tokens in bf16 by AdamW, on one rank
of two threads. Bars: a plan of at most 5 GiB, of at most 3.9 GiB if layers are computed again, and at most 64 MiB above the plan.
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

import verdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBDS = os.path.join(ROOT, "build", "bin", "libds")
SLACK_MIB = 64


def config(layers, steps, folder):
    return {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 10000,
                              "reduce_bucket_size": 4000000, "stage3_prefetch_bucket_size": 4000000,
                              "stage3_max_live_parameters": 30000000},
        "model": {"family": "gpt", "layers": layers, "hidden": 1024, "heads": 16, "vocab": 256, "positions": 16},
        "data": {"paths": [os.path.join(folder, "text")]},
        "run": {"dir": os.path.join(folder, "run"), "sequence": 16, "steps": steps, "eval_every": 0, "save_every": 0,
                "threads": 1, "sample_tokens": 0}}


def zeros_of_gpt2_xl(path):
    """Writes a file of safetensors in bf16 whose weights are 0 and take no room on the disk."""
    shapes = {"wte.weight": [50257, 1600], "wpe.weight": [1024, 1600], "ln_f.weight": [1600], "ln_f.bias": [1600]}
    for layer in range(48):
        for name, shape in {"ln_1": [1600], "ln_2": [1600], "attn.c_attn": [1600, 4800], "attn.c_proj": [1600, 1600],
                            "mlp.c_fc": [1600, 6400], "mlp.c_proj": [6400, 1600]}.items():
            shapes |= {f"h.{layer}.{name}.weight": shape, f"h.{layer}.{name}.bias": shape[-1:]}
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header["transformer." + name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def adapters_config(recompute, steps, folder):
    model = os.path.join(folder, "model")
    os.makedirs(model)
    with open(os.path.join(model, "config.json"), "w", encoding="ascii") as file:
        json.dump({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 1600, "n_layer": 48, "n_head": 25,
                   "n_positions": 1024, "vocab_size": 50257, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}, file)
    zeros_of_gpt2_xl(os.path.join(model, "model.safetensors"))
    return {
        "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "adapter": {"type": "lora", "r": 16, "lora_alpha": 32, "target_modules": "all-linear"}, "recompute": recompute,
        "model": {"folder": model}, "data": {"tokenizer": "bytes", "paths": [os.path.join(folder, "text")]},
        "run": {"dir": os.path.join(folder, "run"), "sequence": 512, "steps": steps, "eval_every": 0, "save_every": 0,
                "threads": 2, "sample_tokens": 0}}


def kib(pid, file, names):
    """Returns the sum of these lines of /proc/PID/FILE in bytes, or 0 if the process has ended."""
    try:
        with open(f"/proc/{pid}/{file}", encoding="ascii") as lines:
            return sum(1024 * int(n) for n in re.findall(rf"^(?:{names}):\s+(\d+) kB", lines.read(), re.MULTILINE))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def ranks_of(launcher):
    """Returns the pids of the launcher's children by rank."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            if parent != launcher:
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                rank = re.search(rb"(?:^|\0)RANK=(\d+)", file.read())
            if rank:
                found[int(rank.group(1))] = pid
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def planned(path, world, rank):
    """Returns the bytes of memory that `libds plan` states for a rank."""
    text = subprocess.run([LIBDS, "plan", "--config", path, "-n", str(world), "--rank", str(rank)], check=True,
                          capture_output=True, text=True).stdout
    return sum(int(size) for size in re.findall(r"^(?:device|host) +total +(\d+)", text, re.MULTILINE))


def run(world, config_in):
    """Returns the peak resident bytes and the planned bytes by rank, and the peak of the sum over ranks. config_in(FOLDER) returns the
    configuration."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w", encoding="ascii") as file:
            file.writelines(f"line {i} of a text that is long enough\n" for i in range(20000))
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump(config_in(folder), file)
        job = subprocess.Popen([LIBDS, "launch", "-n", str(world), LIBDS, "train", "--config", path, "--quiet"],
                               stdout=subprocess.DEVNULL)
        peaks, total, ranks = {}, 0, {}
        while job.poll() is None:
            ranks = ranks if len(ranks) == world else ranks_of(job.pid)
            for rank, pid in ranks.items():
                peaks[rank] = max(peaks.get(rank, 0), kib(pid, "status", "RssAnon|RssShmem"))
            total = max(total, sum(kib(pid, "smaps_rollup", "Pss_Anon|Pss_Shmem") for pid in ranks.values()))
            time.sleep(0.02)
        if job.returncode != 0:
            sys.exit(f"{world} ranks: the job ended with {job.returncode}")
        return peaks, [planned(path, world, rank) for rank in range(world)], total


def judge(bars, world, peaks, plans, total, alone):
    above = max(peaks[rank] - plans[rank] for rank in range(world)) / 2**20
    print(f"{world} ranks: plan {max(plans) / 2**20:.0f} MiB a rank, seen {max(peaks.values()) / 2**20:.0f}, at most "
          f"{above:+.0f} MiB to its plan ({bars.most(f'{world} ranks: MiB above the plan', above, SLACK_MIB)}); sum "
          f"{total / 2**20:.0f} MiB, {total / alone:.3f} x the first "
          f"({bars.most(f'{world} ranks: sum over that of the first', total / alone, 1.15)})", flush=True)


def judge_adapters(bars, recompute, peak, plan):
    most = 3.9 if recompute == "layers" else 5
    print(f"recompute {recompute}: plan {plan / 2**30:.2f} GiB ({bars.most(f'recompute {recompute}: GiB planned', plan / 2**30, most)}), "
          f"{(peak - plan) / 2**20:+.0f} MiB to it "
          f"({bars.most(f'recompute {recompute}: MiB above the plan', (peak - plan) / 2**20, SLACK_MIB)})", flush=True)


def main(bars):
    if sys.argv[1:2] == ["adapters"]:
        steps = int((sys.argv[2:] + ["2"])[0])
        for recompute in ("none", "layers"):
            peaks, plans, _ = run(1, lambda folder: adapters_config(recompute, steps, folder))
            judge_adapters(bars, recompute, peaks[0], plans[0])
        return
    layers, worlds, steps = (sys.argv[1:] + ["29", "1248", "2"][len(sys.argv) - 1:])[:3]
    alone = None
    for world in map(int, worlds):
        peaks, plans, total = run(world, lambda folder: config(int(layers), int(steps), folder))
        alone = alone or total
        judge(bars, world, peaks, plans, total, alone)


if __name__ == "__main__":
    verdict.run(main)
