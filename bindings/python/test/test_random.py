"""Random sequences of calls, right and wrong ones, over objects of every kind, as tests/api/sequence_test.c makes in C.

Whatever a program does, a call returns, or raises an exception that says what the caller should do, and that never reports
a defect of libds. A refused call never costs the engine, and every refusal has one line. The test makes 100 sequences, or
1,500 with DS_LONG; DS_SEQUENCE=7 repeats the sequence of seed 7 and prints its calls.
"""
import contextlib
import gc
import os
import random
import sys
import tempfile

from support import CONFIG, HOST, libds, linear_graph, np

CALLS = 80
ALLOWED = (TypeError, ValueError, BufferError, OverflowError, OSError, RuntimeError)  # RuntimeError is NumPy's on bf16
NEVER = (libds.InternalError, libds.PoisonedError, libds.CorruptError, libds.FileError)
TEXTS = ["", "lr", "weight_decay", "param_groups[1].lr", "w", "b", "p", "{", "{}", "[1]", "master", "momentum_buffer", "param", "grad",
         "x", "relu", "linear", "mse", "zeros", "normal", "\udcff", "step", "null", "\n", "a\0b", "device_bytes", "ü" * 300]
NUMBERS = [-1, 0, 1, 2, 3, 4, 7, 99, 2 ** 31 - 1, -2 ** 31, 2 ** 40, 2 ** 70]
REALS = [0.0, 1.0, 0.5, -1.0, 1e-9, 1e300, float("nan"), float("inf"), -float("inf")]


class Sequence:
    def __init__(self, seed, folder, shows):
        self.random = random.Random(seed)
        self.folder, self.shows, self.seed = folder, shows, seed
        self.pool = {kind: [] for kind in ("comm", "tensor", "graph", "plan", "engine", "host", "work", "lease", "value", "memory")}

    # The objects that the calls use.

    def one(self, kind):
        if self.random.random() < 0.05:
            return self.random.choice([None, 3, "text", [], object()])
        if not self.pool[kind]:
            return None
        return self.random.choice(self.pool[kind])

    def text(self):
        return self.random.choice(TEXTS) if self.random.random() < 0.97 else self.random.choice([None, b"w", 1.5])

    def number(self):
        return self.random.choice(NUMBERS)

    def real(self):
        return self.random.choice(REALS)

    def dims(self):
        return [self.random.choice([-1, 0, 1, 2, 3, 4, 6, None, 2 ** 62][: 7 if self.random.random() < 0.9 else 9])
                for _ in range(self.random.randrange(4))]

    def array(self):
        shape = self.random.choice([(4, 3), (4, 2), (3,), (2,), (2, 3), (0,), (), (64,), (4, 4)])
        dtype = self.random.choice(["f4"] * 6 + ["f8", "f2", "i4", "i8", "u1", "u2", "?", "c8"])
        made = np.full(shape, self.random.choice([0, 1, 0.5, np.nan] if dtype[0] in "fc" else [0, 1]), dtype)
        if self.random.random() < 0.1:
            made = np.zeros((*shape, 2), dtype)[..., 0]
        return self.random.choice([made, made, made, memoryview(made), made.tolist(), self.one("tensor"), self.one("memory")])

    def good(self):
        return [np.full((4, n), self.random.random(), np.float32) for n in (3, 2)]

    def inputs(self):
        return self.good() if self.random.random() < 0.5 else [self.array() for _ in range(self.random.randrange(4))]

    def param(self):
        return self.random.choice(["w", "b", "p", 0, 1, self.text(), self.number()])

    def params(self):
        return self.random.choice([None, self.param(), [self.param() for _ in range(self.random.randrange(3))]])

    def state(self):
        return self.random.choice(["master", "momentum_buffer", "param", "grad", self.text()])

    def keep(self, kind, made):
        if isinstance(made, (list, tuple)):
            made = made[0] if made else None
        if made is not None:
            pool = self.pool[kind]
            pool.append(made)
            if len(pool) > 3:
                gone = pool.pop(self.random.randrange(len(pool)))
                if hasattr(gone, "close") and self.random.random() < 0.5:
                    gone.close()
        return made

    # The calls.

    def calls(self):
        r, one = self.random, self.one
        threads = {"threads": 1}
        return [
            lambda: self.keep("comm", libds.Comm(r.choice(["self", "self", self.text()]), rank=r.choice([0, 0, self.number()]))),
            lambda: self.keep("comm", one("comm").split(r.choice([0, None, self.number()]))),
            lambda: one("comm").all_reduce(self.array(), op=r.choice(["sum", "mean", "max", "min", "all"])),
            lambda: self.keep("tensor", one("comm").all_gather(self.array(), blocks=r.choice([None, None, [3], [self.number()]]))),
            lambda: one("comm").broadcast(self.array(), root=r.choice([0, self.number()])),
            lambda: self.keep("work", one("comm").all_reduce(self.array(), self.array(), start=True)),
            lambda: self.keep("work", one("comm").all_to_all([self.array(), self.array()], start=True)),
            lambda: one("work").wait(),
            lambda: one("work").done,
            lambda: one("comm").flight_record(r.choice(["text", "data", "yaml"])),
            lambda: self.keep("tensor", libds.Tensor(self.array(), dtype=r.choice([None, None, "bf16", "f32", self.text()]))),
            lambda: self.keep("tensor", libds.zeros([d for d in self.dims() if d != 2 ** 62], r.choice(["f32", "u8", self.text()]))),
            lambda: self.keep("memory", r.choice([memoryview, np.asarray, np.from_dlpack])(one("tensor"))),
            lambda: one("tensor").copy_(self.array()),
            lambda: one("tensor").tolist(),
            lambda: self.keep("graph", r.choice([linear_graph, lambda: libds.Graph(self.text(), self.number())])()),
            lambda: self.keep("value", one("graph").input(self.text(), r.choice(["f32", "i32"]), self.dims())),
            lambda: self.keep("value", one("graph").param(self.text(), self.dims(), r.choice(["zeros", self.text()]), self.real())),
            lambda: self.keep("value", one("graph").op(r.choice(["relu", "mse", "linear", self.text()]), one("value"), one("value"))),
            lambda: self.keep("value", one("graph").custom_op(self.text(), [one("value")], [(r.choice([None, "f32"]), self.dims())],
                                                              lambda *tensors: None, r.choice([None, lambda *tensors: None]))),
            lambda: one("graph").output(self.text(), one("value")),
            lambda: one("graph").grad(one("value"), [one("value")]),
            lambda: self.keep("plan", libds.Plan(CONFIG, one("graph"), rank=self.number(), size=r.choice([1, 4, self.number()]))),
            lambda: self.keep("plan", libds.Plan(CONFIG, linear_graph())),
            lambda: one("plan").report(r.choice(["text", "data"])),
            lambda: one("plan").picture(one("plan")),
            lambda: self.keep("engine", libds.Engine(CONFIG, linear_graph(), comm=r.choice([None, one("comm")]), **threads)),
            lambda: self.keep("engine", libds.Engine(self.text(), one("graph"), **threads)),
            lambda: one("engine").train_batch(*self.inputs()),
            lambda: one("engine").train_batch(*self.good()),
            lambda: one("engine").forward(*self.inputs()),
            lambda: one("engine").backward(),
            lambda: one("engine").step(),
            lambda: one("engine").eval_batch(*self.inputs()),
            lambda: self.keep("tensor", one("engine").infer(*self.inputs())),
            lambda: one("engine").join(),
            lambda: self.state_of(one("engine")),
            lambda: self.keep("host", self.host(init=r.choice([None, lambda name, first, values: None]))),
            lambda: one("host").start(),
            lambda: one("host").add_param(self.text(), self.dims()),
            lambda: self.lease(one("host")),
            lambda: self.end_lease(),
            lambda: self.keep("memory", np.asarray(self.pool["lease"][0][1][self.param()])),
            lambda: self.keep("tensor", one("host").grad_view(self.param())),
            lambda: one("host").grad_ready(self.param(), self.array()),
            lambda: one("host").grad_ready("p", np.ones(64, np.float32)),
            lambda: one("host").backward(),
            lambda: one("host").step(),
            lambda: self.state_of(one("host")),
            lambda: [repr(one(kind)) for kind in self.pool],
            lambda: one(r.choice(["comm", "tensor", "graph", "plan", "engine", "host", "work"])).close(),
            gc.collect,
        ]

    def host(self, **options):
        engine = libds.DelegateEngine(HOST, threads=1, **options)
        engine.add_param("p", 64)
        return engine.start() if self.random.random() < 0.8 else engine

    def lease(self, host):
        context = host.gathered(self.params())
        self.pool["lease"].insert(0, (context, context.__enter__()))

    def end_lease(self):
        if self.pool["lease"]:
            context = self.pool["lease"].pop(self.random.randrange(len(self.pool["lease"])))[0]
            context.__exit__(None, None, None)

    def state_of(self, engine):
        r = self.random
        r.choice([
            lambda: engine.read(self.param(), self.state()),
            lambda: engine.write(self.param(), self.array(), self.state()),
            lambda: engine.read_local(self.param(), self.state()),
            lambda: (engine.write_local(self.param(), self.array(), self.state()), engine.refresh()),
            lambda: engine.freeze(self.params(), r.random() < 0.5),
            lambda: engine.add_group(self.params(), lr=self.real()),
            lambda: engine.__setitem__(self.text(), self.real()),
            lambda: engine[self.text()],
            lambda: engine.save(self.folder, client_state=self.text(), keep=r.choice([None, 1, self.number()])),
            lambda: engine.load(self.folder),
            lambda: engine.report("data"),
            lambda: engine.plan(),
            lambda: (engine.last_step, engine.skip_reason, engine.params),
        ])()

    def play(self):
        calls = self.calls()
        for number in range(CALLS):
            which = self.random.randrange(len(calls))
            try:
                calls[which]()
                outcome = "ok"
            except NEVER as error:
                raise AssertionError(f"seed {self.seed}, call {number} ({which}): {error!r}") from error
            except libds.Error as error:
                if not error.message or ("\n" in error.message and not isinstance(error, libds.OutOfMemory)):
                    raise AssertionError(f"seed {self.seed}, call {number} ({which}): message {error.message!r}") from error
                outcome = repr(error)
            except (AttributeError, IndexError, *ALLOWED) as error:  # raised for None and other objects that are not handles
                outcome = repr(error)
            if self.shows:
                print(number, which, outcome)
        for engine in self.pool["engine"]:
            if hasattr(engine, "closed") and not engine.closed:
                self.usable(engine)

    def usable(self, engine):
        """Checks that the engine makes a step or names the reason why it cannot: a refused call never costs the engine."""
        with contextlib.suppress(libds.StateError):  # a forward that waits for its backward, or an evaluation in pieces
            engine.train_batch(*self.good())


def main():
    only = os.environ.get("DS_SEQUENCE")
    begin = random.randrange(1 << 30) if os.environ.get("DS_LONG") else 0
    seeds = [int(only)] if only else range(begin, begin + (1500 if os.environ.get("DS_LONG") else 100))
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            Sequence(seed, folder, bool(only)).play()
            # The collector does not see the memory of engines, so it would not run by itself.
            gc.collect()
    print(f"{len(seeds)} sequences from seed {seeds[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
