"""Compares the numbers of a run that libds writes to Weights & Biases and Comet with DeepSpeed's (./run interop monitors).

Both packages are used offline. They write what they would send later to a `.wandb` file and a zip archive in a temporary
folder, from which this program reads the numbers back. libds writes from an engine in f16 with accumulation and skipped
steps, from `libds.train`, and into runs that its caller has begun. Names, values and steps must equal those of the step
results. DeepSpeed's WandbMonitor and CometMonitor get the same events and must write the same files. Finally, an engine of
DeepSpeed trains with both of its monitors enabled. libds must send the same values at the same samples, except that
DeepSpeed's rate and loss scale are already those of the next step. A listener in place of a proxy must see no attempt to
reach the network.
"""
import collections
import contextlib
import glob
import json
import math
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, ROWS, LEAVES, WIDTH = 12, 3, 2, 16
SAMPLES = ROWS * LEAVES
# For steps that overflow, counted from 1, the value of one input.
OVERFLOWS = {3: math.inf, 8: math.nan}
# Samples between points of Comet: every third step.
INTERVAL = 18
SETTINGS = {"train_micro_batch_size_per_gpu": ROWS, "gradient_accumulation_steps": LEAVES,
            "fp16": {"enabled": True, "initial_scale_power": 1, "loss_scale_window": 3, "hysteresis": 1},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 9}}}
OTHER_VALUES = {"Mine/large": math.inf, "Mine/small": 5e-324, "Mine/third": 1 / 3, "Mine/whole": 7, "Mine/none": math.nan}
failed = []

# A run in one of the packages; `points` is {name: [(step, value), ...]}.
Run = collections.namedtuple("Run", "facts points")


def sections(project, interval=INTERVAL, **more):
    """Returns the two sections of a configuration, with DeepSpeed's keys."""
    return {"wandb": {"enabled": True, "project": project, "group": "night", "team": "us"},
            "comet": {"enabled": True, "online": False, "samples_log_interval": interval, "project": project,
                      "workspace": "ours", "mode": "create", **more}}


NAMED = {"experiment_name": "first", "experiment_key": "0123456789abcdef" * 2}


def check(name, ok, detail=""):
    print(f"{'ok  ' if ok else 'FAIL'} {name} {detail if not ok else ''}".rstrip(), flush=True)
    if not ok:
        failed.append(name)


# ---------------------------------------------------------------- the senders, one process for each side


def libds_engine(libds, np):
    """Sends the step results of an engine to both packages, and a number of the caller after the last step."""
    graph = libds.Graph("linear", rows=ROWS)
    x, target = graph.input("x", "f16", [None, WIDTH]), graph.input("target", "f16", [None, WIDTH])
    weight = graph.op("cast", graph.param("w", [WIDTH, WIDTH], "normal", 0.1), dtype="f16")
    graph.output("loss", graph.op("mse", graph.op("linear", x, weight), target))
    config = SETTINGS | sections("steps", **NAMED) | {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    rows, results = np.random.default_rng(1), []
    with libds.Monitors(config) as monitors, libds.Engine(monitors.config, graph, threads=1) as engine:
        for step in range(1, STEPS + 1):
            xs, targets = (rows.standard_normal((SAMPLES, WIDTH)).astype(np.float16) for _ in range(2))
            xs[0, 0] = OVERFLOWS.get(step, xs[0, 0])
            engine.train_batch(xs, targets)
            results.append(engine.last_step._asdict())
            monitors.step(engine.last_step)
        monitors.write(STEPS + 1, OTHER_VALUES)
    return results


def libds_train(libds, folder):
    """Sends the progress of a run of libds.train by the run's monitors."""
    text = os.path.join(folder, "text.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write("to train or not to train " * 400)
    config = sections("train", 1) | {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "data": {"paths": [text]},
        "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2},
        "run": {"dir": os.path.join(folder, "run"), "eval_samples": 2, "eval_every": 2, "steps": 5, "sequence": 16,
                "threads": 1}}
    seen = []
    libds.train(config, progress=lambda now: seen.append(now._asdict()))
    return seen


def libds_in_begun_runs(libds):
    """Checks that libds writes to runs of the caller and leaves them open, and that a run that libds has begun ends if the
    other monitor fails."""
    import comet_ml
    import wandb

    wandb.init(project="own")
    experiment = comet_ml.start(project_name="own", online=False)
    config = {"train_batch_size": 5, "wandb": {"enabled": True}, "comet": {"enabled": True, "online": False}}
    with libds.Monitors(config) as monitors:
        monitors.write(1, {"a": 0.5})
    goes_on = wandb.run is not None and not experiment.ended
    if goes_on:
        wandb.log({"a": 0.25}, step=10)
        experiment.log_metric("a", 0.25, step=10)
        wandb.finish()
        experiment.end()
    try:
        # Comet needs a key, which is not set.
        libds.Monitors(config | {"comet": {"enabled": True, "online": False, "mode": "get"}})
        refused = False
    except Exception:
        refused = wandb.run is None
    return {"goes on": goes_on, "ends where the other fails": refused}


def side_libds(folder):
    import numpy as np

    sys.path.insert(0, str(ROOT / "build" / "python"))
    import libds

    return {"steps": libds_engine(libds, np), "train": libds_train(libds, folder), "own": libds_in_begun_runs(libds)}


def join_deepspeed(folder):
    import deepspeed

    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False, init_method=f"file://{folder}/store", rank=0,
                               world_size=1)
    return deepspeed


def side_deepspeed(folder):
    """Sends the events of libds's steps through DeepSpeed's two classes."""
    join_deepspeed(folder)
    import wandb
    from deepspeed.monitor.comet import CometMonitor
    from deepspeed.monitor.config import get_monitor_config
    from deepspeed.monitor.wandb import WandbMonitor

    with open(os.path.join(os.path.dirname(folder), "libds", "results.json"), encoding="utf-8") as file:
        events = events_of_steps(json.load(file)["steps"], with_nan=True)
    config = get_monitor_config(sections("steps", **NAMED))
    monitors = WandbMonitor(config.wandb), CometMonitor(config.comet)
    for event in events:
        for monitor in monitors:
            monitor.write_events([event])
    wandb.finish()
    monitors[1].experiment.end()
    return {}


def side_engine(folder):
    """Trains an engine of DeepSpeed with DeepSpeed's monitors, the same settings, and overflows in the same steps."""
    deepspeed = join_deepspeed(folder)
    import torch
    from deepspeed.accelerator import get_accelerator

    torch.set_num_threads(1)
    torch.manual_seed(1)
    # DeepSpeed can compute fp16 on a CPU, but refuses it.
    get_accelerator().is_fp16_supported = lambda: True
    model = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    config = SETTINGS | sections("steps", **NAMED) | {
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}, "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for step in range(1, STEPS + 1):
        for _ in range(LEAVES):
            x = torch.randn(ROWS, WIDTH).half()
            x[0, 0] = OVERFLOWS.get(step, x[0, 0])
            engine.backward(engine(x).float().pow(2).mean())
            engine.step()
    # DeepSpeed does not end these two runs.
    engine.monitor.comet_monitor.experiment.end()
    import wandb

    wandb.finish()
    return {"skipped": engine.skipped_steps}


SIDES = {"libds": side_libds, "deepspeed": side_deepspeed, "engine": side_engine}


# ---------------------------------------------------------------- the expected events


def events_of_steps(results, with_nan=False):
    """Returns (name, value, samples) of step results of fp16, in order."""
    events = []
    for result in results:
        at = SAMPLES * result["step"]
        if not math.isnan(result["loss"]):
            events.append(("Train/Samples/train_loss", result["loss"], at))
        events.append(("Train/Samples/lr", result["lr"], at))
        if not result["skipped"]:
            events.append(("Train/Samples/grad_norm", result["grad_norm"], at))
        events.append(("Train/Samples/loss_scale", result["loss_scale"], at))
    last = SAMPLES * (len(results) + 1)
    return events + [(name, value, last) for name, value in OTHER_VALUES.items() if with_nan or not math.isnan(value)]


def events_of_progress(results, samples):
    events = []
    for result in results:
        at = samples * result["step"]
        events += [("Train/Samples/train_loss", result["loss"], at), ("Train/Samples/lr", result["lr"], at),
                   ("Train/Samples/grad_norm", result["grad_norm"], at),
                   ("Train/tokens_per_second", result["tokens_per_second"], at)]
        if not math.isnan(result["heldout_loss"]):
            events.append(("Eval/Samples/eval_loss", result["heldout_loss"], at))
    return events


def points_of(events, interval=1):
    """Returns {name: [(step, value), ...]}. Of each name, a step is kept only if it is at least `interval` after the last kept
    step."""
    points = {}
    for name, value, step in events:
        kept = points.setdefault(name, [])
        if not kept or step - kept[-1][0] >= interval:
            kept.append((step, value))
    return points


# ---------------------------------------------------------------- the files of the packages


def wandb_records(path):
    """Yields the records of a `.wandb` file: a log of LevelDB with blocks of 32 KiB, after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data = pathlib.Path(path).read_bytes()
    at, whole = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            # The rest of the block is too short for a header.
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7:at + 7 + size]
        at += 7 + size
        # Kinds are 1 full, 2 first, 3 middle, 4 last.
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def wandb_runs(folder):
    """Returns {project: Run} of all runs in a folder."""
    runs = {}
    for path in sorted(glob.glob(os.path.join(folder, "wandb", "offline-run-*", "*.wandb"))):
        facts, points = None, {}
        for record in wandb_records(path):
            if record.HasField("run") and facts is None:
                facts = {"project": record.run.project, "group": record.run.run_group, "team": record.run.entity}
            for item in record.history.item if record.HasField("history") else ():
                name = item.key or "/".join(item.nested_key)
                # wandb adds the names _step, _runtime and _timestamp.
                if not name.startswith("_"):
                    points.setdefault(name, []).append((record.history.step.num, json.loads(item.value_json)))
        assert facts["project"] not in runs, f"two runs of {facts['project']}"
        runs[facts["project"]] = Run(facts, points)
    return runs


def comet_runs(folder):
    """Returns {project: Run} of all archives in a folder."""
    runs = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.zip"))):
        with zipfile.ZipFile(path) as archive:
            about = json.loads(archive.read("experiment.json"))
            messages = [json.loads(line) for line in archive.read("messages.json").splitlines()]
        facts = {"project": about["project_name"], "workspace": about["workspace"], "experiment_key": about["offline_id"],
                 "mode": about["resume_strategy"], "experiment_name": None}
        points = {}
        for message in messages:
            payload = message["payload"]
            if message["type"] == "log_other" and payload["key"] == "Name":
                facts["experiment_name"] = payload["value"]
            metric = payload.get("metric") if message["type"] == "metric_msg" else None
            if metric and not metric["metricName"].startswith("sys.") and metric["metricName"] != "process duration":
                # Comet writes infinity and NaN as texts.
                value = metric["metricValue"]
                points.setdefault(metric["metricName"], []).append(
                    (metric["step"], float(value) if isinstance(value, str) else value))
        assert facts["project"] not in runs, f"two archives of {facts['project']}"
        runs[facts["project"]] = Run(facts, points)
    return runs


# ---------------------------------------------------------------- the sides, without a network


@contextlib.contextmanager
def no_network():
    """Runs a proxy that records and drops every connection. Yields (environment, attempts)."""
    attempts = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def drop():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(5)
                        attempts.append(connection.recv(200).split(b"\r\n")[0].decode("latin-1"))

        threading.Thread(target=drop, daemon=True).start()
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield {name: proxy for key in ("http", "https", "all") for name in (f"{key}_proxy", f"{key}_proxy".upper())}, attempts
        listener.shutdown(socket.SHUT_RDWR)


def run_side(side, folder, proxies):
    """Runs one side. Returns its result, and its runs in both packages."""
    place = os.path.join(folder, side)
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(("WANDB_", "COMET_", "NO_PROXY"))}
    # The packages leave settings and other files here.
    settings = os.path.join(place, "settings")
    os.makedirs(settings)
    environment = kept | proxies | {
        "WANDB_MODE": "offline", "WANDB_DIR": place, "WANDB_CONFIG_DIR": settings, "WANDB_CACHE_DIR": settings,
        "WANDB_DATA_DIR": settings, "TMPDIR": settings, "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false",
        "COMET_OFFLINE_DIRECTORY": place, "COMET_CONFIG": os.path.join(settings, "comet.config"),
        "COMET_LOGGING_CONSOLE": "error", "COMET_AUTO_LOG_ENV_DETAILS": "false", "COMET_INTERNAL_SENTRY_DSN": "",
        "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    done = subprocess.run([sys.executable, os.path.abspath(__file__), side, place], env=environment, cwd=place, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{side} ended with {done.returncode}\n{done.stdout[-3000:]}")
    with open(os.path.join(place, "results.json"), encoding="utf-8") as file:
        return json.load(file), wandb_runs(place), comet_runs(place)


def compare(what, run, events, facts, interval=1):
    """Compares a Run with the events that were sent and with the keys of its section."""
    expected = points_of(events, interval)
    wrong = [f"{name}: {run.points.get(name)} beside {expected.get(name)}"
             for name in sorted(run.points.keys() | expected.keys()) if run.points.get(name) != expected.get(name)]
    check(f"{what}: {sum(map(len, expected.values()))} values of {len(expected)} names", not wrong, "\n     ".join(wrong[:3]))
    known = sorted(run.facts.keys() & facts.keys())
    if known:
        check(f"{what}: {', '.join(known)}", all(run.facts[key] == facts[key] for key in known), (run.facts, facts))


def check_libds(results, wandb, comet):
    steps, named = results["steps"], sections("steps", **NAMED)
    check(f"{STEPS} steps, skipped: {', '.join(map(str, OVERFLOWS))}; scales 1 and more",
          [now["step"] for now in steps if now["skipped"]] == list(OVERFLOWS)
          and min(now["loss_scale"] for now in steps) == 1 < max(now["loss_scale"] for now in steps), steps)
    events = events_of_steps(steps)
    compare("engine, wandb", wandb["steps"], events, named["wandb"])
    compare("engine, comet", comet["steps"], events, named["comet"], INTERVAL)
    count = {name: len(points) for name, points in comet["steps"].points.items() if name.startswith("Train/")}
    check("comet has left some out", all(1 < number < STEPS - len(OVERFLOWS) for number in count.values()), count)
    events = events_of_progress(results["train"], samples=4)
    check("train: 5 steps, some with a held-out loss",
          len(results["train"]) == 5 and 1 < len(points_of(events)["Eval/Samples/eval_loss"]) < 5, results["train"])
    compare("train, wandb", wandb["train"], events, sections("train")["wandb"])
    compare("train, comet", comet["train"], events, sections("train")["comet"])
    for what, held in results["own"].items():
        check(f"what the caller has begun {what}" if what == "goes on" else f"what was begun {what}", held)
    events = [("a", 0.5, 5), ("a", 0.25, 10)]
    compare("the caller's run, wandb", wandb["own"], events, {})
    compare("the caller's run, comet", comet["own"], events, {})


def check_deepspeed(mine, wandb, comet):
    """Checks that DeepSpeed's classes have written the same as libds, except NaN, which libds does not send."""
    for what, ours, theirs in (("wandb", mine[1], wandb), ("comet", mine[2], comet)):
        ours, theirs = ours["steps"], theirs["steps"]
        (_, lost), = theirs.points.pop("Mine/none")
        wrong = {name: (ours.points.get(name), theirs.points.get(name)) for name in ours.points.keys() | theirs.points.keys()
                 if ours.points.get(name) != theirs.points.get(name)}
        check(f"DeepSpeed's {what} monitor writes the same points; NaN it alone", not wrong and math.isnan(lost), wrong)
        check(f"DeepSpeed's {what} monitor names the same run", ours.facts == theirs.facts, (ours.facts, theirs.facts))


def check_engine(mine, results, wandb, comet):
    """Checks the values of DeepSpeed's engine, which sends at each step the rate and the scale of the next step."""
    steps = mine[0]["steps"]
    check("DeepSpeed's engine skips as many steps", results["skipped"] == len(OVERFLOWS), results)
    events = [(f"Train/Samples/{key}", later[key], SAMPLES * now["step"])
              for now, later in zip(steps, steps[1:]) for key in ("lr", "loss_scale")]
    for what, run, interval in (("wandb", wandb["steps"], 1), ("comet", comet["steps"], INTERVAL)):
        sent = {name: [point for point in points if point[0] < SAMPLES * STEPS]
                for name, points in run.points.items() if name.startswith("Train/")}
        expected = points_of(events, interval)
        near = sent.keys() == expected.keys() and all(
            [at for at, _ in sent[name]] == [at for at, _ in expected[name]]
            and all(math.isclose(a, b, rel_tol=1e-12) for (_, a), (_, b) in zip(sent[name], expected[name])) for name in sent)
        check(f"DeepSpeed's engine, {what}: lr and loss_scale at the same samples", near, (sent, expected))


def main():
    if len(sys.argv) == 3:
        results = SIDES[sys.argv[1]](sys.argv[2])
        with open(os.path.join(sys.argv[2], "results.json"), "w", encoding="utf-8") as file:
            json.dump(results, file)
        return 0
    with tempfile.TemporaryDirectory(prefix="libds-monitors-") as folder, no_network() as (proxies, attempts):
        mine = run_side("libds", folder, proxies)
        check_libds(*mine)
        check_deepspeed(mine, *run_side("deepspeed", folder, proxies)[1:])
        check_engine(mine, *run_side("engine", folder, proxies))
        check("nothing has asked for the network", not attempts, attempts)
    print(f"monitors: {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
