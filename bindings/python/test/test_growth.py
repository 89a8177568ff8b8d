"""Ten thousand objects of each kind, closed or collected in any order, leak neither memory nor descriptors.

An engine takes milliseconds, so the test makes one thousand engines and half as many delegate engines, or ten times as
many with DS_LONG.
"""
import gc
import os
import random
import unittest
import weakref

from support import CONFIG, HOST, descriptors, libds, linear_batch, linear_engine, linear_graph, np, resident, scratch

CYCLES, WARM = 10_000, 200
ENGINES = 10_000 if os.environ.get("DS_LONG") else 1000
GROWTH = 8 << 20


class Growth(unittest.TestCase):
    def hold(self, cycle, cycles=CYCLES, warm=WARM):
        for number in range(warm):
            cycle(number)
        gc.collect()
        memory, files = resident(), descriptors()
        for number in range(cycles):
            cycle(number)
        gc.collect()
        self.assertLess(resident() - memory, GROWTH)
        self.assertLessEqual(descriptors(), files)

    def test_small_objects_do_not_leak(self):
        source = np.zeros(1024, np.float32)
        graph = linear_graph()

        def cycle(number):
            made = [libds.zeros((64, 64)), libds.Tensor(source), libds.Graph("g", 4), libds.Comm("self"),
                    libds.Plan(CONFIG, graph) if number % 8 == 0 else libds.Tensor(bytearray(64))]
            made.append(memoryview(made[0]))
            made.append(np.from_dlpack(made[1]))
            random.Random(number).shuffle(made)
            for one in made:
                if number % 2 and hasattr(one, "close"):
                    one.close()

        self.hold(cycle)

    def test_engines_do_not_leak(self):
        x, target = linear_batch()
        graph = linear_graph()

        def cycle(number):
            engine = libds.Engine(CONFIG, graph, threads=1, comm=libds.Comm("self") if number % 2 else None)
            engine.train_batch(x, target)
            if number % 3 == 0:
                engine.close()

        self.hold(cycle, ENGINES)

    def test_delegates_do_not_leak(self):
        def cycle(number):
            engine = libds.DelegateEngine(HOST, threads=1, init=lambda name, first, values: None)
            engine.add_param("p", 64)
            engine.start()
            with engine.gathered() as views:
                kept = np.asarray(views["p"])
            engine.grad_ready("p", kept)
            engine.backward()
            engine.step()
            if number % 2:
                engine.close()

        self.hold(cycle, ENGINES // 2)

    def test_refused_calls_do_not_leak(self):
        engine = linear_engine()
        broken = np.zeros((4, 6), np.float32)[:, ::2]

        def cycle(number):
            for call in (lambda: engine.train_batch(broken, 3), lambda: engine.param("none"), lambda: engine["none"],
                         lambda: libds.Tensor(3), lambda: libds.Graph.parse("no graph"), lambda: engine.write("w", broken)):
                try:
                    call()
                except (libds.Error, TypeError, ValueError, BufferError):
                    continue
                raise AssertionError("not refused")

        self.hold(cycle)

    def test_callbacks_that_raise_do_not_leak(self):
        def init(name, first, values):
            raise KeyError(name)

        def cycle(number):
            try:
                libds.Engine(CONFIG, linear_graph(), threads=1, init=init)
            except KeyError:
                return
            raise AssertionError("not raised")

        self.hold(cycle, ENGINES // 2)

    def test_nothing_is_kept_alive(self):
        comm, graph, values = libds.Comm("self"), linear_graph(), np.zeros(8, np.float32)
        engine = libds.Engine(CONFIG, graph, comm=comm)
        view = engine.infer(linear_batch()[0], None)
        work = comm.all_reduce(values, start=True)
        work.wait()
        alive = [weakref.ref(one) for one in (comm, graph, values, engine, view, work)]
        del comm, graph, values, engine, view, work
        gc.collect()
        self.assertEqual([ref() for ref in alive], [None] * 6)


class AnyOrder(unittest.TestCase):
    def test_cycles_of_references_are_collected_in_any_order(self):
        x, target = linear_batch()
        for seed in range(50):
            comm = libds.Comm("self")
            graph = linear_graph()
            engine = libds.Engine(CONFIG, graph, comm=comm, threads=1)
            engine.train_batch(x, target)
            result = engine.infer(x, None)
            work = comm.all_reduce(np.zeros(8, np.float32), start=True)
            objects = [comm, graph, engine, result, np.asarray(result), work, libds.Plan(CONFIG, graph), {}, []]
            random.Random(seed).shuffle(objects)
            ring = [{"one": one} for one in objects]
            for left, right in zip(ring, ring[1:] + ring[:1]):
                left["next"] = right
            del comm, graph, engine, result, work, objects, ring, left, right
            gc.collect()

    def test_files_of_checkpoints_are_closed(self):
        with scratch() as folder, linear_engine() as engine:
            engine.save(folder)
            before = descriptors()
            for _ in range(20):
                engine.save(folder, keep=1)
                engine.load(folder)
            self.assertLessEqual(descriptors(), before)


if __name__ == "__main__":
    unittest.main()
