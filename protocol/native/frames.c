/* Bytes to and from Proton. Proton gets every message that the broker sends as settled and forgets it. In the
   transfers that it writes, the flag is changed back if the client has to settle, and the ids are kept in
   deliveries.c; dispositions of the client for these deliveries do not go to Proton. */
#include "native.h"

#define HEADER_BYTES 8
#define DISPOSITION_MAX_BYTES 1024
#define PEEK_BYTES 65536
#define PLAIN_DEPTH 8

Proton proton;

/* set_proton(addresses): takes the addresses of Proton's functions by name. */
static PyObject *set_proton(PyObject *module, PyObject *args) {
    PyObject *addresses, *address;
    if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &addresses))
        return NULL;
#define TAKE_ADDRESS(result, name, arguments)                                                                         \
    address = PyDict_GetItemString(addresses, "pn_" #name);                                                           \
    *(void **)&proton.name = address == NULL ? NULL : PyLong_AsVoidPtr(address);                                      \
    if (proton.name == NULL)                                                                                          \
        return PyErr_Format(PyExc_ValueError, "pn_%s has no address", #name);
    PROTON_FUNCTIONS(TAKE_ADDRESS)
    Py_RETURN_NONE;
}

/* set_events(delivery, flow, handled): takes the types of events: deliveries, link flows, and all that the engine acts on. */
static PyObject *set_events(PyObject *module, PyObject *args) {
    const uint8_t *handled;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "iiy#", &proton.delivery_event, &proton.flow_event, &handled, &count))
        return NULL;
    memset(proton.is_handled, 0, sizeof proton.is_handled);
    while (count-- > 0)
        proton.is_handled[*handled++] = 1;
    Py_RETURN_NONE;
}

/* skip_events(collector, skips_flows): removes the events that are first in the queue and that the engine does not act
   on, or only on link flows that nobody waits for. Returns whether there is another event. */
static PyObject *skip_events(PyObject *module, PyObject *args) {
    unsigned long long address;
    int skips_flows;
    void *event;
    if (!PyArg_ParseTuple(args, "Kp", &address, &skips_flows))
        return NULL;
    while ((event = proton.collector_peek((void *)(uintptr_t)address)) != NULL) {
        int type = proton.event_type(event);
        if (type < 0 || type > UINT8_MAX || (proton.is_handled[type] && !(skips_flows && type == proton.flow_event)))
            Py_RETURN_TRUE;
        proton.collector_pop((void *)(uintptr_t)address);
    }
    Py_RETURN_FALSE;
}

/* free_connection(transport, connection, collector): frees a connection of Proton. Other Python code runs meanwhile. */
static PyObject *free_connection(PyObject *module, PyObject *args) {
    unsigned long long addresses[3];
    if (!PyArg_ParseTuple(args, "KKK", &addresses[0], &addresses[1], &addresses[2]))
        return NULL;
    void *transport = (void *)(uintptr_t)addresses[0], *connection = (void *)(uintptr_t)addresses[1],
         *collector = (void *)(uintptr_t)addresses[2];
    Py_BEGIN_ALLOW_THREADS
    proton.transport_close_tail(transport);
    proton.transport_close_head(transport);
    while (proton.collector_pop(collector)) {
    }
    proton.transport_unbind(transport);
    proton.collector_release(collector);
    proton.connection_release(connection);
    proton.decref(transport);
    proton.decref(connection);
    proton.collector_free(collector);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Reads an unsigned integer in one of its three encodings. Returns 0 if it is another value. */
static int take_uint(const uint8_t **p, const uint8_t *end, uint32_t *value) {
    const uint8_t *at = *p;
    if (end - at >= 5 && *at == 0x70)
        *value = read_32(at + 1), *p += 5;
    else if (end - at >= 2 && *at == 0x52)
        *value = at[1], *p += 2;
    else if (end - at >= 1 && *at == 0x43)
        *value = 0, *p += 1;
    else
        return 0;
    return 1;
}

/* Finds the fields of a frame with this performative. `end` is set to where they end. Returns NULL if the frame has
   another performative. */
static const uint8_t *fields_of(const uint8_t *frame, const uint8_t **end, uint8_t code, uint32_t *count) {
    if (*end - frame < HEADER_BYTES + 6 || frame[4] != 2 || frame[5] != 0 || frame[8] != 0 || frame[9] != 0x53 ||
        frame[10] != code)
        return NULL;
    const uint8_t *list = frame + 11;
    int width = *list == 0xc0 ? 1 : *list == 0xd0 ? 4 : 0;
    if (width == 0 || *end - list < 1 + 2 * width)
        return NULL;
    size_t size = width == 1 ? list[1] : read_32(list + 1);
    *count = width == 1 ? list[2] : read_32(list + 5);
    if (size < (size_t)width || size > (size_t)(*end - list - 1 - width))
        return NULL;
    *end = list + 1 + width + size;
    return list + 1 + 2 * width;
}

/* Returns where a value ends that is well-formed. Returns NULL if it may not be, which the caller finds out: it is
   malformed, nested deeply, an array, a character or a decimal, has a text that is not ASCII, or a map key that is not
   a text. */
static const uint8_t *plain_end(const uint8_t *p, const uint8_t *end, int depth) {
    const uint8_t *next = simple_end(p, end);
    Compound items;
    if (next != NULL) {
        uint8_t code = *p;
        int is_text = (code & 0xe1) == 0xa1;
        for (p = is_text || code == 0x56 ? p + 1 : next; p < next; p++)
            if (*p > (is_text ? 0x7f : 1))
                return NULL;
        return code == 0x73 || code == 0x74 || code == 0x84 || code == 0x94 ? NULL : next;
    }
    if (p >= end || depth == 0)
        return NULL;
    if (*p == 0x45)
        return p + 1;
    if (*p == 0) {
        next = plain_end(p + 1, end, depth - 1);
        return next == NULL ? NULL : plain_end(next, end, depth - 1);
    }
    int is_map = read_compound(p, end, 0xc1, &items);
    if ((!is_map && !read_compound(p, end, 0xc0, &items)) || (is_map && items.count & 1))
        return NULL;
    for (p = items.first; items.count > 0; items.count--) {
        int is_key = is_map && !(items.count & 1);
        if (p >= items.end || (is_key && (*p & 0xe1) != 0xa1) || (p = plain_end(p, items.end, depth - 1)) == NULL)
            return NULL;
    }
    return p == items.end ? p : NULL;
}

/* is_plain(data, start, end): whether a well-formed value is in this range, see plain_end. */
static PyObject *is_plain(PyObject *module, PyObject *args) {
    const uint8_t *data;
    Py_ssize_t size, start, end;
    if (!PyArg_ParseTuple(args, "y#nn", &data, &size, &start, &end))
        return NULL;
    return PyBool_FromLong(start >= 0 && end <= size && start < end &&
                           plain_end(data + start, data + end, PLAIN_DEPTH) != NULL);
}

/* --- output --------------------------------------------------------------------------------- */

/* send(link, tags, heads, bodies, start, settled, limit_bytes): passes messages to Proton, from `start` on. Stops before
   a message that is over the limit, unless it is settled, and after messages that are together. Returns where. */
static PyObject *send(PyObject *module, PyObject *args) {
    unsigned long long address;
    PyObject *lists[3];
    Py_ssize_t i, limit, sent = 0;
    int settled;
    if (!PyArg_ParseTuple(args, "KO!O!O!npn", &address, &PyList_Type, &lists[0], &PyList_Type, &lists[1], &PyList_Type,
                          &lists[2], &i, &settled, &limit))
        return NULL;
    void *link = (void *)(uintptr_t)address;
    for (; i < PyList_GET_SIZE(lists[0]) && sent <= limit; i++) {
        char *parts[3];
        Py_ssize_t sizes[3];
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

/* Inspects a frame that Proton has written. If it is a transfer of a link in `links`, the delivery is recorded, and the
   flag `settled` is set to false. Returns -1 with an error. */
static int inspect_output(uint8_t *frame, const uint8_t *end, PyObject *links) {
    uint32_t count, handle, id;
    const uint8_t *p = fields_of(frame, &end, 0x14, &count);
    if (p == NULL || !take_uint(&p, end, &handle) || !take_uint(&p, end, &id) || end - p < 2 || *p != 0xa0)
        return 0;
    p += 2 + p[1];
    PyObject *key = PyLong_FromUnsignedLongLong((uint64_t)read_16(frame + 6) << 32 | handle);
    PyObject *link = key == NULL ? NULL : PyDict_GetItemWithError(links, key);
    Py_XDECREF(key);
    if (link == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (!Py_IS_TYPE(link, &DeliveriesType) || !take_uint(&p, end, &handle)) { /* the message format */
        PyErr_SetString(PyExc_TypeError, "a transfer is not encoded as expected");
        return -1;
    }
    if (count > 4 && p < end && *p == 0x41)
        frame[p - frame] = 0x42;
    return record_written((Deliveries *)link, id);
}

/* pump(transport, links): returns the bytes that Proton has written, which are complete frames, and whether it will
   write nothing more. `links` has the deliveries of links by channel << 32 | handle. */
static PyObject *pump(PyObject *module, PyObject *args) {
    static uint8_t *buffer;
    static size_t capacity;
    unsigned long long address;
    PyObject *links;
    ssize_t taken = 0;
    size_t size = 0;
    if (!PyArg_ParseTuple(args, "KO!", &address, &PyDict_Type, &links))
        return NULL;
    do {
        size += (size_t)taken;
        if (taken > 0)
            proton.transport_pop((void *)(uintptr_t)address, (size_t)taken);
        if (capacity - size < PEEK_BYTES) {
            uint8_t *larger = PyMem_Realloc(buffer, 2 * capacity + PEEK_BYTES);
            if (larger == NULL)
                return PyErr_NoMemory();
            buffer = larger;
            capacity = 2 * capacity + PEEK_BYTES;
        }
    } while ((taken = proton.transport_peek((void *)(uintptr_t)address, (char *)buffer + size, capacity - size)) > 0);
    size_t at = size >= HEADER_BYTES && memcmp(buffer, "AMQP", 4) == 0 ? HEADER_BYTES : 0;
    while (PyDict_GET_SIZE(links) > 0 && size - at >= HEADER_BYTES) {
        uint32_t frame_size = read_32(buffer + at);
        if (frame_size < HEADER_BYTES || frame_size > size - at)
            return PyErr_Format(PyExc_ValueError, "Proton has written a frame of %u bytes", frame_size);
        if (inspect_output(buffer + at, buffer + at + frame_size, links) < 0)
            return NULL;
        at += frame_size;
    }
    PyObject *output = PyBytes_FromStringAndSize((char *)buffer, (Py_ssize_t)size);
    if (capacity > 1 << 20) { /* after a large message */
        PyMem_Free(buffer);
        buffer = NULL;
        capacity = 0;
    }
    return Py_BuildValue("(NN)", output, PyBool_FromLong(taken < 0));
}

/* --- input ---------------------------------------------------------------------------------- */

/* push(transport, data): passes bytes to Proton, until it takes no more. */
static PyObject *push(PyObject *module, PyObject *args) {
    unsigned long long address;
    const char *data;
    Py_ssize_t size;
    ssize_t taken = 1;
    if (!PyArg_ParseTuple(args, "Ky#", &address, &data, &size))
        return NULL;
    for (; size > 0 && taken > 0; data += taken, size -= taken)
        taken = proton.transport_push((void *)(uintptr_t)address, data, (size_t)size);
    Py_RETURN_NONE;
}

/* skip_transfers(data, position, max_frame_bytes, before, tag_size, after, id): skips transfers that are encoded like
   an earlier one, with consecutive ids, see FrameScan. Returns where they end, and the next id. */
static PyObject *skip_transfers(PyObject *module, PyObject *args) {
    const uint8_t *data, *before, *after;
    Py_ssize_t size, position, largest, before_size, tag_size, after_size;
    unsigned int id;
    if (!PyArg_ParseTuple(args, "y#nny#ny#I", &data, &size, &position, &largest, &before, &before_size, &tag_size,
                          &after, &after_size, &id))
        return NULL;
    Py_ssize_t tag = 4 + before_size + 4, least = tag + 2 + tag_size + after_size;
    while (position >= 0 && size - position >= least) {
        const uint8_t *frame = data + position;
        Py_ssize_t frame_size = read_32(frame);
        if (frame_size < least || frame_size > largest || frame_size > size - position ||
            memcmp(frame + 4, before, (size_t)before_size) != 0 || read_32(frame + tag - 4) != id ||
            frame[tag] != 0xa0 || frame[tag + 1] != tag_size ||
            memcmp(frame + least - after_size, after, (size_t)after_size) != 0)
            break;
        id++;
        position += frame_size;
    }
    return Py_BuildValue("(nI)", position, id);
}

/* Reads a disposition of a receiver that has a plain state: none, accepted or released. Returns 0 if it is another. */
static int read_disposition(const uint8_t *frame, const uint8_t *end, uint32_t *first, uint32_t *last, int *settled,
                            long *state) {
    uint32_t count;
    const uint8_t *frame_end = end, *p = fields_of(frame, &end, 0x15, &count);
    if (p == NULL || p >= end || end != frame_end || count < 2 || count > 6 || *p++ != 0x41 || !take_uint(&p, end, first))
        return 0;
    *last = *first;
    *settled = 0;
    *state = 0;
    if (count > 2 && p < end && *p == 0x40)
        p++;
    else if (count > 2 && !take_uint(&p, end, last))
        return 0;
    if (count > 3) {
        if (p >= end || *p < 0x40 || *p > 0x42)
            return 0;
        *settled = *p++ == 0x41;
    }
    if (count > 4 && p < end && *p == 0x40)
        p++;
    else if (count > 4) {
        if (end - p < 4 || p[0] != 0 || p[1] != 0x53 || (p[2] != 0x24 && p[2] != 0x26))
            return 0;
        *state = p[2];
        p += 3;
        if (*p == 0x45)
            p++;
        else if (end - p >= 3 && p[0] == 0xc0 && p[1] == 1 && p[2] == 0)
            p += 3;
        else
            return 0;
    }
    if (count > 5 && (p >= end || *p < 0x40 || *p++ > 0x42)) /* batchable */
        return 0;
    return p == end && *last - *first < 1u << 31;
}

/* take_dispositions(data, position, max_frame_bytes, sessions): takes the plain dispositions that are next. Returns where
   they end, and for each run of deliveries of one link: the link, the numbers, the code of the outcome or 0, and
   whether they are settled. `sessions` has the sessions by the client's channel. */
static PyObject *take_dispositions(PyObject *module, PyObject *args) {
    const uint8_t *data;
    Py_ssize_t size, position, largest;
    PyObject *sessions, *session = NULL, *groups = PyList_New(0);
    int settled, channel = -1;
    uint32_t first, last;
    long state;
    if (groups == NULL || !PyArg_ParseTuple(args, "y#nnO!", &data, &size, &position, &largest, &PyDict_Type, &sessions)) {
        Py_XDECREF(groups);
        return NULL;
    }
    largest = largest < DISPOSITION_MAX_BYTES ? largest : DISPOSITION_MAX_BYTES;
    while (position >= 0 && size - position >= HEADER_BYTES) {
        const uint8_t *frame = data + position;
        Py_ssize_t frame_size = read_32(frame);
        if (frame_size > largest || frame_size > size - position ||
            !read_disposition(frame, frame + frame_size, &first, &last, &settled, &state))
            break;
        if (channel != read_16(frame + 6)) {
            channel = read_16(frame + 6);
            PyObject *key = PyLong_FromLong(channel);
            PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(sessions, key);
            Py_XDECREF(key);
            Py_XSETREF(session, found == NULL ? NULL : PyObject_GetAttrString(found, "sent_deliveries"));
        }
        if (session == NULL || !Py_IS_TYPE(session, &SentSessionType) ||
            take_range((SentSession *)session, first, last, settled, state, groups) < 0)
            break;
        position += frame_size;
    }
    Py_XDECREF(session);
    if (!PyErr_Occurred())
        return Py_BuildValue("(nN)", position, groups);
    Py_DECREF(groups);
    return NULL;
}

PyMethodDef frame_methods[] = {
    {"set_proton", set_proton, METH_VARARGS, NULL},
    {"set_events", set_events, METH_VARARGS, NULL},
    {"skip_events", skip_events, METH_VARARGS, NULL},
    {"free_connection", free_connection, METH_VARARGS, NULL},
    {"is_plain", is_plain, METH_VARARGS, NULL},
    {"send", send, METH_VARARGS, NULL},
    {"pump", pump, METH_VARARGS, NULL},
    {"push", push, METH_VARARGS, NULL},
    {"skip_transfers", skip_transfers, METH_VARARGS, NULL},
    {"take_dispositions", take_dispositions, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
