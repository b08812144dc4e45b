"""Names the platform for which the wheel's binary was built; any Python will do."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Platform(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + os.environ["FENCEHOLD_WHEEL_PLATFORM"]
