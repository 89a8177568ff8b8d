"""Programs that import deepspeed, in torch_host.py: Accelerate and the Trainer with libds.torch in DeepSpeed's place."""
import os
import tempfile

import safetensors.torch
import torch

import libds
import libds.torch
import torch_models
from torch_host import LIMIT, Plain, batches_of, check, config, seeded, train
from torch_models import gpt2, language_loss
from torch_uses import refused, where

STAGES = (0, 2, 3)


def names():
    """The finder's answers and refusals."""
    import importlib.metadata

    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

    check("import deepspeed", deepspeed.initialize is libds.torch.initialize and deepspeed.zero.ZeroParamStatus is ZeroParamStatus
          and issubclass(DeepSpeedCPUAdam, torch.optim.Optimizer) and importlib.metadata.version("deepspeed") == deepspeed.__version__)
    check("deepspeed.comm", deepspeed.comm.get_world_size() == libds.torch.communicator().size)
    refused("a name that the shim lacks", lambda: deepspeed.init_inference, "deepspeed.init_inference", "libds generate")

    def missing_module():
        import deepspeed.moe.layer  # noqa: F401

    refused("a module that the shim lacks", missing_module, "deepspeed.moe", "moving-from-deepspeed.md")


def forget():
    """Makes Accelerate start over, because it keeps one state for the process."""
    from accelerate.state import AcceleratorState, PartialState

    AcceleratorState._reset_state()
    PartialState._reset_state()


def accelerate(stage):
    """prepare, accumulate, gather on save, save_state and load_state, compared with plain torch."""
    from accelerate import Accelerator, DeepSpeedPlugin
    from accelerate.utils import DummyOptim

    comm = libds.torch.communicator()
    forget()
    made = config(stage, 2)
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=made))
    module = seeded(gpt2)
    data = [torch_models.tokens(number) for number in range(24 * comm.size)]
    loader = torch.utils.data.DataLoader([row for rows in data for row in rows], batch_size=torch_models.ROWS)
    engine, optimizer, loader = accelerator.prepare(module, DummyOptim(module.parameters()), loader)
    check(f"Accelerate has all ranks, stage {stage}", accelerator.num_processes == comm.size, f"{accelerator.num_processes}")
    plain = Plain(gpt2, language_loss)
    worst = 0.0
    losses = []
    for number, ids in enumerate(loader):
        with accelerator.accumulate(engine):
            loss = engine(input_ids=ids, labels=ids).loss
            losses.append(loss.item())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if number % 2:
            theirs = plain.step(batches_of(number // 2, 2, comm.size), comm.rank)
            worst = max([worst, *(abs(a - b) for a, b in zip(losses[-2:], theirs))])
    check(f"Accelerate trains, stage {stage}", worst < 2e-6, f"largest difference {worst:.1e}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = where(comm, scratch)
        accelerator.save_state(folder)
        state = accelerator.get_state_dict(engine)
        if comm.rank == 0:
            good = all(torch.allclose(value, state[name], atol=1e-5) for name, value in plain.model.state_dict().items())
            check(f"Accelerate gathers weights, stage {stage}", good)
        before = language_loss(engine, 7).item()
        for seed in (1, 2):
            accelerator.backward(language_loss(engine, seed))
        accelerator.load_state(folder)
        check(f"Accelerate resumes, stage {stage}", language_loss(engine, 7).item() == before)
        comm.barrier()
    engine.destroy()


class Rows(torch.utils.data.Dataset):
    """Rows of tokens for the Trainer."""

    def __len__(self):
        return 32

    def __getitem__(self, at):
        ids = torch_models.tokens(at)[0]
        return {"input_ids": ids, "labels": ids}


def trainer(stage):
    """Trains with "auto" keys, evaluates, saves, and resumes with the same losses."""
    import transformers

    comm = libds.torch.communicator()
    made = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "betas": "auto", "eps": "auto"}}}

    def run(folder, made=made, **options):
        forget()
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true" if made else "false"
        arguments = transformers.TrainingArguments(
            output_dir=folder, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=6, logging_steps=1, save_steps=3,
            learning_rate=1e-3, report_to=[], deepspeed=made, disable_tqdm=True, seed=3)
        one = transformers.Trainer(model=seeded(gpt2), args=arguments, train_dataset=Rows(), eval_dataset=Rows())
        one.train(**options)
        evaluated = one.evaluate()["eval_loss"]
        one.save_model(os.path.join(folder, "whole"))
        losses = {row["step"]: row["loss"] for row in one.state.log_history if "loss" in row}
        if made:
            one.model_wrapped.destroy()
        return losses, evaluated

    with tempfile.TemporaryDirectory() as scratch:
        folder = where(comm, scratch)
        first, evaluated = run(folder)
        again, also = run(folder, resume_from_checkpoint=os.path.join(folder, "checkpoint-3"))
        check(f"the Trainer trains and resumes, stage {stage}", len(first) == 6 and first[6] < first[1] and also == evaluated
              and all(again[step] == first[step] for step in (4, 5, 6)), f"losses {first} and {again}, evaluation {evaluated} and {also}")
        if comm.size == 1:
            plain, _ = run(os.path.join(folder, "plain"), None)
            worst = max(abs(plain[step] - first[step]) for step in plain)
            check(f"the Trainer's losses are those without DeepSpeed, stage {stage}", worst < 2e-6, f"largest difference {worst:.1e}")
            os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        if comm.rank == 0:
            # from_pretrained would be collective at stage 3.
            whole = safetensors.torch.load_file(os.path.join(folder, "whole", "model.safetensors"))
            shapes = {name: list(param.shape) for name, param in seeded(gpt2).named_parameters()}
            check(f"the Trainer's saved weights are whole, stage {stage}", all(
                list(whole[name].shape) == shape and not whole[name].isnan().any() for name, shape in shapes.items()))
        comm.barrier()


def pretrained(kind):
    """from_pretrained and from_config of a model in parts, which Transformers makes while an HfDeepSpeedConfig lives."""
    import transformers
    from transformers.integrations import HfDeepSpeedConfig

    comm = libds.torch.communicator()
    make, loss_of = torch_models.MODELS[kind]
    with tempfile.TemporaryDirectory() as scratch:
        folder = where(comm, scratch)
        if comm.rank == 0:
            seeded(make, 5).save_pretrained(folder)
        comm.barrier()
        plain = Plain(lambda: type(make()).from_pretrained(folder), loss_of)
        made = config(3)
        lives = HfDeepSpeedConfig(made)
        cls = type(plain.model)
        module = cls.from_pretrained(folder).train()
        cut = all(param.isnan().all() for param in module.parameters())
        engine, *_ = libds.torch.initialize(model=module, config=made)
        worst = train(engine, plain, loss_of, 5)
        check(f"from_pretrained of {kind} in parts", cut and worst <= LIMIT, f"largest difference {worst:.1e}")
        engine.destroy()
        torch.manual_seed(3 + comm.rank)
        module = transformers.AutoModel.from_config(plain.model.config)
        with libds.torch.zero.GatheredParameters(module.parameters()):
            finite = all(param.isfinite().all() for param in module.parameters())
        check(f"from_config of {kind} in parts", finite and next(module.parameters()).isnan().all().item())
        del lives
        comm.barrier()


def shim(*stages):
    libds.torch.as_deepspeed()
    libds.torch.init_distributed()
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    names()
    for kind in ("gpt2", "llama", "mixtral"):
        pretrained(kind)
    for stage in stages or STAGES:
        accelerate(stage)
        trainer(stage)
