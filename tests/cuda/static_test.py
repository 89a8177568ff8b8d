#!/usr/bin/env python3
"""Checks the compiler's output for the device's kernels from the build of the plugin. Runs no kernel.

usage: static_test.py KEPT SOURCES
For each file of SOURCES, KEPT has NAME.log, the assembler's report on its kernels for sm_80 and sm_90, and NAME.compute_90.ptx.
No entry may spill, have a stack or add to floats atomically. Exact files (EXACT) must have no fused or approximate arithmetic in
their PTX; SASS is not checked, because division and roots are expanded with fused multiply-adds there. Entries in WIDE must
access 16 bytes at a time somewhere, no entry may use more than MOST_SHARED bytes of shared memory, and entries in MOST_REGISTERS
must not use more registers. The exit code is 77 (skipped) if KEPT is empty, because the plugin was not built here.
"""
import pathlib
import re
import sys

ARCHS = ("sm_80", "sm_90")
EXACT = {"elementwise", "lamb", "quantize", "step", "table", "update"}
WIDE = {"elementwise": ["add", "cast", "accumulate", "dropout", "copy_bytes"], "update": ["adamw", "adamw_any", "adamw_codes", "sgd", "lion"],
        "activation": ["activate", "activate_dx", "glu"], "step": ["tree_sum"], "table": ["lookup"]}
INEXACT = re.compile(r"\b(fma|mad)\.r[nzmp]\S*|\S*\.approx\S*|\S*\.ftz\S*")
ATOMIC = re.compile(r"\b(atom|red)\.\S*\.(f16|f16x2|bf16|bf16x2|f32|f64)\b")
MOST_SHARED = 163 * 1024
# The most registers of a thread with which the blocks that an entry relies on fit into a multiprocessor's 65,536 registers: three
# blocks of 128 threads, or six of 256.
MOST_REGISTERS = {"attention_dkv_bf16_64": 168, "attention_dkv_f16_64": 168, "adamw": 40, "sgd": 40, "lion": 40, "adagrad": 40}


def resources(name, log):
    """Returns complaints about ptxas's report on each entry, and the entries."""
    seen = {arch: set() for arch in ARCHS}
    found = []
    for entry, arch, text in re.findall(r"Compiling entry function '(\w+)' for '(\w+)'\n(.*?Used \d+ registers.*?)\n", log, re.S):
        seen.setdefault(arch, set()).add(entry)
        numbers = [int(n) for n in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", text)]
        if len(numbers) != 3 or any(numbers):
            found.append(f"{name} {arch}: {entry} has a stack or spills: {text.strip()}")
        registers = int(re.search(r"Used (\d+) registers", text)[1])
        if registers > MOST_REGISTERS.get(entry, registers):
            found.append(f"{name} {arch}: {entry} has {registers} registers, {MOST_REGISTERS[entry]} at most leave room for its blocks")
        shared = re.search(r"(\d+) bytes smem", text)
        if shared and int(shared[1]) > MOST_SHARED:
            found.append(f"{name} {arch}: {entry} has {shared[1]} bytes of shared memory")
    return found, seen


def entries(ptx):
    """Yields the name and body of every entry of a PTX text."""
    for part in re.split(r"\.visible \.entry ", ptx)[1:]:
        yield re.match(r"\w+", part)[0], part


def text(name, bodies, exact):
    """Yields complaints about the PTX of a file's entries."""
    for entry, body in bodies.items():
        for found in ATOMIC.finditer(body):
            yield f"{name}: {entry} adds floats in any order: {found[0]}"
        if exact:
            for found in INEXACT.finditer(body):
                yield f"{name}: {entry} must have the CPU's bits and has {found[0]}"
    for entry in WIDE.get(name, []):
        if not re.search(r"(ld|st)\.global\S*\.v4\.(u32|f32|b32)|ld\.global\S*\.v2\.(u64|b64)", bodies.get(entry, "")):
            yield f"{name}: {entry} has no 16-byte access"


def complaints(kept, name, exact):
    log, ptx = kept / f"{name}.log", kept / f"{name}.compute_90.ptx"
    missing = [str(path) for path in (log, ptx) if not path.is_file()]
    if missing:
        return [f"{name}: the build has left no {' and no '.join(missing)}"]
    bodies = dict(entries(ptx.read_text()))
    found, seen = resources(name, log.read_text())
    for arch in ARCHS:
        if not bodies or seen[arch] != set(bodies):
            found.append(f"{name}: {arch} has the entries {sorted(seen[arch])}, PTX {sorted(bodies)}")
    return found + list(text(name, bodies, exact))


def main(arguments):
    if not arguments[0]:
        print("skipped: the plugin is not built here")
        return 77
    kept, sources = pathlib.Path(arguments[0]), pathlib.Path(arguments[1])
    names = sorted(source.stem for source in sources.glob("*.cu"))
    found = [f"{name}: no such file" for name in sorted({*EXACT, *WIDE} - {*names})]
    for name in names:
        found += complaints(kept, name, name in EXACT)
    entries_of_all = set(re.findall(r"Compiling entry function '(\w+)'", "".join(log.read_text() for log in kept.glob("*.log"))))
    found += [f"{entry}: no such entry" for entry in sorted({*MOST_REGISTERS} - entries_of_all)]
    print(f"{len(names)} files")
    for line in found:
        print(line)
    return 1 if found or not names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
