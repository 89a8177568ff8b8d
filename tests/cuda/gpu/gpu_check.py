#!/usr/bin/env python3
"""Runs the parts of `./run gpu-check` and `./run cuda-proof` one after another, and prints each line of results immediately.

usage: gpu_check.py ROOT PARTS OUT [--fake] [--small]
ROOT is a folder with bin/gpu_check, bin/libds and lib/libds_cuda.so: the build folder, or one that `./run gpu-check carry` created.
PARTS are letters of A, B, C and D. OUT/gpu-check.jsonl gets a line for each check. --fake uses the driver in software of ROOT/lib,
refuses part D, and uses small sizes in part C, because times mean nothing there. --small uses small sizes, as CI does. The exit code
is 0 if all checks that ran have passed.
"""
import argparse
import glob
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[3]
# The time limit of a part on a GPU, in seconds.
LIMIT = 400
# The number of steps of the main job.
STEPS = 20
SANITIZED = ["add", "adamw", "layer_norm", "attention", "attention_dx", "cross_entropy", "embedding_dw", "clip"]


def library(folder, pattern):
    """Returns the path of a library in this Python's packages `nvidia`, or "" if they lack it."""
    found = importlib.util.find_spec("nvidia")
    for place in (found.submodule_search_locations if found else []) or []:
        files = sorted(glob.glob(os.path.join(place, folder, "lib", pattern)))
        if files:
            return files[0]
    return ""


class Part:
    def __init__(self, name, args, environment):
        self.name, self.args, self.environment = name, args, environment
        self.begin, self.failed = time.monotonic(), 0
        self.file = os.path.join(args.out, "gpu-check.jsonl")
        self.limit = 7200 if args.fake else LIMIT

    def left(self):
        return max(1.0, self.limit - (time.monotonic() - self.begin))

    def line(self, group, check, status, compares, seconds, **rest):
        record = {"part": self.name, "group": group, "check": check, "status": status, "compares": compares,
                  "seconds": round(seconds, 3), **rest}
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.failed += status in ("fail", "error")
        print(status, self.name, group, check, f"{seconds:.1f} s", rest.get("text", "") if status != "pass" else "", flush=True)

    def run(self, command, seconds=None):
        """Runs a command within the remaining time. Returns its exit code, or "took too long", and its output."""
        try:
            done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=min(seconds or self.limit, self.left()), text=True, errors="replace", check=False)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            # The output is in bytes even if text is set.
            return "took too long", (late.output or b"").decode(errors="replace")

    def program(self, name):
        return str(self.args.root / "bin" / name)

    def checks(self, *options):
        small = ["--small"] if self.args.small or (self.args.fake and self.name == "C") else []
        limits = ["--limit", str(int(self.left())), "--check-limit", "1200" if self.args.fake else "90"]
        command = [self.program("gpu_check"), self.name, self.file, *limits, *small, *options]
        self.failed += subprocess.run(command, env=self.environment, check=False).returncode != 0


def sanitize(part):
    tool = shutil.which("compute-sanitizer")
    if not tool or part.args.fake:
        return part.line("sanitizer", "compute-sanitizer", "not run", "", 0, text="it is not on PATH")
    for kind in ("memcheck", "racecheck", "initcheck"):
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            # The tool looks for each entry in one module after another and does not find it in most, so API errors are not
            # reported.
            code, output = part.run([tool, "--tool", kind, "--error-exitcode", "9", "--report-api-errors", "no", part.program("gpu_check"), "A",
                                     os.path.join(folder, "lines"), "--here", "--small",
                                     *[word for op in SANITIZED for word in ("--only", op)]], 60)
        status = "not run" if code == "took too long" else "pass" if code == 0 else "fail"
        part.line("sanitizer", kind, status, "kernels with the rules of memory",
                  time.monotonic() - begin, cases=len(SANITIZED), text="" if code == 0 else f"{code}: {output[-600:]}")


def verify(part):
    for folder in sorted((SOURCE / "tests/data/models").iterdir()):
        if not (folder / "golden.json").exists():
            continue
        begin = time.monotonic()
        kinds = ["--kinds", "grad,adamw"] if part.args.small else []
        code, output = part.run([part.program("libds"), "verify", str(folder), "--dtype", "f32", "--device", "cuda:0", "--json",
                                 *kinds], 60 if not part.args.fake else None)
        seconds, text, findings = time.monotonic() - begin, "", []
        try:
            findings = json.loads(output[output.index("{"):])["findings"]
        except (ValueError, KeyError):
            text = output.strip()[-600:]
        shares = [f["error"] / f["tolerance"] for f in findings if f.get("tolerance")]
        status = "pass" if code == 0 and shares else "fail"
        part.line("verify", folder.name, status, "recorded numbers of the reference", seconds, cases=len(findings),
                  worst=max(shares, default=None), text=text or ("" if code == 0 else str(code)))


def losses_of(part, config, text, folder, work):
    file = work / f"{folder}.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    code, output = part.run([part.program("libds"), "train", "--config", str(file), "--data", text, "--dir", str(work / folder)])
    losses = [float(x) for x in re.findall(r"loss +([0-9.]+)", output)]
    return losses if code == 0 and losses else f"{code}: {output[-400:]}"


def main_job(part):
    begin = time.monotonic()
    text = str(SOURCE / "docs/guides")
    source = (SOURCE / "examples/train.json").read_text(encoding="utf-8")
    config = json.loads(re.sub(r"(^|\s)//.*", "", source))
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        config["zero_optimization"]["offload_optimizer"]["nvme_path"] = folder
        config["steps_per_print"] = 1
        config["model"]["vocab"] = 512
        config["run"] = {"sequence": 256, "steps": STEPS, "seed": 1, "sample_tokens": 0}
        if part.args.small or part.args.fake:
            config["run"].update(steps=2, sequence=32)
            config["train_micro_batch_size_per_gpu"] = 1
        here = losses_of(part, {**config, "device": "cpu"}, text, "cpu", work)
        there = losses_of(part, {**config, "device": "cuda:0"}, text, "device", work)
    name, compares = "examples/train.json", "losses with the CPU's, within 0.05"
    if isinstance(here, str) or isinstance(there, str):
        error = here if isinstance(here, str) else there
        return part.line("main job", name, "error", compares, time.monotonic() - begin, text=error)
    worst = max(abs(a - b) for a, b in zip(here, there)) / 0.05
    same = len(here) == len(there)
    part.line("main job", name, "pass" if worst <= 1 and same else "fail", compares, time.monotonic() - begin,
              cases=len(there), worst=worst, text=f"{len(there)} losses, from {there[0]} to {there[-1]}; CPU {here[-1]}")


def step_of_xl(part, *options):
    """Returns the seconds of a step of GPT-2 XL with 65,536 tokens, or a text that describes the failure."""
    code, output = part.run([part.program("bench_train_step"), "gpt2-xl", str(min(16, os.cpu_count() or 1)), "3", "--device", "cuda:0",
                             "--samples", "16", "--seq", "1024", "--micro-steps", "4", *options])
    found = re.search(r"best (\d+) tok/s", output)
    return 65536 / int(found.group(1)) if code == 0 and found else f"{code}: {output.strip()[-400:]}"


def offload(part):
    """Compares a step whose states are stored and updated in host memory with a step whose states are on the device, by time."""
    begin = time.monotonic()
    without, with_states = step_of_xl(part), step_of_xl(part, "--offload")
    name, compares = "GPT-2 XL, 65,536 tokens, states on the host", "a step's time with that of none on the host, at most 1.3"
    if isinstance(without, str) or isinstance(with_states, str):
        error = without if isinstance(without, str) else with_states
        return part.line("speed", name, "error", compares, time.monotonic() - begin, text=error)
    ratio = with_states / without
    part.line("speed", name, "pass" if ratio <= 1.3 else "fail", compares, time.monotonic() - begin, cases=1, worst=ratio / 1.3,
              figures={"step ms without": without * 1e3, "step ms with": with_states * 1e3, "ratio": ratio})


def rivals(part, model):
    """Compares libds with compiled torch, running both alternately (bench/train_step.py)."""
    begin = time.monotonic()
    name, compares = f"{model} beside torch", "tokens/s with those of the faster compiled mode, at least 1"
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")):
        return part.line("speed", name, "not run", compares, 0, text="this Python has no torch with transformers")
    code, output = part.run([sys.executable, str(SOURCE / "bench/train_step.py"), "--device", "cuda:0", "3", model, "10"])
    modes = re.findall(r"^(\S+compile) +libds +(\d+) +torch +(\d+) +ratio ([\d.]+)", output, re.M)
    if len(modes) < 2:
        return part.line("speed", name, "error", compares, time.monotonic() - begin, text=f"{code}: {output.strip()[-400:]}")
    figures = {}
    for mode, ours, theirs, _ in modes:
        figures |= {"libds tokens/s": int(ours), f"torch {mode} tokens/s": int(theirs)}
    least = min(float(ratio) for *_, ratio in modes)
    figures["ratio"] = least
    part.line("speed", name, "pass" if least >= 1 else "fail", compares, time.monotonic() - begin, cases=len(modes), worst=1 / least,
              figures=figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("parts")
    parser.add_argument("out")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    if args.fake and "D" in args.parts:
        sys.exit("part D is a comparison on a GPU; on the driver in software there are A, B and C")
    args.root = args.root.resolve()
    os.makedirs(args.out, exist_ok=True)
    environment = dict(os.environ)
    # bench/train_step.py reads this variable.
    environment["DS_BUILD"] = str(args.root)
    environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(args.root / "lib"), environment.get("LD_LIBRARY_PATH")]))
    if args.fake:
        environment["DS_CUDA_DRIVER"] = str(args.root / "lib/libfake_cuda.so")
        environment["DS_CUDA_BLAS"] = str(args.root / "lib/libfake_blas.so")
        # The checks of memory need 3 GiB.
        environment["DS_FAKE_CUDA_MEMORY"] = str(4 << 30)
    elif not environment.get("DS_CUDA_BLAS"):
        environment["DS_CUDA_BLAS"] = library("cu13", "libcublasLt.so.13") or library("cublas", "libcublasLt.so.13")
    env = subprocess.run([str(args.root / "bin/libds"), "env"], env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout
    cuda = next((line for line in env.splitlines() if line.startswith("CUDA")), "CUDA  libds env says nothing of it")
    if "cuda:0" not in cuda:
        sys.exit(f"gpu-check needs an NVIDIA GPU from sm_80 on, a driver of version 13.0 or later and libds_cuda.so: {cuda[4:].strip()}")
    print(cuda, flush=True)
    failed = 0
    for name in args.parts:
        part = Part(name, args, environment)
        if name != "D":
            part.checks()
        if name == "A":
            sanitize(part)
        if name == "B":
            verify(part)
            main_job(part)
        if name == "C" and not args.fake:
            rivals(part, "gpt2")
            offload(part)
        if name == "D":
            # torch needs minutes to compile this model in either mode.
            rivals(part, "gpt2-xl")
        failed += part.failed
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
