"""Streams through the low-level module, on the device *separate*, whose memory the host cannot access."""
import json

import libds
import libds.lowlevel as ds
from support import CONFIG, linear_batch, linear_graph, np


def engine_on(device):
    graph = linear_graph()
    return ds.engine_create(None, json.dumps({**CONFIG, "device": device}), graph._raw, None)


x, target = linear_batch()
plain = engine_on("cpu")
wanted = [ds.train_batch(plain, [ds.tensor_from(x, 0, 0), ds.tensor_from(target, 0, 0)]) for _ in range(3)]
try:
    ds.stream_create(plain)
    raise AssertionError("a stream of the host's own memory")
except libds.Unsupported:
    pass

engine = engine_on("separate")
stream = ds.stream_create(engine)
inputs = [ds.tensor_create(ds.DTYPE_F32, list(a.shape), stream) for a in (x, target)]
losses = []
for _ in range(3):
    sources = [ds.tensor_from(np.array(a), 0, 0) for a in (x, target)]
    for to, source in zip(inputs, sources):
        ds.tensor_copy(to, source, stream)
    # After this, the arrays may be freed.
    ds.stream_synchronize(stream)
    losses.append(ds.train_batch(engine, inputs, stream))
assert losses == wanted, (losses, wanted)
made = ds.infer(engine, [inputs[0], None], stream)
for show in (libds.Tensor._of, lambda raw: raw.memory()):
    try:
        show(made)
        raise AssertionError("memory of a device was shown")
    except BufferError as error:
        assert "'separate'" in str(error), error
host = libds.zeros((4, 2))
ds.tensor_copy(host._raw, made, stream)
ds.stream_synchronize(stream)
assert host.tolist() == np.asarray(libds.Tensor._of(ds.infer(plain, [ds.tensor_from(x, 0, 0), None]))).tolist()
del engine, inputs, made  # the stream may outlive them
ds.stream_synchronize(stream)
