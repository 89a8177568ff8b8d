#!/usr/bin/env python3
"""Misuses the Python package in random ways, each try in a separate process.

usage: misuse.py BUILD [TRIES] [--short] [--seed N] [--only TRY]

A try draws 2 to 4 misuses: callbacks that close, raise, resize, re-enter, fork or replace callbacks, threads that close or
use one object at the same time, tensors that are replaced while views of them exist, texts that C cannot represent, wrong
arguments to every call, a subinterpreter, signals during calls that wait, and groups of threads or processes in which one
rank closes, raises, aborts, leaves or dies. After each misuse the same process creates a small engine and trains a step,
whose loss must equal the loss of this step before any misuse. A try also fails if a wrong call is accepted, a signal is not
noticed, or a rank outlives its group. Some tries end while a daemon thread is inside a call. A try must end by itself,
without a signal, within SLOWEST seconds.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys

# The longest duration of a try, in seconds.
SLOWEST = 120
# The folder of wrong_arguments.py.
TABLES = pathlib.Path(__file__).resolve().parents[2] / "bindings/python/test"
# The interpreter that the package is built for.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

WORKER = r'''
import array, contextlib, functools, gc, io, itertools, os, random, signal, subprocess, sys, tempfile, threading, time
import libds
import wrong_arguments
from libds import ops

dice = random.Random(int(sys.argv[1]))
# A shell starts background processes with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
FOLDER = tempfile.TemporaryDirectory(prefix="libds-misuse-")
MODEL = {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2, "vocab": 256, "positions": 32}
CONFIG = {"train_micro_batch_size_per_gpu": 1, "run": {"sequence": 32}, "model": MODEL,
          "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}}
HOST = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "zero_optimization": {"stage": 3}}
TOKENS = libds.tensor([i % 250 for i in range(32)])
NUMBERS = itertools.count()
# Descriptions of misuses that libds has wrongly accepted, and of other defects.
WRONG = []


def engine(**options):
    return libds.Engine({**CONFIG, **options}, threads=1)


def host(**options):
    made = libds.DelegateEngine(HOST, threads=1, **options)
    for number in range(3):
        made.add_param(f"w{number}", [50])
    return made


def step():
    with engine() as one:
        return one.train_batch(TOKENS, TOKENS)


def run(batch, steps=3, progress=False):
    libds.train({**CONFIG, "run": {"sequence": 32, "steps": steps, "dir": tempfile.mkdtemp(dir=FOLDER.name), "sample_tokens": 0}},
                batch=batch, progress=progress)


@functools.lru_cache(maxsize=None)
def trained():
    """Returns the folder of a run of one step."""
    folder = tempfile.mkdtemp(dir=FOLDER.name)
    libds.train({**CONFIG, "run": {"sequence": 32, "steps": 1, "dir": folder, "sample_tokens": 0}}, batch=lambda *_: None, progress=False)
    return folder


def say(on_text, tokens=3):
    libds.generate(trained(), ids=[1, 2], tokens=tokens, threads=1, on_text=on_text)


def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def fork_and_return():
    """Forks a child that returns into the call of its parent. The child must end with an error."""
    child = os.fork()
    if child == 0:
        return
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 1:
        WRONG.append(f"a child that has returned from a callback has ended with {code}")


def resize(view):
    owner = view.obj
    view.release()
    with contextlib.suppress(BufferError):
        owner.extend(b"x" * 10000) if dice.random() < 0.5 else owner.clear()
        WRONG.append("a callback resized its buffer")


def deed(target, views=()):
    """Returns a callable that misbehaves as a callback."""
    methods = [name for name in dir(type(target)) if not name.startswith("_") and name not in ("join", "trace")]
    name = dice.choice(methods)

    def enter():
        with contextlib.suppress(Exception):
            value = getattr(target, name)
            if callable(value):
                value()

    def thread():
        one = threading.Thread(target=target.close)
        one.start()
        one.join(0.05)

    # Calls C functions that return no status.
    def look():
        with contextlib.suppress(libds.Error):
            repr(target)
            for name in ("params", "state_names"):
                list(getattr(target, name, ()))

    return dice.choice([target.close, enter, look, look, thread, fork, fork_and_return, gc.collect, lambda: 1 / 0, lambda: sys.exit(3),
                        step,
                        lambda: libds.set_log(None),
                        lambda: [view.release() for view in views], *[lambda: [resize(view) for view in views]] * (2 if views else 0)])


def init():
    made = []
    made.append(host(init=lambda name, first, values: deed(made[0], [values])()))
    made[0].start()


def update():
    made = [libds.Engine({**CONFIG, "optimizer": {"type": "Callback", "params": {"states": ["a"]}}}, threads=1,
                         update=lambda e: deed(made[0])())]
    made[0].train_batch(TOKENS, TOKENS)


def batches():
    other = engine()
    run(lambda number, micro, tokens, targets: deed(other, [tokens, targets])())


def progress():
    other = engine()
    run(None if dice.random() < 0.2 else lambda *_: None, progress=lambda now: deed(other)())


def parts():
    other = engine()
    say(lambda part: deed(other)())


def log():
    other = engine()

    class Log:
        def __call__(self, level, line):
            libds.set_log(dice.choice([None, lambda level, line: None]))
            gc.collect()
            deed(other)()
            if dice.random() < 0.5:
                raise ValueError("by a callable that nothing holds any more")

    # During a call, the frame keeps the object of a method alive, but not the method object itself. libds.set_log wraps the
    # callable in a function; lowlevel.log_set_fn does not.
    for _ in range(4):
        set_log = dice.choice([libds.set_log, libds.lowlevel.log_set_fn])
        set_log(dice.choice([Log(), Log().__call__, functools.partial(Log())]))
        engine(zzz=1)


def custom():
    graph = libds.Graph("custom", rows=4)
    x, w = graph.input("x", "f32", [None, 3]), graph.param("w", [3, 3], "normal", 0.1)
    made, kept = [], []

    def forward(inputs, outputs):
        kept.extend(inputs + outputs)
        deed(dice.choice([made[0], graph, inputs[0], outputs[0]]))()

    y = graph.custom_op("mine", [ops.linear(graph, x, w)], [(None, [None, 3])], forward)
    graph.output("loss", ops.mse(graph, y, x))
    made.append(libds.Engine({**HOST, "train_micro_batch_size_per_gpu": 4}, graph, threads=1))
    for one in (lambda: made[0].eval_batch(libds.zeros([4, 3])), lambda: kept[0].tolist(), lambda: memoryview(kept[-1])):
        with contextlib.suppress(Exception):
            one()


def views():
    source = bytearray(dice.choice([4000, 1 << 22]))
    tensor = libds.Tensor(memoryview(source).cast("f"))
    shown = [memoryview(tensor), *[tensor.__dlpack__()] * dice.randrange(2)]
    for _ in range(4):
        with contextlib.suppress(BufferError, libds.Error):
            dice.choice([lambda: tensor.__init__(array.array("f", [1.0] * dice.randrange(9))), tensor.close, source.clear,
                         lambda: shown[0].tolist(), lambda: shown.pop(), gc.collect, lambda: libds.Tensor(shown[-1])])()
    del source
    gc.collect()
    if shown and isinstance(shown[0], memoryview) and any(bytes(shown[0])):
        WRONG.append("a view shows other memory than it was made over")
    outlived = host()
    outlived.start()
    grad = memoryview(outlived.grad_view("w1"))
    outlived.close()
    del outlived
    gc.collect()
    grad[0] = 1.0


def threads():
    one = engine()

    def use():
        for _ in range(4):
            with contextlib.suppress(libds.Error):
                dice.choice([lambda: one.train_batch(TOKENS, TOKENS), lambda: one.read(0), lambda: one.last_step, one.close, gc.collect,
                             lambda: one.save(FOLDER.name), lambda: one.plan()])()

    several = [threading.Thread(target=use) for _ in range(3)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()


def texts():
    bad = dice.choice(["a\0b", "\0", "\udcff", "x" * 100000])
    one = engine()
    dice.choice([lambda: one.save(FOLDER.name + bad), lambda: one.load(bad), lambda: one[bad], lambda: one.read(bad), lambda: libds.Graph(bad, 4),
                 lambda: libds.Comm("self" + bad), lambda: libds.generate(bad, "x"), lambda: libds.Graph.parse(bad), lambda: one.save_model(bad + "\0")])()
    if not bad.startswith("x"):
        WRONG.append(f"a text with {bad!r} was taken")


def numbers():
    dims = []

    class Number:
        def __index__(self):
            dice.choice([dims.clear, gc.collect, lambda: 1 / 0, lambda: dims.extend([self] * 9)])()
            return 3

    dims += [Number() for _ in range(5)]
    libds.lowlevel.graph_param(libds.lowlevel.graph_create("g", 1), "w", dims, "zeros", 0.0)


def collectives():
    comm = libds.Comm("self")
    data = array.array("f", [1.0] * 1000)
    work = comm.all_reduce(data, start=True)
    for _ in range(4):
        with contextlib.suppress(BufferError, libds.Error):
            dice.choice([comm.close, work.close, work.wait, lambda: data.append(1.0), gc.collect, fork])()


class Heard(Exception):
    pass


def hear(*_):
    raise Heard


signal.signal(signal.SIGUSR1, hear)


def alone(ended):
    """Waits in a group whose other rank joins but calls no collective."""
    url, joined = f"threads://misuse-{os.getpid()}-{next(NUMBERS)}", threading.Event()

    def other():
        with libds.Comm(url, rank=1, size=2, join_timeout=25):
            joined.set()
            ended.wait(60)

    threading.Thread(target=other, daemon=True).start()
    data = array.array("f", [1.0] * 10)
    with libds.Comm(url, size=2, timeout=25, join_timeout=25, interruptible=True) as comm:
        joined.wait(30)
        dice.choice([lambda: comm.all_reduce(data), comm.barrier, lambda: comm.broadcast(data), lambda: comm.receive(data, 1), lambda: comm.split(0),
                     lambda: comm.all_gather(data), lambda: comm.all_reduce(data, start=True).wait()])()


def interrupted():
    """Sends SIGINT or SIGUSR1, whose handlers raise, while a call waits. The call must end long before its own timeout."""
    ended = threading.Event()
    waits = dice.choice([lambda: libds.Comm(f"{dice.choice(['shm', 'threads'])}://misuse-{os.getpid()}-{next(NUMBERS)}", size=2, join_timeout=25),
                         lambda: run(lambda *_: time.sleep(0.01), 100000), lambda: say(dice.choice([None, lambda part: None]), 1 << 20),
                         lambda: alone(ended), lambda: alone(ended)])
    number = dice.choice([signal.SIGINT, signal.SIGUSR1])

    def send():
        if not ended.wait(dice.random()):
            os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    begin = time.monotonic()
    try:
        sender.start()
        waits()
        WRONG.append("a signal was not heard")
    except (KeyboardInterrupt, Heard):
        pass
    except libds.Error as error:
        WRONG.append(f"a signal was not heard: {error}")
    finally:
        ended.set()
        sender.join()
    if time.monotonic() - begin > 20:
        WRONG.append("a signal was heard late")


def arguments():
    """Makes 100 calls drawn from all calls with a wrong argument."""
    before, folder = os.getcwd(), tempfile.mkdtemp(dir=FOLDER.name)
    # Some of the calls are valid and create files.
    os.chdir(folder)
    try:
        for text, call in dice.sample(list(wrong_arguments.wrong_calls(dice, 1)), 100):
            if complaint := call():
                WRONG.append(f"{text}: {complaint}")
    finally:
        os.chdir(before)


def subinterpreter():
    """Imports libds in a subinterpreter, which must refuse it. libds must continue to work in this interpreter."""
    try:
        import _interpreters as kinds
    except ImportError:
        import _xxsubinterpreters as kinds
    try:
        one = kinds.create("legacy")
    except TypeError:
        one = kinds.create(isolated=False)
    try:
        answer = kinds.run_string(one, "import libds; libds.tensor([1]); libds.set_log(print)")
    # Before Python 3.13, run_string raises the error instead of returning it.
    except Exception as error:
        answer = error
    if "main interpreter" not in str(answer):
        WRONG.append(f"a subinterpreter has said {answer}")
    kinds.destroy(one)


def wrongdoing(comm):
    """Returns a function that does something to the group, or nothing."""
    return dice.choice([lambda: None, comm.close, lambda: comm.abort("enough"), lambda: 1 / 0, gc.collect, fork, lambda: comm.split(None),
                        lambda: comm.all_reduce(array.array("f", [1.0] * 7)), lambda: comm.barrier(start=True), lambda: time.sleep(0.2)])


def rank(comm, number, doer, when, train):
    with contextlib.suppress(libds.Error, BufferError, ZeroDivisionError):
        deed = wrongdoing(comm)
        made = libds.Engine(CONFIG, comm=comm, threads=1) if train else None
        for turn in range(4):
            if number == doer and turn == when:
                deed()
            if made:
                made.train_batch(TOKENS, TOKENS)
                continue
            data = array.array("f", [1.0] * 100)
            comm.all_reduce(data)
            if doer < 0 and any(value != comm.size for value in data):
                WRONG.append("a sum is wrong")


def ranks():
    url, size = f"threads://misuse-{os.getpid()}-{next(NUMBERS)}", dice.randint(2, 3)
    doer, when, train = dice.randrange(-1, size), dice.randrange(4), dice.random() < 0.4

    def join(number):
        with contextlib.suppress(libds.Error):
            rank(libds.Comm(url, rank=number, size=size, timeout=5, join_timeout=20), number, doer, when, train)

    group = [threading.Thread(target=join, args=[number], daemon=True) for number in range(size)]
    for one in group:
        one.start()
    for one in group:
        one.join(60)
        if one.is_alive():
            WRONG.append("a rank outlives its group")


CHILD = """
import array, os, signal, sys, libds
comm = libds.Comm(sys.argv[1], rank=1, size=2, timeout=5, join_timeout=20)
for turn in range(4):
    if turn == int(sys.argv[2]):
        exec(sys.argv[3])
    comm.all_reduce(array.array("f", [1.0] * 100))
"""


def processes():
    url = f"shm://misuse-{os.getpid()}-{next(NUMBERS)}"
    deed = dice.choice(["pass", "os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(2)", "comm.close()", "comm.abort('enough')", "1 / 0",
                        "del comm", "os.kill(os.getpid(), signal.SIGSTOP)"])
    child = subprocess.Popen([sys.executable, "-c", CHILD, url, str(dice.randrange(4)), deed], stderr=subprocess.DEVNULL)
    begin = time.monotonic()
    try:
        rank(libds.Comm(url, size=2, timeout=5, join_timeout=30), 0, -1 if deed == "pass" else 9, dice.randrange(4), False)
        if "SIG" not in deed and child.wait(30) < 0:
            WRONG.append(f"the other rank ended by signal {-child.returncode} after {deed}")
    except subprocess.TimeoutExpired:
        WRONG.append(f"the other rank outlives its group after {deed}")
    finally:
        child.kill()
        child.wait()
    if time.monotonic() - begin > 60:
        WRONG.append(f"a rank outlives its group after {deed}")


MISUSES = [init, update, batches, progress, parts, log, custom, views, threads, texts, numbers, collectives, interrupted, arguments, subinterpreter, ranks,
           processes]
right = step()
for _ in range(dice.randint(2, 4)):
    misuse = dice.choice(MISUSES)
    print(misuse.__name__, flush=True)
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            misuse()
        except (Exception, SystemExit) as error:
            print("  ", type(error).__name__, str(error)[:100], flush=True)
        libds.set_log(None)
    assert not WRONG, f"in {misuse.__name__}: {WRONG}"
    loss = step()
    assert loss == right, f"after {misuse.__name__} the loss is {loss}, not {right}"
if dice.random() < 0.5:
    print("ends within a call", flush=True)
    inside = threading.Event()
    wait = dice.choice([0, 0.001, 1])
    threading.Thread(target=run, args=[lambda *_: (inside.set(), time.sleep(wait)), 1000000], daemon=True).start()
    inside.wait(30)
    time.sleep(dice.random() / 10)
print("end", flush=True)
'''


def attempt(package, seed):
    """Returns a description of the defect that the try has shown, or "" if there is none."""
    environment = {**os.environ, "PYTHONPATH": f"{package}:{TABLES}", "OMP_NUM_THREADS": "1"}
    if seed % 3:
        # Freed objects are overwritten, so that a use after free does not see the former value.
        environment["PYTHONMALLOC"] = "debug"
    try:
        done = subprocess.run([PYTHON, "-X", "faulthandler", "-c", WORKER, str(seed)], capture_output=True, text=True,
                              timeout=SLOWEST, env=environment, check=False)
    except subprocess.TimeoutExpired as late:
        return f"no end within {SLOWEST} s: {(late.stdout or b'').decode()[-1500:]}"
    if done.returncode == 0 and done.stdout.endswith("end\n"):
        return ""
    return f"return code {done.returncode}: {done.stdout[-1500:]}{done.stderr[-3000:]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("tries", type=int, nargs="?", default=100)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    package = args.build / "python"
    if not list((package / "libds").glob("_lowlevel*.so")):
        print("skipped: this build has no Python package")
        return 77
    seed = args.seed if args.seed is not None else 1 if args.short else random.randrange(1 << 30)
    tries = [args.only] if args.only is not None else range(6 if args.short else args.tries)
    print(f"seed {seed}", flush=True)
    failed = 0
    for number in tries:
        wrong = attempt(package, seed * 100000 + number)
        if wrong:
            failed += 1
            print(f"try {number} failed (misuse.py BUILD --seed {seed} --only {number}): {wrong}", flush=True)
    print(f"{len(tries)} tries, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
