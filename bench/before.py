"""Compares this build with an earlier one, in turns:
./run bench before BUILD [PAIRS] [train_step|train_small|plan|comm|tiers]...

BUILD is the build folder of another checkout (release preset). train_step, train_small and plan make PAIRS (24) alternating
pairs: the two builds take turns, and each pair changes which build goes first. The program prints the median ratio of times
(ours over theirs) with its 95 % interval from order statistics, which assumes nothing about the distribution. Bar: that
interval does not lie wholly above 1.01. comm and tiers compare their rows by the best of PAIRS / 6 rounds, at least 3; their
bar is a geometric mean of at most 1.05.

train_step: a step of the 124M GPT-2 on one rank with 2 threads; one process of each build stays, and they make steps in
turns. train_small: 20 steps of a 7M GPT on 2 ranks; the median step counts. plan: the compile time of a step of about 10,000
instructions, and the executor's time for an instruction, without transfers and with empty transfers. tiers: train_small under
ZeRO-3 with its states in memory, and on files with large and with small sub-groups.
"""
import math
import os
import platform
import re
import subprocess
import sys

import plan
import verdict


def program(build, name):
    path = os.path.join(build, "bin", "bench_" + name)
    if not os.path.exists(path):
        sys.exit(f"before: {path} does not exist: build that checkout with its release preset first")
    # The program finds the library of its own build.
    return [path], dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "lib"))


class Stepper:
    """A process of bench_train_step with STEPS 0, which makes a step for each line of standard input."""

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


def output(build, name, *arguments):
    command, env = program(build, name)
    return subprocess.run([*command, *arguments], env=env, text=True, capture_output=True, check=True).stdout


def small_seconds(build, *setting):
    return 2048 / float(re.search(r"median (\d+)", output(build, "train_small", "20", *setting)).group(1))


def median_interval(values):
    """Returns the median, and the order statistics that enclose it with a probability of at least 95 %."""
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


def plan_seconds(build):
    """Returns the time of each row of ./run bench plan, in the unit of the row."""
    text = output(build, "plan")
    return {what: float(re.search(line, text, re.MULTILINE).group(1)) for what, line, _, _ in plan.LINES}


def compare_plan(bars, ours, theirs, pairs):
    both = []
    for i in range(pairs):
        if i % 2:
            b, a = plan_seconds(theirs), plan_seconds(ours)
        else:
            a, b = plan_seconds(ours), plan_seconds(theirs)
        both.append((a, b))
    for what, *_ in plan.LINES:
        judge(bars, what, [a[what] / b[what] for a, b in both])


def comm_rows(build):
    for line in output(build, "comm", "2").splitlines():
        what, microseconds = line.rsplit(" ", 1)
        if not what.startswith("copy "):
            yield what, float(microseconds)


def tiers_rows(build):
    for setting in (["device"], ["nvme"], ["nvme", "3", "100000"]):
        yield " ".join(setting), small_seconds(build, *setting[:1], *(setting[1:] or ["3", "1000000"]))


def judge_rows(bars, name, ratios):
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    worst = max(ratios, key=ratios.get)
    print(f"{name}: {len(ratios)} rows, geometric mean of the ratios of times {mean:.4f} "
          f"({bars.most(name + ': geometric mean', mean, 1.05)}), worst row {worst}: {ratios[worst]:.2f}", flush=True)


def compare_rows(bars, name, rows_of, ours, theirs, pairs):
    a, b = {}, {}
    for i in range(max(pairs // 6, 3)):
        for build, best in ((ours, a), (theirs, b)) if i % 2 else ((theirs, b), (ours, a)):
            for what, seconds in rows_of(build):
                best[what] = min(seconds, best.get(what, math.inf))
    judge_rows(bars, name, {what: a[what] / b[what] for what in a if what in b})


def compare_comm(bars, ours, theirs, pairs):
    compare_rows(bars, "comm", comm_rows, ours, theirs, pairs)


def compare_tiers(bars, ours, theirs, pairs):
    compare_rows(bars, "tiers", tiers_rows, ours, theirs, pairs)


def main(bars):
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit("before: name the build folder of the earlier build")
    theirs = os.path.abspath(arguments.pop(0))
    ours = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build")
    pairs = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 24
    benches = {"train_step": compare_train_step, "train_small": compare_train_small, "plan": compare_plan,
               "comm": compare_comm, "tiers": compare_tiers}
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
