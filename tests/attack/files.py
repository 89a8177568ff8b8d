#!/usr/bin/env python3
"""Passes damaged and hostile files to every reader of libds.

usage: files.py BUILD [TRIES] [--short] [--seed N] [--only TRY]

Each try damages one file of a good model folder (with each kind of tokenizer), checkpoint, run folder or configuration:
bits, bytes, numbers, keys, nesting and lengths are changed, or the file becomes a pipe, link, loop, device, folder or
socket, vanishes, or gets another owner. Then libds reads it through ds.h, many tries in one process. Rules:
- a try ends without a signal, within 10 s, with at most 1 GiB of memory more than a good try;
- a refusal is one line that names the folder of the file, and is not an internal error; if the file is of another kind,
  it names that kind, and for a dangling link its target;
- data checked by hashes never gives wrong numbers: a checkpoint that loads has the saved state, and a run that resumes
  from damaged metrics, text or checkpoints reaches the bits of the undamaged run.
"""
import argparse
import ctypes
import json
import os
import pathlib
import random
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

# The longest duration of a try, in seconds.
SLOWEST = 10
# The largest memory of a worker, in bytes beyond its memory after the first good tries.
MEMORY = 1 << 30
INTERNAL, OUT_OF_MEMORY = "internal error", "out of memory"
# Shares of each kind among 100 tries.
KINDS = {"model": 40, "tokenizer": 25, "checkpoint": 25, "config": 6, "run": 4}
HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"


# ------------------------------------------------------------------ damage


NUMBERS = ["0", "-1", "1", "1e308", "1e999", "-0.0", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
           "4294967296", "2147483648", "1" + "0" * 400, "NaN", "null", "true", '"x"', "[]", "{}", "0.5"]
BYTES = [b"\0", b"\xff", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\n", b"\xc3\x28", b"\xed\xa0\x80", b"\x1b[2J"]


def damage_text(text, dice):
    """Returns JSON text with another number, a repeated member, deep nesting, a long text, or a comment that does not end."""
    way = dice.randrange(7)
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?", text))
    if way <= 2 and numbers:
        hit = dice.choice(numbers)
        return text[:hit.start()] + dice.choice(NUMBERS).encode() + text[hit.end():]
    if way == 3:
        members = list(re.finditer(rb'"[^"\\]{1,60}"\s*:\s*("[^"\\]*"|-?\d+|true|false|null)', text))
        if members:
            hit, other = dice.choice(members), dice.choice(members)
            return text[:hit.start()] + other.group() + b", " + text[hit.start():]
    at = dice.randrange(len(text) + 1)
    if way == 4:
        return text[:at] + dice.choice([b"[", b'{"a":']) * dice.choice([10, 300, 100000]) + text[at:]
    if way == 5:
        return text[:at] + dice.choice([b'"', b"", b"/*", b"//"]) + b"A" * dice.choice([300, 70000, 3000000]) + text[at:]
    strings = list(re.finditer(rb'"[^"\\]*"', text))
    if not strings:
        return text[:at]
    hit = dice.choice(strings)
    word = dice.choice([b'""', b'"../../etc/passwd"', b'"\\u0000"', b'"\\ud800"', dice.choice(strings).group()])
    return text[:hit.start()] + word + text[hit.end():]


def damage_bytes(data, dice):
    data = bytearray(data)
    # Readers parse the beginning of a file first, so half of all changes fall there.
    end = min(len(data), dice.choice([16, 2000, len(data), len(data)]))
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(end + 1)
        way = dice.randrange(7)
        if way == 0 and at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        elif way == 1:
            data[at:at + 1] = dice.choice(BYTES)
        elif way == 2:
            data[at:at] = dice.randbytes(dice.choice([1, 2, 8, 1000]))
        elif way == 3:
            del data[at:at + dice.choice([1, 2, 8, 1000])]
        elif way == 4:
            del data[at:]
        elif way == 5:
            data[at:at] = data[at:at + 100]
        else:
            data[at:at + 8] = struct.pack("<q", dice.choice([0, -1, 1 << 31, 1 << 40, (1 << 63) - 1, -1 << 63, len(data)]))
    return bytes(data)


# Contents that are often found in place of the expected file, by the words with which a refusal names them.
MISTAKEN = {
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n",
    "web page": b"<!DOCTYPE html><html><body>Log in</body></html>", "answer of the hub": b"Entry not found",
    "GGUF": b"GGUF\3\0\0\0", "gzip": b"\x1f\x8b\x08\0\0\0", "HDF5": b"\x89HDF\r\n\x1a\n\0", "empty": b""}


def replace(path, dice):
    """Puts something else in the file's place; returns its description."""
    os.unlink(path)
    if dice.random() < 0.4:
        way = dice.choice(sorted(MISTAKEN))
        pathlib.Path(path).write_bytes(MISTAKEN[way])
        return way
    way = dice.choice(["nothing", "pipe", "folder", "loop", "device", "zero", "dangling", "socket", "foreign"])
    if way == "pipe":
        os.mkfifo(path)
    elif way == "folder":
        os.mkdir(path)
    elif way == "loop":
        os.symlink(os.path.basename(path), path)
    elif way == "device":
        os.symlink("/dev/tty", path)
    elif way == "zero":
        os.symlink("/dev/zero", path)
    elif way == "dangling":
        os.symlink("nowhere", path)
    elif way == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            before = os.getcwd()
            os.chdir(os.path.dirname(path))
            one.bind(os.path.basename(path))
            os.chdir(before)
    elif way == "foreign":
        with open(path, "wb") as file:
            file.write(b"{}")
        if os.geteuid() == 0:
            os.chown(path, 4242, 4242)
    return way


def corrupt(path, dice):
    """Damages the file; returns a description of the damage."""
    if dice.random() < 0.12:
        return replace(path, dice)
    before = data = pathlib.Path(path).read_bytes()
    text = not path.endswith((".safetensors", ".model", ".tokens"))
    if path.endswith(".safetensors") and dice.random() < 0.5:
        size = struct.unpack("<Q", data[:8])[0]
        head = damage_text(data[8:8 + size], dice)
        data = struct.pack("<Q", len(head)) + head + data[8 + size:]
    elif text and dice.random() < 0.7:
        data = damage_text(data, dice)
    else:
        data = damage_bytes(data, dice)
    pathlib.Path(path).write_bytes(data)
    return "changed" if data != before else "the same"


# ------------------------------------------------------------------ a worker: many tries in one process


CONFIG = {
    "train_micro_batch_size_per_gpu": 2, "tensorboard": {"enabled": False},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.005}}, "zero_optimization": {"stage": 2},
    "model": {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2, "vocab": 256, "positions": 16},
    "data": {"heldout": 0.1},
    "run": {"sequence": 16, "eval_samples": 2, "save_every": 2, "sample_tokens": 2, "threads": 1, "seed": 7, "steps": 4}}


class Library:
    def __init__(self, path):
        self.ds = ctypes.CDLL(path)
        self.ds.ds_last_error_message.restype = ctypes.c_char_p
        self.ds.ds_status_name.restype = ctypes.c_char_p
        self.log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.ds.ds_log_set_fn(self.log, None)
        self.ds.ds_text_destroy.argtypes = [ctypes.c_void_p]
        self.ds.ds_text_destroy.restype = None

    def outcome(self, status):
        """Returns ("", ""), or the status and message of a refusal."""
        if status == 0:
            return "", ""
        return self.ds.ds_status_name(status).decode(), self.ds.ds_last_error_message().decode("utf-8", "surrogateescape")

    def text_of(self, call, *arguments):
        """Returns the status and the text of a call that creates a text."""
        made = ctypes.c_void_p()
        status = call(*arguments, ctypes.byref(made))
        text = ctypes.string_at(made) if made else b""
        self.ds.ds_text_destroy(made)
        return status, text

    def generate(self, folder, prompt):
        options = b'{"tokens": 2, "temperature": 0, "threads": 1' + (b"}" if prompt else b', "ids": [1, 2]}')
        return self.outcome(self.text_of(self.ds.ds_run_generate, None, folder.encode(), prompt, options, None, None)[0])

    def train(self, config, resume, steps=None):
        # With a damaged number a run could last for years, so a callback stops the run.
        end = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p)(
            lambda now, _: 0 if steps is None or now[1] < steps else 1)
        return self.outcome(self.ds.ds_run_train(None, config, resume.encode() if resume else None, 2, None, end, None, None))

    def payload_hash(self, path):
        status, text = self.text_of(self.ds.ds_checkpoint_info, path.encode())
        return json.loads(text)["payload_hash"] if status == 0 else ""


class Engine:
    """An engine that loads checkpoints and returns its state as bytes."""

    def __init__(self, library):
        self.library, ds = library, library.ds
        config, graph = json.dumps(CONFIG).encode(), ctypes.c_void_p()
        assert ds.ds_graph_from_config(config, 1, ctypes.byref(graph)) == 0, ds.ds_last_error_message()
        self.engine = ctypes.c_void_p()
        assert ds.ds_engine_create(None, config, graph, None, ctypes.byref(self.engine)) == 0, ds.ds_last_error_message()

    def load(self, path):
        return self.library.outcome(self.library.ds.ds_checkpoint_load(self.engine, path.encode(), None, None))

    def state(self):
        ds, out = self.library.ds, []
        for param in range(ds.ds_engine_param_count(self.engine)):
            dims, count = (ctypes.c_int64 * 8)(), ctypes.c_size_t()
            ds.ds_engine_param_info(self.engine, param, None, dims, ctypes.c_size_t(8), ctypes.byref(count))
            size = 1
            for d in dims[:count.value]:
                size *= d
            for kind in (b"master", b"exp_avg", b"exp_avg_sq"):
                data = (ctypes.c_float * size)()
                assert ds.ds_engine_read(self.engine, param, kind, data, ctypes.c_size_t(size)) == 0
                out.append(bytes(data))
        return b"".join(out)


class Worker:
    def __init__(self, library, work, good):
        self.library, self.work, self.good = Library(library), work, pathlib.Path(good)
        self.engine = Engine(self.library)
        self.saved = str(self.good / "run/checkpoints")
        assert self.engine.load(self.saved) == ("", ""), self.library.ds.ds_last_error_message()
        self.state = self.engine.state()
        self.hash = (self.good / "hash").read_text()
        for kind in KINDS:
            for name in self.good_folders(kind):
                self.expect_good(kind, name)

    def good_folders(self, kind):
        return sorted(path.name for path in self.good.iterdir() if path.name.split("-")[0] == kind)

    def expect_good(self, kind, name):
        """Checks that undamaged files are read; otherwise a refusal would prove nothing."""
        folder = os.path.join(self.work, "try")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.good / name, folder)
        status, message = getattr(self, kind)(folder)
        # The model has fewer words than most tokenizers. It refuses the prompt only after the text was encoded.
        if status and not (kind == "tokenizer" and "of the prompt must be" in message):
            raise AssertionError(f"{name} is not damaged: {status}: {message}")
        if self.bad_result(kind, folder, ""):
            raise AssertionError(f"{name} is not damaged: {self.bad_result(kind, folder, '')}")

    def one(self, kind, dice):
        """Makes one try. Returns ("loaded" or a status, the complaint or "")."""
        folder = os.path.join(self.work, "try")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.good / dice.choice(self.good_folders(kind)), folder)
        files = sorted(str(path) for path in pathlib.Path(folder).rglob("*") if path.is_file())
        if kind == "tokenizer":
            files = [path for path in files if not path.endswith((".safetensors", "/config.json"))]
        path = dice.choice(files)
        done = corrupt(path, dice)
        began = time.monotonic()
        status, message = getattr(self, kind)(folder)
        seconds = time.monotonic() - began
        what = f"{os.path.relpath(path, folder)} ({done}): {status or 'loaded'} {message!r}"
        if seconds > SLOWEST:
            return status, f"took {seconds:.1f} s: {what}"
        complaint = self.bad_refusal(message, status, folder, kind) if status else self.bad_result(kind, folder, path)
        if not complaint and status and self.is_read_whole(kind, path) and done in MISTAKEN and done not in message:
            complaint = "the message does not say what the file is instead"
        if not complaint and status and kind == "model" and done == "dangling" and "symbolic link to 'nowhere'" not in message:
            complaint = "the message does not name the link that leads nowhere"
        return status or "loaded", complaint and f"{complaint}: {what}"

    @staticmethod
    def is_read_whole(kind, path):
        """Returns whether a damaged file is refused because of its content, rather than its size or hash."""
        return kind in ("model", "config") and path.endswith((".json", ".safetensors"))

    @staticmethod
    def bad_refusal(message, status, folder, kind):
        if status in (INTERNAL, OUT_OF_MEMORY):
            return status
        if not message or len(message) > 2000 or any(ord(c) < 32 or ord(c) == 127 for c in message):
            return "the message is not one clean line"
        # Damaged weights may still be valid numbers. Then the message names a logit that is not finite.
        if kind != "config" and status not in ("user", "numeric") and folder not in message:
            return "the message does not name the file"
        return ""

    def bad_result(self, kind, folder, path):
        if kind == "checkpoint" and self.engine.state() != self.state:
            return "the checkpoint loaded with another state"
        if kind == "run" and not path.endswith("config.json"):
            if self.library.payload_hash(folder + "/checkpoints") != self.hash:
                return "the run resumed to other bits"
        return ""

    def model(self, folder):
        return self.library.generate(folder, None)

    def tokenizer(self, folder):
        return self.library.generate(folder, "Hello world, 12 of 345 <s> \u00e9\u4e16".encode())

    def checkpoint(self, folder):
        return self.engine.load(folder)

    def config(self, folder):
        text = (pathlib.Path(folder) / "config.json")
        document = text.read_bytes() if text.is_file() and not text.is_symlink() else b""
        graph = ctypes.c_void_p()
        status = self.library.ds.ds_graph_from_config(document.split(b"\0")[0], 1, ctypes.byref(graph))
        self.library.ds.ds_graph_destroy(graph)
        return self.library.outcome(status)

    def run(self, folder):
        return self.library.train(b'{"run": {"steps": 8}}', folder, 9)


def kind_of(number):
    at = number * 37 % 100
    for kind, share in KINDS.items():
        if at < share:
            return kind
        at -= share
    raise AssertionError


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def work_on(library, work, good, seed, numbers):
    """Prints "b NUMBER" before each try and "e NUMBER OUTCOME COMPLAINT" (JSON) after it."""
    import resource
    worker = Worker(library, work, good)
    limit = resident()
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY + (256 << 20), -1))
    for number in numbers:
        print(f"b {number}", flush=True)
        kind = kind_of(number)
        status, complaint = worker.one(kind, random.Random(f"{seed}/{number}"))
        if not complaint and resident() > limit + MEMORY:
            complaint = f"the process holds {resident() >> 20} MiB"
        print("e", json.dumps([number, kind, status, complaint]), flush=True)


# ------------------------------------------------------------------ the parent


def shards(folder, source):
    """Writes the model of `source` as two files with an index."""
    data = (source / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = {k: v for k, v in json.loads(data[8:8 + size]).items() if k != "__metadata__"}
    names, places = sorted(header), {}
    for half, part in enumerate((names[::2], names[1::2])):
        head, body = {}, b""
        for name in part:
            begin, end = header[name]["data_offsets"]
            head[name] = dict(header[name], data_offsets=[len(body), len(body) + end - begin])
            body += data[8 + size + begin:8 + size + end]
            places[name] = f"part-{half}.safetensors"
        text = json.dumps(head).encode()
        (folder / f"part-{half}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def make_good(library, good):
    """Creates valid folders: model-*, tokenizer-*, checkpoint-0, run-0 and config-0. Also makes a run and a hash for
    comparison."""
    for family in ("qwen2", "gpt2", "gemma2"):
        source = DATA / "models" / family
        for form in ("whole", "sharded"):
            folder = good / f"model-{family}-{form}"
            folder.mkdir()
            shutil.copy(source / "config.json", folder)
            (folder / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
            if form == "whole":
                shutil.copy(source / "model.safetensors", folder)
            else:
                shards(folder, source)
    for source in sorted((DATA / "tokenizers").iterdir()):
        if source.is_dir():
            folder = good / f"tokenizer-{source.name}"
            shutil.copytree(source, folder, ignore=shutil.ignore_patterns("expected.json"))
            for name in ("config.json", "model.safetensors"):
                shutil.copy(DATA / "models/qwen2" / name, folder)
    (good / "text.txt").write_text("".join(f"line {i} of a text: {i * 7919 % 1000}\n" for i in range(200)))
    config = json.loads(json.dumps(CONFIG))
    config["data"]["paths"], config["run"]["dir"] = [str(good / "text.txt")], str(good / "run")
    # Another process trains the run, so that this process starts no threads.
    code = (f"import sys; sys.path.insert(0, {str(HERE)!r}); import files; library = files.Library({library!r});"
            f"assert library.train({json.dumps(config).encode()!r}, None) == ('', ''), library.ds.ds_last_error_message();"
            f"import shutil; shutil.copytree({str(good / 'run')!r}, {str(good / 'whole')!r});"
            f"assert library.train(b'{{\"run\": {{\"steps\": 8}}}}', {str(good / 'whole')!r}) == ('', '');"
            f"open({str(good / 'hash')!r}, 'w').write(library.payload_hash({str(good / 'whole/checkpoints')!r}))")
    subprocess.run([sys.executable, "-B", "-c", code], check=True)
    shutil.copytree(good / "run", good / "run-0")
    newest = max((good / "run/checkpoints").iterdir(), key=lambda path: int(path.name.split("-")[2]))
    shutil.copytree(newest, good / "checkpoint-0")
    (good / "config-0").mkdir()
    (good / "config-0/config.json").write_text(json.dumps(config, indent=1))


class Runner:
    """A worker process and its remaining tries. If a try ends the process, another process continues after this try."""

    def __init__(self, options, library, work, good, numbers):
        self.options, self.library, self.work, self.good = options, library, work, good
        self.left, self.complaints, self.outcomes = list(numbers), [], {}
        self.current, self.process, self.buffer = None, None, b""
        os.makedirs(work, exist_ok=True)
        self.start()

    def start(self):
        words = [sys.executable, __file__, "--work", self.library, self.work, str(self.good), str(self.options.seed)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdin.write(" ".join(map(str, self.left)).encode())
        self.process.stdin.close()
        self.since, self.current, self.buffer = time.monotonic(), None, b""

    def read(self):
        """Reads the lines of the worker. Returns False if it has ended."""
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        self.since = time.monotonic()
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            if line.startswith(b"b "):
                self.current = int(line[2:])
            elif line.startswith(b"e "):
                number, kind, status, complaint = json.loads(line[2:])
                self.left.remove(number)
                self.current = None
                self.outcomes[kind, status] = self.outcomes.get((kind, status), 0) + 1
                if complaint:
                    self.complaints.append((number, kind, complaint))
        return bool(data)

    def died(self, reason):
        self.process.kill()
        code = self.process.wait()
        if self.current is None:
            if self.left:
                raise RuntimeError(f"a worker ended before its tries, exit code {code}")
            return
        self.complaints.append((self.current, kind_of(self.current), reason or f"ended the process, exit code {code}"))
        self.left.remove(self.current)
        if self.left:
            self.start()


def attack(options, work):
    good = work / "good"
    good.mkdir()
    library = str(options.build / "lib/libds.so")
    make_good(library, good)
    tries = range(options.tries) if options.only is None else [options.only]
    runners = [Runner(options, library, str(work / f"worker-{w}"), good, tries[w::options.workers])
               for w in range(options.workers) if tries[w::options.workers]]
    last_report = time.monotonic()
    while True:
        alive = [r for r in runners if r.left]
        if not alive:
            break
        ready, _, _ = select.select([r.process.stdout for r in alive], [], [], 1)
        for r in alive:
            if r.process.stdout in ready:
                if not r.read():
                    r.died("")
            elif time.monotonic() - r.since > 3 * SLOWEST:
                r.died(f"took more than {3 * SLOWEST} s")
        if time.monotonic() - last_report > 30:
            last_report = time.monotonic()
            print(f"{sum(len(r.left) for r in runners)} tries left", flush=True)
    for r in runners:
        r.process.wait()
    return report(options, runners)


def report(options, runners):
    outcomes, complaints = {}, sorted(c for r in runners for c in r.complaints)
    for r in runners:
        for key, count in r.outcomes.items():
            outcomes[key] = outcomes.get(key, 0) + count
    for kind in KINDS:
        print(f"{kind}: " + ", ".join(f"{count} {status}" for (k, status), count in sorted(outcomes.items()) if k == kind))
    for number, kind, complaint in complaints[:50]:
        print(f"FAILED: try {number} ({kind}): {complaint[:600]}\n  repeat with --only {number} --seed {options.seed}")
    total = sum(outcomes.values())
    print(f"files: {total} tries, seed {options.seed}: {len(complaints)} failed" if complaints
          else f"files: {total} tries, seed {options.seed}: ok")
    return 1 if complaints else 0


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "--work":
        numbers = [int(word) for word in sys.stdin.read().split()]
        return work_on(*sys.argv[2:6], numbers)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("tries", nargs="?", type=int, default=100000)
    parser.add_argument("--short", action="store_true", help="1000 tries")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this try alone")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.short:
        options.tries = 1000
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    work = pathlib.Path(tempfile.mkdtemp(prefix="libds-files-", dir=place))
    try:
        return attack(options, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
