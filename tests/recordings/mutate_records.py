#!/usr/bin/env python3
"""Changes recorded numbers, one field at a time, and runs the tests that read them. A test must fail for each change.

usage: mutate_records.py BUILD [NUMBER [SEED [FILES [JOBS]]]]

NUMBER changes of each file are drawn at random (default 2; 0 tries every change). A change gives a field another value or
another name, or adds an unknown field to a record. If the tests of a list pass when the list has one record only, the
other records are removed while that record is changed.

An input may have no effect in one record, such as a limit that no value reaches. Therefore a value whose change no test
notices is next changed by a large factor, if it is a fraction or an integer above 3, and then in all records of its list.
Changes that no test needs to notice are listed in UNREAD, with the reason. The tests read copies of the files, which
DS_SEMANTICS and DS_TEST_DATA name. FILES is a pattern of file names, and JOBS the number of changes tried at the same time
(default 1).
"""
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
# The tests that read each recording. Where each list of a file has separate tests, they are given for each list.
READERS = {
    "semantics/activations.json": [("test_conformance", "RecordedLayers.*")],
    "semantics/batch_config.json": {
        "triangle": [("test_core", "RecordedConfigs.BatchTriangle*")],
        "fragments": [("test_core", "RecordedConfigs.Decisions*")],
        "text": [("test_core", "RecordedConfigs.Files*")],
        "engine": [("test_core", "RecordedConfigs.Engines*")],
    },
    "semantics/flops_profile.json": {
        "models": [("test_nn", "ModuleCost.Models*")],
        "modules": [("test_nn", "ModuleCost.Linear*")],
        "ops": [("test_nn", "ModuleCost.Functions*")],
    },
    "semantics/hostfile.json": [("test_launch", "Hostfile.*Recorded")],
    "semantics/loss_scaler.json": [("test_core", "LossScaler.MatchesTheScalesOf*")],
    "semantics/lr_schedules.json": {
        "runs": [("test_core", "RecordedSchedules.RatesEqualThoseOfDeepSpeed")],
        "resume": [("test_core", "RecordedSchedules.Resume*")],
        "errors": [("test_core", "RecordedSchedules.Refusals*")],
    },
    "semantics/onebit.json": {
        "allreduce": [("test_conformance", "Signs.AllReduce*")],
        "onebit_adam": [("test_training", "OneBitRecorded.Adam*")],
        "zero_one_adam": [("test_training", "OneBitRecorded.ZeroOne*")],
        "onebit_lamb": [("test_training", "OneBitRecorded.Lamb*")],
    },
    "semantics/optimizers.json": [("test_training", "OptimizerSemantics.*")],
    "semantics/partition.json": [("test_core", "Partition.*")],
    "semantics/zero_flat.json": [("test_checkpoint", "DeepSpeedLayout.*")],
    "curriculum.json": [("test_core", "Curriculum.*")],
    "dynamic_batches.json": [("test_data", "DynamicBatches.*")],
    "trainer_schedules.json": [("test_core", "RecordedSchedules.RatesEqualThoseOfTransformers")],
    "hf_configs.json": [("test_nn", "PublishedConfigs.*")],
    "hf_built.json": [("test_nn", "PublishedConfigs.GraphsEqual*")],
    "hf_defaults.json": [("test_nn", "HfKeys.*")],
    "chat_templates/constructs.json": [("test_text", "ChatTemplate.RendersConstructs*")],
    "chat_templates/renders.json": [("test_text", "ChatTemplate.RendersFamilies*")],
    "chat_templates/tokens.json": [("test_data", "ChatEncoder.TokensEqual*")],
    "deepspeed/losses.json": [("test_checkpoint", "DeepSpeed.TrainingContinues*")],
}
# The tokenizers that add no tokens around a text.
FRAMELESS = set()
for expected in sorted((DATA / "tokenizers").glob("*/expected.json")):
    if not any(case["ids"] for case in json.loads(expected.read_text(encoding="utf-8"))["cases"] if case["text"] == ""):
        FRAMELESS.add(expected.parent.name)
    READERS[f"tokenizers/{expected.parent.name}/expected.json"] = [("test_data", f"Tokenizers/Family.*/{expected.parent.name}")]
# Lists to whose records other lists refer.
NAMED = {"data"}
ABOUT = {"topic", "about", "source", "versions", "seed", "notes", "transformers", "tolerance"}
# Modules of torch that libds does not have.
OTHER_MODULES = {"Conv1d", "Conv2d", "ConvTranspose2d", "BatchNorm2d", "GroupNorm", "MaxPool2d", "AvgPool1d", "GRU", "LSTM", "Softmax",
                 "Dropout"}
NOTHING = set(re.findall(r'"([^"]+)"', re.search(r"kNothing\{(.*?)\};", (DATA.parent / "nn" / "published_configs_test.cpp").read_text(encoding="utf-8"),
                                                 re.S).group(1)))


def model(document, path):
    """Returns the configuration of hf_configs.json to which the path leads."""
    return document[path[0]]


def scales(config, *kinds):
    """Returns whether the rope of the configuration has a scaling of one of these kinds."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return rope.get("rope_type", rope.get("type")) in kinds


# Changes that no test needs to notice: (pattern of file names, pattern of "kind path", reason), with an optional function
# that returns whether the reason applies to a record.
UNREAD = [
    (r".*", r"value .*\.(message|error|note)$", "words of another program"),
    (r".*/batch_config.json", r"value .*\.validation\[\d+\]\.msg$", "words of another program"),
    (r".*/batch_config.json", r"field \.\w+\[\d+\]\.config$", "unknown keys at the top decide nothing"),
    (r".*/batch_config.json", r"\w+ \.\w+\[\d+\]\.config\.(bogus_top_level_key|vocabulary_size)$", "unknown keys at the top decide nothing"),
    (r".*/batch_config.json", r"value \.engine\[\d+\]\.config\.(train_micro_batch_size_per_gpu|optimizer\.params\.lr)$",
     "inputs without recorded results: the configuration is compared with what they say"),
    (r".*/batch_config.json", r"value .*\.config\.", "decides nothing beside what is refused", lambda r, path: "error" in r.get("result", {})),
    (r".*/batch_config.json", r"\w+ .*\.config\.(pipeline|aio)\.\w+$", "one unknown key is refused as another; DeepSpeed reads neither"),
    (r".*/batch_config.json", r"value .*\.config\.(fp16\.initial_scale_power|zero_optimization\.(cpu_offload_use_pin_memory|elastic_checkpoint|"
     r"legacy_stage1))$", "off, or without effect"),
    (r".*/batch_config.json", r"name .*\.(bogus|cpu_offload_params)$", "one unknown key is refused as another"),
    (r".*/batch_config.json", r"value \.fragments\[\d+\]\.config\.(optimizer\.params\.lr|steps_per_print)$", "what is recorded is the section's other keys"),
    (r".*/batch_config.json", r"\w+ \.fragments\[\d+\]\.config\.(amp|sparse_attention|compression_training|quantize_training|pipeline)\b",
     "sections that libds refuses, or passes over, whatever they say"),
    (r".*/batch_config.json", r"value \.engine\[\d+\]\.config\.(optimizer\.params\.torch_adam|zero_allow_untested_optimizer)$",
     "libds has one Adam, and none that is untested"),
    (r".*/batch_config.json", r"name \.engine\[\d+\]\.config\.optimizer\b", "refused with an optimizer and without one", lambda r, path: not r["accepted"]),
    (r".*/batch_config.json", r"\w+ \.engine\[\d+\]\.config\.scheduler\b", "a schedule that libds does not have is refused by its type",
     lambda r, path: r["config"]["scheduler"]["type"] == "StepLR" and path[-1] != "type"),
    (r".*/batch_config.json", r"value \.engine\[\d+\]\.config\.gradient_predivide_factor$", "no factor but 1 is taken"),
    (r"deepspeed/losses.json", r"field \.config$", "unknown keys at the top decide nothing"),
    (r"deepspeed/losses.json", r"\w+ \.config\.(bf16|zero_optimization)\b", "each kind of checkpoint has its own"),
    (r"deepspeed/losses.json", r"value \.(config\.optimizer|muon)\.params\.lr$", "the schedule sets the rate"),
    (r"deepspeed/losses.json", r"value .*\.warmup_num_steps$", "the warm-up is over when the recording begins"),
    (r"deepspeed/losses.json", r"value \.muon\.params\.eps$", "the losses of a few steps stay within their tolerance"),
    (r".*/optimizers.json", r"field \.cases\[\d+\]$|name \.cases\[\d+\]\.states$", "a case that libds refuses is not read further", lambda r, path: r["params"].get("amsgrad")),
    (r".*/partition.json", r".* \.topology\b", "libds has no axes of ranks"),
    (r".*/flops_profile.json", r".* \.modules\[\d+\]\.kwargs\b", "no module of libds", lambda r, path: r["module"] in OTHER_MODULES),
    (r".*/flops_profile.json", r"\w+ \.models\[\d+\]\.config\.max_position_embeddings$", "a rope has no table",
     lambda r, path: r["model"] == "llama"),
    (r".*/lr_schedules.json", r"value \.errors\[\d+\]\.(group_lr|params\.\w+)\[\d+\]$", "a refusal of a count does not depend on the rates"),
    (r".*/lr_schedules.json", r"value \.errors\[\d+\]\.params\.\w+$", "decides nothing beside what is refused",
     lambda r, path: path[-1].removeprefix("warmup_") not in r["result"]["message"]),
    (r".*/zero_flat.json", r"value .*\.(stage|dtype)$", "the layouts do not depend on it"),
    (r"chat_templates/constructs.json", r"field \.variables\b|name .*\.content$|\w+ \.variables\.none$",
     "templates look at what they want, and these not at everything"),
    (r"chat_templates/tokens.json", r"(name|value) \.chats\[4\]\[\d+\]\.(content|tool_calls\[0\]\.type|name)$", "templates look at what they want"),
    (r"chat_templates/(renders|tokens).json", r"field \.(chats|tools|special|cases\[\d+\]\.special)\b|name .*\.special\.\w+$",
     "templates look at what they want"),
    (r"chat_templates/renders.json", r"(name|value) \.(chats\[4\]\[\d+\]\.name|special\.unk_token)$", "templates look at what they want"),
    (rf"tokenizers/({'|'.join(sorted(FRAMELESS))})/expected.json", r"value .*\.special$", "it puts no tokens around a text"),
    (r"hf_defaults.json", r"value .*\.keys\.(vocab_size|num_hidden_layers|num_attention_heads|hidden_size|intermediate_size|n_layer|n_head|n_embd|"
     r"ffn_dim)$", "sizes that libds wants to be given (kNeeded of hf_keys_test.cpp)"),
    (r"hf_defaults.json", r"value .*\.keys\.(use_cache|eos_token_id|bos_token_id|classifier_dropout|summary_\w+|pretraining_tp|is_decoder|"
     r"reorder_and_upcast_attn)$", "decides no number that libds computes"),
    (r"hf_defaults.json", r"value \.families\.(gpt2|gpt_neox)\.keys\.pad_token_id$", "no row of their tables is without a gradient"),
    (r"hf_defaults.json", r"value \.families\.phi3\.keys\.embd_pdrop$", "no code of the model reads it"),
    (r"hf_configs.json", r"name \S+$", "names of models", lambda r, path: len(path) == 1),
    (r"hf_configs.json", r"value .*\.max_position_embeddings$", "a rope that does not scale with it knows no end",
     lambda r, path: model(r, path)["model_type"] not in ("gpt2", "opt", "bert") and not scales(model(r, path), "dynamic", "longrope")),
    (r"hf_configs.json", r"value .*\.original_max_position_embeddings$", "decides nothing without a scaling",
     lambda r, path: not scales(model(r, path), "llama3", "yarn", "longrope")),
    (r"hf_configs.json", r"value .*\.(use_sliding_window|sliding_window|max_window_layers)$", "both of two layers are below max_window_layers",
     lambda r, path: model(r, path)["model_type"].startswith("qwen") and (not model(r, path)["use_sliding_window"] or
                                                                          model(r, path)["max_window_layers"] > 2)),
    (r"hf_configs.json", r"value .*\.rotary_emb_base$", "one pair of columns turns at one speed, whatever the base",
     lambda r, path: model(r, path)["rotary_pct"] == 0.25),
    (r"hf_configs.json", r"value .*\.(embd_pdrop|attn_pdrop|mlp_bias|attention_bias)$", "no code of the model reads it",
     lambda r, path: model(r, path)["model_type"] == "phi3"),
    (r"hf_configs.json", r"value .*\.hidden_act$", "hidden_activation is read", lambda r, path: model(r, path)["model_type"] == "gemma2"),
    (r"hf_configs.json", r"value .*\.router_aux_loss_coef$", "output_router_logits is false", lambda r, path: not model(r, path)["output_router_logits"]),
    (r"hf_configs.json", r"value .*\.(hidden_dropout_prob|attention_probs_dropout_prob)$", "older names that no code of the model reads",
     lambda r, path: model(r, path)["model_type"] == "gpt_neox"),
    (r"hf_configs.json", r"value .*\.finetuned$", "no code of the model reads it"),
    (r"hf_configs.json", r".*", "decides nothing of a graph (kNothing of published_configs_test.cpp)", lambda r, path: set(path[1:2]) & NOTHING),
]


def leaves(value, path=()):
    """Yields the path of every field and every element except those of ABOUT, outermost first."""
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


def other(value, far=None):
    """Returns another value of the same type, or 1 for null. `far` computes a number that differs more than by default."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return far(value) if far else value + 1
    if isinstance(value, float):
        return float(far(value)) if far and value else value * 1.5 if value else 1.0
    if isinstance(value, str):
        return value + "x"
    return 1


def changes(document):
    """Yields (kind, path) of every possible change."""
    for path in leaves(document):
        value = at(document, path)
        if isinstance(value, dict):
            yield "field", path
        elif not isinstance(value, list):
            yield "value", path
        if isinstance(path[-1], str):
            yield "name", path


def changed(document, kind, path, far=None):
    document = copy.deepcopy(document)
    above = at(document, path[:-1])
    if kind == "field":
        at(document, path)["a_field_that_nobody_knows"] = 1
    elif kind == "value":
        above[path[-1]] = other(above[path[-1]], far)
    else:
        renamed = {(key + "_" if key == path[-1] else key): value for key, value in above.items()}
        above.clear()
        above.update(renamed)
    return document


def everywhere(document, path):
    """Returns a document in which this field has another value in every record and every element of a list."""
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


def record_of(document, path):
    return at(document, path[:2]) if len(path) > 1 and isinstance(path[1], int) else document


def reason(file, document, kind, path):
    what = f"{kind} {text_of(path)}"
    for files, pattern, because, *records in UNREAD:
        if re.fullmatch(files, file) and re.match(pattern, what) and all(one(record_of(document, path), path) for one in records):
            return because
    return None


class Trial:
    """A private copy of the data. Each run of tests replaces one of its files."""

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        for source in DATA.rglob("*"):
            target = folder / source.relative_to(DATA)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(source)
        self.environment = {**os.environ, "DS_TEST_DATA": str(folder), "DS_SEMANTICS": str(folder / "semantics")}
        # Maps (file, record) to whether the tests pass when the list has this record only.
        self.alone = {}

    def fails(self, file, document, readers):
        """Returns whether one of the tests fails. Ends this program if a test program ends with an error but names no failed
        test."""
        target = self.folder / file
        target.unlink()
        target.write_text(json.dumps(document), encoding="utf-8")
        try:
            for program, names in readers:
                run = subprocess.run([self.build / "bin" / program, f"--gtest_filter={names}", "--gtest_brief=1"],
                                     env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
                if run.returncode != 0:
                    if "FAILED" not in run.stdout:
                        raise SystemExit(f"{program} {names}: {run.stdout[-2000:]}")
                    return True
            return False
        finally:
            target.unlink()
            target.symlink_to(DATA / file)

    def short(self, file, document, path, readers):
        """Returns a document whose list has the changed record only, and the path of the change in it. Returns the arguments
        if the tests of the list need its other records."""
        if len(path) < 2 or not isinstance(path[1], int) or path[0] in NAMED:
            return document, path
        short = {**document, path[0]: [document[path[0]][path[1]]]}
        key = (file, path[:2])
        if key not in self.alone:
            self.alone[key] = not self.fails(file, short, readers)
        return (short, (path[0], 0, *path[2:])) if self.alone[key] else (document, path)

    def notices(self, file, document, kind, path, readers):
        short, place = self.short(file, document, path, readers)
        if self.fails(file, changed(short, kind, place), readers):
            return True
        if kind != "value":
            return False
        here = at(short, place)
        farther = ((lambda n: n // 3, lambda n: n * 3) if isinstance(here, int) and here > 3 else
                   (lambda n: n * 1e-4, lambda n: n * 1e4, lambda n: n + 1) if isinstance(here, float) else ())
        return (any(self.fails(file, changed(short, kind, place, far), readers) for far in farther)
                or self.fails(file, everywhere(document, path), readers))


def readers_of(file, path):
    """Returns the tests of the list that contains the path, or all tests of the file."""
    readers = READERS[file]
    if isinstance(readers, list):
        return readers
    if path and path[0] in readers:
        return readers[path[0]]
    return list(dict.fromkeys(one for each in readers.values() for one in each))


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    only = sys.argv[4] if len(sys.argv) > 4 else ""
    jobs = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    work = []
    files = [file for file in READERS if re.search(only, file)]
    # One tokenizer, drawn at random, represents all of them.
    if count > 0:
        some = random.Random(seed).choice([file for file in READERS if file.startswith("tokenizers/")])
        files = [file for file in files if file == some or not file.startswith("tokenizers/")]
    for file in files:
        document = json.loads((DATA / file).read_text(encoding="utf-8"))
        all_changes = [one for one in changes(document) if reason(file, document, *one) is None]
        if count > 0:
            all_changes = random.Random(f"{seed} {file}").sample(all_changes, min(count, len(all_changes)))
        work += [(file, document, kind, path) for kind, path in all_changes]
    unnoticed = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        mine = threading.local()

        def attempt(change):
            if not hasattr(mine, "trial"):
                mine.trial = Trial(build, pathlib.Path(tempfile.mkdtemp(dir=folder)))
            file, document, kind, path = change
            try:
                noticed = mine.trial.notices(file, document, kind, path, readers_of(file, path))
            except SystemExit as crash:
                raise SystemExit(f"{file}: {kind} {text_of(path)}: the tests end without a word: {crash}") from None
            if not noticed:
                unnoticed.append(f"{file}: {kind} {text_of(path)}")
                print("unnoticed:", unnoticed[-1], flush=True)

        with tempfile.TemporaryDirectory() as own:
            whole = Trial(build, pathlib.Path(own))
            for file in dict.fromkeys(change[0] for change in work):
                if whole.fails(file, json.loads((DATA / file).read_text(encoding="utf-8")), readers_of(file, ())):
                    raise SystemExit(f"{file}: its tests fail as it is")
        list(pool.map(attempt, work))
    print(f"{len(work)} changes of recorded numbers, of which {len(unnoticed)} fail no test")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
