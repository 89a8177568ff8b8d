"""This build beside an earlier one, in turns: ./run bench before BUILD [PAIRS] [train_step|train_small|comm]...

BUILD is the build folder of another checkout (release preset). PAIRS (24) alternating pairs of each training bench: the
two builds take turns, and so does which of them goes first. Printed is the median ratio of times (ours over theirs) with
its 95 % interval from order statistics, which assumes nothing about the distribution. Bar: that interval does not lie wholly
above 1.01. comm compares its rows by their best of PAIRS / 6 rounds on 2
ranks; its bar is a geometric mean of at most 1.05.

train_step: a step of the 124M GPT-2, one rank on 2 threads, both processes alive at once. train_small: 20 steps of the
main job's model, 2 ranks, by the median step.
"""
import math
import os
import platform
import re
import subprocess
import sys

import verdict


def program(build, name):
    path = os.path.join(build, "bin", "bench_" + name)
    if not os.path.exists(path):
        sys.exit(f"before: {path} does not exist: build that checkout with its release preset first")
    # The program finds the library of its own build.
    return [path], dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "lib"))


class Stepper:
    """bench_train_step with STEPS 0: a step for each line of standard input."""

    def __init__(self, build):
        command, env = program(build, "train_step")
        self.process = subprocess.Popen(command + ["gpt2", "2", "0"], env=env, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        while self.process.stdout.readline().strip() != "ready":
            if self.process.poll() is not None:
                sys.exit(f"before: bench_train_step of {build} has ended")

    def seconds(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


def small_seconds(build):
    command, env = program(build, "train_small")
    text = subprocess.run(command + ["20"], env=env, text=True, capture_output=True, check=True).stdout
    return 2048 / float(re.search(r"median (\d+)", text).group(1))


def median_interval(values):
    """The median, and the order statistics that enclose it with a probability of at least 95 %."""
    values = sorted(values)
    n = len(values)
    below, k = 0.0, 0  # P(fewer than k of n fair coins show heads)
    while below + math.comb(n, k) / 2**n <= 0.025:
        below += math.comb(n, k) / 2**n
        k += 1
    if k == 0:
        sys.exit(f"before: {n} pairs are too few for a 95 % interval; ask for at least 6")
    middle = (values[(n - 1) // 2] + values[n // 2]) / 2
    return middle, values[k - 1], values[n - k]


def pairs_of(ours, theirs, pairs):
    ratios = []
    for i in range(pairs):
        if i % 2:
            b, a = theirs(), ours()
        else:
            a, b = ours(), theirs()
        ratios.append(a / b)
    return ratios


def judge(bars, name, ratios):
    middle, low, high = median_interval(ratios)
    print(f"{name}: {len(ratios)} pairs, median ratio of times {middle:.4f}, 95 % interval {low:.4f} to {high:.4f}"
          f" (its lower end: {bars.most(name + ': lower end of the interval', low, 1.01)})", flush=True)


def compare_train_step(bars, ours, theirs, pairs):
    a, b = Stepper(ours), Stepper(theirs)
    pairs_of(a.seconds, b.seconds, 2)
    ratios = pairs_of(a.seconds, b.seconds, pairs)
    a.end()
    b.end()
    judge(bars, "train_step", ratios)


def compare_train_small(bars, ours, theirs, pairs):
    judge(bars, "train_small", pairs_of(lambda: small_seconds(ours), lambda: small_seconds(theirs), pairs))


def comm_rows(build, rows):
    command, env = program(build, "comm")
    text = subprocess.run(command + ["2"], env=env, text=True, capture_output=True, check=True).stdout
    for line in text.splitlines():
        what, microseconds = line.rsplit(" ", 1)
        if not what.startswith("copy "):
            rows[what] = min(float(microseconds), rows.get(what, math.inf))


def judge_comm(bars, ratios):
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    worst = max(ratios, key=ratios.get)
    print(f"comm: {len(ratios)} rows, geometric mean of the ratios of times {mean:.4f} "
          f"({bars.most('comm: geometric mean', mean, 1.05)}), worst row {worst}: {ratios[worst]:.2f}", flush=True)


def compare_comm(bars, ours, theirs, pairs):
    a, b = {}, {}
    for i in range(max(pairs // 6, 3)):
        for build, rows in ((ours, a), (theirs, b)) if i % 2 else ((theirs, b), (ours, a)):
            comm_rows(build, rows)
    judge_comm(bars, {what: a[what] / b[what] for what in a if what in b})


def main(bars):
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit("before: name the build folder of the earlier build")
    theirs = os.path.abspath(arguments.pop(0))
    ours = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build")
    pairs = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 24
    benches = {"train_step": compare_train_step, "train_small": compare_train_small, "comm": compare_comm}
    unknown = [name for name in arguments if name not in benches]
    if unknown:
        sys.exit(f"before: {unknown[0]} is none of {', '.join(benches)}")
    with open("/proc/cpuinfo") as info:
        model = re.search(r"model name\s*: (.*)", info.read())
    print(f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} cores; ours over theirs")
    for name in arguments or benches:
        benches[name](bars, ours, theirs, pairs)


if __name__ == "__main__":
    verdict.run(main)
