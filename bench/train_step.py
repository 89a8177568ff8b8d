"""A training step beside torch, in turns: ./run bench train_step [ROUNDS] [gpt2|llama] [THREADS] [STEPS].

Both sides: GPT-2 124M (or a 125M Llama) of Transformers' shape, batch 4 x 512 random tokens, bf16, loss, gradient,
clip 1.0, AdamW. libds: f32 masters and states, 1 rank. torch: f32 parameters under autocast, or bf16 parameters and
states, each eager and compiled, fused AdamW, scaled_dot_product_attention. libds stays up; each mode of torch is
started, warmed up, and takes ROUNDS turns of STEPS steps with it (one side waits while the other computes). Prints the
best step of either side, ru_maxrss and the ratios; the bars are 1.7 x the faster eager mode, 1.2 x the faster compiled.
"""
import os
import re
import resource
import subprocess
import sys
import time

MODES = ("autocast", "bf16", "autocast+compile", "bf16+compile")
ROWS, SEQ = 4, 512


def build(name):
    import transformers

    if name == "gpt2":
        config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
        kind = transformers.GPT2LMHeadModel
    else:
        config = transformers.LlamaConfig(
            hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
            num_key_value_heads=4, max_position_embeddings=1024, vocab_size=32000, rms_norm_eps=1e-5,
            tie_word_embeddings=False, use_cache=False)
        kind = transformers.LlamaForCausalLM
    config._attn_implementation = "sdpa"
    return kind(config).train(), config.vocab_size


def torch_side(name, threads, mode):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, vocab = build(name)
    if mode.startswith("bf16"):
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if "compile" in mode else model
    tokens = torch.randint(0, vocab, (ROWS, SEQ))
    def step():
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=mode.startswith("autocast")):
            loss = forward(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        loss.item()
        return time.perf_counter() - begin

    step(), step()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(f"{step():.6f}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"torch {torch.__version__} {name} {mode} th={threads} peakRSS {peak:.2f} GiB")


class Side:
    """A process that takes one step for every line it is sent."""

    def __init__(self, command, root):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
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
            seconds.append(float(self.line()))
        return min(seconds)

    def peak_gib(self):
        self.process.stdin.close()
        text = self.line()
        self.process.wait()
        return float(re.search(r"peakRSS ([\d.]+)", text).group(1))


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--torch":
        return torch_side(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    rounds, name, threads, steps = (sys.argv[1:] + ["5", "gpt2", "2", "2"][len(sys.argv) - 1:])[:4]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tokens = ROWS * SEQ
    ours = Side([os.path.join(root, "build", "bin", "bench_train_step"), name, threads, "0"], root)
    ratio, peak = {}, {}
    print(f"{name}, {threads} threads, best of {rounds} turns of {steps} steps, tokens/s")
    for mode in MODES:
        theirs = Side([sys.executable, os.path.abspath(__file__), "--torch", name, threads, mode], root)
        best_ours = best_theirs = float("inf")
        for _ in range(int(rounds)):
            best_ours = min(best_ours, ours.steps(int(steps)))
            best_theirs = min(best_theirs, theirs.steps(int(steps)))
        ratio[mode], peak[mode] = best_theirs / best_ours, theirs.peak_gib()
        print(f"{mode:18} libds {tokens / best_ours:6.0f}  torch {tokens / best_theirs:6.0f}  "
              f"ratio {ratio[mode]:.2f}  ru_maxrss {peak[mode]:.2f} GiB", flush=True)
    eager, compiled = min(ratio[mode] for mode in MODES[:2]), min(ratio[mode] for mode in MODES[2:])
    print(f"libds is {eager:.2f} x the faster eager mode (bar 1.7), {compiled:.2f} x the faster compiled mode (bar 1.2)")
    print(f"ru_maxrss: libds {ours.peak_gib():.2f} GiB (bar: autocast+compile, {peak['autocast+compile']:.2f} GiB)")


if __name__ == "__main__":
    main()
