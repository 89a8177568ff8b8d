"""Compares ten steps of training with DeepSpeed 0.19.8 on gloo, ZeRO stages 0 to 3 (./run interop deepspeed [STAGES]).

Two ranks train the recorded GPT-2 and Llama of tests/data/models in f32, from the weights of the folder. Rank r trains on
micro-batch r; the micro-batches have different numbers of targets. With SGD with momentum, without clipping, every parameter
must be within 1e-5 of its tensor's largest value. With AdamW, by torch's and by DeepSpeed's update, with clipping at 1 and
weight decay everywhere, sum and norm of every tensor must be within the model's recorded `final_params` tolerances, because
Adam makes full steps even for elements whose gradient is rounding noise. The losses of every step, as means over ranks, must
agree to 1e-5 relative.
"""
import json
import os
import sys
import tempfile

import ranks
from distance import largest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = os.path.join(ROOT, "tests", "data", "models")
RANKS, STEPS = 2, 10
CASES = {
    "sgd": {"type": "SGD", "params": {"lr": 0.03, "momentum": 0.9}},
    "adamw": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
}


def settings(case, stage):
    return {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1,
            "gradient_clipping": 1.0 if case == "adamw" else 0.0, "optimizer": CASES[case],
            "zero_optimization": {"stage": stage, "overlap_comm": True, "reduce_bucket_size": 5000,
                                  "stage3_param_persistence_threshold": 100, "stage3_prefetch_bucket_size": 3000}}


def batch(folder, rank):
    """Returns ids and unshifted labels [rows, tokens] of micro-batch `rank`."""
    from safetensors.numpy import load_file

    golden = load_file(os.path.join(folder, "golden.safetensors"))
    return golden[f"micro.{rank}.input_ids"], golden[f"micro.{rank}.labels"]


def theirs(folder, case, stage, rank, out, adam):
    import deepspeed
    import torch
    import transformers

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", verbose=False)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    made = settings(case, stage)
    if case == "adamw":
        made["optimizer"] = {"type": "AdamW", "params": {**CASES[case]["params"], "torch_adam": adam == "torch"}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                      config=made | {"zero_allow_untested_optimizer": True})
    ids, labels = (torch.from_numpy(a).long() for a in batch(folder, rank))
    losses = []
    for _ in range(STEPS):
        loss = engine(input_ids=ids, labels=labels).loss
        losses.append(loss.item())
        engine.backward(loss)
        engine.step()
    with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
        if rank == 0:
            weights = {name: p.detach().clone() for name, p in model.named_parameters()}
            model.save_pretrained(out, state_dict=weights)
    return losses


def ours(folder, case, stage, rank, out, _):
    import numpy as np

    sys.path.insert(0, os.path.join(ROOT, "build", "python"))
    import libds

    ids, labels = batch(folder, rank)
    targets = np.full_like(labels, -100)
    targets[:, :-1] = labels[:, 1:]
    config = settings(case, stage) | {
        "model": {"folder": folder}, "run": {"sequence": int(ids.shape[1])}, "data": {"paths": ["none"]}}
    engine = libds.Engine(config, comm=libds.Comm())
    engine.load_model(folder)
    inputs = [np.ascontiguousarray(a, dtype=np.int32).reshape(-1) for a in (ids, targets)]
    losses = []
    for _ in range(STEPS):
        losses.append(engine.train_batch(*inputs))
    engine.save_model(out, like=folder)
    return losses


def train(side, folder, case, stage, out, adam):
    """Writes the trained model to `out` and returns losses [rank][step]."""
    os.makedirs(out)
    ranks.launch(f"{side} {case} stage {stage}",
                 lambda rank: [os.path.abspath(__file__), "--rank", side, folder, case, str(stage), str(rank), out, adam],
                 RANKS, rival=side == "theirs")
    losses = []
    for rank in range(RANKS):
        with open(os.path.join(out, f"losses-{rank}.json"), encoding="utf-8") as file:
            losses.append(json.load(file))
    return losses


def weights_of(folder):
    from safetensors.numpy import load_file

    return load_file(os.path.join(folder, "model.safetensors"))


def parameters_agree(case, folder, mine, other):
    """Returns (whether the parameters agree, a text). The text names the largest distance by the rule of the case, relative to
    the allowed distance."""
    with open(os.path.join(folder, "golden.json"), encoding="utf-8") as file:
        rule = json.load(file)["final_params"]
    shares = {}
    assert sorted(mine) == sorted(other), (sorted(mine), sorted(other))
    for name, a in mine.items():
        a, b = a.astype("f8"), other[name].astype("f8")
        if case == "sgd":
            shares[name] = abs(a - b).max() / (1e-5 * abs(b).max())
        else:
            allowed = rule[name]
            shares[name] = largest({
                "sum": abs(a.sum() - b.sum()) / allowed["sum_tol"],
                "l2": abs((a * a).sum() ** 0.5 - (b * b).sum() ** 0.5) / allowed["l2_tol"]})[0]
    worst, where = largest(shares)
    return worst <= 1, f"parameters at {worst:.3f} of the tolerance ({where})"


def compare(model, case, stage, adam):
    folder = os.path.join(MODELS, model)
    with tempfile.TemporaryDirectory() as scratch:
        a, b = os.path.join(scratch, "ours"), os.path.join(scratch, "theirs")
        mine, other = train("ours", folder, case, stage, a, adam), train("theirs", folder, case, stage, b, adam)
        # DeepSpeed reports the loss of each rank, libds the mean.
        means = [sum(step) / RANKS for step in zip(*other)]
        distance, _ = largest({(rank, step): abs(x - y) / y for rank, losses in enumerate(mine)
                               for step, (x, y) in enumerate(zip(losses, means, strict=True))})
        ok, line = parameters_agree(case, folder, weights_of(a), weights_of(b))
    ok = ok and distance <= 1e-5
    label = f"{model} stage {stage} {case}" + (f" ({adam})" if case == "adamw" else "")
    print(f"{'ok  ' if ok else 'FAIL'} {label}: losses within {distance:.1e}, {line}", flush=True)
    return ok


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        side, folder, case, stage, rank, out, adam = sys.argv[2:]
        losses = (ours if side == "ours" else theirs)(folder, case, int(stage), int(rank), out, adam)
        with open(os.path.join(out, f"losses-{rank}.json"), "w", encoding="utf-8") as file:
            json.dump(losses, file)
        return 0
    stages = [int(s) for s in (sys.argv[1] if len(sys.argv) > 1 else "0123")]
    done = [compare(model, case, stage, adam) for model in ("gpt2", "llama") for stage in stages
            for case, adam in (("sgd", "torch"), ("adamw", "torch"), ("adamw", "own"))]
    return 0 if done and all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
