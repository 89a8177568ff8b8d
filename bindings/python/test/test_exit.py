"""A program may end with handles of every kind open, in any order and in the middle of anything, and keeps its own exit
code."""
import random
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

PROGRAM = """
import os, random, sys
sys.path.insert(0, {here!r})
from support import *

seed = int(sys.argv[1])
source = np.zeros(1024, np.float32)
comm, graph = libds.Comm("self"), linear_graph()
engine = libds.Engine(CONFIG, graph, comm=comm, threads=1)
engine.train_batch(*linear_batch())
host = host_engine(64, init=lambda name, first, values: None)
context = host.gathered()
lease = context.__enter__()
objects = dict(comm=comm, graph=graph, engine=engine, host=host, lease=lease, context=context, plan=libds.Plan(CONFIG, graph),
               work=comm.all_reduce(source, start=True), tensor=libds.Tensor(source), view=lease["p"],
               array=np.asarray(lease["p"]), shared=np.from_dlpack(libds.zeros(8)), grad=engine.infer(linear_batch()[0], None))
objects["cycle"] = objects
libds.set_log(lambda level, line: None)
names = sorted(objects)
random.Random(seed).shuffle(names)
del comm, graph, engine, host, context, lease
for number, name in enumerate(names):
    globals()[f"kept_{{number}}_" + "abcdefgh"[(seed + number) % 8]] = objects[name]
if seed % 4 == 0:
    del objects
if seed % 5 == 0:
    sys.exit(7)
os.write(1, b"end")
"""


class Exit(unittest.TestCase):
    def end(self, seed):
        import pathlib

        program = PROGRAM.format(here=str(pathlib.Path(__file__).parent))
        done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program, str(seed)], capture_output=True, timeout=60,
                              check=False)
        wanted = (7, b"") if seed % 5 == 0 else (0, b"end")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (*wanted, b""), f"seed {seed}")

    def test_objects_may_be_destroyed_in_any_order(self):
        seeds = [random.randrange(1 << 30) for _ in range(4)] + list(range(8))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.end, seeds))


if __name__ == "__main__":
    unittest.main()
