"""Operations and updates that Python computes: values, gradients, errors, and lifetimes."""
import gc
import unittest
import weakref

from support import CONFIG, libds, linear_batch, linear_engine, linear_graph, np


def square_graph(forward, backward=None):
    """The linear model followed by a custom operation, which is y -> y squared in these tests."""
    graph = libds.Graph("custom", rows=4)
    x, target = graph.input("x", "f32", [None, 3]), graph.input("target", "f32", [None, 2])
    y = graph.op("linear", x, graph.param("w", [2, 3], "normal", 0.5), graph.param("b", [2], "ones"))
    z = graph.custom_op("square", [y], [(None, [None, 2])], forward, backward)
    graph.output("loss", graph.op("mse", z, target))
    graph.output("z", z)
    return graph


def forward(inputs, outputs):
    np.multiply(inputs[0], inputs[0], out=np.asarray(outputs[0]))


def backward(inputs, outputs, output_grads, input_grads):
    np.asarray(input_grads[0])[:] = 2 * np.asarray(inputs[0]) * np.asarray(output_grads[0])


class Custom(unittest.TestCase):
    def test_values_and_gradients_are_those_of_the_callbacks(self):
        x, target = linear_batch()
        with libds.Engine(CONFIG, square_graph(forward, backward), threads=1) as engine:
            w, b = (np.array(engine.read(name)) for name in "wb")
            z = engine.infer(x, None).numpy()
            y = x @ w.T + b
            self.assertLess(np.abs(z - y * y).max(), 1e-6)
            first = engine.train_batch(x, target)
            self.assertLess(np.abs(engine.read("b", "grad") - ((z - target) * 2 * y).sum(0) * 2 / z.size).max(), 1e-5)
            for _ in range(30):
                engine["lr"] = 0.05
                last = engine.train_batch(x, target)
            self.assertLess(last, first)

    def test_without_a_backward_it_is_not_differentiable(self):
        graph = square_graph(forward)
        self.assertIn("square", str(graph))
        with self.assertRaises(libds.InvalidArgument):
            libds.Engine(CONFIG, graph)

    def test_an_exception_of_a_callback_is_raised_and_poisons_the_engine(self):
        def fail(inputs, outputs):
            raise KeyError("of the operation")

        with libds.Engine(CONFIG, square_graph(fail, backward), threads=1) as engine:
            with self.assertRaisesRegex(KeyError, "of the operation"):
                engine.train_batch(*linear_batch())
            with self.assertRaises(libds.PoisonedError):
                engine.train_batch(*linear_batch())

    def test_tensors_are_lent_for_the_call(self):
        lent, arrays = [], []

        def keep(inputs, outputs):
            forward(inputs, outputs)
            lent.append(inputs[0])
            if arrays is not None and len(lent) > 1:
                arrays.append(np.asarray(inputs[0]))

        with libds.Engine(CONFIG, square_graph(keep, backward), threads=1) as engine:
            engine.train_batch(*linear_batch())
            with self.assertRaises(libds.StateError):
                lent[0].tolist()
            with self.assertRaisesRegex(BufferError, "kept an array"):
                engine.train_batch(*linear_batch())
            arrays.clear()

    def test_callables_live_as_long_as_graph_and_engines(self):
        class Square:
            def __call__(self, inputs, outputs):
                forward(inputs, outputs)

        square = Square()
        gone = weakref.ref(square)
        graph = square_graph(square, backward)
        engine = libds.Engine(CONFIG, graph, threads=1)
        del square
        graph.close()
        gc.collect()
        self.assertIsNotNone(gone())
        engine.train_batch(*linear_batch())
        engine.close()
        gc.collect()
        self.assertIsNone(gone())
        with self.assertRaises(libds.InvalidArgument):
            libds.Graph("g", 4).custom_op("bad name", [], [(None, [2])], forward)
        with self.assertRaises(ValueError):
            libds.Graph("g", 4).custom_op("many", [], [("f32", [2])] * 65, forward)


def updated_engine(update, states=()):
    optimizer = {"type": "Callback", "params": {"lr": 0.05, "momentum": 0.5, "states": list(states)}}
    return libds.Engine({**CONFIG, "optimizer": optimizer}, linear_graph(), threads=1, update=update)


class Update(unittest.TestCase):
    def test_a_python_function_can_be_the_optimizer(self):
        seen = []

        def momentum(e):
            velocity = np.asarray(e.states[0])
            velocity[:] = e.momentum * velocity + np.asarray(e.grads)
            np.asarray(e.values)[:] -= np.float32(e.lr) * velocity
            seen.append((e.param, e.first, len(e.values.numpy()), e.update))

        optimizer = {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.5}}
        with updated_engine(momentum, ["velocity"]) as engine, \
                libds.Engine({**CONFIG, "optimizer": optimizer}, linear_graph(), threads=1) as other:
            self.assertIn("velocity", engine.state_names)
            other.write("w", np.array(engine.read("w")))
            for _ in range(3):
                self.assertAlmostEqual(engine.train_batch(*linear_batch()), other.train_batch(*linear_batch()), places=5)
            np.testing.assert_allclose(engine.read("w", "velocity"), other.read("w", "momentum_buffer"), rtol=1e-5, atol=1e-6)
        self.assertEqual(sorted(seen), [(param, 0, count, step) for param, count in ((0, 6), (1, 2)) for step in (1, 2, 3)])

    def test_an_exception_of_an_update_is_raised_and_poisons_the_engine(self):
        def fail(e):
            raise KeyError("of the update")

        with updated_engine(fail) as engine:
            with self.assertRaisesRegex(KeyError, "of the update"):
                engine.train_batch(*linear_batch())
            with self.assertRaises(libds.PoisonedError):
                engine.train_batch(*linear_batch())

    def test_arrays_are_lent_for_the_call(self):
        kept = []
        with updated_engine(lambda e: kept.append(np.asarray(e.values))) as engine:
            with self.assertRaisesRegex(BufferError, "has kept an array"):
                engine.train_batch(*linear_batch())

    def test_types_and_updates_need_each_other(self):
        with self.assertRaisesRegex(libds.ConfigError, "without an update"):
            updated_engine(None)
        with self.assertRaisesRegex(libds.ConfigError, "with an update"):
            libds.Engine(CONFIG, linear_graph(), update=lambda e: None)


if __name__ == "__main__":
    unittest.main()
