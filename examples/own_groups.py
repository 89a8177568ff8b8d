"""Trains over process groups that libds does not know: processes of multiprocessing with a pipe between each two.
Run: PYTHONPATH=build/python python3 examples/own_groups.py"""
import multiprocessing
import threading

import libds

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
    "zero_optimization": {"stage": 3},
    "run": {"sequence": 32, "threads": 1},
    "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2, "vocab": 256, "positions": 32},
}
TEXT = b"To be, or not to be, is asked. Whether nobler is to suffer so. "
RANKS = 3


class Group:
    """One rank; pipes[r] leads to rank r, and the entry of this rank is None."""

    def __init__(self, rank, pipes):
        self.rank, self.pipes = rank, pipes

    def all_to_all(self, parts, sizes):
        """Sends each rank its part and receives a part from each."""
        sender = threading.Thread(target=lambda: [pipe.send_bytes(part) for pipe, part in zip(self.pipes, parts) if part])
        sender.start()
        received = [pipe.recv_bytes() if size else b"" for pipe, size in zip(self.pipes, sizes)]
        sender.join()
        return received

    def comm(self):
        """Returns a comm over this group. Without an all_gather, libds uses all_to_all instead."""
        return libds.Comm.from_callbacks(rank=self.rank, size=len(self.pipes), all_to_all=self.all_to_all)


def train(rank, pipes):
    tokens = libds.tensor([TEXT[(rank * 7 + i) % len(TEXT)] for i in range(64)])
    targets = libds.tensor([TEXT[(rank * 7 + i + 1) % len(TEXT)] for i in range(64)])
    with Group(rank, pipes).comm() as comm, libds.Engine(CONFIG, comm=comm) as engine:
        losses = [engine.train_batch(tokens, targets) for _ in range(30)]
        if comm.rank == 0:
            print(f"{comm.size} ranks, loss {losses[0]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    pipes = [[None] * RANKS for _ in range(RANKS)]
    for a in range(RANKS):
        for b in range(a):
            pipes[a][b], pipes[b][a] = spawn.Pipe()
    ranks = [spawn.Process(target=train, args=(rank, pipes[rank])) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert all(process.exitcode == 0 for process in ranks)
