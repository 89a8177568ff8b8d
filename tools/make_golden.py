#!/usr/bin/env python3
"""Records beside a Hugging Face model what a correct implementation computes from it, for `libds verify`.

usage: make_golden.py FOLDER [--rows 2] [--tokens 16] [--seed 0] [--steps 10] [--new-tokens 16] [--ids FILE]

FOLDER holds config.json and model.safetensors (or shards). Writes FOLDER/golden.json and FOLDER/golden.safetensors;
docs/verify.md says what each member means. Token ids are drawn at random, or read from FILE (numbers in text). Needs
torch and transformers; works on the CPU in float32 with eager attention, and once more in float64, whose distance
gives the tolerances.
"""
import argparse
import contextlib
import copy
import json
import math
import os
import pathlib
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import safetensors.torch
import torch
import transformers

ADAMW = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
SGD = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}
CLIP, SGD_STEPS = 1.0, 5
ULP = 2.0**-23
TAKE_MASK = {"bert", "opt"}  # families that libds gives a padding mask


@contextlib.contextmanager
def everything_double():
    """Model code that asks for float32 by name gets float64 inside."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept
        torch.set_default_dtype(torch.float32)


class Model:
    """A model folder in one element type."""

    def __init__(self, folder, dtype=torch.float32):
        config = transformers.AutoConfig.from_pretrained(folder)
        self.masked_lm = (config.architectures or [""])[0].endswith("MaskedLM")
        self.auto = transformers.AutoModelForMaskedLM if self.masked_lm else transformers.AutoModelForCausalLM
        options = {"attn_implementation": "eager"}
        if hasattr(config, "num_local_experts"):
            options["experts_implementation"] = "eager"
        first = self.auto.from_pretrained(folder, dtype=torch.float64 if dtype == torch.float64 else torch.float32,
                                          **options)
        if dtype == torch.float64:  # constants such as rope frequencies once more, in float64
            weights = first.state_dict()
            with everything_double():
                first = self.auto.from_config(first.config, dtype=torch.float64, **options)
            first.load_state_dict(weights)
            first.tie_weights()
        self.net = first.to(dtype).eval()
        self.config = self.net.config
        self.dtype = dtype

    def named(self):
        """Parameters by the name that they have in memory, a tied one once; without those that nothing reads."""
        unread = {"cls.predictions.bias"} if self.masked_lm and not self.config.tie_word_embeddings else set()
        return {name: param for name, param in self.net.named_parameters() if name not in unread}

    def in_file(self, tensors):
        """Tensors of parameters, given by name in memory, by the names and in the cut that the file has."""
        tensors = {name: value.detach().clone() for name, value in tensors.items()}
        with tempfile.TemporaryDirectory() as folder:
            self.net.save_pretrained(folder, state_dict=tensors)
            out = {}
            for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
                out |= safetensors.torch.load_file(path)
        return out

    def loss(self, batch):
        scope = everything_double() if self.dtype == torch.float64 else contextlib.nullcontext()
        with scope:
            out = self.net(**batch, use_cache=False) if not self.masked_lm else self.net(**batch)
            logits = out.logits
            if self.dtype == torch.bfloat16:
                logits = logits.float()
            labels, seen = batch["labels"], logits
            if not self.masked_lm:
                labels, seen = labels[:, 1:], logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(seen.flatten(0, 1), labels.flatten(), ignore_index=-100)
            aux = getattr(out, "aux_loss", None)
            if aux is not None and getattr(self.config, "output_router_logits", False):
                loss = loss + self.config.router_aux_loss_coef * aux
        return loss, out.logits

    def gradients(self, batches):
        """Mean loss of the batches and its gradients, each batch's mean loss counting alike."""
        total, value = None, 0.0
        for batch in batches:
            self.net.zero_grad()
            loss, _ = self.loss(batch)
            (loss / len(batches)).backward()
            value += loss.item() / len(batches)
            here = {n: p.grad.detach().clone() if p.grad is not None else torch.zeros_like(p)
                    for n, p in self.named().items()}
            wide = torch.float64 if self.dtype == torch.float64 else torch.float32
            here = {n: g.to(wide) for n, g in here.items()}
            total = here if total is None else {n: total[n] + here[n] for n in here}
        return value, total


def norm_of(grads):
    return math.sqrt(sum(g.double().pow(2).sum().item() for g in grads.values()))


def train(masters, worker, batches, section, clip, steps):
    """Trains `masters`; `worker` (the same object, or a copy in another type) runs forward and backward."""
    params = masters.named()
    if "momentum" in section:
        optimizer = torch.optim.SGD(params.values(), foreach=False, **section)
    else:
        optimizer = torch.optim.AdamW(params.values(), foreach=False, **{**section, "betas": tuple(section["betas"])})
    run = {"loss": [], "grad_norm": []}
    for _ in range(steps):
        value, grads = worker.gradients(batches)
        norm = norm_of(grads)
        scale = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
        for name, param in params.items():
            param.grad = grads[name] * scale
        run["loss"].append(value)
        run["grad_norm"].append(norm)
        optimizer.step()
        if worker is not masters:
            with torch.no_grad():
                for name, param in worker.named().items():
                    param.copy_(params[name])
    with torch.no_grad():
        run["final_loss"] = sum(worker.loss(batch)[0].item() for batch in batches) / len(batches)
    return run


def draw_batch(model, args, source, share):
    """One batch; `share` of its tokens are targets (for a masked model: are hidden)."""
    shape = (args.rows, args.tokens)
    ids = source(shape)
    picks = torch.rand(shape, generator=args.draw) < share
    pad = getattr(model.config, "pad_token_id", None)
    if pad is not None and args.tokens > 2:  # unmasked: its embedding counts, but has no gradient
        ids[:, 2] = pad % model.config.vocab_size
        picks[:, 2] &= not model.masked_lm
    batch = {"input_ids": ids}
    keep = torch.ones(shape, dtype=torch.int64)
    if model.config.model_type in TAKE_MASK:
        for row in range(args.rows):
            keep[row, args.tokens - row * args.tokens // (2 * args.rows):] = 0
        batch["input_ids"] = torch.where(keep == 1, ids, torch.full_like(ids, pad if pad is not None else 0))
        batch["attention_mask"] = keep
    picks[:, 1] = True  # never a batch without a target
    batch["labels"] = torch.where(picks & (keep == 1), ids, torch.full_like(ids, -100))
    if model.masked_lm:
        hidden = torch.full_like(ids, model.config.vocab_size - 1)
        batch["input_ids"] = torch.where(batch["labels"] != -100, hidden, batch["input_ids"])
        if getattr(model.config, "type_vocab_size", 1) > 1:
            batch["token_type_ids"] = keep * (torch.arange(args.tokens) * 2 // args.tokens)[None, :]
    return batch


def id_source(model, args):
    """Draws tensors of token ids of a shape."""
    if not args.ids:
        return lambda shape: torch.randint(model.config.vocab_size, shape, generator=args.draw)
    given = torch.tensor([int(word) for word in pathlib.Path(args.ids).read_text().split()])
    place = [0]

    def take(shape):
        count = math.prod(shape)
        at = torch.arange(place[0], place[0] + count) % len(given)
        place[0] += count
        return given[at].reshape(shape)

    return take


def greedy(model, prompt, count):
    text, margins = prompt.tolist(), []
    with torch.no_grad():
        for _ in range(count):
            best = model.net(input_ids=torch.tensor([text])).logits[0, -1].topk(2)
            text.append(best.indices[0].item())
            margins.append((best.values[0] - best.values[1]).item())
    return {"prompt": prompt.tolist(), "tokens": text[len(prompt):], "margin": margins}


def ceil2(x):
    """Rounded up to two digits."""
    if x == 0:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(x / digit) * digit:.2g}")


def distance(one, other):
    """Of two runs: losses absolute, gradient norms relative."""
    keys = ["final_loss"] if "final_loss" in one and "final_loss" in other else []
    loss = [abs(a - b) for a, b in zip(one["loss"], other["loss"])] + [abs(one[k] - other[k]) for k in keys]
    norm = [abs(a / b - 1) for a, b in zip(one["grad_norm"], other["grad_norm"])]
    return max(loss), max(norm)


def run_tolerance(run, wide):
    loss, norm = distance(run, wide)
    return {"measured_loss_abs": loss, "measured_grad_norm_rel": norm,
            "loss_abs": ceil2(max(10 * loss, 16 * ULP * max(run["loss"]))), "grad_norm_rel": ceil2(max(10 * norm, 16 * ULP))}


def half_tolerance(run, others, single):
    pairs = [(run, single)] + [pair for other in others for pair in ((run, other), (other, single))]
    loss, norm = (max(values) for values in zip(*(distance(*pair) for pair in pairs)))
    return {"measured_loss_abs": loss, "measured_grad_norm_rel": norm, "loss_abs": ceil2(max(2 * loss, 0.02)),
            "grad_norm_rel": ceil2(max(2 * norm, 0.05))}


def grad_tolerance(grads, wide):
    top = max(g.abs().max().item() for g in wide.values())
    apart = {n: (grads[n].double() - wide[n]).abs().max().item() for n in wide}
    size = {n: wide[n].abs().max().item() for n in wide}
    zero = sorted(n for n in wide if size[n] <= 1e-6 * top)
    rel = max(apart[n] / size[n] for n in wide if n not in zero)
    absolute = max(apart.values())
    return {"measured_abs": absolute, "measured_rel": rel, "largest": top, "abs": ceil2(max(10 * absolute, 16 * ULP * top)),
            "rel": ceil2(max(10 * rel, 16 * ULP)), "zero": zero}


def param_records(single, wide, grads, wide_grads, steps):
    """Sums and norms; Adam divides a gradient by its size, so noise moves an element by its share of the gradient.

    Where that is all of it, whole steps may differ; elsewhere the shares of a tensor add up as independent errors.
    """
    top = max(g.abs().max().item() for g in wide_grads.values())
    out = {}
    for name, param in single.items():
        p, q, g, h = param.detach().double(), wide[name].detach(), grads[name].double(), wide_grads[name]
        noise = (g - h).abs().max()
        zero = (h.abs() < 1e-12 * top) & (g != 0)
        unsure = (h.abs() < 10 * noise) & (g != 0) & ~zero
        stray = ADAMW["lr"] * (2 * steps * zero.double() + 4 * unsure.double())
        share = torch.where(zero | unsure | (h == 0), torch.zeros_like(h), noise / h.abs())
        drift = ADAMW["lr"] * math.sqrt(steps) * share
        l2 = p.norm().item()
        reach = ((2 * p.abs() * stray + stray**2).sum() / (2 * l2)).item() if l2 else stray.norm().item()
        reach += (p * drift).norm().item() / l2 if l2 else drift.norm().item()
        out[name] = {"sum": p.sum().item(), "l2": l2,
                     "sum_tol": ceil2(max(10 * abs((p - q).sum().item()), 4 * ULP * p.abs().sum().item(),
                                        stray.sum().item() + drift.norm().item())),
                     "l2_tol": ceil2(max(10 * abs(l2 - q.norm().item()), 8 * ULP * l2, reach)),
                     "unsure": int(unsure.sum()), "zero": int(zero.sum())}
    return out


def evaluate(model, batch):
    loss, grads = model.gradients([batch])
    grads = model.in_file(grads)
    with torch.no_grad():
        logits = model.loss(batch)[1].detach()
    return loss, grads, logits


def bf16_run(folder, batches, steps, shake=None):
    """`shake`: seed of a change of the weights below what bfloat16 resolves."""
    masters, worker = Model(folder), Model(folder, torch.bfloat16)
    if shake is not None:
        draw = torch.Generator().manual_seed(shake)
        with torch.no_grad():
            for name, param in masters.named().items():
                param.mul_(1 + 2.0**-11 * torch.randn(param.shape, generator=draw))
                worker.named()[name].copy_(param)
    run = train(masters, worker, batches, ADAMW, CLIP, steps)
    del run["final_loss"]
    return run


def record(folder, args):
    single, wide = Model(folder), Model(folder, torch.float64)
    source = id_source(single, args)
    share = 0.3 if single.masked_lm else 0.8
    batch = draw_batch(single, args, source, share)
    micro = [draw_batch(single, args, source, share), draw_batch(single, args, source, share / 2)]
    prompts = [] if single.masked_lm else [source((5,)), source((min(11, args.tokens),))]
    loss, grads, logits = evaluate(single, batch)
    wide_loss, wide_grads, wide_logits = evaluate(wide, batch)
    texts = [greedy(single, prompt, args.new_tokens) for prompt in prompts]

    doc = {"model_type": single.config.model_type,
           "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
           "loss": {"value": loss, "value_f64": wide_loss, "ignore_index": -100}}
    seen = batch["attention_mask"] == 1 if "attention_mask" in batch else torch.ones_like(batch["input_ids"]) == 1
    apart = (logits.double() - wide_logits)[seen].abs().max().item()
    largest = wide_logits[seen].abs().max().item()
    tolerance = {"logits": {"measured_abs": apart, "abs": ceil2(max(10 * apart, 16 * ULP * largest))},
                 "loss": {"measured_abs": abs(loss - wide_loss), "abs": ceil2(max(10 * abs(loss - wide_loss), 8 * ULP * loss))},
                 "grad": grad_tolerance(grads, wide_grads)}
    hyper = {"optimizer": "torch.optim.AdamW", **ADAMW, "clip_grad_norm": CLIP}
    plans = {"adamw": ([batch], ADAMW, CLIP, args.steps, hyper), "accum": (micro, ADAMW, CLIP, args.steps, hyper),
             "sgd": ([batch], SGD, 0, SGD_STEPS, {"optimizer": "torch.optim.SGD", **SGD, "clip_grad_norm": None})}
    for name, (batches, section, clip, steps, said) in plans.items():
        print(f"{name}: {steps} steps in float32 and float64", flush=True)
        one, two = copy.deepcopy(single), copy.deepcopy(wide)
        run, base = train(one, one, batches, section, clip, steps), train(two, two, batches, section, clip, steps)
        doc[name] = {**said, **run}
        tolerance[name] = run_tolerance(run, base)
        if name == "adamw":
            doc["final_params"] = param_records(one.in_file(one.named()), two.in_file(two.named()), grads,
                                                wide_grads, steps)
    for name, (batches, like) in {"bf16": ([batch], "adamw"), "bf16_accum": (micro, "accum")}.items():
        print(f"{name}: {args.steps} steps, in five variations", flush=True)
        run = bf16_run(folder, batches, args.steps)
        with torch.backends.mkldnn.flags(enabled=False):
            others = [bf16_run(folder, batches, args.steps)]
        others += [bf16_run(folder, batches, args.steps, shake) for shake in range(3)]
        doc[name] = {**hyper, **run}
        tolerance[name] = half_tolerance(run, others, doc[like])
    if texts:
        doc["greedy"] = texts
    doc["tolerance"] = tolerance

    tensors = {name: value.to(torch.int32) for name, value in batch.items()}
    for i, one in enumerate(micro):
        tensors |= {f"micro.{i}.{name}": value.to(torch.int32) for name, value in one.items()}
    tensors |= {f"prompt.{i}": prompt.to(torch.int32) for i, prompt in enumerate(prompts)}
    tensors |= {"logits": logits, **{f"grad.{name}": grad for name, grad in grads.items()}}
    return doc, {name: value.contiguous() for name, value in tensors.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16, help="of each row")
    parser.add_argument("--steps", type=int, default=10, help="AdamW steps")
    parser.add_argument("--new-tokens", type=int, default=16, help="greedy tokens behind each prompt")
    parser.add_argument("--ids", help="token ids in text, instead of random ones")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.draw = torch.Generator().manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)
    doc, tensors = record(args.folder, args)
    (args.folder / "golden.json").write_text(json.dumps(doc, indent=1) + "\n")
    safetensors.torch.save_file(tensors, args.folder / "golden.safetensors")
    print(f"recorded: loss {doc['loss']['value']:.6f}, {len(doc['final_params'])} tensors")


if __name__ == "__main__":
    main()
