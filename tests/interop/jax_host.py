"""Trains a model of JAX with libds.jax and with optax, and compares (./run interop jax).

1. On 1 and 2 ranks, at ZeRO 0 to 2, with states in memory, in an emulated host tier and on files, with 1 and 3 micro-steps, the
   losses of 20 steps in f32 are within 2e-6 of those of optax.adamw, and have the same bits in all of these layouts.
2. Micro-steps that the program chooses, views instead of copies and parameters on two devices have these bits, too.
3. In bf16 and f16 the losses are near those of optax over masters in f32.
4. A run that is saved, and resumed at another stage, has the same bits as one that was not interrupted.
5. Bad input ends with an error that names the leaf and both values, and the optimizer can be used afterwards.
6. The commands of docs/guides/jax.md print what the page shows.
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax

from distance import largest
from ranks import launch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
sys.path.insert(0, os.path.join(BUILD, "python"))
import libds  # noqa: E402
import libds.jax  # noqa: E402

STEPS, WARMUP, RATE, DECAY, CLIP = 20, 5, 1e-2, 0.1, 1.0
VOCAB, WIDTH, SEQ, BATCH = 64, 32, 16, 4
failed = []


def check(name, ok, detail):
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {detail}", flush=True)
    if not ok:
        failed.append(name)


# ---------------------------------------------------------------- the model


def draw(seed):
    """Returns a tree with dictionaries, a list, a tuple and an array without dimensions."""
    keys = iter(jax.random.split(jax.random.key(seed), 9))
    layer = lambda: {"norm": jnp.ones(WIDTH), "scale": jnp.ones(()), "up": jax.random.normal(next(keys), (WIDTH, 4 * WIDTH)) * 0.1,
                     "down": jax.random.normal(next(keys), (4 * WIDTH, WIDTH)) * 0.1}
    return {"embedding": jax.random.normal(next(keys), (VOCAB, WIDTH)), "layers": [layer(), layer()], "head": (jnp.zeros(VOCAB),)}


def loss(params, tokens):
    """Returns the mean cross-entropy of the next token; the embedding is also the matrix of the head."""
    x = params["embedding"][tokens[:, :-1]]
    for layer in params["layers"]:
        y = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * layer["norm"]
        x = x + layer["scale"] * (jax.nn.gelu(y @ layer["up"]) @ layer["down"])
    logits = (x @ params["embedding"].T * 0.2 + params["head"][0]).astype(jnp.float32)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]))


loss_and_grads = jax.jit(jax.value_and_grad(lambda params, tokens, scale: loss(params, tokens) * scale))


def tokens_of(leaf):
    """Returns the batch of a leaf, the number of a micro-batch in the run. Each token depends on the one before it."""
    rng = np.random.default_rng(leaf)
    tokens = [rng.integers(0, VOCAB, BATCH)]
    for _ in range(SEQ):
        tokens.append((tokens[-1] * 5 + rng.integers(0, 4, BATCH)) % VOCAB)
    return np.stack(tokens, axis=1)


def reference(leaves, dtype, scale=1.0):
    """Returns the losses of optax over f32 masters, with `leaves` micro-batches a step and the model in `dtype`."""
    warmup, decay = optax.linear_schedule(0, RATE, WARMUP), optax.linear_schedule(RATE, 0, STEPS - WARMUP)
    rates = optax.join_schedules([warmup, decay], [WARMUP])
    optimizer = optax.chain(optax.clip_by_global_norm(CLIP), optax.adamw(rates, 0.9, 0.95, 1e-8, weight_decay=DECAY))
    masters = draw(1)
    state, losses = optimizer.init(masters), []
    for step in range(STEPS):
        params = jax.tree.map(lambda one: one.astype(dtype), masters)
        parts = [loss_and_grads(params, tokens_of(step * leaves + leaf), scale) for leaf in range(leaves)]
        losses.append(float(np.mean([np.float64(value) / scale for value, _ in parts])))
        mean = jax.tree.map(lambda *grads: sum(one.astype(jnp.float32) for one in grads) / (leaves * scale), *[g for _, g in parts])
        updates, state = optimizer.update(mean, state, masters)
        masters = optax.apply_updates(masters, updates)
    return losses


# ---------------------------------------------------------------- one rank of libds


def config(stage, micro_steps, offload, scratch, more):
    zero = {"stage": stage}
    if offload:
        zero["offload_optimizer"] = {"device": offload} | ({"nvme_path": scratch} if offload == "nvme" else {})
    return {"train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": micro_steps, "gradient_clipping": CLIP,
            "optimizer": {"type": "AdamW", "params": {"lr": RATE, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": DECAY}},
            "scheduler": {"type": "linear", "params": {"warmup_num_steps": WARMUP, "total_num_steps": STEPS}},
            "zero_optimization": zero, "emulate_tiers": offload == "cpu"} | more


def steps_of(optimizer, params, first, last, case, comm):
    """Trains from step `first` to `last` and returns this rank's losses of each step, and the parameters."""
    micro_steps, losses = case["micro_steps"], []
    for step in range(first, last):
        scale = optimizer.loss_scale
        for micro in range(micro_steps):
            leaf = (step * micro_steps + micro) * comm.size + comm.rank
            value, grads = loss_and_grads(params, tokens_of(leaf), scale)
            losses.append(float(value) / scale)
            if micro + 1 < micro_steps:
                optimizer.accumulate(grads)
        params = optimizer.step(grads, copy=case.get("copy", True))
    return losses, params


def train(case, comm, scratch):
    """Runs a case on this rank; returns its losses, a hash of its parameters and the bytes that it used in each tier."""
    more = case.get("more", {})
    options = config(case["stage"], case.get("configured", case["micro_steps"]), case.get("offload"), scratch, more)
    begin = draw(1 + comm.rank)  # the values of rank 0 count
    if case.get("devices"):
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
        places = [jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*["x"] * min(one.ndim, 1))) for one in jax.tree.leaves(begin)]
        begin = jax.device_put(begin, jax.tree.unflatten(jax.tree.structure(begin), places))
    folder = os.path.join(scratch, case["name"].replace(" ", "-"))
    middle = STEPS // 2 if case.get("resume") else STEPS
    with libds.jax.Optimizer(begin, options, comm) as optimizer:
        tiers = [optimizer.engine[f"{tier}_bytes"] for tier in ("device", "host", "nvme")]
        losses, params = steps_of(optimizer, optimizer.params(), 0, middle, case, comm)
        if case.get("devices"):
            assert [one.sharding for one in jax.tree.leaves(params)] == places, "the parameters are not where they were"
        if case.get("resume"):
            optimizer.save(folder, client_state={"step": middle})
    if case.get("resume"):
        options["zero_optimization"] = {"stage": case["resume"], "offload_optimizer": {"device": "cpu"}}
        with libds.jax.Optimizer(draw(7), options, comm) as optimizer:
            params = optimizer.load(folder)
            assert optimizer.client_state == {"step": middle} and optimizer.steps == middle, optimizer.client_state
            rest, params = steps_of(optimizer, params, middle, STEPS, case, comm)
            losses += rest
    bits = hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in jax.tree.leaves(params))).hexdigest()
    return {"losses": losses, "bits": bits, "bytes": tiers}


def rank_main(cases, scratch):
    with open(cases, encoding="utf-8") as file:
        todo = json.load(file)
    with libds.Comm() as comm:
        done = {case["name"]: train(case, comm, scratch) for case in todo}
        with open(f"{cases}.{comm.rank}", "w", encoding="utf-8") as file:
            json.dump(done, file)


def results(cases, size, scratch, **environment):
    """Runs cases on `size` ranks; returns the mean losses of the steps of each case, the hashes of the ranks, and rank 0's bytes."""
    path = os.path.join(scratch, "cases.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cases, file)
    launch("jax", lambda rank: [__file__, path, scratch], size, **environment)
    ranks = []
    for rank in range(size):
        with open(f"{path}.{rank}", encoding="utf-8") as file:
            ranks.append(json.load(file))
    return {case["name"]: (np.mean([one[case["name"]]["losses"] for one in ranks], axis=0).reshape(STEPS, -1).mean(axis=1),
                           {one[case["name"]]["bits"] for one in ranks}, ranks[0][case["name"]]["bytes"]) for case in cases}


# ---------------------------------------------------------------- comparisons


def same_numbers(size, scratch):
    for micro_steps in (1, 3):
        wanted = reference(size * micro_steps, jnp.float32)
        cases = [{"stage": stage, "offload": offload} for stage in (0, 1, 2) for offload in (None, "cpu")]
        cases += [{"stage": 2, "offload": "nvme"}, {"stage": 1, "copy": False}, {"stage": 2, "resume": 1}, {"stage": 0, "configured": 4 - micro_steps}]
        for case in cases:
            words = " ".join(f"{key} {value}" for key, value in case.items())
            case.update(micro_steps=micro_steps, name=f"ranks {size} micro_steps {micro_steps} {words}")
        done = results(cases, size, scratch)
        if size == 1 and micro_steps == 1:
            devices = {"stage": 0, "micro_steps": 1, "devices": True, "name": "two devices"}
            done |= results([devices], 1, scratch, XLA_FLAGS="--xla_force_host_platform_device_count=2")
        first = done[cases[0]["name"]]
        for name, (losses, bits, _) in done.items():
            worst, _ = largest({step: abs(losses[step] - wanted[step]) for step in range(STEPS)})
            same = name == "two devices" or (np.array_equal(losses, first[0]) and bits == first[1] and len(bits) == 1)
            check(name, worst <= 2e-6 and same, f"{losses[0]:.4f} -> {losses[-1]:.4f}, largest difference {worst:.1e}, "
                  f"{'the same bits' if same else 'OTHER BITS'}")
        device, host, nvme = zip(*(done[case["name"]][2] for case in cases[:7]))
        check("memory", (device[0] > device[2] > device[4]) == (size > 1) and host[1] > host[0] and device[1] < device[0] and nvme[6] > 0,
              f"device {device}, host {host}, nvme {nvme}")


def small_types(scratch):
    types = {"bf16": (jnp.bfloat16, {"bf16": {"enabled": True}}, 1.0), "f16": (jnp.float16, {"fp16": {"enabled": True, "loss_scale": 64}}, 64.0)}
    for word, (dtype, more, scale) in types.items():
        cases = [{"stage": stage, "micro_steps": 2, "more": more, "name": f"{word}, stage {stage}"} for stage in (0, 2)]
        done = results(cases, 2, scratch)
        wanted = reference(4, dtype, scale)
        for name, (losses, _, _) in done.items():
            worst, _ = largest({step: abs(losses[step] - wanted[step]) for step in range(STEPS)})
            same = np.array_equal(losses, done[cases[0]["name"]][0])
            check(name, worst <= 2e-3 and same, f"{losses[0]:.4f} -> {losses[-1]:.4f}, largest difference {worst:.1e}")
    # JAX adds up the parts of the two devices in bf16.
    case = {"stage": 1, "micro_steps": 1, "devices": True, "more": {"bf16": {"enabled": True}}, "name": "bf16 on two devices"}
    (losses, _, _), = results([case], 1, scratch, XLA_FLAGS="--xla_force_host_platform_device_count=2").values()
    worst, _ = largest({step: abs(one - losses[step]) for step, one in enumerate(reference(1, jnp.bfloat16))})
    check(case["name"], worst <= 1e-2, f"{losses[0]:.4f} -> {losses[-1]:.4f}, largest difference {worst:.1e}")


def refused(name, call, kind, *words):
    try:
        call()
        check(name, False, "was taken")
    except kind as error:
        text = str(error)
        check(name, "\n" not in text and all(word in text for word in words), f"{type(error).__name__}: {text}")


def bad_input():
    made, invalid = config(1, 1, None, "", {}), libds.InvalidArgument
    params = {"a": [jnp.ones((2, 3)), jnp.ones(4)], "b": jnp.ones(())}
    new = lambda tree=params, **more: libds.jax.Optimizer(tree, made | more)
    refused("stage 3", lambda: new(zero_optimization={"stage": 3}), libds.ConfigError, "0 to 2, got 3")
    refused("frozen parameters", lambda: new(frozen_parameters=["b"]), libds.ConfigError, "frozen_parameters", "another tree")
    refused("an array of integers", lambda: new({"a": jnp.arange(3)}), invalid, "parameter ['a']", "float32", "int32")
    refused("a number", lambda: new({"a": 1.0}), TypeError, "parameter ['a'] must be an array, got 1.0")
    refused("an empty tree", lambda: new({"a": None}), invalid, "params must be a tree of arrays")
    optimizer = new()
    step = lambda grads: lambda: optimizer.step(grads)
    refused("a missing leaf", step(params | {"b": None}), invalid, "lacks ['b']")
    refused("a further leaf", step(params | {"c": 1}), invalid, "also has ['c']")
    refused("another container", step(params | {"a": tuple(params["a"])}), invalid, "has a tuple where params has a list")
    refused("another shape", step(params | {"a": [jnp.ones((3, 2)), jnp.ones(4)]}), invalid, "['a'][0]", "(2, 3)", "(3, 2)")
    refused("another type", step(params | {"b": jnp.ones((), jnp.bfloat16)}), invalid, "['b']", "float32", "bfloat16")
    refused("a traced value", lambda: jax.jit(optimizer.step)(params), invalid, "outside of jit and grad")
    donated = jnp.ones(())
    jax.jit(lambda one: one + 1, donate_argnums=0)(donated)
    refused("a donated array", step(params | {"b": donated}), invalid, "['b']", "deleted")
    optimizer.step(params | {"b": jnp.full((), jnp.nan)})
    check("NaN", optimizer.engine.last_step.skipped and "['b']" in optimizer.engine.skip_reason, optimizer.engine.skip_reason)
    before = optimizer.params()
    optimizer.step(params)  # the first rate of the schedule is 0
    after = optimizer.step(params)
    check("it goes on", optimizer.steps == 3 and float(after["b"]) < float(before["b"]) == 1.0, f"{before['b']} -> {after['b']}")
    shown = optimizer.params(copy=False)["a"][0]
    kept = optimizer.params()["a"][0]
    check("views", shown.unsafe_buffer_pointer() == optimizer.engine.view("['a'][0]").data_ptr != kept.unsafe_buffer_pointer(), "of the engine's memory")
    optimizer.close()
    refused("a closed one", step(params), libds.StateError, "this Optimizer is closed")


def page():
    command = [sys.executable, os.path.join(ROOT, "tests/readme/pages.py"), ROOT, BUILD, os.path.join(ROOT, "docs/guides/jax.md")]
    done = subprocess.run([*command, f"--path={os.path.dirname(sys.executable)}"], stdout=subprocess.PIPE, text=True, check=False)
    check("docs/guides/jax.md", done.returncode == 0, done.stdout.strip())


def main():
    if len(sys.argv) == 3:
        return rank_main(*sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch:
        for size in (1, 2):
            same_numbers(size, scratch)
        small_types(scratch)
    bad_input()
    page()
    print(f"jax: {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
