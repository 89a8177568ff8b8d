"""Adapters beside PEFT (./run interop adapters), and the numbers of tests/data/adapters.

usage: adapters.py [COUNT [SEED]]
       adapters.py --record [CASE...]

--record writes tests/data/adapters: for each of CASES an adapter of PEFT with random matrices on a folder of tests/data/models,
the losses of 20 steps of torch's AdamW in float32 and float64, and the adapter after them. Without it, `libds` trains such
adapters of models with random weights: PEFT loads what it saves, and `libds merge` is compared with PEFT's merge.
tests/adapters compares the steps with the recorded ones. COUNT further cases are drawn at random (adapters_drawn.py).
"""
import argparse
import copy
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import peft
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS, ADAPTERS = ROOT / "tests" / "data" / "models", ROOT / "tests" / "data" / "adapters"
STEPS = 20
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
# The model folder, perhaps with a further word after "-", and the keys of PEFT's LoraConfig.
CASES = {
    "gpt2": dict(r=4, lora_alpha=8, target_modules=["c_attn", "mlp.c_proj"], bias="lora_only"),
    "llama": dict(r=4, lora_alpha=16, target_modules="all-linear", exclude_modules=["layers.1.mlp.up_proj"],
                  rank_pattern={"q_proj": 2, r"layers\.0\.mlp\..*": 3}, alpha_pattern={"down_proj": 5}),
    "qwen3": dict(r=3, lora_alpha=6, use_rslora=True, target_modules=r".*\.(q_proj|k_proj|down_proj)", bias="all"),
    "phi3": dict(r=4, lora_alpha=4, target_modules=["qkv_proj", "gate_up_proj", "o_proj"], layers_to_transform=[1],
                 modules_to_save=["lm_head", "model.norm"]),
    "mixtral": dict(r=2, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    "gpt_neox": dict(r=5, lora_alpha=10, target_modules=["query_key_value", "dense_4h_to_h"], layers_to_transform=0,
                     layers_pattern="layers"),
    "bert": dict(r=4, lora_alpha=8, target_modules="all-linear"),
    "gemma2": dict(r=4, lora_alpha=8, target_modules="all-linear"),
    "qwen2": dict(r=4, lora_alpha=8, target_modules=["v_proj", "gate_proj"], bias="lora_only"),
    "mistral": dict(r=4, lora_alpha=8, target_modules="all-linear", exclude_modules=r".*\.0\..*"),
    "opt": dict(r=4, lora_alpha=8, target_modules="all-linear"),
    "gpt_neox-head": dict(r=3, lora_alpha=6, target_modules=["lm_head", "dense"]),
    "llama-dora": dict(r=4, lora_alpha=16, target_modules="all-linear", use_dora=True, rank_pattern={"q_proj": 2}),
    "gpt2-dora": dict(r=3, lora_alpha=6, target_modules=["c_attn", "mlp.c_proj"], bias="lora_only", use_dora=True, use_rslora=True),
    "llama-dropout": dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], lora_dropout=0.3),
    "gpt2-dora-dropout": dict(r=4, lora_alpha=8, target_modules=["c_attn"], lora_dropout=0.2, use_dora=True),
}
# The seed of the masks of dropout, and the random stream of the first layer.
SEED, FIRST_STREAM = 1234, 1 << 15


def base_of(name):
    return name.split("-")[0]


def base_model(name, dtype=torch.float32):
    auto = transformers.AutoModelForMaskedLM if base_of(name) == "bert" else transformers.AutoModelForCausalLM
    return auto.from_pretrained(MODELS / base_of(name), dtype=dtype, attn_implementation="eager", experts_implementation="eager")


def batch_of(name):
    golden = safetensors.torch.load_file(MODELS / base_of(name) / "golden.safetensors")
    keys = ("input_ids", "labels", "attention_mask", "token_type_ids")
    return {key: golden[key].long() for key in keys if key in golden}


def with_random_adapter(name, keys, seed=None):
    """Returns a model whose A and B are random, so that every gradient counts. The seed is derived from the name by default."""
    config = peft.LoraConfig(task_type=None, **keys)
    model = peft.get_peft_model(base_model(name), config)
    generator = torch.Generator().manual_seed(len(name) * 1000 + 7 if seed is None else seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_magnitude_vector." in name:
                parameter.mul_(1 + torch.randn(parameter.shape, generator=generator) / 5)
            elif ".lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / math.sqrt(parameter.shape[1]) / 2)
    return model


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., 2011) of arrays of counter words."""
    counter, key = [np.asarray(word, dtype=np.uint64) for word in counter], list(key)
    for _ in range(10):
        first, third = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
        counter = [(third >> high) ^ counter[1] ^ np.uint64(key[0]), third & low,
                   (first >> high) ^ counter[3] ^ np.uint64(key[1]), first & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(counter, axis=1)


class Masked(torch.nn.Module):
    """Dropout with the masks that libds draws in each step (docs/reference/ops.md); the identity in evaluation."""

    def __init__(self, p, stream):
        super().__init__()
        self.p, self.stream, self.step = p, stream, 0

    def forward(self, x):
        if not self.training:
            return x
        blocks = np.arange((x.numel() + 3) // 4)
        zero = np.zeros_like(blocks)
        words = philox([blocks, zero + (self.stream << 16 & 0xFFFFFFFF), zero + self.step, zero], (SEED, 0)).reshape(-1)[: x.numel()]
        keep = (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24) >= np.float32(self.p)
        return torch.where(torch.from_numpy(keep.reshape(x.shape)), x / (1 - self.p), torch.zeros_like(x))


def set_masks(model):
    """Replaces the dropout of every adapter, in the order of layers, which is that of the streams."""
    layers = [layer for layer in model.modules() if isinstance(layer, peft.tuners.lora.LoraLayer)]
    for at, layer in enumerate(layers):
        layer.lora_dropout["default"] = Masked(layer.lora_dropout["default"].p, FIRST_STREAM + at)


def train(model, batch):
    """Returns the losses before each step and after the last. The model itself is in evaluation, and only layers with masks train."""
    masks = [mask for mask in model.modules() if isinstance(mask, Masked)]
    for layer in model.modules():
        if masks and isinstance(layer, peft.tuners.lora.LoraLayer):
            layer.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, **ADAMW)
    losses = []
    for step in range(STEPS):
        for mask in masks:
            mask.step = step
        loss = model(**batch).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        losses.append(model(**batch).loss.item())
    return losses


def state_of(model):
    return {name: tensor.detach().clone() for name, tensor in peft.get_peft_model_state_dict(model, save_embedding_layers=False).items()}


def clean_config(folder):
    """Removes what belongs to this machine from adapter_config.json, and lists sets in order."""
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = None
    config["target_modules"] = sorted(config["target_modules"]) if isinstance(config["target_modules"], list) else config["target_modules"]
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def record(name, keys):
    folder = ADAPTERS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model, batch = with_random_adapter(name, keys), batch_of(name)
    model.eval()
    model.save_pretrained(folder, save_embedding_layers=False)
    if keys.get("lora_dropout"):
        set_masks(model)
    exact = copy.deepcopy(model).double()
    (folder / "README.md").unlink(missing_ok=True)
    clean_config(folder)
    losses, losses_f64 = train(model, batch), train(exact, batch)
    single, double = state_of(model), state_of(exact)
    safetensors.torch.save_file({k: v.float().contiguous() for k, v in double.items()}, folder / "after.safetensors")
    difference = {k: (single[k].double() - double[k]).abs().max().item() for k in double}
    numbers = {"made_with": {"peft": peft.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
               "adamw": {**ADAMW, "clip_grad_norm": 1.0}, "loss": losses, "loss_f64": losses_f64,
               "measured_abs": difference}
    (folder / "golden.json").write_text(json.dumps(numbers, indent=1) + "\n")
    print(name, f"{len(double)} tensors, loss {losses[0]:.4f} to {losses[-1]:.4f}, f32 and f64 differ by",
          f"{max(abs(a - b) for a, b in zip(losses, losses_f64)):.1e} in losses, {max(difference.values()):.1e} in tensors")


# Modules of several families, and keys that choose among them.
MODULES = ["transformer.h.0.attn.c_attn", "transformer.h.1.mlp.c_proj", "transformer.h.11.attn.c_proj", "h.2.attn.qkv", "q_proj",
           "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.10.mlp.down_proj", "lm_head",
           "model.layers.3.block_sparse_moe.experts.2.w1", "gpt_neox.layers.1.attention.query_key_value", "xq_proj",
           "bert.encoder.layer.1.attention.self.query", "model.norm", "model.layers.0.mlp.gate_proj"]
CHOICES = [
    dict(target_modules=["q_proj", "c_attn"]), dict(target_modules=["mlp.c_proj", "lm_head", "w1"]),
    dict(target_modules=r".*\.(q_proj|down_proj)"), dict(target_modules=r"q_proj"), dict(target_modules=r"model\.layers\.\d+\..*"),
    dict(target_modules=["q_proj", "down_proj", "w1"], layers_to_transform=[0, 10, 3]),
    dict(target_modules=["c_attn", "c_proj", "qkv"], layers_to_transform=[1, 2, 11]),
    dict(target_modules=["c_attn", "c_proj", "qkv"], layers_to_transform=[1, 2], layers_pattern=["h"]),
    dict(target_modules=["w1", "query", "query_key_value"], layers_to_transform=[2, 1], layers_pattern=["experts", "layer"]),
    dict(target_modules=["q_proj", "c_attn"], exclude_modules=["layers.0.self_attn.q_proj"]),
    dict(target_modules=["q_proj", "c_attn", "w1"], exclude_modules=r".*experts.*"),
    dict(target_modules=["q_proj", "lm_head", "query", "gate_proj"], modules_to_save=["lm_head", "attention", "mlp"]),
    dict(target_modules=["q_proj", "down_proj", "c_attn"], r=4, lora_alpha=6,
         rank_pattern={"q_proj": 2, r"layers\.1\..*": 3, "down_proj": 5, r"h\.0\.attn\.c_attn": 7},
         alpha_pattern={r".*\.1\.self_attn\.q_proj": 1, "attn.c_attn": 12, "proj": 9}),
]


def record_names():
    """Writes PEFT's answers for each choice: which modules are targets, and their ranks and alphas."""
    from peft.tuners.tuners_utils import check_target_module_exists
    from peft.utils.other import get_pattern_key
    cases = []
    for keys in CHOICES:
        config = peft.LoraConfig(**keys)
        chosen = {}
        for module in MODULES:
            found = check_target_module_exists(config, module)
            if not found:
                continue
            rank = config.rank_pattern.get(get_pattern_key(config.rank_pattern.keys(), module), config.r)
            alpha = config.alpha_pattern.get(get_pattern_key(config.alpha_pattern.keys(), module), config.lora_alpha)
            chosen[module] = [rank, alpha]
        cases.append({"keys": keys, "chosen": chosen})
    (ADAPTERS / "names.json").write_text(json.dumps({"modules": MODULES, "cases": cases}, indent=1) + "\n")


def libds(*words):
    """Runs a command of libds and returns its output, or ends the program with its error."""
    done = subprocess.run([ROOT / "build" / "bin" / "libds", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"libds {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def distance(left, right):
    return (left.double() - right.double()).abs().max().item()


def compare(name, keys, folder):
    """Trains an adapter by libds on a model with random weights. PEFT must load it and compute the logits of the model that
    `libds merge` writes, and must merge it to the same weights. Returns the largest distances of both."""
    config = transformers.AutoConfig.from_pretrained(MODELS / base_of(name))
    config.vocab_size = 300
    auto = transformers.AutoModelForMaskedLM if base_of(name) == "bert" else transformers.AutoModelForCausalLM
    auto.from_config(config).save_pretrained(folder / "base")
    section = {key: value for key, value in keys.items()}
    document = {"train_micro_batch_size_per_gpu": 4, "model": {"folder": str(folder / "base"), "dropout": 0},
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "adapter": section, "zero_optimization": {"stage": 2},
                "data": {"paths": str(ROOT / "LICENSE"), "tokenizer": "bytes", "heldout": 0},
                "run": {"sequence": 16, "steps": 5, "sample_tokens": 0, "threads": 1}}
    if base_of(name) == "bert":
        document["data"]["mask_token"] = 299
    (folder / "run.json").write_text(json.dumps(document))
    libds("train", "--config", folder / "run.json", "--dir", folder / "run", "--quiet")
    libds("merge", folder / "run" / "model", folder / "merged")

    def load(path):
        return auto.from_pretrained(path, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()

    ids = torch.randint(0, 300, (2, 12), generator=torch.Generator().manual_seed(5))
    adapted = peft.PeftModel.from_pretrained(load(folder / "base"), folder / "run" / "model").eval()
    with torch.no_grad():
        plain, ours, theirs = (model(input_ids=ids).logits for model in (load(folder / "base"), load(folder / "merged"), adapted))
    merged = dict(adapted.merge_and_unload().named_parameters())
    weights = max(distance(parameter, merged[key]) for key, parameter in load(folder / "merged").named_parameters())
    if distance(plain, theirs) < 1e-3:
        sys.exit(f"{name}: the adapter changes nothing")
    return distance(ours, theirs), weights


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("count", nargs="?", type=int, default=12, help="drawn cases (adapters_drawn.py)")
    parser.add_argument("seed", nargs="?", type=int, default=1, help="seed of the first of them")
    parser.add_argument("--record", nargs="*", metavar="CASE", help="all cases if none is named")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if arguments.record is not None:
        for name in arguments.record or CASES:
            record(name, CASES[name])
        record_names()
        return 0
    # Mixtral's experts have one adapter each in libds, which PEFT stacks when it loads them.
    cases = [*CASES.items(), ("mixtral", dict(r=2, target_modules="all-linear"))]
    failed = 0
    for name, keys in cases:
        with tempfile.TemporaryDirectory() as folder:
            logits, weights = compare(name, keys, pathlib.Path(folder))
        good = logits < 2e-5 and weights < 2e-6
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name:18} logits differ by {logits:.1e}, merged weights by {weights:.1e}", flush=True)
    import adapters_drawn
    failed += sum(not adapters_drawn.compare(seed) for seed in range(arguments.seed, arguments.seed + arguments.count))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
