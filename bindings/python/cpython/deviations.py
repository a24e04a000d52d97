"""CPython's tests that forkless does not pass, each with the reason.

A key is ``MODE TEST`` as `run.py` prints it, with * for any text; a value is the reason, one line.
The guide (docs/guide/python.md) has the same list for users.
"""

DEVIATIONS = {}
