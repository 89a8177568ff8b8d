"""Compares random losses with NumPy in f64: cross_entropy with its attributes over logits, or over their softmax or its
logarithm.

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

    def __str__(self):
        return f"{self.rows} x {self.width} x {self.words}, {self.kind or 'logits'} of size {self.size}, {self.attrs}, {self.targets}"

    def libds(self):
        """Returns the loss and the gradient of w."""
        graph = libds.Graph("loss", rows=self.rows)
        x, targets = graph.input("x", "f32", [None, self.width]), graph.input("targets", "i32", [None])
        y = graph.op("linear", x, graph.param("w", [self.words, self.width], "normal", 0.1))
        if self.kind:
            y = graph.op("softmax", y, log=int(self.kind == "log"))
        graph.output("loss", graph.op("cross_entropy", y, targets, **self.attrs))
        config = {"train_micro_batch_size_per_gpu": self.rows, "gradient_clipping": 0,
                  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}}
        with libds.Engine(config, graph, threads=1) as engine:
            engine.write("w", self.w.ravel())
            loss = engine.train_batch(self.x, self.targets)
            return loss, self.w - np.array(engine.read("w")).reshape(self.w.shape)

    def numpy(self):
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
        (loss, gradient), (want, slopes) = case.libds(), case.numpy()
        # f32 rounds logits of this size, and the square of the logarithm of their sum has z_loss times that error. The
        # gradient is the change of w, whose last bit is lost.
        near = 2e-5 * (1 + abs(want))
        off = 3e-5 * (1 + np.abs(case.w).max() * case.width) * (1 + 40 * case.size * case.attrs.get("z_loss", 0))
        off *= max(1, np.abs(slopes).max())
        if not abs(loss - want) <= near or not np.abs(gradient - slopes).max() <= off:
            print(f"DS_LOSS={seed}: {case}: loss {loss}, NumPy {want}; gradient off by {np.abs(gradient - slopes).max()}, allowed {off}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
