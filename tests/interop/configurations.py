#!/usr/bin/env python3
"""Compares random changes of real configurations with DeepSpeed's own reader (./run interop configurations [NUMBER
[SEED]]).

A file of tests/data/ds_configs gets another value at a random key: a key that the file has, or one that DeepSpeed's classes
know. libds must refuse every configuration that DeepSpeedConfig refuses, except those of TAKEN. libds may refuse a
configuration that DeepSpeedConfig accepts if the value is of another kind, is out of range, or needs a feature that libds
lacks. DeepSpeed is unchanged.
"""
import copy
import json
import logging
import os
import pathlib
import random
import re
import sys
import types

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
from deepspeed.compile.config import CompileConfig  # noqa: E402
from deepspeed.runtime import config as deepspeed_config  # noqa: E402
from deepspeed.runtime import precision_config  # noqa: E402
from deepspeed.runtime.zero import config as zero_config  # noqa: E402
from deepspeed.runtime.zero import offload_config  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "python"))
import libds  # noqa: E402

CLASSES = {
    "fp16": precision_config.DeepSpeedFP16Config,
    "bf16": precision_config.DeepSpeedBF16Config,
    "zero_optimization": zero_config.DeepSpeedZeroConfig,
    "zero_optimization.offload_optimizer": offload_config.DeepSpeedZeroOffloadOptimizerConfig,
    "zero_optimization.offload_param": offload_config.DeepSpeedZeroOffloadParamConfig,
    "compile": CompileConfig,
}
VALUES = [True, False, 0, 1, 2, 3, -1, 7, 0.5, 1.5, 1e9, 5e8, 10**12, "auto", "cpu", "none", "nvme", "fp16", "yes", "False", "7", "",
          [], ["a"], [1], {}, {"enabled": True}]
WORDS = ("true", "yes", "on", "t", "y", "1", "false", "no", "off", "f", "n", "0")
# Configurations that libds accepts and DeepSpeed refuses: a pattern of path, value and DeepSpeed's message, and the
# reason.
TAKEN = {
    r"^fp16\.min_loss_scale [0-9.]+ ": "scales of libds may be fractions",
    r"^compile .*Extra inputs": "keys of compile in older releases",
    r"^(zero_optimization|bf16)\S* .*Bf16_master_weights_and_grads is only": "masters of 16 bits in stage 0, too",
    r" \"auto\" ": "Hugging Face's integration fills it in",
    r"^(compile\.passes|zero_optimization\.zenflow) (false|0) ": "off is off",
    r"Cannot provide deprecated|_weights_on_model_save Extra inputs": "an old name beside the new one, without contradiction",
}


def read_files():
    folder = ROOT / "tests" / "data" / "ds_configs"
    return {entry["file"]: json.loads((folder / entry["file"]).read_text(), parse_constant=float)
            for entry in json.loads((folder / "index.json").read_text())}


def refusal_of_deepspeed(given):
    """Returns the reason why DeepSpeed refuses a configuration, or "" if it accepts the configuration."""
    try:
        deepspeed_config.DeepSpeedConfig(copy.deepcopy(given))
    # The error may have any type, such as an assertion or an error of pydantic.
    except Exception as error:
        return f"{type(error).__name__}: {error}" or "?"
    return ""


def refusal_of_libds(given):
    try:
        return "; ".join(libds.describe_config(given, 1)["refusals"])
    except libds.Error as error:
        return str(error)


def paths_of(section, prefix=()):
    for name, value in section.items():
        yield (*prefix, name)
        if isinstance(value, dict):
            yield from paths_of(value, (*prefix, name))


def known_paths():
    for section, kind in CLASSES.items():
        for name, field in kind.model_fields.items():
            yield (*section.split("."), field.alias or name)


def changed(numbers, given, known):
    """Returns a copy with another value at one path, and the path. The copy is None if a section on the path is of another
    kind."""
    path = numbers.choice(list(paths_of(given)) if numbers.random() < 0.5 else known)
    out = copy.deepcopy(given)
    section = out
    for name in path[:-1]:
        section = section.setdefault(name, {})
        if not isinstance(section, dict):
            return None, path
    section[path[-1]] = numbers.choice(VALUES)
    return out, path


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def may_refuse(path, value, reason):
    """Returns whether libds alone may refuse a value for this reason."""
    in_class = path[0] in CLASSES
    if "expected true or false" in reason:
        return not (isinstance(value, bool) or value in (0, 1) or (in_class and str(value).lower() in WORDS))
    if "expected an integer" in reason or "expected a number" in reason:
        return not is_number(value) or value != value // 1
    if "expected a string" in reason:
        return not isinstance(value, str)
    if re.search(r"is (below|above|not below) |must be (above|at least|positive)", reason):
        return is_number(value)
    # The value needs a feature that libds lacks, is an unknown name, or is of another kind.
    return bool(re.search(r"unsupported by this version|unknown|contradicts|needs (bf16|zero_optimization.stage)|does not fill in a value|expected (two|three) numbers|expected an array|"
                          r"expected a section|: missing|must not be above", reason))


def switched_off(given, path):
    """Returns whether the section of a path is not enabled, so that its values have no effect."""
    for name in path[:-1]:
        given = given[name]
    return path[-1] != "enabled" and given.get("enabled", True) in (False, "false", "auto")


def judge(numbers, files, known):
    name = numbers.choice(sorted(files))
    given, path = changed(numbers, files[name], known)
    if given is None:
        return "no section"
    theirs, ours = refusal_of_deepspeed(given), refusal_of_libds(given)
    value = given
    for part in path:
        value = value[part]
    what = f"{name} with {'.'.join(path)} {json.dumps(value)}"
    if theirs and not ours:
        if switched_off(given, path):
            return "in a section that is off"
        case = f"{'.'.join(path)} {json.dumps(value)} {' '.join(theirs.split())}"
        reasons = [reason for pattern, reason in TAKEN.items() if re.search(pattern, case)]
        return reasons[0] if reasons else f"{what}: only DeepSpeed refuses it: {' '.join(theirs.split())[:300]}"
    if ours and not theirs:
        return "only libds refuses" if may_refuse(path, value, ours) else f"{what}: only libds refuses it: {ours[:300]}"
    return "both refuse" if ours else "both accept"


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    logging.disable(logging.CRITICAL)
    deepspeed_config.dist = types.SimpleNamespace(get_world_size=lambda *a, **k: 1, get_rank=lambda *a, **k: 0)
    files = {name: {**given, "train_batch_size": 2, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}
             for name, given in read_files().items()}
    files = {name: given for name, given in files.items() if not refusal_of_deepspeed(given) and not refusal_of_libds(given)}
    known, found = list(known_paths()), {}
    for number in range(count):
        what = judge(random.Random(f"{seed} {number}"), files, known)
        found[what] = found.get(what, 0) + 1
    bad = [what for what in found if ": " in what]
    for what in bad[:30]:
        print(f"FAIL {what}")
    print(f"{'FAIL' if bad else 'ok  '} {len(files)} files, {count} changes: {len(bad)} differ; "
          + ", ".join(f"{times} {what}" for what, times in found.items() if what not in bad))
    return 1 if bad or found.get("both refuse", 0) < count / 10 else 0


if __name__ == "__main__":
    sys.exit(main())
