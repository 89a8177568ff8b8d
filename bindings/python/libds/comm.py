"""Groups of ranks and their collectives."""
from __future__ import annotations

import json
import os
import threading
from typing import Any, Callable, Iterable, Sequence

from . import errors, lowlevel
from ._handle import Handle
from .tensor import DTYPES, Tensor, raw_of, zeros

__all__ = ["Comm", "Work"]

_OPS = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 2, "all_to_all": 3, "broadcast": 4, "barrier": 5, "reduce": 6,
        "gather": 7, "scatter": 8}
_REDUCE = {"sum": 0, "mean": 1, "max": 2, "min": 3}
_FORMATS = {"text": 0, "data": 1}


def format_code(form: str) -> int:
    """The constant of ds.h of a report's form."""
    if form not in _FORMATS:
        raise errors.refuse(f"form must be 'text' or 'data', got {form!r}")
    return _FORMATS[form]


def report(form: str, text: str) -> Any:
    """A report as it was asked for: its text, or what its JSON says."""
    return json.loads(text) if form == "data" else text


class Work(Handle):
    """A collective that was started with `start=True`.

    Its buffers belong to libds until `wait()` has returned: do not read or write them. They are kept alive, and those of
    Python's own types cannot change their size.
    """

    def __init__(self, comm: Comm, raw: Any, buffers: tuple[Any, ...], result: Any) -> None:
        self._open(raw, comm._lock)
        self._loans = comm._loans
        self._result = result
        self._name = buffers[0]
        self._loans[id(self)] = buffers

    def wait(self) -> Any:
        """Waits until the collective has ended, and returns what the call without `start` returns. May be called again."""
        raw = self._need()
        try:
            lowlevel.work_wait(raw)
        finally:
            self._loans.pop(id(self), None)
        return self._result

    @property
    def done(self) -> bool:
        """Whether the collective has ended, well or not. Call `wait()` before you use its buffers."""
        return lowlevel.work_test(self._need())

    def __exit__(self, *exception: Any) -> None:
        try:
            if exception[0] is None:
                self.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Forgets the collective, which goes on; its buffers stay lent until the comm ends."""
        if self._raw is not None and id(self) in self._loans:  # another object may get this one's id
            self._loans[object()] = self._loans.pop(id(self))
        super().close()

    def __repr__(self) -> str:
        return f"Work({self._name}, {'closed' if self.closed else 'done' if self.done else 'running'})"


def _joined(url: str, options: Any) -> Any:
    """The handle of a group that is joined by a thread of its own where this one hears Control-C and joining may take long.

    A thread that is left behind leaves the group as soon as it has joined it, or gives up after the time to join.
    """
    waits = isinstance(url, str) and url.partition("://")[0] in ("threads", "shm", "tcp", "env") and not any(
        name.startswith(("OMPI_", "PMI_", "PMIX_")) for name in os.environ)  # MPI wants its calls from one thread
    if not waits or threading.current_thread() is not threading.main_thread():
        return lowlevel.comm_create(url, options)
    made: list[Any] = []
    failed: list[BaseException] = []
    left = threading.Event()

    def join() -> None:
        try:
            raw = lowlevel.comm_create(url, options)
            if not left.is_set():
                made.append(raw)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            failed.append(error)

    thread = threading.Thread(target=join, name="libds-join", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        left.set()
        made.clear()
        raise
    if failed:
        raise failed.pop()
    return made.pop()


class Comm(Handle):
    """A group of ranks, which this process or thread joins.

    Args:
        url: "env" (as `libds launch`, torchrun, mpirun or srun set the environment; one rank without any), "self" (one rank),
            "threads://NAME" (ranks are threads of this process), "shm://NAME" (processes of one host), "mpi",
            "tcp://HOST:PORT" and further ones, see `help(libds.lowlevel.comm_create)`.
        rank, size: this rank and the number of ranks; "self" and "env" know them.
        timeout: seconds without progress after which a peer is taken for dead.
        join_timeout: seconds to wait until all ranks have joined.

    Arrays are NumPy arrays, torch tensors, `libds.Tensor` or any buffer, and are used where they lie. Every collective is called
    by all ranks in the same order, and raises `CommError` on all ranks when one dies, aborts or calls another one. With
    `start=True` a collective only begins, and the call returns a `Work`.

    An array may be a list of arrays: one collective over all of them, faster than single calls where they are small.
    """

    def __init__(self, url: str = "env", *, rank: int = 0, size: int = 1, timeout: float = 300.0,
                 join_timeout: float = 60.0) -> None:
        options = lowlevel.comm_options()
        options.rank, options.size = rank, size
        options.timeout_ms, options.join_ms = round(timeout * 1000), round(join_timeout * 1000)
        self._start(_joined(url, options))

    @classmethod
    def from_callbacks(cls, *, rank: int, size: int, all_to_all: Callable[[list[bytes], list[int]], Sequence[Any]],
                       all_gather: Callable[[bytes], Any] | None = None, send: Callable[[bytes, int], Any] | None = None,
                       receive: Callable[[int, int], Any] | None = None, abort: Callable[[str], Any] | None = None) -> Comm:
        """A group whose bytes go through the collectives of another library, which keeps its own process groups.

        Args:
            rank, size: this rank and the number of ranks.
            all_to_all: gets the bytes for each rank and the number of bytes that each rank sends to this one, and returns a list
                of buffers with what has come from each. Nothing moves from a rank to itself.
            all_gather: gets this rank's bytes and returns those of all ranks, one after the other. Without it, all_to_all does
                its work.
            send, receive: send(data, to) sends bytes to a rank, receive(count, source) returns as many bytes of a rank. Without
                them, `send`, `receive` and `split` raise UnsupportedError.
            abort: gets a reason, and ends the collective that runs and every later one on all ranks, if it can.

        Each call returns when this rank's bytes have gone and come. Sums have the same bits as over every url. Time-outs are
        those of the callables: libds cannot see a rank that they wait for. An exception in a callable ends the group, and the
        call that ran it raises it. The callables must not use this comm or its engines. Where a callable refers to the comm,
        close the comm, or neither ends. All ranks give the same callables.
        """
        options = lowlevel.comm_options()
        options.rank, options.size = rank, size
        out = cls.__new__(cls)
        out._start(lowlevel.comm_create_from_callbacks((size, all_to_all, all_gather, send, receive, abort), options))
        return out

    def _start(self, raw: Any, parent: Comm | None = None) -> None:
        self._loans: dict[Any, Any] = parent._loans if parent else {}  # buffers of what was started, by its Work
        raw.kept = self._loans  # for calls that another thread is in when this object is closed
        self._open(raw, parent._lock if parent else None)

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return lowlevel.comm_rank(self._need())

    @property
    def size(self) -> int:
        """Number of ranks."""
        return lowlevel.comm_size(self._need())

    # ------------------------------------------------------------ collectives

    def all_reduce(self, data: Any, out: Any = None, *, op: str = "sum", start: bool = False) -> Any:
        """Combines the elements of all ranks by "sum", "mean", "max" or "min"; every rank gets the result.

        Without `out` the result replaces `data`. That of "bf16" and "f16" is "f32", so these need an `out`, or get a new
        Tensor. Sums have the same bits on any transport. Returns `data` or `out`.
        """
        return self._reduction("all_reduce", data, out, op, 0, start)

    def reduce(self, data: Any, root: int = 0, out: Any = None, *, op: str = "sum", start: bool = False) -> Any:
        """An all_reduce whose result only rank `root` gets; other ranks get None."""
        return self._reduction("reduce", data, out, op, root, start)

    def reduce_scatter(self, data: Any, out: Any = None, *, op: str = "sum", blocks: Sequence[int] | None = None,
                       start: bool = False) -> Any:
        """Combines the elements of all ranks; rank r gets block r of the result.

        `blocks`: elements of each rank's block; without it they are equal parts of the first dimension. Without `out` the
        block is a new Tensor, which is returned.
        """
        return self._blocks("reduce_scatter", data, out, blocks, None, op, 0, start)

    def all_gather(self, data: Any, out: Any = None, *, blocks: Sequence[int] | None = None, start: bool = False) -> Any:
        """Puts the arrays of all ranks together in the order of ranks; every rank gets the result.

        `blocks`: elements that each rank gives, where they differ. Without `out` the result is a new Tensor of shape
        [ranks, *shape], with `blocks` of one dimension.
        """
        return self._blocks("all_gather", data, out, blocks, None, "sum", 0, start)

    def gather(self, data: Any, root: int = 0, out: Any = None, *, start: bool = False) -> Any:
        """An all_gather of equal blocks whose result only rank `root` gets; other ranks get None."""
        return self._blocks("gather", data, out, None, None, "sum", root, start)

    def scatter(self, data: Any, root: int = 0, out: Any = None, *, start: bool = False) -> Any:
        """Block r of the array of rank `root` goes to rank r. Other ranks give None as `data` and need an `out`."""
        return self._blocks("scatter", data, out, None, None, "sum", root, start)

    def all_to_all(self, data: Any, out: Any = None, *, blocks: Sequence[int] | None = None,
                   out_blocks: Sequence[int] | None = None, start: bool = False) -> Any:
        """Block b of `data` goes to rank b, and block r of the result comes from rank r.

        `blocks` and `out_blocks`: elements that go to each rank and come from each, where they differ. Without `out` the result
        is a new Tensor, of the shape of `data`, or with `out_blocks` of one dimension.
        """
        return self._blocks("all_to_all", data, out, blocks, out_blocks, "sum", 0, start)

    def broadcast(self, data: Any, root: int = 0, *, start: bool = False) -> Any:
        """Copies the elements of rank `root` to all ranks, in place. Returns `data`."""
        outs = [raw_of(array, writable=True) for array in _list(data)]
        return self._submit("broadcast", None, outs, [_numel(raw) for raw in outs], root=root, result=data, kept=data,
                            start=start)

    def barrier(self, *, start: bool = False) -> Any:
        """Returns when every rank has called it."""
        return self._submit("barrier", None, None, None, start=start)

    def send(self, data: Any, to: int) -> None:
        """Sends an array to rank `to`, which calls `receive` with one of as many bytes; returns when it is there."""
        self._call(lowlevel.comm_send, _buffer(data), to)

    def receive(self, data: Any, source: int) -> Any:
        """Fills an array with what rank `source` sends. Returns `data`."""
        self._call(lowlevel.comm_receive, _buffer(data), source)
        return data

    def split(self, color: int | None, key: int = 0) -> Comm | None:
        """Makes groups of the ranks that give the same color, ordered by key, then by rank. None: no group, and no result."""
        raw = self._call(lowlevel.comm_split, -1 if color is None else color, key)
        if raw is None:
            return None
        part = Comm.__new__(Comm)
        part._start(raw, self)
        return part

    def abort(self, reason: str) -> None:
        """Ends this and every later collective of all ranks with `CommError` and this reason; any thread may call it."""
        lowlevel.comm_abort(self._need(), reason)

    # ------------------------------------------------------------ reports

    def log_start(self) -> None:
        """Times the collectives from now on. Collective."""
        self._call(lowlevel.comm_log_start)

    def log(self, form: str = "text") -> Any:
        """What the collectives of this rank have cost since `log_start`; form "data": as a dictionary. Collective."""
        return report(form, self._call(lowlevel.comm_log, format_code(form)))

    def flight_record(self, form: str = "text") -> Any:
        """The last 64 operations of this rank, each with its state; any thread may ask."""
        return report(form, lowlevel.comm_flight_record(self._need(), format_code(form)))

    def close(self) -> None:
        """Leaves the group, as soon as no engine uses it. Buffers of collectives that were not waited for are freed."""
        super().close()
        self._loans = {}

    def __repr__(self) -> str:
        return "Comm(closed)" if self.closed else f"Comm(rank={self.rank}, size={self.size})"

    # ------------------------------------------------------------ calls

    def _reduction(self, name: str, data: Any, out: Any, op: str, root: int, start: bool) -> Any:
        arrays = _list(data)
        ins = [raw_of(array) for array in arrays]
        at_root = name == "all_reduce" or self.rank == root
        outs = result = None
        if at_root:
            if out is not None:
                outs = [raw_of(array, writable=True) for array in _list(out)]
            elif any(_dtype(raw) in ("bf16", "f16") for raw in ins):
                out = [Tensor._of(lowlevel.tensor_create(1, _dims(raw))) for raw in ins]
                outs, out = [made._raw for made in out], out if isinstance(data, (list, tuple)) else out[0]
            else:
                out, outs = data, [raw_of(array, writable=True) for array in arrays]
            result = out
            _check(name, ins, outs, 1, 1, f32_of_16=True)
        return self._submit(name, ins, outs, [_numel(raw) for raw in ins], op=op, root=root, result=result, kept=(data, out),
                            start=start)

    def _blocks(self, name: str, data: Any, out: Any, blocks: Any, out_blocks: Any, op: str, root: int, start: bool) -> Any:
        size = self.size
        more, less = name in ("all_gather", "gather"), name in ("reduce_scatter", "scatter")
        at_root = name not in ("gather", "scatter") or self.rank == root
        ins = [raw_of(array) for array in _list(data)] if data is not None else None
        if ins is None and (name != "scatter" or at_root):
            raise errors.refuse("data must be an array, got None")
        several = isinstance(data if data is not None else out, (list, tuple))
        if name == "gather" and not at_root:
            out = outs = None
        elif out is not None:
            outs = [raw_of(array, writable=True) for array in _list(out)]
        elif ins is None:
            raise errors.refuse("a scatter needs an out on the ranks that give no data")
        else:
            made = [self._made(name, raw, blocks, out_blocks) for raw in ins]
            out, outs = (made if several else made[0]), [one._raw for one in made]
        if ins is not None and outs is not None:
            if blocks is None:
                _check(name, ins, outs, size if more else 1, size if less else 1, f32_of_16=name == "reduce_scatter")
            else:
                _check_blocks(name, ins, outs, list(blocks), list(out_blocks or blocks), self.rank, size)
        if not at_root and name == "scatter":
            ins = None
        counts = [_numel(raw) for raw in ((ins if more or outs is None else outs) or ())]
        if name == "all_to_all":
            if any(count % size for count in counts) and blocks is None:
                raise errors.refuse(f"{name}: data must have a multiple of {size} elements, one block for each rank, got {counts}")
            counts = [count // size for count in counts]
        return self._submit(name, ins, outs, None if blocks is not None else counts, blocks=blocks, out_blocks=out_blocks,
                            op=op, root=root, result=out, kept=(data, out), start=start)

    def _made(self, name: str, raw: Any, blocks: Any, out_blocks: Any) -> Tensor:
        """A new Tensor for the result of a collective over `raw`."""
        dtype, dims = _dtype(raw), _dims(raw)
        if name == "reduce_scatter" and dtype in ("bf16", "f16"):
            dtype = "f32"
        if name in ("all_gather", "gather"):
            dims = [self.size, *dims] if blocks is None else [sum(blocks)]
        elif name in ("reduce_scatter", "scatter"):
            if blocks is not None:
                dims = [blocks[self.rank] if self.rank < len(blocks) else 0]
            elif not dims or dims[0] % self.size:
                raise errors.refuse(f"the first dimension must be a multiple of {self.size} ranks, got shape {dims}")
            else:
                dims = [dims[0] // self.size, *dims[1:]]
        elif blocks is not None:
            dims = [sum(out_blocks if out_blocks is not None else blocks)]
        return zeros(dims, dtype)

    def _submit(self, name: str, ins: Any, outs: Any, counts: Any, *, blocks: Any = None, out_blocks: Any = None,
                op: str = "sum", root: int = 0, result: Any = None, kept: Any = None, start: bool = False) -> Any:
        if op not in _REDUCE:
            raise errors.refuse(f"op must be one of {', '.join(_REDUCE)}, got {op!r}")
        some = ins or outs
        code = DTYPES.index(_dtype(some[0])) + 1 if some else 7
        if name == "barrier":
            ins, outs = None, None
        call = (_OPS[name], code, _REDUCE[op], root, ins, outs, counts, blocks, out_blocks)
        with self._lock:
            work = lowlevel.comm_submit(self._need(), call, start)
            if not start:
                self._loans.clear()  # what was started before has ended, too
                return result
            return Work(self, work, (name, ins, outs, kept), result)


def _list(arrays: Any) -> list[Any]:
    if isinstance(arrays, (list, tuple)):
        if not arrays:
            raise errors.refuse("a list of arrays must not be empty")
        return list(arrays)
    return [arrays]


def _info(raw: Any) -> tuple[int, list[int]]:
    dtype, dims = lowlevel.tensor_info(raw)
    return dtype, dims


def _dims(raw: Any) -> list[int]:
    return _info(raw)[1]


def _dtype(raw: Any) -> str:
    return DTYPES[_info(raw)[0] - 1]


def _numel(raw: Any) -> int:
    count = 1
    for dim in _info(raw)[1]:
        count *= dim
    return count


def _buffer(data: Any) -> Any:
    """What the low-level module takes as bytes."""
    try:
        return memoryview(data)
    except TypeError:
        return Tensor(data)


def _check(name: str, ins: Iterable[Any], outs: Iterable[Any], grows: int, shrinks: int, f32_of_16: bool) -> None:
    ins, outs = list(ins), list(outs)
    if len(ins) != len(outs):
        raise errors.refuse(f"{name}: data has {len(ins)} arrays and out {len(outs)}")
    first = _dtype(ins[0])
    for source, target in zip(ins, outs):
        if _dtype(source) != first:
            raise errors.refuse(f"{name}: arrays of one call have one dtype, got {first} and {_dtype(source)}")
        wanted = "f32" if f32_of_16 and first in ("bf16", "f16") else first
        if _dtype(target) != wanted:
            raise errors.refuse(f"{name}: out must be {wanted}, got {_dtype(target)}")
        if _numel(source) * grows != _numel(target) * shrinks:
            raise errors.refuse(f"{name}: out must have {_numel(source) * grows // shrinks} elements for {_numel(source)} of "
                                f"data, got {_numel(target)}")


def _check_blocks(name: str, ins: list[Any], outs: list[Any], blocks: list[int], out_blocks: list[int], rank: int,
                  size: int) -> None:
    if len(ins) != 1 or len(outs) != 1:
        raise errors.refuse(f"{name} with blocks takes one array, got {len(ins)}")
    if len(blocks) != size or len(out_blocks) != size or min(blocks + out_blocks) < 0:
        raise errors.refuse(f"blocks must be {size} numbers of elements, got {blocks}, {out_blocks}")
    wanted = "f32" if name == "reduce_scatter" and _dtype(ins[0]) in ("bf16", "f16") else _dtype(ins[0])
    if _dtype(outs[0]) != wanted:
        raise errors.refuse(f"{name}: out must be {wanted}, got {_dtype(outs[0])}")
    given, got = {"all_gather": (blocks[rank], sum(blocks)), "reduce_scatter": (sum(blocks), blocks[rank])}.get(
        name, (sum(blocks), sum(out_blocks)))
    for what, raw, count in (("data", ins[0], given), ("out", outs[0], got)):
        if _numel(raw) != count:
            raise errors.refuse(f"{name}: {what} must have {count} elements for these blocks, got {_numel(raw)}")
