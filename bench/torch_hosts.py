"""Compares what engines add to forward and backward of torch: libds.torch, DeepSpeed and FSDP2, in turns:
  ./run bench torch_hosts [ROUNDS] [STAGES] [RANKS] [TYPES] [ROWS] [LENGTH] [cpu]

GPT-2 124M of Transformers on RANKS (12: one, then two) processes of one thread, at ZeRO STAGES (023), in TYPES (f32,bf16), with ROWS x
LENGTH (1 x 32) random tokens a rank. The bare side runs forward and backward of torch alone and drops the gradients. DeepSpeed is on gloo
with its own CPU Adam, overlap_comm and contiguous_gradients; FSDP2 shards each block, has torch's fused AdamW, and stands beside stages
2 (reshard_after_forward False) and 3. Each side makes two steps, then ROUNDS (5) turns of two steps; the medians of CPU and wall time of
rank 0 count. What a side adds is its time less that of the bare side.

Bars: libds adds at most 0.3 (stage 0) and 0.2 (stages 2 and 3) of what DeepSpeed adds, and half of what FSDP2 adds; its tokens a second are
at least those of both; its ru_maxrss is at most theirs. With `cpu`, for a machine that is not idle, only CPU time and memory are judged.
"""
import os
import platform
import re
import resource
import statistics
import sys
import time

import verdict
from train_step import Side, free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def model_of(dtype):
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    config._attn_implementation = "sdpa"
    model = transformers.GPT2LMHeadModel(config).train()
    return (model.bfloat16() if dtype == "bf16" else model), config.vocab_size


def settings(stage, dtype, rows):
    return {"train_micro_batch_size_per_gpu": rows, "gradient_clipping": 1.0, "bf16": {"enabled": dtype == "bf16"},
            "zero_optimization": {"stage": stage, "overlap_comm": True, "contiguous_gradients": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}


def bare_step(stage, dtype, rows):
    model, vocab = model_of(dtype)

    def step(tokens):
        model(input_ids=tokens, labels=tokens).loss.backward()
        for param in model.parameters():
            param.grad = None

    return step, vocab


def libds_step(stage, dtype, rows):
    sys.path.insert(0, os.path.join(ROOT, "build", "python"))
    import libds.torch

    model, vocab = model_of("f32")
    engine, *_ = libds.torch.initialize(model=model, config=settings(stage, dtype, rows))

    def step(tokens):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()

    return step, vocab


def deepspeed_step(stage, dtype, rows):
    import deepspeed

    deepspeed.init_distributed("gloo", verbose=False)
    model, vocab = model_of("f32")
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings(stage, dtype, rows))

    def step(tokens):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()

    return step, vocab


def fsdp_step(stage, dtype, rows):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.distributed.init_process_group("gloo")
    model, vocab = model_of("f32")
    options = {"mesh": init_device_mesh("cpu", (torch.distributed.get_world_size(),)), "reshard_after_forward": stage == 3}
    if dtype == "bf16":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for block in model.transformer.h:
        fully_shard(block, **options)
    fully_shard(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(tokens):
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step, vocab


def serve(kind, rank, ranks, stage, dtype, rows, length):
    """Makes a step for each line that rank 0 gets, and prints its CPU and wall seconds."""
    import torch

    make = {"bare": bare_step, "libds": libds_step, "deepspeed": deepspeed_step, "fsdp": fsdp_step}[kind]
    step, vocab = make(stage, dtype, rows)
    torch.manual_seed(rank)
    tokens = torch.randint(0, vocab, (rows, length))
    go = torch.zeros(1)
    if ranks > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")

    def timed():
        cpu, wall = time.process_time(), time.perf_counter()
        step(tokens)
        if ranks > 1:
            torch.distributed.barrier()
        return time.process_time() - cpu, time.perf_counter() - wall

    timed(), timed()
    if rank == 0:
        print("ready", flush=True)
    while True:
        go[0] = float(rank == 0 and sys.stdin.readline() != "")
        if ranks > 1:
            torch.distributed.broadcast(go, 0)
        if go[0] == 0:
            break
        cpu, wall = timed()
        if rank == 0:
            print(f"{cpu:.6f} {wall:.6f}", flush=True)
    if rank == 0:
        print(f"peakRSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.3f} GiB", flush=True)


class Steps(Side):
    """A side whose answer is a pair of seconds: CPU and wall."""

    def pair(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        text = self.line()
        while not re.fullmatch(r"[\d.]+ [\d.]+", text):
            text = self.line()
        return [float(word) for word in text.split()]


def side_of(command, ranks):
    os.environ["MASTER_PORT"] = str(free_port())
    return Steps(command, ROOT, ranks)


def measure(sides, rounds):
    """Returns the median CPU and wall seconds of each side, which take turns."""
    times = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            times[name] += [side.pair(), side.pair()]
    return {name: [statistics.median(column) for column in zip(*pairs)] for name, pairs in times.items()}


def judge(bars, case, stage, got, peaks, rival, tokens, kinds):
    print(f"{case}: " + ", ".join(f"{name} {seconds[0] * 1e3:.0f} ms CPU, {seconds[1] * 1e3:.0f} wall, {peaks[name]:.2f} GiB"
                                  for name, seconds in got.items()), flush=True)
    most = 0.5 if rival == "fsdp" else 0.3 if stage == 0 else 0.2
    for at, kind in enumerate(kinds):
        added = {name: got[name][at] - got["bare"][at] for name in ("libds", rival)}
        share = added["libds"] / added[rival] if added[rival] > 0 else float("inf")
        ratio = got[rival][at] / got["libds"][at]
        print(f"  {kind}: libds adds {added['libds'] * 1e3:.0f} ms, {rival} {added[rival] * 1e3:.0f}: "
              f"{share:.2f} ({bars.most(f'{case}: {kind} added / {rival}', share, most)}); {tokens / got['libds'][at]:.0f} tokens/s a rank, "
              f"{ratio:.2f} x ({bars.least(f'{case}: {kind} tokens / {rival}', ratio, 1.0)})", flush=True)
    share = peaks["libds"] / peaks[rival]
    print(f"  ru_maxrss: {share:.2f} of {rival} ({bars.most(f'{case}: ru_maxrss / {rival}', share, 1.0)})", flush=True)


def main(bars):
    words = [word for word in sys.argv[1:] if word != "cpu"]
    rounds, stages, counts, types, rows, length = (words + ["5", "023", "12", "f32,bf16", "1", "32"][len(words):])[:6]
    kinds = ("CPU",) if "cpu" in sys.argv else ("CPU", "wall")
    print(f"{platform.processor() or platform.machine()}, GPT-2 124M, {rows} x {length} tokens a rank, one thread a rank, medians of {rounds} turns")
    for ranks in map(int, counts):
        for dtype in types.split(","):
            for stage in map(int, stages):
                if ranks == 1:  # DeepSpeed makes a group of one, at a port of its own
                    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
                # Three sides of two ranks fill the memory of the machine, so the rivals take turns with libds one after the other.
                for rival in ["deepspeed"] + (["fsdp"] if stage >= 2 and ranks > 1 else []):
                    sides = {name: side_of([sys.executable, os.path.abspath(__file__), "--side", name, str(ranks), str(stage), dtype, rows, length],
                                           ranks) for name in ("bare", "libds", rival)}
                    got = measure(sides, int(rounds))
                    peaks = {name: side.peak_gib() for name, side in sides.items()}
                    judge(bars, f"{dtype}, stage {stage}, {ranks} rank{'s' if ranks > 1 else ''}", stage, got, peaks, rival,
                          int(rows) * int(length), kinds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        name, count, level, kind_of, row_count, many = sys.argv[2:8]
        own = int(sys.argv[8]) if int(count) > 1 else 0
        serve(name, own, int(count), int(level), kind_of, int(row_count), int(many))
    else:
        verdict.run(main)
