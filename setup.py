"""What pyproject.toml cannot say: the packages at the top level are installed inside `peeklock`.

`peeklock/__init__.py` says why. `pyproject.toml` has everything else.
"""

from setuptools import find_packages, setup

FOLDER = "peeklock._packages"
PACKAGES = ("broker", "config", "protocol", "storage")

found = find_packages(include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")])
setup(
    packages=["peeklock", *(f"{FOLDER}.{name}" for name in found)],
    package_dir={f"{FOLDER}.{name}": name for name in PACKAGES},
)
