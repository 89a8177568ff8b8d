"""Compares a training step with torch or DeepSpeed, in turns:
  ./run bench train_step [ROUNDS] [gpt2|llama] [THREADS] [STEPS]
  ./run bench train_step --ranks 2 [ROUNDS] [STAGES] [STEPS]      STAGES: as in 0123
  ./run bench train_step --reproducible [ROUNDS] [MICRO_STEPS]    the cost of the order of `reproducible`
  ./run bench train_step --device cuda:0 [ROUNDS] [gpt2|gpt2-xl] [STEPS]

Both sides train GPT-2 124M (or a 125M Llama) in the shape of Transformers' model, on a batch of 4 x 512 random tokens, in bf16:
loss, gradient, clip 1.0, AdamW. libds has f32 masters and states and 1 rank. torch has f32 parameters under autocast, or bf16
parameters and states, each eager and compiled, with fused AdamW and scaled_dot_product_attention. The process of libds stays.
Each mode of torch is started, warmed up, and takes ROUNDS turns of STEPS steps with it (one side waits while the other
computes). Prints the best step of each side, ru_maxrss and the ratios. Bars: 1.7 times the speed of the faster eager mode,
1.2 times the speed of the faster compiled mode, and no more ru_maxrss than autocast+compile.

With --ranks: GPT-2 on N processes of one thread with ZeRO stages, batch 4 x 512 in total, against DeepSpeed on gloo with its
own Adam and with torch's (bf16, f32 masters, overlap_comm, contiguous_gradients). Bars: 1.5 times the speed of the faster of
the two at each stage, and stage 3 of libds within 10 % of its stage 0.

With --reproducible: libds against itself on 2 ranks. One side sums over MICRO_STEPS (4) micro-steps in the order that is the
same on any number of ranks, the other in the order in which gradients come. Bar: at most 1.1 times the time, at stages 0 and
3.

With --device: GPT-2 124M, batch 16 x 1024, or GPT-2 XL (1.5B), batch 8 x 1024, on a GPU, against compiled torch. Bar: as fast
as the faster compiled mode. DS_BUILD: the folder with bin/bench_train_step for this form, if it is not `build`.
"""
import os
import re
import resource
import socket
import subprocess
import sys
import time

import verdict

MODES = ("autocast", "bf16", "autocast+compile", "bf16+compile")
ROWS, SEQ = 4, 512
GPU_ROWS, GPU_SEQ = {"gpt2": 16, "gpt2-xl": 8}, 1024


def build(name):
    import transformers

    if name.startswith("gpt2"):
        shape = {"n_embd": 1600, "n_layer": 48, "n_head": 25} if name == "gpt2-xl" else {}
        config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, **shape)
        kind = transformers.GPT2LMHeadModel
    else:
        hidden, inner, layers, heads = (2048, 5632, 22, 32) if name == "tinyllama" else (768, 2048, 12, 12)
        config = transformers.LlamaConfig(
            hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=4, max_position_embeddings=1024, vocab_size=32000, rms_norm_eps=1e-5,
            tie_word_embeddings=False, use_cache=False)
        kind = transformers.LlamaForCausalLM
    config._attn_implementation = "sdpa"
    return kind(config).train(), config.vocab_size


def serve_steps(loss_of, trained, optimizer):
    """Makes two steps of torch, prints "ready", then makes one for each line of standard input and prints its seconds."""
    import torch

    def step():
        begin = time.perf_counter()
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        loss.item()
        return time.perf_counter() - begin

    step(), step()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(f"{step():.6f}", flush=True)


def torch_side(name, threads, mode, device="cpu"):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    kind = device.split(":", maxsplit=1)[0]
    rows, seq = (ROWS, SEQ) if kind == "cpu" else (GPU_ROWS[name], GPU_SEQ)
    model, vocab = build(name)
    model = model.to(device)
    if mode.startswith("bf16"):
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if "compile" in mode else model
    tokens = torch.randint(0, vocab, (rows, seq)).to(device)

    def loss_of():
        with torch.autocast(kind, torch.bfloat16, enabled=mode.startswith("autocast")):
            return forward(tokens, labels=tokens).loss

    serve_steps(loss_of, list(model.parameters()), optimizer)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if kind == "cuda":
        peak = torch.cuda.max_memory_reserved() / 2**30
    print(f"torch {torch.__version__} {name} {mode} th={threads} peakRSS {peak:.2f} GiB")


def deepspeed_side(rank, ranks, stage, torch_adam):
    import deepspeed
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo", verbose=False)
    model, vocab = build("gpt2")
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": ROWS // ranks, "gradient_clipping": 1.0, "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "overlap_comm": True, "contiguous_gradients": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": torch_adam}}})
    tokens = torch.randint(0, vocab, (ROWS // ranks, SEQ))
    go = torch.zeros(1)

    def step():
        begin = time.perf_counter()
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
        torch.distributed.barrier()
        return time.perf_counter() - begin

    step(), step()
    if rank == 0:
        print("ready", flush=True)
    while True:  # rank 0 tells the others of every line, and of the end of lines
        go[0] = float(rank == 0 and sys.stdin.readline() != "")
        torch.distributed.broadcast(go, 0)
        if go[0] == 0:
            break
        seconds = step()
        if rank == 0:
            print(f"{seconds:.6f}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if rank == 0:
        print(f"deepspeed {deepspeed.__version__} stage={stage} peakRSS {peak:.2f} GiB", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Side:
    """Processes that take one step for every line that the first one receives. Other output goes to a log."""

    def __init__(self, command, root, ranks=1):
        os.makedirs(os.path.join(root, "build"), exist_ok=True)  # a machine that gpu-check was carried to has no such folder
        log = open(os.path.join(root, "build", "bench_rival.log"), "a")
        environment = dict(os.environ)
        if ranks > 1:
            # One thread a rank: without OMP_NUM_THREADS, DeepSpeed's own Adam uses all cores in every rank.
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks),
                            "OMP_NUM_THREADS": "1"}
        self.others = [
            subprocess.Popen(command + [str(rank)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=root,
                             env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(1, ranks)]
        first = command + ["0"] if ranks > 1 else command
        environment |= {"RANK": "0", "LOCAL_RANK": "0"} if ranks > 1 else {}
        self.process = subprocess.Popen(first, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                        cwd=root, env=environment)
        while self.line() != "ready":
            pass

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            sys.exit(f"{self.process.args} ended with {self.process.wait()}")
        return text.strip()

    def steps(self, count):
        seconds = []
        for _ in range(count):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            text = self.line()
            while not re.fullmatch(r"[\d.]+", text):  # skips other output of a rival
                text = self.line()
            seconds.append(float(text))
        return min(seconds)

    def peak_gib(self):
        self.process.stdin.close()
        text = self.line()
        while "peakRSS" not in text:
            text = self.line()
        for process in [self.process] + self.others:
            process.wait()
        return float(re.search(r"peakRSS ([\d.]+)", text).group(1))


def turns(ours, theirs, rounds, steps):
    """Returns the best seconds of each side."""
    pairs = [(ours.steps(steps), theirs.steps(steps)) for _ in range(rounds)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def judge_stage(bars, stage, ratios, peak):
    """ratios: our tokens per second over those of DeepSpeed, with each Adam."""
    print(f"stage {stage}: {min(ratios):.2f} x the faster of the two "
          f"({bars.least(f'stage {stage}: libds / DeepSpeed', min(ratios), 1.5)}), ru_maxrss of rank 0 {peak:.2f} GiB", flush=True)


def judge_stages(bars, zero, three):
    """zero, three: seconds of a step of libds at these stages."""
    print(f"libds stage 0 {ROWS * SEQ / zero:.0f}, stage 3 {ROWS * SEQ / three:.0f} tokens/s in turns: "
          f"{zero / three:.2f} ({bars.least('libds: stage 3 / stage 0', zero / three, 0.9)})")


def judge_torch(bars, ratio, ours, theirs):
    """ratio: our tokens per second over those of torch, by mode; ours, theirs: ru_maxrss in GiB, theirs of autocast+compile."""
    eager, compiled = min(ratio[mode] for mode in MODES[:2]), min(ratio[mode] for mode in MODES[2:])
    print(f"libds is {eager:.2f} x the faster eager mode ({bars.least('libds / torch eager', eager, 1.7)}), {compiled:.2f} x "
          f"the faster compiled mode ({bars.least('libds / torch compiled', compiled, 1.2)})")
    print(f"ru_maxrss: libds {ours:.2f} GiB, autocast+compile {theirs:.2f} GiB "
          f"({bars.most('ru_maxrss of libds in GiB', ours, theirs)})")


def beside_deepspeed(bars, root, ranks, rounds, stages, steps):
    print(f"gpt2, {ranks} ranks of 1 thread, best of {rounds} turns of {steps} steps, tokens/s")

    def libds(stage):
        binary = os.path.join(root, "build", "bin", "bench_train_step")
        return Side([binary, "gpt2", "1", "0", "--ranks", str(ranks), "--stage", stage], root)

    for stage in stages:
        ours, ratios = libds(stage), []
        for adam in ("own", "torch"):
            theirs = Side([sys.executable, os.path.abspath(__file__), "--deepspeed", str(ranks), stage, adam], root, ranks)
            mine, other = turns(ours, theirs, rounds, steps)
            ratios.append(other / mine)
            print(f"stage {stage} {adam:5} Adam  libds {ROWS * SEQ / mine:6.0f}  DeepSpeed {ROWS * SEQ / other:6.0f}  "
                  f"ratio {ratios[-1]:.2f}  ru_maxrss of rank 0 {theirs.peak_gib():.2f} GiB", flush=True)
        judge_stage(bars, stage, ratios, ours.peak_gib())
    first, last = libds("0"), libds("3")
    zero, three = turns(first, last, rounds, steps)
    judge_stages(bars, zero, three)
    first.peak_gib(), last.peak_gib()


def judge_reproducible(bars, stage, tokens, first, second):
    """first, second: seconds of a step with sums as gradients come, and in the fixed order."""
    print(f"stage {stage}: as they come {tokens / first:.0f}, reproducible {tokens / second:.0f}, time {second / first:.3f} "
          f"({bars.most(f'stage {stage}: reproducible / as they come', second / first, 1.1)})", flush=True)


def cost_of_reproducible(bars, root, rounds, micro_steps):
    print(f"gpt2, 2 ranks of 1 thread, {micro_steps} micro-steps, best of {rounds} turns, tokens/s")
    for stage in "03":
        binary = os.path.join(root, "build", "bin", "bench_train_step")
        command = [binary, "gpt2", "1", "0", "--ranks", "2", "--stage", stage, "--micro-steps", micro_steps]
        plain, ordered = Side(command, root), Side(command + ["--reproducible"], root)
        first, second = turns(plain, ordered, rounds, 1)
        judge_reproducible(bars, stage, ROWS * SEQ * int(micro_steps), first, second)
        print(f"  ru_maxrss of rank 0 {plain.peak_gib():.2f} and {ordered.peak_gib():.2f} GiB", flush=True)


def on_device(bars, root, device, rounds, name, steps):
    rows = GPU_ROWS[name]
    tokens = rows * GPU_SEQ
    binary = os.path.join(os.environ.get("DS_BUILD") or os.path.join(root, "build"), "bin", "bench_train_step")
    ours = Side([binary, name, "4", "0", "--device", device, "--samples", str(rows), "--seq", str(GPU_SEQ)], root)
    print(f"{name} on {device}, batch {rows} x {GPU_SEQ}, best of {rounds} turns of {steps} steps, tokens/s", flush=True)
    ratios = []
    for mode in MODES[2:]:
        theirs = Side([sys.executable, os.path.abspath(__file__), "--torch", name, "4", mode, device], root)
        mine, other = turns(ours, theirs, rounds, steps)
        ratios.append(other / mine)
        print(f"{mode:18} libds {tokens / mine:8.0f}  torch {tokens / other:8.0f}  ratio {ratios[-1]:.2f}  "
              f"memory of torch {theirs.peak_gib():.2f} GiB", flush=True)
    ours.peak_gib()
    print(f"libds is {min(ratios):.2f} x the faster compiled mode ({bars.least('libds / torch compiled', min(ratios), 1.0)})")


def main(bars):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if len(sys.argv) > 1 and sys.argv[1] == "--ranks":
        ranks, rounds, stages, steps = (sys.argv[2:] + ["2", "5", "0123", "1"][len(sys.argv) - 2:])[:4]
        return beside_deepspeed(bars, root, int(ranks), int(rounds), stages, int(steps))
    if len(sys.argv) > 2 and sys.argv[1] == "--device":
        rounds, name, steps = (sys.argv[3:] + ["3", "gpt2", "10"][len(sys.argv) - 3:])[:3]
        return on_device(bars, root, sys.argv[2], int(rounds), name, int(steps))
    if len(sys.argv) > 1 and sys.argv[1] == "--reproducible":
        rounds, micro_steps = (sys.argv[2:] + ["5", "4"][len(sys.argv) - 2:])[:2]
        return cost_of_reproducible(bars, root, int(rounds), micro_steps)
    rounds, name, threads, steps = (sys.argv[1:] + ["5", "gpt2", "2", "2"][len(sys.argv) - 1:])[:4]
    tokens = ROWS * SEQ
    ours = Side([os.path.join(root, "build", "bin", "bench_train_step"), name, threads, "0"], root)
    ratio, peak = {}, {}
    print(f"{name}, {threads} threads, best of {rounds} turns of {steps} steps, tokens/s")
    for mode in MODES:
        theirs = Side([sys.executable, os.path.abspath(__file__), "--torch", name, threads, mode], root)
        best_ours, best_theirs = turns(ours, theirs, int(rounds), int(steps))
        ratio[mode], peak[mode] = best_theirs / best_ours, theirs.peak_gib()
        print(f"{mode:18} libds {tokens / best_ours:6.0f}  torch {tokens / best_theirs:6.0f}  "
              f"ratio {ratio[mode]:.2f}  ru_maxrss {peak[mode]:.2f} GiB", flush=True)
    judge_torch(bars, ratio, ours.peak_gib(), peak["autocast+compile"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--torch"]:
        torch_side(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
    elif sys.argv[1:2] == ["--deepspeed"]:
        ranks, stage, adam, rank = sys.argv[2:6]
        deepspeed_side(int(rank), int(ranks), int(stage), adam == "torch")
    else:
        verdict.run(main)
