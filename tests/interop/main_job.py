"""Configures a GPT of 7 million parameters on bytes, otherwise like examples/train.json, for comparisons with PyTorch."""
import json
import os
import sys

import numpy as np
from torch.nn import functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "build", "python"))
import libds  # noqa: E402

LAYERS, WIDTH, HEADS, VOCAB, SEQ, MICRO = 4, 384, 6, 256, 128, 8


def config():
    """Returns examples/train.json on one rank, with states in memory and the model above."""
    with open(os.path.join(ROOT, "examples", "train.json"), encoding="utf-8") as file:
        made = json.loads("".join(line.split("//")[0] + "\n" for line in file))
    made["zero_optimization"] = {"stage": 0}
    made["train_micro_batch_size_per_gpu"] = MICRO
    made["optimizer"]["params"]["lr"] = 1e-3
    made["scheduler"]["params"].update(total_num_steps=450, warmup_num_steps=20)
    made["model"] = {"family": "gpt", "layers": LAYERS, "hidden": WIDTH, "heads": HEADS, "vocab": VOCAB,
                     "positions": SEQ, "dropout": 0}
    made["data"] = {}
    made["run"] = {"sequence": SEQ, "steps": 450, "seed": 1}
    return made


def read(engine, kind):
    """Returns the f32 values of every parameter, of one kind of state, by name."""
    return {param.name: np.array(engine.read(param, kind)) for param in engine.params}


def forward(p, tokens, targets):
    """Returns the loss of one micro-batch. It is computed in the element type of the parameters `p`, except for the softmax
    over logits, which is computed in f32."""
    x = p["wte.weight"][tokens] + p["wpe.weight"][:SEQ]
    for i in range(LAYERS):
        h = f"h.{i}."
        y = F.layer_norm(x, (WIDTH,), p[h + "ln_1.weight"], p[h + "ln_1.bias"])
        q, k, v = F.linear(y, p[h + "attn.qkv.weight"], p[h + "attn.qkv.bias"]).split(WIDTH, dim=-1)
        q, k, v = (t.view(MICRO, SEQ, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(MICRO, SEQ, WIDTH)
        x = x + F.linear(y, p[h + "attn.proj.weight"], p[h + "attn.proj.bias"])
        y = F.layer_norm(x, (WIDTH,), p[h + "ln_2.weight"], p[h + "ln_2.bias"])
        y = F.gelu(F.linear(y, p[h + "mlp.fc.weight"], p[h + "mlp.fc.bias"]), approximate="tanh")
        x = x + F.linear(y, p[h + "mlp.proj.weight"], p[h + "mlp.proj.bias"])
    x = F.layer_norm(x, (WIDTH,), p["ln_f.weight"], p["ln_f.bias"])
    return F.cross_entropy(F.linear(x, p["wte.weight"]).view(-1, VOCAB).float(), targets.reshape(-1))


def check(name, ok, detail):
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {detail}", flush=True)
    return ok
