"""Compares encoding with tokenizers of PyPI, in turns: ./run bench tokenizer [ROUNDS].

Trains byte-level (GPT-2, Llama 3) and character (Llama 2) vocabularies of 16,256 tokens on Python sources of this machine
(ASCII, 4 MB). Then both sides encode that text in chunks of 64 KiB on one thread, after a first pass that is not timed.
Prints the best MB/s of each, their ratio, and whether the ids are the same. Bars: the ids are the same, and libds is at least
5 times as fast.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import verdict

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHUNK, TEXT_BYTES = 1 << 16, 4 << 20
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def gather():
    text = ""
    for path in sorted(pathlib.Path(os.__file__).parent.rglob("*.py")):
        if len(text) >= TEXT_BYTES:
            break
        text += path.read_text(encoding="ascii", errors="ignore") if path.is_file() else ""
    return text[:TEXT_BYTES]


def train(tokenizer, text):
    from tokenizers import pre_tokenizers, trainers
    trainer = trainers.BpeTrainer(vocab_size=16256, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


def shapes(text):
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    yield "gpt2", train(gpt2, text)
    llama3 = Tokenizer(models.BPE(ignore_merges=True))
    llama3.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    yield "llama3", train(llama3, text)
    llama2 = Tokenizer(models.BPE())
    llama2.pre_tokenizer = pre_tokenizers.Metaspace()
    train(llama2, text)
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama2.pre_tokenizer = None
    yield "llama2", llama2


def rival(tokenizer, chunks):
    for _ in range(2):
        begin = time.perf_counter()
        ids = [tokenizer.encode(chunk, add_special_tokens=False).ids for chunk in chunks]
        seconds = time.perf_counter() - begin
    number = 0
    for chunk in ids:
        for one in chunk:
            number = (number * 31 + one) & 0xFFFFFFFF
    return seconds, number


def judge(bars, name, size, ours, theirs, same):
    """ours, theirs: the smallest number of seconds for `size` bytes."""
    rate = [size / 1e6 / side for side in (ours, theirs)]
    print(f"{name}: libds {rate[0]:.1f} MB/s, tokenizers {rate[1]:.1f} MB/s, ratio {rate[0] / rate[1]:.1f} "
          f"({bars.least(name + ': ratio', rate[0] / rate[1], 5)}), {bars.holds(name + ': equal ids', same, 'differ')}",
          flush=True)


def main(bars):
    from tokenizers import Tokenizer

    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    text = gather()
    chunks = [text[at:at + CHUNK] for at in range(0, len(text), CHUNK)]
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "text").write_text(text, encoding="ascii", newline="")
        for name, trained in shapes(text):
            path = f"{folder}/{name}.json"
            trained.save(path)
            theirs, ours, same = [], [], True
            for _ in range(rounds):
                seconds, number = rival(Tokenizer.from_file(path), chunks)
                theirs.append(seconds)
                out = subprocess.run([ROOT / "build/bin/bench_tokenizer", path, f"{folder}/text", str(CHUNK)], check=True,
                                     capture_output=True, text=True).stdout.split()
                ours.append(float(out[0]))
                same &= int(out[2]) == number
            judge(bars, name, len(text), min(ours), min(theirs), same)


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    verdict.run(main)
