#!/usr/bin/env python3
"""Makes tests/data/gguf: GGUF files of llama.cpp's converter and of the gguf package, and what they hold.

usage: make_gguf.py LLAMA_CPP [FOLDER]    needs: pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0 sentencepiece==0.2.3
LLAMA_CPP is a folder with the sources of llama.cpp, for example vendor/llama.cpp of llama-cpp-python 0.3.36.

blocks.gguf has one tensor [1, 256] of random bits for each element type, named after the type, and blocks.f32 the values of all
of them, in the order of the names. llama.gguf and gpt2.gguf are tiny models with tokenizers of tests/data/tokenizers.
checksums.json has for each of them, by the names of the model folder, the sum of (i + 1) * element i over the weights.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[1]
TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
LLAMA = transformers.LlamaConfig(vocab_size=802, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
                                 num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2,
                                 rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 50000.0})
GPT2 = transformers.GPT2Config(vocab_size=960, n_embd=8, n_layer=1, n_head=2, n_positions=16, n_ctx=16, n_inner=32, bos_token_id=0,
                               eos_token_id=0)
CONVERT = """
import sys
sys.path.insert(0, sys.argv[1])
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
sys.argv = ["convert"] + sys.argv[2:]
import convert_hf_to_gguf
convert_hf_to_gguf.main()
"""


def make_blocks(folder):
    rng = np.random.default_rng(7)
    writer, values = gguf.GGUFWriter(folder / "blocks.gguf", "blocks"), []
    for name in TYPES:
        kind = getattr(gguf.GGMLQuantizationType, name)
        block, size = gguf.GGML_QUANT_SIZES[kind]
        while True:
            data = rng.integers(0, 256, (1, 256 // block * size), dtype=np.uint8)
            with np.errstate(all="ignore"):
                expanded = gguf.quants.dequantize(data, kind).astype(np.float32).reshape(-1)
            if np.isfinite(expanded).all():
                break
        writer.add_tensor(name, data.view(np.float32) if name == "F32" else data, raw_dtype=kind)
        values.append(expanded)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.concatenate(values).tofile(folder / "blocks.f32")


def make_model(llama_cpp, config, name, tokenizer, special, dtype, target):
    """Converts a random model and returns the checksums of its weights."""
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn_like(value))
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / name
        model.to(dtype).save_pretrained(folder)
        for file in (ROOT / "tests" / "data" / "tokenizers" / tokenizer).iterdir():
            if file.name != "expected.json":
                shutil.copy(file, folder)
        special = special | {"chat_template": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"}
        (folder / "tokenizer_config.json").write_text(json.dumps(special))
        kind = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
        subprocess.run([sys.executable, "-c", CONVERT, llama_cpp, folder, "--outfile", target / f"{name}.gguf", "--outtype", kind],
                       check=True)
        weights = load_file(folder / "model.safetensors")
    return {key: float(sum((i + 1) * x for i, x in enumerate(value.double().flatten().tolist())))
            for key, value in sorted(weights.items())}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "tests" / "data" / "gguf")
    folder.mkdir(parents=True, exist_ok=True)
    make_blocks(folder)
    pieces = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "tokenizer_class": "LlamaTokenizer"}
    ends = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "tokenizer_class": "GPT2Tokenizer"}
    sums = {"llama": make_model(sys.argv[1], LLAMA, "llama", "spm_bpe", pieces, torch.bfloat16, folder),
            "gpt2": make_model(sys.argv[1], GPT2, "gpt2", "gpt2", ends, torch.float16, folder)}
    (folder / "checksums.json").write_text(json.dumps(sums, indent=1) + "\n")


if __name__ == "__main__":
    main()
