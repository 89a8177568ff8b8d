#!/usr/bin/env python3
"""Records the numbers that a correct implementation computes from a Hugging Face model, for `libds verify`.

usage: make_golden.py FOLDER [--rows 2] [--tokens 16] [--padding right|left|holes|none] [--seed 0] [--steps 10]
                      [--new-tokens 16] [--ids FILE] [--no-bf16]

FOLDER holds config.json and model.safetensors (or shards). Writes FOLDER/golden.json and FOLDER/golden.safetensors;
docs/reference/verify.md explains each member. Token ids are drawn at random, or read from FILE (numbers in text). Needs
torch and transformers, and works on the CPU with the default attention of Transformers. The recorded numbers are those
of float64; the distance of float32 from them gives the tolerances. A model whose numbers are decided by rounding is
refused.
"""
import argparse
import contextlib
import copy
import functools
import json
import math
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import safetensors
import safetensors.torch
import torch
import transformers

ADAMW = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
SGD = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}
CLIP, SGD_STEPS = 1.0, 5
ULP = 2.0**-23
SHAKES = 2  # further float32 runs that sample its noise
# The widest tolerance in float32, as a share of the number: a wider one could not reveal an error.
WIDEST = 0.01
# A loss is a difference of logits. If it is below this share of them, it is judged by its gradients.
NEARLY_CERTAIN = 1e-3


class Vague(Exception):
    """Raised if rounding decides a number, so that float32 cannot judge it."""


def sharp(name, tolerance, size):
    """Returns `tolerance` if it is narrow enough to tell a wrong program from a right one."""
    if tolerance > WIDEST * size:
        raise Vague(f"{name}: rounding moves {size:.2g} so far that its tolerance would be {tolerance:.2g}")
    return tolerance


@contextlib.contextmanager
def everything_double():
    """In this context, model code that asks for float32 by name gets float64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept
        torch.set_default_dtype(torch.float32)


def spelling(folder, prefix):
    """Maps the names of Transformers to the names that the folder's files have for the same tensors."""
    stored = []
    for path in sorted(folder.glob("*.safetensors")):
        if path.name != "golden.safetensors":
            with safetensors.safe_open(path, "pt") as file:
                stored += file.keys()
    now = {name: name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
           for name in stored}
    return {f"{prefix}.{now[name]}": name for name in stored} | {now[name]: name for name in stored}


class Model:
    """A model folder in one element type."""

    def __init__(self, folder, dtype=torch.float32):
        config = transformers.AutoConfig.from_pretrained(folder)
        self.masked_lm = config.model_type == "bert"
        self.auto = transformers.AutoModelForMaskedLM if self.masked_lm else transformers.AutoModelForCausalLM
        # The default experts support neither float64 nor widths that are not multiples of 4.
        options = {"experts_implementation": "eager"} if hasattr(config, "num_local_experts") else {}
        first = self.auto.from_pretrained(folder, dtype=torch.float64 if dtype == torch.float64 else torch.float32,
                                          **options)
        # Recomputes constants such as rope frequencies in float64.
        if dtype == torch.float64:
            weights = first.state_dict()
            with everything_double():
                first = self.auto.from_config(first.config, dtype=torch.float64, **options)
            first.load_state_dict(weights)
            first.tie_weights()
        self.net = first.to(dtype).eval()
        self.config = self.net.config
        self.dtype = dtype
        self.spelling = spelling(pathlib.Path(folder), self.net.base_model_prefix)

    def shaken(self, seed):
        """Returns a copy whose weights are moved by about a rounding, so that it rounds differently everywhere."""
        other = copy.deepcopy(self)
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for param in other.net.parameters():
                param.mul_(1 + ULP / 2 * torch.randn(param.shape, generator=draw))
        return other

    def named(self):
        """Returns parameters by their name in memory, a tied one once, without those that are never read."""
        unread = {"cls.predictions.bias"} if self.masked_lm and not self.config.tie_word_embeddings else set()
        return {name: param for name, param in self.net.named_parameters() if name not in unread}

    def in_file(self, tensors):
        """Returns tensors of parameters, given by name in memory, under the names and in the pieces of the file."""
        tensors = {name: value.detach().clone() for name, value in tensors.items()}
        with tempfile.TemporaryDirectory() as folder:
            self.net.save_pretrained(folder, state_dict=tensors)
            out = {}
            for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
                out |= safetensors.torch.load_file(path)
        return {self.spelling.get(name, name): value for name, value in out.items()}

    def forward(self, batch):
        given = {name: value for name, value in batch.items() if name != "labels"}
        with everything_double() if self.dtype == torch.float64 else contextlib.nullcontext():
            return self.net(**given) if self.masked_lm else self.net(**given, use_cache=False)

    def targets(self, batch, logits):
        """Returns the rows of logits that have a target, and the targets."""
        labels = batch["labels"] if self.masked_lm else batch["labels"][:, 1:]
        seen = logits if self.masked_lm else logits[:, :-1]
        return seen[labels != -100], labels[labels != -100]

    def loss(self, batch):
        out = self.forward(batch)
        rows, labels = self.targets(batch, out.logits.float() if self.dtype == torch.bfloat16 else out.logits)
        loss = torch.nn.functional.cross_entropy(rows, labels)
        aux = getattr(out, "aux_loss", None)
        if aux is not None and getattr(self.config, "output_router_logits", False):
            loss = loss + self.config.router_aux_loss_coef * aux
        return loss, out.logits

    def backward(self, value):
        self.net.zero_grad()
        value.backward()
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        return {name: (torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()).to(wide)
                for name, p in self.named().items()}

    def gradients(self, batches):
        """Returns the mean loss of the batches and its gradients; the mean losses of all batches count alike."""
        total, value = None, 0.0
        for batch in batches:
            loss, _ = self.loss(batch)
            here = self.backward(loss / len(batches))
            value += loss.item() / len(batches)
            total = here if total is None else {n: total[n] + here[n] for n in here}
        return value, total

    def pull(self, batches):
        """Returns the gradients of the mean logit of the targets. Those of the loss are a difference between them and
        such a mean over all words, so their rounding is the smallest error that a correct program may have."""
        total = None
        for batch in batches:
            rows, labels = self.targets(batch, self.forward(batch).logits)
            here = self.backward(rows.gather(1, labels[:, None]).mean() / len(batches))
            total = here if total is None else {n: total[n] + here[n] for n in here}
        return total


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


def visible(args):
    """Returns a mask of the tokens of a batch: 0 is hidden. The first row is whole except for holes."""
    keep = torch.ones((args.rows, args.tokens), dtype=torch.int64)
    for row in range(args.rows):
        count = row * args.tokens // (2 * args.rows)
        if args.padding == "right":
            keep[row, args.tokens - count:] = 0
        elif args.padding == "left":
            keep[row, :count] = 0
    if args.padding == "holes":
        keep[:, 1:-1] = (torch.rand((args.rows, max(args.tokens - 2, 0)), generator=args.draw) < 0.8).long()
        # The last token of the first row is always a target, predicted from a token.
        keep[0, -2:] = 1
    return keep


def draw_batch(model, args, source, share):
    """Returns a batch. A token that the model sees is a target (for a masked model: is replaced) with probability `share`.

    The last token of the first row always is one, and for a masked model the padding token never is."""
    shape = (args.rows, args.tokens)
    ids = source(shape)
    picks = torch.rand(shape, generator=args.draw) < share
    pad = getattr(model.config, "pad_token_id", None)
    # The padding token is not masked: its embedding counts, but has no gradient.
    if pad is not None and args.tokens > 2:
        ids[:, 2] = pad % model.config.vocab_size
        picks[:, 2] &= not model.masked_lm
    batch = {"input_ids": ids}
    keep = visible(args)
    if args.padding != "none":
        filler = pad % model.config.vocab_size if pad is not None else 0
        batch["input_ids"] = torch.where(keep == 1, ids, torch.full_like(ids, filler))
        batch["attention_mask"] = keep
    # A batch always has a target.
    picks[0, -1] = True
    batch["labels"] = torch.where(picks & (keep == 1), ids, torch.full_like(ids, -100))
    # In eager attention, a token that may see no token sees all tokens.
    if model.net.config._attn_implementation == "eager":
        batch["labels"][:, 1:][keep[:, :-1] == 0] = -100
    if model.masked_lm:
        hidden = torch.full_like(ids, model.config.vocab_size - 1)
        batch["input_ids"] = torch.where(batch["labels"] != -100, hidden, batch["input_ids"])
        if getattr(model.config, "type_vocab_size", 1) > 1:
            batch["token_type_ids"] = keep * (torch.arange(args.tokens) * 2 // args.tokens)[None, :]
    return batch


def id_source(model, args):
    """Returns a function that makes a tensor of token ids of a given shape: random ones, or the next ones of the file."""
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
    model = copy.deepcopy(model)  # the model remembers this text
    text, margins = prompt.tolist(), []
    with torch.no_grad():
        for _ in range(count):
            best = model.forward({"input_ids": torch.tensor([text])}).logits[0, -1].topk(2)
            text.append(best.indices[0].item())
            margins.append((best.values[0] - best.values[1]).item())
    return {"prompt": prompt.tolist(), "tokens": text[len(prompt):], "margin": margins}


def ceil2(x):
    """Returns the number rounded up to two digits."""
    if x == 0:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(x / digit) * digit:.2g}")


def distance(one, other):
    """Returns the differences of two runs: losses absolute, gradient norms relative unless a norm is 0."""
    keys = ["final_loss"] if "final_loss" in one and "final_loss" in other else []
    loss = [abs(a - b) for a, b in zip(one["loss"], other["loss"])] + [abs(one[k] - other[k]) for k in keys]
    norm = [abs(a - b) / (b or 1) for a, b in zip(one["grad_norm"], other["grad_norm"])]
    return max(loss), max(norm)


def norm_floor(pull, norm):
    """Returns a few roundings of the gradients of pull(), relative to a gradient norm."""
    return 8 * ULP * pull / (norm or 1)


def steady(runs, wide, pull):
    """Returns the steps before a run diverges (a loss ten times its first) or rounding decides it: when it moves a
    number by 0.1 %, or when gradients are only roundings of the targets' logits. None: all steps."""
    def wanders(*key):
        values = [functools.reduce(lambda part, k: part[k], key, run) for run in [wide, *runs]]
        return not all(10 * abs(value - values[0]) <= WIDEST * max(abs(values[0]), 1e-6) for value in values)
    steps = len(wide["loss"])
    for i in range(steps):
        diverges = wide["loss"][i] > 10 * wide["loss"][0]
        if diverges or wanders("loss", i) or wanders("grad_norm", i) or norm_floor(pull, wide["grad_norm"][i]) > WIDEST:
            return max(1, i)
    return steps if wanders("final_loss") else None


def cut(run, steps):
    """Returns the run's first steps, without the loss after the last one."""
    return {"loss": run["loss"][:steps], "grad_norm": run["grad_norm"][:steps]}


def run_tolerance(name, runs, wide, largest, pull):
    """Returns tolerances from `largest`, the largest logit, and `pull`, the norm of the gradients of pull()."""
    loss, norm = (max(values) for values in zip(*(distance(run, wide) for run in runs)))
    loss_abs = ceil2(max(10 * loss, 16 * ULP * max(wide["loss"]), 8 * ULP * largest))
    norm_rel = ceil2(max(10 * norm, 16 * ULP, norm_floor(pull, min(wide["grad_norm"]))))
    return {"measured_loss_abs": loss, "measured_grad_norm_rel": norm,
            "loss_abs": sharp(f"loss of {name}", loss_abs, max(max(wide["loss"]), NEARLY_CERTAIN * largest)),
            "grad_norm_rel": sharp(f"gradient norms of {name}", norm_rel, 1)}


def half_tolerance(run, others, single):
    pairs = [(run, single)] + [pair for other in others for pair in ((run, other), (other, single))]
    loss, norm = (max(values) for values in zip(*(distance(*pair) for pair in pairs)))
    return {"measured_loss_abs": loss, "measured_grad_norm_rel": norm, "loss_abs": ceil2(max(4 * loss, 0.02)),
            "grad_norm_rel": ceil2(max(4 * norm, 0.05))}


def grad_tolerance(samples, wide, pull):
    top, least = (max(g.abs().max().item() for g in grads.values()) for grads in (wide, pull))
    apart = {n: max((grads[n].double() - wide[n]).abs().max().item() for grads in samples) for n in wide}
    size = {n: wide[n].abs().max().item() for n in wide}
    zero = sorted(n for n in wide if size[n] <= 1e-6 * max(top, least) or 10 * apart[n] > WIDEST * size[n])
    rel = max((apart[n] / size[n] for n in wide if n not in zero), default=0.0)
    absolute = max(apart.values())
    bound = ceil2(max(10 * absolute, 16 * ULP * top, 8 * ULP * least))
    return {"measured_abs": absolute, "measured_rel": rel, "largest": top, "abs": sharp("gradients", bound, top),
            "rel": ceil2(max(10 * rel, 16 * ULP)), "zero": zero}


def param_records(samples, wide, grads, wide_grads, steps):
    """Returns sums and norms. Adam divides a gradient by its size, so noise moves an element by its share of the gradient.

    Where that is all of it, whole steps may differ; elsewhere the shares of a tensor add up as independent errors.
    """
    top = max(g.abs().max().item() for g in wide_grads.values())
    out = {}
    for name, q in wide.items():
        q, g, h = q.detach().double(), grads[0][name].double(), wide_grads[name]
        noise = max((one[name].double() - h).abs().max() for one in grads)
        zero = (h.abs() < 1e-12 * top) & (g != 0)
        unsure = (h.abs() < 10 * noise) & (g != 0) & ~zero
        stray = ADAMW["lr"] * (2 * steps * zero.double() + 4 * unsure.double())
        share = torch.where(zero | unsure | (h == 0), torch.zeros_like(h), noise / h.abs())
        drift = ADAMW["lr"] * math.sqrt(steps) * share
        total, l2 = q.sum().item(), q.norm().item()
        reach = ((2 * q.abs() * stray + stray**2).sum() / (2 * l2)).item() if l2 else stray.norm().item()
        reach += (q * drift).norm().item() / l2 if l2 else drift.norm().item()
        # A sum may agree by chance, so the differences of its elements also count, as independent errors.
        apart = [(one[name].double().sum().item() - total, one[name].double().norm().item() - l2,
                  (one[name].double() - q).norm().item()) for one in samples]
        out[name] = {"sum": total, "l2": l2,
                     "sum_tol": ceil2(max(10 * max(abs(s) for s, _, _ in apart), 10 * max(e for _, _, e in apart),
                                        4 * ULP * q.abs().sum().item(), stray.sum().item() + drift.norm().item())),
                     "l2_tol": ceil2(max(10 * max(abs(l) for _, l, _ in apart), 10 * max(e for _, _, e in apart),
                                        8 * ULP * l2, reach)),
                     "unsure": int(unsure.sum()), "zero": int(zero.sum())}
    return out


def evaluate(model, batch):
    """Returns loss, gradients by the names of the file, and logits."""
    loss, grads = model.gradients([batch])
    with torch.no_grad():
        logits = model.forward(batch).logits.detach()
    return loss, model.in_file(grads), logits


def bf16_run(folder, batches, steps, shake=None):
    """Returns a run in bfloat16; `shake` is the seed of a change of the weights below the resolution of bfloat16."""
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


def seen_rows(batch, logits):
    return logits[batch["attention_mask"] == 1] if "attention_mask" in batch else logits


def record_half(folder, plans, args, doc):
    """Records the runs in bf16; `doc` has the runs in full precision."""
    for name, (batches, like) in plans.items():
        print(f"{name}: {args.steps} steps, in five variations", flush=True)
        run = bf16_run(folder, batches, args.steps)
        with torch.backends.mkldnn.flags(enabled=False):
            others = [bf16_run(folder, batches, args.steps)]
        others += [bf16_run(folder, batches, args.steps, shake) for shake in range(3)]
        doc[name] = {**hyper("AdamW", ADAMW, CLIP), **run}
        doc["tolerance"][name] = half_tolerance(run, others, doc[like])


def hyper(optimizer, section, clip):
    return {"optimizer": f"torch.optim.{optimizer}", **section, "clip_grad_norm": clip}


def record(folder, args):
    single, wide = Model(folder), Model(folder, torch.float64)
    singles = [single] + [single.shaken(seed) for seed in range(SHAKES)]
    source = id_source(single, args)
    share = 0.3 if single.masked_lm else 0.8
    batch = draw_batch(single, args, source, share)
    micro = [draw_batch(single, args, source, share), draw_batch(single, args, source, share / 2)]
    prompts = [] if single.masked_lm else [source((5,)), source((min(11, args.tokens),))]
    # Generation comes first, because rope_type dynamic keeps the frequencies of the longest text that a model has seen.
    texts = [greedy(wide, prompt, args.new_tokens) for prompt in prompts]
    loss, grads, logits = evaluate(wide, batch)
    samples = [evaluate(model, batch) for model in singles]

    doc = {"model_type": single.config.model_type,
           "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
           "loss": {"value": loss, "value_f32": samples[0][0], "ignore_index": -100}}
    largest = seen_rows(batch, logits).abs().max().item()
    apart = max(seen_rows(batch, sample[2].double() - logits).abs().max().item() for sample in samples)
    loss_apart = max(abs(sample[0] - loss) for sample in samples)
    logits_abs = ceil2(max(10 * apart, 16 * ULP * largest))
    loss_abs = ceil2(max(10 * loss_apart, 8 * ULP * largest, 8 * ULP * loss))
    tolerance = {"logits": {"measured_abs": apart, "abs": sharp("logits", logits_abs, largest)},
                 "loss": {"measured_abs": loss_apart, "abs": sharp("loss", loss_abs, max(loss, NEARLY_CERTAIN * largest))},
                 "grad": grad_tolerance([sample[1] for sample in samples], grads, wide.in_file(wide.pull([batch])))}
    plans = {"adamw": ([batch], ADAMW, CLIP, args.steps, "AdamW"), "accum": (micro, ADAMW, CLIP, args.steps, "AdamW"),
             "sgd": ([batch], SGD, 0, SGD_STEPS, "SGD")}
    for name, (batches, section, clip, steps, optimizer) in plans.items():
        print(f"{name}: {steps} steps in float32 and float64", flush=True)
        trained, base = [copy.deepcopy(model) for model in singles], copy.deepcopy(wide)
        runs = [train(model, model, batches, section, clip, steps) for model in trained]
        run = train(base, base, batches, section, clip, steps)
        pull = norm_of(wide.pull(batches))
        end = steady(runs, run, pull)
        if end:
            run, runs = cut(run, end), [cut(one, end) for one in runs]
        doc[name] = {**hyper(optimizer, section, clip or None), **run}
        tolerance[name] = run_tolerance(name, runs, run, largest, pull)
        if name == "adamw" and not end:
            doc["final_params"] = param_records([model.in_file(model.named()) for model in trained],
                                                base.in_file(base.named()), [sample[1] for sample in samples], grads, steps)
    doc["tolerance"] = tolerance
    if args.bf16:
        record_half(folder, {"bf16": ([batch], "adamw"), "bf16_accum": (micro, "accum")}, args, doc)
    if texts:
        doc["greedy"] = texts

    tensors = {name: value.to(torch.int32) for name, value in batch.items()}
    for i, one in enumerate(micro):
        tensors |= {f"micro.{i}.{name}": value.to(torch.int32) for name, value in one.items()}
    tensors |= {f"prompt.{i}": prompt.to(torch.int32) for i, prompt in enumerate(prompts)}
    tensors |= {"logits": logits.float(), **{f"grad.{name}": grad.float() for name, grad in grads.items()}}
    return doc, {name: value.contiguous() for name, value in tensors.items()}


def write(folder, doc, tensors):
    (folder / "golden.json").write_text(json.dumps(doc, indent=1) + "\n")
    safetensors.torch.save_file(tensors, folder / "golden.safetensors")


def options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16, help="of each row")
    parser.add_argument("--padding", choices=["right", "left", "holes", "none"], default="right", help="hidden tokens")
    parser.add_argument("--steps", type=int, default=10, help="AdamW steps")
    parser.add_argument("--new-tokens", type=int, default=16, help="greedy tokens after each prompt")
    parser.add_argument("--ids", help="token ids in text, instead of random ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-bf16", dest="bf16", action="store_false", help="without the runs in bf16")
    args = parser.parse_args(words)
    args.draw = torch.Generator().manual_seed(args.seed)
    return args


def main():
    args = options()
    torch.use_deterministic_algorithms(True)
    try:
        doc, tensors = record(args.folder, args)
    except Vague as vague:
        sys.exit(f"make_golden: {vague}; float32 cannot judge this model (other weights or --seed may do)")
    write(args.folder, doc, tensors)
    print(f"recorded: loss {doc['loss']['value']:.6f}, {sum(name.startswith('grad.') for name in tensors)} gradients")


if __name__ == "__main__":
    main()
