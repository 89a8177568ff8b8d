#!/bin/sh
# Runs `libds plan` for a GPT-2 folder on each real configuration that libds accepts, and `libds config` on all.
# usage: ds_configs.sh LIBDS SOURCE
set -eu
libds=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$libds" "$source" "$work" <<'PYTHON'
import json, os, subprocess, sys

libds, source, work = sys.argv[1:]
folder = os.path.join(source, "tests/data/ds_configs")
taken = planned = refused = 0
for name in sorted(os.listdir(folder)):
    if name == "index.json":
        continue
    config = json.load(open(os.path.join(folder, name)))
    # The number of ranks with which the batch sizes agree.
    train, micro = config.get("train_batch_size"), config.get("train_micro_batch_size_per_gpu")
    steps = config.get("gradient_accumulation_steps")
    ranks = 1
    if all(isinstance(x, int) for x in (train, micro, steps)):
        ranks = train // (micro * steps)
    path = os.path.join(work, name)
    config["model"] = {"folder": os.path.join(source, "tests/data/models/gpt2")}
    config["run"] = {"sequence": 16}
    json.dump(config, open(path, "w"))
    said = subprocess.run([libds, "config", path, "-n", str(ranks), "--json"], capture_output=True, text=True)
    described = json.loads(said.stdout)
    assert (said.returncode == 0) == (described["refusals"] == []), (name, said)
    if said.returncode != 0:
        refused += 1
        assert said.returncode == 1 and described["refusals"], (name, said)
        continue
    taken += 1
    assert described["origins"]["run.sequence"] == "config", name
    plan = subprocess.run([libds, "plan", "--config", path, "-n", str(ranks), "--json"], capture_output=True, text=True)
    if plan.returncode not in (0, 3):  # 3: too large for this machine
        sys.exit(f"{name}: {plan.stderr}")
    json.loads(plan.stdout)
    planned += 1
print(f"{taken} taken, {planned} planned, {refused} refused")
assert (taken, planned, refused) == (76, 76, 16), (taken, planned, refused)
PYTHON
