"""The models of torch_host.py: those of Transformers, small modules, and modules that a generator draws."""
import random

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCAB, ROWS, TOKENS = 48, 2, 7


def tokens(seed):
    return torch.randint(0, VOCAB, (ROWS, TOKENS), generator=torch.Generator().manual_seed(seed))


def _transformers(kind, model, **sizes):
    import transformers

    config = getattr(transformers, f"{kind}Config")(**sizes)
    made = getattr(transformers, model)(config)
    return made.train()


def gpt2(**sizes):
    return _transformers("GPT2", "GPT2LMHeadModel", vocab_size=VOCAB, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0,
                         embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0, **sizes)


def llama():
    return _transformers("Llama", "LlamaForCausalLM", vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16, bos_token_id=0, eos_token_id=0)


def mixtral():
    return _transformers("Mixtral", "MixtralForCausalLM", vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, max_position_embeddings=16,
                         bos_token_id=0, eos_token_id=0)


def t5():
    return _transformers("T5", "T5ForConditionalGeneration", vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                         dropout_rate=0, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)


def vit():
    return _transformers("ViT", "ViTForImageClassification", hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, image_size=16, patch_size=4, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                         num_labels=5)


def language_loss(model, seed):
    ids = tokens(seed)
    return model(input_ids=ids, labels=ids).loss


def image_loss(model, seed):
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randn(ROWS, 3, 16, 16, generator=draw)
    return functional.cross_entropy(model(pixel_values=pixels).logits, torch.randint(0, 5, (ROWS,), generator=draw))


#: Models of Transformers, by name: (constructor, loss of a model and the number of a micro-batch).
MODELS = {"gpt2": (gpt2, language_loss), "llama": (llama, language_loss), "vit": (vit, image_loss), "t5": (t5, language_loss),
          "mixtral": (mixtral, language_loss)}


class Pieces(nn.Module):
    """Pieces between an embedding and a head. Their kinds and uses are drawn at random."""

    def __init__(self, seed):
        super().__init__()
        draw = random.Random(seed)
        self.width = draw.choice([4, 8])
        self.embed = nn.Embedding(VOCAB, self.width)
        self.head = nn.Linear(self.width, VOCAB, bias=draw.random() < 0.5)
        if draw.random() < 0.4:
            self.head.weight = self.embed.weight
        self.kinds = [draw.choice(list(PIECES)) for _ in range(draw.randint(1, 5))]
        self.pieces = nn.ModuleList(PIECES[kind](self.width) for kind in self.kinds)
        self.checkpointed = [draw.choice([None, None, True, False]) for _ in self.kinds]
        self.twice = draw.random() < 0.3
        self.inplace = draw.random() < 0.3
        self.output = draw.choice(["tensor", "tuple", "dict", "list"])
        if draw.random() < 0.3:
            self.never = nn.Linear(3, 2)
        if draw.random() < 0.3:
            self.empty = nn.Parameter(torch.zeros(0, 3))
        for param in self.parameters():
            if param.dim() < 2 and draw.random() < 0.1:
                param.requires_grad_(False)

    def forward(self, ids):
        hidden = self.embed(ids)
        for piece, how in list(zip(self.pieces, self.checkpointed)) * (2 if self.twice else 1):
            hidden = hidden + (piece(hidden) if how is None else checkpoint(piece, hidden, use_reentrant=how))
        if self.inplace:
            hidden = functional.relu_(hidden * 1.0)
        logits = self.head(hidden)
        return {"tensor": logits, "tuple": (logits, hidden), "list": [logits], "dict": {"logits": logits, "hidden": hidden}}[self.output]


class Scale(nn.Module):
    """A parameter without dimensions."""

    def __init__(self, _):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, hidden):
        return hidden * self.scale


class Borrowed(nn.Module):
    """Reads the parameters of a module that it does not call."""

    def __init__(self, width):
        super().__init__()
        self.other = nn.Linear(width, width)

    def forward(self, hidden):
        return torch.tanh(functional.linear(hidden, self.other.weight, self.other.bias))


class Shown(nn.Module):
    """A module whose output is a view of its parameter."""

    def __init__(self, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, width) * 0.1)

    def forward(self, count):
        return self.table[:count]


class Positions(nn.Module):
    """Adds what another module shows."""

    def __init__(self, width):
        super().__init__()
        self.shown = Shown(width)

    def forward(self, hidden):
        return hidden * self.shown(hidden.shape[1])


class Image(nn.Module):
    """A convolution in the channels_last layout."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Conv2d(1, width, (1, width)).to(memory_format=torch.channels_last)

    def forward(self, hidden):
        return self.layer(hidden.unsqueeze(1)).squeeze(3).transpose(1, 2)


class Recurrent(nn.Module):
    """A module with a list of its own parameters."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.LSTM(width, width, batch_first=True)

    def forward(self, hidden):
        return self.layer(hidden)[0]


class Attention(nn.Module):
    """A module of torch that reads the parameters of a submodule."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.MultiheadAttention(width, 2, batch_first=True, bias=False)

    def forward(self, hidden):
        return self.layer(hidden, hidden, hidden, need_weights=False)[0]


class Choice(nn.Module):
    """Uses one of two layers, by its input."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])

    def forward(self, hidden):
        return self.layers[int(hidden.detach().sum() > 0)](hidden)


def _mlp(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))


def _weight_norm(width):
    return nn.utils.parametrizations.weight_norm(nn.Linear(width, width))


PIECES = {"mlp": _mlp, "scale": Scale, "borrowed": Borrowed, "positions": Positions, "image": Image, "recurrent": Recurrent,
          "attention": Attention, "weight_norm": _weight_norm, "choice": Choice}


def drawn(seed):
    return Pieces(seed).train()


def logits_of(output):
    if isinstance(output, dict):
        return output["logits"]
    return output[0] if isinstance(output, (tuple, list)) else output


def drawn_loss(model, seed):
    ids = tokens(seed)
    return functional.cross_entropy(logits_of(model(ids)).flatten(0, 1), ids.flatten())
