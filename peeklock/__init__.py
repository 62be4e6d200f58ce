"""The one name that the distribution `peeklock` installs; it holds the command, and is no library.

The broker consists of four packages: `broker`, `config`, `protocol` and `storage`. In the source tree
they are at the top level. Many projects have a module or a package of one of these names, so an
installation must not put them on the import path: the wheel has them in `peeklock/_packages/`
(`setup.py` says so to setuptools), and only the process of the command imports them from there
(`peeklock/__main__.py`). Importing `peeklock` elsewhere does nothing.
"""
