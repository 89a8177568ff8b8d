"""Measures the final held-out loss of the main job, examples/train.json, with changed settings, for benches that ask
what a cheaper optimizer costs. This file is not a bench by itself.
"""
import json
import os
import re
import subprocess
import tempfile

SEEDS = (1, 2, 3)
BUILD = os.environ.get("DS_BUILD", "build")


def final_loss(seed, steps, change):
    """Returns the final held-out loss of a run of `steps` steps on 2 ranks, with a configuration that change(config) has
    changed. The run reads .cache/text, which ./run train makes, so this folder must exist."""
    with open("examples/train.json", encoding="utf-8") as file:
        config = json.loads(re.sub(r"//[^\n\"]*$", "", file.read(), flags=re.M))
    change(config)
    config["scheduler"]["params"]["total_num_steps"] = steps
    config["run"] |= {"seed": seed, "steps": steps, "eval_every": 0, "save_every": 0, "sample_every": 0, "bars": []}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.json")
        config["run"]["dir"] = os.path.join(folder, "run")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        libds = os.path.join(BUILD, "bin", "libds")
        said = subprocess.run([libds, "launch", "-n", "2", libds, "train", "--config", path, "--data", ".cache/text"],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(re.findall(r"held-out loss ([0-9.]+)", said)[-1])


def mean_loss(name, steps, change):
    """Returns and prints the mean of the final losses of one run for each seed."""
    losses = [final_loss(seed, steps, change) for seed in SEEDS]
    mean = sum(losses) / len(losses)
    print(f"{name}: held-out loss {mean:.4f}, seeds {' '.join(f'{x:.4f}' for x in losses)}", flush=True)
    return mean
