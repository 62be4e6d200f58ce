/* Options of sockets that are set once for each message. A socket object of Python would have to be made for each call,
   because the transports of uvloop have none. */
#include "native.h"

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

PyMethodDef socket_methods[] = {{"acknowledge", acknowledge, METH_O, NULL}, {NULL, NULL, 0, NULL}};
