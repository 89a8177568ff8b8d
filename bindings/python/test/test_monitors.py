"""The sections wandb and comet: the values that fake modules receive, and the refusals."""
import os
import sys
import types
import unittest
from unittest import mock

from support import libds, ranks, scratch
from test_run import small


class Fake:
    """Fake modules wandb and comet_ml that record their calls."""

    def __init__(self):
        self.calls, self.events = [], []
        self.wandb, self.comet = types.ModuleType("wandb"), types.ModuleType("comet_ml")
        self.run = types.SimpleNamespace(
            log=lambda values, step: self.events.extend(("wandb", name, value, step) for name, value in values.items()),
            finish=lambda: self.calls.append(("finish",)))
        self.wandb.run, self.wandb.init = None, lambda **given: self.calls.append(("init", given)) or self.run
        experiment = types.SimpleNamespace(
            set_name=lambda name: self.calls.append(("name", name)), end=lambda: self.calls.append(("end",)),
            log_metric=lambda name, value, step: self.events.append(("comet", name, value, step)))
        self.comet.get_running_experiment = lambda: None
        self.comet.start = lambda **given: self.calls.append(("start", given)) or experiment

    def installed(self):
        return mock.patch.dict(sys.modules, {"wandb": self.wandb, "comet_ml": self.comet})

    def values(self, side, name):
        return [(step, value) for who, what, value, step in self.events if (who, what) == (side, name)]


class MonitorsTest(unittest.TestCase):
    def test_a_run_sends_its_numbers(self):
        with scratch() as folder:
            config = small(folder) | {"wandb": {"enabled": True, "team": "us", "group": "g"},
                                      "comet": {"enabled": True, "samples_log_interval": 4, "experiment_name": "first"}}
            fake, seen = Fake(), []
            with fake.installed():
                libds.train(config, progress=seen.append)
            self.assertIn(("init", {"project": "deepspeed", "group": "g", "entity": "us"}), fake.calls)
            self.assertIn(("name", "first"), fake.calls)
            self.assertIn(("finish",), fake.calls)
            self.assertIn(("end",), fake.calls)
            losses = fake.values("wandb", "Train/Samples/train_loss")
            self.assertEqual(losses, [(2 * now.step, now.loss) for now in seen])  # two samples a step
            self.assertEqual([step for step, _ in fake.values("comet", "Train/Samples/lr")], [2, 6, 10])
            self.assertEqual(len(fake.values("wandb", "Eval/Samples/eval_loss")), 1)

    def test_a_resumed_run_counts_its_samples(self):
        with scratch() as folder:
            config, fake = small(folder), Fake()
            libds.train(config, progress=None)
            with fake.installed():
                again = {"wandb": {"enabled": True}, "train_micro_batch_size_per_gpu": 4, "run": {"steps": 7}}
                libds.train(again, resume=config["run"]["dir"], progress=False)
            self.assertEqual([step for step, _ in fake.values("wandb", "Train/Samples/train_loss")], [14, 18])

    def test_rank_0_alone_sends(self):
        with scratch() as folder:
            config, fake = small(folder) | {"wandb": {"enabled": True}}, Fake()
            with fake.installed():
                ranks(2, lambda comm: libds.train(config, comm=comm, progress=False))
            self.assertEqual([call[0] for call in fake.calls], ["init", "finish"])
            self.assertEqual([step for step, _ in fake.values("wandb", "Train/Samples/train_loss")], [4, 8, 12, 16, 20])

    def test_an_engine_sends_what_it_is_told(self):
        fake = Fake()
        with fake.installed(), libds.Monitors({"train_micro_batch_size_per_gpu": 3, "wandb": {"enabled": True}}) as monitors:
            self.assertNotIn("wandb", monitors.config)
            monitors.step(libds.StepResult(1, 1, 2.5, 1.0, 0.1, False, 256.0, False))
            monitors.step(libds.StepResult(2, 1, float("nan"), float("nan"), 0.1, True, 128.0, False))
            monitors.step(libds.StepResult(3, 1, 2.0, 1.0, 0.1, False, 128.0, False), samples=16)
            monitors.write(4, {"own": 1.0}, samples=26)
        self.assertEqual(fake.values("wandb", "Train/Samples/train_loss"), [(3, 2.5), (16, 2.0)])
        self.assertEqual(fake.values("wandb", "Train/Samples/lr"), [(3, 0.1), (6, 0.1), (16, 0.1)])
        self.assertEqual(fake.values("wandb", "Train/Samples/grad_norm"), [(3, 1.0), (16, 1.0)])
        self.assertEqual(fake.values("wandb", "Train/Samples/loss_scale"), [(3, 256.0), (6, 128.0), (16, 128.0)])
        self.assertEqual(fake.values("wandb", "own"), [(26, 1.0)])

    def test_a_loss_scale_of_one_is_sent(self):
        for section, scaled in ({"fp16": {"enabled": True}}, True), ({"bf16": {"enabled": True}}, False), ({}, False), (
                {"torch_autocast": {"enabled": True, "dtype": "float16"}}, True):
            fake = Fake()
            with fake.installed(), libds.Monitors({"train_batch_size": 1, "wandb": {"enabled": True}} | section) as monitors:
                monitors.step(libds.StepResult(1, 1, 2.5, 1.0, 0.1, False, 1.0, False))
            self.assertEqual(fake.values("wandb", "Train/Samples/loss_scale"), [(1, 1.0)] if scaled else [], section)

    def test_values_may_have_any_form_of_a_configuration(self):
        fake = Fake()
        config = {"train_batch_size": 1, "wandb": None, "comet": {"enabled": 1, "online": "False", "samples_log_interval": 5.0,
                                                                  "project": "auto", "workspace": None}}
        with fake.installed(), libds.Monitors(config):
            self.assertEqual(fake.calls, [("start", {"online": False})])
        off = {"wandb": {"enabled": 0}, "comet": {"enabled": "auto"}}
        with fake.installed(), libds.Monitors({"train_batch_size": 1} | off) as monitors:
            self.assertEqual(repr(monitors), "Monitors(none)")

    def test_a_monitor_that_cannot_end_does_not_keep_the_other_open(self):
        fake = Fake()
        fake.comet.start = lambda **given: types.SimpleNamespace(end=mock.Mock(side_effect=OSError("full")))
        sections = {"wandb": {"enabled": True}, "comet": {"enabled": True}}
        with fake.installed(), self.assertRaisesRegex(OSError, "full"), libds.Monitors({"train_batch_size": 1} | sections):
            pass
        self.assertIn(("finish",), fake.calls)

    def test_runs_that_the_caller_began_are_not_ended(self):
        fake = Fake()
        own = types.SimpleNamespace(log=fake.run.log, log_metric=lambda *_, **__: None)
        fake.wandb.run, fake.wandb.init = own, lambda **given: own
        fake.comet.get_running_experiment, fake.comet.start = lambda: own, lambda **given: own
        sections = {"wandb": {"enabled": True}, "comet": {"enabled": True}}
        with fake.installed(), libds.Monitors({"train_batch_size": 1} | sections) as monitors:
            monitors.write(1, {"a": 2.0})
        self.assertEqual(fake.calls, [])
        self.assertEqual(fake.values("wandb", "a"), [(1, 2.0)])

    def test_the_first_monitor_ends_if_the_second_fails(self):
        fake = Fake()
        fake.comet.start = mock.Mock(side_effect=ValueError("no key"))
        with fake.installed(), self.assertRaisesRegex(ValueError, "no key"):
            libds.Monitors({"train_batch_size": 1, "wandb": {"enabled": True}, "comet": {"enabled": True}})
        self.assertEqual([call[0] for call in fake.calls], ["init", "finish"])

    def test_missing_and_wrong_settings_are_named(self):
        with scratch() as folder:
            config = small(folder)
            with mock.patch.dict(sys.modules, {"wandb": None}):
                with self.assertRaisesRegex(libds.ConfigError, "wandb.enabled: true needs the Python module wandb"):
                    libds.train(config | {"wandb": {"enabled": True}}, progress=False)
            self.assertFalse(os.path.exists(os.path.join(folder, "run")), "nothing has begun")
            for section, key in (({"wandb": {"entity": "x"}}, "wandb.entity"), ({"wandb": {"project": 3}}, "wandb.project"),
                                 ({"comet": {"samples_log_interval": 0}}, "comet.samples_log_interval"),
                                 ({"comet": {"online": "maybe"}}, "comet.online"), ({"comet": 1}, "comet"),
                                 ({"comet": {"samples_log_interval": 1.5}}, "comet.samples_log_interval")):
                with self.assertRaises(libds.ConfigError) as refused:
                    libds.Monitors(config | section)
                self.assertEqual(refused.exception.key, key)

    def test_off_needs_no_module(self):
        with mock.patch.dict(sys.modules, {"wandb": None, "comet_ml": None}):
            monitors = libds.Monitors({"train_batch_size": 1, "wandb": {"enabled": False, "project": "p"}, "comet": {}})
        self.assertEqual(repr(monitors), "Monitors(none)")

    def test_the_library_refuses_and_names_the_package(self):
        with self.assertRaisesRegex(libds.ConfigError, "wandb.enabled.*libds.Monitors"):
            libds.Plan({"train_batch_size": 1, "model": {"family": "gpt", "layers": 1, "hidden": 8, "heads": 1}, "wandb": {"enabled": True}})


if __name__ == "__main__":
    unittest.main()
