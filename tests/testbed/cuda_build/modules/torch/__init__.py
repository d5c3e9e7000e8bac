"""Stands in for torch where the engine's setup.py and CMakeLists.txt only ask for versions, paths and flags."""

import os

from torch import utils as utils


class version:  # noqa: N801, torch's name
    """What torch was built for."""

    cuda = os.environ.get("STANDIN_CUDA")
    hip = None
    xpu = None
