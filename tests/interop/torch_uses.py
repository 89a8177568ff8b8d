"""What programs do between the steps of torch_host.py: accumulation, edits, freezing, groups, checkpoints, and mistakes."""
import copy
import io
import os
import tempfile

import torch
from torch import nn

import libds
import libds.torch
import torch_host as host
import torch_models
from torch_host import Plain, batches_of, check, config, seeded, train
from torch_models import drawn_loss, gpt2, language_loss

DRAWN = 4  # a number of a drawn module with ties, checkpoints and borrowed parameters


def model():
    return torch_models.drawn(DRAWN)


def engine_of(make=model, made=None, **options):
    return libds.torch.initialize(model=seeded(make), config=made or config(), **options)


def where(comm, folder):
    """Returns rank 0's folder on all ranks."""
    name = torch.tensor(list(folder.encode().ljust(200)), dtype=torch.uint8)
    comm.broadcast(name)
    return bytes(name.tolist()).decode().strip()


def evaluation(stage):
    engine, *_ = engine_of(made=config(stage, 2))
    plain = Plain(model, drawn_loss)
    worst = train(engine, plain, drawn_loss, 2, 2)
    engine.eval()
    with torch.no_grad():
        losses = [drawn_loss(engine, 900).item(), drawn_loss(plain.model, 900).item()]
    engine.train()
    worst = max(worst, abs(losses[0] - losses[1]), train(engine, plain, drawn_loss, 2, 2, first=2))
    check(f"evaluation between steps, stage {stage}", worst < 2e-6, f"largest difference {worst:.1e}")
    engine.destroy()


def free_micro_steps(stage):
    """Steps of other numbers of micro-steps, as Accelerate and no_sync make them."""
    comm = libds.torch.communicator()
    engine, *_ = engine_of(made=config(stage, 2))
    plain = Plain(model, drawn_loss)
    worst = 0.0
    for step, count in enumerate((2, 1, 3, 2, 1)):
        batches = batches_of(step, count, comm.size)
        for at, micro in enumerate(batches):
            engine.set_gradient_accumulation_boundary(at == count - 1)
            loss = drawn_loss(engine, micro[comm.rank])
            engine.backward(loss)
            if at == count - 1:
                engine.step()
        plain.step(batches, comm.rank, divisor=2)
    batches = batches_of(9, 3, comm.size)
    engine.set_gradient_accumulation_boundary(True)
    with engine.no_sync():
        for micro in batches[:2]:
            engine.backward(drawn_loss(engine, micro[comm.rank]))
    engine.backward(drawn_loss(engine, batches[2][comm.rank]))
    engine.step()
    plain.step(batches, comm.rank, divisor=2)
    worst = abs(drawn_loss(engine, 900).item() - drawn_loss(plain.model, 900).item())
    check(f"any number of micro-steps, stage {stage}", worst < 2e-6, f"largest difference {worst:.1e}")
    engine.destroy()


def edits(stage):
    engine, *_ = engine_of(made=config(stage))
    plain = Plain(model, drawn_loss)
    worst = train(engine, plain, drawn_loss, 2)
    with torch.no_grad(), libds.torch.zero.GatheredParameters(list(engine.module.parameters()), modifier_rank=0):
        if engine.global_rank == 0:
            for param in engine.module.parameters():
                param.clamp_(-0.05, 0.05)
    with torch.no_grad():
        for param in plain.model.parameters():
            param.clamp_(-0.05, 0.05)
    worst = max(worst, train(engine, plain, drawn_loss, 2, first=2))
    if stage < 3:
        for one in (engine.module, plain.model):
            with torch.no_grad():
                one.head.weight.mul_(0.5)
        worst = max(worst, train(engine, plain, drawn_loss, 2, first=4))
    state = engine.module.state_dict()
    mine = {name: value.clone() for name, value in state.items()}
    same = all(torch.allclose(value, mine[name], atol=1e-5) for name, value in plain.model.state_dict().items())
    other = {name: value * 0.9 for name, value in plain.model.state_dict().items()}
    engine.module.load_state_dict(other)
    plain.model.load_state_dict(other)
    worst = max(worst, train(engine, plain, drawn_loss, 2, first=6))
    refused(f"load_state_dict with another shape, stage {stage}", lambda: engine.module.load_state_dict(
        {**other, "head.weight": torch.zeros(2, 2)}), "head.weight", "[2, 2]")
    engine.module.load_state_dict(other)
    plain.model.load_state_dict(other)
    worst = max(worst, train(engine, plain, drawn_loss, 2, first=8))
    check(f"edits, state_dict and load_state_dict, stage {stage}", same and worst < 2e-6, f"largest difference {worst:.1e}")
    with engine.gathered() as whole:
        copied = copy.deepcopy(whole)
        file = io.BytesIO()
        torch.save(whole, file)
    file.seek(0)
    read = torch.load(file, weights_only=False)
    check(f"a module that is saved whole, stage {stage}", drawn_loss(read, 900).item() == drawn_loss(copied, 900).item())
    worst = abs(drawn_loss(copied, 900).item() - drawn_loss(plain.model, 900).item())
    check(f"deepcopy of a gathered module, stage {stage}", worst < 2e-6, f"difference {worst:.1e}")
    engine.destroy()


def groups(stage):
    """A client optimizer of two groups with a scheduler of torch."""
    def split(module):
        params = [param for param in module.parameters() if param.requires_grad]
        return [{"params": [param for param in params if param.dim() > 1], "weight_decay": 0.2},
                {"params": [param for param in params if param.dim() <= 1], "weight_decay": 0.0, "lr": 3e-3, "betas": (0.8, 0.99)}]

    def rate(step):
        return 1.0 / (1 + step)

    comm = libds.torch.communicator()
    module = seeded(model)
    client = torch.optim.AdamW(split(module), lr=host.RATE)
    scheduler = torch.optim.lr_scheduler.LambdaLR(client, rate)
    made = config(stage)
    del made["optimizer"]
    engine, *_ = libds.torch.initialize(model=module, optimizer=client, lr_scheduler=scheduler, config=made)
    plain = Plain(model, drawn_loss, split)
    theirs = torch.optim.lr_scheduler.LambdaLR(plain.optimizer, rate)
    worst = 0.0
    for step in range(6):
        batches = batches_of(step, 1, comm.size)
        loss = drawn_loss(engine, batches[0][comm.rank])
        engine.backward(loss)
        engine.step()
        worst = max(worst, abs(loss.item() - plain.step(batches, comm.rank)[0]))
        theirs.step()
        worst = max(worst, abs(engine.get_lr()[1] - plain.optimizer.param_groups[1]["lr"]))
    check(f"groups of a client optimizer, stage {stage}", worst < 2e-6, f"largest difference {worst:.1e}")
    engine.destroy()


def freezing(stage):
    engine, *_ = engine_of(made=config(stage))
    before = engine.module.state_dict()["head.weight"].clone()
    train(engine, Plain(model, drawn_loss), drawn_loss, 1)
    engine.module.head.weight.requires_grad_(False)
    after = engine.module.state_dict()["head.weight"].clone()
    for step in range(2):
        engine.backward(drawn_loss(engine, step))
        engine.step()
    frozen = engine.module.state_dict()["head.weight"].clone()
    engine.module.head.weight.requires_grad_(True)
    for step in range(2):
        engine.backward(drawn_loss(engine, step))
        engine.step()
    again = engine.module.state_dict()["head.weight"]
    check(f"freezing between steps, stage {stage}", not torch.equal(before, after) and torch.equal(after, frozen) and not torch.equal(frozen, again))
    engine.destroy()


def resume(stage, other):
    """A run that another engine, of another stage, continues with equal bits."""
    comm = libds.torch.communicator()

    def make():
        return nn.Sequential(nn.Embedding(torch_models.VOCAB, 8), nn.Flatten(0, 1), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, torch_models.VOCAB)).train()

    def loss_of(module, seed):
        ids = torch_models.tokens(seed)
        return nn.functional.cross_entropy(module(ids), ids.flatten())

    def some(engine, first, count):
        losses = []
        for step in range(first, first + count):
            loss = loss_of(engine, step * comm.size + comm.rank)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        return losses

    schedule = {"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": host.RATE, "warmup_num_steps": 6}}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = where(comm, scratch)
        engine, *_ = engine_of(make, config(stage, **schedule))
        some(engine, 0, 3)
        state = {"epoch": 3, "best": float("inf"), "list": [1, (2, 3)], "numbers": {1: torch.arange(3)}}
        engine.save_checkpoint(folder, client_state=state)
        torch.manual_seed(5 + comm.rank)
        engine.save_checkpoint(folder, "second", client_state=state)
        wanted = some(engine, 3, 3)
        engine.destroy()
        engine, *_ = engine_of(make, config(other, **schedule))
        path, client = engine.load_checkpoint(folder)
        mine = some(engine, 3, 3)
        good = client["epoch"] == 3 and client["best"] == float("inf") and client["list"] == [1, (2, 3)] and client["numbers"][1].tolist() == [0, 1, 2]
        check(f"resume from stage {stage} at {other}", good and os.path.basename(path) == "second" and mine == wanted and engine.global_steps == 6,
              f"{mine} {wanted}")
        none = engine.load_checkpoint(os.path.join(folder, "nothing"))
        check("no checkpoint", none == (None, {}), str(none))
        engine.save_16bit_model(folder, "whole.bin")
        if comm.rank == 0:
            saved = torch.load(os.path.join(folder, "whole.bin"))
            check("save_16bit_model", saved["0.weight"].shape == (torch_models.VOCAB, 8) and not saved["0.weight"].isnan().any())
        comm.barrier()
        engine.destroy()


def narrow(section, dtype, stage):
    engine, *_ = engine_of(gpt2, config(stage, **{section: {"enabled": True}}))
    losses = []
    for step in range(6):
        loss = language_loss(engine, 0)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    check(f"{section} stage {stage}", losses[-1] < losses[0] and next(engine.module.parameters()).dtype is dtype, f"{losses[0]:.3f} to {losses[-1]:.3f}")
    engine.destroy()


def refused(name, call, *words):
    try:
        call()
        check(name, False, "was taken")
    except Exception as error:  # pylint: disable=broad-exception-caught
        check(name, all(word in str(error) for word in words), f"({type(error).__name__}: {error})")


def mistakes(stage):
    engine, *_ = engine_of(made=config(stage))
    engine.backward(drawn_loss(engine, 1))
    refused(f"backward twice, stage {stage}", lambda: engine.backward(drawn_loss(engine, 1)), "1 of 1 micro-steps")
    engine.step()
    refused(f"step without backward, stage {stage}", engine.step, "before any backward")
    refused("a loss without a gradient", lambda: engine.backward(torch.tensor(1.0)), "loss")
    if stage == 3:
        refused("create_graph at stage 3", lambda: engine.backward(drawn_loss(engine, 1), create_graph=True), "create_graph", "parameter")
        engine.destroy()
        engine, *_ = engine_of(made=config(stage))
        refused("a copy of what is away", lambda: copy.deepcopy(engine.module), "gathered()")
        check("a parameter that is away keeps its shape", engine.module.head.weight.shape[0] == torch_models.VOCAB
              and engine.module.head.weight.isnan().all().item())
        with torch.no_grad():
            refused("a write to what is away", lambda: engine.module.head.weight.mul_(2), "memory location")
            engine.module.head.weight.zero_()
        refused("a step after such a write", lambda: engine(torch_models.tokens(1)), "'head.weight' was changed while it is away")
    else:
        loss = drawn_loss(engine, 1)
        engine.backward(loss)
        with torch.no_grad():
            engine.module.head.weight.mul_(2)
        refused("an edit between backward and step", engine.step, "between backward and step")
    refused("two engines of one model", lambda: libds.torch.initialize(model=engine.module, config=config()), "belongs to an engine")
    engine.destroy()


def plain_gradients(stage):
    """torch.autograd.grad is no micro-step, and a skipped step changes nothing."""
    engine, *_ = engine_of(made=config(stage))
    loss = drawn_loss(engine, 1)
    before = loss.item()
    if stage < 3:
        torch.autograd.grad(loss, [engine.module.head.weight], retain_graph=True)
    engine.backward(loss * float("nan"))
    engine.step()
    after = drawn_loss(engine, 1).item()
    check(f"a step that is not finite, stage {stage}", before == after and not engine.was_step_applied() and engine.skipped_steps == 1)
    engine.destroy()


def uses():
    for stage in (0, 2, 3):
        for use in (evaluation, free_micro_steps, edits, groups, freezing, mistakes, plain_gradients):
            use(stage)
    for stage, other in ((0, 3), (3, 2), (2, 0)):
        resume(stage, other)
    for stage in (0, 2, 3):
        narrow("bf16", torch.bfloat16, stage)
        narrow("fp16", torch.float16, stage)
