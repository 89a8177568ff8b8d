"""Trains a small network on the bytes of LICENSE with Lightning and the strategy of libds, ZeRO stage 3."""
import logging
import pathlib
import warnings

import torch
from libds.torch.lightning import Strategy
from torch import nn

import pytorch_lightning as pl


class Module(pl.LightningModule):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(256, width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, 256))
        self.losses = []

    def training_step(self, rows, number):
        loss = nn.functional.cross_entropy(self.net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
text = torch.frombuffer(bytearray(pathlib.Path("LICENSE").read_bytes()), dtype=torch.uint8).long()
loader = torch.utils.data.DataLoader(text[:len(text) // 64 * 64].view(-1, 64), batch_size=8)
torch.manual_seed(1)
module = Module()
trainer = pl.Trainer(accelerator="cpu", devices=2, strategy=Strategy(stage=3), max_epochs=2, gradient_clip_val=1.0, logger=False,
                     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(module, loader)
if trainer.is_global_zero:
    print(f"{trainer.world_size} ranks, {trainer.global_step} steps, loss {module.losses[0]:.2f} to {module.losses[-1]:.2f}")
assert module.losses[-1] < module.losses[0] - 1
