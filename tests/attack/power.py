#!/usr/bin/env python3
"""Cuts the power under a training run, again and again, and lets it resume.

usage: power.py BUILD [CUTS] [--short] [--seed N]

A run on an ext4 file system in a file is cut off at a random time by EXT4_IOC_SHUTDOWN, which drops everything
that was not synced; then the processes are killed, the file system is mounted again (its journal is replayed) and
the run resumes, to be cut again until it reaches its last step. Rules:
- a run that has reported a checkpoint resumes from that one or a later one;
- every loss, and the payload hash at the end, have the bits of an uncut run;
- a run that has reported no checkpoint resumes, or reports why it cannot and starts again.
Needs root, mkfs.ext4 and loop devices; otherwise it is skipped with exit code 77.
"""
import argparse
import ctypes
import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77
EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
# EXT4_GOING_FLAGS_NOLOGFLUSH: data that the journal has not written is lost.
NO_LOG_FLUSH = 2
SAVE_EVERY = 3


# ------------------------------------------------------------------ one rank of the run, a separate process


class Progress(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("step", ctypes.c_int64), ("steps", ctypes.c_int64)] + [
        (name, ctypes.c_double) for name in ("loss", "heldout_loss", "grad_norm", "lr", "tokens_per_second")]


def drive(library, config, resume):
    """Trains, and prints "begin", then "STEP LOSS GRADIENT_NORM" as hexadecimal floats after each step."""
    ds = ctypes.CDLL(library)
    ds.ds_last_error_message.restype = ctypes.c_char_p
    report = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Progress), ctypes.c_void_p)

    def check(status):
        if status != 0:
            sys.exit(ds.ds_last_error_message().decode())

    @report
    def tell(now, _):
        print(now[0].step, now[0].loss.hex(), now[0].grad_norm.hex(), flush=True)
        return 0

    comm = ctypes.c_void_p()
    check(ds.ds_comm_create(b"env", None, ctypes.byref(comm)))
    if ds.ds_comm_rank(comm) == 0:
        print("begin", flush=True)
    check(ds.ds_run_train(comm, config.encode() or None, resume.encode() or None, 2, None, tell, None, None))
    ds.ds_comm_destroy(comm)


# ------------------------------------------------------------------ the disk


class Disk:
    """An ext4 file system in a file. Its journal commits only every five minutes, so no data reaches the file without a
    sync."""

    def __init__(self, work):
        self.image, self.folder = str(work / "image"), str(work / "disk")
        os.makedirs(self.folder, exist_ok=True)
        with open(self.image, "wb") as file:
            file.truncate(96 << 20)
        command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", self.image)
        self.mounted = False
        self.mount()

    def mount(self):
        command("mount", "-t", "ext4", "-o", "loop,commit=300,noauto_da_alloc", self.image, self.folder)
        self.mounted = True

    def unmount(self):
        # A killed process may release the file system a moment later.
        for _ in range(100):
            if not self.mounted or subprocess.run(["umount", self.folder], capture_output=True).returncode == 0:
                self.mounted = False
                return
            time.sleep(0.05)
        command("umount", "-l", self.folder)
        self.mounted = False

    def cut(self):
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def missing(work):
    """Returns what this machine lacks, or ""."""
    if os.geteuid() != 0:
        return "it needs root to mount"
    if shutil.which("mkfs.ext4") is None:
        return "it needs mkfs.ext4 (e2fsprogs)"
    try:
        disk = Disk(work)
        disk.cut()
        disk.unmount()
    except (RuntimeError, OSError) as error:
        return f"it needs loop devices and ext4: {error}"
    return ""


# ------------------------------------------------------------------ runs


class Wrong(Exception):
    pass


class Launch:
    """A run that was started, and its output until it ended or was cut."""

    def __init__(self, build, world, config, resume):
        words = [sys.executable, __file__, "--drive", str(build / "lib/libds.so"), config, resume]
        if world > 1:
            words = [str(build / "bin/libds"), "launch", "-n", str(world), *words]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self.losses, self.errors, self.first_step = {}, "", None
        self.begun = threading.Event()
        self.readers = [threading.Thread(target=self.read_out), threading.Thread(target=self.read_errors)]
        for reader in self.readers:
            reader.start()
        if not self.begun.wait(60) or self.began is None:
            self.finish(1)
            raise Wrong("the run did not begin: " + self.errors)

    def read_out(self):
        self.began = None
        for line in self.process.stdout:
            words = line.split()
            if words == ["begin"]:
                self.began = time.monotonic()
                self.begun.set()
            elif len(words) == 3 and words[0].isdigit():
                self.first_step = self.first_step or time.monotonic() - self.began
                self.losses[int(words[0])] = (words[1], words[2])
        self.begun.set()

    def read_errors(self):
        self.errors = self.process.stderr.read()

    def finish(self, timeout):
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for reader in self.readers:
            reader.join()

    def lasts(self, seconds):
        """Waits this long, or until the run has ended. Returns False if the run has failed."""
        try:
            return self.process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return True

    def finished(self):
        return self.process.returncode == 0

    def committed(self):
        """Returns the last step whose checkpoint was certainly saved, because a later step has ended."""
        last = max(self.losses, default=0)
        return last if self.finished() else max(0, (last - 1) // SAVE_EVERY * SAVE_EVERY)


def config_of(work, folder, steps):
    return json.dumps({
        "train_micro_batch_size_per_gpu": 2, "tensorboard": {"enabled": False},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.005}}, "zero_optimization": {"stage": 2},
        "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2, "dropout": 0.1},
        "data": {"paths": [str(work / "text.txt")], "heldout": 0.1},
        "run": {"dir": folder, "steps": steps, "sequence": 32, "eval_every": 4, "eval_samples": 2,
                "save_every": SAVE_EVERY, "sample_tokens": 4, "threads": 1, "seed": 7}})


def payload_hash(build, folder):
    done = subprocess.run([str(build / "bin/libds"), "verify", "--hash", folder], capture_output=True, text=True)
    if done.returncode != 0:
        raise Wrong(f"the checkpoint in {folder} cannot be read: {done.stderr.strip()}")
    return done.stdout.split()[0]


class Reference:
    """A run that is never cut."""

    def __init__(self, build, work, world, steps):
        disk = Disk(work)
        folder = disk.folder + "/run"
        launch = Launch(build, world, config_of(work, folder, steps), "")
        launch.finish(300)
        self.first_step, self.seconds = launch.first_step, time.monotonic() - launch.began
        if not launch.finished():
            raise Wrong("the run without cuts failed: " + launch.errors)
        self.losses, self.hash = launch.losses, payload_hash(build, folder)
        disk.unmount()
        if sorted(self.losses) != list(range(1, steps + 1)):
            raise Wrong(f"{steps} steps were asked for, the run reported {sorted(self.losses)}")


class Attack:
    def __init__(self, build, work, world, steps, random_):
        self.build, self.work, self.world, self.steps, self.random = build, work, world, steps, random_
        self.reference = Reference(build, work, world, steps)
        self.disk, self.committed, self.resumed, self.whole_runs = None, 0, 0, 0

    def moment(self):
        """Draws the time of a cut. A quarter of the cuts happen before the first step of a run, the others while it trains."""
        early = self.random.random() < 0.25
        low, high = (0, self.reference.first_step) if early else (self.reference.first_step, self.reference.seconds)
        return self.random.uniform(low, high)

    def one_cut(self):
        """Runs for a while, cuts, and mounts the file system again. Returns a line for the report."""
        if self.disk is None:
            self.disk, self.committed = Disk(self.work), 0
        folder, moment = self.disk.folder + "/run", self.moment()
        launch, text = self.go_on(folder, moment)
        # A save that fails after the cut is only a warning, and the run continues, so its later steps prove no checkpoint.
        launch.safe = launch.committed()
        self.disk.cut()
        launch.finish(0.3)
        self.check(launch)
        self.disk.unmount()
        self.disk.mount()
        if launch.finished():
            self.check_end(folder)
        return f"after {moment:.3f} s, {text}, reached step {max(launch.losses, default=0)}"

    def go_on(self, folder, seconds):
        """Starts a run, or resumes the existing one, for this long. A run that has saved nothing may start again."""
        if os.path.exists(folder + "/config.json"):
            launch = Launch(self.build, self.world, "", folder)
            if launch.lasts(seconds):
                return launch, f"resumed, step {self.committed} was saved"
            launch.finish(1)
            if self.committed > 0:
                raise Wrong(f"step {self.committed} was saved, but the run does not resume: {launch.errors}")
        elif self.committed > 0:
            raise Wrong(f"step {self.committed} was saved, but {folder} has no config.json")
        shutil.rmtree(folder, ignore_errors=True)
        launch = Launch(self.build, self.world, config_of(self.work, folder, self.steps), "")
        if not launch.lasts(seconds):
            launch.finish(1)
            raise Wrong("the run failed: " + launch.errors)
        return launch, "begun"

    def check(self, launch):
        for step, values in launch.losses.items():
            if values != self.reference.losses[step]:
                raise Wrong(f"step {step} has loss and norm {values}, without cuts {self.reference.losses[step]}")
        if launch.losses and min(launch.losses) > 1:
            self.resumed += 1
        if launch.losses and min(launch.losses) <= self.committed:
            raise Wrong(f"step {self.committed} was saved, but the run went on with step {min(launch.losses)}")
        # A run whose disk has vanished may end with an error ("Input/output error"), but by no signal except SIGKILL.
        code = launch.process.returncode
        if code < 0 and -code != signal.SIGKILL:
            raise Wrong(f"the run ended by signal {-code}")
        self.committed = max(self.committed, launch.committed() if launch.finished() else launch.safe)

    def check_end(self, folder):
        found = payload_hash(self.build, folder)
        if found != self.reference.hash:
            raise Wrong(f"the last checkpoint has hash {found}, without cuts {self.reference.hash}")
        self.whole_runs += 1
        self.close()

    def run_to_end(self):
        """Lets the last run reach its end, so that its bits are compared, too."""
        if self.disk is None:
            return
        folder = self.disk.folder + "/run"
        launch, _ = self.go_on(folder, 120)
        launch.finish(1)
        self.check(launch)
        if not launch.finished():
            raise Wrong("the run did not end: " + launch.errors)
        self.check_end(folder)

    def close(self):
        if self.disk is not None:
            self.disk.unmount()
            self.disk = None


def attack(options, work):
    (work / "text.txt").write_text("".join(
        f"line {i} of a text about shards, buckets and granules: {i * 7919 % 1000}\n" for i in range(400)))
    random_ = random.Random(options.seed)
    cuts, steps = (3, 60) if options.short else (options.cuts, 240)
    worlds = [1] if options.short else [1, 2]
    done = 0
    for world in worlds:
        one = Attack(options.build, work, world, steps, random_)
        try:
            for _ in range(cuts // len(worlds)):
                print(f"cut {done}: {one.one_cut()}", flush=True)
                done += 1
            one.run_to_end()
        finally:
            one.close()
        print(f"{world} ranks, {one.reference.seconds:.1f} s without cuts: resumed {one.resumed} times, {one.whole_runs} whole runs with equal bits")
    print(f"power: {done} cuts, seed {options.seed}: ok")


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--drive":
        return drive(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("cuts", nargs="?", type=int, default=20)
    parser.add_argument("--short", action="store_true", help="3 cuts of a short run")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="libds-power-"))
    try:
        lack = missing(work)
        if lack:
            print(f"SKIPPED: no power is cut, {lack}")
            return SKIPPED
        attack(options, work)
    except Wrong as error:
        print(f"FAILED: {error}\nrepeat with --seed {options.seed}")
        return 1
    finally:
        subprocess.run(["umount", str(work / "disk")], capture_output=True)
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
