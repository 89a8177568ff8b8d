"""Compares collectives of 2, 4 and 8 ranks of one host with Gloo and Open MPI, in turns:
./run bench comm [ROUNDS] [RANKS,..].

Each rank has one thread. The data is f32, from 4 KiB to 256 MiB (the whole gathered or reduced buffer of a rank). The best of
the rounds counts. The column "median" is the median of Open MPI's rounds over the median of ours, which one lucky round does
not change. user: memory of malloc; arena: anonymous memory with huge pages, as an engine maps its arena. Open MPI runs with
both, and the bars use its better one. Gloo runs through torch.distributed, and its tensors have huge pages. "moved": the bytes
that the ranks have to read and write together, per time, as a share of the bytes that memcpy moves in all ranks at the same
time at that size (only if each rank has a core).
Bars, for arena: on 2 ranks 3 times the speed of Gloo and, from 1 MiB, the speed of Open MPI; on more ranks at most 1.2 times
the time of Open MPI.
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import verdict

OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce")
SIZES = [4096 << (2 * i) for i in range(9)]


def gloo_rank(rank, size, store):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
    missing = set()
    for bytes_ in SIZES:
        whole, other = torch.ones(bytes_ // 4), torch.ones(bytes_ // 4)
        share = torch.ones(bytes_ // 4 // size)
        bodies = (lambda: dist.all_gather_into_tensor(whole, share), lambda: dist.reduce_scatter_tensor(share, whole),
                  lambda: dist.all_reduce(other))
        calls = min(max((4 << 20) // bytes_, 1), 64)
        batches = 2 if bytes_ >= 64 << 20 else 5 if bytes_ >= 1 << 20 else 9
        for name, body in zip(OPERATIONS, bodies):
            if name in missing:
                continue
            best = float("inf")
            try:
                for i in range(-1, batches):
                    dist.barrier()
                    begin = time.perf_counter()
                    for _ in range(calls):
                        body()
                    if i >= 0:
                        best = min(best, (time.perf_counter() - begin) / calls)
            except RuntimeError as error:  # an operation that this Gloo lacks
                missing.add(name)
                print(f"gloo: {name}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            if rank == 0:
                print(f"{name} user {bytes_} {best * 1e6:.2f}", flush=True)
    dist.destroy_process_group()


def gloo_side(size):
    # The fork shares what is loaded here, so that not every rank has to load it.
    import torch  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(1, size):
            child = os.fork()
            if child == 0:
                gloo_rank(rank, size, folder + "/store")
                os._exit(0)
            ranks.append(child)
        gloo_rank(0, size, folder + "/store")
        for child in ranks:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code != 0:
                sys.exit(f"a rank of Gloo ended with {code}")


def run(command, environment):
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}).stdout
    out = {}
    for line in text.splitlines():
        name, kind, bytes_, us = line.split()
        out[name, kind, int(bytes_)] = float(us)
    return out


def sides(bars, root, size):
    binary = os.path.join(root, "build", "bin")
    out = {"libds": ([binary + "/bench_comm", str(size)], {})}
    try:
        import torch  # noqa: F401
        out["gloo"] = ([sys.executable, os.path.abspath(__file__), "--gloo", str(size)],
                       {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "THP_MEM_ALLOC_ENABLE": "1"})
    except ImportError:
        bars.left_out("Gloo (no torch)")
    if shutil.which("mpirun") and os.path.exists(binary + "/bench_comm_mpi"):
        more = ["--oversubscribe"] if size > len(os.sched_getaffinity(0)) else []
        out["mpi"] = (["mpirun", *more, "-n", str(size), binary + "/bench_comm_mpi"],
                      {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    else:
        bars.left_out("Open MPI (no mpirun or no bench_comm_mpi)")
    return out


def needed_traffic(name, size):
    """Returns the bytes read and written per byte of the buffer, if no byte is read or written more often than necessary."""
    if name == "all_gather":  # every rank reads and writes the whole buffer
        return 2.0
    if name == "reduce_scatter":  # a rank reads its part of every input and writes the sums
        return 1 + 1 / size
    return 1 + 1 / size + 2 * (size - 1) / size


def median_ratio(times, name, bytes_):
    """Returns the median time of Open MPI with its better buffers over that of ours in arena; None without Open MPI."""
    mpi = [times["mpi", name, kind, bytes_] for kind in ("user", "arena") if ("mpi", name, kind, bytes_) in times]
    if not mpi:
        return None
    return min(statistics.median(t) for t in mpi) / statistics.median(times["libds", name, "arena", bytes_])


def judge(bars, size, times):
    best = {key: min(values) for key, values in times.items()}
    sides_seen = {key[0] for key in best}
    print(f"{size} ranks: microseconds, and ratios of arena")
    print(f"{'':15}{'KiB':>8}{'user':>11}{'arena':>11}{'gloo':>11}{'mpi user':>11}{'mpi arena':>11}{'/gloo':>8}{'/mpi':>7}"
          f"{'median':>8}{'moved':>7}")
    for name in OPERATIONS:
        for bytes_ in SIZES:
            get = lambda side, kind: best.get((side, name, kind, bytes_))  # noqa: E731
            ours, gloo = get("libds", "arena"), get("gloo", "user")
            mpi = min((t for t in (get("mpi", "user"), get("mpi", "arena")) if t), default=None)
            copy = best["libds", "copy", "arena", bytes_]
            cells = "".join(f"{t:11.1f}" if t else f"{'-':>11}" for t in
                            (get("libds", "user"), ours, gloo, get("mpi", "user"), get("mpi", "arena")))
            row, said = f"{size} ranks, {name} of {bytes_ >> 10} KiB: time of", []
            if size == 2 and "gloo" in sides_seen and not gloo:
                said.append("gloo " + bars.holds(row + " Gloo", False, "was not measured"))
            if size == 2 and gloo:
                said.append("gloo " + bars.least(row + " Gloo over ours", gloo / ours, 3))
            if mpi and size == 2 and bytes_ >= 1 << 20:
                said.append("mpi " + bars.least(row + " Open MPI over ours", mpi / ours, 1))
            if mpi and size > 2:
                said.append("mpi " + bars.most(row + " ours over Open MPI", ours / mpi, 1.2))
            ratios = "".join(f"{t / ours:{w}.2f}" if t else f"{'-':>{w}}" for t, w in ((gloo, 8), (mpi, 7)))
            typical = median_ratio(times, name, bytes_)
            ratios += f"{typical:8.2f}" if typical else f"{'-':>8}"
            cored = size <= len(os.sched_getaffinity(0))
            moved = f"{needed_traffic(name, size) / 2 * copy / ours:7.2f}" if cored else f"{'-':>7}"
            print(f"{name:15}{bytes_ >> 10:8}{cells}{ratios}{moved}  {', '.join(said)}")


def main(bars):
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    sizes = [int(word) for word in sys.argv[2].split(",")] if len(sys.argv) > 2 else [2, 4, 8]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for size in sizes:
        times = {}
        commands = sides(bars, root, size)
        for _ in range(rounds):
            for side, (command, environment) in commands.items():
                for (name, kind, bytes_), us in run(command, environment).items():
                    times.setdefault((side, name, kind, bytes_), []).append(us)
        judge(bars, size, times)
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--gloo"]:
        gloo_side(int(sys.argv[2]))
    else:
        verdict.run(main)
