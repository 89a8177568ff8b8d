"""Runs llama.cpp's own library on GGUF files, for gguf_files.py.

./run interop gguf builds the library from the sources of llama-cpp-python, and llama_host.cpp with it. The texts that it and libds
continue must have the same tokens, as long as the best logit is not within TIE of the next one.
"""
import json
import os
import pathlib
import subprocess
import sys

import gguf
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBDS = os.environ.get("LIBDS", str(ROOT / "build" / "bin" / "libds"))
LLAMA_CPP = pathlib.Path(os.environ.get("LLAMA_CPP", ROOT / ".cache" / "llama.cpp"))
HOST = pathlib.Path(os.environ.get("LLAMA_HOST", LLAMA_CPP / "build" / "llama_host"))
TIE = 1e-5
TOKENS = 36

# The linear layers of each family, by the ends of their names, that an adapter may have.
LAYERS = {family: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
          for family in ("llama", "mistral", "qwen2", "qwen3", "gemma2")}
LAYERS |= {"mixtral": ["q_proj", "k_proj", "v_proj", "o_proj"], "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
           "gpt2": ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"],
           "gpt_neox": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]}
# Families whose adapters llama.cpp's converter can write: it cannot reorder the rows of gpt_neox, and turns A and B of gpt2 round,
# so that llama.cpp refuses the file.
CONVERTED = {"llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma2", "phi3"}


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command[:6]))}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def continued(model, ids):
    """Returns the tokens by which libds continues these, the most probable ones."""
    text = run([LIBDS, "generate", model, "--ids", ",".join(map(str, ids)), "--tokens", TOKENS, "--temperature", 0, "--dtype", "f32",
                "--ignore-eos", "--threads", 1])
    numbers = [int(word) for word in text.replace(",", " ").split()]
    return numbers[len(ids):] if numbers[:len(ids)] == ids else numbers


def compare_tokens(draw, model, theirs, adapter="-"):
    """Compares the tokens of libds for `model` with those of llama.cpp for the GGUF file `theirs`."""
    if not HOST.exists():
        return []
    ids = [draw.randrange(5, 900) for _ in range(12)]
    own = continued(model, ids)
    lines = [line.split() for line in run([HOST, theirs, adapter, TOKENS, *ids]).splitlines()]
    for at, (token, gap) in enumerate(lines):
        if float(gap) <= TIE:
            return []
        if own[at] != int(token):
            return [f"token {at} of {model.name} is {own[at]}, in llama.cpp {token}, whose logit is {gap} above the next"]
    return [] if len(own) == len(lines) else [f"{len(own)} tokens, in llama.cpp {len(lines)}"]


def make_adapter(draw, family, model, folder):
    """Saves a random adapter of PEFT's form for a model folder. Returns whether one factor and alpha / rank describe it."""
    with safe_open(model / "model.safetensors", "np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}
    targets = draw.sample(LAYERS[family], draw.randint(1, len(LAYERS[family])))
    rank, alpha = draw.choice([1, 2, 3, 4]), draw.choice([2, 4.0, 7])
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": targets, "bias": "none",
              "fan_in_fan_out": family == "gpt2", "base_model_name_or_path": str(model), "use_rslora": draw.random() < 0.2}
    if draw.random() < 0.3:
        config["rank_pattern"] = {targets[0].replace(".", r"\."): 5 - rank}
    if draw.random() < 0.3:
        config["alpha_pattern"] = {targets[-1].replace(".", r"\."): 3}
    rng = np.random.default_rng(draw.randrange(1 << 30))
    tensors = {}
    for name, shape in shapes.items():
        module = name.removesuffix(".weight")
        if len(shape) != 2 or not any(module.endswith("." + target) for target in targets):
            continue
        outputs, inputs = shape[::-1] if family == "gpt2" else shape
        own = 5 - rank if "rank_pattern" in config and module.endswith("." + targets[0]) else rank
        tensors[f"base_model.model.{module}.lora_A.weight"] = rng.standard_normal((own, inputs), dtype=np.float32) / 8
        tensors[f"base_model.model.{module}.lora_B.weight"] = rng.standard_normal((outputs, own), dtype=np.float32) / 4
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return not config["use_rslora"] and "alpha_pattern" not in config


def compare_adapter_files(own, theirs):
    """Returns the differences of an adapter's file from that of llama.cpp's converter."""
    a, b = gguf.GGUFReader(own), gguf.GGUFReader(theirs)
    left, right = {t.name: t for t in a.tensors}, {t.name: t for t in b.tensors}
    out = [f"tensor {name} only in one file" for name in left.keys() ^ right.keys()]
    for name in left.keys() & right.keys():
        x, y = left[name], right[name]
        if (x.tensor_type, list(x.shape), x.data.tobytes()) != (y.tensor_type, list(y.shape), y.data.tobytes()):
            out.append(f"tensor {name}: {x.tensor_type.name} {list(x.shape)}, theirs {y.tensor_type.name} {list(y.shape)}, or bytes differ")
    for key in ("general.architecture", "general.type", "adapter.type", "adapter.lora.alpha"):
        mine, other = (f.fields[key].contents() if key in f.fields else "none" for f in (a, b))
        if mine != other:
            out.append(f"key {key}: {mine}, theirs {other}")
    return out


def check_adapter(draw, family, model, base, place):
    """Compares a random adapter of the model folder `model`, whose GGUF file in f32 is `base`, in all forms."""
    first, own, back, merged = place / "adapter", place / "adapter.gguf", place / "adapter_again", place / "merged"
    plain = make_adapter(draw, family, model, first)
    run([LIBDS, "convert", first, own, "--like", model])
    found = []
    if plain and family in CONVERTED:
        run([sys.executable, LLAMA_CPP / "convert_lora_to_gguf.py", first, "--base", model, "--outfile", place / "theirs_adapter.gguf"])
        found += compare_adapter_files(own, place / "theirs_adapter.gguf")
    run([LIBDS, "convert", own, back, "--like", base])
    before, after = load_file(first / "adapter_model.safetensors"), load_file(back / "adapter_model.safetensors")
    found += [f"tensors {before.keys() ^ after.keys()}"] if before.keys() != after.keys() else []
    for name in before.keys() & after.keys():
        if (plain or ".lora_A." in name) and before[name].tobytes() != after[name].tobytes():
            found.append(f"{name}: values differ after a conversion and back")
    run([LIBDS, "merge", back, merged, "--base", base])
    return found + compare_tokens(draw, merged, base, own)
