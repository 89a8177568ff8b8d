#!/usr/bin/env python3
"""Changes recorded numbers, one field at a time, and runs the tests that read them: one must fail (mutate_records.py BUILD [NUMBER [SEED]]).

Of each file NUMBER changes are drawn (2; 0: all are made): another value, another name, or a field that nobody knows in a record.
An input may decide nothing in one record, as a limit does that nothing reaches: a value that is not noticed is changed in all
records of the list, where it must be. What need not be noticed at all is in UNREAD, with the reason. The files are copied;
DS_SEMANTICS and DS_TEST_DATA name the copies.
"""
import copy
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
# Of each recording the tests that read it.
READERS = {
    "semantics/activations.json": [("test_conformance", "RecordedLayers.*")],
    "semantics/batch_config.json": [("test_core", "Config.batch_triangle*:Config.decisions*")],
    "semantics/flops_profile.json": [("test_nn", "ModuleCost.*")],
    "semantics/hostfile.json": [("test_launch", "Hostfile.*")],
    "semantics/loss_scaler.json": [("test_core", "LossScaler.*")],
    "semantics/lr_schedules.json": [("test_core", "Config.*schedules*")],
    "semantics/onebit.json": [("test_conformance", "Signs.AllReduce*"), ("test_training", "OneBitRecorded.*")],
    "semantics/optimizers.json": [("test_training", "OptimizerSemantics.*")],
    "semantics/partition.json": [("test_core", "Partition.*")],
    "semantics/zero_flat.json": [("test_checkpoint", "DeepSpeedLayout.*")],
    "curriculum.json": [("test_core", "Curriculum.*")],
    "dynamic_batches.json": [("test_data", "DynamicBatches.*")],
    "trainer_schedules.json": [("test_core", "Config.schedules_are_transformers")],
}
ABOUT = {"topic", "about", "source", "versions", "seed", "notes", "transformers", "tolerance"}
# (file, pattern of "kind path", why nothing notices it).
UNREAD = [
    (r".*", r"value .*\.(message|error|note|validation.*)$", "words of another program"),
    (r".*/partition.json", r".* \.(partitioned_tensor|pipeline_module|topology)\b", "libds has no such"),
    (r".*/flops_profile.json", r".* \.ops\b", "functions are no modules"),
    (r".*/flops_profile.json", r"value .*\.type$", "classes of torch"),
    (r".*/flops_profile.json", r".* \.modules\[\d+\]\.kwargs\b", "most modules are none of libds"),
    (r".*/batch_config.json", r".* \.(text|engine)\b", "decided by the class that torch or DeepSpeed has for it"),
    (r".*/batch_config.json", r".*\.validation\b", "words of another program"),
    (r".*/batch_config.json", r".*\.config\b", "what no program reads decides nothing, and one decision is that of many values"),
    (r".*/batch_config.json", r"value .*\.offload_(optimizer|param)\.(?!device)", "defaults that libds has no keys for"),
    (r".*/batch_config.json", r"value .*\.differs_from_default\.(optimizer|scheduler|compute_grad_norm|gather_16bit.*|"
     r"gradient_allreduce_op|prescale_gradients|tag_validation.*|wall_clock_breakdown)$", "does nothing here, or is a name"),
    (r".*/onebit.json", r"value .*\.trace\[\d+\]\.(var_counter|local_step_counter|lamb_coeff.*|last_factor|scaling_coeff)",
     "DeepSpeed's way to the results that are compared"),
    (r".*/optimizers.json", r"value .*\.(lamb_coeff.*|grad_scale|zeros)$", "on the way to the results, or to the arrays"),
    (r".*/zero_flat.json", r"value .*\.(stage|dtype)$", "the layouts do not depend on it"),
]


def leaves(value, path=()):
    """Every field and every element, outermost first."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if not path and key in ABOUT:
            continue
        yield from leaves(inner, (*path, key))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def other(value):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.5 if value else 1.0
    if isinstance(value, str):
        return value + "x"
    return 1


def changes(document):
    """(kind, path) of all that can be done."""
    for path in leaves(document):
        value = at(document, path)
        if isinstance(value, dict):
            yield "field", path
        elif not isinstance(value, list):
            yield "value", path
        if isinstance(path[-1], str):
            yield "name", path


def changed(document, kind, path):
    document = copy.deepcopy(document)
    above = at(document, path[:-1])
    if kind == "field":
        at(document, path)["a_field_that_nobody_knows"] = 1
    elif kind == "value":
        above[path[-1]] = other(above[path[-1]])
    else:
        renamed = {(key + "_" if key == path[-1] else key): value for key, value in above.items()}
        above.clear()
        above.update(renamed)
    return document


def everywhere(document, path):
    """Another value of this field in all records and places of lists."""
    def walk(value, keys):
        if not keys:
            return other(value) if not isinstance(value, (dict, list)) else value
        if isinstance(value, list):
            return [walk(one, keys[1:]) for one in value] if isinstance(keys[0], int) else value
        if isinstance(value, dict) and keys[0] in value:
            return {key: walk(one, keys[1:]) if key == keys[0] else one for key, one in value.items()}
        return value
    return walk(document, path)


def text_of(path):
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def reason(file, kind, path):
    what = f"{kind} {text_of(path)}"
    return next((because for files, pattern, because in UNREAD if re.fullmatch(files, file) and re.match(pattern, what)), None)


def fails(build, readers, environment):
    """Whether one of the tests fails; a test that does not run at all is an error of ours."""
    for program, names in readers:
        run = subprocess.run([build / "bin" / program, f"--gtest_filter={names}", "--gtest_brief=1"], env=environment,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        if run.returncode != 0:
            if "FAILED" not in run.stdout:
                raise SystemExit(f"{program} {names}: {run.stdout[-2000:]}")
            return True
    return False


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    only = sys.argv[4] if len(sys.argv) > 4 else ""
    unnoticed, made = [], 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for file in READERS:
            (folder / file).parent.mkdir(exist_ok=True)
            shutil.copy(DATA / file, folder / file)
        for arrays in (DATA / "semantics").glob("*.safetensors"):
            (folder / "semantics" / arrays.name).symlink_to(arrays)
        environment = {**os.environ, "DS_TEST_DATA": str(folder), "DS_SEMANTICS": str(folder / "semantics")}
        for file, readers in READERS.items():
            if not re.search(only, file):
                continue
            if fails(build, readers, environment):
                raise SystemExit(f"{file}: its tests fail as it is")
            document = json.loads((DATA / file).read_text(encoding="utf-8"))
            all_changes = [one for one in changes(document) if reason(file, *one) is None]
            if count > 0:
                all_changes = random.Random(f"{seed} {file}").sample(all_changes, min(count, len(all_changes)))
            for kind, path in all_changes:
                (folder / file).write_text(json.dumps(changed(document, kind, path)), encoding="utf-8")
                made += 1
                if fails(build, readers, environment):
                    continue
                if kind == "value":
                    (folder / file).write_text(json.dumps(everywhere(document, path)), encoding="utf-8")
                if kind != "value" or not fails(build, readers, environment):
                    unnoticed.append(f"{file}: {kind} {text_of(path)}")
                    print("unnoticed:", unnoticed[-1], flush=True)
            shutil.copy(DATA / file, folder / file)
    print(f"{made} changes of recorded numbers, of which {len(unnoticed)} fail no test")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
