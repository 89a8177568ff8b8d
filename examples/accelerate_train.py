"""Trains a small GPT-2 on the bytes of LICENSE in a loop of Accelerate, whose `deepspeed` is libds: ZeRO stage 2."""
import pathlib

import libds.torch

libds.torch.as_deepspeed()  # before Accelerate looks for DeepSpeed

import accelerate  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

CONFIG = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
          "zero_optimization": {"stage": 2}}

accelerator = accelerate.Accelerator(deepspeed_plugin=accelerate.DeepSpeedPlugin(hf_ds_config=CONFIG))
text = torch.frombuffer(bytearray(pathlib.Path("LICENSE").read_bytes()), dtype=torch.uint8).long()
torch.manual_seed(1)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
loader = torch.utils.data.DataLoader(text[:len(text) // 64 * 64].view(-1, 64), batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for _epoch in range(2):
    for rows in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=rows, labels=rows).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
accelerator.print(f"{accelerator.num_processes} ranks, {model.global_steps} steps, loss {losses[0]:.2f} to {losses[-1]:.2f}")
assert losses[-1] < losses[0] - 1
