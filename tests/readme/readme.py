"""Checks that README.md is true: its three snippets, its configuration, its compiled step, its picture, the options of its
commands, fine-tuning in four commands, the files that README.md and the pages name, and its figures. Also checks that the
front page of the site shows the same commands, Python program and figures, and that the tests named by promises.md exist.

usage: readme.py SOURCE BUILD [--renew]     --renew: draws docs/images/plan.svg again
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from shown import difference

SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
LIBDS = str(BUILD / "bin" / "libds")
README = (SOURCE / "README.md").read_text()
FRONT = (SOURCE / "docs/README.md").read_text()
PICTURE = SOURCE / "docs" / "images" / "plan.svg"
SECTIONS = ["How fast", "Install and first run", "Fine-tune a Hugging Face folder", "Coming from DeepSpeed", "What works today",
            "Limitations", "Promises", "How it works", "Documentation"]
# The largest number of lines of an example on the first screen.
SNIPPET = 6
# The code that the Python snippet assumes, and the checks that follow it.
BEFORE = """import libds
batches = [(libds.zeros([64], "i32"), libds.zeros([64], "i32"))] * 3
"""
AFTER = """
assert engine is not None and loss < 6, loss
assert libds.checkpoint_info("checkpoints")["step"] == 3
"""
failures = []


def expect(good, what):
    if not good:
        failures.append(what)


def run(*words, cwd=SOURCE):
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True)
    expect(done.returncode == 0, f"{' '.join(map(str, words))}: exit code {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def shell(line, folder):
    done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True)
    expect(done.returncode == 0, f"{line}: exit code {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def write_text(folder):
    """Writes a folder of text for the commands that train."""
    (folder / "text").mkdir()
    (folder / "text/a.txt").write_text("the quick brown fox jumps over the lazy dog. " * 200)


def blocks(language):
    """Returns the fenced blocks of a language. '' selects the blocks without a language."""
    return [text for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S) if kind == language]


def command_snippet():
    """Returns the commands of the first screen."""
    return re.findall(r"^    (libds .*)$", README[:README.index("\n## ")], re.M)


def snippets(folder):
    """Runs the commands of the first screen, and its Python program if the Python module is built. Checks that docs/README.md
    shows both, and that delegate.c contains the C snippet's calls, in the same order."""
    screen, host, program = command_snippet(), blocks("c")[0], blocks("python")[0]
    for lines in (screen, host.splitlines(), program.splitlines()):
        expect(0 < len(lines) <= SNIPPET, f"a snippet of the first screen has {len(lines)} lines, not 1 to {SNIPPET}")
    for shown in (*(f"    {line}" for line in screen), program, *first_figures(README)):
        expect(" ".join(shown.split()) in " ".join(FRONT.split()), f"docs/README.md does not show what README.md does: {shown}")
    rest = (SOURCE / "examples/delegate.c").read_text()
    for call in re.findall(r"\bds_\w+\(.*\);", host):
        before, found, rest = rest.partition(f"must({call[:-1]});")
        expect(found, f"examples/delegate.c does not call this, or not in this order: {call}")
    if list((BUILD / "python/libds").glob("lowlevel*.so")):
        (folder / "gpt.json").write_text(json.dumps({
            "train_micro_batch_size_per_gpu": 4, "run": {"sequence": 16},
            "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
            "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2, "vocab": 256, "positions": 16}}))
        (folder / "snippet.py").write_text(BEFORE + program + AFTER)
        run("env", f"PYTHONPATH={BUILD / 'python'}", "/usr/bin/python3", "snippet.py", cwd=folder)
    (folder / "ds_config.json").write_text(blocks("json")[0])
    small = " --set run.sequence=16 --set run.steps=2 --set run.threads=1 --set data.tokenizer=bytes"
    for line in screen:
        line = line.split("#")[0].rstrip() + ("" if "generate" in line else small)
        line = line.replace("MODEL_DIR", f"'{SOURCE}/tests/data/models/gpt2'").replace("TEXT_DIR", "text")
        shell(re.sub(r"\blibds (?=[a-z])", f"'{LIBDS}' ", line), folder)


def c_program():
    page = (SOURCE / "docs/start/c_program.md").read_text()
    shown = re.search(r"^```c\n(.*?)^```$", page, re.M | re.S)[1]
    expect(shown == (SOURCE / "examples/quickstart.c").read_text(), "the first program of c_program.md is not examples/quickstart.c")


def configuration(folder):
    document = json.loads(blocks("json")[0])
    document["model"] = {"family": "gpt", "layers": 2, "hidden": 64, "heads": 4, "vocab": 256, "positions": 32}
    document["run"] = {"sequence": 32}
    (folder / "deepspeed.json").write_text(json.dumps(document))
    run(LIBDS, "plan", "--config", folder / "deepspeed.json", "-n", 2)


def compiled_step():
    step = run(LIBDS, "plan", "--config", "examples/train.json", "-n", 2, "--print").splitlines()
    for line in blocks("")[0].splitlines():
        expect(line.startswith("#") or line in step, f"no such instruction in the compiled step: {line}")


def picture(folder):
    drawn = folder / "plan.svg"
    run(LIBDS, "plan", "--config", "examples/gpt2_124m.json", "-n", 2, "--svg", drawn)
    if "--renew" in sys.argv:
        PICTURE.write_text(drawn.read_text())
    expect(PICTURE.exists() and drawn.read_text() == PICTURE.read_text(),
           "docs/images/plan.svg is not what libds plan --svg draws: run tests/readme/readme.py SOURCE BUILD --renew")
    style, _, shapes = drawn.read_text().partition("</style>")
    for colour in sorted(set(re.findall(r' ((?:fill|stroke)="#\w+")', shapes))):
        expect(f"[{colour}]" in style, f"the picture of a plan has no colour for dark pages in place of {colour}")


def commands():
    actions = run("./run", "help")
    for action in re.findall(r"\./run ([a-z-]+)", README):
        expect(f"./run {action} " in actions, f"./run has no action {action}")
    known = re.findall(r"^  ([a-z]+)  ", run(LIBDS, "help"), re.M) + ["launch"]
    expect("train" in known and "plan" in known, f"libds help names {known}")
    for command, options in re.findall(r"(?:`|^ +|bin/)libds ([a-z]+)\b([^\n`#]*)", README, re.M):
        expect(command in known, f"libds has no command {command}")
        # The options after launch may be those of the launched command.
        options = "" if command == "launch" else options
        for option in re.findall(r"(?<= )--?[a-z][a-z-]*", options):
            expect(re.search(rf"{option}\b", run(LIBDS, "help", command)), f"libds {command} has no option {option}")


def first_figures(text):
    """Returns the sentence of the first screen that contains figures, without its link, in a list."""
    return re.findall(r"^GPT-2 124M trains [^(]*", text, re.M)


def figures():
    """Checks that the table of results contains the ratios of the first screen and that its ratios are right. Checks that the
    page of benchmarks contains the other figures of the table, and those of the flagship run."""
    page = (SOURCE / "docs/results/benchmarks.md").read_text()
    rows = re.findall(r"^\| .* \| ([\d,]+) \| ([\d,]+), .* \| ([\d.]+) \| `(.*)` \|$", README, re.M)
    expect(len(rows) == 5, f"the table of results has {len(rows)} rows, not 5")
    ratios = re.findall(r"([\d.]+) times as fast", "".join(first_figures(README)))
    expect(len(ratios) == 3 and set(ratios) <= {row[2] for row in rows}, f"the first screen has the figures {ratios}")
    for ours, theirs, ratio, command in rows:
        mine, other = (float(one.replace(",", "")) for one in (ours, theirs))
        expect(abs(mine / other - float(ratio)) < 0.006, f"{ours} over {theirs} is not {ratio}")
        for figure in (ours, theirs):
            expect(re.search(rf"\b{figure.replace(',', ',?')}\b", page), f"{figure} of `{command}` is not in benchmarks.md")
    for figure in re.search(r"^bits per byte .*$", README, re.M)[0].replace("-9 ", " ").split("bytes:")[1].split(","):
        expect(re.search(rf"\b{figure.split()[-1]}\b", page), f"'{figure.strip()}' is not in benchmarks.md")


def names():
    """Checks the paths that README, the examples' README and the pages name, the sections of README, and the tests of
    promises.md."""
    sections = re.findall(r"^## (.*)$", README, re.M)
    expect(sections == SECTIONS, f"README has the sections {sections}")
    kinds = set(re.findall(r"^```(\w*)\n.*?^```$", README, re.M | re.S))
    expect(kinds == {"", "c", "json", "python", "text"}, f"README has blocks of {kinds}, which are not all compared")
    for page in [SOURCE / "README.md", SOURCE / "examples/README.md", *sorted((SOURCE / "docs").rglob("*.md"))]:
        text = page.read_text()
        for path in re.findall(r"(?<![\w/.-])((?:examples|bench|tests|tools|cmake)/[\w/.-]*\w\.(?:json|c|cpp|h|py|sh|md|txt))\b", text):
            expect((SOURCE / path).exists(), f"{page.relative_to(SOURCE)} names {path}, which does not exist")
        for path in re.findall(r"`([\w-]+\.(?:json|c|py|txt))`", text) if page.parent.name == "examples" else []:
            expect((page.parent / path).exists(), f"examples/README.md names {path}, which does not exist")
    tests = re.findall(r"Test +#\d+: (\S+)", run("ctest", "--test-dir", BUILD, "-N"))
    for line in (SOURCE / "docs/concepts/promises.md").read_text().splitlines():
        for name in re.findall(r"`([a-z]+\.[\w.*/]+)`", line.split("|")[2]) if line.count("|") == 3 else []:
            pattern = re.escape(name).replace(r"\*", ".*")
            expect(any(re.match(pattern + "$", test) for test in tests), f"promises.md names {name}, which is no test")


def fine_tuning(folder):
    """Runs the four commands on a tiny folder, with paths in place of README's placeholders."""
    document = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                "zero_optimization": {"stage": 3}, "data": {"tokenizer": "bytes", "heldout": 0.1},
                "model": {"folder": str(SOURCE / "tests/data/models/gpt2"), "dropout": 0},
                "run": {"sequence": 16, "steps": 4, "threads": 1, "sample_tokens": 0}}
    (folder / "MY.json").write_text(json.dumps(document))
    section = README[README.index("## Fine-tune"):]
    lines = re.findall(r"^    (build/bin/libds .*)$", section[:section.index("\n## ")], re.M)
    expect(len(lines) == 4, f"fine-tuning takes {len(lines)} commands, not 4")
    for line in lines:
        # The first run ends early, so that steps remain for the resumed run.
        early = " --steps 2" if "--data" in line else " --steps 4" if "--resume" in line else ""
        line = line.split("#")[0].rstrip() + early
        line = line.replace("build/bin/libds", LIBDS).replace("TEXT_DIR", "text")
        printed = shell(line, folder)
        expect("--resume" not in line or "nothing is left" not in printed, f"{line}: {printed[-500:]}")
    expect((folder / "tuned" / "model" / "config.json").exists(), "fine-tuning leaves no folder")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "first").mkdir()
        for each in (folder, folder / "first"):
            write_text(each)
        snippets(folder / "first")
        c_program()
        configuration(folder)
        compiled_step()
        picture(folder)
        commands()
        figures()
        names()
        fine_tuning(folder)
    for failure in failures:
        print(failure)
    print(f"README: {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
