"""The compiled module: what is done once for each message, in C, for a whole batch in one call.

`messages.c` is used by `protocol/codec`, `frames.c` by `protocol/amqp/frames`, `proton.c` by `protocol/amqp/engine`, and
the function in `module.c` by the transports of the broker. They handle the plain case, which is nearly every message; everything else
is handled by the Python code of their users. What is done once for a batch is done in Python. ARCHITECTURE.md says why
this is a C extension. `setup.py` compiles it, and `compiled.pyi` declares its functions.
"""

try:
    from protocol.native import compiled
except ImportError as error:
    raise ImportError(
        "The C module protocol.native.compiled is missing or was compiled for another Python. To compile it, run "
        "`make run`, or `python setup.py build_ext --inplace` in the source tree, with the Python that is to use it; "
        "a C compiler is needed."
    ) from error

__all__ = ["compiled"]
