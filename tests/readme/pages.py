"""Runs the commands that a page of docs/start or docs/guides shows, in a scratch folder with the parts of a working
copy that pages name.

usage: pages.py SOURCE BUILD PAGE [--renew] [--first] [--there] [--path=DIR]
  --renew   writes the output of this run into the page if it differs or the page shows none
  --first   runs only the part before the first section heading of the page
  --there   runs in SOURCE itself, as its user would
  --path    commands are first looked for in DIR, such as that of a Python with the packages of the page

- A ```console block contains commands for one shell, each after `$ `, and their output. `...` matches any lines. The output
  of a command without output lines is not compared. A command that fails must be followed by `$ echo $?`.
- Every other block is the content of a file. The paragraph before the block ends with the name of the file in backquotes and
  a colon. If the working copy has this file, the file must contain the lines; otherwise the file is created.
- NOT_RUN lists commands that are not run, and ANY_NUMBERS commands whose numbers differ each time, with the reason.
- GIVEN lists functions that create what a page presupposes, such as a model folder.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from shown import difference

SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
PAGE = pathlib.Path(sys.argv[3])
# The longest duration of a page, in seconds.
LIMIT = 100
NOT_RUN = {
    "./run train": "builds and trains for minutes; cli.flagship trains its first steps",
    "./run test": "is what runs this",
    "apt-get install": "changes the machine",
    "git clone": "needs the network",
    "c++ -std=c++20": "needs libtorch; ./run interop libtorch has run it before",
}
ANY_NUMBERS = {
    "head -4 profile.txt": "times, and the rates of this machine",
    "grep -E '^(comp|comm)": "times, and the rates of this machine",
    "grep -E 'between|tokens'": "times, and the rates of this machine",
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
failures = []


def model_folder(folder):
    """Creates a tiny model folder like one from a hub: a Llama with a tokenizer, trained for 20 steps."""
    shape = folder / "shape"
    shape.mkdir()
    document = json.loads((SOURCE / "tests/data/models/llama/config.json").read_text())
    (shape / "config.json").write_text(json.dumps({**document, "vocab_size": 600}))
    shutil.copy(SOURCE / "tests/data/tokenizers/llama2/tokenizer.json", shape)
    (folder / "shape.json").write_text(json.dumps({
        "train_micro_batch_size_per_gpu": 4, "model": {"folder": "shape", "init": "random"},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}, "data": {"paths": "LICENSE", "heldout": 0},
        "run": {"sequence": 32, "steps": 20, "sample_tokens": 0, "threads": 1}}))
    subprocess.run([BUILD / "bin/libds", "train", "--config", "shape.json", "--dir", "made"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)
    shutil.move(folder / "made/model", folder / "model")


def deepspeed_folder(folder):
    """Creates a folder like one that DeepSpeed's save_checkpoint writes, of ZeRO 2 on two ranks."""
    shutil.copytree(SOURCE / "tests/data/deepspeed/zero2_f32", folder / "deepspeed_run")


GIVEN = {"finetuning.md": [model_folder], "adapters.md": [model_folder], "preference.md": [model_folder], "gguf.md": [model_folder], "checkpoints.md": [deepspeed_folder]}


def commands(text):
    """Returns a list of (command, shown lines) of a console block."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif found and not found[-1][1] and found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        elif found:
            found[-1][1].append(line)
        else:
            failures.append(f"output before any command: {line}")
    return [("\n".join(words), shown) for words, shown in found]


def starts(command, table):
    return next((start for start in table if command.startswith(start)), None)


def script(folder, steps):
    """Returns a shell program that runs the steps. The command of step N writes N.out and N.code to `folder`."""
    lines, last = [], None
    for number, (kind, what, _) in enumerate(steps):
        if kind == "file":
            lines.append(f'cp "{folder}/{number}.file" "{what}"')
        elif not starts(what, NOT_RUN):
            before = f'(exit "$(cat {folder}/{last}.code)")\n' if last is not None else ""
            lines.append(f'{{ {before}{what}\n}} > {folder}/{number}.out 2>&1 < /dev/null\necho $? > {folder}/{number}.code')
            last = number
    return "\n".join(lines) + "\n"


def steps_of(text):
    """Yields ("command", words, shown lines) and ("file", name, content) in the order of the page."""
    for match in BLOCK.finditer(text):
        kind, content = match.groups()
        before = text[:match.start()].rstrip().splitlines()
        name = re.search(r"`([\w./-]+)`:$", before[-1] if before else "")
        if kind == "console":
            yield from (("command", words, shown) for words, shown in commands(content))
        elif kind in ("json", "c", "python", "rust", "julia", "sh", "text") and name:
            yield "file", name.group(1), content
        else:
            failures.append(f"a block of '{kind}' without a file's name before it: {content.splitlines()[0]}")


def check_file(name, content):
    """Returns whether the working copy has this file. If it does, the file must contain the shown lines."""
    if not (SOURCE / name).exists():
        return False
    if "\n" + content not in "\n" + (SOURCE / name).read_text():
        failures.append(f"{name} has no such lines in a row as the page shows")
    return True


def check_command(words, shown, got, code, following):
    start = starts(words, ANY_NUMBERS)
    line = difference(shown, got, any_number=start is not None)
    if line is not None:
        failures.append(f"$ {words}\n  shown: {line}\n  printed:\n" + "\n".join(f"    {line}" for line in got))
    if code != 0 and following != "echo $?":
        failures.append(f"$ {words}\n  exit code {code}:\n" + "\n".join(f"    {line}" for line in got[-8:]))
    return line is None


def working_copy(work):
    """Creates and returns the folder `work` with the parts of a working copy that pages name."""
    work.mkdir()
    for name in ("examples", "include", "LICENSE", "bindings"):
        (work / name).symlink_to(SOURCE / name)
    (work / "build").symlink_to(BUILD)
    # This ./run installs what is already built. The test package.source runs the real command.
    if "$ ./run install " in PAGE.read_text():
        (work / "run").write_text(f'#!/bin/sh\n[ "$1" = install ] && exec cmake --install "{BUILD}" --prefix "$2"\n')
        (work / "run").chmod(0o755)
    for make in GIVEN.get(PAGE.name, []):
        make(work)
    return work


def play(folder, steps):
    """Runs the steps in `folder`/work. Yields (command, shown lines, output lines, whether they agree) of each command."""
    work = SOURCE if "--there" in sys.argv else working_copy(folder / "work")
    for number, (kind, name, content) in enumerate(steps):
        if kind == "file":
            (folder / f"{number}.file").write_text(content)
    first = "".join(f"{word.partition('=')[2]}:" for word in sys.argv if word.startswith("--path="))
    environment = {"PATH": f"{first}{BUILD}/bin:{BUILD}/julia/usr/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(work), "LANG": "C.UTF-8"}
    shell = subprocess.Popen(["bash", "-c", script(folder, steps)], cwd=work, env=environment, start_new_session=True)
    try:
        shell.wait(LIMIT)
    except subprocess.TimeoutExpired:
        failures.append(f"the page takes more than {LIMIT} s")
    if shell.poll() is None or shell.returncode < 0:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    for number, (kind, words, shown) in enumerate(steps):
        if kind == "command" and not starts(words, NOT_RUN):
            if not (folder / f"{number}.code").exists():
                failures.append(f"$ {words}\n  did not end")
                return
            got = (folder / f"{number}.out").read_text(errors="replace").splitlines()
            following = next((after for other, after, _ in steps[number + 1:] if other == "command"), "")
            good = check_command(words, shown, got, int((folder / f"{number}.code").read_text()), following)
            yield words, shown, got, good


def renew(results):
    text = PAGE.read_text()
    for words, shown, got, good in results:
        if not good or not shown:
            old = "".join(f"{line}\n" for line in ["$ " + words, *shown])
            text = text.replace(old, "".join(f"{line}\n" for line in ["$ " + words, *got]), 1)
    PAGE.write_text(text)


def main():
    text = PAGE.read_text()
    if "--first" in sys.argv:
        text = text.partition("\n## ")[0]
    if re.search(r"^\n {4}\S", BLOCK.sub("", text), re.M):
        failures.append("an indented block: write ```console")
    steps = [step for step in steps_of(text) if step[0] != "file" or not check_file(step[1], step[2])]
    results = []
    if not failures:
        with tempfile.TemporaryDirectory() as name:
            results = list(play(pathlib.Path(name), steps))
    if "--renew" in sys.argv:
        renew(results)
    for failure in failures:
        print(failure)
    print(f"{PAGE.name}: {len(results)} commands, {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
