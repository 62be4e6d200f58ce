"""The C module of the stores: what must not wait for the interpreter lock.

It has one type, which writes and syncs in the background. What is written, and when, is decided in Python.
`compiled.pyi` declares it, and `setup.py` compiles it together with the C module of the protocols.
"""

try:
    from storage.native import compiled
except ImportError as error:
    raise ImportError(
        "The C module storage.native.compiled is missing or was compiled for another Python. To compile it, run "
        "`make run`, or `python setup.py build_ext --inplace` in the source tree, with the Python that is to use it; "
        "a C compiler is needed."
    ) from error

__all__ = ["compiled"]
