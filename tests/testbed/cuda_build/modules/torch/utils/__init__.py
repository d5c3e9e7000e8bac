"""Where CMake finds torch's configuration."""

from pathlib import Path

cmake_prefix_path = str(Path(__file__).parents[3] / "cmake")
