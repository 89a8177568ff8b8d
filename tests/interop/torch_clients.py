"""Client optimizers that torch computes, parameters without a gradient, and backwards that fail."""
import tempfile

import torch
from torch import nn

import libds.torch
import torch_host as host
from torch_host import check, config, seeded, train
from torch_models import drawn_loss
from torch_uses import model, refused, where


class Client(host.Plain):
    """Plain training by another optimizer."""

    def __init__(self, make, loss_of, optimizer, zeros=True):
        super().__init__(make, loss_of)
        self.optimizer = optimizer(self.params)
        self.zeros = zeros

    def step(self, batches, rank, divisor=None):
        losses, leaves = [], (divisor or len(batches)) * len(batches[0])
        for micro in batches:
            for number, seed in enumerate(micro):
                loss = self.loss_of(self.model, seed)
                (loss / leaves).backward()
                if number == rank:
                    losses.append(loss.item())
        for param in self.params:
            if self.zeros and param.grad is None:
                param.grad = torch.zeros_like(param)
        torch.nn.utils.clip_grad_norm_(self.params, host.CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return losses


class Signs(torch.optim.Optimizer):
    """An optimizer of a user's own, whose counter is an int and whose states come one after the other."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(param), largest=torch.zeros_like(param))
                state["step"] += 1
                state["mean"].lerp_(param.grad, 1 / state["step"])
                torch.maximum(state["largest"], param.grad.abs(), out=state["largest"])
                param.sub_(state["mean"].sign() * state["largest"], alpha=group["lr"])


OPTIMIZERS = {
    "RMSprop": lambda params: torch.optim.RMSprop(params, lr=1e-3, momentum=0.5, centered=True, weight_decay=0.1),
    "Adamax": lambda params: torch.optim.Adamax(params, lr=1e-3),
    "RAdam": lambda params: torch.optim.RAdam(params, lr=1e-3),
    "Adadelta": lambda params: torch.optim.Adadelta(params, lr=0.1),
    "Rprop": lambda params: torch.optim.Rprop(params, lr=1e-4),
    "AdamW with amsgrad": lambda params: torch.optim.AdamW(params, lr=1e-3, amsgrad=True),
    "AdamW of two kinds": lambda params: torch.optim.AdamW([{"params": params[::2], "amsgrad": True}, {"params": params[1::2], "lr": 1e-4}], lr=1e-3),
    "one of a user": Signs,
}


def compare(stage, names):
    for name in names:
        plain = Client(model, drawn_loss, OPTIMIZERS[name])
        made = seeded(model)
        engine, *_ = libds.torch.initialize(model=made, config=config(stage, 2), optimizer=OPTIMIZERS[name](
            [param for param in made.parameters() if param.requires_grad]))
        with tempfile.TemporaryDirectory() as folder:
            folder = where(libds.torch.communicator(), folder)
            worst = train(engine, plain, drawn_loss, 6, 2)
            engine.save_checkpoint(folder)
            train(engine, Client(model, drawn_loss, OPTIMIZERS[name]), drawn_loss, 1, 2)
            engine.load_checkpoint(folder)
            worst = max(worst, train(engine, plain, drawn_loss, 6, 2, first=6))
            libds.torch.communicator().barrier()
        # Optimizers that use only signs jump where a sum is nearly zero.
        check(f"client optimizer {name}, stage {stage}", worst < 2e-5, f"largest difference {worst:.1e}")
        engine.destroy()


def no_clients():
    for optimizer, words in ((torch.optim.NAdam, ("NAdam", "'mu_product'")), (torch.optim.ASGD, ("ASGD", "one value for each element")),
                             (torch.optim.Adafactor, ("Adafactor",)), (torch.optim.LBFGS, ("LBFGS",))):
        made = seeded(model)
        refused(f"client optimizer {optimizer.__name__}", lambda: libds.torch.initialize(
            model=made, optimizer=optimizer(made.parameters()), config=config()), *words)


class Branches(nn.Module):
    """A branch that only some batches use, and one that no batch uses. `alike` consecutive batches, one for each rank, choose the same."""
    alike = 1

    def __init__(self):
        super().__init__()
        self.one, self.two, self.never = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, seed):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        return (self.one(x) if seed // self.alike % 3 else self.two(self.one(x))).square().mean()


def missing(stage):
    """With missing_gradients "skip" a parameter that no rank uses in a step is left alone, as in torch."""
    def loss_of(module, seed):
        return module(seed)

    Branches.alike = libds.torch.communicator().size if stage == 3 else 1
    plain = Client(Branches, loss_of, lambda params: torch.optim.AdamW(params, lr=1e-2, weight_decay=0.5), zeros=False)
    made = config(stage, 1, missing_gradients="skip")
    made["optimizer"]["params"].update(lr=1e-2, weight_decay=0.5)
    engine, *_ = libds.torch.initialize(model=seeded(Branches), config=made)
    worst = train(engine, plain, loss_of, 12)
    with engine.gathered() as whole:
        for mine, theirs in zip(whole.parameters(), plain.model.parameters()):
            worst = max(worst, (mine - theirs).abs().max().item())
    check(f"missing gradients are skipped, stage {stage}", worst < 2e-6, f"largest difference {worst:.1e}")
    engine.destroy()


class Fails(torch.autograd.Function):
    on = False

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        if Fails.on:
            raise ValueError("a failing backward")
        return gradient


class Chain(nn.Module):
    """A backward that fails in the middle."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, seed):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        return self.last(Fails.apply(self.first(x).tanh())).square().mean()


def failing_backward(stage):
    """A step whose backward has failed after some gradients begins anew."""
    def loss_of(module, seed):
        return module(seed)

    comm = libds.torch.communicator()
    engine, *_ = libds.torch.initialize(model=seeded(Chain), config=config(stage, 2))
    plain = host.Plain(Chain, loss_of)
    worst = 0.0
    for step in range(4):
        for micro in range(2):
            for plainly in (True, False):
                if micro == 1:
                    engine.backward(engine(700 + comm.rank))
                    engine.step()
                Fails.on = True
                loss = engine(800 + comm.rank)
                try:
                    loss.backward() if plainly else engine.backward(loss)
                    check("a failing backward raises", False)
                except ValueError as error:
                    check("a failing backward raises its exception", "a failing backward" in str(error)) if step == 0 else None
                Fails.on = False
                if plainly and step == 2:  # finds the failure before a forward does
                    with tempfile.TemporaryDirectory() as folder:
                        engine.save_checkpoint(where(comm, folder))
                        comm.barrier()
        worst = max(worst, train(engine, plain, loss_of, 1, 2, first=step))
    check(f"a step after a failing backward, stage {stage}", worst < 2e-6 and engine.global_steps == 4, f"largest difference {worst:.1e}")
    engine.destroy()


def clients():
    no_clients()
    compare(0, OPTIMIZERS)
    for stage in (2, 3):
        compare(stage, ["RMSprop", "Rprop", "AdamW of two kinds", "one of a user"])
    for stage in (0, 1, 2, 3):
        missing(stage)
        failing_backward(stage)
