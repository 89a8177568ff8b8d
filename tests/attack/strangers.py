#!/usr/bin/env python3
"""Attacks the ports of training runs over TCP as a stranger without the key of the job.

usage: strangers.py BUILD [TRIES] [--short] [--seed N]

Runs jobs of three ranks: with a key in the environment, with the key of a meeting's file, and under `libds launch`.
While their ranks meet and connect, strangers make TRIES hostile connections to the port of the meeting and to the ports
of the data: random bytes, truncated and changed recordings, replays, wrong ranks, sizes and jobs, reflections, seats that
are taken and left, half-open and slow connections, and floods. If this program runs as root, user nobody also searches
/proc and the meeting's file for the key, and starts ranks of libds without the key. Rules:
- each job ends with code 0 in time, with the bits of an undisturbed run;
- a stranger receives nothing except the 32 random bytes that answer a greeting;
- no other user finds the key, and no rank without it joins.
"""
import argparse
import collections
import hashlib
import hmac
import os
import pathlib
import random
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

RANKS = 3
# Ranks wait a minute for each other.
JOB_LIMIT_S = 90
# The layout of the greeting in src/comm/tcp/proof.h.
HELLO = struct.Struct("<8sIiii88s32s")
MEETING, MESH = 1, 2
NOBODY = 65534
CONFIG = """{"train_micro_batch_size_per_gpu": 2,
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": 3},
 "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2, "dropout": 0.1},
 "run": {"sequence": 32, "steps": 4, "threads": 1, "sample_tokens": 0, "seed": 3}}"""


def fail(text):
    raise SystemExit(f"strangers: {text}")


# ------------------------------------------------------------------------------------ the protocol, written again


def code(key, purpose, data):
    return hmac.new(key, purpose.encode() + b"\0" + data, hashlib.sha256).digest()


def key_of_text(text):
    return code(bytes(32), "libds job key", text.encode())


def hello(purpose=MEETING, source=1, to=0, size=RANKS, job=b"", magic=b"dstcp01\0"):
    return HELLO.pack(magic, purpose, source, to, size, job, secrets.token_bytes(32))


def callers_proof(key, greeting, draw):
    return code(key, "libds tcp proof of the caller", greeting + draw)


def exactly(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            break
        data += part
    return data


# ------------------------------------------------------------------------------------------------- listening sockets


def sockets(pids, state):
    """Returns the lines of /proc/net/tcp and tcp6, split, of the sockets of these processes in one state."""
    inodes = set()
    for pid in pids:
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        except OSError:
            # The process has ended, or has closed that descriptor.
            continue
    tables = [table for table in (pathlib.Path("/proc/net/tcp"), pathlib.Path("/proc/net/tcp6")) if table.exists()]
    lines = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    return [line for line in lines if line[3] == state and line[9] in inodes]


def listeners(pids):
    """Returns (address, port) of every TCP socket at which one of these processes listens."""
    found = set()
    for line in sockets(pids, "0A"):
        address, port = line[1].split(":")
        words = struct.pack(f"<{len(address) // 8}I", *(int(address[i:i + 8], 16) for i in range(0, len(address), 8)))
        found.add((socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words), int(port, 16)))
    return found


def connected(pid, places):
    ports = {port for _, port in places}
    return any(int(line[2].split(":")[1], 16) in ports for line in sockets([pid], "01"))


def reachable(place):
    return ("127.0.0.1" if place[0] in ("0.0.0.0", "::") else place[0].removeprefix("::ffff:"), place[1])


# --------------------------------------------------------------------------------------------------------- strangers


class Strangers:
    """Hostile connections, each of a random kind, and the answers that they receive."""

    def __init__(self, seed, recording):
        self.random = random.Random(seed)
        # The greeting and the proof of a rank that once joined.
        self.recording = recording
        # The newest 60 connections, which stay open.
        self.open = collections.deque(maxlen=60)
        self.counts = collections.Counter()
        self.places = set()
        self.told = []
        self.lock = threading.Lock()

    def connect(self, place):
        connection = socket.create_connection(place, timeout=2)
        connection.settimeout(0.05)
        return connection

    def one(self, place):
        kind = self.random.choice(self.KINDS)
        with self.lock:
            self.counts[kind.__name__] += 1
            self.places.add(place)
        try:
            kind(self, place)
        except OSError:  # refused, reset, or no answer, as expected
            pass

    def answer(self, connection, limit=4096):
        """Reads the answer to a stranger, which may be at most the 32 bytes of a draw."""
        data = b""
        try:
            while len(data) < limit:
                part = connection.recv(limit)
                if not part:
                    break
                data += part
        except OSError:
            pass
        if len(data) > 32:
            with self.lock:
                self.told.append(data)
        return data

    def noise(self, place):
        with self.connect(place) as c:
            c.sendall(self.random.randbytes(self.random.randrange(1, 500)))
            self.answer(c)

    def cut_recording(self, place):
        recorded = b"".join(self.recording)
        with self.connect(place) as c:
            c.sendall(recorded[:self.random.randrange(len(recorded))])
            if self.random.random() < 0.5:
                c.shutdown(socket.SHUT_WR)
            self.answer(c)

    def changed_recording(self, place):
        recorded = bytearray(b"".join(self.recording))
        for _ in range(self.random.randrange(1, 4)):
            recorded[self.random.randrange(len(recorded))] ^= 1 << self.random.randrange(8)
        with self.connect(place) as c:
            c.sendall(recorded)
            self.answer(c)

    def replay(self, place):
        with self.connect(place) as c:
            c.sendall(self.recording[0])
            exactly(c, 32)
            c.sendall(self.recording[1])
            self.answer(c)

    def wrong_place(self, place):
        """Sends a greeting with a random purpose, rank, size, job or version, and a proof of a guessed key."""
        r = self.random
        greeting = hello(r.choice([0, MEETING, MESH, 3, 2**32 - 1]), r.choice([-5, 0, 1, 2, 3, 2**31 - 1]),
                     r.choice([-1, 0, 0, 1, 2]), r.choice([-1, 0, 2, 3, 1 << 30]),
                     r.choice([b"", b"night-7", b"\xff" * 88]), r.choice([b"dstcp00\0", b"dstcp01\0"]))
        with self.connect(place) as c:
            c.sendall(greeting)
            draw = exactly(c, 32)
            c.sendall(callers_proof(key_of_text(r.choice(["none", "missing", "", "password"])), greeting, draw))
            self.answer(c)

    def reflection(self, place):
        """Sends the answer of one connection as the proof on another."""
        with self.connect(place) as a, self.connect(place) as b:
            greeting = hello()
            a.sendall(greeting)
            draw = exactly(a, 32)
            b.sendall(greeting[:-32] + draw)
            b.sendall(exactly(b, 32) if self.random.random() < 0.5 else draw)
            a.sendall(self.answer(b, 32) or draw)
            self.answer(a)

    def seat_and_leave(self, place):
        with self.connect(place) as c:
            c.sendall(hello(self.random.choice([MEETING, MESH]), self.random.choice([1, 2])))
            if self.random.random() < 0.5:
                exactly(c, 32)

    def reset(self, place):
        with self.connect(place) as c:
            c.sendall(hello())
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def half_open(self, place):
        self.open.append(self.connect(place))

    def slow(self, place):
        c = self.connect(place)
        self.open.append(c)
        for byte in hello()[:self.random.randrange(1, 40)]:
            c.sendall(bytes([byte]))
            time.sleep(0.001)

    def flood(self, place):
        for _ in range(150):
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(place)
            self.open.append(c)

    def frames(self, place):
        """Sends a message as ranks send it after the proof of the key: kind, size and value, and up to 4096 bytes."""
        with self.connect(place) as c:
            size = self.random.choice([0, 8, 4096, 2**32 - 1])
            c.sendall(struct.pack("<IIQ", self.random.randrange(7), size, self.random.randrange(2**64)))
            c.sendall(bytes(min(size, 4096)))
            self.answer(c)

    KINDS = [noise, cut_recording, changed_recording, replay, wrong_place, reflection, seat_and_leave, reset, half_open,
             slow, flood, frames]


# -------------------------------------------------------------------------------------------------------------- jobs


class Job:
    def __init__(self, build, folder, name, kind):
        self.libds = str(build / "bin/libds")
        self.folder, self.name, self.kind = folder, name, kind
        self.key = secrets.token_hex(32)
        self.processes, self.begin = [], time.monotonic()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.meet = folder / f"{name}.meet"
        self.url = f"tcp://{self.meet}" if kind == "file" else f"tcp://127.0.0.1:{self.port}"

    def words(self):
        config = "chosen.json" if self.kind == "launch" else "config.json"
        return [self.libds, "train", "--config", config, "--data", "text", "--quiet", "--dir", self.name]

    def start(self, words, variables):
        log = open(self.folder / f"{self.name}.{len(self.processes)}.log", "wb")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("DS_JOB_KEY", "DS_COMM"))}
        process = subprocess.Popen(words, cwd=self.folder, env=environment | variables, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def start_rank(self, rank):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "DS_COMM_URL": self.url,
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port)}
        if self.kind not in ("file", "loopback"):
            variables["DS_JOB_KEY"] = self.key
        return self.start(self.words(), variables)

    def start_launcher(self):
        self.start([self.libds, "launch", "-n", str(RANKS), "--master-port", str(self.port), *self.words()], {})

    def pids(self):
        found = [p.pid for p in self.processes]
        # The loop appends the children of each process to the list.
        for pid in found:
            try:
                children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
            except OSError:
                continue
            found += [int(child) for child in children.split()]
        return found

    def wait_for(self, what, condition, limit=30):
        end = time.monotonic() + limit
        while not (result := condition()):
            if time.monotonic() > end or any(p.poll() not in (None, 0) for p in self.processes):
                self.end(f"waited in vain: {what}")
            time.sleep(0.01)
        return result

    def end(self, reason):
        for log in sorted(self.folder.glob(f"{self.name}.*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')}", file=sys.stderr)
        self.kill()
        fail(f"job {self.name} ({self.kind}): {reason}")

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def finish(self):
        for process in self.processes:
            try:
                rc = process.wait(max(0.1, JOB_LIMIT_S - (time.monotonic() - self.begin)))
            except subprocess.TimeoutExpired:
                self.end(f"not ended within {JOB_LIMIT_S} s")
            if rc != 0:
                self.end(f"a process ended with code {rc}")

    def hash(self):
        return subprocess.check_output([self.libds, "verify", "--hash", self.name], cwd=self.folder, text=True).split()[0]


class Siege:
    """Threads of strangers that attack the ports of a job until the job ends or the budget is spent."""

    def __init__(self, strangers, job, budget):
        self.strangers, self.job, self.left = strangers, job, budget
        self.over = False
        self.threads = [threading.Thread(target=self.attack, args=(i,)) for i in range(3)]
        for thread in self.threads:
            thread.start()

    def attack(self, number):
        r = random.Random(f"{self.job.name} {number}")
        while not self.over and self.left > 0:
            places = [reachable(p) for p in listeners(self.job.pids())]
            if not places:
                time.sleep(0.002)
                continue
            self.left -= 1
            self.strangers.one(r.choice(sorted(places)))

    def lift(self):
        self.over = True
        for thread in self.threads:
            thread.join()


def besieged(job, strangers, budget):
    """Runs a job whose ranks start one after another while it is attacked. Returns the ports of its data."""
    data = set()
    if job.kind == "launch":
        job.start_launcher()
        siege = Siege(strangers, job, budget)
        job.finish()
        siege.lift()
        return data
    first = job.start_rank(0)
    meeting = job.wait_for("rank 0 listens", lambda: listeners([first.pid]))
    siege = Siege(strangers, job, budget)
    spend(siege, budget // 2)
    last = job.start_rank(RANKS - 1)
    job.wait_for("the last rank is seated", lambda: connected(last.pid, meeting))
    time.sleep(0.2)
    # The other ranks listen for data until the stopped rank continues.
    last.send_signal(signal.SIGSTOP)
    rest = [job.start_rank(rank) for rank in range(1, RANKS - 1)]
    others = [first.pid] + [p.pid for p in rest]
    data = job.wait_for("ranks listen for data", lambda: listeners(others) - meeting)
    spend(siege, budget // 4)
    last.send_signal(signal.SIGCONT)
    job.finish()
    siege.lift()
    return data


def spend(siege, count):
    end, goal = time.monotonic() + 20, max(0, siege.left - count)
    while siege.left > goal and time.monotonic() < end:
        time.sleep(0.01)


def record(build, folder):
    """Records the greeting and the proof of a rank, in a job whose ranks never meet."""
    job = Job(build, folder, "recorded", "key")
    rank = job.start_rank(0)
    job.wait_for("rank 0 listens", lambda: listeners([rank.pid]))
    key = key_of_text(job.key)
    with socket.create_connection(("127.0.0.1", job.port), timeout=5) as c:
        greeting = hello()
        c.sendall(greeting)
        draw = exactly(c, 32)
        proof = callers_proof(key, greeting, draw)
        c.sendall(proof)
        if exactly(c, 32) != code(key, "libds tcp proof of the door", greeting + draw):
            fail("rank 0 does not prove the key: does this script speak the protocol of src/comm/tcp/proof.h?")
    job.kill()
    return greeting, proof


# ------------------------------------------------------------------------------------------------------ other users


def as_nobody(body):
    """Runs body() in a child process as user nobody; returns its text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(write, body().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        text = answers.read().decode()
    os.waitpid(pid, 0)
    return text


def leave_at_once(place):
    """Connects without a key, names a job of another size, sends a proof, and leaves before the listener checks who owns the
    socket. A listener that trusted this connection would end the meeting because of the size. Returns the number of
    connections that sent a proof."""
    proved = 0
    for number in range(60):
        with socket.create_connection(place, timeout=2) as c:
            c.settimeout(2)
            greeting = hello(size=RANKS + 4)
            c.sendall(greeting)
            if number % 4 == 0:
                # This connection proved nothing.
                continue
            draw = exactly(c, 32)
            proof = callers_proof(key_of_text("missing"), greeting, draw)
            if number % 4 == 1:
                c.sendall(proof[:16])
                continue
            if number % 4 == 2:
                c.sendall(proof[:16])
                time.sleep(0.01)
                proof = proof[16:]
            c.sendall(proof)
            c.shutdown(socket.SHUT_RDWR)
            proved += len(draw) == 32
    return str(proved)


def look_for(keys, files):
    """Returns the files in which this process, as another user, finds one of the keys."""
    found = []
    for path in [*pathlib.Path("/proc").glob("[0-9]*/environ"), *pathlib.Path("/proc").glob("[0-9]*/cmdline"), *files]:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if any(key.encode() in content for key in keys):
            found.append(str(path))
    return " ".join(found)


def intrude(job):
    """Starts ranks of libds without the key, as another user. Returns their exit codes; 124 means that a rank was still
    waiting."""
    variables = {"RANK": "1", "WORLD_SIZE": str(RANKS), "DS_COMM_URL": job.url, "HOME": "/",
                 "PATH": os.environ["PATH"]}
    tried = [subprocess.Popen(["timeout", "1.5", *job.words()], cwd=job.folder, env=variables | key,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
             for key in ({}, {"DS_JOB_KEY": "none"}, {"DS_JOB_KEY": "password password"})]
    return " ".join(str(rank.wait()) for rank in tried)


def other_users(build, folder, reference):
    """Runs a job while user nobody looks for the key and tries to join."""
    if os.geteuid() != 0:
        print("strangers: not root: the attacks of another user are left out")
        return
    os.chmod(folder, 0o755)
    for kind in ("key", "file", "loopback"):
        job = Job(build, folder, f"nobody-{kind}", kind)
        rank = job.start_rank(0)
        job.wait_for("rank 0 listens", lambda: listeners([rank.pid]) and (kind != "file" or job.meet.exists()))
        keys = [job.meet.read_text().split()[2]] if kind == "file" else [job.key]
        found = as_nobody(lambda: look_for(keys, [job.meet]))
        if found:
            job.end(f"user nobody finds the key in {found}")
        meeting = listeners([rank.pid])
        # Now only rank 1 is missing, which user nobody tries to replace.
        for r in range(2, RANKS):
            other = job.start_rank(r)
            job.wait_for("a rank is seated", lambda: connected(other.pid, meeting))
        if kind == "loopback" and as_nobody(lambda: leave_at_once(reachable(min(meeting)))) != "30":
            job.end("strangers that leave at once are believed, or do not come as far as the proof")
        codes = as_nobody(lambda: intrude(job))
        if codes != "124 124 124":
            job.end(f"ranks that user nobody started without the key ended with {codes}, not by the time limit")
        job.start_rank(1)
        job.finish()
        if job.hash() != reference:
            job.end("its bits are not those of the run that nobody disturbed")


# -------------------------------------------------------------------------------------------------------------- main


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("tries", type=int, nargs="?", default=1000)
    parser.add_argument("--short", action="store_true", help="150 connections")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    tries = 150 if args.short else args.tries
    build = args.build.resolve()
    if not (build / "lib/libds_tcp.so").exists():
        print("skipped: the transport tcp is not built")
        return 77
    print(f"strangers: {tries} connections, --seed {args.seed}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="strangers-"))
    (folder / "text").mkdir()
    for page in (pathlib.Path(__file__).parents[2] / "docs").rglob("*.md"):
        shutil.copy(page, folder / "text")
    (folder / "config.json").write_text(CONFIG)
    (folder / "chosen.json").write_text(CONFIG.replace("{", '{"communicator": "env:tcp", ', 1))
    quiet = Job(build, folder, "quiet", "launch")
    quiet.start_launcher()
    quiet.finish()
    reference = quiet.hash()
    strangers = Strangers(args.seed, record(build, folder))
    each, job_count, data = 50, 0, set()
    while sum(strangers.counts.values()) < tries:
        job = Job(build, folder, f"job{job_count}", ("key", "file", "launch")[job_count % 3])
        data |= besieged(job, strangers, min(each, tries - sum(strangers.counts.values())))
        if job.hash() != reference:
            job.end("its bits are not those of the run that nobody disturbed")
        if strangers.told:
            job.end(f"a stranger was told {strangers.told[0]!r}")
        job_count += 1
        if job_count > 20 + tries // 10:
            fail("jobs end before they are attacked")
    if tries >= 1000 and not {reachable(p) for p in data} & strangers.places:
        fail("no port of the data was attacked")
    other_users(build, folder, reference)
    shutil.rmtree(folder)
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(strangers.counts.items()))
    print(f"strangers: {sum(strangers.counts.values())} connections to {len(strangers.places)} ports of {job_count} jobs "
          f"held: {kinds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
