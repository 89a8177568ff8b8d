"""A host that computes its own gradients: leases, gradients, evaluation and saving, on one rank and on three."""
import unittest

from support import HOST, host_engine, libds, np, ranks, scratch


class Delegate(unittest.TestCase):
    def test_a_host_trains_evaluates_and_saves(self):
        def body(comm):
            with libds.DelegateEngine(HOST, comm=comm) as engine, scratch() as folder:
                p = engine.add_param("p", 5)
                with self.assertRaises(libds.StateError):
                    with engine.gathered():
                        pass
                engine.start()
                engine.write(p, np.float32([1, 2, 3, 4, 5]))
                with engine.gathered([p]) as views:
                    self.assertEqual(views["p"].tolist(), [1, 2, 3, 4, 5])
                    self.assertEqual((list(views), len(views), views[p] is views[0]), (["p"], 1, True))
                    grad = engine.grad_view("p")
                    np.asarray(grad)[:] = comm.rank  # the mean over ranks 0, 1, 2 is 1
                    engine.grad_ready(p, grad)
                    with self.assertRaises(libds.StateError):
                        engine.grad_ready(p, np.zeros(5, np.float32))
                engine.backward()
                self.assertEqual(engine.step().updates, 1)
                self.assertEqual(engine.read(p).tolist(), [0.5, 1.5, 2.5, 3.5, 4.5])
                with engine.evaluating():
                    with self.assertRaises(libds.StateError):
                        engine.backward()
                    with engine.gathered("p") as views:
                        self.assertEqual(views["p"].numpy().sum(), 12.5)
                engine.backward()  # a training step again
                engine.step()
                where = comm.broadcast(np.frombuffer(folder.encode().ljust(200), np.uint8).copy())
                where = where.tobytes().decode().strip()
                engine.save(where, client_state={"epoch": 2}, wait=False)
                engine.wait_saved()
                engine.write(p, np.zeros(5, np.float32))
                self.assertEqual(engine.load(where), {"epoch": 2})
                self.assertEqual(engine.read(p).tolist(), [0.5, 1.5, 2.5, 3.5, 4.5])
                comm.barrier()  # the ranks use rank 0's folder until here

        ranks(3, body)

    def test_views_are_the_engine_s_memory(self):
        with host_engine(1 << 12, init=lambda name, first, values: np.asarray(values).fill(2)) as engine:
            with engine.gathered() as views:
                array = np.asarray(views["p"])
                self.assertEqual(array.ctypes.data, views["p"].data_ptr)
                self.assertEqual(np.from_dlpack(views["p"]).ctypes.data, array.ctypes.data)
                grad = engine.grad_view("p")
                self.assertEqual(engine.grad_view("p").data_ptr, grad.data_ptr)
                np.asarray(grad)[:] = array
                engine.grad_ready("p", grad)
            self.assertTrue(views["p"].closed)
            with self.assertRaises(libds.StateError):
                views["p"].tolist()
            # The array may be read, but its values have no meaning.
            self.assertEqual(array.shape, (1 << 12,))
            engine.backward()
            engine.step()
            self.assertEqual(set(engine.read("p").tolist()), {1.0})

    def test_whole_parameters_have_views_that_last(self):
        # Proves {delegate.view.lasting}: stage 2 partitions no parameter.
        config = {**HOST, "zero_optimization": {"stage": 2}}

        def body(comm):
            with libds.DelegateEngine(config, comm=comm) as engine:
                engine.add_param("p", 5)
                engine.start()
                view = np.asarray(engine.view("p"))
                engine.write("p", np.float32([1, 2, 3, 4, 5]))
                self.assertEqual(view.tolist(), [1, 2, 3, 4, 5])
                engine.grad_ready("p", np.full(5, comm.rank, np.float32))
                engine.backward()
                engine.step()
                self.assertEqual(view.tolist(), [0.5, 1.5, 2.5, 3.5, 4.5])
                self.assertEqual(engine.view("p").data_ptr, view.ctypes.data)

        ranks(3, body)

        def partitioned(comm):
            with host_engine(1 << 18, comm=comm) as engine, self.assertRaisesRegex(libds.StateError, "gathered before it is viewed"):
                engine.view("p")

        ranks(2, partitioned)

    def test_several_gradients_are_handed_over_in_one_call(self):
        # Proves {delegate.grads}.
        with libds.DelegateEngine(HOST) as engine:
            names = [engine.add_param(name, size).name for name, size in (("a", 2), ("b", [2, 2]), ("c", []))]
            engine.start()
            grads = [np.ones(2, np.float32), np.full((2, 2), 2, np.float32), np.array(3, np.float32)]
            for wrong, error, words in (((names, grads[:2]), libds.InvalidArgument, "grads must have 3 gradients"),
                                        ((names[:1], [np.ones(3, np.float32)]), libds.InvalidArgument, "gradient of 'a'"),
                                        ((["d"], [grads[0]]), libds.NotFound, "d")):
                with self.assertRaisesRegex(error, words):
                    engine.grads_ready(*wrong)
            engine.grads_ready(names[::-1], grads[::-1])
            with self.assertRaisesRegex(libds.StateError, "'a' has its gradient"):
                engine.grads_ready(["a"], grads[:1])
            engine.backward()
            engine.step()
            self.assertEqual([engine.read(name).tolist() for name in names], [[-0.5] * 2, [[-1] * 2] * 2, -1.5])

    def test_bf16(self):
        config = {**HOST, "bf16": {"enabled": True}}
        with libds.DelegateEngine(config) as engine:
            engine.add_param("p", [2, 2])
            engine.start()
            engine.write("p", np.float32([[1, 2], [3, 4]]))
            with engine.gathered() as views:
                self.assertEqual((views["p"].dtype, views["p"].tolist()), ("bf16", [[1, 2], [3, 4]]))
                bits = np.asarray(views["p"])
                self.assertEqual((bits.dtype, bits[0, 0]), (np.uint16, 0x3F80))
                engine.grad_ready("p", libds.Tensor(np.full((2, 2), 0x3F80, np.uint16), dtype="bf16"))
            engine.backward()
            engine.step()
            self.assertEqual(engine.read("p").tolist(), [[0.5, 1.5], [2.5, 3.5]])

    def test_an_exception_in_the_block_ends_the_lease_and_is_raised(self):
        with host_engine() as engine:
            with self.assertRaisesRegex(KeyError, "of the host"):
                with engine.gathered():
                    raise KeyError("of the host")
            with engine.gathered() as views:
                self.assertEqual(views["p"].tolist(), [0] * 5)
            with self.assertRaises(libds.InvalidArgument):
                engine.write("p", np.zeros(4, np.float32))
            # This call would be refused while a parameter is leased.
            engine.add_group("p", lr=1)

    def test_start_raises_an_exception_of_init(self):
        def init(name, first, values):
            raise KeyError("no values")

        engine = libds.DelegateEngine(HOST, init=init)
        engine.add_param("p", 5)
        with self.assertRaises(KeyError) as caught:
            engine.start()
        self.assertIsInstance(caught.exception.__context__, libds.Stopped)
        with self.assertRaises(libds.PoisonedError):
            engine.start()
        engine.close()

    def test_arrays_that_init_keeps_cannot_dangle(self):
        kept = []
        engine = host_engine(1 << 16, init=lambda name, first, values: kept.append(np.asarray(values)))
        engine.close()
        kept[0][:] = 1
        self.assertEqual(sum(len(array) for array in kept), 1 << 16)


if __name__ == "__main__":
    unittest.main()
