"""Draws a random run: its texts, its configuration, and its parts."""
import json
import os

from outside import models, order, rates

# The number of positions of the models.
POSITIONS = 32
LETTERS = "abcdefghij"
MASK_TOKEN = 126
TEMPLATE = ("{% for m in messages %}<{{ m['role'][0] }}>{% if m['role'] == 'assistant' %}{% generation %}"
            "{{ m['content'] }}{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}{% endfor %}")
# Each optimizer with the parameters that may accompany the rate.
OPTIMIZERS = {
    "AdamW": [{}, {"betas": [0.8, 0.95]}, {"weight_decay": 0.1}],
    "Adam": [{"adam_w_mode": False, "weight_decay": 0.1}, {}],
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"weight_decay": 0.1}],
    "Lion": [{}, {"weight_decay": 0.1}],
    "Adagrad": [{}, {"lr_decay": 0.1}],
    "Lamb": [{}, {"weight_decay": 0.1}],
    "Muon": [{}, {"weight_decay": 0.1}, {"momentum": 0.8}],
    "OneBitAdam": [{"freeze_step": 2}, {"freeze_step": 100}],
    "ZeroOneAdam": [{"var_freeze_step": 2}, {"var_freeze_step": 100}],
    "OneBitLamb": [{"freeze_step": 2}, {"freeze_step": 100}],
}
# Optimizers whose first beta OneCycle changes.
WITH_BETAS = ("AdamW", "Adam", "Lion", "Lamb", "OneBitAdam", "ZeroOneAdam", "OneBitLamb")


def most_stage(optimizer):
    return {"ZeroOneAdam": 0, "OneBitAdam": 1, "OneBitLamb": 1}.get(optimizer, 3)


class Part:
    """The steps that one group of ranks runs. They start at the end of the previous part, or `back` steps earlier."""

    def __init__(self, micro, accumulation, ranks, stage, steps, offload):
        self.micro, self.accumulation, self.ranks, self.stage, self.steps = micro, accumulation, ranks, stage, steps
        self.offload = {"device": "cpu"} if offload else None
        # `end` is the number of steps of the run after this part.
        self.back = self.end = 0

    @property
    def begin(self):
        return self.end - self.steps

    @property
    def leaves(self):
        return self.accumulation * self.ranks

    @property
    def batch(self):
        return self.micro * self.leaves

    def patch(self, steps):
        zero = {"stage": self.stage, "offload_optimizer": self.offload}
        return {"train_micro_batch_size_per_gpu": self.micro, "gradient_accumulation_steps": self.accumulation,
                "train_batch_size": None, "zero_optimization": zero, "run": {"steps": steps}}


class Draw:
    def __init__(self, rng, folder, model_of):
        self.rng, self.folder = rng, folder
        family = rng.choice(["gpt", "gpt2", "llama", "llama", "mixtral", "mixtral", "bert"])
        self.model = model_of(family, rng.randrange(3))
        # Whether weights change. If not, every rate is 0, and each loss is computed with the initial weights.
        self.moving = rng.random() < 0.5
        self.sequence = rng.randint(6, 20)
        self.seed = rng.choice([0, 1, rng.randrange(1 << 40)])
        self.precision = rng.choice(["f32"] * 7 + ["bf16", "bf16", "fp16"])
        self.average = rng.choice(["micro_batch", "micro_batch", "tokens"])
        self.draw_data(family)
        self.draw_parts()
        self.draw_lengths()
        self.draw_rates()
        self.by_command = not self.rates_set and not self.by_callback and rng.random() < 0.08

    # ------------------------------------------------------------------ text

    def draw_data(self, family):
        rng = self.rng
        form = "text" if family == "bert" else rng.choice(["text", "text", "whole", "pairs", "pairs", "messages", "whole"])
        self.form, self.heldout = form, rng.choice([0.0, 0.1, 0.25, 0.4])
        self.keys = {"format": "text" if form == "text" else "jsonl", "heldout": self.heldout, "tokenizer": "bytes"}
        count = rng.randint(40, 60)
        word = lambda low, high: "".join(rng.choice(LETTERS) for _ in range(rng.randint(low, high)))
        self.documents, self.masks = [], None
        if form == "messages":
            # In a shorter sequence, the part of a document that fits may have no target.
            self.sequence = max(self.sequence, 14)
        place = os.path.join(self.folder, "text")
        os.makedirs(place)
        if form == "text":
            self.texts = [f"{i:02d}" + word(1, 40) for i in range(count + 20)]
            for i, text in enumerate(self.texts):
                with open(os.path.join(place, f"{i:03d}.txt"), "w", encoding="utf-8") as file:
                    file.write(text)
            self.keys["strip_licences"] = False
        else:
            lines = [self.line(form, i, word) for i in range(count)]
            with open(os.path.join(place, "lines.jsonl"), "w", encoding="utf-8") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
        if form != "text" and rng.random() < 0.25:
            self.keys["text"] = "".join(json.dumps(line) + "\n" for line in lines)
        else:
            self.keys["paths"] = place
        if form == "messages":
            self.keys["chat_template"] = os.path.join(self.folder, "chat.jinja")
            with open(self.keys["chat_template"], "w", encoding="utf-8") as file:
                file.write(TEMPLATE)
        if form in ("pairs", "messages") and rng.random() < 0.3:
            self.keys["loss_on"] = "all"
            self.documents = [order.Document(d.tokens, [1] * len(d.tokens)) for d in self.documents]
        self.packing = False
        if family != "bert":
            self.packing = rng.choice([False, "isolated"] if form == "text" else [False, False, True, "isolated"])
        else:
            random, masked = rng.choice([0.0, 0.1, 0.5]), rng.choice([0.5, 0.3])
            self.keys |= {"mlm_probability": rng.choice([0.15, 0.5]), "mask_token": MASK_TOKEN, "mask_replace_prob": masked,
                          "random_replace_prob": random}
            self.masks = order.Masks(self.keys["mlm_probability"], masked, random, MASK_TOKEN, models.VOCAB, [0])
        if self.packing:
            self.keys["packing"] = self.packing
        self.tokenized = family != "bert" and self.packing is not True and rng.random() < 0.3
        self.documents_key = form != "text" and rng.random() < 0.15  # model.documents
        apart = self.documents_key or self.packing == "isolated"
        self.mask_key = self.model.folder is not None and family != "bert" and not apart and rng.random() < 0.15  # model.mask

    def line(self, form, number, word):
        longest = 2 * self.sequence if self.rng.random() < 0.2 else self.sequence - 2
        if form == "whole":
            text = f"{number % 10}" + word(1, max(2, longest))
            self.documents.append(order.Document([*text.encode(), 0], [1] * (len(text) + 1)))
            return {"text": text}
        if form == "pairs":
            prompt, answer = f"{number % 10}" + word(0, max(1, longest // 2)), word(1, max(2, longest // 2))
            self.documents.append(order.Document([*(prompt + answer).encode(), 0], [0] * len(prompt) + [1] * (len(answer) + 1)))
            return {"prompt": prompt, "completion": answer}
        messages, tokens, marks = [], [], []
        for role in ["user", "assistant"] * self.rng.randint(1, 2):
            content = word(1, 5)
            messages.append({"role": role, "content": content})
            part = f"<{role[0]}>{content}"
            tokens += part.encode()
            marks += [0] * 3 + [int(role == "assistant")] * len(content)
        self.documents.append(order.Document(tokens, marks))
        return {"messages": messages}

    # ------------------------------------------------------------------ steps

    def draw_parts(self):
        rng = self.rng
        self.optimizer = rng.choice([*OPTIMIZERS, "AdamW", "SGD", "Muon"])
        if self.precision == "fp16" and self.optimizer.startswith(("OneBit", "ZeroOne")):
            self.precision = "f32"
        part = lambda: Part(rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3, 4]),
                            rng.randint(0, most_stage(self.optimizer)), rng.randint(1, 4), rng.random() < 0.15)
        self.parts = [part()]
        for _ in range(rng.choice([0, 1, 1, 2])):
            last, more = self.parts[-1], part()
            # The batch is kept and the stage may change, so the bits must stay the same.
            if rng.random() < 0.4:
                more.micro, more.accumulation, more.ranks = last.micro, last.accumulation, last.ranks
            self.parts.append(more)
        while max(p.batch for p in self.parts) > 12:
            big = max(self.parts, key=lambda p: p.batch)
            big.accumulation, big.micro = 1, min(big.micro, 2)
            if big.batch > 12:
                big.ranks = 2
        self.reproducible = rng.random() < 0.1 and not self.optimizer.startswith(("OneBit", "ZeroOne"))
        # Any number of ranks gives the same bits if the number of leaves of a step is the same.
        if self.reproducible:
            leaves, micro = rng.choice([2, 4]), rng.choice([1, 2])
            for part in self.parts:
                part.micro, part.ranks = micro, rng.choice([r for r in (1, 2, 4) if r <= leaves])
                part.accumulation = leaves // part.ranks
        done = 0
        for part in self.parts:
            part.back = rng.randint(1, done - 1) if done > 1 and rng.random() < 0.2 else 0
            done = part.end = done - part.back + part.steps
        self.steps = max(part.end for part in self.parts)
        self.parts[-1].steps += self.steps - done
        self.parts[-1].end = self.steps
        # Whether the progress callback ends the parts.
        self.by_callback = rng.random() < 0.25
        self.eval_every = rng.choice([0, 0, 1, 2])
        self.eval_samples = rng.choice([None, None, 1, 3, 8])
        # How often ranks reduce affects the bits, but never the data.
        once = max(p.stage for p in self.parts) < 2 and not self.reproducible and rng.random() < 0.4
        self.reduction = "boundary" if once else None

    @property
    def unbroken(self):
        """Tells whether all parts have one batch and the same bits."""
        first = self.parts[0]
        cut = lambda p: (p.micro, p.leaves, 0 if self.reproducible else p.ranks)
        return all(cut(p) == cut(first) for p in self.parts)

    def draw_lengths(self):
        rng = self.rng
        self.curriculum = self.dynamic = None
        causal = self.model.family != "bert"
        if causal and self.form != "text" and not self.packing and not self.documents_key and not self.mask_key and rng.random() < 0.3:
            self.dynamic = {"enabled": True, "max_tokens": rng.randint(self.sequence, 3 * self.sequence),
                            "lr_scaling_method": rng.choice(["linear", "linear", "sqrt", "none"]),
                            "sequence_picking_order": rng.choice(["dataloader", "random", "seqlen"])}
            if rng.random() < 0.3:
                self.dynamic["max_batch_size"] = rng.randint(1, 4)
            # This is rare, because a minimum that cannot be reached ends the list of groups.
            if rng.random() < 0.15:
                least = 1 + (self.dynamic["max_tokens"] >= 2 * self.sequence)
                self.dynamic["min_batch_size"] = min(least, self.dynamic.get("max_batch_size", least))
            for part in self.parts if not self.reproducible else ():
                while part.batch > 4:
                    part.accumulation, part.micro, part.ranks = max(1, part.accumulation - 1), max(1, part.micro - 1), min(part.ranks, 3)
            return
        if causal and rng.random() < 0.35:
            least, most = rng.randint(2, self.sequence // 2), rng.randint(self.sequence // 2, self.sequence)
            kind = rng.choice(["fixed_linear", "fixed_root", "fixed_discrete"])
            if kind == "fixed_discrete":
                count = rng.randint(1, 3)
                more = {"difficulty": sorted(rng.randint(least, most) for _ in range(count)) + [most],
                        "max_step": sorted(rng.sample(range(1, 8), count))}
            else:
                more = {"total_curriculum_step": rng.randint(2, 8), "difficulty_step": rng.randint(1, 4)}
                if kind == "fixed_root":
                    more["root_degree"] = rng.choice([1, 2, 3])
            self.curriculum = {"enabled": True, "curriculum_type": "seqlen", "schedule_type": kind, "min_difficulty": least,
                               "max_difficulty": most, "schedule_config": more}

    def draw_rates(self):
        rng = self.rng
        self.base = rng.choice([1e-3, 1e-2]) if self.moving else 0.0
        self.params = dict(rng.choice(OPTIMIZERS[self.optimizer]))
        self.clipping = rng.choice([None, None, 0, 0.1])
        self.groups = []
        if rng.random() < 0.35:
            names = "*wte*" if self.model.family.startswith("gpt") else "*embedding*" if self.model.family == "bert" else "*embed*"
            rate = {} if rng.random() < 0.3 else {"lr": self.base * rng.choice([0.5, 3])}
            if self.optimizer == "Muon" and rate and rng.random() < 0.5:
                rate["adam_lr"] = self.base * 2
            decay = {"weight_decay": 0.01} if rng.random() < 0.5 or not rate else {}
            self.groups = [{"params": [names], **rate, **decay}]
        self.scheduler = rates.draw(rng, self.steps, 1 + len(self.groups), self.base)
        if self.scheduler and not self.moving and self.scheduler["type"] in ("WarmupDecayLR",):
            self.scheduler["params"].setdefault("warmup_max_lr", 0)
        if self.scheduler and {"warmup_max_lr", "cycle_min_lr", "lr_range_test_min_lr"} & set(self.scheduler["params"]):
            for group in self.groups:
                group.pop("lr", None), group.pop("adam_lr", None)
                group.setdefault("weight_decay", 0.01)
        self.adam_rate = self.base * rng.choice([1, 0.1]) if self.optimizer == "Muon" else self.base
        # {step: rate} that the progress callback sets after a step; None returns the rate to the schedule.
        self.rates_set, self.held = {}, False
        # The updates after each step at which the callback is called.
        self.updates = {}
        if self.moving and self.steps > 1 and rng.random() < 0.35:
            self.rates_set[rng.randint(1, self.steps - 1)] = rng.choice([0.0, 0.002, 0.02])
            if rng.random() < 0.4:
                self.rates_set[rng.randint(1, self.steps - 1)] = rng.choice([None, 0.004])
            self.held = len(self.rates_set) == 1 and self.rates_set.get(1) is not None
            # The first step has rate 0. From the second step on, the rate that was set must act as if it were configured.
            if self.held:
                self.base = self.adam_rate = 0.0
                self.scheduler, self.groups = None, [{k: v for k, v in g.items() if not k.endswith("lr")} for g in self.groups]
                self.groups = [g for g in self.groups if len(g) > 1]

    # ------------------------------------------------------------------ expected rates

    def own_rate(self, group, adam=False):
        """Returns the rate that the configuration gives a group."""
        own = self.groups[group - 1] if group > 0 else {}
        if "lr" in own:
            return own.get("adam_lr", own["lr"]) if adam else own["lr"]
        return self.adam_rate if adam else self.base

    def rate(self, step, group, adam=False):
        """Returns (rate, first beta) of a step of verdict.steps_of."""
        scheduled, beta = rates.rate(self.scheduler, group, self.own_rate(group, adam), step.updates)
        chosen = None
        for behind, wanted in sorted(self.rates_set.items()):
            if behind > step.number or behind not in self.updates:
                continue
            # A callback that returns the current rate sets nothing.
            found = chosen if chosen is not None else rates.rate(self.scheduler, 0, self.own_rate(0), self.updates[behind])[0]
            if wanted is None or abs(wanted - found) > 1e-12:
                chosen = wanted
        return (scheduled if chosen is None else chosen) * step.factor, beta

    # ------------------------------------------------------------------ configuration

    def optimizer_section(self, rate, adam, groups, beta=None):
        params = dict(self.params)
        params |= {"muon_lr": rate, "adam_lr": adam} if self.optimizer == "Muon" else {"lr": rate}
        if beta is not None and self.optimizer in WITH_BETAS:
            params["betas"] = [beta, 0.99]
        out = {"type": self.optimizer, "params": params}
        if groups:
            out["param_groups"] = groups
        return out

    def config(self, folder, save_every):
        first = self.parts[0]
        model = {"family": "gpt", "layers": self.model.layers, "hidden": self.model.hidden, "heads": self.model.heads, "positions": POSITIONS}
        if self.model.folder:
            model = {"folder": self.model.folder, "dropout": 0}
        if self.documents_key or self.mask_key:
            model["documents" if self.documents_key else "mask"] = True
        run = {"dir": folder, "sequence": self.sequence, "sample_tokens": 0, "threads": 1, "pin_threads": False, "keep": 0,
               "seed": self.seed, "max_skipped_steps": 100, "eval_every": self.eval_every, "save_every": save_every}
        if self.eval_samples is not None:
            run["eval_samples"] = self.eval_samples
        out = {"model": model, "data": self.keys, "run": run, "tensorboard": {"enabled": False},
               "optimizer": self.optimizer_section(self.base, self.adam_rate, self.groups)}
        if self.scheduler:
            out["scheduler"] = self.scheduler
        if self.curriculum:
            out["curriculum_learning"] = self.curriculum
        if self.reproducible:
            out["reproducible"] = True
        if self.dynamic:
            out["data_efficiency"] = {"enabled": True, "seed": self.seed % 1000,
                                      "data_sampling": {"enabled": True, "dynamic_batching": self.dynamic}}
        if self.precision != "f32":
            out[self.precision] = {"enabled": True}
        if self.precision == "fp16":
            out["fp16"]["loss_scale"] = 64
        if self.clipping is not None:
            out["gradient_clipping"] = self.clipping
        if self.reduction:
            out["reduction"] = self.reduction
        if self.average != "micro_batch":
            out["loss_average"] = self.average
        patch = first.patch(first.steps)
        patch.pop("train_batch_size")
        run["steps"] = self.steps if self.by_callback else first.steps
        patch.pop("run")
        return {**out, **patch}

    def describe(self):
        parts = " then ".join(f"{f'{p.back} back and ' if p.back else ''}{p.steps} steps of {p.micro} x {p.accumulation} on {p.ranks}, "
                              f"stage {p.stage}" for p in self.parts) + (", stopped by the callback" if self.by_callback else "")
        config = {k: v for k, v in self.config("RUN", 0).items() if k not in ("tensorboard",)}
        set_ = f", next_lr {self.rates_set}" if self.rates_set else ""
        return f"{self.model.family}, {self.form}{' (token file)' if self.tokenized else ''}: {parts}{set_}\n  {json.dumps(config)}"
