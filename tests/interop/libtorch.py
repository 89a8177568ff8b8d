"""Trains a model of libtorch with ds_torch.h and with torch::optim::AdamW, and compares (./run interop libtorch).

1. The command of docs/guides/libtorch.md compiles the example and, with other names, libtorch_host.cpp. The libtorch is that of
   the torch wheel.
2. The other commands of the page print what the page shows.
3. libtorch_host.cpp trains on 1 and 2 ranks, at ZeRO 0 to 2, with states in memory, in an emulated host tier and on files, with 1
   and 3 micro-steps: 20 losses in f32 are within 2e-6 of AdamW's and have the same bits everywhere, also after a resume.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guides/libtorch.md"
TORCH = Path(torch.__file__).parent


def run(words, **more):
    """Returns whether the command succeeds."""
    return subprocess.run(words, check=False, **more).returncode == 0


def compile_both():
    command = re.search(r"^\$ (c\+\+ (?:.*\\\n)*.*)$", PAGE.read_text(encoding="utf-8"), re.M)[1]
    other = command.replace("examples/libtorch_train", "tests/interop/libtorch_host").replace("build/libtorch_train", "build/libtorch_host")
    return all(run(["bash", "-c", words], cwd=ROOT, env=os.environ | {"TORCH": str(TORCH)}) for words in (command, other))


def train(size):
    with tempfile.TemporaryDirectory() as folder:
        print(f"{size} ranks", flush=True)
        return run([ROOT / "build/bin/libds", "launch", "-n", str(size), ROOT / "build/libtorch_host"], cwd=folder)


def main():
    if not compile_both():
        print("FAIL it does not compile")
        return 1
    done = [run([sys.executable, ROOT / "tests/readme/pages.py", ROOT, ROOT / "build", PAGE]), train(1), train(2)]
    print(f"libtorch: {done.count(False)} failed")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
