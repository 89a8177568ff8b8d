"""Compares the memory of ZeRO-3 at several world sizes with the plan: ./run bench memory [LAYERS] [WORLDS] [STEPS].

The model is a GPT of width 1,024 in bf16 with AdamW. Masters and moments of 29 layers take 4.1 GiB. Micro-batches have 1 x 16
bytes, so that everything else is small. Each digit of WORLDS (1248) is a world size, which trains with one thread a rank
under `libds launch`. Every 20 ms, the program reads RssAnon + RssShmem of every rank and, for the sum over ranks, Pss_Anon +
Pss_Shmem, which counts shared memory once. Bars: each rank takes at most the memory of its plan (device and host, without the
overhead that only a running engine knows) and 64 MiB, and the sum over ranks is at most 1.15 times the sum of the first world
size.
"""
import json
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


def run(world, layers, steps):
    """Returns the peak resident bytes and the planned bytes by rank, and the peak of the sum over ranks."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w", encoding="ascii") as file:
            file.writelines(f"line {i} of a text that is long enough\n" for i in range(20000))
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump(config(layers, steps, folder), file)
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


def main(bars):
    layers, worlds, steps = (sys.argv[1:] + ["29", "1248", "2"][len(sys.argv) - 1:])[:3]
    alone = None
    for world in map(int, worlds):
        peaks, plans, total = run(world, int(layers), int(steps))
        alone = alone or total
        judge(bars, world, peaks, plans, total, alone)


if __name__ == "__main__":
    verdict.run(main)
