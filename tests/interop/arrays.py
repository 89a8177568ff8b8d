"""Checks that arrays of torch and of NumPy 2 enter and leave the Python package without copies (./run interop arrays).

Both libraries support DLPack 1.x and contain an OpenMP run-time, unlike Debian's NumPy.
"""
import os
import sys

import numpy as np
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "build", "python"))
import libds  # noqa: E402

HOST = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, "bf16": {"enabled": True},
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}
failed = []


def check(name, ok, detail=""):
    print(f"{'ok  ' if ok else 'FAIL'} {name} {detail}".rstrip(), flush=True)
    if not ok:
        failed.append(name)


def refused(name, call, *kinds):
    try:
        call()
        check(name, False, "was taken")
    except kinds as error:
        check(name, True, f"({type(error).__name__}: {error})")


def memory():
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64, torch.uint8):
        source = torch.arange(6).to(dtype).reshape(2, 3)
        tensor = libds.Tensor(source)
        back = torch.from_dlpack(tensor)
        check(f"{dtype} by address", tensor.data_ptr == source.data_ptr() == back.data_ptr() and back.dtype == dtype
              and tensor.tolist() == source.tolist())
    wide = torch.arange(24.0).reshape(4, 6)
    for view in (wide.T, wide[:, ::2], wide[1:]):
        tensor = libds.Tensor(view)
        check("a strided torch tensor", tensor.data_ptr == view.data_ptr() and tensor.tolist() == view.tolist()
              and torch.equal(torch.from_dlpack(tensor), view))
    kept = torch.from_dlpack(libds.tensor([1.0] * 1000))
    check("memory outlives its tensor", kept.sum().item() == 1000)
    refused("a tensor that requires a gradient", lambda: libds.Tensor(torch.zeros(3, requires_grad=True)), BufferError)
    refused("a tensor of bool", lambda: libds.Tensor(torch.zeros(3, dtype=torch.bool)), libds.Error)
    fixed = np.arange(3, dtype=np.float32)
    fixed.setflags(write=False)
    shown = np.from_dlpack(libds.Tensor(fixed))
    check("NumPy 2 takes what is read-only", shown.ctypes.data == fixed.ctypes.data and not shown.flags.writeable)
    versioned = libds.Tensor(fixed.__dlpack__(max_version=(1, 0)))
    check("NumPy 2 gives what is read-only", versioned.readonly and versioned.data_ptr == fixed.ctypes.data)


def training():
    graph = libds.Graph("linear", rows=64)
    x, target = graph.input("x", "f32", [None, 256]), graph.input("target", torch.float32, [None, 256])
    graph.output("loss", graph.op("mse", graph.op("linear", x, graph.param("w", [256, 256], "normal", 0.1)), target))
    config = {"train_micro_batch_size_per_gpu": 64, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    torch.manual_seed(1)
    xs, targets = torch.randn(64, 256), torch.randn(64, 256)
    with libds.Engine(config, graph, threads=2) as first, libds.Engine(config, graph, threads=2) as second:
        for _ in range(20):  # torch's OpenMP and ours work in turns
            torch.mm(xs, targets.T).sum().item()
            losses = first.train_batch(xs, targets), second.train_batch(xs.numpy(), targets.numpy())
        check("torch and NumPy inputs train alike", losses[0] == losses[1], f"loss {losses[0]:.4f}")


def delegate():
    with libds.DelegateEngine(HOST) as engine:
        engine.add_param("p", [2, 3])
        engine.start()
        engine.write("p", torch.tensor([[1.0, 2, 3], [4, 5, 6]]))
        with engine.gathered() as params:
            weight = torch.from_dlpack(params["p"]).detach().requires_grad_()
            check("a bf16 lease is torch's, in place", weight.dtype == torch.bfloat16 and weight.data_ptr() == params["p"].data_ptr)
            weight.sum().backward()
            engine.grad_ready("p", weight.grad)
        engine.backward()
        engine.step()
        out = torch.zeros(2, 3)
        engine.read("p", out=out)
        check("torch's gradient has trained", out.tolist() == [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]], out.tolist())


def collectives():
    with libds.Comm("self") as comm:
        data = torch.ones(8)
        check("a collective in place", comm.all_reduce(data) is data and data.tolist() == [1] * 8)
        half = torch.full([4], 0.5, dtype=torch.bfloat16)
        out = torch.zeros(4)
        comm.all_reduce(half, out)
        check("bf16 is summed in f32", out.tolist() == [0.5] * 4)
        check("a started one", comm.all_gather(data, start=True).wait().shape == (1, 8))
        refused("a strided one", lambda: comm.all_reduce(torch.zeros(4, 4).T), BufferError)


for part in (memory, training, delegate, collectives):
    part()
print(f"arrays: {len(failed)} failed")
sys.exit(1 if failed else 0)
