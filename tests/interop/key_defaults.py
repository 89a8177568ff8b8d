"""Records the values that Transformers uses when a config.json lacks a key, for every family of libds.

usage: key_defaults.py [--record]

Compares tests/data/hf_defaults.json with the configuration classes of the installed Transformers and fails where they
differ; --record writes the file. Needs transformers. tests/nn/hf_keys_test.cpp compares src/nn/models/hf_keys.cpp with
the same file.
"""
import argparse
import dataclasses
import json
import pathlib
import sys

import transformers

PATH = pathlib.Path(__file__).resolve().parents[1] / "data" / "hf_defaults.json"
FAMILIES = ["gpt2", "llama", "mistral", "ministral", "qwen2", "qwen3", "phi3", "gemma2", "mixtral", "gpt_neox", "opt", "bert"]


def defaults(family):
    """Returns the keys that the family's class adds to those of every class, its other names of keys, and its rope."""
    config = transformers.AutoConfig.for_model(family)
    shared = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    keys = {field.name: field.default for field in dataclasses.fields(config) if field.name not in shared}
    rope = getattr(config, "rope_parameters", None) or {}
    return {"keys": dict(sorted(keys.items())), "other_names": config.attribute_map, "rope": rope}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the file")
    args = parser.parse_args()
    now = {"transformers": transformers.__version__, "families": {family: defaults(family) for family in FAMILIES}}
    if args.record:
        PATH.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    recorded = json.loads(PATH.read_text())
    wrong = 0
    for family, here in now["families"].items():
        for part, values in here.items():
            was = recorded["families"][family][part]
            for key in sorted(values.keys() | was.keys()):
                if values.get(key, "absent") != was.get(key, "absent"):
                    print(f"{family}: {part} '{key}': recorded {was.get(key, 'absent')}, Transformers "
                          f"{transformers.__version__} has {values.get(key, 'absent')}")
                    wrong += 1
    print(f"key_defaults: {wrong} keys of {len(FAMILIES)} families differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
