#!/usr/bin/env python3
"""Causes faults of hosts and of the network between them, and denies a job what a container or a batch system may deny.

usage: hosts.py BUILD [TRIES] [--short] [--seed N] [--only FAULT] [--first N] [--at-once N]

Each try has private namespaces with three hosts a, b and c on one bridge. Each host has a network, a name, processes,
/dev/shm, /etc/hosts and an sshd. A fault is drawn, with its place, its time and the way to start the ranks. Rules:
- if bytes can move, however slowly or late, the run ends with code 0 and the state of an undisturbed run;
- otherwise an error names the rank or address at fault, within the time-out and ten seconds;
- no process that can be reached outlives the first error by ten seconds, and none at all stays for good;
- only the launcher ends processes by a signal, and no control group runs out of memory.
Needs root, ip, tc, ssh and namespaces; otherwise it is skipped with a message. Tries run in parallel, since most wait.
"""
import argparse
import ctypes
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2", "c": "10.77.0.3"}
# The command that runs a program in new namespaces, which end together with this process.
APART = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
KEY = "0123456789abcdef0123456789abcdef"
# Seconds within which processes must end after an error.
END_S = 10
# Seconds until processes that cannot be reached give up.
SILENCE_S = 45
JOIN_S = 60
# Extra seconds, because other processes share this machine.
SLACK_S = 5
CALLS = {"memfd_create": 319, "io_setup": 206, "io_submit": 209, "process_vm_readv": 310, "close_range": 436,
         "pidfd_open": 434, "mbind": 237, "set_mempolicy": 238, "statx": 332, "copy_file_range": 326,
         "fallocate": 285, "fadvise64": 221, "sched_setaffinity": 203, "renameat2": 316, "mlock": 149, "madvise": 28,
         "io_uring_setup": 425, "membarrier": 324}
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long behind(void) { const char* text = getenv("BEHIND_S"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t id, struct timespec* out) {
  static int (*next)(clockid_t, struct timespec*);
  if (!next) next = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int code = next(id, out);
  if (code == 0 && id == CLOCK_REALTIME) out->tv_sec -= behind();
  return code;
}
int gettimeofday(struct timeval* out, void* zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failed(text)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def call(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    require(done.returncode == 0, f"{' '.join(words)}: code {done.returncode}: {done.stdout}")
    return done.stdout


# --------------------------------------------------------------------------------------------- what a program is denied


def refuse(names, code):
    """Makes these system calls fail with error `code`, in this process and in the programs that it executes."""
    load, equal, give = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 0)]
    for name in names:
        program += [(equal, 0, 1, CALLS[name]), (give, 0, 0, 0x00050000 | code)]
    program += [(give, 0, 0, 0x7fff0000)]
    rules = b"".join(struct.pack("<HBBI", *row) for row in program)
    held = ctypes.create_string_buffer(rules)
    filter_ = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(held)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filter_, 0, 0) != 0:
        sys.exit("hosts.py: this system has no filters of calls")


def become(words):
    """Runs the command of `hosts.py --as WHAT=VALUE... -- COMMAND...` with the given denials."""
    at = words.index("--")
    for word in words[:at]:
        what, value = word.split("=", 1)
        if what == "group":
            pathlib.Path(value).write_text(str(os.getpid()), encoding="ascii")
        elif what == "refuse":
            code, *names = value.split(",")
            refuse(names, int(code))
        elif what == "processes":
            resource.setrlimit(resource.RLIMIT_NPROC, (int(value), int(value)))
        elif what == "user":
            os.setgroups([])
            os.setgid(int(value))
            os.setuid(int(value))
    os.execvp(words[at + 1], words[at + 1:])


def denied(*what):
    return [sys.executable, __file__, "--as", *what, "--"]


# ---------------------------------------------------------------------------------------------------------- the hosts

HOST = str(pathlib.Path(__file__).resolve().parents[1] / "launch" / "host.sh")


def stat_of(pid):
    text = read(f"/proc/{pid}/stat")
    return text[text.rfind(")") + 2:].split() if text else None


class Process:
    """A command on a host, with the times of its start, of the first error in its log, and of its end."""

    def __init__(self, site, host, name, words, variables=None, before=()):
        self.name, self.host = name, host
        self.log = os.path.join(site.work, f"log.{name}")
        self.error_at = self.ended_at = None
        self.code = None
        more = [f"{key}={value}" for key, value in (variables or {}).items()]
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen([*site.inside(host), *before, "env", *more, *words], stdout=log,
                                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        self.began_at = time.monotonic()

    def look(self):
        if self.error_at is None and re.search(r"^libds( launch)?: ", self.text(), re.M):
            self.error_at = time.monotonic()
        if self.ended_at is None and self.child.poll() is not None:
            self.ended_at = time.monotonic()
            self.code = self.child.returncode
        return self.ended_at is not None

    def text(self):
        return read(self.log)

    def errors(self):
        return "\n".join(line for line in self.text().splitlines() if line.startswith("libds"))


class Site:
    def __init__(self, build, work):
        self.build, self.work = build, work
        self.libds = os.path.join(build, "bin", "libds")
        self.processes, self.first, self.own = [], {}, []
        os.chdir(work)
        os.chmod(work, 0o755)
        self.make_keys()
        call("ip", "link", "set", "lo", "up")
        call("ip", "link", "add", "br0", "type", "bridge")
        call("ip", "link", "set", "br0", "up")
        for host, address in ADDRESSES.items():
            self.add(host, address)
        for host in ADDRESSES:
            self.wait_for(f"host {host}", lambda host=host: os.path.exists(f"up.{host}"))
        self.own = self.living()
        self.make_text()

    def make_keys(self):
        os.mkdir("ssh")
        for path in ("ssh/id_ed25519", "host_key"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
        shutil.copy("ssh/id_ed25519.pub", "ssh/authorized_keys")
        key = " ".join(read("host_key.pub").split()[:2])
        pathlib.Path("ssh/known_hosts").write_text("".join(f"{name} {key}\n" for name in ADDRESSES), encoding="ascii")
        pathlib.Path("sshd_config").write_text(
            f"HostKey {self.work}/host_key\nAuthorizedKeysFile {self.work}/ssh/authorized_keys\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin prohibit-password\nPidFile none\n", encoding="ascii")
        for host in ADDRESSES:
            self.names(host)

    def names(self, host, **other):
        """Writes /etc/hosts of a host. `other` maps names to different addresses: a list, or none."""
        lines = ["127.0.0.1 localhost"]
        for name, address in ADDRESSES.items():
            lines += [f"{one} {name}" for one in other.get(name, [address])]
        # Overwritten in place, because the file is mounted.
        with open(f"hosts.{host}", "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")

    def add(self, host, address):
        child = subprocess.Popen([*APART, "sh", HOST, host, address, f"hosts.{host}", "yes"], stdin=subprocess.DEVNULL)
        children = f"/proc/{child.pid}/task/{child.pid}/children"
        self.wait_for(f"the first process of {host}", lambda: read(children).strip())
        self.first[host] = read(children).strip()
        call("ip", "link", "add", f"to_{host}", "type", "veth", "peer", "name", "eth0", "netns", self.first[host])
        call("ip", "link", "set", f"to_{host}", "master", "br0", "up")

    def make_text(self):
        os.mkdir("text")
        for path in [*SOURCE.glob("docs/guides/*.md"), SOURCE / "README.md"]:
            shutil.copy(path, "text")

    def inside(self, host):
        return ["nsenter", "--all", "--target", self.first[host], f"--wd={self.work}"]

    def on(self, host, *words):
        return call(*self.inside(host), *words)

    def wait_for(self, what, condition, limit=30):
        deadline = time.monotonic() + limit
        while not condition():
            for process in self.processes:
                process.look()
            require(time.monotonic() < deadline, f"waited in vain for {what}\n{self.logs()}")
            time.sleep(0.02)

    # ---- processes

    def living(self):
        """Returns the ids of the processes in these namespaces that are not zombies."""
        found = []
        for entry in os.listdir("/proc"):
            stat = stat_of(entry) if entry.isdigit() and int(entry) != os.getpid() else None
            if stat and stat[0] != "Z":
                found.append(int(entry))
        return found

    def left(self, host=None):
        """Returns the processes of the try, that is, all except those of the hosts themselves and of log-ins."""
        found = []
        for pid in self.living():
            words = read(f"/proc/{pid}/cmdline").split("\0")
            if pid in self.own or self.is_sshd(pid) or words[0] == "sleep" and words[1] == "1000":
                continue
            if host is None or self.host_of(pid) == host:
                found.append((pid, " ".join(words)[:150]))
        return found

    @staticmethod
    def is_sshd(pid):
        return read(f"/proc/{pid}/cmdline").startswith("sshd")

    def host_of(self, pid):
        def name(number):
            try:
                return os.readlink(f"/proc/{number}/ns/uts")
            except OSError:
                return None
        return next((host for host, first in self.first.items() if name(pid) == name(first)), None)

    def rank(self, number):
        """Returns the process that trains as this rank."""
        for pid in self.living():
            if read(f"/proc/{pid}/cmdline").split("\0")[:2] != [self.libds, "train"]:
                continue
            if re.search(rf"(^|\0)(RANK|OMPI_COMM_WORLD_RANK)={number}\0", read(f"/proc/{pid}/environ")):
                return pid
        return None

    def start(self, host, name, *words, **options):
        self.processes.append(Process(self, host, name, list(words), **options))
        return self.processes[-1]

    def logs(self):
        return "\n".join(f"---- {p.name} on {p.host}, code {p.code}:\n{p.text()[-1500:]}" for p in self.processes)

    def until_end(self, processes, limit):
        self.wait_for(f"the end of {', '.join(p.name for p in processes)} within {limit:.0f} s",
                      lambda: all([p.look() for p in processes]), limit)

    def nothing_left(self, host=None, limit=END_S):
        deadline = time.monotonic() + limit
        while left := self.left(host):
            require(time.monotonic() < deadline, f"still there after {limit:.0f} s: {left}\n{self.logs()}")
            time.sleep(0.05)

    # ---- jobs

    def config(self, path="config.json", steps=30, timeout=60000, hidden=64, save_every=0, **more):
        run = {"sequence": 32, "steps": steps, "threads": 1, "sample_tokens": 0, "seed": 3, "pin_threads": False,
               "save_every": save_every}
        document = {
            "train_micro_batch_size_per_gpu": 2, "comm_timeout_ms": timeout, "bf16": {"enabled": True}, "steps_per_print": 10,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, "zero_optimization": {"stage": 3},
            "model": {"family": "gpt", "layers": 2, "hidden": hidden, "heads": 2}, "data": {"paths": "text"}, "run": run}
        document.update(more)
        pathlib.Path(path).write_text(json.dumps(document), encoding="ascii")
        return path

    def train(self, folder, config="config.json"):
        return [self.libds, "train", "--config", config, "--dir", folder, "--quiet"]

    def pair(self, words, hosts="ab", variables=None, before=()):
        """Starts rank 0 and rank 1 by the environment, over TCP."""
        both = []
        for rank, host in enumerate(hosts):
            own = {"DS_JOB_KEY": KEY, "MASTER_ADDR": "a", "MASTER_PORT": 29611, "WORLD_SIZE": 2, "RANK": rank, **(variables or {})}
            both.append(self.start(host, f"rank{rank}", *words, variables=own, before=before))
        return both

    def launch(self, way, words, hosts="ab", before=(), options=()):
        """Starts two ranks in one of the ways, and returns the processes that the driver has started. `options` are options
        of a launcher over hosts."""
        if way == "environment":
            return self.pair(words, hosts, before=before)
        if way == "launcher":
            return [self.start(hosts[0], "launch", self.libds, "launch", "-n", "2", *words, before=before)]
        if way == "mpirun":
            return [self.start(hosts[0], "mpirun", "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *words,
                               before=before)]
        pathlib.Path("hostfile").write_text("".join(f"{host} slots=1\n" for host in hosts), encoding="ascii")
        return [self.start("a", "launch", self.libds, "launch", "--hostfile", "hostfile", "--launcher",
                           {"over mpirun": "mpirun", "over ssh": "ssh"}[way], *options, *words, before=before)]

    def until_step(self, step, processes):
        self.wait_for(f"step {step}", lambda: any(re.search(rf"^step +{step}/", p.text(), re.M) for p in processes), 60)

    def hash(self, folder):
        return call(self.libds, "verify", "--hash", folder).split()[0]

    def reference(self, config="config.json"):
        call(*self.inside("a"), self.libds, "launch", "-n", "2", *self.train("reference", config))
        return self.hash("reference")

    def ends_well(self, processes, folder, limit, config="config.json"):
        self.until_end(processes, limit)
        for process in processes:
            require(process.code == 0, f"{process.name} ended with code {process.code}\n{self.logs()}")
        require(self.hash(folder) == self.reference(config), "the state is not that of the undisturbed run")
        self.nothing_left()

    def fails(self, processes, limit, *texts):
        """Expects that each process ends in time with an error code, and that their errors contain these words."""
        self.until_end(processes, limit + END_S + SLACK_S)
        for process in processes:
            begin = process.error_at or process.ended_at
            require(process.ended_at - begin <= END_S,
                    f"{process.name} ended {process.ended_at - begin:.1f} s after its error\n{self.logs()}")
            require(process.code not in (0, None) and 0 < process.code < 128,
                    f"{process.name} ended with code {process.code}\n{self.logs()}")
        errors = "\n".join(process.errors() for process in processes)
        for text in texts:
            require(re.search(text, errors), f"no error says '{text}'\n{self.logs()}")

    def signal_all(self, host, number):
        for pid in self.living():
            if self.host_of(pid) == host:
                os.kill(pid, number)

    def cut(self, host, how):
        if how == "frozen":
            self.signal_all(host, signal.SIGSTOP)
        elif how == "dead":
            for pid in self.living():
                if self.host_of(pid) == host and (pid not in self.own or self.is_sshd(pid)):
                    os.kill(pid, signal.SIGKILL)
        else:
            call("ip", "link", "set", f"to_{host}", *(["nomaster"] if how == "silent" else ["down"]))

    def mend(self, host):
        call("ip", "link", "set", f"to_{host}", "master", "br0", "up")
        self.signal_all(host, signal.SIGCONT)
        if not any(self.host_of(pid) == host and self.is_sshd(pid) for pid in self.living()):
            self.on(host, "/usr/sbin/sshd", "-f", "sshd_config")


# --------------------------------------------------------------------------------------------------------- the faults


def stopped(site, draw, way=None):
    """A rank is stopped, as by a debugger or a dead disk."""
    way = way or draw.choice(["environment", "launcher", "mpirun", "over mpirun", "over ssh"])
    victim, timeout = draw.randrange(2), draw.choice([1000, 2000, 4000])
    yield f"{way}, rank {victim}, time-out {timeout} ms"
    site.config(steps=10**6, timeout=timeout)
    ranks = site.launch(way, site.train("run"))
    site.until_step(10, ranks)
    time.sleep(draw.uniform(0, 0.5))
    pid = site.rank(victim)
    os.kill(pid, signal.SIGSTOP)
    others = [p for p in ranks if p.name != f"rank{victim}"]
    site.fails(others, timeout / 1000, rf"rank {victim},? (which )?has made no progress for {timeout} ms")
    if "launch" in way or "over" in way:
        site.fails(others, 0, rf"libds launch: rank {1 - victim}.*lost rank {victim}")
    if way == "environment":
        os.kill(pid, signal.SIGCONT)
        # nsenter stops together with its child.
        ranks[victim].child.send_signal(signal.SIGCONT)
        site.fails(ranks, 0, rf"rank {victim}")
    site.nothing_left()


def cut(site, draw):
    """The link of a host goes down or silently drops every packet, or the whole host is frozen. It returns soon, late or
    never."""
    way, how = draw.choice(["environment", "over mpirun", "over ssh"]), draw.choice(["down", "silent", "frozen"])
    back = draw.choice(["soon", "late", "never"] if how != "frozen" else ["soon", "late"])
    timeout = 60000 if back == "soon" else draw.choice([2000, 4000])
    yield f"{way}, {how}, back {back}"
    site.config(steps=150 if back == "soon" else 10**6, timeout=timeout)
    ranks = site.launch(way, site.train("run"))
    site.until_step(10, ranks)
    site.cut("b", how)
    if back == "soon":
        time.sleep(draw.uniform(0.5, 4))
        site.mend("b")
        site.ends_well(ranks, "run", 200)
        return
    struck = time.monotonic()
    near = ranks[:1]
    site.fails(near, timeout / 1000, r"rank 1,? (which )?has made no progress|rank 1 has left|host 'b'|rank 1 on host 'b'")
    if "over" in way:
        require(re.search(r"^libds launch: .*(rank 1|host 'b')", near[0].errors(), re.M), f"the verdict\n{site.logs()}")
    site.nothing_left("a")
    if how != "frozen":
        site.wait_for("the end of rank 1", lambda: site.rank(1) is None, timeout / 1000 + END_S + SLACK_S)
    if back == "late":
        time.sleep(draw.uniform(0, 5))
        site.mend("b")
    site.nothing_left(limit=max(END_S, SILENCE_S - (time.monotonic() - struck)))


def restarts(site, draw, way=None, how=None, steps=200):
    """A host is cut off, or all of its processes die, under --restarts: the run continues on the other host, or on both
    once it is back."""
    way, how = way or draw.choice(["over mpirun", "over ssh"]), how or draw.choice(["down", "silent", "dead"])
    awaited = draw.random() < 0.5
    yield f"{way}, {how}, {'awaited' if awaited else 'left out'}"
    site.config(steps=steps, timeout=2000, reproducible=True, train_batch_size=4, save_every=5)
    options = ["--restarts", "9", "--min-ranks", "2" if awaited else "1"]
    ranks = site.launch(way, site.train("run"), options=options)
    site.until_step(10, ranks)
    site.cut("b", how)
    struck = time.monotonic()
    if awaited:
        site.wait_for("a look without host b", lambda: "2 are needed (--min-ranks); next check" in ranks[0].text(), 90)
        site.mend("b")
    site.until_end(ranks, 120)
    require(ranks[0].code == 0, f"the launcher ended with code {ranks[0].code}\n{site.logs()}")
    lines = ranks[0].errors()
    require(re.search(r"^libds launch: .*cannot log in to host 'b' by ssh: .*restart \d of 9", lines, re.M), site.logs())
    require(re.search(rf"restart \d of 9 on {2 if awaited else 1} rank", lines), site.logs())
    require(site.hash("run") == site.reference(), f"the state is not that of the undisturbed run\n{site.logs()}")
    site.nothing_left("a")
    if not awaited:
        site.mend("b")
    site.nothing_left(limit=max(END_S, SILENCE_S - (time.monotonic() - struck)))


def orphan(site, draw):
    """A host is cut off, then the launcher ends, so that nobody can tell the processes on the host to end."""
    way, how = draw.choice(["over mpirun", "over ssh"]), draw.choice(["down", "silent"])
    end = draw.choice(["two signals", "kill", "none"])
    yield f"{way}, {how}, launcher: {end}"
    ranks = site.launch(way, ["sh", "-c", "exec sleep 2000"])
    site.wait_for("the commands", lambda: sum("sleep 2000" == words.strip() for _, words in site.left()) == 2)
    # If bytes are in flight when the link is cut, the connection stays open for a quarter of an hour.
    time.sleep(draw.choice([0, 2]))
    site.cut("b", how)
    struck = time.monotonic()
    launcher = next(pid for pid, words in site.left("a") if words.startswith(f"{site.libds} launch"))
    time.sleep(draw.uniform(0, 1))
    for _ in range({"two signals": 2, "kill": 1, "none": 0}[end]):
        os.kill(launcher, signal.SIGKILL if end == "kill" else draw.choice([signal.SIGTERM, signal.SIGINT]))
        time.sleep(1)
    site.until_end(ranks, SILENCE_S if end == "none" else END_S)
    require(ranks[0].code != 0, "the launcher ended with code 0")
    if end == "two signals":
        site.nothing_left("a")
    site.nothing_left(limit=max(1, SILENCE_S - (time.monotonic() - struck)))


def slow(site, draw):
    """On a slow wire, one part takes longer than the time-out, but bytes move all the time."""
    kbit, timeout = draw.choice([500, 1000, 2000]), draw.choice([1000, 2000])
    hidden = draw.choice([128, 192] if kbit > 500 else [64, 128])
    way = draw.choice(["environment", "over ssh"])
    yield f"{way}, {kbit} kbit/s, time-out {timeout} ms, {hidden} channels"
    site.config(steps=1, timeout=timeout, hidden=hidden)
    for host in "ab":
        site.on(host, *f"tc qdisc add dev eth0 root tbf rate {kbit}kbit burst 3200 latency 4000ms".split())
    site.ends_well(site.launch(way, site.train("run")), "run", 250)


def hole(site, draw):
    """The network silently drops large frames, as with jumbo frames at one end and ICMP blocked."""
    way, timeout = draw.choice(["environment", "over ssh"]), draw.choice([3000, 6000])
    size = draw.choice([576, 1000, 1300])
    yield f"{way}, {size} bytes, time-out {timeout} ms"
    site.config(steps=10**6, timeout=timeout)
    for host in "ab":
        site.on(host, "ip", "link", "set", "eth0", "gso_max_segs", "1")
    ranks = site.launch(way, site.train("run"))
    site.until_step(10, ranks)
    call("ip", "link", "set", "to_b", "mtu", str(size))
    site.fails(ranks, timeout / 1000, "MTU", ADDRESSES["a"], ADDRESSES["b"])
    site.nothing_left(limit=SILENCE_S)


def late_name(site, draw):
    """The name of rank 0's host resolves only some seconds after the ranks have started, like the name of a pod."""
    seconds = draw.uniform(0.5, 6)
    late = draw.choice([{"a": []}, {"a": ["10.77.0.99"]}, {"a": ["fd00::1"]}])
    yield f"{late['a']} for {seconds:.1f} s"
    site.config()
    site.names("b", **late)
    ranks = site.pair(site.train("run"))
    time.sleep(seconds)
    site.names("b")
    site.ends_well(ranks, "run", 60)


def many_addresses(site, draw):
    """Only one of the addresses of rank 0's name belongs to it."""
    own = [ADDRESSES["a"], "10.77.0.99", ADDRESSES["c"], "fd00::1"]
    draw.shuffle(own)
    yield " ".join(own)
    site.config()
    site.names("b", a=own)
    site.ends_well(site.pair(site.train("run")), "run", 60)


def wrong_name(site, draw):
    """The name of rank 0's host has no address, an unused address, or the address of another host."""
    addresses, text = draw.choice([([], "host 'a'"), (["fd00::1"], "fd00::1"),
                                   (["127.0.1.1"], r"127\.0\.1\.1:29611"), (["10.77.0.99"], r"10\.77\.0\.99:29611"),
                                   ([ADDRESSES["c"]], r"10\.77\.0\.3:29611")])
    yield f"{addresses}"
    site.config()
    site.names("b", a=addresses)
    ranks = site.pair(site.train("run"))
    site.fails(ranks, JOIN_S, text, r"rank 1 of 2 did not connect to a:29611 within 60000 ms")
    site.nothing_left()


def rank_elsewhere(site, draw):
    """Rank 0 runs on a host that is not MASTER_ADDR, or not the launcher's host."""
    kind = draw.choice(["MASTER_ADDR", "over ssh", "over mpirun"])
    yield kind
    site.config()
    if kind != "MASTER_ADDR":
        site.ends_well(site.launch(kind, site.train("run"), draw.choice(["ba", "bc", "cb"])), "run", 60)
        return
    ranks = site.pair(site.train("run"), "ba")
    site.fails(ranks, JOIN_S, r"'a' \(10\.77\.0\.1\) is not one of its addresses: start rank 0 on that host",
               r"rank 0 was not at a:29611 .*(127\.0\.0\.1|10\.77\.0\.1):29611")
    site.nothing_left()


def interfaces(site, draw):
    """The hosts are connected by two networks. A name or a variable chooses one of them, or one that does not exist."""
    kind = draw.choice(["by the name", "by the variable", "a name that is not there", "one without an address"])
    yield kind
    site.config()
    for i, host in enumerate("ab"):
        call("ip", "link", "add", f"more_{host}", "type", "veth", "peer", "name", "eth1", "netns", site.first[host])
        call("ip", "link", "set", f"more_{host}", "up")
        if kind != "one without an address":
            site.on(host, "ip", "address", "add", f"10.78.0.{i + 1}/24", "dev", "eth1")
        site.on(host, "ip", "link", "set", "eth1", "up")
    call("ip", "link", "add", "br1", "type", "bridge")
    call("ip", "link", "set", "br1", "up")
    for host in "ab":
        call("ip", "link", "set", f"more_{host}", "master", "br1")
    if kind == "by the name":
        for host in "ab":
            site.names(host, a=["10.78.0.1"], b=["10.78.0.2"])
            site.on(host, "ip", "link", "set", "eth0", "down")
        site.ends_well(site.pair(site.train("run")), "run", 60)
    elif kind == "by the variable":
        ranks = site.pair(site.train("run"), variables={"GLOO_SOCKET_IFNAME": "eth1"})
        site.ends_well(ranks, "run", 60)
    else:
        name = "eth7" if "not there" in kind else "eth1"
        ranks = site.pair(site.train("run"), variables={"GLOO_SOCKET_IFNAME": name})
        site.fails(ranks, JOIN_S, f"GLOO_SOCKET_IFNAME: this host has no interface '{name}' with an address")
        site.nothing_left()


def memory(site, draw, group=""):
    """The ranks of one control group together need more memory than its limit; each rank alone needs less."""
    way = draw.choice(["launcher", "mpirun", "environment"])
    part = draw.uniform(0.55, 0.9)
    yield f"{way}, {part:.2f} of the sum"
    site.config(steps=2, hidden=1024)
    fits = call(site.libds, "plan", "--config", "config.json", "-n", "2", "--json")
    need = json.loads(fits)
    total = max(int(value) for value in re.findall(r'"(?:needs|needed|total)[a-z_]*": *(\d+)', fits) or [0])
    total = total or int(need["memory"]["device"]) * 2
    write_limit(group, int(total * part))
    ranks = site.launch(way, site.train("run"), before=denied(f"group={group}/cgroup.procs"))
    site.fails(ranks, 60, r"control group")
    require("step" not in re.findall(r"^step", site.logs(), re.M), f"it trained\n{site.logs()}")
    kills = re.search(r"^oom_kill (\d+)", read(f"{group}/memory.oom_control") + read(f"{group}/memory.events"), re.M)
    require(not kills or kills[1] == "0", f"the kernel has ended a process\n{site.logs()}")
    site.nothing_left()


def refused(site, draw, names=None):
    """A sandbox refuses system calls. libds must work without them or name the call in its error."""
    names = names or draw.sample(sorted(CALLS), draw.randrange(1, 4))
    code, way = draw.choice([1, 38]), draw.choice(["launcher", "environment"])
    nvme = draw.random() < 0.5
    yield f"{way}, {', '.join(names)}, errno {code}{', nvme' if nvme else ''}"
    zero = {"stage": 3}
    if nvme:
        os.mkdir("nvme")
        zero["offload_optimizer"] = {"device": "nvme", "nvme_path": f"{site.work}/nvme"}
    site.config(zero_optimization=zero)
    before = denied(f"refuse={code},{','.join(names)}")
    site.ends_well(site.launch(way, site.train("run"), before=before), "run", 60)


def no_proc(site, draw):
    """/proc is empty. Shared memory needs /proc, and its error must say so; TCP must work."""
    way, over = draw.choice([("launcher", ""), ("launcher", "env:tcp"), ("environment", "")])
    yield f"{way} {over}"
    site.config(**({"communicator": over} if over else {}))
    before = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    ranks = site.launch(way, site.train("run"), before=before)
    if way == "launcher" and not over:
        site.fails(ranks, 5, "through /proc .* over TCP")
        site.nothing_left()
        return
    site.ends_well(ranks, "run", 60)


def few_processes(site, draw):
    """ulimit -u allows a job too few processes and threads."""
    way, limit = draw.choice(["launcher", "environment"]), draw.randrange(1, 10)
    yield f"{way}, ulimit -u {limit}"
    site.config()
    user = draw.randrange(60000, 61000)
    os.chmod(".", 0o777)
    ranks = site.launch(way, site.train("run"), before=denied(f"processes={limit}", f"user={user}"))
    site.until_end(ranks, JOIN_S + END_S + SLACK_S)
    if all(process.code == 0 for process in ranks):
        return
    for process in ranks:
        require(0 <= process.code < 126, f"{process.name}: code {process.code}\n{site.logs()}")
    require(re.search("ulimit -u|process limit|limit of processes", site.logs()), f"no word of the limit\n{site.logs()}")
    site.nothing_left()


def behind(site, draw):
    """The clock of a host is behind. The host is one of two in a run, or resumes a run."""
    seconds, kind = draw.choice([5, 3600, 10**7]), draw.choice(["one of two", "goes on"])
    yield f"{kind}, {seconds} s"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Skipped("no C compiler for a clock that is behind")
    pathlib.Path("clock.c").write_text(CLOCK, encoding="ascii")
    call(compiler, "-shared", "-fPIC", "-O1", "-o", "clock.so", "clock.c", "-ldl")
    clock = ["env", f"LD_PRELOAD={site.work}/clock.so", f"BEHIND_S={seconds}"]
    if kind == "one of two":
        site.config()
        ranks = site.pair([*clock, *site.train("run")]) if draw.random() < 0.5 else None
        if ranks is None:
            words = ["sh", "-c", f'[ $RANK = 0 ] || exec {" ".join(clock)} "$@"; exec "$@"', "sh", *site.train("run")]
            ranks = site.launch("over ssh", words)
        site.ends_well(ranks, "run", 60)
        return
    site.config(steps=30, tensorboard={"enabled": True})
    site.config("short.json", steps=10, tensorboard={"enabled": True})
    site.until_end([site.start("a", "first", *site.train("run", "short.json"))], 60)
    folder = pathlib.Path("run")
    before = {str(path) for path in folder.rglob("*tfevents*")}
    require(before, f"no event files\n{site.logs()}")
    second = site.start("a", "second", *clock, site.libds, "train", "--resume", "run", "--steps", "30", "--quiet")
    site.until_end([second], 60)
    require(second.code == 0, f"the resume\n{site.logs()}")
    fresh = {str(path) for path in folder.rglob("*tfevents*")} - before
    require(fresh and min(fresh) > max(before), f"event files {sorted(before)}, then {sorted(fresh)}")
    site.nothing_left()


FAULTS = {fault.__name__: fault for fault in (
    stopped, cut, restarts, orphan, slow, hole, late_name, many_addresses, wrong_name, rank_elsewhere, interfaces, memory, refused,
    no_proc, few_processes, behind)}
OFTEN = ["stopped", "stopped", "cut", "cut", "cut", "orphan", "refused", "refused", "few_processes"]
SHORT = {"stopped": {"way": "environment"}, "restarts": {"way": "over ssh", "how": "dead", "steps": 60}, "refused": {"names": ["memfd_create", "io_submit"]}}


# ------------------------------------------------------------------------------------------------------- control groups


def write_limit(group, size):
    name = "memory.max" if os.path.exists(f"{group}/memory.max") else "memory.limit_in_bytes"
    pathlib.Path(f"{group}/{name}").write_text(str(size), encoding="ascii")


def make_group(name):
    """Returns a new control group of version 1 or 2 that can limit memory, or "" if none can be created."""
    for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        path = os.path.join(root, name)
        try:
            os.mkdir(path)
        except OSError:
            continue
        if any(os.path.exists(f"{path}/{file}") for file in ("memory.max", "memory.limit_in_bytes")):
            return path
        os.rmdir(path)
    return ""


def remove_group(path):
    for _ in range(100):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)


# ---------------------------------------------------------------------------------------------------------------- tries


def inside(args):
    """Makes one try, in new namespaces. Prints the reason of a failure and exits with 1, or with 77 if it was skipped."""
    draw = random.Random(args.seed)
    options = dict(SHORT.get(args.only, {})) if args.short else {}
    if args.group:
        options["group"] = args.group
    try:
        site = Site(args.build, args.work)
        for line in FAULTS[args.only](site, draw, **options):
            print(line, flush=True)
    except Skipped as reason:
        print(reason)
        return 77
    except Failed as failure:
        print(failure)
        return 1
    return 0


class Try:
    def __init__(self, build, number, fault, seed, short):
        self.number, self.fault, self.began = number, fault, time.monotonic()
        self.work = tempfile.mkdtemp(prefix="hosts-")
        self.group = ""
        if fault == "memory":
            self.group = make_group(f"libds-{os.path.basename(self.work)}")
        self.log = os.path.join(self.work, "try.log")
        words = [*APART, sys.executable, __file__, build, "--inside", "--only", fault, "--seed", f"{seed}/{number}", "--work", self.work]
        words += ["--group", self.group] if self.group else []
        words += ["--short"] if short else []
        # mpirun's daemons leave temporary files.
        variables = {**os.environ, "TMPDIR": self.work, "OMPI_MCA_orte_tmpdir_base": self.work}
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                          start_new_session=True, env=variables)

    def end(self):
        """Ends the try, removes everything, and returns the exit code and the report."""
        if self.child.poll() is None:
            # This also ends all processes of the try's namespaces.
            self.child.kill()
        code = self.child.wait()
        report = read(self.log)
        if self.group:
            remove_group(self.group)
        shutil.rmtree(self.work, ignore_errors=True)
        return code, report


def impossible(build):
    """Returns the reason why no hosts can be created here, or ""."""
    if os.geteuid() != 0:
        return "namespaces of hosts need root"
    for tool in ("ip", "tc", "ssh", "ssh-keygen", "nsenter", "unshare", "/usr/sbin/sshd"):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    for transport in ("tcp", "mpi"):
        if not os.path.exists(f"{build}/lib/libds_{transport}.so"):
            return f"the transport {transport} is not built"
    probe = ("ip link add br0 type bridge && ip link add eth0 type veth peer name to_a && mount -t tmpfs none /dev/shm && "
             "hostname a && cat /proc/$$/task/$$/children")
    done = subprocess.run(["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc", "sh", "-c", probe],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return "" if done.returncode == 0 else f"this system gives no namespaces to make hosts of: {done.stdout.strip()}"


def draws(args):
    if args.short:
        yield from enumerate(SHORT)
        return
    names = [args.only] if args.only else [*FAULTS, *OFTEN]
    tries = args.tries or 2 * len(FAULTS) + len(OFTEN)
    deck = []
    for number in range(args.first + tries):
        if not deck:
            deck = random.Random(f"{args.seed}/{number}").sample(names, len(names))
        fault = deck.pop()
        if number >= args.first:
            yield number, fault


def attack(args):
    waiting, running, counts, bad = list(draws(args)), [], {"ok": 0, "skipped": 0, "FAILED": 0}, []
    try:
        while waiting or running:
            while waiting and len(running) < args.at_once:
                number, fault = waiting.pop(0)
                running.append(Try(args.build, number, fault, args.seed, args.short))
            for one in [one for one in running if one.child.poll() is not None or time.monotonic() - one.began > 400]:
                running.remove(one)
                late = one.child.poll() is None
                code, report = one.end()
                verdict = {0: "ok", 77: "skipped"}.get(code, "FAILED")
                counts[verdict] += 1
                lines = report.strip().splitlines() or [""]
                print(f"try {one.number}, {one.fault}: {lines[0] if verdict == 'ok' else report.strip()}: {verdict}, "
                      f"{time.monotonic() - one.began:.1f} s{', which is too long' if late else ''}", flush=True)
                if verdict == "FAILED":
                    bad.append(one)
                    print(f"repeat it: hosts.py BUILD 1 --seed {args.seed} --first {one.number} --only {one.fault}", flush=True)
            time.sleep(0.05)
    finally:
        for one in running:
            one.end()
    return counts, bad


def main():
    if sys.argv[1:2] == ["--as"]:
        become(sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("tries", nargs="?", type=int)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", choices=FAULTS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=3)
    for name in ("--work", "--group"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if args.inside:
        return inside(args)
    # When a time limit ends this program, the exit handlers still remove everything that it has created.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if reason := impossible(args.build):
        print(f"skipped: {reason}")
        return 77 if args.short else 0
    print(f"hosts: seed {args.seed}", flush=True)
    counts, bad = attack(args)
    print("hosts: " + ("FAILED" if bad else "ok") + ", " + ", ".join(f"{n} {name}" for name, n in counts.items()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
