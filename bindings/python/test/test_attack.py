"""Misuse that must not crash the process: each case runs in a process of its own; its exit code and last word are
compared."""
import subprocess
import sys
import unittest

BEFORE = """
import array, gc, os, signal, sys, tempfile, threading, time
import libds
CONFIG = {"train_micro_batch_size_per_gpu": 1, "model": {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2, "vocab": 256,
          "positions": 32}}

def run(steps, batch, **options):
    config = {**CONFIG, "run": {"sequence": 32, "steps": steps, "dir": tempfile.mkdtemp(), "sample_tokens": 0}}
    return libds.train(config, batch=batch, progress=options.pop("progress", False), **options)

def refused(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words) and "\\n" not in str(error), str(error)
    else:
        raise AssertionError("it was taken")
"""


class Attack(unittest.TestCase):
    def survives(self, program, timeout=60):
        done = subprocess.run([sys.executable, "-c", BEFORE + program + "\nprint('alive', flush=True)"], capture_output=True,
                              text=True, timeout=timeout, check=False)
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1:]), (0, ["alive"]), done.stderr[-2000:])
        return done

    def test_an_exception_of_a_callback_is_not_raised_by_another_call(self):
        self.survives("""
seen = []
def log(level, line):
    seen.append(libds.version()); libds.env_report(); libds.merge_config({}, {})
def batch(step, micro_step, tokens, targets):
    raise KeyError("mine")
libds.set_log(log)
refused(KeyError, lambda: run(2, batch), "mine")
""")

    def test_a_sequence_may_change_while_it_is_read(self):
        self.survives("""
class Number:
    def __index__(self):
        dims.clear(); return 3
dims = [Number() for _ in range(100)]
graph = libds.lowlevel.graph_create("g", 1)
refused(libds.Error, lambda: libds.lowlevel.graph_param(graph, "w", dims, "zeros", 0.0))
""")

    def test_texts_that_c_cannot_represent_are_refused_by_name(self):
        self.survives("""
for call in (lambda: libds.Graph("\\ud800", 4), lambda: libds.generate("a", "b\\0c"), lambda: libds.Comm("self\\0")):
    refused(libds.InvalidArgument, call, "must")
""")

    def test_control_c_ends_the_wait_for_other_ranks(self):
        self.survives("""
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores the signal in background processes
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    libds.Comm(f"shm://attack_{os.getpid()}", rank=0, size=2, join_timeout=30)
except KeyboardInterrupt:
    pass
assert time.monotonic() - start < 15
""", timeout=25)

    def test_a_rank_may_wait_while_the_program_ends(self):
        for _ in range(3):
            self.survives("""
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    libds.Comm("threads://attack", rank=0, size=2, join_timeout=30)
except KeyboardInterrupt:
    pass
""", timeout=25)


if __name__ == "__main__":
    unittest.main()
