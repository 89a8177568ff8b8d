"""Compares durable saves and cold loads with torch.save, safetensors and fio:
./run bench checkpoint [ROUNDS] [MILLIONS] [STEPS].

In each round, libds, torch and safetensors take turns with the state of a model in the shapes of GPT-2 (masters and both
moments of MILLIONS parameters, f32), and fio writes and reads the same bytes in blocks of 4 MiB. A save counts until the data
is on the disk (fsync, or fdatasync). Before a load, the files are removed from the page cache. libds loads into a new engine,
as a resume does, and, without a bar, into an engine that has changed, which has to check all hashes before it changes again.
fio reads and writes once through the page cache and once past it (O_DIRECT); the faster one counts. The best of the rounds
counts. If fio is missing, root installs it by apt-get; without it, a loop of this program that reads or writes the same
blocks takes its place.
Bars: at least 0.85 of fio, and no slower than the faster of torch and safetensors. Then examples/train.json runs STEPS steps,
three times in turns with and without an asynchronous save every 50 steps. Bar: the saves cost at most 3 % of the tokens per
second. STEPS 0 leaves out this part.
"""
import csv
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import verdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCK = 4 << 20


def sync(path):
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def files_of(path):
    if os.path.isfile(path):
        return [path]
    return [os.path.join(path, name) for name in os.listdir(path)]


def forget(path):
    """Removes a file, or the files of a folder, from the page cache, after it has written them to the disk."""
    for name in files_of(path):
        handle = os.open(name, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def serve_rival():
    """Speaks the protocol of bench_checkpoint for torch ("torch save FILE") and safetensors."""
    import safetensors.torch
    import torch
    torch.set_num_threads(2)
    numel, state = int(sys.argv[2]) // 4, {}
    rows = numel // 768 // 12
    for i in range(12):
        state[f"t{i}"] = torch.randn(rows + (numel // 768 - 12 * rows if i == 0 else 0), 768)
    print(sum(t.numel() for t in state.values()) * 4, "ready", flush=True)
    for line in sys.stdin:
        kind, verb, path = line.split()
        begin = time.perf_counter()
        if verb == "save":
            torch.save(state, path) if kind == "torch" else safetensors.torch.save_file(state, path)
            sync(path)
        else:
            loaded = torch.load(path, weights_only=True) if kind == "torch" else safetensors.torch.load_file(path)
            total = sum(float(t[-1, -1]) for t in loaded.values())  # safetensors maps: touch each tensor's pages
            if kind != "torch":
                loaded = {name: t.clone() for name, t in loaded.items()}
            assert total == total
            del loaded
        print(f"{time.perf_counter() - begin:.6f} {path}", flush=True)


class Side:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.bytes = int(self.answer()[0])

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[0]} ended with {self.process.wait()}")
        return line.split()

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        seconds, path = self.answer()
        return float(seconds), path


def have_fio():
    if shutil.which("fio"):
        return True
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "fio"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return shutil.which("fio") is not None


def plain_io(path, count, reads, direct):
    """Replaces fio if it cannot be installed: the same bytes, blocks and sync. Returns bytes per second."""
    import mmap
    block = mmap.mmap(-1, BLOCK)
    block.write(os.urandom(BLOCK))
    flags = (os.O_RDONLY if reads else os.O_WRONLY | os.O_CREAT) | (os.O_DIRECT if direct else 0)
    begin = time.perf_counter()
    handle = os.open(path, flags)
    for at in range(0, count, BLOCK):
        os.preadv(handle, [block], at) if reads else os.pwritev(handle, [block], at)
    if not reads:
        os.fdatasync(handle)
    os.close(handle)
    return count / (time.perf_counter() - begin)


def fio(path, count, reads, direct):
    command = ["fio", "--name=checkpoint", f"--filename={path}", f"--rw={'read' if reads else 'write'}", "--bs=4M",
               f"--size={count}", "--ioengine=psync", f"--direct={int(direct)}", "--end_fsync=1", "--fallocate=none",
               "--invalidate=1", "--output-format=json"]
    job = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["jobs"][0]
    return job["read" if reads else "write"]["bw_bytes"] if reads else count / (job["job_runtime"] * 1e-3)


def measure(rounds, millions, folder):
    """Returns the best bytes per second of saves and of loads, by side."""
    ours = Side(["build/bin/bench_checkpoint", str(millions)])
    rivals = Side([sys.executable, os.path.abspath(__file__), "--rival", str(ours.bytes)])
    disk = fio if have_fio() else plain_io
    name = "fio" if disk is fio else "own program"
    count = ours.bytes // BLOCK * BLOCK
    saves, loads = {}, {}

    def better(rates, side, rate):
        rates[side] = max(rates.get(side, 0.0), rate)

    for _ in range(rounds):
        seconds, path = ours.ask(f"save {folder}/libds")
        better(saves, "libds", ours.bytes / seconds)
        forget(path)
        better(loads, "libds", ours.bytes / ours.ask(f"load {path}")[0])
        forget(path)
        better(loads, "libds, not new", ours.bytes / ours.ask(f"reload {path}")[0])
        shutil.rmtree(path)
        for kind in ("torch", "safetensors"):
            file = f"{folder}/{kind}"
            better(saves, kind, rivals.bytes / rivals.ask(f"{kind} save {file}")[0])
            forget(file)
            better(loads, kind, rivals.bytes / rivals.ask(f"{kind} load {file}")[0])
            os.remove(file)
        for direct in (False, True):
            file = f"{folder}/disk"
            if os.path.exists(file):
                os.remove(file)
            better(saves, f"{name}{' direct' if direct else ''}", disk(file, count, False, direct))
            forget(file)
            better(loads, f"{name}{' direct' if direct else ''}", disk(file, count, True, direct))
            os.remove(file)
    for side in (ours, rivals):
        side.process.stdin.close()
        side.process.wait()
    return ours.bytes, saves, loads


def judge(bars, count, saves, loads):
    print(f"{count / 1e9:.2f} GB of state; GB/s, best of the rounds")
    print(f"{'':24}{'save':>8}{'cold load':>12}")
    for side in loads:
        saved = f"{saves[side] / 1e9:8.2f}" if side in saves else " " * 8
        print(f"{side:24}{saved}{loads[side] / 1e9:12.2f}")
    for what, rates in (("save", saves), ("cold load", loads)):
        disk = max(rate for side, rate in rates.items() if side.startswith(("fio", "own program")))
        rival = max(rates["torch"], rates["safetensors"])
        print(f"{what}: {rates['libds'] / disk:.2f} of fio ({bars.least(f'{what} beside fio', rates['libds'] / disk, 0.85)}), "
              f"{rates['libds'] / rival:.2f} of the faster rival "
              f"({bars.least(f'{what} beside torch and safetensors', rates['libds'] / rival, 1)})")


def tokens_per_second(folder, steps, saves):
    """Returns the tokens per second of examples/train.json. The time includes the waits of steps for saves."""
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    patch = {"run": {"steps": steps, "save_every": 50 if saves else 0, "async_save": saves, "eval_every": 0, "sample_every": 0,
                     "sample_tokens": 0, "bars": [], "dir": run}}
    with open(os.path.join(ROOT, "examples", "train.json")) as file:
        config = json.loads(re.sub(r"//.*", "", file.read()))
    config["run"] = {**config.get("run", {}), **patch["run"]}
    config.setdefault("data", {})["paths"] = [os.path.dirname(os.__file__)]
    path = os.path.join(folder, "train.json")
    with open(path, "w") as file:
        json.dump(config, file)
    subprocess.run(["build/bin/libds", "launch", "-n", "2", "build/bin/libds", "train", "--config", path, "--quiet"], cwd=ROOT,
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "metrics.csv")) as file:
        rows = [row for row in csv.DictReader(file) if row["seconds"] and int(row["step"]) > 10]
    tokens = sum(float(row["tokens_per_second"]) * float(row["seconds"]) for row in rows)
    return tokens / sum(float(row["seconds"]) + float(row["save_seconds"] or 0) for row in rows)


def judge_steps(bars, without, with_saves):
    cost = 1 - statistics.median(with_saves) / statistics.median(without)
    print(f"examples/train.json: {statistics.median(without):.0f} tokens/s, with an asynchronous save every 50 steps "
          f"{statistics.median(with_saves):.0f}: {100 * cost:.1f} % "
          f"({bars.most('cost of asynchronous saves in %', 100 * cost, 3)})")


def main(bars):
    rounds, millions, steps = (int(word) for word in (sys.argv[1:] + ["5", "124", "210"][len(sys.argv) - 1:])[:3])
    with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "build")) as folder:
        judge(bars, *measure(rounds, millions, folder))
        if steps == 0:
            return bars.left_out("asynchronous saves")
        without, with_saves = [], []
        for _ in range(3):
            without.append(tokens_per_second(folder, steps, False))
            with_saves.append(tokens_per_second(folder, steps, True))
        judge_steps(bars, without, with_saves)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rival"]:
        serve_rival()
    else:
        verdict.run(main)
