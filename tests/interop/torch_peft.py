"""LoRA by PEFT, in a loop, in the Trainer and in TRL's SFT trainer, with libds.torch in DeepSpeed's place (part peft of torch_host.py)."""
import os
import tempfile

import torch

import libds.torch
import torch_models
from torch_host import check, compare, config
from torch_models import gpt2, language_loss
from torch_shim import Rows, forget
from torch_uses import where

STAGES = (0, 2, 3)


def adapted(base=None):
    """GPT-2 whose attention has factors of rank 4; only these are trained."""
    import peft

    made = peft.get_peft_model(base or gpt2(), peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    return made.train()


def settings(stage):
    return {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}}}


def losses_of(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def both(name, run, folder, stage):
    """Runs a training with libds, and on one rank without it, and compares losses. Returns the folder with the results."""
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    made = os.path.join(folder, "made")
    mine = run(made, settings(stage))
    check(f"{name} trains, stage {stage}", len(mine) == 6 and mine[-1] < mine[0], f"{mine}")
    if libds.torch.communicator().size == 1:
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "false"
        plain = run(os.path.join(folder, "plain"), None)
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        worst = max(abs(a - b) for a, b in zip(mine, plain, strict=True))
        check(f"{name} has the losses of plain torch, stage {stage}", worst < 2e-6, f"largest difference {worst:.1e}")
    return made


def options(made):
    return {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 6, "logging_steps": 1, "learning_rate": 1e-2,
            "report_to": [], "disable_tqdm": True, "seed": 3, "deepspeed": made}


def trainer(folder, stage):
    import peft
    import transformers

    def run(out, made):
        forget()
        torch.manual_seed(1)
        arguments = transformers.TrainingArguments(output_dir=out, save_steps=3, **options(made))
        one = transformers.Trainer(model=adapted(), args=arguments, train_dataset=Rows())
        one.train()
        one.save_model(os.path.join(out, "adapter"))
        found = losses_of(one)
        if made:
            one.model_wrapped.destroy()
            forget()
            torch.manual_seed(1)
            again = transformers.Trainer(model=adapted(), args=transformers.TrainingArguments(output_dir=out, save_steps=3, **options(made)),
                                         train_dataset=Rows())
            again.train(resume_from_checkpoint=os.path.join(out, "checkpoint-3"))
            check(f"LoRA resumes, stage {stage}", losses_of(again)[3:] == found[3:], f"{losses_of(again)} {found}")
            again.model_wrapped.destroy()
        return found

    made = both("LoRA in the Trainer", run, folder, stage)
    if libds.torch.communicator().rank == 0:
        loaded = peft.PeftModel.from_pretrained(gpt2(), os.path.join(made, "adapter"))
        good = all(param.isfinite().all() and param.any() for name, param in loaded.named_parameters() if "lora_" in name)
        check(f"LoRA's saved factors are whole, stage {stage}", good)


def tokenizer():
    import tokenizers
    import transformers

    words = {word: at for at, word in enumerate(["<s>", "</s>", "<pad>", "<unk>", *(f"w{at}" for at in range(torch_models.VOCAB - 4))])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def sft(folder, stage):
    import datasets
    import peft
    import trl

    rows = datasets.Dataset.from_dict({"text": [" ".join(f"w{(at % 2 + word) % 40}" for word in range(8)) for at in range(32)]})

    def run(out, made):
        forget()
        torch.manual_seed(1)
        arguments = trl.SFTConfig(output_dir=out, save_strategy="no", max_length=16, bf16=False, gradient_checkpointing=False, **options(made))
        one = trl.SFTTrainer(model=gpt2(), args=arguments, train_dataset=rows, processing_class=tokenizer(),
                             peft_config=peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM"))
        one.train()
        found = losses_of(one)
        if made:
            one.model_wrapped.destroy()
        return found

    both("LoRA in TRL's SFT trainer", run, folder, stage)


def peft(*stages):
    libds.torch.as_deepspeed()
    libds.torch.init_distributed()
    comm = libds.torch.communicator()
    for stage in stages or STAGES:
        compare(f"LoRA in a loop, stage {stage}", adapted, language_loss, config(stage))
        with tempfile.TemporaryDirectory() as scratch:
            folder = where(comm, scratch)
            trainer(folder, stage)
            sft(os.path.join(folder, "sft"), stage)
            comm.barrier()
