"""Continues a random GPT-2 124M token by token: ./run bench decode [THREADS=2] [TOKENS=64] [bf16|f32]. Bar: weights are read
at no less than half the rate of a STREAM triad that the same threads run in the same process."""
import os
import re
import subprocess
import sys

import verdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def judge(bars, text):
    share = float(re.search(r"^share +([\d.]+) %", text, re.MULTILINE).group(1))
    print(f"weights are read at {share:.1f} % of STREAM ({bars.least('share of STREAM in %', share, 50)} %)")


def main(bars):
    command = [os.path.join(ROOT, "build", "bin", "bench_decode")] + sys.argv[1:]
    text = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    print(text, end="", flush=True)
    judge(bars, text)


if __name__ == "__main__":
    verdict.run(main)
