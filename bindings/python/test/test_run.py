"""Whole runs: the main job's model, callbacks and their exceptions, stopping, resuming, text, checks, displays."""
import io
import json
import logging
import math
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types
import unittest
from unittest import mock

from support import libds, linear_batch, linear_engine, np, ranks, scratch

ROOT = pathlib.Path(__file__).resolve().parents[3]


def small(folder, name="run", **run):
    """Writes a text file, and returns the configuration of a run of five steps on it."""
    text = os.path.join(folder, "text.txt")
    if not os.path.exists(text):
        with open(text, "w", encoding="utf-8") as file:
            file.write("to train or not to train " * 400)
    return {"train_micro_batch_size_per_gpu": 2, "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2},
            "data": {"paths": [text]},
            "run": {"dir": os.path.join(folder, name), "eval_samples": 2, "steps": 5, "sequence": 16, "threads": 1, **run}}


class Runs(unittest.TestCase):
    def test_the_example_trains_on_two_ranks(self):
        """Runs examples/train.json on two ranks, with a smaller model, fewer steps and its NVMe tier in a scratch folder."""
        with scratch() as folder:
            with open(ROOT / "examples/train.json", encoding="utf-8") as file:
                config = libds.merge_config(file.read(), {
                    "model": {"layers": 2, "hidden": 64, "vocab": 512, "positions": 64},
                    "zero_optimization": {"offload_optimizer": {"nvme_path": folder}},
                    "scheduler": {"params": {"total_num_steps": 30, "warmup_num_steps": 3}},
                    "data": {"paths": [str(ROOT / "docs/reference")]},
                    "run": {"sequence": 64, "steps": 30, "eval_every": 15, "eval_samples": 16, "save_every": 15,
                            "sample_every": 0, "sample_tokens": 0, "bars": None, "dir": os.path.join(folder, "run"), "threads": 1},
                })
            seen = []
            ends = ranks(2, lambda comm: libds.train(config, comm=comm, progress=seen.append if comm.rank == 0 else False))
            self.assertEqual([now.step for now in seen], list(range(1, 31)))
            self.assertLess(seen[-1].loss, seen[0].loss - 0.5)
            self.assertFalse(math.isnan(seen[14].heldout_loss))
            self.assertEqual((ends[0], ends[1]), (seen[-1], None))
            self.assertEqual(libds.checkpoint_info(os.path.join(folder, "run"))["step"], 30)
            report = libds.convert_checkpoint(os.path.join(folder, "run"), os.path.join(folder, "model"), "fp32")
            self.assertEqual((report["step"], report["form"]), (30, "libds"))
            self.assertTrue(os.path.exists(os.path.join(folder, "model", "model.safetensors")))
            made = libds.generate(os.path.join(folder, "run"), "the ", tokens=5, temperature=0)
            self.assertEqual(made, libds.generate(os.path.join(folder, "run"), "the ", tokens=5, temperature=0))

    def test_callbacks_stop_and_raise(self):
        with scratch() as folder:
            with self.assertRaises(libds.Stopped):
                libds.train(small(folder, "stopped"), progress=lambda now: now.step < 2)
            self.assertEqual(libds.train(resume=os.path.join(folder, "stopped"), progress=False).step, 5)
            rates = []
            libds.train(small(folder, "rates"), progress=lambda now: rates.append(now) or (libds.NextLr(0.125) if now.step == 2 else 7.0))
            self.assertEqual([now.lr for now in rates[2:]], [0.125] * 3)
            self.assertEqual(rates[0].next_lr, rates[1].lr)
            with self.assertRaisesRegex(libds.Error, "next_lr must be finite"):
                libds.train(small(folder, "negative"), progress=lambda now: libds.NextLr(-1))

            def fail(now):
                raise KeyError("of the callback")

            with self.assertRaisesRegex(KeyError, "of the callback") as caught:
                libds.train(small(folder, "failed"), progress=fail)
            self.assertIsInstance(caught.exception.__context__, libds.Stopped)
            self.assertEqual(libds.train(resume=os.path.join(folder, "failed"), progress=False).step, 5)
            flag = libds.StopFlag()
            with self.assertRaises(libds.Stopped):
                libds.train(small(folder, "flag"), progress=lambda now: flag.set(), stop=flag)
            self.assertTrue(flag.is_set())

    def test_batches_by_callback(self):
        with scratch() as folder:
            asked = []

            def batch(step, micro_step, tokens, targets):
                asked.append((step, micro_step))
                np.asarray(tokens)[:] = np.arange(len(tokens)) % 7
                targets[:] = memoryview(np.roll(np.asarray(tokens), -1))

            losses = []
            libds.train(small(folder, "one", steps=20), batch=batch, progress=lambda now: losses.append(now.loss))
            self.assertEqual((len(asked), asked[3]), (20, (3, 0)))
            self.assertLess(losses[-1], losses[0])
            with self.assertRaisesRegex(ZeroDivisionError, "division"):
                libds.train(small(folder, "two"), batch=lambda *_: 1 // 0, progress=False)

    def test_control_c_ends_a_run_after_a_checkpoint(self):
        with scratch() as folder:
            config = small(folder, "run", steps=100000)
            program = ("import json, sys, libds\n"
                       "config = json.loads(sys.argv[1])\n"
                       "libds.train(config, progress=lambda now: print(now.step, flush=True))\n")
            with subprocess.Popen([sys.executable, "-c", program, json.dumps(config)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as run:
                run.stdout.readline()
                run.send_signal(signal.SIGINT)
                errors = run.communicate(timeout=60)[1]
            self.assertIn("KeyboardInterrupt", errors)
            self.assertGreater(libds.checkpoint_info(os.path.join(folder, "run"))["step"], 0)

    def test_control_c_ends_a_text_with_and_without_a_callback(self):
        with scratch() as folder:
            libds.train(small(folder), progress=False)
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                for on_text in (None, parts := []):
                    sender = threading.Timer(1, signal.raise_signal, [signal.SIGINT])
                    sender.start()
                    with self.assertRaises(KeyboardInterrupt):
                        libds.generate(os.path.join(folder, "run"), "to ", tokens=1 << 20,
                                       on_text=None if on_text is None else on_text.append)
                    sender.join()
                self.assertGreater(len(parts), 0)
            finally:
                signal.signal(signal.SIGINT, before)

    def test_text_comes_in_parts(self):
        with scratch() as folder:
            libds.train(small(folder), progress=False)
            parts = []
            run = os.path.join(folder, "run")
            text = libds.generate(run, "to ", tokens=20, seed=3, on_text=parts.append)
            self.assertEqual("".join(parts), text)
            self.assertGreater(len(parts), 1)
            numbers = libds.generate(run, ids=[1, 2, 3], tokens=4)
            self.assertTrue(len(numbers) == 4 and all(isinstance(number, int) for number in numbers), numbers)

            def fail(part):
                raise KeyError("of the callback")

            with self.assertRaisesRegex(KeyError, "of the callback"):
                libds.generate(run, "to ", tokens=5, on_text=fail)

            def stop(part):
                parts.append(part)
                return len(parts) < 3

            parts.clear()
            with self.assertRaisesRegex(libds.Stopped, "a callback asked to stop"):
                libds.generate(run, "to ", tokens=20, seed=3, on_text=stop)
            self.assertEqual(len(parts), 3)
            with self.assertRaises(libds.NotFound):
                libds.generate(os.path.join(folder, "none"), "to ")

    def test_audit_profile_and_verify_return_their_reports(self):
        with scratch() as folder:
            config = small(folder)
            failed, report = libds.audit(config, steps=1, form="data")
            self.assertEqual((failed, type(report)), (0, dict))
            self.assertIn("linear", libds.profile(config, steps=1, threads=1))
            verdict = libds.verify(ROOT / "tests/data/models/llama", dtype="f32")
            self.assertEqual(verdict.failed, 0)
            self.assertIsInstance(libds.communicator(config), str)

    def test_errors_of_a_run_name_the_key(self):
        with scratch() as folder:
            for config, key in [(small(folder, steps=-1), "run.steps"), ({**small(folder), "bf16": {"enabld": True}}, "bf16.enabld")]:
                with self.assertRaises(libds.ConfigError) as caught:
                    libds.train(config, progress=False)
                self.assertEqual(caught.exception.key, key)
            with self.assertRaises(TypeError):
                libds.train(5)
            with self.assertRaises(FileNotFoundError):
                libds.train(os.path.join(folder, "none.json"))
            path = pathlib.Path(folder, "config.json")
            path.write_text("// with a comment\n" + json.dumps(small(folder, "file")), encoding="utf-8")
            self.assertEqual(libds.train(path, progress=False).step, 5)

    def test_the_log_goes_to_a_callable_or_a_logger(self):
        lines = []
        with scratch() as folder, linear_engine() as engine:
            engine.save(folder)
            engine.train_batch(*linear_batch())
            engine.save(folder)
            newest = max(pathlib.Path(folder).glob("*/*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
            newest.write_bytes(b"damaged")
            try:
                libds.set_log(lambda level, line: lines.append((level, line)))
                engine.load(folder)
                self.assertEqual([level for level, line in lines if "skipped" in line], [libds.LogLevel.WARNING], lines)
                with self.assertLogs("of libds", logging.WARNING) as logs:
                    libds.set_log(logging.getLogger("of libds"))
                    engine.load(folder)
                self.assertIn("skipped", logs.output[0])
                with mock.patch("sys.unraisablehook") as hook:
                    libds.set_log(lambda level, line: 1 // 0)
                    engine.load(folder)
                self.assertTrue(hook.called)
                before = signal.signal(signal.SIGINT, signal.default_int_handler)
                try:
                    with self.assertRaises(KeyboardInterrupt):
                        libds.set_log(lambda level, line: signal.raise_signal(signal.SIGINT))
                        engine.load(folder)
                        time.sleep(10)
                finally:
                    signal.signal(signal.SIGINT, before)
            finally:
                libds.set_log(None)


class Displays(unittest.TestCase):
    STEPS = [libds.Progress(step, 40, 2 * step, 3 - step / 40, math.nan if step % 20 else 2.0, 1, 1e-3, 1234, 1, 1e-3)
             for step in range(1, 41)]

    def test_plain_lines(self):
        file = io.StringIO()
        display = libds.Display(file)
        for now in self.STEPS:
            display(now)
        lines = file.getvalue().splitlines()
        self.assertEqual(len(lines), 20)
        self.assertRegex(lines[-1], r"^step 40/40  loss 2\.0000  held out 2\.0000  lr 0\.001  1,234 tokens/s  0:00 \+ 0:00$")

    def test_a_terminal_has_one_line(self):
        file = io.StringIO()
        file.isatty = lambda: True
        display = libds.Display(file, every=0)
        for now in self.STEPS:
            display(now)
        display.close()
        self.assertEqual(file.getvalue().count("\n"), 1)
        self.assertIn("[########################] step 40/40", file.getvalue().split("\r")[-1])

    def test_a_notebook_has_one_output_that_changes(self):
        shown, handle = [], mock.Mock()
        ipython = types.ModuleType("IPython")
        ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
        module = types.ModuleType("IPython.display")
        module.HTML = lambda text: text
        module.display = lambda made, display_id: shown.append(made) or handle
        with mock.patch.dict(sys.modules, {"IPython": ipython, "IPython.display": module}):
            display = libds.Display(every=0)
            self.assertEqual(display.kind, "notebook")
            for now in self.STEPS:
                display(now)
        self.assertEqual((len(shown), handle.update.call_count), (1, 39))
        self.assertIn('value="40" max="40"', handle.update.call_args[0][0])


class Threads(unittest.TestCase):
    def test_two_engines_train_in_two_threads_at_once(self):
        """Each run waits in the callback of its first step for the other run. Neither could continue if a call kept the
        lock."""
        with scratch() as folder:
            both = threading.Barrier(2, timeout=60)
            inside = []

            def train(name):
                met = []

                def batch(step, micro_step, tokens, targets):
                    if not met:
                        met.append(both.wait())
                    tokens[:] = targets[:] = memoryview(np.ones(len(tokens), np.int32))

                inside.append(libds.train(small(folder, name), batch=batch, progress=False).step)

            threads = [threading.Thread(target=train, args=[name]) for name in ("one", "two")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(inside, [5, 5])


if __name__ == "__main__":
    unittest.main()
