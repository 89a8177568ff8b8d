"""Computes tiny models in f64 with numpy: writes their folders with random weights, and returns the loss of each token."""
import copy
import json
import os
import struct

import numpy

from outside import order

VOCAB = 256
FAMILIES = ["gpt", "gpt2", "llama", "mixtral", "bert"]


def write_safetensors(path, tensors):
    header, data, at = {}, [], 0
    for name, value in tensors.items():
        raw = numpy.ascontiguousarray(value, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + b"".join(data))


def read_safetensors(path):
    with open(path, "rb") as file:
        whole = file.read()
    size = struct.unpack("<Q", whole[:8])[0]
    out = {}
    for name, entry in json.loads(whole[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name] = numpy.frombuffer(whole[8 + size + begin:8 + size + end], "<f4").reshape(entry["shape"])
    return out


def layer_norm(x, w, b, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps) * w + b


def rms_norm(x, w, eps):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def gelu(x):
    return 0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + numpy.exp(-x))


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turned(x, positions, theta):
    """Applies a rotary embedding. x is [rows, tokens, heads, width]; the elements of a pair are half a head apart."""
    half = x.shape[-1] // 2
    angle = positions[..., None] / theta ** (numpy.arange(half) / half)
    c, s = numpy.cos(angle)[:, :, None], numpy.sin(angle)[:, :, None]
    a, b = x[..., :half], x[..., half:]
    return numpy.concatenate([a * c - b * s, b * c + a * s], -1)


def attention(q, k, v, seen):
    """Computes attention. q, k, v are [rows, tokens, heads, width]; seen is [rows, tokens, tokens]."""
    groups = q.shape[2] // k.shape[2]
    k, v = numpy.repeat(k, groups, 2), numpy.repeat(v, groups, 2)
    scores = numpy.einsum("rihd,rjhd->rhij", q, k) / numpy.sqrt(q.shape[-1])
    weights = softmax(numpy.where(seen[:, None], scores, -numpy.inf))
    return numpy.einsum("rhij,rjhd->rihd", weights, v).reshape(*q.shape[:2], -1)


class Result:
    """The results of one row: the loss of each token (0 without a target), and the scores of the experts by each layer's
    router."""

    def __init__(self, losses, routers):
        self.losses, self.routers = losses, routers


class Model:
    def __init__(self, family, hidden, layers, heads, rng):
        self.family, self.hidden, self.layers, self.heads = family, hidden, layers, heads
        self.kv_heads = max(1, heads // 2) if family in ("llama", "mixtral") else heads
        self.inner, self.experts, self.chosen, self.balance = hidden + 8, 4, 2, 0.0
        if family == "mixtral":
            self.balance = rng.choice([0.0, 0.02, 1.0])
        self.w, self.folder, self.known = {}, None, {}

    def weight(self, numbers, name, *shape):
        one = 1.0 if len(shape) == 1 and "bias" not in name else 0.0
        self.w[name] = (one + 0.4 * numbers.standard_normal(shape)).astype(numpy.float32)

    def draw(self, seed, positions):
        n, h = numpy.random.default_rng(seed), self.hidden
        add = lambda name, *shape: self.weight(n, name, *shape)
        kv = h // self.heads * self.kv_heads
        if self.family == "gpt2":
            add("transformer.wte.weight", VOCAB, h), add("transformer.wpe.weight", positions, h)
            for i in range(self.layers):
                p = f"transformer.h.{i}."
                for name, a, b in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, 4 * h), ("mlp.c_proj", 4 * h, h)):
                    add(p + name + ".weight", a, b), add(p + name + ".bias", b)
                for name in ("ln_1", "ln_2"):
                    add(p + name + ".weight", h), add(p + name + ".bias", h)
            add("transformer.ln_f.weight", h), add("transformer.ln_f.bias", h)
        elif self.family in ("llama", "mixtral"):
            add("model.embed_tokens.weight", VOCAB, h)
            for i in range(self.layers):
                p = f"model.layers.{i}."
                for name, a, b in (("q", h, h), ("k", kv, h), ("v", kv, h), ("o", h, h)):
                    add(f"{p}self_attn.{name}_proj.weight", a, b)
                add(p + "input_layernorm.weight", h), add(p + "post_attention_layernorm.weight", h)
                if self.family == "llama":
                    for name, a, b in (("gate", self.inner, h), ("up", self.inner, h), ("down", h, self.inner)):
                        add(f"{p}mlp.{name}_proj.weight", a, b)
                    continue
                add(p + "block_sparse_moe.gate.weight", self.experts, h)
                for e in range(self.experts):
                    for name, a, b in (("w1", self.inner, h), ("w3", self.inner, h), ("w2", h, self.inner)):
                        add(f"{p}block_sparse_moe.experts.{e}.{name}.weight", a, b)
            add("model.norm.weight", h), add("lm_head.weight", VOCAB, h)
        elif self.family == "bert":
            e = "bert.embeddings."
            add(e + "word_embeddings.weight", VOCAB, h), add(e + "position_embeddings.weight", positions, h)
            add(e + "token_type_embeddings.weight", 2, h), add(e + "LayerNorm.weight", h), add(e + "LayerNorm.bias", h)
            for i in range(self.layers):
                p = f"bert.encoder.layer.{i}."
                for name, a, b in (("attention.self.query", h, h), ("attention.self.key", h, h), ("attention.self.value", h, h),
                                   ("attention.output.dense", h, h), ("intermediate.dense", self.inner, h), ("output.dense", h, self.inner)):
                    add(p + name + ".weight", a, b), add(p + name + ".bias", a)
                for name in ("attention.output.LayerNorm", "output.LayerNorm"):
                    add(p + name + ".weight", h), add(p + name + ".bias", h)
            c = "cls.predictions."
            add(c + "transform.dense.weight", h, h), add(c + "transform.dense.bias", h)
            add(c + "transform.LayerNorm.weight", h), add(c + "transform.LayerNorm.bias", h), add(c + "bias", VOCAB)

    def config(self, positions):
        if self.family == "gpt2":
            return {"model_type": "gpt2", "n_embd": self.hidden, "n_layer": self.layers, "n_head": self.heads,
                    "n_positions": positions, "vocab_size": VOCAB}
        out = {"model_type": self.family, "hidden_size": self.hidden, "num_hidden_layers": self.layers,
               "num_attention_heads": self.heads, "intermediate_size": self.inner, "vocab_size": VOCAB,
               "max_position_embeddings": positions, "pad_token_id": None, "tie_word_embeddings": self.family == "bert"}
        if self.family == "bert":
            return {**out, "type_vocab_size": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "pad_token_id": 0}
        out["num_key_value_heads"] = self.kv_heads
        if self.family == "mixtral":
            out |= {"num_local_experts": self.experts, "num_experts_per_tok": self.chosen,
                    "output_router_logits": self.balance > 0, "router_aux_loss_coef": self.balance or 0.001}
        return out

    def write(self, folder, positions):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(self.config(positions), file)
        write_safetensors(os.path.join(folder, "model.safetensors"), self.w)
        self.folder = folder

    def with_weights(self, weights):
        if weights is self.w:
            return self
        out = copy.copy(self)
        out.w, out.known = weights, {}
        return out

    def results(self, rows):
        """Returns the results of the rows, and caches them."""
        fresh = {row.key: row for row in rows if row.key not in self.known}
        for length in sorted({len(row.tokens) for row in fresh.values()}):
            some = [row for row in fresh.values() if len(row.tokens) == length]
            for row, (logs, routers) in zip(some, self.forward(some)):
                self.known[row.key] = (logs, routers)
        out = []
        for row in rows:
            logs, routers = self.known[row.key]
            losses = numpy.array([-logs[i, t] if t != order.NO_TARGET else 0.0 for i, t in enumerate(row.targets)])
            out.append(Result(losses, routers))
        return out

    def margin(self, rows):
        """Returns the smallest margin between the last chosen expert and the first one not chosen, relative to the largest
        score of the router."""
        if self.family != "mixtral":
            return numpy.inf
        ordered = numpy.sort(numpy.concatenate([r.routers.reshape(-1, self.experts) for r in self.results(rows)]), -1)
        return ((ordered[:, -self.chosen] - ordered[:, -self.chosen - 1]) / numpy.abs(ordered).max(-1)).min()

    def forward(self, rows):
        """Returns log-probabilities [tokens, words] of each row, and router scores [layers, tokens, experts]."""
        tokens, begins = numpy.array([r.tokens for r in rows]), numpy.array([r.begins for r in rows])
        w = {name: value.astype(numpy.float64) for name, value in self.w.items()}
        at = numpy.arange(tokens.shape[1])
        positions = at - begins
        seen = (at[None, None, :] <= at[None, :, None]) & (at[None, None, :] >= begins[:, :, None])
        routers = []
        if self.family == "bert":
            logits = self.bert(w, tokens)
        elif self.family in ("gpt", "gpt2"):
            logits = self.gpt(w, tokens, positions, seen)
        else:
            logits = self.llama(w, tokens, positions, seen, routers)
        logs = logits - logits.max(-1, keepdims=True)
        logs -= numpy.log(numpy.exp(logs).sum(-1, keepdims=True))
        return [(logs[i], numpy.array([layer[i] for layer in routers])) for i in range(len(rows))]

    def split(self, x, heads):
        return x.reshape(*x.shape[:2], heads, -1)

    def gpt(self, w, tokens, positions, seen):
        ours = self.family == "gpt"
        p = "" if ours else "transformer."
        names = ("attn.qkv", "attn.proj", "mlp.fc", "mlp.proj") if ours else ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
        product = lambda x, name: x @ (w[name + ".weight"].T if ours else w[name + ".weight"]) + w[name + ".bias"]
        norm = lambda x, name: layer_norm(x, w[name + ".weight"], w[name + ".bias"], 1e-5)
        x = w[p + "wte.weight"][tokens] + w[p + "wpe.weight"][positions]
        for i in range(self.layers):
            q = f"{p}h.{i}."
            h = product(norm(x, q + "ln_1"), q + names[0])
            parts = [self.split(part, self.heads) for part in numpy.split(h, 3, -1)]
            x = x + product(attention(*parts, seen), q + names[1])
            x = x + product(gelu(product(norm(x, q + "ln_2"), q + names[2])), q + names[3])
        return norm(x, p + "ln_f") @ w[p + "wte.weight"].T

    def llama(self, w, tokens, positions, seen, routers):
        mixtral = self.family == "mixtral"
        eps, theta = (1e-5, 1e6) if mixtral else (1e-6, 1e4)
        x = w["model.embed_tokens.weight"][tokens]
        for i in range(self.layers):
            p = f"model.layers.{i}."
            h = rms_norm(x, w[p + "input_layernorm.weight"], eps)
            q, k, v = (self.split(h @ w[f"{p}self_attn.{n}_proj.weight"].T, self.heads if n == "q" else self.kv_heads) for n in "qkv")
            h = attention(turned(q, positions, theta), turned(k, positions, theta), v, seen)
            x = x + h @ w[p + "self_attn.o_proj.weight"].T
            h = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
            gated = lambda a, up, down: (silu(h @ w[a].T) * (h @ w[up].T)) @ w[down].T
            if not mixtral:
                x = x + gated(*(f"{p}mlp.{n}_proj.weight" for n in ("gate", "up", "down")))
                continue
            scores = h @ w[p + "block_sparse_moe.gate.weight"].T
            routers.append(scores)
            share = softmax(scores)
            best = numpy.argsort(-share, -1, kind="stable")[..., :self.chosen]
            gates = numpy.zeros_like(share)
            numpy.put_along_axis(gates, best, numpy.take_along_axis(share, best, -1), -1)
            gates /= gates.sum(-1, keepdims=True)
            for e in range(self.experts):
                x = x + gates[..., e:e + 1] * gated(*(f"{p}block_sparse_moe.experts.{e}.{n}.weight" for n in ("w1", "w3", "w2")))
        return rms_norm(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T

    def bert(self, w, tokens):
        product = lambda x, name: x @ w[name + ".weight"].T + w[name + ".bias"]
        norm = lambda x, name: layer_norm(x, w[name + ".weight"], w[name + ".bias"], 1e-12)
        e = "bert.embeddings."
        x = w[e + "word_embeddings.weight"][tokens] + w[e + "token_type_embeddings.weight"][0]
        x = norm(x + w[e + "position_embeddings.weight"][:tokens.shape[1]], e + "LayerNorm")
        seen = numpy.ones((tokens.shape[0], tokens.shape[1], tokens.shape[1]), bool)
        for i in range(self.layers):
            p = f"bert.encoder.layer.{i}."
            parts = [self.split(product(x, f"{p}attention.self.{n}"), self.heads) for n in ("query", "key", "value")]
            x = norm(x + product(attention(*parts, seen), p + "attention.output.dense"), p + "attention.output.LayerNorm")
            x = norm(x + product(gelu(product(x, p + "intermediate.dense")), p + "output.dense"), p + "output.LayerNorm")
        c = "cls.predictions."
        x = norm(gelu(product(x, c + "transform.dense")), c + "transform.LayerNorm")
        return x @ w["bert.embeddings.word_embeddings.weight"].T + w[c + "bias"]

    def router_loss(self, rows, results):
        """Returns the router loss of one micro-batch over its tokens that are not padding (Transformers'
        load_balancing_loss_func)."""
        if self.balance == 0:
            return 0.0
        scores = numpy.concatenate([result.routers[:, numpy.array(row.real)].reshape(-1, self.experts)
                                    for row, result in zip(rows, results)])
        if len(scores) == 0:
            return 0.0
        share = softmax(scores)
        best = numpy.argsort(-share, -1, kind="stable")[:, :self.chosen]
        used = numpy.zeros(self.experts)
        numpy.add.at(used, best.ravel(), 1 / len(scores))
        return self.balance * self.experts * float((used * share.mean(0)).sum())
