#!/usr/bin/env python3
"""Ends training runs in every violent way and resumes them until they are done.

usage: kills.py BUILD [TRIES] [--short] [--seed N] [--only STORY] [--hosts]     (default: 200 tries; --short: 8)

A story is one run. It is started, attacked at a random time and resumed, on the same number of ranks but in any ZeRO
stage and any tier and by either launcher (`libds launch` over TCP, or mpirun over MPI if it is installed), until all
steps are done. The attacks are:
- kill -9 of the launcher, of a rank, or of all processes; a rank that is frozen and then killed;
- kill -9 of a rank, one to three times, under `libds launch --restarts`, which must restart the run and finish all steps;
- a configuration that is refused under `--restarts`, which must be started only once;
- SIGTERM and SIGINT; a closed pipe for standard output; a limit on the size of files; a full disk, if this user may mount
  one.

After each attack no process is left, the newest checkpoint is not older than before, and metrics.csv has each step up to
this checkpoint once. Sometimes the newest checkpoint is damaged, so that the next launch continues from the one before it.
At the end every loss and norm, and the hash of the state, have the bits of an undisturbed run. There are at most `keep`
checkpoints, plus those that a kill after a commit has left, and no scratch files or partial files.

With --hosts the ranks of a run are spread over three hosts and started by ssh or mpirun. The hosts are namespaces, as in
hosts.py.
"""
import argparse
import atexit
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import hosts

STEPS, SAVE_EVERY, KEEP = 60, 4, 2
PLACES = [(0, "device"), (1, "device"), (1, "cpu"), (2, "device"), (2, "nvme"), (3, "device"), (3, "cpu"), (3, "nvme")]
ATTACKS = ["launcher", "rank", "all", "freeze", "restarts", "refused", "term", "int", "pipe", "fsize", "disk"]
STOPPED, REFUSED, RESTARTS = 75, 78, 9
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader,tcp"]


class Failed(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failed(text)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def processes(word):
    """Returns the numbers of the living processes whose command line contains the word."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if word in read(f"/proc/{name}/cmdline") and not re.search(r"^State:\s*[ZX]", read(f"/proc/{name}/status"), re.M):
                found.append(int(name))
        except OSError:
            continue
    return sorted(found)


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def started_by(child):
    """Returns the process that runs the command. If the command was started by nsenter, this is nsenter's child in the
    namespace, because nsenter forwards no signals."""
    try:
        if read(f"/proc/{child.pid}/comm") == "nsenter\n":
            return int(read(f"/proc/{child.pid}/task/{child.pid}/children").split()[0])
    except (OSError, IndexError):
        pass
    return child.pid


class Disk:
    """A small file system in memory, for runs whose disk fills up."""

    SIZE = 6 << 20

    def __init__(self, folder):
        self.path = folder
        os.makedirs(folder)
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.SIZE}", "tmpfs", folder],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        self.mounted = made.returncode == 0
        atexit.register(self.remove)

    def fill(self, spare):
        with open(os.path.join(self.path, "filler"), "wb") as filler:
            room = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize
            try:
                os.posix_fallocate(filler.fileno(), 0, max(room - spare, 1))
            except OSError:
                # The run has used the space in the meantime, so the disk is full.
                pass

    def free(self):
        if os.path.exists(os.path.join(self.path, "filler")):
            os.unlink(os.path.join(self.path, "filler"))

    def remove(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.path], check=False)
            self.mounted = False


class Machine:
    """The data that all stories share: the program, the text, and the undisturbed runs."""

    def __init__(self, build, work, steps):
        self.steps = steps
        self.libds = os.path.join(os.path.abspath(build), "bin", "libds")
        self.work = work
        self.references = {}
        self.commands = 0
        self.site = None
        self.mpirun = shutil.which("mpirun")
        self.disk = Disk(os.path.join(work, "disk"))
        with open(os.path.join(work, "text.txt"), "w", encoding="utf-8") as text:
            for i in range(600):
                text.write(f"line {i} of a text about shards, buckets and granules: {i * 7919 % 1000}\n")
        os.makedirs(os.path.join(work, "nvme"))

    def config(self, ranks, place):
        stage, tier = place
        zero = {"stage": stage}
        if tier != "device":
            where = {"device": tier, "nvme_path": os.path.join(self.work, "nvme")} if tier == "nvme" else {"device": tier}
            zero["offload_optimizer"] = where
            if stage == 3:
                zero["offload_param"] = where
        document = {
            "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 6 // ranks,
            "gradient_clipping": 1.0, "steps_per_print": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.002}},
            "zero_optimization": zero,
            "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2, "dropout": 0.1},
            "data": {"paths": [os.path.join(self.work, "text.txt")], "heldout": 0},
            "run": {"steps": self.steps, "save_every": SAVE_EVERY, "keep": KEEP, "sequence": 32, "threads": 1,
                    "pin_threads": False, "sample_tokens": 4}}
        return document

    def command(self, ranks, place, folder, launcher, options=()):
        """Returns the command that starts the run by the launcher ("" for none), or resumes it if it has begun."""
        config = self.config(ranks, place)
        words = []
        if os.path.exists(os.path.join(folder, "config.json")):
            # A null removes a key of the run that this configuration lacks. Otherwise, the tiers of several configurations
            # would accumulate.
            for name in ("offload_optimizer", "offload_param"):
                config["zero_optimization"].setdefault(name, None)
            del config["data"]
            words = ["--resume", folder]
        else:
            words = ["--dir", folder]
        # Each command gets a new file, because a run that has just been started may not have read its file yet.
        self.commands += 1
        path = os.path.join(self.work, f"config-{self.commands}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        train = [self.libds, "train", "--config", path, *words, "--quiet"]
        if launcher in ("ssh", "mpirun") and self.site:
            hostfile = os.path.join(self.work, f"hostfile-{self.commands}")
            with open(hostfile, "w", encoding="ascii") as file:
                file.writelines(f"{host} slots=1\n" for host in list(hosts.ADDRESSES)[:ranks])
            return [*self.site.inside("a"), self.libds, "launch", "--hostfile", hostfile, "--launcher", launcher, *options, *train]
        return [*{"": [], "launch": [self.libds, "launch", "-n", str(ranks), *options], "mpirun": [*MPIRUN, "-n", str(ranks)]}[launcher], *train]

    def reference(self, ranks):
        if ranks not in self.references:
            folder = os.path.join(self.work, f"whole{ranks}")
            begin = time.monotonic()
            done = subprocess.run(self.command(ranks, (0, "device"), folder, "launch"), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False, timeout=300)
            require(done.returncode == 0, f"the undisturbed run of {ranks} ranks: {done.stdout}")
            seconds = time.monotonic() - begin
            self.references[ranks] = (rows_of(folder), self.hash(folder), seconds)
        return self.references[ranks]

    def hash(self, folder):
        done = subprocess.run([self.libds, "verify", "--hash", folder], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
        require(done.returncode == 0, f"verify: {done.stdout}")
        return done.stdout.split()[0]


def rows_of(folder):
    """Returns step, loss, lr and norm of each whole line of metrics.csv, as texts that parse back to the same bits."""
    path = os.path.join(folder, "metrics.csv")
    if not os.path.exists(path):
        return []
    # Text after the last line end was cut off.
    lines = read(path).split("\n")[1:-1]
    rows = []
    for line in lines:
        fields = line.split(",")
        require(len(fields) == 12 and fields[0].isdigit(), f"metrics.csv has the line '{line}'")
        if fields[1]:
            rows.append((int(fields[0]), fields[1], fields[3], fields[4]))
    return rows


def checkpoints_of(folder, damaged=()):
    """Returns the steps of the committed checkpoints that are not damaged, oldest commit first."""
    place = os.path.join(folder, "checkpoints")
    if not os.path.isdir(place):
        return []
    found = []
    for name in os.listdir(place):
        match = re.fullmatch(r"step-(\d+)-(\d+)", name)
        if match and name not in damaged and os.path.exists(os.path.join(place, name, "manifest.json")):
            found.append((int(match[2]), int(match[1])))
    return [step for _, step in sorted(found)]


class Story:
    def __init__(self, machine, seed, number, attacks):
        self.machine = machine
        self.number = number
        self.random = random.Random(f"{seed}/{number}")
        self.ranks = self.random.choice([1, 2, 2, 3])
        on_disk = machine.disk.mounted and self.random.random() < 0.4
        self.attacks = [a for a in attacks if a != "disk"] + ["disk"] * (4 if on_disk else 0)
        self.folder = os.path.join(machine.disk.path if on_disk else machine.work, f"run{number}")
        self.newest = 0
        # The largest allowed number of checkpoints.
        self.most = KEEP
        # Names of the damaged checkpoints.
        self.damaged = []
        self.log = ""
        self.over_mpi = 0

    def launch(self, attack):
        place = self.random.choice(PLACES)
        launcher = self.random.choice(["", "launch"] if self.ranks == 1 else ["launch", "launch", "mpirun"])
        if self.number == 1 and self.ranks > 1:
            # The short form covers mpirun too.
            launcher = "mpirun"
        if self.machine.site and self.ranks > 1:
            launcher = self.random.choice(["ssh", "ssh", "mpirun"])
        # mpirun itself writes large files, so it cannot run under a limit on the size of files.
        elif launcher == "mpirun" and (attack == "fsize" or not self.machine.mpirun):
            launcher = "launch"
        options = []
        if attack in ("restarts", "refused"):
            launcher, options = launcher if self.machine.site and self.ranks > 1 else "launch", ["--restarts", str(RESTARTS)]
        words = self.machine.command(self.ranks, place, self.folder, launcher, options)
        if attack == "refused":
            words += ["--set", "run.stepz=3"]
        limit = self.random.choice([1 << 10, 20 << 10, 100 << 10, 170 << 10]) if attack == "fsize" else None

        def prepare():
            os.setsid()
            # Python ignores both signals, and children would inherit this.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        with open(os.path.join(self.machine.work, "log"), "wb") as log:
            out = subprocess.PIPE if attack == "pipe" else log
            child = subprocess.Popen(words, stdout=out, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=prepare)
        self.log = f"{attack} {limit or ''} on {self.ranks} ranks by {launcher or 'itself'}, stage {place[0]}, {place[1]}"
        return child, launcher

    def strike(self, child, attack):
        """Attacks the run; returns False if it had already ended."""
        delay = self.random.uniform(0.05, 0.7) * self.machine.reference(self.ranks)[2]
        if attack == "pipe":
            for _ in range(self.random.randrange(1, 5)):
                child.stdout.readline()
            child.stdout.close()
            return child.poll() is None
        if attack in ("fsize", "refused"):
            return True
        if attack == "restarts":
            return self.kill_ranks(child, self.random.randrange(1, 4))
        time.sleep(delay)
        if child.poll() is not None:
            return False
        everybody = processes(self.folder)
        first = started_by(child)
        ranks = [pid for pid in everybody if pid not in (child.pid, first)] or [first]
        if attack == "launcher":
            kill(first, signal.SIGKILL)
        elif attack == "rank":
            kill(self.random.choice(ranks), signal.SIGKILL)
        elif attack == "all":
            for pid in everybody:
                kill(pid, signal.SIGKILL)
        elif attack == "freeze":
            victim = self.random.choice(ranks)
            kill(victim, signal.SIGSTOP)
            time.sleep(self.random.uniform(0, 0.3))
            kill(victim, signal.SIGKILL)
            # nsenter stops together with its child.
            kill(child.pid, signal.SIGCONT)
        elif attack == "disk":
            self.machine.disk.fill(self.random.choice([0, 4 << 10, 60 << 10, 200 << 10]))
        else:
            kill(first, signal.SIGTERM if attack == "term" else signal.SIGINT)
        return True

    def kill_ranks(self, child, times):
        """Kills a rank that many times, at random times after each start; returns how often it succeeded."""
        for number in range(times):
            delay = self.random.uniform(0.05, 0.7) * self.machine.reference(self.ranks)[2]
            while child.poll() is None and not (ranks := self.ranks_of_start(number)):
                time.sleep(0.02)
            time.sleep(delay)
            ranks = self.ranks_of_start(number)
            if not ranks:
                return number
            kill(self.random.choice(ranks), signal.SIGKILL)
        return times

    def ranks_of_start(self, number):
        """Returns the processes that train in this start of the job."""
        found = []
        for pid in processes(self.folder):
            try:
                words, variables = read(f"/proc/{pid}/cmdline").split("\0"), read(f"/proc/{pid}/environ").split("\0")
            except OSError:
                continue
            if words[1:2] == ["train"] and f"DS_RESTART={number}" in variables:
                found.append(pid)
        return found

    def check_restarts(self, kills):
        lines = re.findall(r"^libds launch: rank \d+(?: on host '\w+')? was killed by signal 9; restart (\d+) of \d+ on (\d+) ranks? in",
                           read(os.path.join(self.machine.work, "log")), re.M)
        require(lines == [(str(k + 1), str(self.ranks)) for k in range(kills)], f"{kills} kills, restarts {lines}")

    def check_code(self, code, attack, struck, launcher):
        if attack == "restarts":
            require(code == 0, f"{attack} ended with code {code}")
            self.check_restarts(int(struck))
        elif attack == "refused":
            lines = re.findall(r"^libds launch: .*", read(os.path.join(self.machine.work, "log")), re.M)
            require(code == REFUSED and len(lines) == 1 and "no restart: code 78 says" in lines[0],
                    f"a configuration that is refused ended with code {code}: {lines}")
        elif not struck:
            require(code == 0, f"a run that nobody disturbed ended with code {code}")
        elif attack in ("term", "int"):
            # Before the handlers are installed, the signal itself ends the ranks. A run that is stopped before it has
            # created its folder cannot be resumed.
            made = os.path.exists(os.path.join(self.folder, "config.json"))
            # mpirun returns different exit codes after a signal, and after a signal that arrives when its job has ended.
            require(code in (0, STOPPED, 130, 143, -2, -15) or (code == 1 and (not made or launcher == "mpirun")), f"{attack} ended with code {code}")
        elif attack == "pipe":
            # mpirun aborts its job.
            require(code == 0 or launcher == "mpirun", f"a closed pipe ended with code {code}")
        elif attack in ("fsize", "disk"):
            require(code in (0, 1), f"{attack} ended with code {code}")

    def check_left(self, attack, code, kills=1):
        deadline = time.monotonic() + 20
        while left := processes(self.folder):
            require(time.monotonic() < deadline, f"still running: {[read(f'/proc/{pid}/cmdline') for pid in left]}")
            time.sleep(0.02)
        require(not os.listdir(os.path.join(self.machine.work, "nvme")), "the scratch folder is not empty")
        self.machine.disk.free()
        saved = checkpoints_of(self.folder, self.damaged)
        require((saved[-1] if saved else 0) >= self.newest, f"checkpoints {saved} after one of step {self.newest}")
        # A run that is killed between a commit and the removal of the oldest checkpoint leaves one more checkpoint.
        self.most = max(KEEP, min(self.most, len(saved)) + max(kills, 1))
        require(len(saved) <= self.most, f"checkpoints {saved}, keep is {KEEP}")
        self.newest = saved[-1] if saved else 0
        rows, wanted = rows_of(self.folder), self.machine.reference(self.ranks)[0]
        require(rows == wanted[:len(rows)], "metrics.csv differs from the undisturbed run's: "
                + str([pair for pair in zip(rows, wanted) if pair[0] != pair[1]][:2]))
        if attack not in ("fsize", "disk"):
            require(len(rows) >= self.newest, f"metrics.csv ends at step {len(rows)}, a checkpoint has {self.newest}")
        if code == STOPPED:
            require(saved, "stopped without a checkpoint to go on from")
            require(len(rows) == self.newest, f"stopped after step {len(rows)}, saved {self.newest}")

    def corrupt_newest(self):
        """Sometimes changes a byte of the newest checkpoint, in the first half of the run, so that later steps replace this
        checkpoint. The next start resumes from the checkpoint before it, which must be kept until newer ones exist."""
        if not 0 < self.newest <= self.machine.steps // 2 or self.random.random() > 0.3:
            return
        saved = checkpoints_of(self.folder)
        places = sorted(os.listdir(os.path.join(self.folder, "checkpoints")), key=lambda name: int(name.split("-")[2]))
        if len(saved) < 2 or len(places) != len(saved) or saved[-2] >= saved[-1]:
            return
        path = os.path.join(self.folder, "checkpoints", places[-1], self.random.choice(["master", "exp_avg"]) + ".safetensors")
        with open(path, "r+b") as file:
            file.seek(-self.random.randrange(1, 100), os.SEEK_END)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 4]))
        self.newest = saved[-2]
        self.damaged.append(places[-1])

    def check_end(self):
        rows, (losses, whole, _) = rows_of(self.folder), self.machine.reference(self.ranks)
        require(rows == losses, f"metrics.csv has {len(rows)} of {len(losses)} steps")
        require(self.machine.hash(self.folder) == whole, "the state has another hash than the undisturbed run's")
        done = subprocess.run([self.machine.libds, "verify", self.folder], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
        require(done.returncode == 0, f"verify: {done.stdout}")
        saved = checkpoints_of(self.folder)
        require(len(saved) <= self.most, f"checkpoints {saved} at the end, keep is {KEEP}")
        wrong = [name for _, _, names in os.walk(self.folder) for name in names
                 if name.endswith((".tmp", ".part")) or "scratch" in name or "damaged" in name or name == "lock"]
        require(not wrong, f"left behind: {wrong}")
        places = os.listdir(os.path.join(self.folder, "checkpoints"))
        require(len(places) == len(saved), f"left behind among the checkpoints: {places}")
        shutil.rmtree(self.folder)

    def attempt(self, attack):
        """Starts the run once; returns (whether an attack struck, whether the run is done)."""
        child, launcher = self.launch(attack)
        try:
            struck = self.strike(child, attack) if attack != "none" else False
            code = child.wait(timeout=120)
        except subprocess.TimeoutExpired:
            for pid in processes(self.folder):
                kill(pid, signal.SIGKILL)
            raise Failed("the run does not end within two minutes") from None
        finally:
            kill(child.pid, signal.SIGKILL) if child.poll() is None else None
        self.check_code(code, attack, struck, launcher)
        if launcher == "mpirun" and struck:
            self.over_mpi += 1
        self.check_left(attack, code, int(struck))
        # mpirun returns 0, too, if a signal arrives before it has started the job.
        unknown = launcher == "mpirun" and struck and attack in ("term", "int")
        return struck, code == 0 and (not unknown or len(rows_of(self.folder)) == self.machine.steps)

    def tell(self, attacks_left):
        """Attacks and resumes until the run is done; returns how many attacks struck, by kind."""
        count = {}
        while True:
            attack = self.random.choice(self.attacks) if sum(count.values()) < attacks_left else "none"
            if self.number == 0 and not self.log:
                # This attack is the first of story 0, so that the short form covers it, too.
                attack = "restarts"
            struck, done = self.attempt(attack)
            if struck:
                count[attack] = count.get(attack, 0) + 1
            if done:
                self.check_end()
                if self.damaged:
                    count["damage"] = len(self.damaged)
                return count
            self.corrupt_newest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("tries", nargs="?", type=int)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hosts and not args.inside:
        if reason := hosts.impossible(os.path.abspath(args.build)):
            print(f"skipped: {reason}")
            return 77 if args.short else 0
        return subprocess.call([*hosts.APART, sys.executable, *sys.argv, "--inside"])
    # When a time limit ends this program, the exit handlers still remove everything that it has created.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tries = args.tries or (8 if args.short else 200)
    work = tempfile.mkdtemp(prefix="kills-")
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    machine = Machine(args.build, work, 24 if args.short else STEPS)
    if args.inside:
        os.mkdir(os.path.join(work, "site"))
        machine.site = hosts.Site(os.path.abspath(args.build), os.path.join(work, "site"))
    print(f"kills: {tries} tries, seed {args.seed}, full disks "
          + ("among them" if machine.disk.mounted else "left out: no right to mount")
          + ("" if machine.mpirun else ", MPI left out: there is no mpirun"), flush=True)
    total, number, over_mpi = {}, args.only or 0, 0
    while sum(total.values()) < tries:
        story = Story(machine, args.seed, number, ATTACKS)
        try:
            count = story.tell(tries - sum(total.values()) if args.only is None else tries)
        except Failed as failure:
            print(f"{story.log}: {failure}\n{read(os.path.join(work, 'log'))}")
            print(f"repeat it: kills.py BUILD {tries} --seed {args.seed} --only {number}")
            return 1
        over_mpi += story.over_mpi
        for attack, n in count.items():
            total[attack] = total.get(attack, 0) + n
        if not args.short:
            print(f"story {number}: {story.ranks} ranks, {sum(count.values())} attacks", flush=True)
        number += 1
        if args.only is not None or number > 3 * tries:
            break
    print(f"kills: ok, {sum(total.values())} attacks in {number - (args.only or 0)} runs: "
          + ", ".join(f"{attack} {n}" for attack, n in sorted(total.items())) + f"; {over_mpi} of them over MPI")
    return 0


if __name__ == "__main__":
    sys.exit(main())
