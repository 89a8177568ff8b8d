"""Measures how much of the communication is hidden by compute: ./run bench overlap [STEPS].

Part one runs on the separate device, with 5 ms of sleep in each kernel and collective. Bar: a step takes at most 0.7 of the
sum of all sleeps. In part two, two ranks in network namespaces of their own, connected at 1 Gbit/s (tc tbf), train GPT-2
under ZeRO-3 over tcp, each on one sequence of its 1,024 positions. Bar: a step takes at most 1.25 of the larger of compute
alone (ranks over shared memory, without the slow link) and communication alone (almost all kernels do nothing); each time is
the best step of three turns. A quarter of the tokens, where communication takes longer than compute, is printed without a
bar: there the link has nothing to do from the last gather to the first gradient. Part two is left out if the user may not
make namespaces.
"""
import os
import subprocess
import sys
import tempfile

import verdict

BAR = 1.25
TOKENS = 1024
TURNS = 3
BENCH = os.path.join(os.environ.get("DS_BUILD", "build"), "bin", "bench_overlap")
NAMES = [f"ds{os.getpid()}a", f"ds{os.getpid()}b"]


def ip(*words, quiet=False):
    subprocess.run(["ip", *words], check=True, stderr=subprocess.DEVNULL if quiet else None)


def join_namespaces():
    for name in NAMES:
        ip("netns", "add", name, quiet=True)
    ip("link", "add", "v0", "netns", NAMES[0], "type", "veth", "peer", "name", "v0", "netns", NAMES[1])
    for number, name in enumerate(NAMES):
        inside = ["-n", name]
        ip(*inside, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "v0")
        ip(*inside, "link", "set", "v0", "up")
        ip(*inside, "link", "set", "lo", "up")
        subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "v0", "root", "tbf", "rate", "1gbit", "burst", "1mb",
                        "latency", "50ms"], check=True)


def seconds(url, part, steps, tokens, apart):
    ranks = []
    for rank in (0, 1):
        command = [BENCH, str(rank), url, part, str(steps), str(tokens)]
        environment = dict(os.environ)
        if apart:
            # With a host name of its own, each rank counts as a host; ranks of several hosts give collectives a thread.
            named = ["unshare", "--uts", "sh", "-c", f'echo {NAMES[rank]} > /proc/sys/kernel/hostname; exec "$@"', "sh"]
            command = ["ip", "netns", "exec", NAMES[rank], *named, *command]
            environment |= {"GLOO_SOCKET_IFNAME": "v0", "DS_JOB_KEY": "of the overlap bench"}
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    out = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"overlap: a rank of '{part}' over {url} has failed")
    return float(out[0])


def of_the_larger(tokens, steps):
    with tempfile.TemporaryDirectory() as folder:
        meet = f"tcp://{folder}/meet"
        compute = comm = both = float("inf")
        for turn in range(TURNS):
            compute = min(compute, seconds(f"shm://overlap-{os.getpid()}-{turn}", "both", steps, tokens, False))
            comm = min(comm, seconds(f"{meet}{turn}a", "comm", steps, tokens, True))
            both = min(both, seconds(f"{meet}{turn}b", "both", steps, tokens, True))
    ratio = both / max(compute, comm)
    return ratio, (f"1 Gbit/s, {tokens} tokens a rank: compute alone {compute:.2f} s, communication alone {comm:.2f} s, "
                   f"both {both:.2f} s a step: {ratio:.2f} of the larger")


def main(bars):
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    alone = subprocess.run([BENCH, "separate"], check=False).returncode
    bars.holds("separate device", alone == 0, f"exit code {alone}, printed above")
    try:
        join_namespaces()
    except (OSError, subprocess.CalledProcessError):
        bars.left_out("network namespaces, which this user may not make")
        return
    try:
        for tokens in (TOKENS // 4, TOKENS):
            ratio, line = of_the_larger(tokens, steps)
            print(line + (f", {bars.most('GPT-2 at 1 Gbit/s', ratio, BAR)}" if tokens == TOKENS else ""), flush=True)
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False)


if __name__ == "__main__":
    verdict.run(main)
