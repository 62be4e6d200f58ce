/* What the C files of the compiled module share. See __init__.py. */
#ifndef PEEKLOCK_NATIVE_H
#define PEEKLOCK_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#include "values.h"

/* Changes the frames that Proton has written. Returns the runs of deliveries, or NULL with an error. It is in frames.c. */
PyObject *unsettle_transfers(uint8_t *data, size_t size, PyObject *links);

/* Appends a new reference to a list. Returns -1 with an error if either is NULL, because it could not be created. */
static inline int append(PyObject *list, PyObject *item) {
    int failed = list == NULL || item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

/* The functions of each file, as a table that ends with an empty entry. */
extern PyMethodDef message_methods[], frame_methods[], proton_methods[], socket_methods[];

#endif
