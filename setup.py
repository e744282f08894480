"""The package map of the top-level folders, and the CMake build of edgert._core; all else is in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# quant, offload and models are also symbolic links in edgert/: the map below keeps wheels free of duplicates.
PACKAGE_FOLDERS = {
    "edgert": "edgert",
    "edgert.quant": "quant",
    "edgert.offload": "offload",
    "edgert.models": "models",
}


def package_names() -> list[str]:
    """Every package that the wheel holds, without what the links in edgert/ show a second time."""
    mapped = [name.removeprefix("edgert.") for name in PACKAGE_FOLDERS if name != "edgert"]
    names = []
    for name, folder in PACKAGE_FOLDERS.items():
        linked = [f"{link}{suffix}" for link in mapped for suffix in ("", ".*")] if name == "edgert" else []
        names += [name, *(f"{name}.{sub}" for sub in find_packages(folder, exclude=linked))]
    return names


class CMakeBuild(build_ext):
    """Builds _core with CMake and Ninja into the place where setuptools looks for the extension."""

    def build_extension(self, ext: Extension) -> None:
        import pybind11

        output = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        build = Path(self.build_temp).resolve()
        configure = [
            "cmake", "--fresh", "-S", str(ROOT), "-B", str(build), "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", "-DEDGERT_TESTS=OFF", f"-DEDGERT_OUTPUT_DIR={output}",
            f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            *os.environ.get("CMAKE_ARGS", "").split(),
        ]  # fmt: skip
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build)], check=True)


setup(
    packages=package_names(),
    package_dir=PACKAGE_FOLDERS,
    ext_modules=[Extension("edgert._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
