"""Runs the comparisons with other programs, one part after another (./run interop [PART [ARGUMENTS]]).

Without PART, all parts run, even if one fails. A table is printed last, and the exit code is 1 if any part has failed. The
minutes were measured on two cores.
"""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# The environments of parts whose packages are not in that of this program.
OWN_PYTHON = {part: os.path.join(ROOT, ".cache", f"venv-{part}", "bin", "python") for part in ("jax", "torch", "gguf")}
OWN_PYTHON["adapters"] = OWN_PYTHON["torch"]
OWN_PYTHON["preference"] = OWN_PYTHON["torch"]
# For each part: (file, arguments when all parts run, minutes, description).
PARTS = {
    "key_defaults": ("key_defaults.py", [], 0.5, "what Transformers takes for keys that a config.json lacks"),
    "published": ("published.py", [], 0.2, "what Transformers builds from the configurations of published models"),
    "auto": ("auto.py", [], 0.2, "what Hugging Face's integration fills in for \"auto\""),
    "pytorch": ("beside_pytorch.py", [], 1, "20 f32 steps beside PyTorch's; safetensors and tensorboard read our files"),
    "monitors": ("monitors.py", [], 0.5, "numbers in Weights & Biases and Comet, offline, beside DeepSpeed's monitors"),
    "arrays": ("arrays.py", [], 0.1, "arrays of torch and NumPy 2 are shared with the Python package"),
    "jax": ("jax_host.py", [], 4, "20 steps of a JAX program at ZeRO 0 to 2 beside optax's"),
    "libtorch": ("libtorch.py", [], 2, "20 steps of a C++ program over libtorch beside its AdamW"),
    "oneccl": ("oneccl.py", [], 2, "the comm suite and training over oneCCL, by a plugin made of ds_plugin.h alone"),
    "models": ("models.py", ["72"], 6, "random model folders beside Transformers, six of each family"),
    "adapters": ("adapters.py", [], 3, "adapters of libds in PEFT, merged models of both, and drawn adapters, several on one base"),
    "preference": ("preference.py", [], 2, "20 steps of preference training beside TRL's trainers"),
    "templates": ("templates.py", ["3000"], 1.5, "random chat templates beside Transformers"),
    "tokenizers": ("tokenizer_folders.py", ["1000"], 2, "random tokenizer folders, texts and conversations beside Transformers"),
    "gguf": ("gguf_files.py", ["36"], 8, "random models and adapters as GGUF files beside llama.cpp's converters, in its library, and the gguf package"),
    "semantics": ("semantics.py", ["200"], 1.5, "random schedules, loss scales and batch sizes beside DeepSpeed's classes"),
    "configurations": ("configurations.py", ["4000"], 0.2, "random changes of real configurations beside DeepSpeed's reader"),
    "torch": ("torch_host.py", [], 15, "PyTorch models, Accelerate, the Trainer, Lightning and PEFT over libds.torch beside plain torch"),
    "deepspeed": ("deepspeed_beside.py", [], 8, "10 steps of ZeRO 0 to 3 beside DeepSpeed's"),
    "checkpoints": ("checkpoints.py", [], 7, "checkpoints of ZeRO 1 to 3 go from DeepSpeed to libds and back"),
    "curve": ("curve.py", [], 8, "200 steps of bf16 training beside PyTorch's, 3 seeds"),
}


def run(part, arguments):
    """Returns the exit code of a part, and its seconds."""
    begin = time.monotonic()
    code = subprocess.call([OWN_PYTHON.get(part, sys.executable), os.path.join(HERE, PARTS[part][0]), *arguments])
    return code, time.monotonic() - begin


def main():
    if len(sys.argv) > 1:
        part = sys.argv[1]
        if part not in PARTS:
            print(f"interop: '{part}' is none of {', '.join(PARTS)}", file=sys.stderr)
            return 2
        return run(part, sys.argv[2:])[0]
    done = {}
    for number, (part, (_, arguments, minutes, what)) in enumerate(PARTS.items(), 1):
        print(f"---- {number} of {len(PARTS)}: {part}: {what}, about {minutes} min", flush=True)
        done[part] = run(part, arguments)
    print("----")
    for part, (code, seconds) in done.items():
        print(f"{'ok  ' if code == 0 else 'FAIL'} {part:14} {seconds / 60:5.1f} min  {PARTS[part][3]}")
    failed = [part for part, (code, _) in done.items() if code != 0]
    print(f"interop: {len(PARTS) - len(failed)} of {len(PARTS)} parts passed"
          + (f", failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
