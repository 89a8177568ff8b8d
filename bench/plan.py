"""Measures the time of the compiler and of the executor: ./run bench plan. Bars: 0.5 s to compile a step of about 10,000
instructions and the other programs of an engine, and 2 us an instruction, without transfers and with empty transfers on the
file lanes."""
import os
import re
import subprocess

import verdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINES = [("compile", r"^compile: .* in ([\d.]+) s", "s", 0.5),
         ("executor", r"^executor: ([\d.]+) us .*no files\)", "us", 2),
         ("executor with empty transfers", r"^executor: ([\d.]+) us .*empty\)", "us", 2)]


def judge(bars, text):
    for what, line, unit, bar in LINES:
        value = float(re.search(line, text, re.MULTILINE).group(1))
        print(f"{what}: {value:.3f} {unit} ({bars.most(what, value, bar)} {unit})")


def main(bars):
    text = subprocess.run([os.path.join(ROOT, "build", "bin", "bench_plan")], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    print(text, end="", flush=True)
    judge(bars, text)


if __name__ == "__main__":
    verdict.run(main)
