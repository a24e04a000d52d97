"""The application of the gunicorn victim. The worker holds $VICTIM_MIB of memory.

/start/COUNT starts $VICTIM_PROGRAM so often, and answers with the nanoseconds of each start. /hold takes a thread for a
moment, so that a few of them at once bring up the worker's pool of threads.
"""
import os
import subprocess
import time

memory = bytearray(b"x") * (int(os.environ["VICTIM_MIB"]) << 20)
program = os.environ["VICTIM_PROGRAM"]


def nothing():
    pass


def start():
    begin = time.perf_counter_ns()
    # preexec_fn is what makes CPython fork instead of vfork.
    subprocess.run([program], preexec_fn=nothing, check=True)
    return time.perf_counter_ns() - begin


def application(environ, start_response):
    words = environ["PATH_INFO"].strip("/").split("/")
    if words[0] == "start":
        text = " ".join(str(start()) for _ in range(int(words[1])))
    else:
        time.sleep(0.2)
        text = "held"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text.encode()]
