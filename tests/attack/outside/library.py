"""Calls the functions of ds.h that runs need, by ctypes."""
import csv
import ctypes
import json
import math
import os
import threading


class CommOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("rank", ctypes.c_int32), ("size", ctypes.c_int32),
                ("timeout_ms", ctypes.c_int64), ("join_ms", ctypes.c_int64)]


class Progress(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("step", ctypes.c_int64), ("steps", ctypes.c_int64),
                ("loss", ctypes.c_double), ("heldout_loss", ctypes.c_double), ("grad_norm", ctypes.c_double),
                ("lr", ctypes.c_double), ("tokens_per_second", ctypes.c_double),
                ("next_lr", ctypes.POINTER(ctypes.c_double))]


ProgressCall = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Progress), ctypes.c_void_p)


# The value that a progress callback returns to end its run.
STOP = object()


class Refused(Exception):
    """An error status of a call."""


class Library:
    def __init__(self, build):
        os.environ.setdefault("DS_LOG", "error")
        self.calls = ctypes.CDLL(os.path.join(build, "lib", "libds.so.0"))
        self.calls.ds_last_error_message.restype = ctypes.c_char_p
        self.calls.ds_status_name.restype = ctypes.c_char_p
        self.calls.ds_status_name.argtypes = [ctypes.c_int]
        self.groups = 0

    def check(self, name, *words):
        status = getattr(self.calls, name)(*words)
        if status:
            message = (self.calls.ds_last_error_message() or b"").decode("utf-8", "replace")
            raise Refused(f"{name}: {self.calls.ds_status_name(status).decode()}: {message}")

    def check_run(self, stopped, *words):
        """Raises Refused unless the run succeeds. If `stopped` is true, every rank must instead report that a callback has
        stopped the run."""
        try:
            self.check("ds_run_train", *words)
        except Refused as error:
            if not stopped or ": user: a callback " not in str(error):
                raise

    def text(self, name, *words):
        out = ctypes.c_void_p()
        self.check(name, *words, ctypes.byref(out))
        text = ctypes.cast(out, ctypes.c_char_p).value.decode()
        self.calls.ds_text_destroy(out)
        return text

    def tokenize(self, config, path):
        return self.text("ds_run_tokenize", json.dumps(config).encode(), path.encode(), None)

    def state_hash(self, checkpoint):
        """Returns the information of a checkpoint, or of the newest checkpoint in a folder. It contains hashes of the masters,
        the states and the step."""
        return json.loads(self.text("ds_checkpoint_info", checkpoint.encode()))

    def comm(self, url, rank, ranks):
        options = CommOptions()
        self.check("ds_comm_options_init", ctypes.byref(options), ctypes.c_size_t(ctypes.sizeof(options)))
        options.rank, options.size, options.timeout_ms, options.join_ms = rank, ranks, 30000, 30000
        comm = ctypes.c_void_p()
        self.check("ds_comm_create", url.encode(), ctypes.byref(options), ctypes.byref(comm))
        return comm

    def train(self, config, ranks, resume=None, progress=None):
        """Runs training with a thread for each rank. progress(step, lr), called on rank 0, returns the next rate, None, or
        STOP."""
        stopped = []

        def called(state, _):
            state = state.contents
            rate = progress(state.step, state.lr)
            if rate is STOP:
                stopped.append(state.step)
                return 1
            if rate is not None:
                state.next_lr[0] = rate
            return 0

        call = ProgressCall(called) if progress else ctypes.cast(None, ProgressCall)
        nothing = ctypes.cast(None, ProgressCall)
        words = [json.dumps(config).encode(), resume.encode() if resume else None, ctypes.c_int32(2), None]
        if ranks == 1:
            self.check_run(stopped, None, *words, call, None, None)
            return
        self.groups += 1
        url, errors = f"threads://runs{os.getpid()}_{self.groups}", []

        def rank_main(rank):
            comm = None
            try:
                comm = self.comm(url, rank, ranks)
                self.check_run(stopped, comm, *words, call if rank == 0 else nothing, None, None)
            except Refused as error:
                errors.append(error)
                if comm:
                    self.calls.ds_comm_abort(comm, b"another rank has failed")
            finally:
                if comm:
                    self.calls.ds_comm_destroy(comm)

        threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def metrics(folder):
    """Returns the contents of metrics.csv: {step: (loss, rate)} as they were written, {step: held-out loss}."""
    steps, heldout = {}, {}
    with open(os.path.join(folder, "metrics.csv"), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["loss"]:
                steps[int(row["step"])] = (row["loss"], row["lr"])
            if row.get("heldout_loss"):
                heldout[int(row["step"])] = row["heldout_loss"]
    return steps, heldout


def close(a, b, relative, absolute=0.0):
    return math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
