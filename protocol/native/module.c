/* The compiled module: puts the functions of the other files together, and has one for sockets. */
#include "native.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* acknowledge(descriptor): sends the TCP acknowledgement of what was read at once. The descriptor must be open. This is
   done for most reads, and uvloop makes a socket object of Python for each call, which takes longer than a message. */
static PyObject *acknowledge(PyObject *module, PyObject *descriptor) {
    int number = (int)PyLong_AsLong(descriptor), on = 1;
    if (PyErr_Occurred())
        return NULL;
    /* It fails if the client has reset the connection, and then nothing has to be acknowledged. */
    (void)setsockopt(number, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"acknowledge", acknowledge, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled", "See protocol/native/__init__.py.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_compiled(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL &&
        (PyModule_AddFunctions(module, message_methods) < 0 || PyModule_AddFunctions(module, frame_methods) < 0 ||
         PyModule_AddFunctions(module, proton_methods) < 0))
        Py_CLEAR(module);
    return module;
}
