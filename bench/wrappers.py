"""What a wrapper adds to a step: ./run bench wrappers [ROUNDS=15] [STEPS=2000].

C, Python, Rust and Julia make the smallest step there is, in turns, in processes that stay. Nothing is copied, so what a wrapper
adds does not grow with the step: the medians' difference to C, as a share of a step of 1 ms. Bar: 2 %. A language that this
machine lacks is left out.
"""
import os
import shutil
import statistics
import subprocess
import sys

import verdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(ROOT, "bench", "wrappers")
BUILD = os.path.join(ROOT, "build")
LIB = os.path.join(BUILD, "lib")


def programs(bars):
    """[(name, command)], built where they need it; C first."""
    made = os.path.join(BUILD, "wrappers")
    os.makedirs(made, exist_ok=True)
    subprocess.run(["cc", "-O2", "-std=gnu99", os.path.join(HERE, "step.c"), "-I", os.path.join(ROOT, "include"), "-L", LIB, "-lds",
                    f"-Wl,-rpath,{LIB}", "-o", os.path.join(made, "step")], check=True)
    yield "C", [os.path.join(made, "step")]
    if os.path.exists(os.path.join(BUILD, "python", "libds", "_lowlevel.so")) and subprocess.run(
            ["/usr/bin/python3", "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        yield "Python", ["/usr/bin/python3", os.path.join(HERE, "step.py")]
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
    base = statistics.median(times["C"])
    print(f"C       {base:7.2f} us a step, {min(times['C']):.2f} to {max(times['C']):.2f}")
    for name in list(times)[1:]:
        middle = statistics.median(times[name])
        share = (middle - base) / 1000 * 100
        print(f"{name:7} {middle:7.2f} us a step, {min(times[name]):.2f} to {max(times[name]):.2f}: adds {middle - base:.2f} us, {share:.2f} % "
              f"of 1 ms ({bars.most(f'{name} adds in %', share, 2)} %)", flush=True)


if __name__ == "__main__":
    verdict.run(main)
