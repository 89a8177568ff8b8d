"""Compares steps of a 7M GPT with torch eager, in turns: ./run bench train_small [ROUNDS].

libds has 2 ranks of 1 thread, bf16 with f32 masters, ZeRO-3 and tier device. torch is eager, with autocast to bf16 and 2
threads. Both train the same model with batch 16 x 128, AdamW (torch's is fused) and clip 1.0. Prints the best and the median
tokens per second of each and the ratio of the bests. Bar: a ratio of at least 1.2.
"""
import os
import re
import subprocess
import sys
import time

import verdict

STEPS = 20


def torch_side():
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(2)
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, c, heads):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
            self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
            self.fc, self.out = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self, vocab=256, t=128, c=384, heads=6, layers=4):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, c), nn.Embedding(t, c)
            self.blocks = nn.ModuleList(Block(c, heads) for _ in range(layers))
            self.ln_f = nn.LayerNorm(c)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens, targets = torch.randint(256, (16, 128)), torch.randint(256, (16, 128))
    times = []
    for step in range(STEPS + 3):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        loss.item()
        if step >= 3:
            times.append(time.perf_counter() - begin)
    times.sort()
    print(f"torch {torch.__version__} eager autocast bf16 threads=2: best {2048 / times[0]:.0f} tok/s "
          f"median {2048 / times[len(times) // 2]:.0f} loss {loss.item():.3f}")


def best(text):
    return float(re.search(r"best (\d+) tok/s", text).group(1))


def judge(bars, rounds, ours, torch):
    print(f"best of {rounds}: libds {ours:.0f} tok/s, torch {torch:.0f} tok/s, ratio {ours / torch:.2f} "
          f"({bars.least('libds / torch', ours / torch, 1.2)})")


def main(bars):
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    ours = [os.path.join(root, "build", "bin", "bench_train_small"), str(STEPS), "device", "3"]
    theirs = [sys.executable, os.path.abspath(__file__), "--torch"]
    bests = {"libds": 0.0, "torch": 0.0}
    for _ in range(rounds):
        for name, command in (("libds", ours), ("torch", theirs)):
            text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout.strip()
            print(text, flush=True)
            bests[name] = max(bests[name], best(text))
    judge(bars, rounds, bests["libds"], bests["torch"])


if __name__ == "__main__":
    if sys.argv[1:] == ["--torch"]:
        torch_side()
    else:
        verdict.run(main)
