"""Fencehold's binary, as a Python package: leases with fencing tokens, and durable jobs.

The wheel puts two programs on the path: ``fencehold``, the binary itself, and ``fencehold-server``, which is
``fencehold serve``. From Python, :func:`binary` says where the binary is.
"""

import os
import sys
import sysconfig

__all__ = ["binary", "serve"]


def binary():
    """The path of the ``fencehold`` binary that came with this package."""
    here = os.path.dirname(os.path.abspath(__file__))
    scripts = [
        sysconfig.get_path("scripts"),
        # `pip install --user`, and `pip install --target`.
        sysconfig.get_path("scripts", scheme="posix_user"),
        os.path.join(os.path.dirname(here), "bin"),
    ]
    for place in scripts:
        path = os.path.join(place, "fencehold")
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(
        "the fencehold binary is in none of {}; install fencehold-server again".format(", ".join(scripts))
    )


def serve():
    """Becomes ``fencehold serve`` with this process's arguments."""
    path = binary()
    os.execv(path, [path, "serve", *sys.argv[1:]])
