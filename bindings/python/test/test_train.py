"""Training of a graph: loss, inference, parameters, states, numbers, groups, freezing, checkpoints, reports."""
import os
import unittest

from support import CONFIG, libds, linear_batch, linear_engine, linear_graph, np, ranks, scratch


class Train(unittest.TestCase):
    def test_training_lowers_the_loss_and_infers_without_targets(self):
        x, target = linear_batch()
        with linear_engine() as engine:
            first = engine.train_batch(x, target)
            for _ in range(50):
                last = engine.train_batch(x, target)
            self.assertLess(last, first / 20)
            self.assertEqual(engine["step"], 51)
            self.assertEqual(engine.last_step.step, 51)
            self.assertAlmostEqual(engine.last_step.loss, last)
            y = engine.infer(x, None)
            self.assertEqual(y.shape, (4, 2))
            self.assertLess(np.abs(y.numpy() - target).max(), 0.5)
            self.assertLess(abs(engine.eval_batch(x, target) - last), last)
            self.assertEqual(engine.state_names, ["master", "momentum_buffer", "param", "grad"])
            self.assertEqual(engine.param("w"), (0, "w", (2, 3)))
            w, b = np.asarray(engine.read("w")), np.asarray(engine.read(1))
            self.assertLess(np.abs(x @ w.T + b - y.numpy()).max(), 1e-6)
            self.assertIn("step 51", repr(engine))

    def test_a_step_in_pieces_is_the_step(self):
        x, target = linear_batch()
        with linear_engine() as whole, linear_engine() as pieces:
            for _ in range(3):
                loss = whole.train_batch(x, target)
                self.assertEqual(pieces.forward(x, target), loss)
                pieces.backward()
                self.assertEqual(pieces.step(), whole.last_step)
            self.assertEqual(pieces.read("w").tolist(), whole.read("w").tolist())

    def test_every_array_is_an_input(self):
        x, target = linear_batch()
        losses = []
        for make in (lambda a: a, libds.Tensor, lambda a: libds.tensor(a.tolist()), memoryview,
                     lambda a: np.array(a)):
            with linear_engine() as engine:
                losses.append(engine.train_batch(make(x), make(target)))
        self.assertEqual(len(set(losses)), 1, losses)
        # An array that is only read may be read-only.
        x.setflags(write=False)
        with linear_engine() as engine:
            self.assertEqual(engine.train_batch(x, target), losses[0])

    def test_a_configuration_can_define_the_model(self):
        config = {**CONFIG, "run": {"sequence": 16},
                  "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2, "vocab": 64, "positions": 16}}
        tokens = np.arange(64, dtype=np.int32)
        with libds.Engine(config, threads=1) as engine, libds.Graph.from_config(config) as graph:
            with libds.Engine(config, graph, threads=1) as other:
                self.assertEqual(engine.train_batch(tokens, tokens), other.train_batch(tokens, tokens))
            self.assertIn("wte.weight", [param.name for param in engine.params])

    def test_initial_values_come_by_callback(self):
        asked = []

        def init(name, first, values):
            asked.append(name)
            view = np.asarray(values)
            view[:] = np.arange(first, first + len(view)) if name == "w" else view + 1

        with linear_engine(init=init) as engine:
            self.assertEqual(engine.read("w").tolist(), [[0, 1, 2], [3, 4, 5]])
            self.assertEqual(engine.read("b").tolist(), [1, 1])
        self.assertEqual(sorted(set(asked)), ["b", "w"])

    def test_states_are_read_and_written(self):
        x, target = linear_batch()
        with linear_engine() as engine:
            engine.train_batch(x, target)
            self.assertTrue(engine.read("w", "grad").numpy().any())
            out = np.zeros((2, 3), np.float32)
            self.assertIs(engine.read("w", out=out), out)
            engine.write("w", np.full_like(out, 2))
            self.assertEqual(engine.read("w", "param").tolist(), [[2] * 3] * 2)
            self.assertEqual(engine.local_range("b"), (0, 2))
            engine.write_local("b", np.float32([3, 4]))
            with self.assertRaises(libds.StateError):
                engine.train_batch(x, target)
            engine.refresh()
            self.assertEqual(engine.read_local("b", "param").tolist(), [3, 4])
            engine.freeze("b")
            engine.train_batch(x, target)
            self.assertEqual(engine.read("b").tolist(), [3, 4])
            engine.freeze(["b"], False)
            engine.train_batch(x, target)
            self.assertNotEqual(engine.read("b").tolist(), [3, 4])

    def test_numbers_can_be_set_for_a_group(self):
        x, target = linear_batch()
        with linear_engine() as engine:
            self.assertEqual(engine.add_group("b", lr=0), 1)
            engine.train_batch(x, target)
            self.assertEqual(engine.read("b").tolist(), [0, 0])
            engine["param_groups[1].lr"] = 0.25
            self.assertEqual((engine["param_groups[1].lr"], engine["lr"], engine["param_groups"]), (0.25, 0.5, 2))
            engine["lr"] = 0.125
            self.assertEqual(engine["lr"], 0.125)
            del engine["lr"]
            self.assertEqual(engine["lr"], 0.5)
            with self.assertRaises(libds.ConfigError) as caught:
                engine.add_group("w", lt=1)
            self.assertEqual(caught.exception.key, "options.lt")
            with self.assertRaises(libds.NotFound):
                engine["speed"] = 1
            with self.assertRaises(libds.InvalidArgument):
                engine["lr"] = -1

    def test_a_saved_engine_goes_on_with_the_same_bits(self):
        x, target = linear_batch()
        with scratch() as folder, linear_engine() as engine:
            engine.train_batch(x, target)
            engine.attach("random", np.arange(6).reshape(2, 3).T)
            engine.save(folder, client_state={"epoch": 2, "name": "été"}, keep=1)
            engine.train_batch(x, target)
            wanted = engine.read("w").tolist()
            with linear_engine() as other:
                with self.assertRaisesRegex(libds.StateError, "no checkpoint"):
                    other.attachment("random")
                self.assertEqual(other.load(folder), {"epoch": 2, "name": "été"})
                np.testing.assert_array_equal(np.asarray(other.attachment("random")), [[0, 3], [1, 4], [2, 5]])
                with self.assertRaisesRegex(libds.NotFound, "got 1"):
                    other.attachment("random", 1)
                other.train_batch(x, target)
                self.assertEqual(other.read("w").tolist(), wanted)
            self.assertEqual(libds.checkpoint_info(folder)["step"], 1)
            engine.save(folder, keep=1)
            self.assertIsNone(engine.load(folder))
            engine.save_model(os.path.join(folder, "model"))
            with linear_engine() as other:
                other.load_model(os.path.join(folder, "model"))
                self.assertEqual(other.read("w").tolist(), wanted)
            with self.assertRaises(libds.NotFound):
                engine.load(os.path.join(folder, "none"))

    def test_ranks_that_end_early_join_the_others(self):
        x, target = linear_batch()

        def body(comm):
            with linear_engine(comm=comm) as engine:
                for _ in range(1 + comm.rank):
                    engine.train_batch(x, target)
                return engine.join(), engine["step"]

        self.assertEqual(ranks(2, body), [(1, 2), (0, 2)])

    def test_graphs_plans_and_reports(self):
        graph = linear_graph()
        self.assertEqual(str(libds.Graph.parse(str(graph))), str(graph))
        x = graph.input("more", np.float32, [None, 3])
        self.assertEqual((x.shape, x.dtype), ((None, 3), "f32"))
        with self.assertRaises(libds.InvalidArgument):
            graph.op("relu", linear_graph().input("z", "f32", [None, 3]))
        loss = libds.Graph("g", 4)
        value, weight = loss.input("x", "f32", [None, 3]), loss.param("w", [2, 3])
        other = loss.param("unused", [2])
        result = loss.op("mse", loss.op("linear", value, weight), loss.input("t", "f32", [None, 2]))
        found = loss.grad(result, [weight, other])
        self.assertEqual((found[0].shape, found[1]), ((2, 3), None))
        plans = [libds.Plan(CONFIG, linear_graph(), rank=rank, size=2) for rank in range(2)]
        self.assertIsInstance(plans[0].report("data"), dict)
        self.assertIn("parameters", plans[0].report())
        self.assertIn("sgd", str(plans[0]))
        self.assertTrue(plans[0].picture(plans[1]).startswith("<svg"))
        self.assertIn("rank", plans[0].certificate(plans[1]))
        with linear_engine(trace=True) as engine, scratch() as folder:
            engine.train_batch(*linear_batch())
            self.assertIsInstance(engine.report("data"), dict)
            self.assertIn("sgd", engine.plan())
            engine.trace(os.path.join(folder, "trace.json"))
            with open(os.path.join(folder, "trace.json"), encoding="utf-8") as file:
                self.assertIn("traceEvents", file.read())
        self.assertIsInstance(libds.env_report("data"), dict)
        self.assertEqual(libds.merge_config({"a": 1}, {"a": None, "b": 2}), {"b": 2})
        described = libds.describe_config({"train_batch_size": 8, "zero_optimization": {"stag": 1}}, ranks=2)
        self.assertEqual(described["refusals"], ["zero_optimization.stag: unknown key; did you mean zero_optimization.stage? "
                                                 "(docs/reference/config.md#zero_optimization.stage)"])
        self.assertEqual(described["config"]["train_micro_batch_size_per_gpu"], 4)
        with self.assertRaises(libds.InvalidArgument):
            libds.env_report("yaml")


if __name__ == "__main__":
    unittest.main()
