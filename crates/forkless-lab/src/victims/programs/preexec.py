"""The Python victim: python3 preexec.py MIB PROGRAM; orders as parent.c takes them."""
import subprocess
import sys
import time

memory = bytearray(b"x") * (int(sys.argv[1]) << 20)
program = sys.argv[2]


def nothing():
    pass


print("ready", flush=True)
for order in sys.stdin:
    times = []
    for _ in range(int(order.split()[1])):
        begin = time.perf_counter_ns()
        # preexec_fn is what makes CPython fork instead of vfork.
        subprocess.run([program], preexec_fn=nothing, check=True)
        times.append(time.perf_counter_ns() - begin)
    print(*times, flush=True)
