"""Tests ranks over oneCCL (./run interop oneccl), by the plugin of examples/oneccl, which includes only ds_plugin.h of libds.

Builds the plugin and runs the comm suite on 2, 3 and 4 ranks, each a process. Compares the bits of training with those over
shared memory, and checks the errors about ranks that differ, die or do not join. Finally measures the time of an all_reduce
over oneCCL, shm and tcp.
"""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from ranks import free_port

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build/bin"
PLUGIN = ROOT / "build/oneccl"
CONFIG = """{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "comm_timeout_ms": 4000,
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": 3},
 "model": {"family": "gpt", "layers": 2, "hidden": 64, "heads": 2, "dropout": 0.1},
 "run": {"sequence": 32, "steps": 6, "threads": 1, "sample_tokens": 0, "seed": 3}}"""


def expect(holds, what, text=""):
    if not holds:
        sys.exit(f"oneccl: {what}\n{text[-3000:]}")


def build():
    prefix = ROOT / ".cache/venv-oneccl"
    for words in (["cmake", "-S", ROOT / "examples/oneccl", "-B", PLUGIN, f"-DONECCL_ROOT={prefix}", "-DCMAKE_CXX_FLAGS=-Werror"],
                  ["cmake", "--build", PLUGIN]):
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect(done.returncode == 0, "the plugin does not compile", done.stdout)


def start(commands, **more):
    """Starts a process for each rank. Each process is killed after 300 seconds."""
    url = f"oneccl://127.0.0.1:{free_port()}"
    return [subprocess.Popen(["timeout", "-k", "1", "300", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(len(commands)),
                                                          "DS_COMM_URL": url} | more)
            for rank, words in enumerate(commands)]


def finish(ranks):
    """Returns the output of each rank."""
    return [rank.communicate()[0] for rank in ranks]


def suite(count):
    ranks = start([[BIN / "test_comm", "--gtest_color=no", "--gtest_filter=All/*/oneccl*"]] * count, DS_TEST_GROUP="1")
    texts = finish(ranks)
    for rank, text in zip(ranks, texts):
        passed = re.search(r"PASSED  \] ([1-9]\d+) tests", text)
        expect(rank.returncode == 0 and passed, f"the comm suite fails on {count} ranks", text)
    print(f"comm suite, {count} ranks: {passed[1]} tests", flush=True)


def train(name, config="config.json"):
    return [BIN / "libds", "train", "--config", config, "--data", "text", "--quiet", "--dir", name]


def launch(count, words):
    done = subprocess.run([BIN / "libds", "launch", "-n", str(count), *words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    expect(done.returncode == 0, f"{count} ranks of libds launch", done.stdout)


def payload(name):
    return subprocess.run([BIN / "libds", "verify", "--hash", name], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[0]


def bits():
    for count in (2, 3):
        launch(count, train(f"shm{count}"))
        ranks = start([train(f"oneccl{count}")] * count)
        texts = finish(ranks)
        expect(all(rank.returncode == 0 for rank in ranks), f"a run of {count} ranks over oneccl", "\n".join(texts))
        expect(payload(f"shm{count}") == payload(f"oneccl{count}"), f"the bits of {count} ranks differ from those over shm")
    Path("chosen.json").write_text(CONFIG.replace("{", '{"communicator": "env:oneccl", ', 1))
    launch(2, train("chosen", "chosen.json"))
    expect(payload("chosen") == payload("shm2"), "the bits differ where the configuration names oneccl")
    print("training: the bits of shm on 2 and 3 ranks, and under libds launch", flush=True)


def errors():
    Path("other.json").write_text(CONFIG.replace("1e-3", "2e-3"))
    ranks = start([train("differ"), train("differ", "other.json")])
    for rank, text in zip(ranks, finish(ranks)):
        expect(rank.returncode == 1 and "optimizer.params.lr" in text, "the key that differs is not named", text)

    ranks = start([[BIN / "join_rank", "env"], [BIN / "join_rank_other", "env"]])
    for rank, text in zip(ranks, finish(ranks)):
        expect(rank.returncode == 1 and "all ranks must run the same build" in text and "libds 9.8.7" in text,
               "the builds are not named", text)

    url, begin = f"oneccl://127.0.0.1:{free_port()}", time.monotonic()
    ranks = start([[BIN / "join_rank", url, rank, 3, 2000] for rank in (0, 1)])
    for rank, text in zip(ranks, finish(ranks)):
        expect(rank.returncode == 1 and "of 3 ranks these have not come in the time for joining: 2" in text,
               "the rank that is missing is not named", text)
    expect(time.monotonic() - begin < 5, "2 seconds for joining took more than 5")

    Path("long.json").write_text(CONFIG.replace('"steps": 6', '"steps": 100000'))
    for how in (signal.SIGKILL, signal.SIGSTOP):
        ranks = start([train(how.name, "long.json")] * 3)
        while not list(Path(".").glob(f"{how.name}/metrics.csv")):
            expect(all(rank.poll() is None for rank in ranks), "a rank ended early")
            time.sleep(0.1)
        time.sleep(1)
        lost = int(subprocess.run(["pgrep", "-P", str(ranks[1].pid)], check=True, stdout=subprocess.PIPE, text=True).stdout)
        os.kill(lost, how)
        begin = time.monotonic()
        texts = finish([ranks[0], ranks[2]])
        expect(time.monotonic() - begin < 12, f"after {how.name} of a rank the others took more than 12 seconds")
        for text in texts:
            expect("rank 1 has made no progress for 4000 ms" in text, f"after {how.name} rank 1 is not named", text)
        # The process is `timeout`, which then also ends its child, by SIGKILL if necessary.
        os.kill(ranks[1].pid, signal.SIGTERM)
        ranks[1].communicate()
    print("errors: a configuration, a build, a rank that is missing, dead or stopped is named", flush=True)


def speed():
    size, times = 16 << 20, {}
    for scheme in ("shm", "tcp", f"oneccl://127.0.0.1:{free_port()}"):
        done = subprocess.run([BIN / "bench_comm", "2", scheme, str(size)], check=True, stdout=subprocess.PIPE, text=True)
        times[scheme.split(":")[0]] = float(re.search(rf"^all_reduce arena {size} (\S+)$", done.stdout, re.M)[1]) / 1000
    print("all_reduce of 16 MiB, f32, 2 ranks, best of 5: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in times.items()))


def main():
    expect(len(sys.argv) == 1, "takes no argument")
    build()
    os.environ["DS_PLUGIN_PATH"] = str(PLUGIN)
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("text").symlink_to(ROOT / "docs/adr")
        Path("config.json").write_text(CONFIG)
        for count in (2, 3, 4):
            suite(count)
        bits()
        errors()
        speed()
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
