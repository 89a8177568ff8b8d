"""Trains a small GPT-2 on the bytes of LICENSE with the Trainer of Transformers, whose `deepspeed` is libds: ZeRO stage 3."""
import pathlib
import tempfile

import libds.torch

libds.torch.as_deepspeed()  # before Transformers looks for DeepSpeed

import torch  # noqa: E402
import transformers  # noqa: E402

CONFIG = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
          "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
          "zero_optimization": {"stage": 3}}

text = torch.frombuffer(bytearray(pathlib.Path("LICENSE").read_bytes()), dtype=torch.uint8).long()
rows = [{"input_ids": row, "labels": row} for row in text[:len(text) // 64 * 64].view(-1, 64)]
transformers.logging.set_verbosity_error()
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        output_dir=folder, deepspeed=CONFIG, per_device_train_batch_size=8, max_steps=20, learning_rate=3e-3, logging_steps=1,
        save_strategy="no", report_to=[], disable_tqdm=True, log_level="error", seed=1)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4))
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
if trainer.is_world_process_zero():
    print(f"{arguments.world_size} ranks, {len(losses)} steps, loss {losses[0]:.2f} to {losses[-1]:.2f}")
assert losses[-1] < losses[0] - 1
