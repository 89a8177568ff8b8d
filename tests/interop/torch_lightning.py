"""Lightning with libds.torch.lightning.Strategy: fit, validate, save and resume, against plain torch (part lightning of torch_host.py)."""
import logging
import os
import tempfile
import warnings

import torch

import libds.torch
import torch_models
from libds.torch.lightning import Strategy
from torch_host import DECAY, RATE, Plain, batches_of, check, seeded
from torch_models import gpt2, language_loss
from torch_uses import where

import pytorch_lightning as pl

STEPS = 3  # of an epoch


class Module(pl.LightningModule):
    """GPT-2 on batches that contain only a number, which selects the tokens."""

    def __init__(self):
        super().__init__()
        self.net = seeded(gpt2)
        self.losses = []

    def training_step(self, batch, number):
        loss = language_loss(self.net, int(batch[0]))
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, number):
        self.log("evaluated", language_loss(self.net, int(batch[0])), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=RATE, weight_decay=DECAY)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 10), "interval": "step"}]


def loader(count):
    comm = libds.torch.communicator()
    numbers = torch.arange(count)
    return torch.utils.data.DataLoader(numbers, sampler=torch.utils.data.DistributedSampler(numbers, comm.size, comm.rank, shuffle=False))


def trainer(folder, stage, epochs=1):
    comm = libds.torch.communicator()
    config = {"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}, "zero_allow_untested_optimizer": True}
    return pl.Trainer(accelerator="cpu", devices=comm.size, strategy=Strategy(config=config), default_root_dir=folder, logger=False,
                             enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, max_epochs=epochs,
                             gradient_clip_val=1.0, accumulate_grad_batches=2, use_distributed_sampler=False)


def compare(stage):
    comm = libds.torch.communicator()
    with tempfile.TemporaryDirectory() as scratch:
        folder = where(comm, scratch)
        whole = Module()
        one = trainer(folder, stage, 2)
        one.fit(whole, loader(STEPS * 2 * comm.size), loader(4))
        evaluated = float(one.callback_metrics["evaluated"])
        plain = Plain(gpt2, language_loss)
        rates = torch.optim.lr_scheduler.LambdaLR(plain.optimizer, lambda step: 1 - step / 10)
        theirs = []
        for step in range(2 * STEPS):
            theirs += plain.step(batches_of(step % STEPS, 2, comm.size), comm.rank)
            rates.step()
        worst = max(abs(mine - other) for mine, other in zip(whole.losses, theirs, strict=True))
        check(f"Lightning trains, stage {stage}", worst < 2e-6, f"largest difference {worst:.1e}")
        with torch.no_grad():
            expected = sum(language_loss(plain.model, seed).item() for seed in range(4)) / 4
        check(f"Lightning validates, stage {stage}", abs(evaluated - expected) < 2e-6, f"{evaluated}, plain {expected}")
        saved = os.path.join(folder, "saved")
        one.save_checkpoint(saved)
        one.strategy.deepspeed_engine.destroy()

        half = Module()
        first = trainer(folder, stage)
        first.fit(half, loader(STEPS * 2 * comm.size))
        middle = os.path.join(folder, "middle")
        first.save_checkpoint(middle)
        first.strategy.deepspeed_engine.destroy()
        again = Module()
        second = trainer(folder, stage, 2)
        second.fit(again, loader(STEPS * 2 * comm.size), ckpt_path=middle)
        good = second.global_step == 2 * STEPS and half.losses + again.losses == whole.losses
        check(f"Lightning resumes, stage {stage}", good, "" if good else f"losses {half.losses} and {again.losses}, whole {whole.losses}")
        second.strategy.deepspeed_engine.destroy()

        read = Module()
        third = trainer(folder, stage)
        found = third.validate(read, loader(4), ckpt_path=saved, verbose=False)
        check(f"Lightning validates a checkpoint, stage {stage}", abs(found[0]["evaluated"] - evaluated) < 1e-6, f"{found}, saved at {evaluated}")
        third.strategy.deepspeed_engine.destroy()
        comm.barrier()


def lightning(*stages):
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    libds.torch.init_distributed()
    for stage in stages or (0, 2, 3):
        compare(stage)
