"""``python -m fencehold_server ARGS``: the same as ``fencehold ARGS``."""

import os
import sys

from fencehold_server import binary

path = binary()
os.execv(path, [path, *sys.argv[1:]])
