"""Wrong calls: each raises an exception with the message of libds, and the engine stays usable or says that it is
not."""
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest

from support import CONFIG, HOST, host_engine, libds, linear_batch, linear_engine, linear_graph, np, ranks


class Errors(unittest.TestCase):
    def test_errors_name_their_subject(self):
        with self.assertRaises(libds.ConfigError) as caught:
            libds.Engine({**CONFIG, "optimizer": {"params": {"lr": -1}}}, linear_graph())
        error = caught.exception
        self.assertEqual((error.status, error.key, error.tensor, error.rank),
                         (libds.Status.CONFIG, "optimizer.params.lr", None, None))
        self.assertEqual(str(error), error.message)
        self.assertNotIn("\n", error.message)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), again.key, again.message), (type(error), error.key, error.message))

    def test_every_status_has_a_class_and_python_s_own_where_there_is_one(self):
        self.assertEqual({cls().status for cls in [lambda s=s: libds.errors.of_status(s, "m") for s in libds.Status]},
                         set(libds.Status))
        for cls, base in [(libds.InvalidArgument, ValueError), (libds.ConfigError, ValueError), (libds.NotFound, LookupError),
                          (libds.StateError, RuntimeError), (libds.OutOfMemory, MemoryError), (libds.FileError, OSError),
                          (libds.NumericError, ArithmeticError), (libds.PoisonedError, libds.StateError),
                          (libds.Unsupported, NotImplementedError), (libds.Stopped, libds.Error)]:
            self.assertTrue(issubclass(cls, base) and issubclass(cls, libds.Error))
        error = libds.errors.of_status(-7, "cannot open 'x'", rank=3)
        self.assertEqual((str(error), error.rank, type(error)), ("cannot open 'x'", 3, libds.FileError))

    def test_too_small_a_budget_is_out_of_memory(self):
        with self.assertRaises(MemoryError) as caught:
            libds.Engine({**CONFIG, "memory_budget": {"host": 100, "device": 100}}, linear_graph())
        self.assertIsInstance(caught.exception, libds.OutOfMemory)


class Native(unittest.TestCase):
    def test_wrong_inputs_leave_the_engine_usable(self):
        x, target = linear_batch()
        with linear_engine() as engine:
            wanted = engine.train_batch(x, target)
        with linear_engine() as engine:
            for inputs, words in [((x, np.zeros((6, 2), np.float32)), "rows"), ((np.ones((4, 3), np.int32), target), "i32"),
                                  ((x,), "2"), ((x, target, x), "3"), ((x, None), "target"), ((np.zeros((4, 4), np.float32), target), "'x'"),
                                  ((x.astype(float), target), "'x' must be f32, got f64")]:
                with self.assertRaises(libds.Error) as caught:
                    engine.train_batch(*inputs)
                self.assertIn(words, str(caught.exception))
            with self.assertRaises(TypeError):
                engine.train_batch(x.tolist(), target)
            with self.assertRaises(libds.StateError):
                engine.step()
            with self.assertRaises(libds.StateError):
                engine.backward()
            self.assertEqual(engine.train_batch(x, target), wanted)

    def test_nan_in_an_input_skips_the_step(self):
        x, target = linear_batch()
        with linear_engine() as engine:
            before = engine.read("w").tolist()
            engine.train_batch(np.full_like(x, np.nan), target)
            self.assertTrue(engine.last_step.skipped)
            self.assertTrue(engine.skip_reason)
            self.assertEqual(engine.read("w").tolist(), before)
            engine.train_batch(x, target)
            self.assertEqual((engine.last_step.updates, engine.skip_reason), (1, ""))

    def test_wrong_names_and_values_are_refused(self):
        with linear_engine() as engine:
            with self.assertRaisesRegex(libds.NotFound, "did you mean 'b'"):
                engine.param("bb")
            for wrong in (2, -1):
                with self.assertRaises(libds.InvalidArgument):
                    engine.param(wrong)
            with self.assertRaises(libds.InvalidArgument):
                engine.read("w", "mastr")
            with self.assertRaises(libds.InvalidArgument) as caught:
                engine.write("b", np.zeros(3, np.float32))
            self.assertEqual(caught.exception.tensor, "b")
            for wrong in (np.zeros(2), np.zeros(2, np.int32), [0, 0], "no"):
                with self.assertRaises(TypeError):
                    engine.write("b", wrong)
            with self.assertRaises(BufferError):
                engine.read("b", out=bytes(8))
            with self.assertRaises(TypeError):
                engine.param(1.5)
            with self.assertRaisesRegex(libds.InvalidArgument, "params must be"):
                engine.freeze([2 ** 40])

    def test_closed_objects_raise(self):
        engine, comm, graph, plan = linear_engine(), libds.Comm("self"), linear_graph(), libds.Plan(CONFIG, linear_graph())
        work = comm.barrier(start=True)
        work.wait()
        for one in (engine, work, comm, graph, plan):
            one.close()
            one.close()
            self.assertTrue(one.closed)
            self.assertIn("closed", repr(one))
            with self.assertRaises(libds.StateError):
                with one:
                    pass
        for call in (lambda: engine.train_batch(), lambda: engine.params, lambda: engine["lr"], engine.plan, lambda: comm.size,
                     comm.barrier, lambda: str(graph), plan.report, work.wait, lambda: libds.Engine(CONFIG, graph),
                     lambda: libds.Engine(CONFIG, linear_graph(), comm=comm), lambda: comm.abort("no")):
            with self.assertRaisesRegex(libds.StateError, "is closed"):
                call()

    def test_an_object_that_another_thread_closes_lives_until_its_call_has_returned(self):
        def body(comm):
            rank = comm.rank
            if rank == 0:
                threading.Timer(0.05, comm.close).start()  # while the call is inside the barrier
            else:
                threading.Event().wait(0.2)
            comm.barrier()
            return comm.closed

        self.assertEqual(ranks(2, body), [True, False])


class Delegate(unittest.TestCase):
    def usable(self, engine):
        """Checks that a step has its normal effect."""
        before = np.array(engine.read("p"))
        engine.grad_ready("p", np.ones(before.shape, np.float32))
        engine.backward()
        engine.step()
        self.assertEqual(engine.read("p").tolist(), (before - 0.5).tolist())

    def test_wrong_gradients_leave_the_engine_usable(self):
        with host_engine() as engine:
            for grad, words in [(np.ones(4, np.float32), "4"), (np.ones(5, np.int32), "i32"), (np.ones((2, 3), np.float32), "[2,3]")]:
                with self.assertRaises(libds.Error) as caught:
                    engine.grad_ready("p", grad)
                self.assertIn(words, str(caught.exception))
            self.usable(engine)
            engine.grad_ready("p", np.full(5, np.nan, np.float32))
            engine.backward()
            self.assertTrue(engine.step().skipped)
            self.assertIn("p", engine.skip_reason)
            self.usable(engine)
            # A missing gradient counts as zero.
            engine.backward()
            engine.step()
            self.usable(engine)
            with self.assertRaises(libds.StateError):
                engine.step()  # before any backward
            engine.grad_ready("p", np.ones(5, np.float32))
            with self.assertRaises(libds.StateError):
                engine.grad_ready("p", np.ones(5, np.float32))
            engine.backward()
            with self.assertRaises(libds.StateError):
                # This gradient comes after the last micro-step.
                engine.grad_ready("p", np.ones(5, np.float32))
            engine.step()
            self.usable(engine)

    def test_wrong_leases_leave_the_engine_usable(self):
        with host_engine() as engine:
            with engine.gathered() as outer:
                # Leases are counted; the memory is the same.
                with engine.gathered() as inner:
                    self.assertEqual(inner["p"].data_ptr, outer["p"].data_ptr)
                self.assertEqual(outer["p"].tolist(), [0] * 5)
                with self.assertRaises(libds.InvalidArgument):
                    outer[7]
                with self.assertRaises(libds.StateError):
                    engine.write("p", np.ones(5, np.float32))
            with self.assertRaises(libds.StateError):
                libds.lowlevel.release_params(engine._raw, [0])
            with self.assertRaises(libds.NotFound):
                with engine.gathered("q"):
                    pass
            engine.grad_ready("p", np.ones(5, np.float32))
            engine.backward()
            with engine.gathered():
                with self.assertRaises(libds.StateError):
                    engine.step()
            engine.step()
            self.usable(engine)
            with self.assertRaises(libds.StateError):
                engine.add_param("late", 3)
            with self.assertRaises(libds.StateError):
                engine.start()

    def test_diverging_ranks_raise_an_error(self):
        def body(comm):
            engine = libds.DelegateEngine({**HOST, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}},
                                          comm=comm)
            engine.add_param("a", 64)
            engine.add_param("b", 64)
            engine.start()
            with self.assertRaises(libds.CommError):
                with engine.gathered("a" if comm.rank else "b"):
                    pass
                engine.backward()
                engine.step()
            # The engine says that it is unusable.
            with self.assertRaises(libds.Error):
                engine.backward()
                engine.step()

        ranks(2, body)

    def test_configurations_that_differ_are_refused(self):
        def body(comm):
            config = {**HOST, "optimizer": {"type": "SGD", "params": {"lr": 0.5 + comm.rank}}}
            with self.assertRaises(libds.ConfigError):
                engine = libds.DelegateEngine(config, comm=comm)
                engine.add_param("a", 64)
                engine.start()

        ranks(2, body)


class Lifetimes(unittest.TestCase):
    """Memory that Python and the library share. A program would crash if one side freed memory that the other still
    uses, so each program runs in a process of its own."""

    def end(self, program, seconds=60):
        program = f"import gc, sys, tempfile, threading, time\nsys.path.insert(0, {sys.path[0]!r})\nfrom support import *\n{program}"
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds,
                              env={**os.environ, "PYTHONMALLOC": "debug"})  # freed memory is overwritten

    def check(self, program):
        done = self.end(program)
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)

    def test_a_tensor_with_views_is_not_set_anew(self):
        tensor = libds.zeros([100])
        view = memoryview(tensor)
        with self.assertRaisesRegex(BufferError, "1 buffers show its memory"):
            tensor.__init__(np.ones(3, np.float32))
        view.release()
        tensor.__init__(np.ones(3, np.float32))
        self.assertEqual(tensor.tolist(), [1, 1, 1])

    def test_arrays_of_a_callback_keep_their_size(self):
        self.check("""
def init(name, first, values):
    kept = values.obj
    values[0] = 5
    values.release()
    try: kept.clear()
    except BufferError: return
    raise SystemExit(3)
with host_engine(300000, init=init) as engine: assert engine.read(0).tolist()[0] == 5
print("end")""")

    def test_close_while_start_calls_init(self):
        self.check("""
begun, engine = threading.Event(), None
def init(name, first, values):
    begun.set()
    closer.join()
    gc.collect()
engine = libds.DelegateEngine(HOST, init=init)
for i in range(5): engine.add_param(f"w{i}", [50])
closer = threading.Thread(target=lambda: (begun.wait(), engine.close()))
closer.start()
engine.start()
assert engine.closed
print("end")""")

    def test_a_log_callable_that_takes_itself_away_and_raises(self):
        self.check("""
import functools
def log(level, line):
    libds.lowlevel.log_set_fn(None)
    gc.collect()
    raise KeyError(line)
libds.lowlevel.log_set_fn(functools.partial(log))  # no frame refers to the function
libds.DelegateEngine({**HOST, "zzz": 1})
print("end")""")

    def test_the_program_ends_while_a_thread_trains(self):
        done = self.end("""
def batch(step, micro_step, tokens, targets): time.sleep(0.001)
config = {"train_micro_batch_size_per_gpu": 1, "run": {"sequence": 32, "steps": 1000000, "sample_tokens": 0,
          "dir": tempfile.mkdtemp()}, "model": {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2, "vocab": 256,
          "positions": 32}}
threading.Thread(target=lambda: libds.train(config, batch=batch, progress=False), daemon=True).start()
time.sleep(1)
print("end")""")
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)

    def test_a_subinterpreter_is_refused_and_its_end_leaves_the_package_whole(self):
        for first in ("", "import libds"):
            self.check(f"""
import subprocess
program = '''{first}
try:
    import _interpreters as subinterpreters
except ImportError:
    import _xxsubinterpreters as subinterpreters
try:
    one = subinterpreters.create("legacy")
except TypeError:
    one = subinterpreters.create(isolated=False)
try:
    said = subinterpreters.run_string(one, "import libds")
except Exception as error:
    said = error
assert "libds works only in the main interpreter" in str(said), said
subinterpreters.destroy(one)
import libds
print(libds.Comm("self").all_reduce(libds.tensor([1.0, 2.0])).tolist())
'''
done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
assert (done.returncode, done.stdout) == (0, "[1.0, 2.0]\\n"), done.stderr
print("end")""")

    def test_a_child_that_returns_from_a_callback_ends_with_an_error(self):
        for deed, code, says in (("return", 1, "was forked in a callback of process"), ("raise SystemExit(5)", 5, ""), ("1 / 0", 1, "ZeroDivisionError")):
            done = self.end(f"""
codes = []
def forks(*_):
    if codes: return
    child = os.fork()
    if child == 0: {deed}
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with host_engine(8, init=forks): pass
print(codes)""")
            self.assertEqual((done.returncode, done.stdout), (0, f"[{code}]\n"), done.stderr)
            self.assertIn(says, done.stderr)

    def test_a_text_with_a_nul_is_refused_and_not_cut(self):
        engine = host_engine(8)
        for call in (lambda: engine.save(tempfile.mkdtemp() + "/a\0b"), lambda: libds.Graph("a\0b"), lambda: engine.read("w\0"),
                     lambda: libds.Comm("threads://a\0b", rank=0, size=1), lambda: libds.Plan("{}\0", linear_graph())):
            with self.assertRaisesRegex(ValueError, "must not contain a NUL character"):
                call()


if __name__ == "__main__":
    unittest.main()
