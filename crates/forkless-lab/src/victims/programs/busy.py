"""The Python victim with threads: python3 busy.py MIB PROGRAM; orders as parent.c takes them.

Busy threads, as many as there are processors but one, compute without the interpreter's lock, as those of a library for
matrices do. Seven more wait, as those of a pool do.
"""
import hashlib
import os
import subprocess
import sys
import threading
import time

memory = bytearray(b"x") * (int(sys.argv[1]) << 20)
program = sys.argv[2]


def compute():
    # 16 MiB: some ten milliseconds between two moments with the lock.
    block = bytes(16 << 20)
    while True:
        hashlib.sha256(block)


def nothing():
    pass


for work in [compute] * max(1, len(os.sched_getaffinity(0)) - 1) + [threading.Event().wait] * 7:
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
for order in sys.stdin:
    times = []
    for _ in range(int(order.split()[1])):
        begin = time.perf_counter_ns()
        # preexec_fn is what makes CPython fork instead of vfork.
        subprocess.run([program], preexec_fn=nothing, check=True)
        times.append(time.perf_counter_ns() - begin)
    print(*times, flush=True)
