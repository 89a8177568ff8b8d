"""Compares states on files (O_DIRECT) with states in memory, in turns: ./run bench tiers [ROUNDS] [SUB_GROUP_SIZE].

The program prints the tokens per second of a 7M GPT under ZeRO-3 on tier nvme, as a share of those on tier device, by the best
and by the median step. Bar: 0.8 by the best, if the host slots hold all states, which is so from a SUB_GROUP_SIZE of 1,000,000
on, the default.
"""
import os
import re
import subprocess
import sys

import verdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ALL_STATES = 1000000


def judge(bars, sub_group, best, median):
    """best, median: tokens per second by tier."""
    ratio = best["nvme"] / best["device"]
    bar = f" ({bars.least('nvme / device', ratio, 0.8)})" if sub_group >= ALL_STATES else ""
    print(f"nvme / device: best {ratio:.2f}{bar} ({best['nvme']:.0f} / {best['device']:.0f} tok/s), best median "
          f"{median['nvme'] / median['device']:.2f} ({median['nvme']:.0f} / {median['device']:.0f} tok/s)")


def main(bars):
    rounds, sub_group = (int(word) for word in (sys.argv[1:] + ["5", str(ALL_STATES)][len(sys.argv) - 1:])[:2])
    best, median = {"device": 0.0, "nvme": 0.0}, {"device": 0.0, "nvme": 0.0}
    for _ in range(rounds):
        for tier in best:
            text = subprocess.run(["build/bin/bench_train_small", "20", tier, "3", str(sub_group)], check=True, text=True,
                                  stdout=subprocess.PIPE, cwd=ROOT).stdout
            print(text, end="", flush=True)
            for figures, word in (best, "best"), (median, "median"):
                figures[tier] = max(figures[tier], float(re.search(rf"{word} (\d+)", text).group(1)))
    judge(bars, sub_group, best, median)
    if sub_group < ALL_STATES:
        bars.only_figures(f"the slots of sub-groups of {sub_group} hold a part of the states")


if __name__ == "__main__":
    verdict.run(main)
