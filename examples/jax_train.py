"""Trains a small network in JAX with libds as its optimizer, on any number of ranks, with ZeRO 2.
Run: PYTHONPATH=build/python libds launch -n 2 python3 examples/jax_train.py"""
import jax
import jax.numpy as jnp

import libds.jax

CONFIG = {
    "train_micro_batch_size_per_gpu": 64,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
    "zero_optimization": {"stage": 2},
}


def draw(key, rows, columns):
    return {"w": jax.random.normal(key, (rows, columns)) / rows**0.5, "b": jnp.zeros(columns)}


def loss(params, x, y):
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return jnp.mean((x @ params[-1]["w"] + params[-1]["b"] - y) ** 2)


loss_and_grads = jax.jit(jax.value_and_grad(loss))
keys = jax.random.split(jax.random.key(1), 3)
layers = [draw(keys[0], 4, 64), draw(keys[1], 64, 64), draw(keys[2], 64, 1)]
with libds.Comm() as comm, libds.jax.Optimizer(layers, CONFIG, comm) as optimizer:
    params = optimizer.params()
    data = jax.random.key(100 + comm.rank)  # each rank draws its own batches
    for step in range(1, 101):
        data, key = jax.random.split(data)
        x = jax.random.normal(key, (64, 4))
        value, grads = loss_and_grads(params, x, jnp.sin(x.sum(axis=1, keepdims=True)))
        params = optimizer.step(grads)
        if comm.rank == 0 and step % 25 == 0:
            print(f"step {step} loss {value:.4f}")
assert value < 0.1
