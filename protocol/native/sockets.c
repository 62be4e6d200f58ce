/* Calls of sockets that are made once for each message. A socket object of Python would have to be made for each call,
   because the transports of uvloop have none. */
#include "native.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* acknowledge(descriptor): sends the TCP acknowledgement of what was read at once. The descriptor must be open. */
static PyObject *acknowledge(PyObject *module, PyObject *descriptor) {
    int number = (int)PyLong_AsLong(descriptor), on = 1;
    if (PyErr_Occurred())
        return NULL;
#ifdef TCP_QUICKACK
    /* It fails if the client has reset the connection, and then nothing has to be acknowledged. */
    (void)setsockopt(number, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
#endif
    Py_RETURN_NONE;
}

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS. Python ignores SIGPIPE in any case. */
#endif

/* write(descriptor, data) -> number of bytes: writes as much to a socket as it takes now. The descriptor must be open.
   An error is no bytes: whoever writes next gets it. */
static PyObject *write_socket(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2 || !PyBytes_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "write(descriptor, data)");
        return NULL;
    }
    int number = (int)PyLong_AsLong(arguments[0]);
    if (PyErr_Occurred())
        return NULL;
    const char *data = PyBytes_AS_STRING(arguments[1]);
    size_t size = (size_t)PyBytes_GET_SIZE(arguments[1]);
    ssize_t written;
    do
        written = send(number, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (written < 0 && errno == EINTR);
    return PyLong_FromSsize_t(written < 0 ? 0 : written);
}

PyMethodDef socket_methods[] = {
    {"acknowledge", acknowledge, METH_O, NULL},
    {"write", (PyCFunction)(void (*)(void))write_socket, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
