"""Compares random losses with NumPy in f64: cross_entropy with its attributes over logits, or over their softmax or its
logarithm, and preference_loss over pairs of texts; and the losses of single targets, which inference computes.

Each case trains one step of SGD with a rate of 1, so that the weight decreases by exactly its gradient. The test has 60
cases, or 2,000 with DS_LONG; DS_LOSS=7 repeats the case of seed 7.
"""
import os
import random
import sys

from support import libds, np


def normalized(logits, kind):
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return {"": logits, "softmax": np.exp(logs), "log": logs}[kind]


def back_through(kind, y, dy):
    if kind == "softmax":
        return y * (dy - (dy * y).sum(1, keepdims=True))
    return dy - np.exp(y) * dy.sum(1, keepdims=True) if kind == "log" else dy


class Case:
    def __init__(self, seed):
        draw, numbers = random.Random(seed), np.random.default_rng(seed)
        self.rows, self.width, self.words = draw.choice([1, 2, 5]), draw.choice([1, 3, 7, 16]), draw.choice([1, 2, 3, 16, 257, 1031])
        self.kind = draw.choice(["", "", "softmax", "log"])
        self.attrs = {}
        if draw.random() < 0.7:
            self.attrs["label_smoothing"] = draw.choice([0.0, 0.1, 0.5, 1.0])
        if draw.random() < 0.7:
            self.attrs["z_loss"] = draw.choice([0.0, 1e-2, 1.0])
        if draw.random() < 0.7:
            self.attrs["reduction"] = draw.choice(["mean", "sum"])
        self.size = draw.choice([1, 1, 10, 30])
        self.x = numbers.standard_normal((self.rows, self.width)).astype(np.float32)
        self.w = (self.size * numbers.standard_normal((self.words, self.width)) / self.width ** 0.5).astype(np.float32)
        self.targets = numbers.integers(0, self.words, self.rows).astype(np.int32)
        if draw.random() < 0.5:
            self.targets[numbers.random(self.rows) < 0.5] = -100
        self.judge = None
        if draw.random() < 0.4:
            self.draw_pairs(draw, numbers)

    def draw_pairs(self, draw, numbers):
        """Makes the rows texts of pairs, each with a target in its first row."""
        text, pairs = draw.choice([1, 3]), draw.choice([1, 2, 5])
        self.rows, self.kind, self.attrs, self.size = 2 * pairs * text, "", {}, 1
        self.words = max(2, self.words)
        self.w = (numbers.standard_normal((self.words, self.width)) / self.width ** 0.5).astype(np.float32)
        self.x = numbers.standard_normal((self.rows, self.width)).astype(np.float32)
        self.targets = numbers.integers(0, self.words, self.rows).astype(np.int32)
        self.targets[(numbers.random(self.rows) < 0.4) & (np.arange(self.rows) % text > 0)] = -100
        self.reference = numbers.random(self.rows).astype(np.float32) * 3
        self.judge = {"rows": text, "loss": draw.choice(["sigmoid", "hinge", "ipo", "odds", "simpo"]), "beta": draw.choice([0.1, 1.0])}
        if self.judge["loss"] in ("sigmoid", "simpo"):
            self.judge["label_smoothing"] = draw.choice([0.0, 0.3])
        if self.judge["loss"] == "simpo":
            self.judge["margin"] = 0.7

    def __str__(self):
        if self.judge:
            return f"{self.rows} x {self.width} x {self.words}, {self.judge}, {self.targets}"
        return f"{self.rows} x {self.width} x {self.words}, {self.kind or 'logits'} of size {self.size}, {self.attrs}, {self.targets}"

    def libds(self):
        """Returns the loss, the gradient of w, and the losses of single targets."""
        graph = libds.Graph("loss", rows=self.rows)
        x, targets = graph.input("x", "f32", [None, self.width]), graph.input("targets", "i32", [None])
        y = graph.op("linear", x, graph.param("w", [self.words, self.width], "normal", 0.1))
        if self.kind:
            y = graph.op("softmax", y, log=int(self.kind == "log"))
        given = [self.x, self.targets]
        if self.judge:
            operands = [graph.op("cross_entropy", y, targets, reduction="none"), targets]
            if self.referred():
                operands.append(graph.input("reference", "f32", [None]))
                given.append(self.reference)
            graph.output("loss", graph.op("preference_loss", *operands, **self.judge))
        else:
            graph.output("loss", graph.op("cross_entropy", y, targets, **self.attrs))
        config = {"train_micro_batch_size_per_gpu": self.rows, "gradient_clipping": 0, "inferred": "token_losses",
                  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}}
        with libds.Engine(config, graph, threads=1) as engine:
            engine.write("w", self.w.ravel())
            tokens = np.array(engine.infer(*given).numpy())
            loss = engine.train_batch(*given)
            return loss, self.w - np.array(engine.read("w")).reshape(self.w.shape), tokens

    def referred(self):
        return self.judge["loss"] in ("sigmoid", "hinge", "ipo")

    def judged(self, losses):
        """Returns the loss of the pairs for the losses of rows."""
        def log_sigmoid(z):
            return -np.logaddexp(0, -z)

        counted = (self.targets >= 0).reshape(-1, self.judge["rows"])
        score = (self.reference if self.referred() else 0) - losses
        sums = (score.reshape(counted.shape) * counted).sum(1)
        means, beta, kind = sums / counted.sum(1), self.judge["beta"], self.judge["loss"]
        if kind == "ipo":
            return ((means[0::2] - means[1::2] - 1 / (2 * beta)) ** 2).mean()
        if kind == "odds":
            odds = means - np.log1p(-np.exp(means))
            return -beta * log_sigmoid(odds[0::2] - odds[1::2]).mean()
        of = means if kind == "simpo" else sums
        z = beta * (of[0::2] - of[1::2]) - self.judge.get("margin", 0)
        if kind == "hinge":
            return np.maximum(0, 1 - z).mean()
        smoothing = self.judge["label_smoothing"]
        return -((1 - smoothing) * log_sigmoid(z) + smoothing * log_sigmoid(-z)).mean()

    def numpy_pairs(self):
        """Returns the loss and, by finite differences over the losses of rows, the gradient of w."""
        x = self.x.astype(np.float64)
        logs = normalized(x @ self.w.astype(np.float64).T, "log")
        hot = np.eye(self.words)[np.where(self.targets >= 0, self.targets, 0)]
        losses, step = -(logs * hot).sum(1), 1e-6
        slopes = np.array([(self.judged(losses + step * one) - self.judged(losses - step * one)) / (2 * step) for one in np.eye(self.rows)])
        return self.judged(losses), ((np.exp(logs) - hot) * slopes[:, None]).T @ x

    def numpy_tokens(self):
        """Returns -log p of each target, without smoothing and z-loss, and 0 in rows without one."""
        y = normalized(self.x.astype(np.float64) @ self.w.astype(np.float64).T, self.kind)
        logs, counted = normalized(y, "log"), self.targets >= 0
        return np.where(counted, -logs[np.arange(self.rows), np.where(counted, self.targets, 0)], 0)

    def numpy(self):
        if self.judge:
            return self.numpy_pairs()
        smoothing, z_loss = self.attrs.get("label_smoothing", 0.0), self.attrs.get("z_loss", 0.0)
        x = self.x.astype(np.float64)
        y = normalized(x @ self.w.astype(np.float64).T, self.kind)
        top = y.max(1, keepdims=True)
        sums = top + np.log(np.exp(y - top).sum(1, keepdims=True))
        counted = self.targets >= 0
        hot = np.eye(self.words)[np.where(counted, self.targets, 0)]
        wanted = (1 - smoothing) * hot + smoothing / self.words
        losses = ((sums - y) * wanted).sum(1) + z_loss * sums[:, 0] ** 2
        dy = (1 + 2 * z_loss * sums) * np.exp(y - sums) - wanted
        share = counted / (max(1, counted.sum()) if self.attrs.get("reduction", "mean") == "mean" else 1)
        return (losses * share).sum(), back_through(self.kind, y, dy * share[:, None]).T @ x


def main():
    one = os.environ.get("DS_LOSS")
    for seed in [int(one)] if one else range(2000 if os.environ.get("DS_LONG") else 60):
        case = Case(seed)
        (loss, gradient, tokens), (want, slopes) = case.libds(), case.numpy()
        # f32 rounds logits of this size, and the square of the logarithm of their sum has z_loss times that error. The
        # gradient is the change of w, whose last bit is lost.
        near = 2e-5 * (1 + abs(want))
        off = 3e-5 * (1 + np.abs(case.w).max() * case.width) * (1 + 40 * case.size * case.attrs.get("z_loss", 0))
        off *= max(1, np.abs(slopes).max())
        if not abs(loss - want) <= near or not np.abs(gradient - slopes).max() <= off:
            print(f"DS_LOSS={seed}: {case}: loss {loss}, NumPy {want}; gradient off by {np.abs(gradient - slopes).max()}, allowed {off}")
            return 1
        losses = case.numpy_tokens()
        if tokens.shape != losses.shape or not np.abs(tokens - losses).max() <= 2e-5 * (1 + np.abs(losses).max()):
            print(f"DS_LOSS={seed}: {case}: losses of targets {tokens}, NumPy {losses}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
