"""``python -m forkless SCRIPT``: see `_run`."""

import sys

from forkless._run import main

if __name__ == "__main__":
    main(sys.argv[1:])
