"""The threads of the Python victim with threads, in front of preexec.py: python3 busy.py MIB PROGRAM.

Busy threads, as many as there are processors but one, compute without the interpreter's lock, as those of a library for
matrices do. Seven more wait, as those of a pool do.
"""
import hashlib
import os
import threading


def compute():
    # 16 MiB: some ten milliseconds between two moments with the lock.
    block = bytes(16 << 20)
    while True:
        hashlib.sha256(block)


for work in [compute] * max(1, len(os.sched_getaffinity(0)) - 1) + [threading.Event().wait] * 7:
    threading.Thread(target=work, daemon=True).start()
