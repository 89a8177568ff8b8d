"""Compares a full training step in f32 with llama.cpp's llama_opt, in turns:
  ./run bench llama_opt [ROUNDS] [LAYERS] [THREADS] [cpu]

Both sides train a Llama in f32 (768 wide, LAYERS (12) layers, 12 heads, 4 of keys, 32,000 words, 125M parameters) by AdamW on a row of 512
random tokens. The model is a GGUF file of random weights; bench/llama_opt.c drives llama.cpp, built from the source package of
llama-cpp-python with the instructions of this machine. llama_opt does not train the embedding and does not clip; libds does both. Each
side makes two steps, then ROUNDS (5) turns of a step. Prints wall and CPU time of the best step of each side, ru_maxrss and the ratios.

Bars: 3 times the speed, and no more ru_maxrss. With `cpu`, for a machine that is not idle, speed is judged by CPU time. LLAMA_CPP: the folder
of llama.cpp's sources, with its libraries below native/bin, if it is not .cache/llama.cpp.
"""
import os
import subprocess
import sys
import tempfile

import verdict
from adapters import ROOT, Timed, processor, turns

LLAMA_CPP = os.environ.get("LLAMA_CPP") or os.path.join(ROOT, ".cache", "llama.cpp")
SEQ, WIDTH, INNER, HEADS, KEY_HEADS, WORDS = 512, 768, 2048, 12, 4, 32000


def make_model(path, layers):
    """Writes a GGUF file with random weights and as many words as the model of bench_train_step."""
    import gguf
    import numpy

    writer, draw = gguf.GGUFWriter(path, "llama"), numpy.random.default_rng(1)
    writer.add_context_length(SEQ)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(WORDS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"<s>", b"</s>"] + [b"w%d" % word for word in range(3, WORDS)])
    writer.add_token_scores([0.0] * WORDS)
    writer.add_token_types([2, 3, 3] + [1] * (WORDS - 3))

    def add(name, *shape):
        matrix = draw.standard_normal(shape, dtype=numpy.float32) * 0.02 if len(shape) == 2 else numpy.ones(shape, numpy.float32)
        writer.add_tensor(name + ".weight", matrix)

    keys = WIDTH // HEADS * KEY_HEADS
    for name, shape in {"token_embd": (WORDS, WIDTH), "output": (WORDS, WIDTH), "output_norm": (WIDTH,)}.items():
        add(name, *shape)
    for layer in range(layers):
        for name, shape in {"attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (keys, WIDTH), "attn_v": (keys, WIDTH),
                            "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,), "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH),
                            "ffn_down": (WIDTH, INNER)}.items():
            add(f"blk.{layer}.{name}", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compile_driver(folder):
    """Compiles bench/llama_opt.c and returns its path."""
    libraries, program = os.path.join(LLAMA_CPP, "native", "bin"), os.path.join(folder, "llama_opt")
    subprocess.run(["cc", "-O2", f"-I{LLAMA_CPP}/include", f"-I{LLAMA_CPP}/ggml/include", os.path.join(ROOT, "bench", "llama_opt.c"),
                    "-o", program, f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"], check=True)
    return program


def judge(bars, ours, theirs, peaks, judged):
    """ours and theirs are wall and CPU seconds, and the one at index `judged` counts; peaks are GiB of both."""
    for name, mine, peak in (("libds", ours, peaks[0]), ("llama_opt", theirs, peaks[1])):
        print(f"{name:9} {SEQ / mine[0]:6.0f} tok/s, CPU {mine[1]:6.2f} s, ru_maxrss {peak:.2f} GiB")
    ratio = theirs[judged] / ours[judged]
    print(f"libds is {ratio:.2f} x as fast ({bars.least('libds / llama_opt', ratio, 3)}), ru_maxrss "
          f"({bars.most('ru_maxrss of libds in GiB', peaks[0], peaks[1])})")


def main(bars):
    words = [word for word in sys.argv[1:] if word != "cpu"]
    rounds, layers, threads = (words + ["5", "12", "2"][len(words):])[:3]
    judged = int("cpu" in sys.argv)
    print(f"Llama, {layers} layers, f32, {threads} threads on {processor()}, best of {rounds} turns, judged by {('wall', 'CPU')[judged]} "
          "time", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.gguf")
        make_model(model, int(layers))
        theirs = Timed([compile_driver(folder), model, threads, str(SEQ), str(WORDS)], ROOT)
        binary = os.path.join(ROOT, "build", "bin", "bench_train_step")
        ours = Timed([binary, "llama", threads, "0", "--f32", "--samples", "1", "--seq", str(SEQ), "--layers", layers], ROOT)
        mine, other = turns(ours, theirs, int(rounds), 1)
        judge(bars, mine, other, (ours.peak_gib(), theirs.peak_gib()), judged)


if __name__ == "__main__":
    verdict.run(main)
