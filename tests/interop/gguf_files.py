#!/usr/bin/env python3
"""Compares GGUF files with those of llama.cpp's converter and with the gguf package (./run interop gguf [NUMBER [SEED]]).

Each round draws a model of one family with a tokenizer and a type. `libds convert` and llama.cpp's convert_hf_to_gguf.py, which
the source package of llama-cpp-python contains, write GGUF files. Their tensors must have equal names, types, shapes and
bytes, and their metadata must be equal but for the keys in OWN and THEIRS. `libds convert` then makes a folder of its file:
the weights must have the bytes of the first folder, Transformers must compute the same logits, and texts must have the same
tokens. From the model's file in f32, libds and llama.cpp's library must continue tokens alike. A random adapter of PEFT's form
becomes a file, which must be that of convert_lora_to_gguf.py and have the same effect in llama.cpp as its merge with the model.
At last, files with random blocks of every type that libds expands become folders, whose weights must be those that the gguf
package expands.

LLAMA_CPP names a folder with the sources of llama.cpp; otherwise they are in .cache/llama.cpp, where ./run puts them.
"""
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
import gguf
import llama_host
import numpy as np
import sentencepiece
import torch
import transformers
from llama_host import LIBDS, LLAMA_CPP, run
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZERS = ROOT / "tests" / "data" / "tokenizers"

# Keys that only one of the two writes. llama.cpp derives a title and a size from the name of the folder. It leaves out the base
# of the rope where its default is the usual one, and the type of a gpt_neox file. libds names the tokens that a
# post processor puts around a text.
THEIRS = {"general.size_label", "general.basename", "general.version", "general.finetune", "general.sampling.temp",
          "tokenizer.ggml.add_sep_token", "tokenizer.ggml.add_space_prefix"}
OWN = {"general.file_type", "gemma2.rope.freq_base", "gptneox.rope.freq_base", "tokenizer.ggml.bos_token_id",
       "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"}
# Keys with other values: the name, and the file's own counts.
OTHER = {"general.name", "GGUF.tensor_count", "GGUF.kv_count", "GGUF.version"}

# For each family: the class of its configuration, the tokenizers that its folders have, and the pre-tokenizer's name by which
# llama.cpp knows the tokenizer. The converter recognizes only published vocabularies, so it is told the name.
FAMILIES = {
    "llama": (transformers.LlamaConfig, {"llama3": "llama-bpe", "llama2": None, "gpt2": "gpt-2"}),
    "mistral": (transformers.MistralConfig, {"llama2": None}),
    "mixtral": (transformers.MixtralConfig, {"llama2": None}),
    "qwen2": (transformers.Qwen2Config, {"qwen2": "qwen2"}),
    "qwen3": (transformers.Qwen3Config, {"qwen2": "qwen2"}),
    "phi3": (transformers.Phi3Config, {"spm_bpe": None}),
    "gemma2": (transformers.Gemma2Config, {"spm_bpe": None}),
    "gpt2": (transformers.GPT2Config, {"gpt2": "gpt-2"}),
    "gpt_neox": (transformers.GPTNeoXConfig, {"gpt2": "gpt-2"}),
}
TEXTS = ["Hello, world!", "  two  spaces\n\nand lines\t3333 33", "h\u00e9llo \u6771\u4eac \U0001f642 <|endoftext|>x", "don't We'LL 12345", ""]


def configuration(draw, family):
    """Returns a random configuration that llama.cpp can express."""
    heads, width, layers = draw.choice([2, 4]), draw.choice([8, 16, 32]), draw.choice([1, 2, 3])
    hidden, inner = heads * width, draw.choice([48, 64, 96])
    own = {"vocab_size": draw.choice([1024, 1056]), "tie_word_embeddings": draw.random() < 0.4}
    if family == "gpt2":
        return transformers.GPT2Config(n_embd=hidden, n_layer=layers, n_head=heads, n_positions=64, n_ctx=64, n_inner=4 * hidden,
                                       bos_token_id=0, eos_token_id=0, **own | {"tie_word_embeddings": True})
    own |= {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner,
            "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    if family == "gpt_neox":
        return transformers.GPTNeoXConfig(rotary_pct=draw.choice([0.25, 0.5, 1.0]), use_parallel_residual=draw.random() < 0.7, **own)
    own |= {"num_key_value_heads": draw.choice([1, heads // 2, heads]), "rms_norm_eps": draw.choice([1e-5, 1e-6])}
    theta = draw.choice([10000.0, 500000.0, 1e6])
    rope = {"rope_type": "default", "rope_theta": theta}
    if family == "llama":
        rope = draw.choice([rope, rope | {"rope_type": "linear", "factor": 4.0},
                            rope | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                    "original_max_position_embeddings": 8192}])
        own |= {"attention_bias": draw.random() < 0.3}
    if family in ("qwen2", "qwen3"):
        rope = draw.choice([rope, rope | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}])
    if family in ("llama", "mistral", "qwen3", "gemma2", "mixtral"):
        own |= {"head_dim": width}
    if family == "mixtral":
        own |= {"num_local_experts": 4, "num_experts_per_tok": 2}
    if family == "mistral":
        own |= {"sliding_window": None}
    if family == "gemma2":
        own |= {"query_pre_attn_scalar": width, "sliding_window": 32, "tie_word_embeddings": True}
    if family == "phi3":
        # llama.cpp chooses between the factors by the size of its cache, at least 256 tokens, and not by that of the text; it does not
        # apply the window, which is longer than the texts here.
        own |= {"original_max_position_embeddings": 256, "max_position_embeddings": 512, "sliding_window": draw.choice([None, 96])}
        if draw.random() < 0.5:
            rope = {"rope_type": "longrope", "rope_theta": theta, "long_factor": [1.5 + i for i in range(width // 2)],
                    "short_factor": [1.0 + i / 8 for i in range(width // 2)]}
    return FAMILIES[family][0](rope_parameters=rope, **own)


def make_folder(draw, family, folder):
    """Saves a random model with a tokenizer; returns the tokenizer's name and the model's type."""
    config = configuration(draw, family)
    # llama.cpp's converter adds one to f16 norms in f16, which rounds more than libds does.
    dtype = draw.choice([torch.float32, torch.bfloat16] + [torch.float16] * (family != "gemma2"))
    torch.manual_seed(draw.randrange(1 << 30))
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.randn_like(value) * (0.3 if value.dim() > 1 else 0.5) + (0.0 if value.dim() > 1 else 1.0))
    model.to(dtype).save_pretrained(folder)
    tokenizer = draw.choice(sorted(FAMILIES[family][1]))
    for file in (TOKENIZERS / tokenizer).iterdir():
        if file.name != "expected.json":
            shutil.copy(file, folder)
    beside = {"gpt2": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, "qwen2": {"eos_token": "<|im_end|>"},
              "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>"}}.get(
                  tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
    beside |= {"tokenizer_class": "PreTrainedTokenizerFast" if tokenizer != "spm_bpe" else "LlamaTokenizer",
               "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(beside))
    return tokenizer, dtype


CONVERTER = """
import sys
sys.path.insert(0, sys.argv[1])
from conversion.base import ModelBase, TextModel
name, load = sys.argv[2], ModelBase.load_hparams


def load_hparams(folder, is_mistral_format):
    # The converter of gpt_neox reads a key that the configurations of Transformers 5 do not have.
    found = load(folder, is_mistral_format)
    return {"rotary_pct": (found.get("rope_parameters") or {}).get("partial_rotary_factor", 0.25)} | found


ModelBase.load_hparams = staticmethod(load_hparams)
TextModel.get_vocab_base_pre = lambda self, tokenizer: name
sys.argv = ["convert"] + sys.argv[3:]
import convert_hf_to_gguf
convert_hf_to_gguf.main()
"""


def value_of(field):
    return field.contents()


def compare_files(own, theirs, guessed):
    """Returns the differences of two GGUF files, as lines. With `guessed`, llama.cpp's file has no scores: its converter writes
    the same placeholder for every piece of a tokenizer.json, and leaves out the tokens above the last one."""
    out = []
    a, b = gguf.GGUFReader(own), gguf.GGUFReader(theirs)
    left, right = {t.name: t for t in a.tensors}, {t.name: t for t in b.tensors}
    out += [f"tensor {name} only in libds's" for name in left.keys() - right.keys()]
    out += [f"tensor {name} only in llama.cpp's" for name in right.keys() - left.keys()]
    for name in left.keys() & right.keys():
        x, y = left[name], right[name]
        if (x.tensor_type, list(x.shape)) != (y.tensor_type, list(y.shape)):
            out.append(f"tensor {name}: {x.tensor_type.name} {list(x.shape)}, theirs {y.tensor_type.name} {list(y.shape)}")
        elif name.startswith("rope_"):
            if not np.allclose(x.data, y.data, rtol=1e-6):
                out.append(f"tensor {name}: {x.data}, theirs {y.data}")
        elif x.data.tobytes() != y.data.tobytes():
            out.append(f"tensor {name}: bytes differ")
    for key in a.fields.keys() | b.fields.keys():
        if key in OTHER or (key not in b.fields and key in OWN) or (key not in a.fields and key in THEIRS):
            continue
        if guessed and key in ("tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
            continue
        mine = value_of(a.fields[key]) if key in a.fields else "none"
        other = value_of(b.fields[key]) if key in b.fields else "none"
        if guessed and key == "tokenizer.ggml.tokens":
            mine = mine[:len(other)]
        if isinstance(mine, float) and isinstance(other, float) and abs(mine - other) <= 1e-6 * abs(other):
            continue
        if mine != other:
            if isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
                at = next(i for i in range(len(mine)) if mine[i] != other[i])
                mine, other = f"[{at}] {mine[at]!r}", f"[{at}] {other[at]!r}"
            out.append(f"key {key}: {str(mine)[:120]}, theirs {str(other)[:120]}")
    return out


def compare_folders(first, second, family, exact):
    """Returns the differences of the model that came back, as lines."""
    out = []
    a, b = load_file(first / "model.safetensors"), load_file(second / "model.safetensors")
    if a.keys() != b.keys():
        out.append(f"tensors {a.keys() ^ b.keys()}")
    for name in a.keys() & b.keys():
        x, y = a[name], b[name]
        # Norms of gemma2 are stored plus one, which rounds small numbers.
        near = family == "gemma2" and name.endswith("norm.weight")
        if x.dtype != y.dtype and exact:
            out.append(f"{name}: {y.dtype}, was {x.dtype}")
        elif exact and not (torch.allclose(x.float(), y.float(), atol=1e-7, rtol=1e-2) if near else torch.equal(x, y)):
            out.append(f"{name}: values differ")
    ids = torch.arange(24).reshape(2, 12) + 5
    with torch.no_grad():
        logits = [transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(ids).logits for folder in (first, second)]
    if exact and not torch.allclose(*logits, atol=2e-3 if family == "gemma2" else 1e-4, rtol=1e-4):
        out.append(f"logits differ by {(logits[0] - logits[1]).abs().max()}")
    left, right = encoder(first), encoder(second)
    out += [f"tokens of {text!r}: {right(text)}, were {left(text)}" for text in TEXTS if left(text) != right(text)]
    return out


def encoder(folder):
    """Returns a function that encodes a text as the folder's tokenizer does."""
    if (folder / "tokenizer.json").exists():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        return lambda text: tokenizer(text)["input_ids"]
    pieces = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    return lambda text: pieces.encode(text, add_bos=True)


def check_model(number, seed):
    draw = random.Random(f"{seed} {number}")
    family = sorted(FAMILIES)[number % len(FAMILIES)]
    type_name = draw.choice(["f32", "f16", "bf16", "q8_0"])
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        first, second = place / "model", place / "again"
        tokenizer, dtype = make_folder(draw, family, first)
        what = f"{number}: {family}, {tokenizer}, {str(dtype)[6:]} to {type_name}"
        own, theirs = place / "own.gguf", place / "theirs.gguf"
        run([LIBDS, "convert", first, own, "--type", type_name])
        run([sys.executable, "-c", CONVERTER, LLAMA_CPP, FAMILIES[family][1][tokenizer] or "default", first, "--outfile", theirs,
             "--outtype", type_name])
        found = compare_files(own, theirs, tokenizer == "llama2")
        run([LIBDS, "convert", own, second])
        exact = type_name == {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
        found += compare_folders(first, second, family, exact)
        found += check_runs(draw, family, first, place)
    return what, found


def check_runs(draw, family, folder, place):
    """Compares the tokens by which libds and llama.cpp continue others, with and without an adapter."""
    base = place / "f32.gguf"
    run([LIBDS, "convert", folder, base, "--type", "f32"])
    found = llama_host.compare_tokens(draw, base, base)
    ids = [draw.randrange(5, 900) for _ in range(6)]
    if llama_host.continued(base, ids) != llama_host.continued(folder, ids):
        found.append("libds continues tokens differently with the file and with the folder")
    return found + llama_host.check_adapter(draw, family, folder, base, place)


def check_blocks(draw):
    """Compares random blocks of every type with the gguf package."""
    found = []
    rng = np.random.default_rng(draw.randrange(1 << 30))
    types = [getattr(gguf.GGMLQuantizationType, name) for name in
             ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")]
    for block_type in types:
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place) / "blocks.gguf"
            writer, wanted = gguf.GGUFWriter(path, "llama"), {}
            for key, value in (("block_count", 1), ("context_length", 64), ("embedding_length", 256), ("feed_forward_length", 512)):
                writer.add_uint32(f"llama.{key}", value)
            writer.add_uint32("llama.attention.head_count", 4)
            writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-6)
            shapes = {"token_embd": (64, 256), "blk.0.attn_v": (256, 256), "blk.0.attn_output": (256, 256), "blk.0.ffn_gate": (512, 256),
                      "blk.0.ffn_up": (512, 256), "blk.0.ffn_down": (256, 512), "blk.0.attn_q": (256, 256), "blk.0.attn_k": (256, 256)}
            block, size = gguf.GGML_QUANT_SIZES[block_type]
            for name, (rows, columns) in shapes.items():
                data = rng.integers(0, 256, (rows, columns // block * size), dtype=np.uint8)
                if block == 1:
                    data = gguf.quants.quantize(rng.standard_normal((rows, columns), dtype=np.float32), block_type).view(np.uint8)
                else:
                    # Scales that are not finite are refused.
                    with np.errstate(all="ignore"):
                        blocks = np.isfinite(gguf.quants.dequantize(data, block_type).reshape(-1, block)).all(axis=1)
                    data = np.where(blocks[:, None], data.reshape(-1, size), 0).astype(np.uint8).reshape(rows, -1)
                writer.add_tensor(name + ".weight", data, raw_dtype=block_type)
                with np.errstate(all="ignore"):
                    wanted[name] = gguf.quants.dequantize(data, block_type).reshape(rows, columns)
            for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
                writer.add_tensor(name + ".weight", np.ones(256, np.float32))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            run([LIBDS, "convert", path, pathlib.Path(place) / "model", "--type", "f32"])
            back = load_file(pathlib.Path(place) / "model" / "model.safetensors")
            names = {"token_embd": "model.embed_tokens", "blk.0.attn_v": "model.layers.0.self_attn.v_proj",
                     "blk.0.ffn_down": "model.layers.0.mlp.down_proj", "blk.0.ffn_up": "model.layers.0.mlp.up_proj"}
            for name, folder_name in names.items():
                got, want = back[folder_name + ".weight"].float().numpy(), wanted[name]
                same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
                if not same.all():
                    found.append(f"{block_type.name} {name}: {(~same).sum()} of {same.size} elements differ")
    return found


def main():
    count, seed = int(sys.argv[1]) if len(sys.argv) > 1 else 36, sys.argv[2] if len(sys.argv) > 2 else "1"
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = collections.Counter()
    for number in range(count):
        try:
            what, found = check_model(number, seed)
        except RuntimeError as error:
            what, found = f"{number}: {sorted(FAMILIES)[number % len(FAMILIES)]}", [str(error)]
        failed["models"] += bool(found)
        print(f"{'FAIL' if found else 'ok  '} {what}", *found, sep="\n     ", flush=True)
    found = check_blocks(random.Random(seed))
    print(f"{'FAIL' if found else 'ok  '} blocks of 13 types", *found, sep="\n     ")
    failed["blocks"] += bool(found)
    if not llama_host.HOST.exists():
        print(f"FAIL llama.cpp's library could not be built, so no tokens were compared with it: {llama_host.HOST} does not exist")
        failed["library"] += 1
    print(f"gguf: {count - failed['models']} of {count} models are equal, " + ("blocks differ" if failed["blocks"] else "blocks are equal"))
    return 1 if failed.total() else 0


if __name__ == "__main__":
    sys.exit(main())
