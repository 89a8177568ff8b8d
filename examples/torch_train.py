"""Trains a PyTorch model on the bytes of LICENSE. Torch runs forward and backward, libds the rest, with ZeRO stage 3."""
import pathlib

import libds.torch
import torch
from torch import nn

CONFIG = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
          "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.01}},
          "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-3, "warmup_num_steps": 5}},
          "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}


class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 256, bias=False)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.layer(self.embed(ids), mask, is_causal=True))


text = torch.frombuffer(bytearray(pathlib.Path("LICENSE").read_bytes()), dtype=torch.uint8).long()
rows = text[:len(text) // 65 * 65].view(-1, 65)
torch.manual_seed(1)
engine, _, loader, _ = libds.torch.initialize(model=Model(), training_data=rows, config=CONFIG)
losses = []
for _epoch in range(3):
    for batch in loader:
        logits = engine(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        engine.step()
        losses.append(loss.item())
if engine.global_rank == 0:
    print(f"{engine.world_size} ranks, {engine.global_steps} steps, loss {losses[0]:.2f} to {losses[-1]:.2f}")
assert losses[-1] < losses[0] - 1
