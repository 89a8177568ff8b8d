"""Exchanges checkpoints between DeepSpeed 0.19.8 and libds (./run interop checkpoints [CASE...]).

Two ranks on gloo train GPT-2 and Llama (tests/data/models) with AdamW or Muon; the models have tied and frozen weights
and buffers of many types. For each case (a stage, a type, a model, an optimizer):
1. DeepSpeed trains 5 steps, saves a checkpoint and trains another step. A second DeepSpeed loads the checkpoint and trains
   5 steps.
2. `libds convert` converts the checkpoint; libds loads the result and trains the same 5 steps. The losses may differ from
   those of the second DeepSpeed by at most TOLERANCE.
3. The state of libds after these 5 steps is exported with `--to universal`. DeepSpeed loads it with load_universal and
   trains 5 more steps, and so does libds. With Muon, `--to universal` is refused by name, because DeepSpeed's layout has
   no momentum for Muon.
4. `libds convert --to fp32` writes the names, types, shapes and bits of DeepSpeed's zero_to_fp32, including second names
   and buffers; in shards, it writes the same tensors to the same files. At stage 1 zero_to_fp32 leaves out frozen
   parameters, and libds does not.
5. `libds convert` of a checkpoint by ds_to_universal has the payload of 2, and its `--to fp32` the bits of 4, except with
   Muon, and with frozen parameters at stage 3, which ds_to_universal leaves out.

--half FROM TO: instead, turns a recorded checkpoint in f32 into one as by an fp16 run, because DeepSpeed 0.19.8 has no
fp16 on most CPUs. Weights of the module are f16, and the loss scale is dynamic, at 512 after an overflow in step 3.
--record FOLDER [KIND...]: instead, writes one tiny checkpoint of each kind, with the losses of its resume and the
result of zero_to_fp32 (fp32.json), for tests/checkpoint.
"""
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

import ranks
from distance import largest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = os.path.join(ROOT, "tests", "data", "models")
LIBDS = os.path.join(ROOT, "build", "bin", "libds")
RANKS, STEPS = 2, 5
# In bf16, logits are rounded differently, by up to 2^-9. DeepSpeed's Muon orthogonalizes momenta in bf16, whatever the
# type.
TOLERANCE = {"f32": 1e-5, "bf16": 2e-3, "muon": 2e-3}
ADAM = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
MUON = {"lr": 1e-3, "momentum": 0.9, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
# Model, stage, type, optimizer (torch's AdamW, DeepSpeed's own, Muon), frozen parameters.
CASES = [("gpt2", stage, dtype, "torch", []) for stage in (1, 2, 3) for dtype in ("f32", "bf16")] + [
    ("llama", 2, "bf16", "own", []), ("llama", 3, "f32", "own", []),
    ("gpt2", 1, "f32", "frozen", ["transformer.wpe.weight"]), ("gpt2", 2, "bf16", "frozen", ["transformer.wpe.weight"]),
    ("gpt2", 3, "f32", "frozen", ["transformer.wpe.weight"])] + [
    (model, stage, dtype, "muon", []) for model, stage, dtype in (
        ("gpt2", 1, "f32"), ("gpt2", 1, "bf16"), ("gpt2", 2, "f32"), ("gpt2", 2, "bf16"), ("gpt2", 3, "f32"), ("llama", 2, "f32"),
        ("llama", 3, "f32"))]
# The size of a shard in bytes.
SHARD = 3000


def settings(stage, dtype):
    return {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": ADAM}, "bf16": {"enabled": dtype == "bf16"},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 20, "warmup_max_lr": 1e-3, "warmup_type": "linear"}},
            "zero_optimization": {"stage": stage, "overlap_comm": True, "reduce_bucket_size": 5000,
                                  "stage3_param_persistence_threshold": 100, "stage3_prefetch_bucket_size": 3000}}


def batch(folder, step, rank):
    """Returns ids [2, tokens] of a step and a rank; the ids are also the labels."""
    import numpy as np

    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    dice = np.random.default_rng([step, rank])
    return dice.integers(0, config["vocab_size"], (2, 16))


def decorate(model, filled):
    """Adds buffers of many types and strides, which training does not change. `filled` tells that a checkpoint is loaded into
    them; torch cannot do that for a buffer whose elements share memory."""
    import torch

    torch.manual_seed(7)
    place = model.get_submodule(next(name for name, module in model.named_modules() if name and name.count(".") == 0))
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7
    for name, tensor in {
            "f32": base, "f16": base.half(), "bf16": base.bfloat16(), "f64": base.double() / 3, "i64": base.long() - 1,
            "i32": base.int(), "i16": base.short() - 300, "i8": (base * 9).to(torch.int8) - 5, "u8": base.to(torch.uint8),
            "bool": base > 1, "complex": torch.complex(base, -base), "scalar": torch.tensor(5), "empty": torch.zeros(0, 3),
            "turned": base.t(), "repeated": torch.arange(3).expand(2, 3).clone() if filled else torch.arange(3).expand(2, 3), "slice": base[:, 1:3]}.items():
        place.register_buffer("kept_" + name, tensor)
    place.register_buffer("lost", base, persistent=False)


def optimizer(adam):
    """Returns the optimizer section of a DeepSpeed configuration."""
    values = {"type": "Muon", "params": MUON} if adam == "muon" else {"type": "AdamW", "params": ADAM}
    return values | {"params": values["params"] | {"torch_adam": adam != "own"}}


def theirs(job):
    import deepspeed
    import torch
    import transformers

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", verbose=False)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        job["model"], dtype=torch.float32, attn_implementation="eager").eval()
    for name in job["frozen"]:
        dict(model.named_parameters())[name].requires_grad = False
    decorate(model, bool(job.get("load")))
    made = settings(job["stage"], job["dtype"])
    if job.get("fp16"):
        made |= {"bf16": {"enabled": False}, "fp16": {"enabled": True, "initial_scale_power": 8}}
    made["optimizer"] = optimizer(job["adam"])
    if job["adam"] == "muon" and job["stage"] == 3:
        # DeepSpeed supports Muon at stage 3 only without reduce_scatter.
        made["zero_optimization"]["reduce_scatter"] = False
    made |= {"zero_allow_untested_optimizer": True}
    if job.get("universal"):
        made["checkpoint"] = {"load_universal": True}
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=[p for p in model.parameters() if p.requires_grad], config=made)
    if job.get("load"):
        path, _ = engine.load_checkpoint(job["load"])
        assert path is not None, job["load"]
    losses = []
    for step in range(job["first"], job["last"]):
        if step == job.get("save_at"):
            engine.save_checkpoint(job["save"], client_state={"note": "kept", "seen": 40})
        ids = torch.from_numpy(batch(job["model"], step, int(os.environ["RANK"])))
        loss = engine(input_ids=ids, labels=ids).loss
        losses.append(loss.item())
        engine.backward(loss)
        engine.step()
    return losses


def ours(job):
    import numpy as np

    sys.path.insert(0, os.path.join(ROOT, "build", "python"))
    import libds

    config = settings(job["stage"], job["dtype"]) | {
        "model": {"folder": job["model"]}, "run": {"sequence": 16}, "data": {"paths": ["none"]}}
    if job["adam"] == "muon":
        config["optimizer"] = {"type": "Muon", "params": MUON}
    if job["frozen"]:
        config["frozen_parameters"] = job["frozen"]
    engine = libds.Engine(config, comm=libds.Comm())
    engine.load(job["load"])
    losses = []
    for step in range(job["first"], job["last"]):
        if step == job.get("save_at"):
            engine.save(job["save"])
        ids = batch(job["model"], step, int(os.environ["RANK"])).astype(np.int32)
        targets = np.full_like(ids, -100)
        targets[:, :-1] = ids[:, 1:]
        losses.append(engine.train_batch(ids.reshape(-1), targets.reshape(-1)))
    return losses


# The checkpoints of --record: (stage, type, further settings of ZeRO, frozen parameters). Checkpoints with "names" in their
# name have the buffers of decorate().
KINDS = {f"zero{stage}_{dtype}": (stage, dtype, {}, []) for stage in (1, 2, 3) for dtype in ("f32", "bf16")} | {
    "zero2_round_robin": (2, "f32", {"round_robin_gradients": True}, []),
    "zero2_frozen": (2, "f32", {}, ["transformer.wpe.weight"]),
    "zero3_frozen": (3, "bf16", {}, ["transformer.wpe.weight"]),
    "zero2_f16": (2, "f16", {}, []),
    "zero1_names": (1, "f32", {}, []),
    "zero2_names": (2, "bf16", {}, ["transformer.wpe.weight"]),
    "zero3_names": (3, "f32", {}, ["transformer.wpe.weight"]),
    "zero1_muon": (1, "f32", {}, []),
    "zero2_muon": (2, "bf16", {}, []),
    "zero2_muon_offload": (2, "f32", {"offload_optimizer": {"device": "cpu"}}, []),
    "zero3_muon": (3, "f32", {"sub_group_size": 500, "reduce_scatter": False}, []),
}
TINY = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 12, "n_head": 2, "n_layer": 1,
        "n_inner": 21, "n_positions": 16, "vocab_size": 40, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}


def record_rank(folder, kinds):
    """Records checkpoints of these kinds in one pair of processes. Returns the losses [step] after the save, as means over
    ranks."""
    import deepspeed
    import torch
    import transformers

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", verbose=False)
    rank = int(os.environ["RANK"])
    for kind in kinds:
        stage, dtype, more, frozen = KINDS[kind]
        torch.manual_seed(1)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config.from_dict(TINY)).eval()
        for name in frozen:
            dict(model.named_parameters())[name].requires_grad = False
        if "names" in kind:
            decorate(model, bool(job.get("load")))
        made = settings(stage, dtype)
        made["zero_optimization"] |= more
        made["optimizer"] = optimizer("muon" if "muon" in kind else "torch")
        made["scheduler"]["params"]["warmup_num_steps"] = 2
        made |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
                 "fp16": {"enabled": dtype == "f16", "initial_scale_power": 6}}
        try:
            engine, *_ = deepspeed.initialize(
                model=model, model_parameters=[p for p in model.parameters() if p.requires_grad], config=made)
            losses = []
            for step in range(2 * STEPS):
                if step == STEPS:
                    engine.save_checkpoint(os.path.join(folder, kind), client_state={"note": "kept"})
                ids = torch.from_numpy(batch(folder, step, rank))
                loss = engine(input_ids=ids, labels=ids).loss
                losses.append(loss.item())
                engine.backward(loss)
                engine.step()
        except (RuntimeError, ValueError, AssertionError) as error:
            if dtype != "f16":
                raise
            print(f"{kind}: {error}", file=sys.stderr)
            continue
        with open(os.path.join(folder, f"{kind}-{rank}.json"), "w", encoding="utf-8") as file:
            json.dump(losses, file)


def resave(folder, target):
    """Writes the same checkpoint in torch's older form."""
    import torch

    for path in glob.glob(os.path.join(folder, "**", "*"), recursive=True):
        if not os.path.isfile(path):
            continue
        to = os.path.join(target, os.path.relpath(path, folder))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if path.endswith(".pt"):
            torch.save(torch.load(path, weights_only=False), to, _use_new_zipfile_serialization=False)
        else:
            shutil.copy(path, to)


def edited(path, edit):
    """Writes an archive of torch.save again, with each member replaced by edit(name, content)."""
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), edit(name, content))


def half(source, target):
    """Writes the checkpoint of --half. Edits pickles as bytes, so that neither torch nor DeepSpeed is needed."""
    def member(name, value):
        return b"X" + struct.pack("<I", len(name)) + name.encode() + value

    def integer(value):
        return b"J" + struct.pack("<i", value)

    def number(value):
        return b"G" + struct.pack(">d", value)

    scaler = (b"cdeepspeed.runtime.fp16.loss_scaler\nDynamicLossScaler\n)\x81}(" + member("cur_scale", number(512))
              + member("cur_iter", integer(5)) + member("last_overflow_iter", integer(3)) + member("scale_factor", number(2))
              + member("scale_window", integer(3)) + member("min_scale", integer(1)) + member("delayed_shift", integer(2))
              + member("cur_hysteresis", integer(1)) + member("consecutive_hysteresis", b"\x89")
              + member("raise_error_at_min_scale", b"\x88") + member("dtype", b"N") + member("dynamic", b"\x88") + b"ub")

    def state(name, content):
        if not name.endswith("data.pkl"):
            return content
        begin = content.index(b"cdeepspeed.runtime.fp16.loss_scaler\nLossScaler\n")
        end = content.index(b"\x89ub", begin) + 3
        return content[:begin] + scaler + content[end:].replace(b"dynamic_loss_scaleq\t\x89", b"dynamic_loss_scaleq\t\x88")

    def weights(name, content):
        if name.endswith("data.pkl"):
            return content.replace(b"FloatStorage", b"HalfStorage")
        if "/data/" not in name:
            return content
        return struct.pack(f"<{len(content) // 4}e", *struct.unpack(f"<{len(content) // 4}f", content))

    shutil.copytree(source, target)
    for path in glob.glob(os.path.join(target, "*", "*.pt")):
        edited(path, weights if path.endswith("model_states.pt") else state)


def fp32_of(saved):
    """Returns the result of zero_to_fp32 on a checkpoint: type, shape and checksum by name, and the number of the
    shard."""
    import torch
    from deepspeed.utils import zero_to_fp32

    tensors = zero_to_fp32.to_torch_tensor(
        zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(saved, lazy_mode=True), dtype=torch.float32)
    with tempfile.TemporaryDirectory() as scratch:
        zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict(saved, scratch, max_shard_size=SHARD)
        with open(os.path.join(scratch, "pytorch_model.bin.index.json"), encoding="utf-8") as file:
            places = json.load(file)["weight_map"]
    return {name: [str(tensor.dtype).removeprefix("torch."), list(tensor.shape),
                   zlib.crc32(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()) if tensor.numel() else 0,
                   int(places[name].split("-")[1])] for name, tensor in tensors.items()}


def record(folder, kinds):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(TINY, file, indent=2)
    launch(["--record-rank", folder, *kinds])
    losses = {}
    if os.path.exists(os.path.join(folder, "losses.json")):
        with open(os.path.join(folder, "losses.json"), encoding="utf-8") as file:
            losses = json.load(file)["losses"]
    for kind in kinds:
        parts = [os.path.join(folder, f"{kind}-{rank}.json") for rank in range(RANKS)]
        if not all(map(os.path.exists, parts)):
            continue
        each = [json.load(open(part, encoding="utf-8")) for part in parts]
        losses[kind] = [sum(step) / RANKS for step in zip(*each)][STEPS:]
        for part in parts:
            os.remove(part)
        for script in glob.glob(os.path.join(folder, kind, "*.py")):
            os.remove(script)
    for kind, target in (("zero1_f32", "universal1"), ("zero3_bf16", "universal3")):
        if kind in kinds:
            to_universal(os.path.join(folder, kind), os.path.join(folder, target, "global_step5"))
            losses[target] = losses[kind]
    if "zero2_bf16" in kinds:
        resave(os.path.join(folder, "zero2_bf16"), os.path.join(folder, "stream"))
        losses["stream"] = losses["zero2_bf16"]
    recorded = [kind for kind in KINDS if os.path.isdir(os.path.join(folder, kind))]
    with open(os.path.join(folder, "fp32.json"), "w", encoding="utf-8") as file:
        json.dump({kind: fp32_of(os.path.join(folder, kind)) for kind in recorded}, file)
    ids = [[batch(folder, step, rank).reshape(-1).tolist() for rank in range(RANKS)] for step in range(STEPS, 2 * STEPS)]
    with open(os.path.join(folder, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"config": settings(0, "f32"), "muon": {"type": "Muon", "params": MUON}, "ids": ids, "losses": losses}, file)


def launch(words):
    """Runs this file with the arguments `words` on every rank."""
    ranks.launch(" ".join(words), lambda rank: [os.path.abspath(__file__), *words], RANKS, rival="theirs" in words,
                 TORCH_COMPILE_DISABLE="1", DS_ACCELERATOR="cpu")


def train(side, scratch, **job):
    """Returns the mean loss over ranks of each step."""
    job["out"] = os.path.join(scratch, "losses")
    launch(["--rank", side, json.dumps(job)])
    losses = []
    for rank in range(RANKS):
        with open(f"{job['out']}-{rank}.json", encoding="utf-8") as file:
            losses.append(json.load(file))
    return [sum(step) / RANKS for step in zip(*losses)] if side == "theirs" else losses[0]


def convert(source, target, *options):
    done = subprocess.run([LIBDS, "convert", source, target, *options], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"libds convert {source} {target}: {done.stderr}")
    return json.loads(done.stdout)


def payload(folder):
    return subprocess.run([LIBDS, "verify", "--hash", folder], capture_output=True, text=True, check=True).stdout[:32]


def furthest(mine, other):
    return largest({step: abs(a - b) / abs(b) for step, (a, b) in enumerate(zip(mine, other, strict=True))})[0]


def same_fp32(saved, exported, stage, frozen):
    """Returns whether the files have the same names, types, shapes and bits as those of zero_to_fp32, and the same tensors in
    each file."""
    import torch
    from deepspeed.utils import zero_to_fp32
    from safetensors.torch import load_file

    other = zero_to_fp32.to_torch_tensor(
        zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(saved, lazy_mode=True), dtype=torch.float32)
    mine, places = {}, {}
    for path in sorted(glob.glob(os.path.join(exported, "*.safetensors"))):
        part = load_file(path)
        mine |= part
        places |= dict.fromkeys(part, os.path.basename(path))
    # zero_to_fp32 leaves out frozen parameters of stage 1.
    more = set(frozen) if stage == 1 else set()
    if set(mine) != set(other) | more:
        print(f"names differ: {sorted(set(mine) ^ set(other))}")
        return False
    different = [name for name in other if mine[name].dtype != other[name].dtype or mine[name].shape != other[name].shape
                 or not torch.equal(mine[name], other[name])]
    if different:
        print(f"tensors differ: {different}")
    if len(set(places.values())) > 1 and not more:
        with tempfile.TemporaryDirectory() as scratch:
            zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict(saved, scratch, max_shard_size=SHARD)
            with open(os.path.join(scratch, "pytorch_model.bin.index.json"), encoding="utf-8") as file:
                theirs_of = {name: place[len("pytorch_"):].replace(".bin", ".safetensors")
                             for name, place in json.load(file)["weight_map"].items()}
        if theirs_of != places:
            print("files differ")
            return False
    return not different


def to_universal(saved, target):
    tag = open(os.path.join(saved, "latest"), encoding="utf-8").read()
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
                    os.path.join(saved, tag), "--output_folder", target, "--num_extract_workers", "1",
                    "--num_merge_workers", "1", "--inject_missing_state"], check=True, capture_output=True,
                   env=os.environ | {"DS_ACCELERATOR": "cpu"})


def compare(model, stage, dtype, adam, frozen):
    job = {"model": os.path.join(MODELS, model), "stage": stage, "dtype": dtype, "adam": adam, "frozen": frozen}
    muon = adam == "muon"
    # ds_to_universal leaves out the frozen parameters of stage 3.
    whole = not (frozen and stage == 3)
    with tempfile.TemporaryDirectory() as scratch:
        at = lambda name: os.path.join(scratch, name)
        train("theirs", scratch, **job, first=0, last=STEPS + 1, save=at("saved"), save_at=STEPS)
        resumed = train("theirs", scratch, **job, first=STEPS, last=2 * STEPS, load=at("saved"))
        convert(at("saved"), at("converted"))
        mine = train("ours", scratch, **job, first=STEPS, last=3 * STEPS, load=at("converted"), save=at("own"),
                     save_at=2 * STEPS)
        there, again = furthest(mine[:STEPS], resumed), 0
        export = [at("own"), at("exported"), "--to", "universal", *(["--step-tensor"] if adam != "own" else [])]
        if muon:
            refused = subprocess.run([LIBDS, "convert", *export], capture_output=True, text=True)
            payloads = refused.returncode != 0 and "states of Muon are not exported" in refused.stderr
        else:
            convert(*export)
            back = train("theirs", scratch, **job, first=2 * STEPS, last=3 * STEPS, load=at("exported"), universal=True)
            again = furthest(back, mine[STEPS:])
        convert(at("saved"), at("fp32"), "--to", "fp32")
        convert(at("saved"), at("shards"), "--to", "fp32", "--file-bytes", str(SHARD))
        bits = same_fp32(at("saved"), at("fp32"), stage, frozen) and same_fp32(at("saved"), at("shards"), stage, frozen)
        if not muon and not whole:
            payloads = True
        elif not muon:
            to_universal(at("saved"), at("universal"))
            convert(at("universal"), at("again"))
            payloads = payload(at("again")) == payload(at("converted"))
            convert(at("universal"), at("universal_fp32"), "--to", "fp32")
            bits = bits and same_fp32(at("saved"), at("universal_fp32"), stage, frozen)
    allowed = TOLERANCE["muon" if muon else dtype]
    ok = bits and payloads and there <= allowed and again <= allowed
    universal = "refused by name" if muon else "left out: DeepSpeed's has no frozen parameters" if not whole else f"the same payload, losses of ours by DeepSpeed within {again:.1e}"
    print(f"{'ok  ' if ok else 'FAIL'} {model} stage {stage} {dtype} ({adam}): losses of DeepSpeed's resume within {there:.1e}; "
          f"zero_to_fp32 {'the same names and bits' if bits else 'DIFFERS'}; universal "
          f"{universal if payloads else 'DIFFERS'}", flush=True)
    return ok


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        job = json.loads(sys.argv[3])
        losses = (ours if sys.argv[2] == "ours" else theirs)(job)
        with open(f"{job['out']}-{os.environ['RANK']}.json", "w", encoding="utf-8") as file:
            json.dump(losses, file)
        return 0
    if len(sys.argv) == 4 and sys.argv[1] == "--half":
        half(sys.argv[2], sys.argv[3])
        return 0
    if len(sys.argv) >= 3 and sys.argv[1] in ("--record", "--record-rank"):
        (record if sys.argv[1] == "--record" else record_rank)(os.path.abspath(sys.argv[2]), sys.argv[3:] or list(KINDS))
        return 0
    wanted = sys.argv[1:]
    name = lambda case: ".".join(map(str, case[:4]))
    done = [compare(*case) for case in CASES
            if not wanted or any(name(case) == want or name(case).startswith(want + ".") for want in wanted)]
    return 0 if done and all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
