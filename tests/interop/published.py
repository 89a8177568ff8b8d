"""Records the models that Transformers builds from the published configurations in tests/data/hf_configs.json.

usage: published.py [--record]

Compares tests/data/hf_built.json with the models of the installed Transformers and fails where they differ; --record
writes the file. Needs torch and transformers. tests/nn/built_models_test.cpp compares the graphs of libds with the same
file.
"""
import argparse
import json
import pathlib
import sys

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
ACTIVATIONS = {"SiLUActivation": "silu", "SiLU": "silu", "GELUActivation": "gelu_erf", "NewGELUActivation": "gelu_tanh",
               "FastGELUActivation": "gelu_tanh", "GELUTanh": "gelu_tanh", "ReLU": "relu"}


def build(keys):
    config = type(transformers.AutoConfig.for_model(keys["model_type"])).from_dict(dict(keys))
    kind = transformers.AutoModelForMaskedLM if keys["model_type"] == "bert" else transformers.AutoModelForCausalLM
    return kind.from_config(config), config


def attention(module, config, layer):
    """Returns the heads, their width, the factor of the products, window, cap and dropout of a layer's attention."""
    heads = config.num_attention_heads
    width = getattr(module, "head_dim", None) or getattr(module, "head_size", None) or getattr(module, "attention_head_size", None)
    scaling = module.scaling / (layer + 1) if getattr(module, "scale_attn_by_inverse_layer_idx", False) else module.scaling
    types = getattr(config, "layer_types", None)
    windowed = config.model_type in ("mistral", "mixtral", "phi3") or (types and types[layer] == "sliding_attention")
    drop = next((getattr(module, name) for name in ("attention_dropout", "attn_dropout", "dropout") if hasattr(module, name)), 0.0)
    drop = drop.p if isinstance(drop, torch.nn.Dropout) else drop
    if config.model_type == "opt":
        drop = config.attention_dropout
    return {"heads": heads, "kv_heads": getattr(config, "num_key_value_heads", None) or heads, "width": width, "scale": scaling,
            "window": (getattr(config, "sliding_window", None) or 0) if windowed else 0,
            "softcap": getattr(module, "attn_logit_softcapping", None) or 0.0, "dropout": drop, "causal": module.is_causal}


def turns(frequencies):
    frequencies = frequencies.double()
    return {"first": frequencies[0].item(), "last": frequencies[-1].item(), "sum": frequencies.sum().item()}


def rope(module, config):
    """Returns the frequencies of the pairs of columns and, if they depend on the length of a text, also those for a longer
    text."""
    out = {"columns": 2 * len(module.inv_freq), **turns(module.inv_freq), "magnitude": float(module.attention_scaling)}
    out["scaling"] = module.rope_type
    if module.rope_type in ("llama3", "yarn", "longrope"):
        out["original"] = config.rope_parameters["original_max_position_embeddings"]
    if module.rope_type in ("dynamic", "longrope"):
        length = 2 * config.max_position_embeddings
        frequencies, _ = ROPE_INIT_FUNCTIONS[module.rope_type](config, device="cpu", seq_len=length)
        out["longer"] = {"length": length, **turns(frequencies)}
    return out


def facts(keys):
    model, config = build(keys)
    named = list(model.named_modules())
    names = [type(module).__name__ for _, module in named]
    norms = [module for _, module in named if type(module).__name__.endswith(("LayerNorm", "RMSNorm"))]
    layers = [module for name, module in named if name.rsplit(".", 1)[-1] in ("self_attn", "attn", "self", "attention")
              and hasattr(module, "scaling")]
    drops = [module.p for name, module in named if isinstance(module, torch.nn.Dropout) and module.p
             and not name.endswith(("attn_dropout", "self.dropout"))]
    # The layers of OPT call the dropout function, so they have no dropout modules.
    if config.model_type == "opt":
        drops = [config.dropout] * (2 * len(layers)) if config.dropout else []
    turning = [module for name, module in named if name.endswith("rotary_emb")]
    out = {"parameters": sum(p.numel() for p in model.parameters()),
           "deviation": getattr(config, "init_std", None) or config.initializer_range,
           "norms": len(norms), "eps": sorted({getattr(norm, "eps", None) or norm.variance_epsilon for norm in norms}),
           "activation": sorted({ACTIVATIONS[name] for name in names if name in ACTIVATIONS}),
           "attention": [attention(module, config, layer) for layer, module in enumerate(layers)], "dropouts": drops,
           "padding": next(module.padding_idx for _, module in named if isinstance(module, torch.nn.Embedding)),
           "rope": rope(turning[0], config) if turning else None}
    if config.model_type == "gpt_neox":
        out["parallel"] = config.use_parallel_residual
    if config.model_type == "opt":
        out["norm_first"] = config.do_layer_norm_before
    if config.model_type == "gemma2":
        out["softcap"] = config.final_logit_softcapping
    if config.model_type == "mixtral":
        out["experts"] = {"of_a_token": config.num_experts_per_tok,
                          "balance": config.router_aux_loss_coef if config.output_router_logits else 0.0}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the file")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    given = json.loads((DATA / "hf_configs.json").read_text(encoding="utf-8"))
    now = {name: facts(keys) for name, keys in given.items()}
    path = DATA / "hf_built.json"
    if args.record:
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in now.items())
        path.write_text(f'{{"transformers": "{transformers.__version__}",\n "models": {{\n{lines}}}}}\n', encoding="utf-8")
        return 0
    recorded = json.loads(path.read_text(encoding="utf-8"))["models"]
    wrong = [name for name in sorted(recorded.keys() | now.keys()) if recorded.get(name) != now.get(name)]
    for name in wrong:
        print(f"{name}: recorded {recorded.get(name)}, Transformers {transformers.__version__} builds {now.get(name)}")
    print(f"published: {len(wrong)} of {len(now)} models differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
