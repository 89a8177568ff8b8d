#!/usr/bin/env python3
"""Measures the cost of building: processor seconds of each compile and link, without the compiler cache.

usage: compile_cost.py PRESET [TARGET...]     builds from scratch into build/cost/PRESET and prints a table
       compile_cost.py --table PRESET         prints the table of the last build again

Processor seconds (user and system) hardly change when other work shares the cores, as wall time does.
"""
import collections
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def launch(log, command):
    """Runs in place of the compiler: runs it and appends the cost to `log`."""
    status = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = command[command.index("-o") + 1] if "-o" in command else " ".join(command[-1:])
    line = {"out": out, "link": "-c" not in command, "seconds": used.ru_utime + used.ru_stime, "mib": used.ru_maxrss // 1024}
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return status


def group(entry):
    """Returns the row of the table for an object or program."""
    if entry["link"]:
        return "link"
    parts = [part for part in pathlib.PurePath(entry["out"]).parts if part != "CMakeFiles" and not part.endswith(".dir")]
    if "unity" in parts:  # generated/unity/src/core_base_0.cpp.o belongs to src/core/base
        top, batch = parts[parts.index("unity") + 1 :]
        parts = [top, *batch.split("_")]
    return "/".join(parts[:3] if parts[:2] == ["src", "kernels"] else parts[:2])


def table(tree):
    entries = [json.loads(line) for line in (tree / "cost.log").read_text(encoding="utf-8").splitlines()]
    groups = collections.defaultdict(list)
    for entry in entries:
        groups[group(entry)].append(entry["seconds"])
    print("| part | outputs | CPU seconds |\n| --- | --- | --- |")
    for name, seconds in sorted(groups.items(), key=lambda item: -sum(item[1])):
        print(f"| {name} | {len(seconds)} | {sum(seconds):.0f} |")
    total = sum(entry["seconds"] for entry in entries)
    print(f"| all | {len(entries)} | {total:.0f} = {total / 60:.1f} min, {total / 120:.1f} min on 2 cores |")
    print("\nThe most expensive:")
    for entry in sorted(entries, key=lambda entry: -entry["seconds"])[:25]:
        print(f"{entry['seconds']:7.1f} s {entry['mib']:6} MiB  {entry['out']}")


def main(arguments):
    if arguments[0] == "--launch":
        return launch(arguments[1], arguments[2:])
    if arguments[0] == "--table":
        table(ROOT / "build" / "cost" / arguments[1])
        return 0
    preset, targets = arguments[0], arguments[1:]
    tree = ROOT / "build" / "cost" / preset
    shutil.rmtree(tree, ignore_errors=True)
    launcher = f"{sys.executable};{os.path.abspath(__file__)};--launch;{tree / 'cost.log'}"
    names = [f"-DCMAKE_{tool}_LAUNCHER={launcher}" for tool in ("C_COMPILER", "CXX_COMPILER", "C_LINKER", "CXX_LINKER")]
    subprocess.run(["cmake", "--preset", preset, "-B", str(tree), *names], cwd=ROOT, check=True)
    (tree / "cost.log").write_text("", encoding="utf-8")  # without the attempts of configuring
    start = time.monotonic()
    status = subprocess.run(["ninja", "-C", str(tree), f"-j{os.cpu_count()}", *targets], check=False).returncode
    print(f"{time.monotonic() - start:.0f} s wall")
    table(tree)
    return status


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
