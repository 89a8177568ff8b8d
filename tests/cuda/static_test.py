#!/usr/bin/env python3
"""Compiles the device's kernels as the plugin does and reads what the compiler says of them; runs nothing.

usage: static_test.py NVCC ROOT [--seconds]
Warnings are errors, for sm_80, sm_90 and the PTX of compute_90. No entry spills or has a stack; none adds to floats
atomically; the exact files (EXACT) have no fused or approximate arithmetic in their PTX (never in SASS: division and roots
are expanded with fused multiply-adds there); hot loops (WIDE) load 16 bytes at a time. Exit 77: no compiler, skipped.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

FLAGS = ["-std=c++20", "-O3", "--fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false", "--expt-relaxed-constexpr",
         "-Werror", "all-warnings"]
EXACT = {"elementwise", "lamb", "quantize", "step", "table", "update"}
WIDE = {"elementwise": ["add", "cast", "accumulate", "dropout", "copy_bytes"], "update": ["adamw", "adamw_codes", "sgd", "lion"],
        "activation": ["activate", "activate_dx", "glu"], "step": ["tree_sum"], "table": ["lookup"]}
INEXACT = re.compile(r"\b(fma|mad)\.r[nzmp]\S*|\S*\.approx\S*|\S*\.ftz\S*")
ATOMIC = re.compile(r"\b(atom|red)\.\S*\.(f16|f16x2|bf16|bf16x2|f32|f64)\b")
MOST_SHARED = 163 * 1024


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def resources(name, log):
    """Complaints about what ptxas says of each entry."""
    for entry, text in re.findall(r"Function properties for (\w+)\n(.*?Used \d+ registers.*?)\n", log, re.S):
        numbers = [int(n) for n in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", text)]
        if len(numbers) != 3 or any(numbers):
            yield f"{name}: {entry} has a stack or spills: {text.strip()}"
        shared = re.search(r"(\d+) bytes smem", text)
        if shared and int(shared[1]) > MOST_SHARED:
            yield f"{name}: {entry} has {shared[1]} bytes of shared memory"


def entries(ptx):
    """Name and body of every entry of a PTX text."""
    for part in re.split(r"\.visible \.entry ", ptx)[1:]:
        yield re.match(r"\w+", part)[0], part


def text(name, ptx):
    """Complaints about the PTX of a file."""
    bodies = dict(entries(ptx))
    if not bodies:
        yield f"{name}: no entry"
    for entry, body in bodies.items():
        for found in ATOMIC.finditer(body):
            yield f"{name}: {entry} adds floats in any order: {found[0]}"
        if name in EXACT:
            for found in INEXACT.finditer(body):
                yield f"{name}: {entry} must have the CPU's bits and has {found[0]}"
    for entry in WIDE.get(name, []):
        if not re.search(r"(ld|st)\.global\S*\.v4\.(u32|f32|b32)|ld\.global\S*\.v2\.(u64|b64)", bodies.get(entry, "")):
            yield f"{name}: {entry} has no 16-byte access"


def compile_one(nvcc, root, source, folder, arch):
    """(file, arch, seconds, complaints)"""
    begin = time.monotonic()
    out = pathlib.Path(folder) / f"{source.stem}.{arch}"
    kind = ["-ptx"] if arch.startswith("compute") else ["-cubin", "-Xptxas", "-v"]
    code, log = run([nvcc, *FLAGS, f"-I{root}/src", f"-I{root}/include", f"-arch={arch}", *kind, "-o", str(out), str(source)])
    if code:
        return source.stem, arch, 0, [f"{source.stem} for {arch} does not compile:\n{log}"]
    found = text(source.stem, out.read_text()) if kind == ["-ptx"] else resources(f"{source.stem} {arch}", log)
    return source.stem, arch, time.monotonic() - begin, list(found)


def main(arguments):
    nvcc, root = arguments[0], pathlib.Path(arguments[1])
    if not os.path.exists(nvcc):
        print("skipped: no nvcc")
        return 77
    sources = sorted((root / "src/kernels/cuda").glob("*.cu"))
    archs = ["sm_80", "sm_90", "compute_90"]
    seconds, complaints = dict.fromkeys(archs, 0.0), []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(compile_one, nvcc, root, source, folder, arch) for source in sources for arch in archs]
        for job in jobs:
            name, arch, took, found = job.result()
            seconds[arch] += took
            complaints += found
    print("seconds of compiling: " + ", ".join(f"{arch} {took:.1f}" for arch, took in seconds.items()))
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
