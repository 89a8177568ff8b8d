"""Runs the training of a draw and compares it with an independent computation."""
import glob
import json
import os
import shutil
import subprocess

import numpy

from outside import library, models, order

TOLERANCE = {"f32": 2e-5, "bf16": 2e-2, "fp16": 3e-3}
# If a model has diverged beyond this loss (an untrained model has about 5.5), its weights are so large that one rounding in
# its precision changes the loss by more than any tolerance. The order of its data, its rates and its bits are still compared.
DIVERGED = 100.0


class Differs(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Differs(text)


def token_file(path):
    """Returns the tokens and documents of a token file (src/data/token_file.cpp has the layout)."""
    with open(path, "rb") as file:
        raw = file.read()
    word = lambda kind, at, count=1: numpy.frombuffer(raw, kind, count, at)
    width, count, documents, marked = int(word("<u4", 12)[0]), int(word("<i8", 24)[0]), int(word("<i8", 96)[0]), int(word("<u4", 104)[0])
    tokens = word(f"<u{width}", 128, count).astype(int)
    marks = tokens & 1 if marked else numpy.ones(count, int)
    tokens = tokens >> marked
    out, begin = [], 0
    if documents:
        for end in word("<i8", 128 + (count * width + 7) // 8 * 8, documents):
            whole = end & 1 or not marked
            size = slice(begin, int(end) >> 1)
            out.append(order.Document(tokens[size].tolist(), [1] * (size.stop - begin) if whole else marks[size].tolist()))
            begin = size.stop
    return tokens.tolist(), out


class Text:
    """The two texts of a run, and their samples."""

    def __init__(self, draw, folder):
        self.draw = draw
        if draw.tokenized:
            tokens, documents = token_file(draw.keys["paths"])
            self.compare_whole(tokens, documents)
            share = draw.heldout
            kept = lambda units: len(units) - int(len(units) * share)
            self.train = documents[:kept(documents)] if documents else tokens[:kept(tokens)]
            self.heldout = documents[kept(documents):] if documents else tokens[kept(tokens):]
        else:
            sides = [token_file(os.path.join(folder, "data", name + ".tokens")) for name in ("train", "heldout")]
            self.train, self.heldout = (side[1] if draw.form != "text" else side[0] for side in sides)
            self.compare_split()
        self.samples = self.open_samples()

    def compare_whole(self, tokens, documents):
        if self.draw.form == "text":
            require(tokens == self.stream(self.draw.texts), "the token file is not the text")
        else:
            require(documents == self.draw.documents, "the token file is not the documents")

    @staticmethod
    def stream(texts):
        return [token for text in texts for token in (*text.encode(), 0)]

    def compare_split(self):
        """Checks that each unit is in exactly one of the two texts, in order."""
        if self.draw.form == "text" and self.train + self.heldout == self.stream(self.draw.texts):
            # The tail of the text is held out.
            return
        units = [self.stream([t]) for t in self.draw.texts] if self.draw.form == "text" else [[d] for d in self.draw.documents]
        at = [0, 0]
        for unit in units:
            for side, whole in enumerate((self.train, self.heldout)):
                if whole[at[side]:at[side] + len(unit)] == unit:
                    at[side] += len(unit)
                    break
            else:
                raise Differs(f"neither side of the text goes on with {unit}")
        require(at == [len(self.train), len(self.heldout)], "the two sides of the text are more than the text")
        require(self.draw.heldout == 0 or self.heldout, "nothing is held out")

    def open_samples(self):
        draw = self.draw
        if draw.dynamic:
            return order.Groups(self.train, draw.sequence, draw.dynamic, draw.seed % 1000)
        if draw.form != "text":
            packing = draw.packing
            rows = order.Documents(self.train, draw.sequence, packing, draw.seed)
            if draw.documents_key and not packing:
                rows.rows = order.document_rows(self.train, draw.sequence, False)
            return rows
        return order.Stream(self.train, draw.sequence, draw.seed, 0 if draw.packing else None, draw.masks)

    def heldout_rows(self):
        """Returns rows in which each target of the held-out text occurs once."""
        draw, sequence = self.draw, self.draw.sequence
        if draw.form != "text":
            packing = False if draw.dynamic else draw.packing
            return order.document_rows(self.heldout, sequence, packing)
        text = self.heldout
        if draw.masks:
            if len(text) < sequence:
                return []
            begins = list(range(0, len(text) - sequence + 1, sequence))
            rows = [draw.masks.row(text[b:b + sequence], b, 0, 0, order.HELDOUT_MASK) for b in begins]
            if left := len(text) - begins[-1] - sequence:  # the last row ends with the text
                last = draw.masks.row(text[-sequence:], len(text) - sequence, 0, 0, order.HELDOUT_MASK)
                last.targets = [order.NO_TARGET] * (sequence - left) + last.targets[sequence - left:]
                rows.append(last)
            return rows
        rows = []
        for at in range(0, len(text) - 1, sequence):
            row = order.stream_row(text[at:at + sequence], text[at + 1:at + sequence + 1], 0 if draw.packing else None)
            pad = sequence - len(row.tokens)
            rows.append(order.Row(row.tokens + [0] * pad, row.targets + [order.NO_TARGET] * pad,
                                  row.begins + list(range(sequence - pad, sequence)), row.real + [False] * pad))
        return rows


class Step:
    """A step of a run: its leaves, each a list of rows, the factor of its rates, and the number of steps and of updates before
    it."""

    def __init__(self, leaves, factor, number, updates, skipped):
        self.leaves, self.factor, self.number, self.updates, self.skipped = leaves, factor, number, updates, skipped


def steps_of(draw, text):
    out, place, updates, places = [], 0, 0, []
    for part in draw.parts:
        if part.back:
            place, updates = places[-part.back]
            del out[-part.back:], places[-part.back:]
        for _ in range(part.steps):
            places.append((place, updates))
            if draw.dynamic:
                # The rest of the list is too short for a step.
                if place + part.batch > len(text.samples.groups):
                    place = 0
                groups = text.samples.groups[place:place + part.batch]
                leaves = [[row for group in groups[l * part.micro:(l + 1) * part.micro] for row in group] for l in range(part.leaves)]
                share = sum(map(len, groups)) / part.batch
                factor = {"linear": share, "sqrt": share**0.5, "none": 1.0}[draw.dynamic["lr_scaling_method"]]
            else:
                leaves = [[text.samples.sample(place + l * part.micro + i) for i in range(part.micro)] for l in range(part.leaves)]
                factor = 1.0
            if draw.curriculum:
                length = order.difficulty(draw.curriculum, len(out) + 1)
                leaves = [[row.cut(length) for row in leaf] for leaf in leaves]
            # If losses are averaged over tokens, a step without targets is skipped: its samples are used up, but the schedule
            # does not advance.
            skipped = draw.average == "tokens" and not any(map(targets_of, leaves))
            out.append(Step(leaves, factor, len(out), updates, skipped))
            updates += not skipped
            place += part.batch
    draw.updates = {step.number + 1: step.updates + 1 for step in out if not step.skipped}
    return out


def targets_of(rows):
    return sum(t != order.NO_TARGET for row in rows for t in row.targets)


def step_loss(draw, model, leaves):
    sums, counts, routers = [], [], []
    for leaf in leaves:
        results = model.results(leaf)
        sums.append(sum(float(r.losses.sum()) for r in results))
        counts.append(targets_of(leaf))
        routers.append(model.router_loss(leaf, results))
    if draw.average == "tokens":
        weights = [count / max(1, sum(counts)) for count in counts]
        return sum(sums) / max(1, sum(counts)) + sum(w * r for w, r in zip(weights, routers))
    return sum(s / max(1, c) + r for s, c, r in zip(sums, counts, routers)) / len(leaves)


def undecided(draw, model, rows):
    """Returns whether f16 may choose another expert for a token than higher precision does. The losses then differ."""
    if draw.precision != "fp16" or model.family != "mixtral":
        return False
    for result in model.results(rows):
        scores = -numpy.sort(-result.routers, -1)
        gap = scores[..., model.chosen - 1] - scores[..., model.chosen]
        if (gap < 2e-3 * numpy.maximum(1, numpy.abs(scores[..., 0]))).any():
            return True
    return False


def heldout_loss(model, rows):
    return sum(float(r.losses.sum()) for r in model.results(rows)) / targets_of(rows)


class Runs:
    def __init__(self, draw, lib, build):
        self.draw, self.lib, self.build = draw, lib, build
        self.folder, self.converted = os.path.join(draw.folder, "run"), 0
        # Steps at which the callback should stop a part.
        self.ends = []

    def train(self, config, ranks, resume=None, set_rates=True, end=None):
        """Trains one part. The progress callback sets its rates and stops it after step `end`, if given."""
        if self.draw.by_command:
            return self.command(config, ranks, resume)
        chosen = self.draw.rates_set if set_rates else {}

        def call(step, _):
            if step == end:
                return library.STOP
            rate = chosen.get(step, False)
            return None if rate is False else float("nan") if rate is None else rate

        return self.lib.train(config, ranks, resume, call if chosen or end else None)

    def command(self, config, ranks, resume):
        path = os.path.join(self.draw.folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        libds = os.path.join(self.build, "bin", "libds")
        words = [libds, "train", "--quiet", "--config", path, *(["--resume", resume] if resume else [])]
        if ranks > 1:
            words = [libds, "launch", "-n", str(ranks), *words]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=100)
        if done.returncode:
            raise library.Refused(f"libds train: {done.stdout[-600:]}")

    def make(self):
        """Trains all parts. Returns losses, rates and held-out losses by step, as texts."""
        draw = self.draw
        every_step = draw.moving or any(part.back for part in draw.parts)
        for i, part in enumerate(draw.parts):
            # A part cannot be stopped by the callback at a step at which the callback sets a rate.
            end = part.end if draw.by_callback and part.end < draw.steps and part.end not in draw.rates_set else None
            if end:
                self.ends.append(end)
            if i == 0:
                config = draw.config(self.folder, int(every_step))
                config["run"]["steps"] = draw.steps if end else part.end
                self.train(config, part.ranks, end=end)
            else:
                resume = self.checkpoint(self.folder, draw.parts[i - 1].end - part.back) if part.back else self.folder
                self.train(part.patch(draw.steps if end else part.end), part.ranks, resume, end=end)
        return library.metrics(self.folder)

    def checkpoint(self, folder, step):
        found = glob.glob(os.path.join(folder, "checkpoints", f"step-{step:08d}-*"))
        require(found, f"there is no checkpoint of step {step}")
        return max(found, key=lambda path: int(path.rsplit("-", 1)[1]))

    def weights(self, folder, step):
        """Returns the masters of a checkpoint, by name."""
        self.converted += 1
        out = os.path.join(self.draw.folder, f"weights{self.converted}")
        self.lib.text("ds_checkpoint_convert", self.checkpoint(folder, step).encode(), out.encode(), b'{"to": "fp32"}')
        return models.read_safetensors(glob.glob(os.path.join(out, "*.safetensors"))[0])

    def hash(self, folder, step):
        return self.lib.state_hash(self.checkpoint(folder, step))["payload_hash"]


def check_rates(draw, steps, made):
    for k, step in enumerate(steps):
        if step.skipped:
            continue
        expected = draw.rate(step, 0)[0]
        got = float(made[k + 1][1])
        require(library.close(got, expected, 1e-6, 1e-12), f"step {k + 1} has the rate {got}, and {expected} is right")


def rounded(values, precision):
    if precision == "fp16":
        return values.astype(numpy.float16).astype(numpy.float32)
    words = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32).astype(numpy.uint64)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16 << 16).astype(numpy.uint32).view(numpy.float32)


def model_at(draw, runs, step):
    """Returns the model after a step, with its masters in the precision of the run, or None if they are unknown."""
    drawn = draw.model.family == "gpt"
    if not draw.moving:
        weights = runs.weights(runs.folder, draw.steps) if drawn else draw.model.w
    elif step == 0:
        weights = None if drawn else draw.model.w
    else:
        # Between two synchronizations of 0/1 Adam, each rank has its own parameters.
        weights = None if draw.optimizer == "ZeroOneAdam" else runs.weights(runs.folder, step)
    if weights is None:
        return None
    if draw.precision != "f32":
        weights = {name: rounded(value, draw.precision) for name, value in weights.items()}
    return draw.model.with_weights(weights)


def check_loss(draw, model, rows, what, got, expected):
    diverged = draw.moving and min(got, expected) > DIVERGED
    # Because of a rounding, another expert may be chosen for a token, and its output may be anything.
    undecided = draw.precision != "f32" and model.margin(rows) < TOLERANCE[draw.precision]
    require(diverged or undecided or library.close(got, expected, TOLERANCE[draw.precision], 1e-6), f"{what} {got}, and {expected} is right")


def check_step(draw, model, steps, made, k):
    if model is None or steps[k].skipped or any(undecided(draw, model, leaf) for leaf in steps[k].leaves):
        return
    rows = [row for leaf in steps[k].leaves for row in leaf]
    check_loss(draw, model, rows, f"step {k + 1} has the loss", float(made[k + 1][0]), step_loss(draw, model, steps[k].leaves))


def check_losses(draw, text, runs, steps, made, heldout):
    """Compares the loss of each step if no weights change, otherwise of the first and another step. Also compares the last
    held-out loss."""
    if draw.moving:
        for k in {0, draw.rng.randrange(draw.steps)}:
            check_step(draw, model_at(draw, runs, k), steps, made, k)
    else:
        model = model_at(draw, runs, 0)
        for k in range(draw.steps):
            check_step(draw, model, steps, made, k)
    check_heldout(draw, text, runs, heldout)


def check_heldout(draw, text, runs, heldout):
    rows = text.heldout_rows()
    seen = min(draw.eval_samples or len(rows), len(rows))
    rows = [rows[i * len(rows) // seen] for i in range(seen)]
    if not targets_of(rows):
        require(not heldout, f"there are held-out losses {heldout} of no held-out text")
        return
    due = {s for s in range(1, draw.steps + 1) if draw.eval_every and s % draw.eval_every == 0}
    # The last step of a run is evaluated, and its value is kept unless a later part starts before this step.
    for i, part in enumerate(draw.parts):
        last = part.end == draw.steps or not draw.by_callback or part.end in draw.rates_set
        due |= {part.end} if last and all(p.begin >= part.end for p in draw.parts[i + 1:]) else set()
    require(sorted(heldout) == sorted(due), f"held-out losses are of steps {sorted(heldout)}, and {sorted(due)} are right")
    for step in [draw.steps] if draw.moving else sorted(heldout):
        model, got = model_at(draw, runs, step), float(heldout[step])
        if model is None or undecided(draw, model, rows):
            continue
        check_loss(draw, model, rows, f"of {targets_of(rows)} targets in {len(rows)} rows step {step} has the held-out loss",
                   got, heldout_loss(model, rows))


def still_patch(draw, step):
    """Returns the rates of a step, as a configuration."""
    rate, beta = draw.rate(step, 0)
    adam = draw.rate(step, 0, adam=True)[0]
    groups = []
    for number, group in enumerate(draw.groups, 1):
        own = {"lr": draw.rate(step, number)[0]}
        if draw.optimizer == "Muon":
            own = {"muon_lr": own["lr"], "adam_lr": draw.rate(step, number, adam=True)[0]}
        groups.append({**{n: v for n, v in group.items() if not n.endswith("lr")}, **own})
    patch = {"scheduler": None, "optimizer": draw.optimizer_section(rate, adam, groups, beta)}
    if draw.dynamic:
        patch["data_efficiency"] = {"data_sampling": {"dynamic_batching": {"lr_scaling_method": "none"}}}
    return patch


def merge(document, patch):
    out = dict(document)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merge(out[key], value)
        else:
            out[key] = value
    return out


def check_twin(draw, runs, steps, made):
    """Repeats one step with its rates in the configuration. Loss and state must be equal."""
    k = draw.rng.randrange(draw.steps)
    if draw.rates_set and k >= min(draw.rates_set):
        # Rates that a callback has set are part of checkpoints.
        k = draw.rng.randrange(min(draw.rates_set))
    if steps[k].skipped:
        return
    twin, patch = os.path.join(draw.folder, "twin"), still_patch(draw, steps[k])
    part = next(p for p in reversed(draw.parts) if p.begin <= k < p.end)
    if k == 0:
        config = merge(draw.config(twin, 0), patch)
        config["run"]["steps"] = 1
        runs.train(config, part.ranks, set_rates=False)
    else:
        shutil.copytree(runs.folder, twin, ignore=lambda path, names: [n for n in names if n.startswith("step-") and
                                                                        not n.startswith(f"step-{k:08d}-")])
        runs.train({**part.patch(k + 1), **patch}, part.ranks, runs.checkpoint(twin, k), set_rates=False)
    got, _ = library.metrics(twin)
    require(got[k + 1][0] == made[k + 1][0], f"step {k + 1} has the loss {made[k + 1][0]}, its twin {got[k + 1][0]}")
    if runs.hash(twin, k + 1) == runs.hash(runs.folder, k + 1):
        return
    # The last bit of a rate may differ, so the weights are compared with a tolerance.
    names, before = runs.weights(twin, k + 1), runs.weights(runs.folder, k) if k else None
    for name, value in runs.weights(runs.folder, k + 1).items():
        right = names[name]
        moved = numpy.abs(right - (before[name] if before else draw.model.w.get(name, right))).max()
        off = numpy.abs(value - right).max()
        require(off <= 1e-3 * moved + 1e-6 * numpy.abs(right).max(), f"step {k + 1} moves {name} by {moved:.3g} with its rates "
                f"{json.dumps(patch['optimizer'])} from the configuration, and to a place {off:.3g} away without")


def check_held(draw, runs, made):
    """Compares a rate that is set after the first step, whose rate is 0, with a configured rate after a warm-up of one
    step."""
    rate, first = draw.rates_set[1], draw.parts[0]
    # The steps that no later part has repeated.
    steps = min([first.end, *(part.begin for part in draw.parts[1:])])
    if steps < 2:
        return
    folder = os.path.join(draw.folder, "held")
    config = draw.config(folder, 0)
    config["optimizer"] = draw.optimizer_section(rate, rate, draw.groups)
    config["scheduler"] = {"type": "constant", "params": {"warmup_num_steps": 1}}
    config["run"]["steps"] = steps
    runs.train(config, first.ranks, set_rates=False)
    got, _ = library.metrics(folder)
    for step in got:
        require(got[step][0] == made[step][0],
                f"step {step} has the loss {made[step][0]} with next_lr {rate} and {got[step][0]} with lr {rate}")
    require(runs.hash(folder, steps) == runs.hash(runs.folder, steps),
            f"step {steps} ends in another state with next_lr {rate} than with lr {rate}")


def check_unbroken(draw, runs, made):
    folder = os.path.join(draw.folder, "whole")
    config = draw.config(folder, 0)
    config["run"]["steps"] = draw.steps
    runs.train(config, draw.parts[0].ranks)
    got, _ = library.metrics(folder)
    require(got == made, f"a run that was resumed has losses and rates {made}, one that was not {got}")
    require(runs.hash(folder, draw.steps) == runs.hash(runs.folder, draw.steps),
            "a run that was resumed ends in another state than one that was not")


def check(draw, lib, build):
    if draw.tokenized:
        path = os.path.join(draw.folder, "text.tokens")
        data = {k: v for k, v in draw.keys.items() if k not in ("heldout", "packing")}
        lib.tokenize({"data": data}, path)
        draw.keys = {"format": "tokens", "paths": path, "tokenizer": "bytes", "heldout": draw.heldout,
                     **({"packing": draw.packing} if draw.packing else {})}
    runs = Runs(draw, lib, build)
    made, heldout = runs.make()
    text = Text(draw, runs.folder)
    steps = steps_of(draw, text)
    if any(steps[end - 1].skipped for end in runs.ends):
        # The callback is not called for skipped steps, so the part continued.
        return
    wanted = [k + 1 for k, step in enumerate(steps) if not step.skipped]
    if any(float(made[k][0]) > DIVERGED for k in made) and set(made) < set(wanted):
        # The gradients became infinite.
        return
    require(sorted(made) == wanted, f"metrics.csv has steps {sorted(made)}, and {wanted} are right")
    check_rates(draw, steps, made)
    check_losses(draw, text, runs, steps, made, heldout)
    if draw.moving:
        check_twin(draw, runs, steps, made)
        if draw.held:
            check_held(draw, runs, made)
    if len(draw.parts) > 1 and draw.unbroken:
        check_unbroken(draw, runs, made)
