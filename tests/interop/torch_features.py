"""zero.Init, the optimizer for plain loops, and checkpoints of other kinds, in torch_host.py."""
import copy
import os
import subprocess
import sys
import tempfile

import torch
from torch import nn

import libds
import libds.torch
import torch_host as host
import torch_models
from torch_host import Plain, check, config, seeded, train
from torch_models import drawn_loss, gpt2, language_loss
from torch_uses import engine_of, model, refused, where

zero = libds.torch.zero


class Written(nn.Module):
    """A module whose constructor goes on to write the parameters of its children, in several ways."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(torch_models.VOCAB, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)  # copies the layer
        self.extra = nn.Parameter(torch.randn(8))
        self.head = nn.Linear(8, torch_models.VOCAB)
        self.head.weight = self.embed.weight
        self.apply(self.init)
        with torch.no_grad():
            self.head.bias.data.uniform_(-0.1, 0.1)
            self.extra.mul_(0.5).add_(self.head.bias[:8])

    @staticmethod
    def init(module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.05)
            module.bias.data.fill_(0.01)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)) + self.extra)


def cut(make, **options):
    """Constructs inside zero.Init, with different random numbers on each rank."""
    with zero.Init(**options):
        return seeded(make, 1 + libds.torch.communicator().rank)


def whole(module):
    with zero.GatheredParameters(module.parameters()):
        return {name: param.detach().clone() for name, param in module.named_parameters()}


def init(name, make, loss_of, stage):
    """A model that is constructed in parts has the values and losses of one that is not."""
    module = cut(make)
    plain = Plain(make, loss_of)
    params = dict(plain.model.named_parameters())
    away = all(param.shape == params[key].shape and param.isnan().all() for key, param in module.named_parameters())
    same = all(torch.equal(value, params[key]) for key, value in whole(module).items())
    check(f"zero.Init of {name} has rank 0's values, in parts", away and same and next(module.parameters()).isnan().all().item())
    with torch.no_grad(), zero.GatheredParameters(module.parameters(), modifier_rank=0):
        if libds.torch.communicator().rank == 0:
            for param in module.parameters():
                param.mul_(0.5)
    with torch.no_grad():
        for param in params.values():
            param.mul_(0.5)
    copied = copy.deepcopy(module)
    engine, *_ = libds.torch.initialize(model=module, config=config(stage))
    same = all(torch.equal(value, params[key]) for key, value in whole(copied).items())
    worst = train(engine, plain, loss_of, 5)
    check(f"zero.Init of {name}, edited and copied, stage {stage}", same and worst <= host.LIMIT, f"largest difference {worst:.1e}")
    engine.destroy()


def own_bytes(module):
    """Returns the bytes of a module's parameters on this rank: of all together, and of the largest."""
    seen = {}
    for param in module.parameters():
        one = libds.torch.slices.slice_of(param)
        for tensor in (param.data, *([] if one is None else [one.part])):
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
    return sum(seen.values())


def peak(reset=False):
    """Returns the most memory that this process has had since the last reset, in bytes."""
    if reset:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def memory():
    """Each rank holds its part of a model, and one parameter more while it constructs the model or gives it to an engine."""
    comm = libds.torch.communicator()
    layers, width = 32, 1024  # 4 MiB each

    def stack():
        made = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
        made.apply(lambda one: nn.init.normal_(one.weight) if isinstance(one, nn.Linear) else None)
        return made

    size = layers * (width + 1) * width * 4
    before = peak(reset=True)
    module = cut(stack)
    grown = peak() - before
    held = own_bytes(module)
    check("zero.Init keeps a part", held <= size / comm.size * 1.01 + (1 << 16), f"{held >> 20} of {size >> 20} MiB")
    if comm.size > 1:
        check("zero.Init never holds the model", grown <= size / comm.size + (40 << 20), f"{grown >> 20} MiB, the model has {size >> 20}")
    made = config(3)
    made["zero_optimization"]["reduce_bucket_size"] = width * width
    before = peak(reset=True)
    engine, *_ = libds.torch.initialize(model=module, config=made)
    grown, own = peak() - before, 4 * size // comm.size  # values, two moments and gradients
    check("initialize takes parts one by one", grown <= own + (24 << 20), f"{grown >> 20} MiB; the engine has {own >> 20}")
    engine.destroy()


def init_mistakes():
    module = cut(model)
    with torch.no_grad():
        refused("a write to a part", lambda: module.head.weight.mul_(2), "memory location")
    with zero.GatheredParameters(module.parameters()):
        refused("initialize inside GatheredParameters", lambda: libds.torch.initialize(model=module, config=config()), "GatheredParameters")
    with zero.GatheredParameters(module.head.weight):
        others = [param for param in module.parameters() if param is not module.head.weight]
        check("one gathered parameter", not module.head.weight.isnan().any() and all(param.isnan().all() for param in others))
    before = nn.Linear.__init__
    refused("an exception inside zero.Init", lambda: cut(lambda: nn.Linear(-1, 2)))
    check("zero.Init restores constructors", nn.Linear.__init__ is before and "__init_subclass__" not in vars(nn.Module))
    existing = seeded(model, 1 + libds.torch.communicator().rank)
    zero.Init(module=existing)
    same = all(torch.equal(value, dict(seeded(model).named_parameters())[name]) for name, value in whole(existing).items())
    check("zero.Init of a module that exists", same and existing.head.weight.isnan().all().item())
    existing.load_state_dict(seeded(model, 9).state_dict())
    away = existing.head.weight.isnan().all().item()
    same = all(torch.equal(value, dict(seeded(model, 9).named_parameters())[name]) for name, value in whole(existing).items())
    check("load_state_dict of a model in parts", same and away)


# ------------------------------------------------------------ the optimizer for plain loops


def optimizer():
    """Twenty steps of a plain loop, compared with torch."""
    with tempfile.TemporaryDirectory() as scratch:
        for kind, options in (("AdamW", {"lr": 1e-3, "weight_decay": 0.1}), ("Adam", {"lr": 1e-3, "weight_decay": 0.1}),
                              ("SGD", {"lr": 1e-2, "momentum": 0.9}), ("Adagrad", {"lr": 1e-2})):
            for place in ({}, {"device": "nvme", "nvme_path": scratch}):
                plain_loop(kind, options, place)
        bf16_loop()
        optimizer_mistakes(scratch)


def two_groups(module):
    params = list(module.parameters())
    return [{"params": [param for param in params if param.dim() > 1]},
            {"params": [param for param in params if param.dim() <= 1], "weight_decay": 0.0, "lr": 3e-3}]


def plain_loop(kind, options, place):
    """Two groups, a scheduler, clipping, a closure, an edit, a parameter without a gradient for some steps, and a state that goes
    both ways."""
    mine, theirs = seeded(gpt2), seeded(gpt2)
    ours = libds.torch.Optimizer(two_groups(mine), kind, **place, **options)
    torchs = getattr(torch.optim, kind)(two_groups(theirs), **options)
    rates = [torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1 / (1 + 0.1 * step)) for one in (ours, torchs)]
    worst = 0.0

    def closure(number):
        ours.zero_grad()
        loss = language_loss(mine, number)
        loss.backward()
        if number in (3, 4):
            mine.transformer.ln_f.bias.grad = None
        nn.utils.clip_grad_norm_(mine.parameters(), 1.0)
        return loss

    for number in range(20):
        loss = ours.step(lambda number=number: closure(number)).item()
        worst = max(worst, abs(loss - language_loss(theirs, number).item()))
        # Both get the same gradients: some consist of rounding errors alone, and Adam turns even those into whole steps.
        for one, other in zip(theirs.parameters(), mine.parameters()):
            one.grad = None if other.grad is None else other.grad.clone()
        torchs.step()
        for rate in rates:
            rate.step()
        if number == 6:
            with torch.no_grad():
                mine.transformer.wpe.weight.mul_(0.9)
                theirs.transformer.wpe.weight.mul_(0.9)
        if number == 9:
            # Each continues with the state that the other has saved.
            saved = ours.state_dict(), torchs.state_dict()
            ours.destroy()
            ours = libds.torch.Optimizer(two_groups(mine), kind, **place, **options)
            torchs = getattr(torch.optim, kind)(two_groups(theirs), **options)
            ours.load_state_dict(saved[1])
            torchs.load_state_dict(saved[0])
            rates = [torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1 / (2 + 0.1 * step)) for one in (ours, torchs)]
    apart = max((one - other).abs().max().item() for one, other in zip(mine.parameters(), theirs.parameters()))
    check(f"Optimizer {kind} {place.get('device', 'cpu')} in a plain loop", worst < 1e-6 and apart < 1e-6,
          f"losses {worst:.1e}, parameters {apart:.1e}")
    ours.destroy()
    del ours
    check(f"Optimizer {kind} leaves the values", abs(language_loss(mine, 1).item() - language_loss(theirs, 1).item()) < 1e-6)


def bf16_loop():
    """Masters in f32 follow a training in f32, and a saved state has them."""
    mine, theirs = seeded(gpt2).bfloat16(), seeded(gpt2).bfloat16().float()
    ours = libds.torch.Optimizer(mine.parameters(), lr=1e-4)
    torchs = torch.optim.AdamW(theirs.parameters(), lr=1e-4)
    for number in range(10):
        for module, one in ((mine, ours), (theirs, torchs)):
            one.zero_grad()
            language_loss(module, number).backward()
            if one is torchs:
                for param, other in zip(theirs.parameters(), mine.parameters()):
                    param.grad = other.grad.float()
        ours.step()
        torchs.step()
    saved = ours.state_dict()
    apart = max((value["master"] - param).abs().max().item() for value, param in zip(saved["state"].values(), theirs.parameters()))
    check("Optimizer bf16 has masters in f32", apart < 1e-6, f"largest difference {apart:.1e}")
    ours.destroy()
    again = libds.torch.Optimizer(mine.parameters(), lr=1e-4)
    again.load_state_dict(saved)
    loaded = again.state_dict()["state"]
    same = all(torch.equal(loaded[at][name], value[name]) for at, value in saved["state"].items() for name in value)
    check("Optimizer bf16 loads masters and moments", same and len(loaded) == len(list(mine.parameters())))
    again.destroy()


def optimizer_mistakes(scratch):
    one = nn.Linear(3, 2)
    refused("Optimizer: name", lambda: libds.torch.Optimizer(one.parameters(), "RMSprop"), "name", "RMSprop", "AdamW")
    refused("Optimizer: device", lambda: libds.torch.Optimizer(one.parameters(), device="cuda"), "device", "cuda", "nvme")
    refused("Optimizer: nvme without a path", lambda: libds.torch.Optimizer(one.parameters(), device="nvme"), "nvme_path", "None")
    refused("Optimizer: a path without nvme", lambda: libds.torch.Optimizer(one.parameters(), nvme_path=scratch), "nvme_path", "cpu")
    narrow = nn.Parameter(torch.zeros(2).bfloat16())
    refused("Optimizer: two types", lambda: libds.torch.Optimizer([*one.parameters(), narrow]), "float32", "bfloat16")
    made = libds.torch.Optimizer(one.parameters(), lr=1e-3)
    refused("Optimizer: a second one", lambda: libds.torch.Optimizer(one.parameters()), "belongs to an engine")
    refused("Optimizer: add_param_group", lambda: made.add_param_group({"params": [nn.Parameter(torch.zeros(2))]}), "add_param_group")
    refused("Optimizer: another state", lambda: made.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]}), "[2]", "[1]")
    before = one.weight.detach().clone()
    one(torch.full((1, 3), float("nan"))).sum().backward()
    made.step()
    check("Optimizer: gradients that are not finite", torch.equal(before, one.weight))
    made.destroy()


# ------------------------------------------------------------ checkpoints


def normed():
    return nn.Sequential(nn.Embedding(torch_models.VOCAB, 8), nn.Flatten(0, 1), nn.BatchNorm1d(8), nn.Linear(8, torch_models.VOCAB)).train()


def normed_loss(module, seed):
    ids = torch_models.tokens(seed)
    return nn.functional.cross_entropy(module(ids), ids.flatten())


def some(engine, count):
    comm = libds.torch.communicator()
    losses = []
    for step in range(count):
        loss = normed_loss(engine, step * comm.size + comm.rank)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def checkpoints(stage):
    """The module alone, and a folder of DeepSpeed."""
    comm = libds.torch.communicator()
    with tempfile.TemporaryDirectory() as scratch:
        folder = where(comm, scratch)
        engine, *_ = engine_of(normed, config(stage))
        some(engine, 3)
        engine.save_checkpoint(folder, "mine", client_state={"epoch": 4})
        if comm.rank == 0:
            libds.convert_checkpoint(os.path.join(folder, "mine"), os.path.join(folder, "universal"), to="universal")
        comm.barrier()
        weights = {name: value.clone() for name, value in engine.module.state_dict().items()}
        wanted = some(engine, 3)
        engine.destroy()

        engine, *_ = libds.torch.initialize(model=seeded(normed, 7), config=config(stage))
        some(engine, 2)
        moment = libds.torch.states.safe_get_full_optimizer_state(engine.module[3].weight, "exp_avg")
        _, client = engine.load_checkpoint(folder, "mine", load_module_only=True)
        state = engine.module.state_dict()
        same = all(torch.equal(value, weights[name]) for name, value in state.items() if comm.rank == 0 or "running" not in name)
        kept = torch.equal(moment, libds.torch.states.safe_get_full_optimizer_state(engine.module[3].weight, "exp_avg"))
        check(f"load_module_only takes the module alone, stage {stage}", same and kept and engine.global_steps == 2 and client == {"epoch": 4}, f"{client}")
        engine.load_checkpoint(folder, "mine", load_optimizer_states=False)
        kept = torch.equal(moment, libds.torch.states.safe_get_full_optimizer_state(engine.module[3].weight, "exp_avg"))
        check(f"without load_optimizer_states counters are loaded, stage {stage}", kept and engine.global_steps == 3, f"{engine.global_steps}")
        engine.destroy()

        engine, *_ = libds.torch.initialize(model=seeded(normed, 7), config=config(stage))
        universal = os.path.join(folder, "universal")
        path, client = engine.load_checkpoint(universal, "global_step3")
        with torch.no_grad():
            for name, buffer in engine.module.named_buffers():
                buffer.copy_(weights[name])  # this folder has none
        mine = some(engine, 3)
        check(f"a checkpoint of DeepSpeed, stage {stage}",
              mine == wanted and engine.global_steps == 6 and path.endswith("global_step3"), f"{mine} {wanted}")
        check(f"its temporary folder is removed, stage {stage}", not [name for name in os.listdir(universal) if name.startswith(".")])
        engine.destroy()

        engine, *_ = libds.torch.initialize(model=nn.Sequential(nn.Linear(2, 2)), config=config(stage))
        refused(f"load_module_only of another model, stage {stage}",
                lambda: engine.load_checkpoint(folder, "mine", load_module_only=True), "0.bias", "3.weight")
        comm.barrier()
        if comm.rank == 0:
            os.remove(os.path.join(universal, "global_step3", "zero", "3.weight", "fp32.pt"))
        comm.barrier()
        refused(f"a broken checkpoint of DeepSpeed, stage {stage}", lambda: engine.load_checkpoint(universal, "global_step3"), "fp32.pt")
        comm.barrier()
        engine.destroy()


def members():
    engine, *_ = engine_of(normed, config(2))
    some(engine, 4)
    engine.tput_timer.update_epoch_count()
    rate = engine.tput_timer.avg_samples_per_sec()
    timer = engine.tput_timer
    check("tput_timer", rate > 0 and timer.epoch_count == 1 and timer.global_step_count == 4, f"{rate:.0f} samples a second")
    params = list(engine.module.parameters())
    engine.backward(normed_loss(engine, 0))
    several = libds.torch.states.safe_get_full_grad(params)
    check("gradients of a list", len(several) == len(params) and all(
        torch.equal(one, libds.torch.states.safe_get_full_grad(param)) for one, param in zip(several, params)))
    engine.step()
    engine.destroy()


def started():
    """LIBDS_AS_DEEPSPEED=1 at the start of Python, by the file that an installation puts next to the package."""
    folder = os.path.join(host.ROOT, "bindings", "python", "start")
    program = f"""import importlib.metadata, importlib.util, site, sys
site.addsitedir({folder!r})
early = [name for name in ('torch', 'libds') if name in sys.modules]
found = importlib.util.find_spec('deepspeed') is not None
print(early, found, importlib.metadata.version('deepspeed') if found else None, found and __import__('deepspeed').initialize.__module__)"""
    for value, wanted in (("1", "[] True 0.19.8 libds.torch"), ("0", "[] False None False"), (None, "[] False None False")):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("LIBDS_AS_DEEPSPEED", None)
        environment |= {} if value is None else {"LIBDS_AS_DEEPSPEED": value}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
        check(f"LIBDS_AS_DEEPSPEED={value} at the start", done.stdout.strip() == wanted, f"{done.stdout} {done.stderr}")


def features():
    comm = libds.torch.communicator()
    for stage in (0, 2, 3):
        init("gpt2", gpt2, language_loss, stage)
        init("a module that writes its children", Written, drawn_loss, stage)
        init("a drawn module", model, drawn_loss, stage)
        checkpoints(stage)
    memory()
    init_mistakes()
    members()
    if comm.size == 1:
        optimizer()
        started()
