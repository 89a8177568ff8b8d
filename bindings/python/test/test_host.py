"""A host without torch makes the calls of libds.torch in random order; each update must be that of AdamW, computed by libds or by
a function of the host."""
import random
import unittest

from support import libds, np, ranks, scratch

STEPS = 6
SEEDS = range(12)


def adamw(e):
    """AdamW as the update of an engine."""
    values, grads, mean, square = (np.asarray(array) for array in (e.values, e.grads, *e.states))
    mean[:] = e.beta1 * mean + (1 - e.beta1) * grads
    square[:] = e.beta2 * square + (1 - e.beta2) * grads * grads
    step = mean / (1 - e.beta1 ** e.update) / (np.sqrt(square / (1 - e.beta2 ** e.update)) + e.eps)
    values[:] = values * (1 - e.lr * e.weight_decay) - e.lr * step


class Host:
    """Random layers over an engine, and the same training in NumPy. All ranks draw the same calls."""

    def __init__(self, seed, comm):
        self.draw, self.seed, self.comm = random.Random(seed), seed, comm
        self.stage = self.draw.choice([0, 2, 3, 3])
        self.configured = self.draw.choice([1, 2, 3])
        self.skips, self.by_host = self.draw.random() < 0.5, self.draw.random() < 0.4
        shapes = [self.draw.choice([[], [3], [40, 30], [7, 2], [300], [2, 3, 4]]) for _ in range(self.draw.randint(1, 6))]
        self.values = {f"p{i}": np.random.default_rng([seed, i]).normal(size=shape).astype(np.float32) for i, shape in enumerate(shapes)}
        self.names = list(self.values)
        self.moments = {name: [np.zeros(shape), np.zeros(shape), 0] for name, shape in zip(self.names, shapes)}
        self.frozen = set(self.draw.sample(self.names, 1)) if len(self.names) > 2 and self.draw.random() < 0.4 else set()
        self.rate = {name: 1e-2 for name in self.names}
        self.engine = self.make()
        self.views = {}
        for name in self.names:
            try:
                self.views[name] = np.asarray(self.engine.view(name))
            except libds.StateError:
                pass

    def make(self):
        config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": self.configured, "gradient_clipping": 1.0,
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}},
                  "missing_gradients": "skip" if self.skips else "zero",
                  "zero_optimization": {"stage": self.stage, "stage3_param_persistence_threshold": self.draw.choice([0, 100]),
                                        "reduce_bucket_size": self.draw.choice([500, 100000])},
                  "frozen_parameters": sorted(self.frozen)}

        def init(name, first, values):
            np.asarray(values)[:] = self.values[name].reshape(-1)[first:first + len(values)]

        if self.by_host:
            config["optimizer"]["type"] = "Callback"
            config["optimizer"]["params"]["states"] = ["exp_avg", "exp_avg_sq"]
        engine = libds.DelegateEngine(config, comm=self.comm, threads=1, init=init, update=adamw if self.by_host else None)
        for name in self.names:
            engine.add_param(name, self.values[name].shape)
        engine.start()
        engine["mean_micro_steps"] = self.configured
        return engine

    def seen(self, names):
        """Leases parameters and returns copies of their values."""
        away = [name for name in names if name not in self.views]
        with self.engine.gathered(away) as lease:
            return {name: np.array(self.views[name] if name in self.views else lease[name]) for name in names}

    def check(self, case, seen):
        for name, value in seen.items():
            np.testing.assert_allclose(value, self.values[name], rtol=2e-5, atol=2e-6, err_msg=f"seed {self.seed}: {case} of {name}")

    def gradient(self, name, value, rank, step, micro):
        noise = np.random.default_rng([self.seed, self.names.index(name), rank, step, micro]).normal(size=value.shape)
        return (0.1 * value + noise).astype(np.float32)

    def micro_step(self, step, micro, sums):
        forward = self.draw.sample(self.names, len(self.names))
        for name in forward:
            self.check("forward", self.seen([name]))
        trained = [name for name in reversed(forward) if name not in self.frozen]
        missing = set(self.draw.sample(trained, 1)) if trained and self.draw.random() < 0.2 else set()
        ready = []
        for name in trained:
            value = self.seen([name])[name]
            self.check("backward", {name: value})
            if name in missing:
                continue
            for rank in range(self.comm.size):
                sums[name] += self.gradient(name, value, rank, step, micro)
                self.given.add(name)
            ready.append((name, self.gradient(name, value, self.comm.rank, step, micro)))
            if self.draw.random() < 0.5:
                self.hand_over(ready)
        self.hand_over(ready)
        self.engine.backward()

    def hand_over(self, ready):
        if self.draw.random() < 0.5:
            self.engine.grads_ready([name for name, _ in ready], [grad for _, grad in ready])
        else:
            for name, grad in ready:
                self.engine.grad_ready(name, grad)
        ready.clear()

    def broken_step(self):
        """Begins a step whose backward fails after some gradients."""
        for name in self.draw.sample([name for name in self.names if name not in self.frozen], 1):
            self.engine.grad_ready(name, np.full(self.values[name].shape, 3, np.float32))
        if self.draw.random() < 0.5:
            self.engine.backward()
        self.engine.drop_step()

    def step(self, step):
        sums = {name: np.zeros(self.values[name].shape) for name in self.names}
        if self.draw.random() < 0.3:
            self.broken_step()
        self.given = set()
        count = self.draw.choice([self.configured, self.configured, 1, self.configured + 1])
        expected = self.configured
        for micro in range(count):
            wanted = micro + 1 if micro == count - 1 else max(self.configured, micro + 2)
            if wanted != expected:
                self.engine["micro_steps"] = expected = wanted
            self.micro_step(step, micro, sums)
        if self.draw.random() < 0.3:
            self.engine["lr"] = self.rate["all"] = self.draw.choice([1e-2, 5e-3])
        result = self.engine.step()
        norm = self.update({name: value / (self.configured * self.comm.size) for name, value in sums.items() if name not in self.frozen})
        np.testing.assert_allclose(result.grad_norm, norm, rtol=1e-5, err_msg=f"seed {self.seed}")
        self.check("master", {name: np.array(self.engine.read(name)) for name in self.names})

    def update(self, grads):
        norm = np.sqrt(sum(float((grad * grad).sum()) for grad in grads.values()))
        for name, grad in grads.items():
            if self.skips and name not in self.given:
                continue
            rate = self.rate.get("all", self.rate[name])
            moments = self.moments[name]
            grad = grad * min(1.0, 1.0 / (norm + 1e-6))
            moments[0] = 0.9 * moments[0] + 0.1 * grad
            moments[1] = 0.999 * moments[1] + 0.001 * grad * grad
            moments[2] += 1
            mean, square = moments[0] / (1 - 0.9 ** moments[2]), moments[1] / (1 - 0.999 ** moments[2])
            self.values[name] = (self.values[name] * (1 - rate * 0.1) - rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)
        return norm

    def between(self):
        """What a program does between steps: evaluation, edits, freezing, saving and loading."""
        what = self.draw.choice(["nothing", "evaluate", "edit", "freeze", "resume"])
        if what == "evaluate":
            self.check("evaluation", self.seen(self.draw.sample(self.names, len(self.names))))
        elif what == "edit":
            name = self.draw.choice(self.names)
            self.values[name] = (self.values[name] * 0.5).astype(np.float32)
            first, count = self.engine.local_range(name)
            self.engine.write_local(name, self.values[name].reshape(-1)[first:first + count].copy())
            self.engine.refresh()
        elif what == "freeze" and len(self.names) > 1:
            name = self.draw.choice(self.names)
            frozen = name not in self.frozen
            if frozen and len(self.frozen) + 1 == len(self.names):
                return
            (self.frozen.add if frozen else self.frozen.discard)(name)
            self.engine.freeze(name, frozen)
        elif what == "resume":
            self.resume()

    def resume(self):
        with scratch() as folder:
            where = self.comm.broadcast(np.frombuffer(folder.encode().ljust(200), np.uint8).copy()).tobytes().decode().strip()
            self.engine.save(where, client_state={"seed": self.seed})
            for name in self.names:
                self.engine.write(name, np.zeros(self.values[name].shape, np.float32))
            assert self.engine.load(where) == {"seed": self.seed}
            self.comm.barrier()

    def run(self):
        with self.engine:
            for step in range(STEPS):
                self.step(step)
                self.between()
                self.check("view", self.views)


class RandomHost(unittest.TestCase):
    def test_every_order_of_calls_trains_alike(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                ranks(1 + seed % 3, lambda comm, seed=seed: Host(seed, comm).run())


if __name__ == "__main__":
    unittest.main()
