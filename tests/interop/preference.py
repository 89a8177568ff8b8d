"""Preference training beside TRL (./run interop preference), and the numbers of tests/data/preference.

usage: preference.py [--record] [--libds PATH]

Small random models of two families are trained for 20 steps on pairs, by TRL's trainers and by `libds train`, from the same
folder and file, with each loss: DPOTrainer (sigmoid, hinge, ipo), ORPOTrainer, and CPOTrainer with simpo. Losses, rewards, norms
of gradients and the weights after the steps are compared. --record writes the folders and TRL's numbers to tests/data/preference,
with which tests/run/preference_test.cpp compares.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ["TQDM_DISABLE"] = "1"

import datasets
import safetensors.torch
import tokenizers
import torch
import transformers
import trl
import trl.experimental.cpo
import trl.experimental.orpo

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "preference"
STEPS, PAIRS, SEQUENCE, RATE = 20, 6, 48, 5e-4
LOSSES = {
    "sigmoid": dict(beta=0.3),
    "hinge": dict(beta=0.05),
    "ipo": dict(beta=0.2),
    "orpo": dict(beta=0.25),
    "simpo": dict(beta=2.0, simpo_gamma=0.7, cpo_alpha=0.0),
    "simpo_nll": dict(loss_type="simpo", beta=1.5, simpo_gamma=0.2, cpo_alpha=0.6, label_smoothing=0.1),
}
REWARDS = ("rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins")
WORDS = "tide bell rope mast lamp sail keel fog crew deck".split()
TEMPLATE = ("{% for m in messages %}{{ m.role[0] + '> ' + m.content + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'a> ' }}{% endif %}")


def pairs(form="prompt"):
    """Yields pairs in one of TRL's forms: a prompt and texts, texts with a common beginning, or messages."""
    for i in range(PAIRS):
        word, other = WORDS[i], WORDS[(i * 3 + 1) % len(WORDS)]
        prompt, chosen, rejected = f"Spell {word} {i}:", f" {word} {word[::-1]}", f" {other}{'!' * (i % 3 + 1)}"
        if form == "prompt":
            yield {"prompt": prompt, "chosen": chosen, "rejected": rejected}
        elif form == "implicit":
            yield {"chosen": prompt + chosen, "rejected": prompt + rejected}
        else:
            asked = [{"role": "user", "content": prompt}]
            yield {"prompt": asked, **{name: [{"role": "assistant", "content": text.strip()}]
                                       for name, text in (("chosen", chosen), ("rejected", rejected))}}


def write_pairs(path, form="prompt"):
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs(form)))


def write_tokenizer(folder):
    """Writes a byte-level tokenizer with an end-of-text token and without a beginning."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<end>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([json.dumps(pair) for pair in pairs()], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return len(fast)


def write_model(name, folder):
    vocabulary = write_tokenizer(folder)
    torch.manual_seed(len(name))
    if name == "gpt2":
        config = transformers.GPT2Config(vocab_size=vocabulary, n_positions=SEQUENCE, n_embd=16, n_layer=2, n_head=2,
                                         initializer_range=0.2, bos_token_id=None, eos_token_id=0)
    else:
        config = transformers.LlamaConfig(vocab_size=vocabulary, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                          num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=SEQUENCE,
                                          initializer_range=0.2, bos_token_id=None, eos_token_id=0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def trainer_of(loss):
    """Returns TRL's configuration, trainer and loss_type for a loss."""
    if loss == "orpo":
        return trl.experimental.orpo.ORPOConfig, trl.experimental.orpo.ORPOTrainer, {}
    if loss.startswith("simpo"):
        return trl.experimental.cpo.CPOConfig, trl.experimental.cpo.CPOTrainer, {"loss_type": "simpo"}
    return trl.DPOConfig, trl.DPOTrainer, {"loss_type": loss}


def train_trl(folder, file, loss, keys, out, eps=1e-8):
    Config, Trainer, more = trainer_of(loss)
    arguments = Config(output_dir=str(out), per_device_train_batch_size=PAIRS, max_steps=STEPS, learning_rate=RATE, logging_steps=1,
                       lr_scheduler_type="constant", weight_decay=0.0, adam_epsilon=eps, max_grad_norm=1.0, save_strategy="no", report_to=[], bf16=False,
                       use_cpu=True, seed=1, gradient_checkpointing=False, max_length=SEQUENCE, disable_tqdm=True,
                       remove_unused_columns=False, **{**keys, **more})
    losses = []

    class Recorded(Trainer):
        def compute_loss(self, *arguments, **named):
            result = super().compute_loss(*arguments, **named)
            losses.append((result[0] if isinstance(result, tuple) else result).item())
            return result

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    trainer = Recorded(model=model, args=arguments, processing_class=transformers.AutoTokenizer.from_pretrained(folder),
                       train_dataset=datasets.Dataset.from_json(str(file), cache_dir=str(out / "cache")))
    trainer.train()
    rows = [row for row in trainer.state.log_history if "grad_norm" in row]
    numbers = {"loss": losses, "grad_norm": [float(row["grad_norm"]) for row in rows]}
    numbers.update({name: [float(row[name]) for row in rows] for name in REWARDS})
    return numbers, {name: tensor.detach().clone() for name, tensor in trainer.model.state_dict().items()}


def document(folder, file, loss, keys, eps):
    return {"train_micro_batch_size_per_gpu": PAIRS, "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": {"lr": RATE, "betas": [0.9, 0.999], "eps": eps, "weight_decay": 0}},
            "model": {"folder": str(folder)}, "jsonl_monitor": {"enabled": True},
            "preference": {"loss_type": loss.partition("_")[0], **keys},
            "data": {"format": "jsonl", "paths": [str(file)], "heldout": 0},
            "run": {"sequence": SEQUENCE, "steps": STEPS, "threads": 1, "sample_tokens": 0}}


def train_libds(libds, folder, file, loss, keys, out, eps):
    config = out / "config.json"
    config.write_text(json.dumps(document(folder, file, loss, keys, eps)))
    subprocess.run([libds, "train", "--config", config, "--dir", out / "run", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "lr" in row]
    numbers = {name: [row[name] for row in rows] for name in ("loss", "grad_norm", *REWARDS)}
    return numbers, safetensors.torch.load_file(out / "run" / "model" / "model.safetensors")


def difference(ours, theirs):
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours, theirs, strict=True))


def compare(libds, name, folder, file, loss, keys, work):
    plain = {key: value for key, value in keys.items() if key != "loss_type"}
    # Gradients that are zero but for rounding, such as those of the biases of GPT-2's keys, must not become whole steps.
    eps = 1e-5
    theirs, weights = train_trl(folder, file, loss, plain, work / "trl", eps)
    ours, mine = train_libds(libds, folder, file, loss, plain, work, eps)
    far = {key: difference(ours[key], theirs[key]) for key in theirs}
    far["weights"] = max((mine[key] - weights[key]).abs().max().item() for key in mine)
    print(f"{name:6} {loss:10} loss {theirs['loss'][0]:.4f} to {theirs['loss'][-1]:.4f}, differences: "
          + ", ".join(f"{key} {value:.1e}" for key, value in far.items()), flush=True)
    # An accuracy changes by whole pairs where two rewards are equal but for rounding.
    return all(value < 2e-5 for key, value in far.items() if key != "rewards/accuracies")


def record():
    for name in ("gpt2", "llama"):
        folder = DATA / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_model(name, folder)
        write_pairs(folder / "pairs.jsonl")
        golden = {"made_with": {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
                  "steps": STEPS, "pairs": PAIRS, "sequence": SEQUENCE, "lr": RATE, "losses": {}}
        for loss, keys in LOSSES.items():
            with tempfile.TemporaryDirectory() as work:
                plain = {k: v for k, v in keys.items() if k != "loss_type"}
                numbers, _ = train_trl(folder, folder / "pairs.jsonl", loss, plain, pathlib.Path(work))
                golden["losses"][loss] = {"keys": {"loss_type": loss.partition("_")[0], **plain}, **numbers}
        (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--libds", default=str(ROOT / "build" / "bin" / "libds"))
    given = parser.parse_args()
    if given.record:
        return record()
    right = True
    for name in ("gpt2", "llama"):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "model").mkdir()
            write_model(name, folder / "model")
            forms = [("prompt", loss) for loss in LOSSES] + [("implicit", "sigmoid"), ("messages", "sigmoid")]
            for form, loss in forms:
                work = folder / f"{loss}_{form}"
                work.mkdir()
                write_pairs(work / "pairs.jsonl", form)
                print(f"{form:8}", end=" ")
                right &= compare(given.libds, name, folder / "model", work / "pairs.jsonl", loss, LOSSES[loss], work)
    print("preference: " + ("ok" if right else "FAILED"))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
