"""Starts the ranks of a script, for the parts that also train DeepSpeed, and finds a port at which ranks can meet."""
import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(words_of_rank, count, extra):
    """Runs the ranks and returns their exit codes and their stderr."""
    port = free_port()
    ranks = []
    for rank in range(count):
        environment = os.environ | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HF_HUB_OFFLINE": "1",
            "DS_COMM_URL": f"shm://interop-{os.getpid()}-{port}"} | extra
        ranks.append(subprocess.Popen([sys.executable, *words_of_rank(rank)], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True, env=environment))
    errors = [rank.communicate()[1] for rank in ranks]
    return [rank.returncode for rank in ranks], errors


def launch(what, words_of_rank, count, rival=False, **extra):
    """Runs `python words_of_rank(rank)` on `count` ranks, and ends this process if a rank fails. On a busy machine, signals
    sometimes end DeepSpeed's processes, so a `rival` is started once more, with a message."""
    codes, errors = start(words_of_rank, count, extra)
    if rival and min(codes) < 0:
        print(f"{what}: processes of the rival ended with {codes}; they are started again", flush=True)
        codes, errors = start(words_of_rank, count, extra)
    for code, text in zip(codes, errors):
        if code != 0:
            sys.exit(f"{what}: a rank ended with {code}\n{text[-3000:]}")
