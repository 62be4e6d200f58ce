"""What pyproject.toml cannot say: the packages at the top level are installed inside `peeklock`, and the C modules.

`peeklock/__init__.py` says why. `pyproject.toml` has everything else. In the source tree, `python setup.py build_ext
--inplace` compiles the modules beside their sources, as every editable installation does.
"""

from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

FOLDER = "peeklock._packages"
PACKAGES = ("broker", "config", "protocol", "storage")
SOURCES = {
    "protocol/native": ("module", "messages", "frames", "proton"),
    "storage/native": ("synced_writes",),
}
"""The C files of each module, which is called `compiled`."""
OPTIONS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter"]

found = find_packages(include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")])


class BuildNative(build_ext):
    """Compiles each module beside its sources, where packages of the source tree are at the top level."""

    def get_ext_fullpath(self, ext_name: str) -> str:
        """Returns where the compiled file is written."""
        if self.inplace:
            *folders, name = ext_name.removeprefix(f"{FOLDER}.").split(".")
            return "/".join([*folders, self.get_ext_filename(name)])
        path: str = super().get_ext_fullpath(ext_name)
        return path


setup(
    packages=["peeklock", *(f"{FOLDER}.{name}" for name in found)],
    package_dir={f"{FOLDER}.{name}": name for name in PACKAGES},
    ext_modules=[
        Extension(
            f"{FOLDER}.{folder.replace('/', '.')}.compiled",
            sources=[f"{folder}/{name}.c" for name in names],
            depends=[path.as_posix() for path in Path(folder).glob("*.h")],
            # Without debug information, which names folders of the build: the same source gives the same wheel.
            extra_compile_args=[*OPTIONS, "-g0", "-pthread"],
            extra_link_args=["-pthread"],
        )
        for folder, names in SOURCES.items()
    ],
    cmdclass={"build_ext": BuildNative},
)
