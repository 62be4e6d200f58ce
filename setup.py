"""What pyproject.toml cannot say: the packages at the top level are installed inside `peeklock`, and the C module.

`peeklock/__init__.py` says why. `pyproject.toml` has everything else. In the source tree, `python setup.py build_ext
--inplace` compiles the module beside its sources, as every editable installation does.
"""

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

FOLDER = "peeklock._packages"
PACKAGES = ("broker", "config", "protocol", "storage")
NATIVE = "protocol/native"

found = find_packages(include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")])


class BuildNative(build_ext):
    """Compiles the module beside its sources, where packages of the source tree are at the top level."""

    def get_ext_fullpath(self, ext_name: str) -> str:
        """Returns where the compiled file is written."""
        if self.inplace:
            return f"{NATIVE}/{self.get_ext_filename(ext_name.rpartition('.')[2])}"
        path: str = super().get_ext_fullpath(ext_name)
        return path


setup(
    packages=["peeklock", *(f"{FOLDER}.{name}" for name in found)],
    package_dir={f"{FOLDER}.{name}": name for name in PACKAGES},
    ext_modules=[
        Extension(
            f"{FOLDER}.protocol.native.compiled",
            sources=[
                f"{NATIVE}/{name}.c"
                for name in ("module", "messages", "deliveries", "frames", "sockets")
            ],
            depends=[f"{NATIVE}/native.h"],
            # Without debug information, which names folders of the build: the same source gives the same wheel.
            extra_compile_args=[
                "-std=c11",
                "-O2",
                "-g0",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
            ],
        )
    ],
    cmdclass={"build_ext": BuildNative},
)
