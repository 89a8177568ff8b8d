"""Groups of ranks and their collectives."""
from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import Any, Callable, Iterable, Sequence

from . import errors, lowlevel
from ._arguments import checked, milliseconds, ranged, shown
from ._handle import Handle
from .tensor import DTYPES, Tensor, raw_of, zeros

__all__ = ["Comm", "Work"]

_OPS = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 2, "all_to_all": 3, "broadcast": 4, "barrier": 5, "reduce": 6,
        "gather": 7, "scatter": 8}
_REDUCE = {"sum": 0, "mean": 1, "max": 2, "min": 3}
_FORMATS = {"text": 0, "data": 1}
_INT32 = (1 << 31) - 1


def format_code(form: str) -> int:
    """Returns the constant of ds.h for the form of a report."""
    if form not in _FORMATS:
        raise errors.refuse(f"form must be 'text' or 'data', got {shown(form)}")
    return _FORMATS[form]


def report(form: str, text: str) -> Any:
    """Returns a report in the requested form: its text, or the content of its JSON."""
    return json.loads(text) if form == "data" else text


@checked
class Work(Handle):
    """A collective that was started with `start=True`.

    Its buffers belong to libds until `wait()` has returned: do not read or write them. They are kept alive, and a bytearray
    or array.array cannot be resized meanwhile.
    """

    def __init__(self, comm: Comm, raw: Any, name: str, loan: Any, result: Any) -> None:
        self._open(raw, comm._lock)
        self._loans = comm._loans
        self._loan = loan  # the key of its buffers
        self._hears = comm._waits
        self._result = result
        self._name = name

    def wait(self) -> Any:
        """Waits until the collective has ended, and returns what the call would have returned without `start`. May be called
        repeatedly."""
        raw = self._need()
        if self._hears:
            _until_done(raw)
        try:
            lowlevel.work_wait(raw)
        finally:
            self._loans.pop(self._loan, None)
        return self._result

    @property
    def done(self) -> bool:
        """Whether the collective has ended, with success or not. Call `wait()` before you use its buffers."""
        return lowlevel.work_test(self._need())

    def __exit__(self, *exception: Any) -> None:
        try:
            if exception[0] is None:
                self.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Drops this handle. The collective continues, and its buffers are kept alive until a later collective without `start`
        has ended or the comm is closed."""
        super().close()

    def __repr__(self) -> str:
        return f"Work({self._name}, {'closed' if self.closed else 'done' if self.done else 'running'})"


def _hears_signals() -> bool:
    """Returns whether this thread runs Python's signal handlers."""
    return threading.current_thread() is threading.main_thread()


def _heard(call: Callable[[], Any], leave: Callable[[], None]) -> Any:
    """Runs call() on another thread while this one handles signals. If a handler raises, calls leave(), which must end the
    call, and lets the exception pass."""
    outcomes: list[tuple[Any, BaseException | None]] = []
    left = threading.Event()

    def run() -> None:
        try:
            outcomes.append((call(), None))
        except BaseException as error:  # pylint: disable=broad-exception-caught
            outcomes.append((None, error))
        if left.is_set():
            outcomes.clear()

    thread = threading.Thread(target=run, name="libds-call", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        left.set()
        outcomes.clear()
        leave()
        raise
    result, error = outcomes.pop()
    if error is not None:
        raise error
    return result


def _until_done(raw: Any) -> None:
    """Waits for a started collective while signal handlers run. On a thread that receives no signals, returns at once, and the
    caller must wait by work_wait."""
    begin = time.monotonic()
    while _hears_signals() and not lowlevel.work_test(raw):
        passed = time.monotonic() - begin
        if passed > 0.0002:
            time.sleep(min(passed / 8, 0.02))


@checked
class Comm(Handle):
    """A group of ranks, which this process or thread joins.

    Args:
        url: "env" (as `libds launch`, torchrun, mpirun or srun set the environment; one rank if none did), "self" (one rank),
            "threads://NAME" (ranks are threads of this process), "shm://NAME" (processes of one host), "mpi",
            "tcp://HOST:PORT" and further ones, see `help(libds.lowlevel.comm_create)`.
        rank, size: this rank and the number of ranks; "self" and "env" supply them.
        timeout: seconds without progress after which a peer counts as dead.
        join_timeout: seconds to wait until all ranks have joined.
        interruptible: if true, signal handlers, including that of Control-C, run while a call on the main thread waits for other
            ranks. A handler that raises ends the call, and the group. With this option a small collective takes about 100 us
            instead of 10. Over MPI and over callbacks, handlers run only after the call. On the main thread, signals also
            interrupt joining a group, with or without this option, unless it is over MPI.

    Arrays are NumPy arrays, torch tensors, `libds.Tensor` or any buffer, and are used in place. All ranks must call
    every collective in the same order. A collective raises `CommError` on all ranks if one dies, aborts or calls something
    else. With `start=True` the call only starts the collective, and returns a `Work`.

    A list of arrays may take the place of an array: one collective then covers all of them, which is faster than separate
    calls if the arrays are small.
    """

    def __init__(self, url: str = "env", *, rank: int = 0, size: int = 1, timeout: float = 300.0,
                 join_timeout: float = 60.0, interruptible: bool = False) -> None:
        options = lowlevel.comm_options()
        options.rank, options.size = rank, size
        options.timeout_ms, options.join_ms = milliseconds("timeout", timeout), milliseconds("join_timeout", join_timeout)
        # MPI requires its calls to come from one thread.
        hears = url.partition("://")[0] in ("threads", "shm", "tcp", "env") and not any(
            name.startswith(("OMPI_", "PMI_", "PMIX_")) for name in os.environ)
        # If the joining thread is abandoned, it leaves the group as soon as it has joined, or gives up.
        if hears and _hears_signals():
            raw = _heard(lambda: lowlevel.comm_create(url, options), lambda: None)
        else:
            raw = lowlevel.comm_create(url, options)
        self._start(raw, hears=hears and interruptible)

    @classmethod
    def from_callbacks(cls, *, rank: int, size: int, all_to_all: Callable[[list[bytes], list[int]], Sequence[Any]],
                       all_gather: Callable[[bytes], Any] | None = None, send: Callable[[bytes, int], Any] | None = None,
                       receive: Callable[[int, int], Any] | None = None, abort: Callable[[str], Any] | None = None) -> Comm:
        """A group whose bytes go through the collectives of another library, which keeps its own process groups.

        Args:
            rank, size: this rank and the number of ranks.
            all_to_all: gets the bytes for each rank and the number of bytes that each rank sends to this one; returns a list of
                buffers with the bytes from each rank. A rank sends nothing to itself.
            all_gather: gets this rank's bytes and returns those of all ranks in order. Without it, all_to_all is used.
            send, receive: send(data, to) sends bytes to a rank; receive(count, source) returns that many bytes from a rank.
                Without them, `send`, `receive` and `split` raise `Unsupported`.
            abort: gets a reason, and ends the running collective and every later one on all ranks, if it can.

        Each callable must return only when this rank's bytes were sent and received. Sums have the same bits as over any url.
        The callables need time-outs of their own, because libds cannot see which rank they wait for. An exception in a callable
        ends the group, and the call that ran it raises it. The callables must not use this comm or its engines. If a callable
        refers to the comm, close the comm; otherwise neither is ever freed. All ranks must pass the same callables.
        """
        options = lowlevel.comm_options()
        options.rank, options.size = rank, size
        out = cls.__new__(cls)
        out._start(lowlevel.comm_create_from_callbacks((size, all_to_all, all_gather, send, receive, abort), options))
        return out

    def _start(self, raw: Any, parent: Comm | None = None, hears: bool = False) -> None:
        # Whether calls handle signals while they wait for other ranks.
        self._waits = hears and lowlevel.comm_size(raw) > 1
        # Buffers of started collectives, by the key that their Work holds.
        self._loans: dict[Any, Any] = parent._loans if parent else {}
        # Keeps the buffers alive for a call that another thread makes while this object is closed.
        raw.kept = self._loans
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

        Without `out` the result replaces `data`, and `data` is returned; otherwise `out` is. The result of "bf16" and "f16"
        arrays is "f32", and without `out` a new Tensor. Sums have the same bits on any transport.
        """
        return self._reduction("all_reduce", data, out, op, 0, start)

    def reduce(self, data: Any, root: int = 0, out: Any = None, *, op: str = "sum", start: bool = False) -> Any:
        """An all_reduce whose result only rank `root` gets; other ranks get None."""
        return self._reduction("reduce", data, out, op, root, start)

    def reduce_scatter(self, data: Any, out: Any = None, *, op: str = "sum", blocks: Sequence[int] | None = None,
                       start: bool = False) -> Any:
        """Combines the elements of all ranks; rank r gets block r of the result.

        `blocks`: the number of elements of each rank's block; by default the blocks are equal parts of the first dimension.
        Without `out` the block is a new Tensor, which is returned.
        """
        return self._blocks("reduce_scatter", data, out, blocks, None, op, 0, start)

    def all_gather(self, data: Any, out: Any = None, *, blocks: Sequence[int] | None = None, start: bool = False) -> Any:
        """Concatenates the arrays of all ranks in the order of ranks; every rank gets the result.

        `blocks`: the number of elements that each rank contributes, if these numbers differ. Without `out` the result is a new
        Tensor of shape [ranks, *shape] or, with `blocks`, of one dimension.
        """
        return self._blocks("all_gather", data, out, blocks, None, "sum", 0, start)

    def gather(self, data: Any, root: int = 0, out: Any = None, *, start: bool = False) -> Any:
        """An all_gather of equal blocks whose result only rank `root` gets; other ranks get None."""
        return self._blocks("gather", data, out, None, None, "sum", root, start)

    def scatter(self, data: Any, root: int = 0, out: Any = None, *, start: bool = False) -> Any:
        """Sends block r of rank `root`'s array to rank r. Other ranks pass None as `data` and need an `out`."""
        return self._blocks("scatter", data, out, None, None, "sum", root, start)

    def all_to_all(self, data: Any, out: Any = None, *, blocks: Sequence[int] | None = None,
                   out_blocks: Sequence[int] | None = None, start: bool = False) -> Any:
        """Sends block b of `data` to rank b; block r of the result comes from rank r.

        `blocks` and `out_blocks`: the numbers of elements that go to each rank and come from each rank, if they differ. Without
        `out` the result is a new Tensor of the shape of `data` or, with `blocks`, of one dimension.
        """
        return self._blocks("all_to_all", data, out, blocks, out_blocks, "sum", 0, start)

    def broadcast(self, data: Any, root: int = 0, *, start: bool = False) -> Any:
        """Copies the elements of rank `root` to all ranks, in place. Returns `data`."""
        outs = _raws("data", data, writable=True)
        return self._submit("broadcast", None, outs, [_numel(raw) for raw in outs], root=root, result=data, kept=data,
                            start=start)

    def barrier(self, *, start: bool = False) -> Any:
        """Returns when every rank has called it."""
        return self._submit("barrier", None, None, None, start=start)

    def send(self, data: Any, to: int) -> None:
        """Sends an array to rank `to`, which must call `receive` with an array of the same number of bytes. Returns when the
        data has arrived."""
        self._wait("send", lowlevel.comm_send, bytes_of("data", data, False), to)

    def receive(self, data: Any, source: int) -> Any:
        """Fills an array with the bytes that rank `source` sends. Returns `data`."""
        self._wait("receive", lowlevel.comm_receive, bytes_of("data", data, True), ranged("source", source, -_INT32, _INT32))
        return data

    def split(self, color: int | None, key: int = 0) -> Comm | None:
        """Creates a group of all ranks with the same color, ordered by key, then by rank. A rank with color None joins no
        group and gets None."""
        raw = self._wait("split", lowlevel.comm_split, -1 if color is None else color, key)
        if raw is None:
            return None
        part = Comm.__new__(Comm)
        part._start(raw, self, self._waits)
        return part

    def abort(self, reason: str) -> None:
        """Ends the running collective and every later one with `CommError` and this reason, on all ranks; any thread may call
        it."""
        lowlevel.comm_abort(self._need(), reason)

    # ------------------------------------------------------------ reports

    def log_start(self) -> None:
        """Times the collectives from now on. Collective."""
        self._wait("log_start", lowlevel.comm_log_start)

    def log(self, form: str = "text") -> Any:
        """Returns the cost of this rank's collectives since `log_start`; with form "data" as a dictionary. Collective."""
        return report(form, self._wait("log", lowlevel.comm_log, format_code(form)))

    def flight_record(self, form: str = "text") -> Any:
        """Returns the last 64 operations of this rank, each with its state; any thread may call it."""
        return report(form, lowlevel.comm_flight_record(self._need(), format_code(form)))

    def close(self) -> None:
        """Leaves the group as soon as no engine uses it. Frees the buffers of collectives that were not waited for."""
        super().close()
        self._loans = {}

    def __repr__(self) -> str:
        return "Comm(closed)" if self.closed else f"Comm(rank={self.rank}, size={self.size})"

    # ------------------------------------------------------------ calls

    def _reduction(self, name: str, data: Any, out: Any, op: str, root: int, start: bool) -> Any:
        ins = _raws("data", data)
        at_root = name == "all_reduce" or self.rank == root
        outs = result = None
        if at_root:
            if out is not None:
                outs = _raws("out", out, writable=True)
            elif any(_dtype(raw) in ("bf16", "f16") for raw in ins):
                out = [Tensor._of(lowlevel.tensor_create(1, _dims(raw))) for raw in ins]
                outs, out = [made._raw for made in out], out if isinstance(data, (list, tuple)) else out[0]
            else:
                out, outs = data, _raws("data", data, writable=True)
            result = out
            _check(name, ins, outs, 1, 1, f32_of_16=True)
        return self._submit(name, ins, outs, [_numel(raw) for raw in ins], op=op, root=root, result=result, kept=(data, out),
                            start=start)

    def _blocks(self, name: str, data: Any, out: Any, blocks: Any, out_blocks: Any, op: str, root: int, start: bool) -> Any:
        size = self.size
        blocks = None if blocks is None else list(blocks)
        out_blocks = None if out_blocks is None else list(out_blocks)
        more, less = name in ("all_gather", "gather"), name in ("reduce_scatter", "scatter")
        at_root = name not in ("gather", "scatter") or self.rank == root
        ins = _raws("data", data) if data is not None else None
        if ins is None and (name != "scatter" or at_root):
            raise errors.refuse("data must be an array, got None")
        several = isinstance(data if data is not None else out, (list, tuple))
        if name == "gather" and not at_root:
            out = outs = None
        elif out is not None:
            outs = _raws("out", out, writable=True)
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
        """Creates a Tensor for the result of a collective over `raw`."""
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
            raise errors.refuse(f"op must be one of {', '.join(_REDUCE)}, got {shown(op)}")
        root = ranged("root", root, -_INT32, _INT32)
        some = ins or outs
        code = DTYPES.index(_dtype(some[0])) + 1 if some else 7
        if name == "barrier":
            ins, outs = None, None
        call = (_OPS[name], code, _REDUCE[op], root, ins, outs, counts, blocks, out_blocks)
        with self._lock:
            raw, loan = self._need(), object()
            # Stored before the call, because a signal handler may raise after any of these lines.
            self._loans[loan] = (ins, outs, kept)
            try:
                work = lowlevel.comm_submit(raw, call, start or (self._waits and _hears_signals()))
            except (errors.Error, BufferError, TypeError, ValueError, MemoryError):  # no collective has started
                self._loans.pop(loan)
                raise
            if start:
                return Work(self, work, name, loan, result)
            if work is not None:
                try:
                    _until_done(work)
                except BaseException:
                    self._leave(raw, name)
                    with contextlib.suppress(errors.Error):
                        lowlevel.work_wait(work)  # until the buffers are no longer used
                    raise
                lowlevel.work_wait(work)
            # Collectives that were started before have ended, too.
            self._loans.clear()
            return result

    def _leave(self, raw: Any, name: str) -> None:
        """Ends the group, because a signal handler has raised while this rank waited for the others."""
        with contextlib.suppress(errors.Error):
            lowlevel.comm_abort(raw, f"rank {lowlevel.comm_rank(raw)} has left {name}: a signal's handler has raised an exception")

    def _wait(self, name: str, fn: Callable[..., Any], *arguments: Any) -> Any:
        """Like `_call`, for calls that wait for other ranks and cannot be started: signals are handled in the
        meantime."""
        raw = self._need()
        if not (self._waits and _hears_signals()):
            return self._call(fn, *arguments)
        with self._lock:
            return _heard(lambda: fn(raw, *arguments), lambda: self._leave(raw, name))


def _raws(name: str, arrays: Any, writable: bool = False) -> list[Any]:
    """Returns the low-level tensors of an argument that is an array or a list of arrays."""
    if not isinstance(arrays, (list, tuple)):
        return [raw_of(arrays, writable=writable, name=name)]
    if not arrays:
        raise errors.refuse(f"{name} must be an array or a list of arrays, got an empty one")
    return [raw_of(array, writable=writable, name=f"{name}[{i}]") for i, array in enumerate(arrays)]


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


def bytes_of(name: str, array: Any, writable: bool) -> memoryview:
    """Returns the memory of an array for the low-level module: contiguous, and writable if it will be written."""
    try:
        view = memoryview(array)
    except TypeError:
        view = memoryview(Tensor._of(raw_of(array, writable=writable, name=name)))
    if not view.c_contiguous:
        raise BufferError(f"{name} must be contiguous, in row-major order")
    if writable and view.readonly:
        raise BufferError(f"{name} must be writable, got memory that is read-only")
    return view


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
