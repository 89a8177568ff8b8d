"""Draws model folders for models.py: a configuration of a family with any of its options, weights for the configuration, and
the spellings of such folders on the hub. All depends on the seed and the folder's index only."""
import json
import random

import safetensors.torch
import torch
import transformers

ACTIVATIONS = ["gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate",
               "gelu_10", "relu", "relu2", "silu", "swish", "tanh", "laplace", "sigmoid", "quick_gelu"]
# Keys of published files that Transformers does not read.
IDLE = {"n_special": 0, "predict_special_tokens": True, "output_past": True, "is_llama_config": True,
        "rope_interleaved": False, "sliding_window_size": 4096, "full_attn_mod": 1, "interpolate_factor": 1,
        "lm_head_bias": False, "pooler_type": "first_token_transform", "max_sequence_length": 2048, "unsloth_fixed": True,
        "custom_pipelines": {"text-generation": {"impl": "x.Y"}}, "masked_softmax_fusion": True, "pretraining_tp": 2,
        "use_cache": False, "gradient_checkpointing": True, "_name_or_path": "some/where", "use_mrope": False,
        "_flash_attn_2_enabled": True, "tokenizer_class": "X", "learned_embeddings": True, "scale_embeddings": False,
        "rotary_emb_base_": 5, "logits_scaling": None, "quantization_note": [1, {"a": None}], "num_labels": 2}
# Families with a table of positions. Other families accept texts that are longer than max_position_embeddings.
POSITION_TABLE = {"gpt2", "opt", "bert"}


class Draw(random.Random):
    def chance(self, share):
        return self.random() < share

    def some(self, target, **values):
        """Writes a drawn value under each key into target, or leaves the key out."""
        for key, choices in values.items():
            if self.chance(0.75):
                target[key] = self.choice(choices)


class Setup:
    """The use of a folder: the batch, and the settings of libds."""

    def __init__(self, draw, family):
        self.tokens = draw.choice([2, 3, 4, 5, 8, 11, 16, 17, 24] + ([1] if family == "bert" else []))
        self.rows = draw.choice([1, 2, 2, 3])
        self.padding = draw.choice(["none", "none", "right", "left", "holes"])
        self.ranks = draw.choice([1, 1, 2])
        self.stage = draw.choice([0, 1, 2, 3])
        self.tier = draw.choice(["device"] * 6 + ["cpu", "nvme"])
        self.bf16 = draw.chance(0.1)
        self.generate = draw.chance(0.2) and family != "bert"
        self.new_tokens = 4
        # The length of the longest text.
        self.text = max(self.tokens, 11, 5) + self.new_tokens

    def __str__(self):
        return (f"{self.rows}x{self.tokens} padding {self.padding}, {self.ranks} ranks, stage {self.stage}, "
                f"tier {self.tier}")


def shape(draw, even, free_width, family):
    """Returns the widths of a decoder with heads: hidden is heads * width unless the family has head_dim."""
    heads = draw.choice([1, 2, 3, 4, 6])
    # The results of a LayerNorm over up to three numbers are mostly rounding errors.
    width = draw.choice([2, 4, 6, 8, 16] if even else [n for n in [1, 2, 3, 5, 8, 16] if heads * n >= 4])
    out = {"num_attention_heads": heads, "hidden_size": heads * width}
    if free_width and draw.chance(0.4):
        out["head_dim"] = width
        # hidden_size must be a multiple of the heads.
        strict = family in ("llama", "gemma2")
        out["hidden_size"] = heads * draw.choice([2, 4, 5]) if strict else draw.choice([4, 6, 10, 24])
    out["num_hidden_layers"] = draw.choice([1, 2, 2, 3])
    out["vocab_size"] = draw.choice([17, 32, 50, 101, 128])
    out["intermediate_size"] = draw.choice([8, 20, 33, 48])
    return out, width


def padding_id(draw, config):
    """Draws pad_token_id: None, no key, an index in range, or an index counted from the end. Also draws eos_token_id."""
    if draw.chance(0.6):
        config["pad_token_id"] = draw.choice([None, 0, 1, 3, config["vocab_size"] - 1, -1])
    elif config["model_type"] == "phi3":
        # The default is outside the vocabulary.
        config["pad_token_id"] = None
    if draw.chance(0.3):
        config["eos_token_id"] = draw.choice([0, 2, [1, 5], None])


def positions(draw, config, setup):
    """Draws max_position_embeddings around the length of the sequences."""
    least = setup.text if config["model_type"] in POSITION_TABLE else 4
    around = draw.choice([setup.tokens // 2, setup.tokens, setup.text, 64, 2048])
    config["max_position_embeddings"] = max(least, around)


def scaling(draw, config, width, kinds, partial=1.0):
    """Returns a random rope_scaling of one of `kinds`, with any of its members, or None for a plain rope."""
    kind, pairs = draw.choice(kinds), int(width * partial + 1) // 2
    if kind is None or (kind == "dynamic" and int(width * partial) <= 2):
        return None
    if config["model_type"] in ("mixtral", "ministral") and kind != "default":
        # Transformers has no default for head_dim.
        config.setdefault("head_dim", width)
    limit = config["max_position_embeddings"]
    out = {"rope_type": kind}
    factor = draw.choice([1.0, 1.5, 2, 4.0, 8, 32.0])
    original = draw.choice([2, limit // 2, limit, 8, 4 * limit])
    if kind in ("linear", "dynamic"):
        out["factor"] = factor
    elif kind == "llama3":
        out |= {"factor": factor, "low_freq_factor": draw.choice([1, 1.0, 0.5]), "high_freq_factor": draw.choice([4, 4.0, 2.5]),
                "original_max_position_embeddings": original}
    elif kind == "yarn":
        out["factor"] = factor
        draw.some(out, original_max_position_embeddings=[original])
        if draw.chance(0.4):
            draw.some(out, beta_fast=[32, 16.0, 4], beta_slow=[1, 0.5, 2], attention_factor=[1.0, 0.7, 1.3],
                      mscale=[0.707, 1.0, 1], mscale_all_dim=[0.5, 1.0], truncate=[True, False])
    elif kind in ("longrope", "su"):
        def factors(most):
            return [round(draw.uniform(1, most), 3) for _ in range(pairs)]
        out |= {"short_factor": factors(1.5), "long_factor": factors(8)}
        draw.some(out, original_max_position_embeddings=[max(2, original)])
        # Transformers copies the key that is next to the object into the object, but not for "su".
        if kind == "su":
            out["original_max_position_embeddings"] = config["original_max_position_embeddings"]
        if draw.chance(0.4):
            draw.some(out, factor=[factor], attention_factor=[1.0, 1.19, 2])
    if draw.chance(0.1):
        out[draw.choice(["finetuned", "note", "original_rope"])] = draw.choice([True, 1, "x"])
    if draw.chance(0.15):
        out["type"] = out.pop("rope_type")
    return out


def rope(draw, config, width, kinds=(None, None, "default", "linear", "dynamic", "llama3", "yarn", "longrope")):
    found = scaling(draw, config, width, kinds)
    theta = draw.choice([10000, 10000.0, 500000.0, 1e6, 100.0])
    # Transformers 5 spells the key rope_parameters.
    if draw.chance(0.5):
        config["rope_parameters"] = {"rope_type": "default", **(found or {}), "rope_theta": theta}
        if found and "type" in found:
            del config["rope_parameters"]["rope_type"]
    else:
        draw.some(config, rope_theta=[theta])
        if found or draw.chance(0.3):
            config["rope_scaling"] = found


def windows(draw, config, setup, always=True):
    """Draws sliding windows by number and by layer."""
    layers, window = config["num_hidden_layers"], draw.choice([1, 2, 3, setup.tokens, 4096])
    draw.some(config, sliding_window=[window, window, 2 if config["model_type"] in ("gemma2", "ministral") else None])
    types = [draw.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    sliding = config.get("sliding_window", 4096 if always else None) is not None
    if draw.chance(0.4):
        config["layer_types"] = types if sliding else ["full_attention"] * layers


def llama(draw, setup, family):
    config, width = shape(draw, True, family not in ("qwen2", "phi3"), family)
    config |= {"model_type": family}
    positions(draw, config, setup)
    kv = [k for k in range(1, config["num_attention_heads"] + 1) if config["num_attention_heads"] % k == 0]
    config["num_key_value_heads"] = draw.choice(kv)
    if config["num_key_value_heads"] == config["num_attention_heads"] and family in ("llama", "phi3"):
        draw.some(config, num_key_value_heads=[None])
    draw.some(config, hidden_act=ACTIVATIONS, rms_norm_eps=[1e-6, 1e-5, 1e-3, 1e-8], attention_dropout=[0.0, 0.1],
              tie_word_embeddings=[True, False])
    if family == "qwen3":
        config.setdefault("head_dim", width)
    if family not in ("phi3",):
        rope(draw, config, config.get("head_dim", width))
    padding_id(draw, config)
    if family == "llama":
        draw.some(config, attention_bias=[True, False], mlp_bias=[True, False])
    if family == "mistral":
        draw.some(config, sliding_window=[1, 2, 5, 4096, None])
    if family == "ministral":
        windows(draw, config, setup)
    if family in ("qwen2", "qwen3"):
        draw.some(config, use_sliding_window=[True, False], max_window_layers=[0, 1, 2, 28])
        windows(draw, config, setup)
        if not config.get("use_sliding_window", False):
            config.pop("layer_types", None)
    if family == "qwen3":
        draw.some(config, attention_bias=[True, False])
    return config


def mixtral(draw, setup, family):
    config = llama(draw, setup, family)
    windows(draw, config, setup, False)
    experts = draw.choice([1, 2, 3, 4, 6])
    config |= {"num_local_experts": experts, "num_experts_per_tok": draw.randint(1, experts)}
    draw.some(config, output_router_logits=[True, False], router_aux_loss_coef=[0.0, 0.001, 0.02, 1.0],
              router_jitter_noise=[0.0, 0.1])
    return config


def phi3(draw, setup, family):
    config = llama(draw, setup, family)
    width = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    partial = draw.choice([1.0, 1.0, 0.75, 0.5]) if width >= 4 else 1.0
    # Transformers then requires lists that its own code cannot use.
    odd = int(width * partial) % 2 != 0
    limit = config["max_position_embeddings"]
    config["original_max_position_embeddings"] = draw.choice([2, 8, limit, 4096])
    found = scaling(draw, config, width, [None] if odd else [None, "longrope", "longrope", "su"], partial)
    if partial != 1.0 or draw.chance(0.2):
        config["partial_rotary_factor"] = partial
    draw.some(config, rope_theta=[10000.0, 500.0], resid_pdrop=[0.0, 0.1], embd_pdrop=[0.0, 0.1])
    config["rope_scaling"] = found
    windows(draw, config, setup, False)
    return config


def gemma2(draw, setup, family):
    config = llama(draw, setup, family)
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    config["hidden_activation"] = config.pop("hidden_act", "gelu_pytorch_tanh")
    draw.some(config, hidden_act=["gelu", "gelu_pytorch_tanh"], query_pre_attn_scalar=[256, 8, 3],
              attn_logit_softcapping=[50.0, 2.0, None], final_logit_softcapping=[30.0, 3.0, None], attention_bias=[True, False])
    windows(draw, config, setup)
    return config


def gpt2(draw, setup, family):
    heads = draw.choice([1, 2, 3, 4])
    config = {"model_type": family, "n_head": heads, "n_embd": heads * draw.choice([n for n in [1, 2, 3, 5, 8, 16] if heads * n >= 4]),
              "n_layer": draw.choice([1, 2, 3]), "vocab_size": draw.choice([17, 32, 50, 101, 128]),
              "n_positions": setup.text + draw.choice([0, 1, 30])}
    draw.some(config, n_inner=[None, 8, 30], activation_function=ACTIVATIONS, layer_norm_epsilon=[1e-5, 1e-3, 1e-12],
              scale_attn_weights=[True, False], scale_attn_by_inverse_layer_idx=[True, False], n_ctx=[config["n_positions"]],
              reorder_and_upcast_attn=[True, False], resid_pdrop=[0.0, 0.1], embd_pdrop=[0.0, 0.1], attn_pdrop=[0.0, 0.1],
              tie_word_embeddings=[True, False], summary_type=["cls_index"], summary_use_proj=[True])
    padding_id(draw, config)
    return config


def gpt_neox(draw, setup, family):
    config, width = shape(draw, False, False, family)
    if width == 1:
        config["hidden_size"] = config["num_attention_heads"] * (width := 4)
    config["model_type"] = family
    positions(draw, config, setup)
    partial = draw.choice([p for p in (0.25, 0.5, 0.7, 1.0, 1) if int(width * p) >= 2 and (p < 1 or width % 2 == 0)])
    spelled = draw.choice(["old", "both", "new"])
    found = scaling(draw, config, width, [None, None, "linear", "dynamic", "yarn", "llama3", "longrope"], partial)
    theta = draw.choice([10000, 1000.0])
    if spelled == "new":
        config["rope_parameters"] = {"rope_type": "default", **(found or {}), "rope_theta": theta,
                                     "partial_rotary_factor": partial}
        if found and "type" in found:
            del config["rope_parameters"]["rope_type"]
    else:
        config |= {"rotary_pct": partial, "rotary_emb_base": theta}
        if found:
            config["rope_scaling"] = found
        if spelled == "both":
            config |= {"partial_rotary_factor": partial, "rope_theta": theta}
    draw.some(config, hidden_act=ACTIVATIONS, layer_norm_eps=[1e-5, 1e-3, 1e-12], use_parallel_residual=[True, False],
              attention_bias=[True, False], hidden_dropout=[0.0, 0.1], attention_dropout=[0.0, 0.1],
              tie_word_embeddings=[True, False])
    padding_id(draw, config)
    return config


def opt(draw, setup, family):
    config, _ = shape(draw, False, False, family)
    config["ffn_dim"] = config.pop("intermediate_size")
    config["model_type"] = family
    positions(draw, config, setup)
    draw.some(config, activation_function=ACTIVATIONS, do_layer_norm_before=[True, True, False], enable_bias=[True, False],
              _remove_final_layer_norm=[True, False], dropout=[0.0, 0.1], layerdrop=[0.0, 0.1], attention_dropout=[0.0, 0.1],
              tie_word_embeddings=[True, False], layer_norm_elementwise_affine=[True, True, False])
    if draw.chance(0.3):
        config["word_embed_proj_dim"] = draw.choice([4, 7, config["hidden_size"]])
    padding_id(draw, config)
    return config


def bert(draw, setup, family):
    config, _ = shape(draw, False, False, family)
    config["model_type"] = family
    positions(draw, config, setup)
    draw.some(config, hidden_act=ACTIVATIONS, layer_norm_eps=[1e-12, 1e-5], type_vocab_size=[1, 2, 3],
              hidden_dropout_prob=[0.0, 0.1], attention_probs_dropout_prob=[0.0, 0.1], tie_word_embeddings=[True, False],
              position_embedding_type=["absolute"], classifier_dropout=[None, 0.1], is_decoder=[False])
    padding_id(draw, config)
    return config


FAMILIES = {"gpt2": gpt2, "llama": llama, "mistral": llama, "ministral": llama, "qwen2": llama, "qwen3": llama, "phi3": phi3,
            "gemma2": gemma2, "mixtral": mixtral, "gpt_neox": gpt_neox, "opt": opt, "bert": bert}
ARCHITECTURE = {"gpt2": "GPT2LMHeadModel", "gpt_neox": "GPTNeoXForCausalLM", "opt": "OPTForCausalLM",
                "bert": "BertForMaskedLM"}


def dress(draw, config):
    """Adds what real files contain besides the configuration: the author, other spellings, and keys that are never read."""
    family = config["model_type"]
    known = ARCHITECTURE.get(family, family[0].upper() + family[1:] + "ForCausalLM")
    names = [[known]] * 6 + [[known.replace("ForMaskedLM", "Model").replace("ForCausalLM", "Model")], None]
    if family == "bert":
        names.append(["BertForPreTraining"])
    config["architectures"] = draw.choice(names)
    if config["architectures"] is None and draw.chance(0.5):
        del config["architectures"]
    config[draw.choice(["dtype", "torch_dtype"])] = draw.choice(["float32", "bfloat16", "float16"])
    config["transformers_version"] = draw.choice(["4.2.0", "4.46.0", "5.23.0"])
    config["initializer_range" if family != "opt" else "init_std"] = draw.choice([0.02, 0.1])
    for key in draw.sample(sorted(IDLE), draw.choice([0, 0, 1, 3])):
        config.setdefault(key, IDLE[key])
    # This family does not read these keys of other families.
    if draw.chance(0.2):
        for key, value in {"mistral": {"attention_bias": True, "use_sliding_window": False},
                           "qwen2": {"attention_bias": True, "mlp_bias": True}, "phi3": {"mlp_bias": False},
                           "llama": {"sliding_window": 2, "layer_types": ["full_attention"] * config.get("num_hidden_layers", 1)},
                           "gpt2": {"rope_theta": 10000.0, "sliding_window": 3}, "bert": {"sliding_window": 2},
                           "mixtral": {"attention_bias": False, "max_window_layers": 1},
                           }.get(family, {}).items():
            config.setdefault(key, value)
    if draw.chance(0.3):
        word = "".join(draw.choices("abcdefghij", k=6))
        config[f"{word}_{draw.choice(['size', 'flag', 'note'])}"] = draw.choice([3, True, "x", [1, 2], {"a": 1}, 0.5])
    return dict(draw.sample(list(config.items()), len(config)))


def fill(net, draw):
    """Draws weights such that no bias is 0 and no norm is 1. The scale determines the size of the logits."""
    scale = draw.choice([0.02, 0.1, 0.1, 0.3, 0.3, 0.6, 1.0])
    torch.manual_seed(draw.getrandbits(48))
    with torch.no_grad():
        for name, param in net.named_parameters():
            noise = torch.randn_like(param)
            if name.endswith(".bias"):
                param.copy_(0.3 * scale * noise)
            elif param.dim() == 1:
                param.copy_((0.0 if net.config.model_type == "gemma2" else 1.0) + 0.2 * noise)
            else:
                param.copy_(scale * noise)


def spell_tensors(draw, folder, family, prefix):
    """Renames tensors as in older files of the hub, and adds the extra tensors of such files."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    if family == "bert" and draw.chance(0.3):
        tensors = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
                   for n, t in tensors.items()}
    bare = draw.chance(0.25)
    if bare and all(name.startswith(prefix + ".") for name in tensors):
        tensors = {name.removeprefix(prefix + "."): t for name, t in tensors.items()}
    elif family == "gpt2" and draw.chance(0.3):
        for i in range(2):
            tensors[f"{prefix}.h.{i}.attn.bias"] = torch.ones(1, 1, 4, 4).tril()
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def auto_model(family):
    return transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM


def write(draw, folder, config, kind, shards="1GB"):
    """Writes a folder with this configuration and random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config, indent=1) + "\n"
    (folder / "config.json").write_text(text)
    net = auto_model(config["model_type"]).from_config(transformers.AutoConfig.from_pretrained(folder), dtype=torch.float32)
    fill(net, draw)
    net.to(kind).save_pretrained(folder, max_shard_size=shards)
    (folder / "config.json").write_text(text)
    return net


def family_of(index):
    return sorted(FAMILIES)[index % len(FAMILIES)]


def make(folder, seed, index):
    """Writes folder `index` of `seed`, and returns its Setup."""
    draw, family = Draw(f"{seed}/{index}"), family_of(index)
    setup = Setup(draw, family)
    config = dress(draw, FAMILIES[family](draw, setup, family))
    kind = draw.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    net = write(draw, folder, config, kind, "4KB" if draw.chance(0.2) else "1GB")
    if (folder / "model.safetensors").exists():
        spell_tensors(draw, folder, family, net.base_model_prefix)
    return setup


def shrink(config):
    """Returns a published configuration reduced to a few narrow layers and a small vocabulary, with the same ratios. All other
    keys are unchanged."""
    config = dict(config)
    names = {"gpt2": ("n_embd", "n_head", "n_layer", "n_inner")}.get(
        config["model_type"], ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size"))
    hidden_key, heads_key, layers_key, inner_key = names
    if "ffn_dim" in config:
        inner_key = "ffn_dim"
    hidden, heads = config[hidden_key], config[heads_key]
    # The configuration is already tiny.
    if hidden <= 64:
        return config
    kv = config.get("num_key_value_heads") or heads
    ratio = heads // kv
    few = 4 if ratio == 1 else 2 if ratio <= 4 else 1
    old_width = config.get("head_dim") or hidden // heads
    width = min(old_width, 16)
    config[heads_key] = few * ratio
    if config.get("num_key_value_heads"):
        config["num_key_value_heads"] = few
    small = few * ratio * width
    if config.get("head_dim"):
        config["head_dim"] = width
        small = max(1, round(hidden / heads / old_width * width)) * few * ratio
    config[hidden_key] = small
    for key in (inner_key, "word_embed_proj_dim"):
        if config.get(key):
            config[key] = max(2, config[key] * small // hidden)
    config[layers_key] = min(config[layers_key], 2)
    if config.get("layer_types"):
        config["layer_types"] = config["layer_types"][:config[layers_key]]
    config["vocab_size"] = min(config["vocab_size"], 300)
    if (config.get("pad_token_id") or 0) >= config["vocab_size"]:
        config["pad_token_id"] = config["vocab_size"] - 1
    for key in ("rope_scaling", "rope_parameters"):
        for name in ("short_factor", "long_factor"):
            if isinstance((config.get(key) or {}).get(name), list):
                config[key] = {**config[key], name: config[key][name][::max(1, old_width // width)]}
    return config


def published(folder, path, padding, ranks):
    """Writes a folder with the reduced configuration of `path`, and random weights."""
    draw = Draw(path.name)
    config = shrink(json.loads(path.read_text()))
    write(draw, folder, config, torch.float32)
    setup = Setup(draw, config["model_type"])
    setup.tokens, setup.rows, setup.padding, setup.ranks, setup.tier, setup.bf16 = 12, 2, padding, ranks, "device", False
    setup.stage, setup.generate = (3, False) if ranks > 1 else (0, config["model_type"] != "bert")
    return setup
