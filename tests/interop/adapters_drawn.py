"""Adapters that are drawn at random, beside PEFT (a part of ./run interop adapters).

usage: adapters_drawn.py [COUNT [SEED]]

Each case draws a model folder of tests/data/models, one to three adapters (layers as names, a pattern or all-linear, ranks, alphas,
patterns of both, scaling, DoRA, biases), an accumulation and a ZeRO stage. PEFT and `libds.Engine` train the first one from equal
weights for five steps of SGD in f32. Compared are the losses, the gradients of the first step, the logits with each adapter and
with none, the folders that libds saves, which PEFT loads, and the weights that `libds merge` and PEFT write.
"""
import pathlib
import random
import sys
import tempfile

import numpy as np
import peft
import torch

import adapters

sys.path.insert(0, str(adapters.ROOT / "build" / "python"))
import libds  # noqa: E402

# Linear layers by family, as PEFT names them.
LAYERS = {
    "gpt2": ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"],
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
    "qwen2": ["q_proj", "v_proj", "o_proj", "down_proj"],
    "qwen3": ["q_proj", "k_proj", "o_proj", "up_proj"],
    "mistral": ["q_proj", "v_proj", "gate_proj", "lm_head"],
    "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    "gemma2": ["q_proj", "k_proj", "v_proj", "down_proj"],
    "gpt_neox": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "lm_head"],
    "mixtral": ["q_proj", "k_proj", "v_proj", "o_proj"],
}
# Families whose attention and feed-forward layers have biases.
BIASED = ("gpt2", "gpt_neox")
STEPS, RATE, ROWS, LENGTH = 5, 0.005, 2, 8


def draw_keys(dice, family, alone):
    """Returns the keys of PEFT's LoraConfig for an adapter. Only an adapter without others may train the base."""
    names = LAYERS[family]
    some = dice.sample(names, dice.randint(1, len(names)))
    every = "all-linear" if family != "mixtral" else names
    keys = {"r": dice.randint(1, 4), "lora_alpha": dice.choice([0.5, 1, 2, 4]), "use_rslora": dice.random() < 0.3, "use_dora": dice.random() < 0.4,
            "target_modules": dice.choice([some, some, every, r".*\.(" + "|".join(name.replace(".", r"\.") for name in some) + ")"])}
    if isinstance(keys["target_modules"], str) and keys["target_modules"] != "all-linear" and some == ["lm_head"]:
        keys["target_modules"] = some
    if isinstance(keys["target_modules"], list) and "lm_head" not in some and dice.random() < 0.3:
        keys["layers_to_transform"] = dice.choice([[0], [1], [0, 1]])
    if dice.random() < 0.4:
        # The first pattern that matches counts. PEFT saves them in this order, whichever they had.
        keys["rank_pattern"] = dict(sorted({dice.choice(names): dice.randint(1, 4), r".*\.1\..*": dice.randint(1, 4)}.items()))
    if dice.random() < 0.4:
        keys["alpha_pattern"] = {dice.choice(names): dice.choice([2, 3])}
    if alone and family in BIASED and dice.random() < 0.4:
        keys["bias"] = dice.choice(["all", "lora_only"])
    return keys


def batches(dice, vocabulary, count):
    generator = torch.Generator().manual_seed(dice.randint(0, 1 << 30))
    return [torch.randint(0, vocabulary, (ROWS, LENGTH), generator=generator) for _ in range(count)]


def inputs(ids):
    targets = torch.full_like(ids, -100)
    targets[:, :-1] = ids[:, 1:]
    return [tensor.to(torch.int32).numpy().reshape(-1) for tensor in (ids, targets)]


def train_peft(model, micros, accumulation):
    """Returns the losses of the steps and the gradients of the first one by their names in memory."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    losses, first = [], None
    for step in range(STEPS):
        total = 0.0
        for ids in micros[step * accumulation:(step + 1) * accumulation]:
            loss = model(input_ids=ids, labels=ids).loss / accumulation
            loss.backward()
            total += loss.item()
        losses.append(total)
        if first is None:
            first = {name: p.grad.clone() for name, p in trained.items()}
        with torch.no_grad():
            for parameter in trained.values():
                parameter -= RATE * parameter.grad
                parameter.grad = None
    return losses, first


def own_name(name):
    """The name that a parameter of PEFT's model in memory has in libds."""
    name = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
    return name.replace("lm_head.", "embed_out.", 1) if name.startswith("lm_head.") else name


class Case:
    def __init__(self, seed, folder):
        self.dice, self.folder, self.worst = random.Random(seed), folder, {}
        self.family = self.dice.choice(sorted(LAYERS))
        self.names = ["default", "second", "third"][:self.dice.choice([1, 1, 2, 3])]
        self.keys = [draw_keys(self.dice, self.family, len(self.names) == 1) for _ in self.names]
        self.accumulation, self.stage = self.dice.choice([1, 2]), self.dice.choice([0, 1, 2, 3])
        self.text = f"{self.family} stage {self.stage} x{self.accumulation} {self.keys}"

    def note(self, what, distance):
        self.worst[what] = max(self.worst.get(what, 0.0), float(distance))

    def note_tensors(self, what, ours, theirs):
        """Notes the largest distance of two tensors, in units of the largest element where that is above 1."""
        self.note(what, adapters.distance(ours, theirs) / max(1.0, theirs.abs().max().item()))

    def engine(self):
        section = {"folder": str(self.folder / "default")}
        if len(self.names) > 1:
            section["others"] = [f"{name}={self.folder / name}" for name in self.names[1:]]
        config = {"train_micro_batch_size_per_gpu": ROWS, "gradient_accumulation_steps": self.accumulation, "adapter": section,
                  "model": {"folder": str(adapters.MODELS / self.family), "dropout": 0}, "run": {"sequence": LENGTH},
                  "gradient_clipping": 0, "zero_optimization": {"stage": self.stage}, "optimizer": {"type": "SGD", "params": {"lr": RATE}}}
        engine = libds.Engine(config, threads=1)
        engine.load_model(adapters.MODELS / self.family)
        engine.load_model(self.folder / "default")
        return engine

    def logits(self, engine, name, ids):
        engine[f"adapter.{name}"] = 1
        return torch.from_numpy(np.array(engine.infer(*inputs(ids)))).reshape(ROWS, LENGTH, -1)

    def check_choices(self, engine, models, ids):
        choices = dict(zip(self.names, models, strict=True))
        if "bias" not in self.keys[0]:
            choices["base"] = adapters.base_model(self.family).eval()
        for name, model in choices.items():
            with torch.no_grad():
                self.note_tensors("logits", self.logits(engine, name, ids), model(input_ids=ids).logits)

    def check_saved(self, engine, models):
        saved = self.folder / "saved"
        engine.save_model(saved)
        for name, model in zip(self.names, models, strict=True):
            folder = saved if name == "default" else saved / name
            loaded = peft.PeftModel.from_pretrained(adapters.base_model(self.family), folder).eval()
            theirs, ours = adapters.state_of(model), adapters.state_of(loaded)
            if theirs.keys() != ours.keys():
                raise SystemExit(f"{self.text}: {name} has other tensors: {sorted(theirs.keys() ^ ours.keys())}")
            for key, tensor in theirs.items():
                self.note_tensors("saved", ours[key], tensor)
        adapters.libds("merge", saved, self.folder / "merged", "--base", adapters.MODELS / self.family)
        auto = type(adapters.base_model(self.family))
        ours = dict(auto.from_pretrained(self.folder / "merged", dtype=torch.float32).named_parameters())
        for key, tensor in models[0].merge_and_unload().named_parameters():
            self.note_tensors("merged", ours[key], tensor)

    def run(self):
        models = [adapters.with_random_adapter(self.family, keys, self.dice.randint(0, 1 << 30)).eval() for keys in self.keys]
        for name, model in zip(self.names, models, strict=True):
            model.save_pretrained(self.folder / name, save_embedding_layers=False)
        micros = batches(self.dice, models[0].config.vocab_size, STEPS * self.accumulation)
        with self.engine() as engine:
            self.check_choices(engine, models, micros[0])
            losses, gradients = train_peft(models[0], micros, self.accumulation)
            for step, loss in enumerate(losses):
                parts = [inputs(ids) for ids in micros[step * self.accumulation:(step + 1) * self.accumulation]]
                self.note("losses", abs(engine.train_batch(*map(np.concatenate, zip(*parts, strict=True))) - loss))
                if step == 0:
                    self.check_gradients(engine, gradients)
            self.check_saved(engine, models)

    def check_gradients(self, engine, gradients):
        names = {param.name for param in engine.params}
        for name, gradient in gradients.items():
            own = own_name(name)
            own = own if own in names else name.removeprefix("base_model.model.").replace(".base_layer.", ".")
            mine = torch.from_numpy(np.array(engine.read(own, "grad"))).reshape(gradient.shape)
            self.note_tensors("gradients", mine, gradient)


LIMITS = {"losses": 2e-5, "gradients": 2e-5, "logits": 5e-5, "saved": 2e-5, "merged": 2e-5}


def compare(seed):
    """Runs one case and returns whether it holds."""
    with tempfile.TemporaryDirectory() as folder:
        case = Case(seed, pathlib.Path(folder))
        case.run()
    good = all(case.worst.get(what, 0.0) <= most for what, most in LIMITS.items())
    figures = ", ".join(f"{what} {value:.1e}" for what, value in case.worst.items())
    print(f"{'ok  ' if good else 'FAIL'} seed {seed}: {figures}{'' if good else '; ' + case.text}", flush=True)
    return good


def main():
    count, seed = (int(word) for word in (*sys.argv[1:3], *("24", "1")[len(sys.argv) - 1:]))
    torch.set_num_threads(1)
    failed = [at for at in range(seed, seed + count) if not compare(at)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
