"""Compares random Hugging Face model folders, computed by libds and by Transformers (./run interop models).

usage: models.py [N] [--seed S] [--only INDEX] [--published DIR] [--keep DIR]

Draws N folders, of each family that libds has in turn, with any options of its configuration (model_folders.py). For each
folder, Transformers computes logits, loss, gradients, a greedy continuation and a few training steps in float32 and in float64,
and `libds verify` does the same on one rank or two. A number of libds is wrong if its distance from the float64 number is more
than ten times the distance of Transformers' float32 number, and more than a few roundings (tools/make_golden.py). A folder
whose tolerances would be wider than 1 % is `vague` and not compared; at most MOST_VAGUE of the folders may be vague. Prints a
line for each folder that does not pass, which --only repeats and explains, and a table. Fails on a wrong number, a crash, a
hang, or a refusal that docs/reference/models.md does not explain (LIMITS below).

--published DIR: uses every config.json of DIR instead, with tiny sizes and all other keys unchanged.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_golden
import model_folders
import torch
import transformers
from distance import largest

LIBDS = ROOT / "build" / "bin" / "libds"
# Seconds allowed for one libds command, on a busy machine.
TIMEOUT = 60.0
# Refusals of libds that docs/reference/models.md explains: the message, and the condition on the folder's config.json.
LIMITS = [
    (r"must leave an even number of columns for yarn", r'"yarn"'),
    (r"key '[a-z_.]*partial_rotary_factor' of a \w+ model must be 1", r'"partial_rotary_factor": (?!1[,.\n])'),
]
# The largest share of folders that Transformers may refuse. It accepts nearly everything that the generator draws.
MOST_SKIPPED = 0.1
# The largest share of folders that may be vague: their numbers are mostly rounding, so they cannot be compared.
MOST_VAGUE = 0.05
OUTCOMES = ["passed", "limit", "WRONG", "CRASH", "HANG", "REFUSED", "vague", "skipped"]
Result = collections.namedtuple("Result", "index family outcome detail")


def is_limit(folder, message):
    config = (folder / "config.json").read_text()
    return any(re.search(words, message) and re.search(cause, config) for words, cause in LIMITS)


def libds(words, ranks=1):
    """Returns the exit code (None if the command hung), stdout, and the last line of stderr."""
    launch = [LIBDS, "launch", "-n", str(ranks)] if ranks > 1 else []
    try:
        done = subprocess.run([*launch, LIBDS, *words], capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return None, "", ""
    message = [line for line in done.stderr.splitlines() if not line.startswith("libds launch")]
    return done.returncode, done.stdout, message[-1] if message else ""


def verify(index, family, folder, setup):
    words = ["verify", folder, "--json", "--stage", str(setup.stage), "--tier", setup.tier, "--nvme-path", folder]
    code, text, message = libds(words, setup.ranks)
    if code is None:
        return Result(index, family, "HANG", f"no end after {TIMEOUT:.0f} s")
    if code in (0, 1) and text.startswith("{"):
        findings = json.loads(text)["findings"]
        beyond = [f"{f['kind']} {f['measure']} {f['error']:.2g} of {f['tolerance']:.2g} at {f['where']}"
                  for f in findings if f.get("beyond")]
        refused = [place for f in findings for place in f["refused"]]
        if beyond:
            return Result(index, family, "WRONG", "; ".join(beyond))
        if refused:
            return Result(index, family, "limit" if all(is_limit(folder, one) for one in refused) else "REFUSED", refused[0])
        share, where = largest({f"{i} {f['where']}": f["error"] / f["tolerance"] for i, f in enumerate(findings) if f["tolerance"]})
        if code != 0 or not share <= 1:
            return Result(index, family, "WRONG", f"exit code {code}, largest share {share:.2f} at {where}")
        return Result(index, family, "passed", f"{len(findings)} comparisons, largest share {share:.2f}")
    if code in (1, 2) and message:
        return Result(index, family, "limit" if is_limit(folder, message) else "REFUSED", message)
    return Result(index, family, "CRASH", f"exit code {code} {message}")


def generate(index, family, folder):
    """Runs `libds generate` on the recorded prompts. Returns None if it prints the recorded tokens."""
    record = json.loads((folder / "golden.json").read_text())
    for text in record.get("greedy", []):
        ids = ",".join(str(one) for one in text["prompt"])
        code, output, wrong = libds(["generate", folder, "--ids", ids, "--tokens", str(len(text["tokens"])), "--temperature",
                                   "0", "--ignore-eos"])
        if code is None:
            return Result(index, family, "HANG", "libds generate")
        if code != 0:
            outcome = "CRASH" if code not in (1, 2) else "limit" if is_limit(folder, wrong) else "REFUSED"
            return Result(index, family, outcome, f"libds generate: {wrong}")
        got = [int(word) for word in output.split()]
        for mine, theirs, margin in zip(got, text["tokens"], text["margin"], strict=True):
            if mine != theirs and margin > record["tolerance"]["logits"]["abs"]:
                return Result(index, family, "WRONG", f"libds generate --ids {ids}: {got}, not {text['tokens']}")
            if mine != theirs:
                break
    return None


def survive(result, folder):
    """Checks that libds does not crash on a folder that Transformers refuses. libds may accept or refuse the folder."""
    code, _, message = libds(["generate", folder, "--ids", "1,2", "--tokens", "2", "--temperature", "0"])
    if code not in (0, 1, 2):
        return result._replace(outcome="HANG" if code is None else "CRASH", detail=f"{message}; {result.detail}")
    return result


@contextlib.contextmanager
def quiet():
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def record(folder, setup, seed):
    """Writes golden.* of the folder, as Transformers loads it."""
    words = [str(folder), "--rows", setup.rows, "--tokens", setup.tokens, "--padding", setup.padding, "--seed", seed,
             "--steps", 3, "--new-tokens", setup.new_tokens] + ([] if setup.bf16 else ["--no-bf16"])
    with quiet():
        make_golden.write(folder, *make_golden.record(folder, make_golden.options([str(word) for word in words])))


def missing(folder, family):
    """Returns weights that Transformers does not find in the folder and initializes itself."""
    _, info = model_folders.auto_model(family).from_pretrained(folder, output_loading_info=True)
    unread = {"cls.predictions.bias", "cls.predictions.decoder.bias"}
    return sorted(set(info["missing_keys"]) - unread)


def prepare(index, family, folder, make):
    """Creates a folder by make(), with the results of Transformers, as a job of run_all."""
    try:
        setup = make()
        lost = missing(folder, family)
        if not lost:
            record(folder, setup, 0)
            return None, (index, family, folder, setup)
        message = f"does not find {lost[:2]}"
    except make_golden.Vague as vague:
        return survive(Result(index, family, "vague", str(vague)), folder), None
    except Exception as error:  # Transformers refuses in any way
        message = f"{type(error).__name__}: {error}"
    return survive(Result(index, family, "skipped", f"Transformers: {message}"), folder), None


def check_folder(index, family, folder, setup, keep):
    result = verify(index, family, folder, setup)
    if result.outcome == "passed" and setup.generate:
        result = generate(index, family, folder) or result
    if keep is not None:
        shutil.copytree(folder, keep / folder.name, dirs_exist_ok=True)
    shutil.rmtree(folder)
    return result


def tell(result):
    if result.outcome not in ("passed", "limit"):
        most = 150 if result.outcome in ("skipped", "vague") else 600
        print(f"{result.index}: {result.family} {result.outcome}: {' '.join(result.detail.split())[:most]}", flush=True)


def table(results):
    print(f"{'family':<12}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES))
    for family in sorted({result.family for result in results}) + ["all"]:
        mine = [result.outcome for result in results if family in (result.family, "all")]
        print(f"{family:<12}" + "".join(f"{mine.count(outcome):>9}" for outcome in OUTCOMES))


def run_all(jobs, keep):
    """Runs all jobs and returns their results. `jobs` yields (result, None) or (None, arguments of check_folder). libds runs
    in parallel with Transformers."""
    results = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = []
        for result, arguments in jobs:
            running.append(pool.submit(lambda r=result: r) if arguments is None
                           else pool.submit(check_folder, *arguments, keep))
            while len(running) > 4 or (running and running[0].done()):
                results.append(running.pop(0).result())
                tell(results[-1])
        for one in running:
            results.append(one.result())
            tell(results[-1])
    return results


def random_jobs(root, args):
    for index in [args.only] if args.only is not None else range(args.count):
        folder = root / str(index)
        job = prepare(index, model_folders.family_of(index), folder, lambda: model_folders.make(folder, args.seed, index))
        if args.only is not None:
            print(job[0] or "", (folder / "config.json").read_text(), job[1] and job[1][-1], sep="")
        yield job


def published_jobs(root, args):
    """Yields a job for each file on one rank, and one with left padding on two ranks."""
    for path in sorted(args.published.glob("*.json")):
        family = json.loads(path.read_text()).get("model_type")
        for padding, ranks in [("none", 1), ("left", 2)] if family in model_folders.FAMILIES else []:
            folder = root / f"{path.stem}.{ranks}"
            yield prepare(path.stem, family, folder,
                          lambda: model_folders.published(folder, path, padding, ranks))


def passes_published(results):
    """Prints how many files pass every comparison of both settings. Returns True if at most three of those that
    Transformers loads fail, and none ends in a crash or a hang."""
    loaded = {result.index for result in results if result.outcome != "skipped"}
    short = {result.index for result in results if result.index in loaded and result.outcome != "passed"}
    print(f"{len(loaded) - len(short)} of {len(loaded)} published configurations pass everything")
    return loaded and len(short) <= 3 and not any(result.outcome in ("CRASH", "HANG") for result in results)


def passes_random(results):
    """Returns True if every folder ends as passed, limit, vague or skipped, few are skipped or vague, and a sufficient
    number of each family passes, at least one."""
    if not any(result.outcome in ("passed", "limit") for result in results):
        print("models: nothing was compared")
        return False
    if any(result.outcome not in ("passed", "limit", "vague", "skipped") for result in results):
        return False
    for outcome, most in [("skipped", MOST_SKIPPED), ("vague", MOST_VAGUE)]:
        count = sum(result.outcome == outcome for result in results)
        if len(results) > 1 and count > most * len(results):
            print(f"models: {count} of {len(results)} folders are {outcome}, at most {most:.0%} may be")
            return False
    families = {result.family for result in results}
    silent = families - {result.family for result in results if result.outcome == "passed"}
    if len(results) >= 5 * len(families) and silent:
        print(f"models: no folder of {', '.join(sorted(silent))} passes")
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="INDEX", help="one folder, with its configuration")
    parser.add_argument("--published", type=pathlib.Path, metavar="DIR", help="config.json files instead of random ones")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the folders here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    os.environ["DS_LOG"] = "error"
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        jobs = published_jobs if args.published else random_jobs
        results = run_all(jobs(pathlib.Path(root), args), args.keep)
    table(results)
    shares = sorted(float(r.detail.split()[-1]) for r in results if r.outcome == "passed")
    if shares:
        print(f"largest share of a tolerance: median {shares[len(shares) // 2]}, most {shares[-1]}")
    print(f"{len(results)} folders in {time.monotonic() - begin:.0f} s, seed {args.seed}")
    return 0 if (passes_published if args.published else passes_random)(results) else 1


if __name__ == "__main__":
    sys.exit(main())
