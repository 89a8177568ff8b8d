"""Collectives over ranks that are threads, and over processes that `libds launch` starts (this file with --rank)."""
import array
import concurrent.futures
import gc
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

from support import HOST, libds, np, ranks


def everything(comm):
    """Calls every collective once, on three ranks."""
    rank = comm.rank
    data = np.float32([rank, 1])
    assert comm.all_reduce(data) is data and data.tolist() == [3, 3]
    kept = np.float64([[rank, 2]])
    assert comm.all_reduce(kept, op="mean", out=np.zeros((1, 2))).tolist() == [[1, 2]] and kept[0, 0] == rank
    assert comm.all_reduce(array.array("q", [10 * rank]), op="max")[0] == 20
    halves = libds.tensor([rank, 0.5], dtype="bf16")
    assert comm.all_reduce(halves).tolist() == [3, 1.5] and halves.tolist() == [rank, 0.5]
    assert comm.all_reduce(np.float16([rank, 1]), op="min", out=np.zeros(2, np.float32)).tolist() == [0, 1]
    gathered = comm.all_gather(np.int32([rank, -rank]))
    assert (gathered.shape, gathered.tolist()) == ((3, 2), [[0, 0], [1, -1], [2, -2]])
    uneven = comm.all_gather(np.full(rank + 1, rank, np.uint8), blocks=[1, 2, 3])
    assert uneven.tolist() == [0, 1, 1, 2, 2, 2]
    assert comm.reduce_scatter(np.float64([[1, 2], [rank, 3], [0, 0]])).tolist() == [[[3, 6]], [[3, 9]], [[0, 0]]][rank]
    assert comm.reduce_scatter(np.arange(6, dtype=np.float32), blocks=[1, 2, 3]).tolist() == [[0], [3, 6], [9, 12, 15]][rank]
    assert comm.all_to_all(np.uint8([3 * rank, 3 * rank + 1, 3 * rank + 2])).tolist() == [rank, rank + 3, rank + 6]
    assert comm.reduce_scatter(np.arange(6, dtype=np.float32), blocks=iter([1, 2, 3])).tolist() == [[0], [3, 6], [9, 12, 15]][rank]
    blocks = [rank] * 3
    sent = comm.all_to_all(np.full(3 * rank, rank, np.int64), blocks=blocks, out_blocks=[0, 1, 2])
    assert sent.tolist() == [1, 2, 2]
    word = np.float64([7.5 if rank == 1 else 0])
    assert comm.broadcast(word, root=1)[0] == 7.5
    total = comm.reduce(np.float32([rank]), root=2)
    assert total is None if rank != 2 else total.tolist() == [3]
    rows = comm.gather(np.int32([rank]), root=1)
    assert rows is None if rank != 1 else rows.tolist() == [[0], [1], [2]]
    part = np.zeros(2, np.float32)
    comm.scatter(np.arange(6, dtype=np.float32) if rank == 0 else None, root=0, out=part)
    assert part.tolist() == [2 * rank, 2 * rank + 1]
    several = [np.float32([rank]), np.float32([[1, rank]])]
    assert comm.all_reduce(several) is several and [a.tolist() for a in several] == [[3], [[3, 3]]]
    lists = comm.all_gather([np.int32([rank]), np.int32([5])])
    assert [t.tolist() for t in lists] == [[[0], [1], [2]], [[5]] * 3]
    if rank == 0:
        comm.send(b"data", to=2)
    if rank == 2:
        assert comm.receive(bytearray(4), source=0) == b"data"
    with comm.all_reduce(np.float32([rank]), start=True) as work:
        pass
    assert work.closed
    first, second = np.float32([rank]), np.float32([1])
    works = [comm.all_reduce(first, start=True), comm.all_reduce(second, start=True), comm.barrier(start=True)]
    assert works[1].wait() is second and works[0].wait() is first and works[2].wait() is None
    assert works[0].done and (first[0], second[0]) == (3, 3)
    started = comm.all_gather(np.int32([rank]), start=True)
    assert started.wait().tolist() == [[0], [1], [2]] and "all_gather" in repr(started)
    half = comm.split(None if rank == 0 else 0)
    assert half is None if rank == 0 else (half.rank, half.size) == (rank - 1, 2)
    if half:
        assert half.all_reduce(np.int64([rank]))[0] == 3
    comm.log_start()
    comm.barrier()
    assert isinstance(comm.log("data"), (dict, list)) and "barrier" in comm.flight_record()
    assert repr(comm) == f"Comm(rank={rank}, size=3)"


class Letters:
    """Functions of a foreign program: ranks are threads that put bytes into each other's boxes."""

    def __init__(self, size):
        self.size, self.boxes = size, {(a, b): queue.Queue() for a in range(size) for b in range(size)}

    def comm(self, rank, **others):
        def all_to_all(parts, sizes):
            for to, part in enumerate(parts):
                if part:
                    self.boxes[rank, to].put(part)
            return [self.receive(rank, source) if count else b"" for source, count in enumerate(sizes)]

        def all_gather(data):
            for to in range(self.size):
                self.boxes[rank, to].put(data)
            return b"".join(self.receive(rank, source) for source in range(self.size))

        callables = {"all_gather": all_gather, "send": lambda data, to: self.boxes[rank, to].put(data),
                     "receive": lambda count, source: self.receive(rank, source), **others}
        return libds.Comm.from_callbacks(rank=rank, size=self.size, all_to_all=all_to_all, **callables)

    def receive(self, rank, source):
        return self.boxes[source, rank].get(timeout=60)


def on_threads(size, body):
    """Runs body(rank) on threads; returns the results, or raises the first exception."""
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        return [future.result() for future in [pool.submit(body, rank) for rank in range(size)]]


def a_delegate(comm):
    with libds.DelegateEngine(HOST, comm=comm) as engine:
        engine.add_param("p", 5)
        engine.start()
        engine.write("p", np.float32([1, 2, 3, 4, 5]))
        engine.grad_ready("p", np.full(5, comm.rank, np.float32))
        engine.backward()
        engine.step()
        assert engine.read("p").tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]


class Collectives(unittest.TestCase):
    def test_collectives_work_between_threads(self):
        ranks(3, everything)

    @unittest.skipUnless(os.environ.get("DS_COMMAND"), "the command is not built")
    def test_collectives_work_between_processes(self):
        subprocess.run([os.environ["DS_COMMAND"], "launch", "-n", "3", sys.executable, __file__, "--rank"], check=True,
                       timeout=60)

    def test_collectives_work_over_callables(self):
        letters = Letters(3)
        on_threads(3, lambda rank: everything(letters.comm(rank)))
        plain = Letters(3)
        totals = on_threads(3, lambda rank: plain.comm(rank, all_gather=None, send=None, receive=None).all_reduce(
            np.float32([rank, 1])).tolist())
        self.assertEqual(totals, [[3, 3]] * 3)

    def test_errors_of_callables_and_arguments_are_raised(self):
        def gather(data):
            raise KeyError("no such group")

        for bad, error, words in [(gather, KeyError, "no such group"), (lambda data: b"", ValueError, "all_gather must return"),
                                  (lambda data: None, TypeError, "bytes-like")]:
            letters = Letters(2)

            def body(rank):
                with self.assertRaisesRegex(error, words):
                    letters.comm(rank, all_gather=bad)

            on_threads(2, body)
        letters = Letters(2)
        with self.assertRaisesRegex(ValueError, "rank must be 0 to 1, got 2"):
            libds.Comm.from_callbacks(rank=2, size=2, all_to_all=lambda parts, sizes: parts)
        with self.assertRaisesRegex(ValueError, "all_to_all must return a list of 2 buffers"):
            libds.Comm.from_callbacks(rank=0, size=2, all_to_all=lambda parts, sizes: 7)
        with self.assertRaisesRegex(TypeError, "all_to_all must be callable, got 5"):
            libds.Comm.from_callbacks(rank=0, size=1, all_to_all=5)
        with self.assertRaisesRegex(ValueError, "both be given or both be NULL"):
            letters.comm(0, send=None)

    def test_a_comm_that_a_callable_closes_lives_until_the_call_ends(self):
        class Held:
            pass

        letters, held, ended = Letters(2), threading.local(), []

        def body(rank):
            def gather(data):
                if getattr(held, "part", None):
                    held.part.close()
                    held.part = None
                for to in range(2):
                    letters.boxes[rank, to].put(data)
                return b"".join(letters.receive(rank, source) for source in range(2))

            comm = letters.comm(rank, all_gather=gather)
            marker = Held()
            weakref.finalize(marker, ended.append, rank)
            # The marker lives as long as libds keeps the callables.
            gather.marker = marker
            held.part = comm.split(0)
            comm.barrier()
            comm.close()
            del gather, marker

        on_threads(2, body)
        gc.collect()
        self.assertEqual(sorted(ended), [0, 1])

    def test_a_callable_may_end_its_group_but_not_use_it(self):
        letters, reasons = Letters(2), []

        def body(rank):
            comm = letters.comm(rank, abort=reasons.append)
            used = []

            # A callable must not use its comm: the call is refused, and the group continues.
            def receive(count, source):
                with self.assertRaisesRegex(libds.StateError, "is inside a call"):
                    used[0].barrier()
                return letters.receive(rank, source)

            used.append(letters.comm(rank, receive=receive))
            if rank == 0:
                used[0].send(b"data", to=1)
            else:
                self.assertEqual(used[0].receive(bytearray(4), source=0), b"data")
            with self.assertRaisesRegex(libds.CommError, "enough"):
                comm.abort("enough")
                comm.barrier()

        on_threads(2, body)
        self.assertEqual(reasons, ["enough"] * 2)

    def test_nothing_is_copied(self):
        def body(comm):
            data = np.full(1 << 16, comm.rank + 1, np.float32)
            address = data.ctypes.data
            tensor = libds.Tensor(data)
            self.assertEqual(comm.all_reduce(tensor).data_ptr, address)
            self.assertEqual(data[-1], 3)
            out = np.zeros((2, 4), np.float32)
            made = comm.all_gather(data[:4], out=out)
            self.assertIs(made, out)
            self.assertEqual(out.tolist(), [[3] * 4] * 2)

        ranks(2, body)

    def test_buffers_of_started_collectives_are_kept_and_locked(self):
        gate = threading.Barrier(2)

        def body(comm):
            buffer = bytearray(1024)
            work = comm.broadcast(buffer, root=0, start=True) if comm.rank == 1 else None
            if work:
                with self.assertRaises(BufferError):
                    buffer.append(0)
                left = comm.all_reduce(np.ones(1 << 16, np.float32), start=True)
                # The program drops the collective without a wait. The memory must outlive the handle.
                left.close()
                del left
            gate.wait()
            if comm.rank == 0:
                comm.broadcast(bytearray(b"x" * 1024), root=0)
                comm.all_reduce(np.ones(1 << 16, np.float32))
            else:
                work.wait()
                self.assertEqual(buffer, b"x" * 1024)
            comm.barrier()
            if work:
                self.assertFalse(comm._loans, "a collective that has returned ends the loans before it")
                work.close()
                del work
                buffer.append(0)

        ranks(2, body)

    def test_an_abort_from_another_thread_ends_waiting_calls(self):
        def body(comm):
            timer = threading.Timer(0.05, comm.abort, ["enough"])
            if comm.rank == 0:
                timer.start()
            else:
                time.sleep(0.2)
            with self.assertRaisesRegex(libds.CommError, "enough"):
                comm.barrier()

        ranks(2, body)

    def test_diverging_ranks_are_an_error_on_all(self):
        def body(comm):
            with self.assertRaises(libds.CommError) as caught:
                if comm.rank == 0:
                    comm.all_reduce(np.ones(4, np.float32))
                else:
                    comm.all_gather(np.ones(4, np.float32))
            self.assertTrue(caught.exception.message)

        ranks(2, body)

    def test_bad_arguments_are_explained_and_change_nothing(self):
        def body(comm):
            ones = np.ones(4, np.float32)
            for call, words in [
                (lambda: comm.all_reduce(ones, op="product"), "op must be one of"),
                (lambda: comm.all_reduce(ones, np.ones(3, np.float32)), "4 elements"),
                (lambda: comm.all_reduce(ones, np.ones(4)), "out must be f32, got f64"),
                (lambda: comm.all_reduce([ones, np.ones(2)]), "one dtype"),
                (lambda: comm.all_reduce([]), "got an empty one"),
                (lambda: comm.all_gather(ones, np.ones(4, np.float32)), "8 elements"),
                (lambda: comm.all_gather(ones, blocks=[4]), "2 numbers"),
                (lambda: comm.all_gather(ones, blocks=[1, 1]), "1 elements"),
                (lambda: comm.reduce_scatter(np.ones(3, np.float32)), "multiple of 2"),
                (lambda: comm.all_to_all(np.ones(3, np.float32)), "multiple of 2"),
                (lambda: comm.all_to_all(ones, blocks=[2, 3]), "5 elements"),
                (lambda: comm.broadcast(ones, root=9), "9"),
                (lambda: comm.scatter(None, root=comm.rank), "data must be an array"),
            ]:
                with self.assertRaises(libds.InvalidArgument, msg=words) as caught:
                    call()
                self.assertIn(words, str(caught.exception))
            with self.assertRaises(BufferError):
                comm.broadcast(b"read-only")
            with self.assertRaises(TypeError):
                comm.all_reduce(3.0)
            with self.assertRaises(TypeError):
                comm.all_reduce([1.0, 2.0])
            with self.assertRaisesRegex(BufferError, "contiguous"):
                comm.all_reduce(np.ones((4, 4), np.float32)[:, ::2])
            lent = bytearray(16)
            with self.assertRaises(BufferError):
                comm.all_reduce(np.frombuffer(lent, np.float32)[::2])
            # A refused call does not keep its buffers.
            lent.append(1)
            self.assertEqual(comm.all_reduce(ones).tolist(), [2] * 4)
            with self.assertRaises(libds.Unsupported):
                libds.Comm("nowhere://")

        ranks(2, body)


class Signals(unittest.TestCase):
    class Heard(Exception):
        pass

    def test_an_exception_of_a_signal_handler_ends_the_wait_and_the_group(self):
        def handler(*_):
            raise self.Heard

        before = signal.signal(signal.SIGALRM, handler)
        data = np.ones(3, np.float32)
        try:
            for number, call in enumerate([lambda comm: comm.all_reduce(data), lambda comm: comm.barrier(), lambda comm: comm.broadcast(data),
                                           lambda comm: comm.receive(data, 1), lambda comm: comm.split(0)]):
                url, leave, said = f"threads://signals-{os.getpid()}-{number}", threading.Event(), []

                def other(url=url, leave=leave, said=said):
                    with libds.Comm(url, rank=1, size=2, timeout=60) as comm:
                        leave.wait(60)
                        try:
                            comm.barrier()
                        except libds.CommError as error:
                            said.append(str(error))

                peer = threading.Thread(target=other)
                peer.start()
                with libds.Comm(url, rank=0, size=2, timeout=60, interruptible=True) as comm:
                    begin = time.monotonic()
                    signal.setitimer(signal.ITIMER_REAL, 0.1)
                    with self.assertRaises(self.Heard):
                        call(comm)
                    self.assertLess(time.monotonic() - begin, 30)
                    leave.set()
                    peer.join()
                self.assertIn("a signal's handler has raised an exception", said[0])
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_a_started_collective_may_be_waited_for_again(self):
        def handler(*_):
            raise self.Heard

        before = signal.signal(signal.SIGALRM, handler)
        url, go_on = f"threads://signals-{os.getpid()}-again", threading.Event()

        def other():
            with libds.Comm(url, rank=1, size=2, timeout=60) as comm:
                go_on.wait(60)
                comm.all_reduce(np.ones(3, np.float32))

        peer = threading.Thread(target=other)
        peer.start()
        try:
            with libds.Comm(url, rank=0, size=2, timeout=60, interruptible=True) as comm:
                work = comm.all_reduce(np.ones(3, np.float32), start=True)
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with self.assertRaises(self.Heard):
                    work.wait()
                go_on.set()
                self.assertEqual(work.wait().tolist(), [2, 2, 2])
                peer.join()
        finally:
            signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    if sys.argv[1:] == ["--rank"]:
        with libds.Comm() as group:
            everything(group)
            a_delegate(group)
    else:
        unittest.main()
