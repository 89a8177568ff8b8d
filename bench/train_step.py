"""A training step beside torch, in one interleaved run: ./run bench train_step [ROUNDS] [gpt2|llama] [THREADS] [STEPS].

Both sides: GPT-2 124M (or a 125M Llama) of Transformers' shape, batch 4 x 512 random tokens, bf16, loss, gradient,
clip 1.0, AdamW. libds: f32 masters and states, 1 rank. torch: f32 parameters under autocast, or bf16 parameters and
states, each eager and compiled, fused AdamW, scaled_dot_product_attention. Prints the best of all rounds, ru_maxrss
and the two ratios of the bars: faster eager mode x 1.7, faster compiled mode x 1.2.
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


def torch_side(name, threads, mode, steps):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, vocab = build(name)
    if mode.startswith("bf16"):
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if "compile" in mode else model
    tokens = torch.randint(0, vocab, (ROWS, SEQ))
    times = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=mode.startswith("autocast")):
            loss = forward(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        loss.item()
        times.append(time.perf_counter() - begin)
    times = sorted(times[2:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"torch {torch.__version__} {name} {mode} th={threads} B={ROWS} T={SEQ}: best "
          f"{ROWS * SEQ / times[0]:.0f} tok/s median {ROWS * SEQ / times[len(times) // 2]:.0f} "
          f"loss {loss.item():.3f} peakRSS {peak:.2f} GiB")


def measure(command, root):
    text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout.strip()
    line = text.splitlines()[-1]
    print(line, flush=True)
    return float(re.search(r"best (\d+) tok/s", line).group(1)), float(re.search(r"peakRSS ([\d.]+)", line).group(1))


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--torch":
        return torch_side(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    rounds, name, threads, steps = (sys.argv[1:] + ["5", "gpt2", "2", "5"][len(sys.argv) - 1:])[:4]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sides = {"libds": [os.path.join(root, "build", "bin", "bench_train_step"), name, threads, steps]}
    for mode in MODES:
        sides[mode] = [sys.executable, os.path.abspath(__file__), "--torch", name, threads, mode, steps]
    best = dict.fromkeys(sides, (0.0, 0.0))
    for _ in range(int(rounds)):
        for side, command in sides.items():
            best[side] = max(best[side], measure(command, root))
    speed = {side: figures[0] for side, figures in best.items()}
    for what, bar, modes in (("eager", 1.7, MODES[:2]), ("compiled", 1.2, MODES[2:])):
        ratio = speed["libds"] / max(speed[mode] for mode in modes)
        print(f"best of {rounds}: libds {speed['libds']:.0f} tok/s = {ratio:.2f} x the faster {what} torch (bar {bar})")
    print(f"ru_maxrss: libds {best['libds'][1]:.2f} GiB, torch autocast+compile {best['autocast+compile'][1]:.2f} GiB")


if __name__ == "__main__":
    main()
