/* Messages to and from Proton. It gets every message that the broker sends as settled and forgets it, see frames.c. */
#include "native.h"

typedef struct {
    size_t size;
    const char *start;
} ProtonBytes; /* pn_bytes_t */

/* Functions of Proton that are called here: result, name and arguments. The engine passes their addresses: the file
   that has them is at a place that only the installed package knows, so nothing can be linked against it. */
#define PROTON_FUNCTIONS(F)                                                                                           \
    F(void *, collector_peek, (void *)) F(_Bool, collector_pop, (void *)) F(int, event_type, (void *))                \
    F(void *, event_link, (void *)) F(void *, link_current, (void *)) F(_Bool, link_advance, (void *))                \
    F(ssize_t, link_recv, (void *, char *, size_t)) F(ssize_t, link_send, (void *, const char *, size_t))             \
    F(void *, delivery, (void *, ProtonBytes)) F(size_t, delivery_pending, (void *))                                  \
    F(_Bool, delivery_partial, (void *)) F(_Bool, delivery_aborted, (void *)) F(_Bool, delivery_settled, (void *))    \
    F(uint64_t, delivery_remote_state, (void *)) F(void, delivery_update, (void *, uint64_t))                         \
    F(void, delivery_settle, (void *)) F(ssize_t, transport_pending, (void *))                                        \
    F(ssize_t, transport_peek, (void *, char *, size_t)) F(void, transport_pop, (void *, size_t))
#define PROTON_FIELD(result, name, arguments) result(*name) arguments;

static struct {
    PROTON_FUNCTIONS(PROTON_FIELD)
} proton;

/* set_proton(addresses): takes the addresses of Proton's functions by name, of a dictionary. */
static PyObject *set_proton(PyObject *module, PyObject *addresses) {
    PyObject *address;
#define TAKE_ADDRESS(result, name, arguments)                                                                         \
    address = PyDict_GetItemString(addresses, "pn_" #name);                                                           \
    *(void **)&proton.name = address == NULL ? NULL : PyLong_AsVoidPtr(address);                                      \
    if (proton.name == NULL)                                                                                          \
        return PyErr_Format(PyExc_ValueError, "pn_%s has no address", #name);
    PROTON_FUNCTIONS(TAKE_ADDRESS)
    Py_RETURN_NONE;
}

/* Converts a number of Python to an address. */
static int to_address(PyObject *number, void *address) {
    *(void **)address = PyLong_AsVoidPtr(number);
    return !PyErr_Occurred();
}

/* take(collector, link, addresses, number, limit, max_bytes, may_be_settled): takes complete messages of the link, of
   at most `limit` events, that are first in the event queue and are all settled or all not. The first event is a
   delivery. Adds the addresses of their deliveries, by number from `number` on. Returns the numbers and payloads,
   whether they are settled, and what comes next: 0 another event, 1 a delivery that the caller has to take, 2 more. */
static PyObject *take(PyObject *module, PyObject *args) {
    void *collector, *link, *event;
    PyObject *addresses, *numbers = PyList_New(0), *payloads = PyList_New(0);
    unsigned long long number;
    Py_ssize_t limit, max_bytes, seen = 0;
    int may_be_settled, settled = 0, next = 0;
    if (!PyArg_ParseTuple(args, "O&O&O!Knnp", to_address, &collector, to_address, &link, &PyDict_Type, &addresses,
                          &number, &limit, &max_bytes, &may_be_settled))
        goto failed;
    event = proton.collector_peek(collector);
    for (int type = event == NULL ? 0 : proton.event_type(event);
         event != NULL && proton.event_type(event) == type && proton.event_link(event) == link;
         event = proton.collector_peek(collector)) {
        if (seen++ == limit) {
            next = 2;
            break;
        }
        /* Not the delivery of the event: that may be an older one whose state has changed. */
        void *delivery = proton.link_current(link);
        if (delivery == NULL) {
            proton.collector_pop(collector);
            continue;
        }
        size_t size = proton.delivery_pending(delivery);
        int is_settled = may_be_settled && proton.delivery_settled(delivery);
        if (size == 0 || size >= (size_t)max_bytes || proton.delivery_partial(delivery) ||
            proton.delivery_aborted(delivery) || proton.delivery_remote_state(delivery) != 0)
            next = 1;
        else if (PyList_GET_SIZE(numbers) > 0 && is_settled != settled)
            next = 2;
        if (next != 0)
            break;
        settled = is_settled;
        PyObject *key = PyLong_FromUnsignedLongLong(number++), *address = PyLong_FromVoidPtr(delivery);
        PyObject *payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (payload != NULL)
            proton.link_recv(link, PyBytes_AS_STRING(payload), size);
        int failed = key == NULL || address == NULL || PyDict_SetItem(addresses, key, address) < 0;
        Py_XDECREF(address);
        if (append(payloads, payload) < 0 || append(numbers, key) < 0 || failed)
            goto failed;
        proton.collector_pop(collector);
        proton.link_advance(link);
    }
    return Py_BuildValue("(NNNi)", numbers, payloads, PyBool_FromLong(settled), next);
failed:
    Py_XDECREF(numbers);
    Py_XDECREF(payloads);
    return NULL;
}

/* settle(addresses, numbers, code): settles deliveries with an outcome that has no fields, or with none if the code is
   0, and removes their addresses. A number without an address, or None, is a delivery that was settled before. */
static PyObject *settle(PyObject *module, PyObject *args) {
    PyObject *addresses, *numbers;
    unsigned long long code;
    if (!PyArg_ParseTuple(args, "O!O!K", &PyDict_Type, &addresses, &PyList_Type, &numbers, &code))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(numbers) && !PyErr_Occurred(); i++) {
        PyObject *number = PyList_GET_ITEM(numbers, i);
        PyObject *address = PyDict_GetItemWithError(addresses, number);
        void *delivery = address == NULL ? NULL : PyLong_AsVoidPtr(address);
        if (delivery == NULL || PyDict_DelItem(addresses, number) < 0)
            continue;
        if (code != 0)
            proton.delivery_update(delivery, code);
        proton.delivery_settle(delivery);
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* send(link, tags, heads, bodies, start, settled, limit_bytes): passes messages to Proton, from `start` on. Stops
   before a message that is over the limit, unless it is settled, and after messages that are together. Returns where. */
static PyObject *send(PyObject *module, PyObject *args) {
    void *link;
    PyObject *lists[3];
    Py_ssize_t i, limit, sizes[3], sent = 0;
    char *parts[3];
    int settled;
    if (!PyArg_ParseTuple(args, "O&O!O!O!npn", to_address, &link, &PyList_Type, &lists[0], &PyList_Type, &lists[1],
                          &PyList_Type, &lists[2], &i, &settled, &limit))
        return NULL;
    for (; i < PyList_GET_SIZE(lists[0]) && sent <= limit; i++) {
        for (int j = 0; j < 3; j++)
            if (i >= PyList_GET_SIZE(lists[j]) ||
                PyBytes_AsStringAndSize(PyList_GET_ITEM(lists[j], i), &parts[j], &sizes[j]) < 0)
                return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a message lacks a part");
        if (sizes[1] + sizes[2] > limit && !settled)
            break;
        void *delivery = proton.delivery(link, (ProtonBytes){(size_t)sizes[0], parts[0]});
        proton.link_send(link, parts[1], (size_t)sizes[1]);
        proton.link_send(link, parts[2], (size_t)sizes[2]);
        proton.link_advance(link);
        proton.delivery_settle(delivery);
        sent += sizes[1] + sizes[2];
    }
    return PyLong_FromSsize_t(i);
}

/* pump(transport, links, collector, handled): returns the bytes that Proton has written, which are complete frames,
   whether it will write nothing more, the ranges of deliveries in them, see unsettle_transfers, and whether there is an
   event. Events of other types than those in `handled` that are first in the queue are removed. */
static PyObject *pump(PyObject *module, PyObject *args) {
    void *transport, *collector, *event;
    PyObject *links;
    const char *handled;
    Py_ssize_t handled_count, pending = 0;
    if (!PyArg_ParseTuple(args, "O&O!O&y#", to_address, &transport, &PyDict_Type, &links, to_address, &collector,
                          &handled, &handled_count))
        return NULL;
    PyObject *output = PyBytes_FromStringAndSize(NULL, 0);
    while (output != NULL && (pending = proton.transport_pending(transport)) > 0) {
        Py_ssize_t size = PyBytes_GET_SIZE(output);
        if (_PyBytes_Resize(&output, size + pending) < 0)
            return NULL;
        proton.transport_peek(transport, PyBytes_AS_STRING(output) + size, (size_t)pending);
        proton.transport_pop(transport, (size_t)pending);
    }
    if (output == NULL)
        return NULL;
    /* Nobody else has the bytes yet, so they may be changed. */
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(output);
    PyObject *ranges = unsettle_transfers(start, (size_t)PyBytes_GET_SIZE(output), links);
    if (ranges == NULL) {
        Py_DECREF(output);
        return NULL;
    }
    while ((event = proton.collector_peek(collector)) != NULL &&
           memchr(handled, proton.event_type(event), (size_t)handled_count) == NULL)
        proton.collector_pop(collector);
    return Py_BuildValue("(NNNN)", output, PyBool_FromLong(pending < 0), ranges, PyBool_FromLong(event != NULL));
}

PyMethodDef proton_methods[] = {{"set_proton", set_proton, METH_O, NULL},
                                {"take", take, METH_VARARGS, NULL},
                                {"settle", settle, METH_VARARGS, NULL},
                                {"send", send, METH_VARARGS, NULL},
                                {"pump", pump, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
