"""Measures the time that a wrapper adds to a step: ./run bench wrappers [ROUNDS=15] [STEPS=2000].

Programs in C, Python, Rust and Julia make the smallest possible step, in turns; their processes stay. Nothing is copied, so
the time that a wrapper adds does not grow with the step. It is the difference of its median to the median of C, as a share of
a step of 1 ms. Bar: 2 %. A language that this machine lacks is left out.
"""
import os
import shutil
import statistics
import subprocess
import sys
import time

import verdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(ROOT, "bench", "wrappers")
BUILD = os.path.join(ROOT, "build")
LIB = os.path.join(BUILD, "lib")


def step_in_python():
    """bench/wrappers/step.c over NumPy arrays."""
    import numpy as np

    import libds

    graph = libds.Graph("linear", rows=4)
    x, target = graph.input("x", "f32", [None, 3]), graph.input("target", "f32", [None, 2])
    y = graph.op("linear", x, graph.param("w", [2, 3], "normal", 0.1), graph.param("b", [2]))
    graph.output("loss", graph.op("mse", y, target))
    config = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.01}}}
    xs, targets = np.full((4, 3), 0.5, np.float32), np.full((4, 2), 0.25, np.float32)
    with libds.Engine(config, graph, threads=1) as engine:
        for line in sys.stdin:
            begin = time.perf_counter()
            for _ in range(int(line)):
                engine.train_batch(xs, targets)
            print((time.perf_counter() - begin) / int(line) * 1e6, flush=True)


def programs(bars):
    """Builds the programs and yields (name, command) of each, C first."""
    made = os.path.join(BUILD, "wrappers")
    os.makedirs(made, exist_ok=True)
    subprocess.run(["cc", "-O2", "-std=gnu99", os.path.join(HERE, "step.c"), "-I", os.path.join(ROOT, "include"), "-L", LIB, "-lds",
                    f"-Wl,-rpath,{LIB}", "-o", os.path.join(made, "step")], check=True)
    yield "C", [os.path.join(made, "step")]
    if os.path.exists(os.path.join(BUILD, "python", "libds", "_lowlevel.so")) and subprocess.run(
            ["/usr/bin/python3", "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        yield "Python", ["/usr/bin/python3", os.path.abspath(__file__), "--step"]
    else:
        bars.left_out("Python")
    if shutil.which("cargo"):
        subprocess.run(["cargo", "build", "--release", "--offline", "--quiet", "--manifest-path", os.path.join(HERE, "rust", "Cargo.toml"),
                        "--target-dir", os.path.join(made, "rust")], check=True, env={**os.environ, "DS_LIB_DIR": LIB})
        yield "Rust", [os.path.join(made, "rust", "release", "wrapper_step")]
    else:
        bars.left_out("Rust")
    julia = shutil.which("julia") or shutil.which(os.path.join(BUILD, "julia", "usr", "bin", "julia"))
    if julia:
        yield "Julia", [julia, "--startup-file=no", f"--project={os.path.join(ROOT, 'bindings', 'julia')}", os.path.join(HERE, "step.jl")]
    else:
        bars.left_out("Julia")


def measure(process, steps):
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def judge(bars, times):
    """times: microseconds of a step in each round, by language."""
    base = statistics.median(times["C"])
    print(f"C       {base:7.2f} us a step, {min(times['C']):.2f} to {max(times['C']):.2f}")
    for name in list(times)[1:]:
        middle = statistics.median(times[name])
        share = (middle - base) / 1000 * 100
        print(f"{name:7} {middle:7.2f} us a step, {min(times[name]):.2f} to {max(times[name]):.2f}: adds {middle - base:.2f} us, {share:.2f} % "
              f"of 1 ms ({bars.most(f'{name} adds in %', share, 2)} %)", flush=True)


def main(bars):
    rounds, steps = (int(word) for word in (sys.argv[1:] + ["15", "2000"][len(sys.argv) - 1:])[:2])
    environment = {**os.environ, "PYTHONPATH": os.path.join(BUILD, "python"), "DS_LIBRARY": os.path.join(LIB, "libds.so"),
                   "LD_LIBRARY_PATH": LIB, "JULIA_DEPOT_PATH": os.path.join(BUILD, "julia_depot")}
    sides = [(name, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment))
             for name, command in programs(bars)]
    times = {name: [] for name, _ in sides}
    for number in range(rounds + 1):
        for name, process in sides[number % len(sides):] + sides[:number % len(sides)]:
            took = measure(process, steps)
            if number:  # the first round compiles and warms up
                times[name].append(took)
    for _, process in sides:
        process.communicate()
    judge(bars, times)


if __name__ == "__main__":
    if sys.argv[1:] == ["--step"]:
        step_in_python()
        sys.exit(0)
    verdict.run(main)
