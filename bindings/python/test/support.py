"""Shared by the tests of the package: a small graph, ranks as threads, memory of the process."""
import contextlib
import itertools
import os
import shutil
import sys
import tempfile
import threading

import libds

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed for", sys.executable)
    sys.exit(77)

CONFIG = {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0, "zero_optimization": {"stage": 2},
          "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}
HOST = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, "zero_optimization": {"stage": 3},
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}
_numbers = itertools.count()


def linear_graph():
    """Returns a graph of y = x * w + b with a mean squared error; output 1 is y."""
    graph = libds.Graph("linear", rows=4)
    x, target = graph.input("x", "f32", [None, 3]), graph.input("target", "f32", [None, 2])
    w, b = graph.param("w", [2, 3], "normal", 0.1), graph.param("b", [2])
    y = graph.op("linear", x, w, b)
    graph.output("loss", graph.op("mse", y, target))
    graph.output("y", y)
    return graph


def linear_batch():
    x = (np.arange(12, dtype=np.float32) % 5 * 0.25 - 0.5).reshape(4, 3)
    return x, np.stack([x[:, 0] - x[:, 1], 0.5 * x[:, 2] + 1], axis=1)


def linear_engine(**options):
    return libds.Engine(CONFIG, linear_graph(), threads=1, **options)


def host_engine(elements=5, **options):
    """Returns a started delegate engine with one parameter "p", which is zeros unless an `init` is given."""
    engine = libds.DelegateEngine(HOST, threads=1, **options)
    engine.add_param("p", elements)
    return engine.start()


def ranks(size, body, timeout=60.0):
    """Runs body(comm) as every rank of a group of threads; returns the results, or raises the first exception."""
    url = f"threads://python-{os.getpid()}-{next(_numbers)}"
    results, failures = [None] * size, []

    def run(rank):
        try:
            with libds.Comm(url, rank=rank, size=size, timeout=timeout) as comm:
                results[rank] = body(comm)
        except BaseException as error:  # raised again in the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=[rank]) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


@contextlib.contextmanager
def scratch():
    folder = tempfile.mkdtemp(prefix="libds-python-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def resident():
    """Returns the bytes of memory in use."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors():
    return len(os.listdir("/proc/self/fd"))
