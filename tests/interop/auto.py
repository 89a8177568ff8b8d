"""Compares how Hugging Face's integration and libds fill in "auto", with the defaults of TrainingArguments.

usage: auto.py

The configuration has "auto" for every key that the integration can fill in. The integration fills it in for a narrow GPT-2,
and libds by libds.describe_config; all values must be equal. Needs transformers, accelerate and the built Python package of
libds.
"""
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build/python"))
os.environ.setdefault("DS_ACCELERATOR", "cpu")

import libds  # noqa: E402
from transformers import GPT2Config, TrainingArguments  # noqa: E402
from transformers.integrations import HfTrainerDeepSpeedConfig  # noqa: E402

STEPS = 700
AUTO = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                      "warmup_num_steps": "auto", "total_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                          "stage3_param_persistence_threshold": "auto"},
}


def flat(value, path=""):
    if not isinstance(value, dict):
        return {path: list(value) if isinstance(value, tuple) else value}
    out = {}
    for key, member in value.items():
        out.update(flat(member, f"{path}.{key}" if path else key))
    return out


def model():
    # The integration reads nothing else of a model.
    class Model:
        config = GPT2Config(n_layer=2, n_embd=96, n_head=4, vocab_size=64, bos_token_id=0, eos_token_id=0)
    return Model()


def theirs(folder):
    arguments = TrainingArguments(output_dir=folder, use_cpu=True)
    config = HfTrainerDeepSpeedConfig(json.loads(json.dumps(AUTO)))
    config.trainer_config_process(arguments)
    config.trainer_config_finalize(arguments, model(), STEPS)
    return flat(config.config)


def ours():
    described = libds.describe_config(AUTO | {"model": {"family": "gpt", "layers": 2, "hidden": 96, "heads": 4},
                                              "run": {"steps": STEPS}})
    assert described["refusals"] == [], described["refusals"]
    return flat(described["config"])


def main():
    with tempfile.TemporaryDirectory() as folder:
        filled, here = theirs(folder), ours()
    wrong = 0
    for path, value in flat(AUTO).items():
        if value != "auto":
            continue
        same = filled[path] == here.get(path)
        wrong += not same
        print(f"{'ok  ' if same else 'DIFF'} {path:60} Hugging Face {filled[path]!s:16} libds {here.get(path)}")
    print(f"auto: {wrong} of the keys differ" if wrong else "auto: equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
