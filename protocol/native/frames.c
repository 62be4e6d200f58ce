/* Frames that Proton writes and that clients send. Proton gets every message that the broker sends as settled. In the
   transfers that it writes, the flag is changed back if the client has to settle, and their ids go to Python;
   dispositions of the client for these deliveries do not go to Proton. */
#include "native.h"

#define HEADER_BYTES 8
#define DISPOSITION_MAX_BYTES 1024
#define TRANSFER 0x14
#define DISPOSITION 0x15
#define TRUE 0x41
#define FALSE 0x42

/* Finds the fields of a frame with this performative. Returns 0 if it has another one or is encoded unusually. */
static int read_frame(const uint8_t *frame, const uint8_t *end, uint8_t performative, Items *fields) {
    return end - frame >= HEADER_BYTES && frame[4] == 2 && frame[5] == 0 &&
           read_section(frame + HEADER_BYTES, end, performative, 0xc0, fields);
}

/* --- output --------------------------------------------------------------------------------- */

/* Deliveries of one link with consecutive ids. */
typedef struct {
    PyObject *link;
    uint64_t key;
    uint32_t first, count;
} Run;

static int append_run(PyObject *runs, const Run *run) {
    return run->link == NULL ? 0 : append(runs, Py_BuildValue("(OII)", run->link, run->first, run->count));
}

/* Inspects a frame that Proton has written. If it is a transfer of a link in `links`, the flag `settled` is set to
   false, and the delivery is added to the run, or to a new one. Returns -1 with an error. */
static int inspect_output(uint8_t *frame, const uint8_t *end, PyObject *links, Run *run, PyObject *runs) {
    Items fields;
    uint32_t handle, id, format;
    if (!read_frame(frame, end, TRANSFER, &fields) || !take_uint(&fields, &handle) || !take_uint(&fields, &id))
        return 0;
    uint64_t key = (uint64_t)read_16(frame + 6) << 32 | handle;
    if (run->link == NULL || run->key != key || id - run->first - run->count + 1 > 1) {
        PyObject *number = PyLong_FromUnsignedLongLong(key);
        PyObject *link = number == NULL ? NULL : PyDict_GetItemWithError(links, number);
        Py_XDECREF(number);
        if (link == NULL)
            return PyErr_Occurred() ? -1 : 0;
        if (append_run(runs, run) < 0)
            return -1;
        *run = (Run){link, key, id, 0};
    }
    const uint8_t *tag = take_item(&fields);
    if (tag == NULL || !take_uint(&fields, &format)) {
        PyErr_SetString(PyExc_TypeError, "a transfer is not encoded as expected");
        return -1;
    }
    const uint8_t *settled = take_item(&fields);
    if (settled != NULL && *settled == TRUE)
        frame[settled - frame] = FALSE;
    run->count = id - run->first + 1; /* as before, if it is another transfer of the same delivery */
    return 0;
}

/* Inspects all frames of the output. `links` has the links by channel << 32 | handle. A run is (link, first id, number
   of deliveries). */
PyObject *unsettle_transfers(uint8_t *data, size_t size, PyObject *links) {
    PyObject *runs = PyList_New(0);
    Run run = {0};
    size_t at = size >= HEADER_BYTES && memcmp(data, "AMQP", 4) == 0 ? HEADER_BYTES : 0;
    while (runs != NULL && PyDict_GET_SIZE(links) > 0 && size - at >= HEADER_BYTES) {
        uint32_t frame_size = read_32(data + at);
        int is_frame = frame_size >= HEADER_BYTES && frame_size <= size - at;
        if (!is_frame)
            PyErr_Format(PyExc_ValueError, "Proton has written a frame of %u bytes", frame_size);
        if (!is_frame || inspect_output(data + at, data + at + frame_size, links, &run, runs) < 0)
            Py_CLEAR(runs);
        at += frame_size;
    }
    if (runs != NULL && append_run(runs, &run) < 0)
        Py_CLEAR(runs);
    return runs;
}

/* --- input ---------------------------------------------------------------------------------- */

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

typedef struct {
    int channel;
    uint32_t first, last;
    int state, settled; /* the code of the outcome, or 0 */
} Disposition;

/* Takes a boolean, or null, which is false. Returns 0 if the next field is another value. */
static int take_flag(Items *fields, int *flag) {
    const uint8_t *item = take_item(fields);
    *flag = item != NULL && *item == TRUE;
    return item != NULL && *item <= FALSE;
}

/* Takes a state without fields: none, accepted or released. Returns 0 if it is another. */
static int take_state(Items *fields, int *state) {
    Items none;
    if (!has_descriptor(fields->next, fields->end, 0x24) && !has_descriptor(fields->next, fields->end, 0x26)) {
        const uint8_t *item = take_item(fields);
        return item != NULL && *item == 0x40;
    }
    *state = fields->next[2];
    if (!read_items(fields->next + 3, fields->end, 0xc0, &none) || none.count > 0 || none.next != none.end)
        return 0;
    fields->next = none.end;
    fields->count--;
    return 1;
}

/* Reads a disposition of a receiver that has a plain state. Returns 0 if it is another. */
static int read_disposition(const uint8_t *frame, const uint8_t *end, Disposition *found) {
    Items fields;
    int is_receiver, batchable;
    *found = (Disposition){.channel = read_16(frame + 6)};
    if (!read_frame(frame, end, DISPOSITION, &fields) || fields.end != end || fields.count > 6 ||
        !take_flag(&fields, &is_receiver) || !is_receiver || !take_uint(&fields, &found->first))
        return 0;
    found->last = found->first;
    if (fields.count > 0 && fields.next < end && *fields.next == 0x40)
        take_item(&fields);
    else if (fields.count > 0 && !take_uint(&fields, &found->last))
        return 0;
    return (fields.count == 0 || take_flag(&fields, &found->settled)) &&
           (fields.count == 0 || take_state(&fields, &found->state)) &&
           (fields.count == 0 || take_flag(&fields, &batchable)) && fields.next == end &&
           found->last - found->first < 1u << 31;
}

static int append_disposition(PyObject *found, const Disposition *one) {
    return append(found, Py_BuildValue("(iIIiN)", one->channel, one->first, one->last, one->state,
                                       PyBool_FromLong(one->settled)));
}

/* read_dispositions(data, position, max_frame_bytes, sessions): reads the plain dispositions that are next, of sessions
   by the client's channel. Returns where they end, and for each: the channel, the first and the last id, the code of
   the outcome or 0, and whether the deliveries are settled. Consecutive ones are joined, because many clients settle
   each message in a frame of its own. */
static PyObject *read_dispositions(PyObject *module, PyObject *args) {
    const uint8_t *data;
    Py_ssize_t size, position, largest;
    PyObject *sessions, *found = PyList_New(0);
    Disposition joined = {.channel = -1}, next;
    if (found == NULL || !PyArg_ParseTuple(args, "y#nnO!", &data, &size, &position, &largest, &PyDict_Type, &sessions))
        goto failed;
    largest = largest < DISPOSITION_MAX_BYTES ? largest : DISPOSITION_MAX_BYTES;
    while (position >= 0 && size - position >= HEADER_BYTES) {
        const uint8_t *frame = data + position;
        Py_ssize_t frame_size = read_32(frame);
        if (frame_size > largest || frame_size > size - position ||
            !read_disposition(frame, frame + frame_size, &next))
            break;
        if (next.channel == joined.channel && next.first == joined.last + 1 && next.state == joined.state &&
            next.settled == joined.settled && next.last - joined.first < 1u << 31)
            joined.last = next.last;
        else {
            PyObject *channel = PyLong_FromLong(next.channel);
            int is_known = channel == NULL ? -1 : PyDict_Contains(sessions, channel);
            Py_XDECREF(channel);
            if (is_known == 0)
                break;
            if (is_known < 0 || (joined.channel >= 0 && append_disposition(found, &joined) < 0))
                goto failed;
            joined = next;
        }
        position += frame_size;
    }
    if (joined.channel < 0 || append_disposition(found, &joined) == 0)
        return Py_BuildValue("(nN)", position, found);
failed:
    Py_XDECREF(found);
    return NULL;
}

PyMethodDef frame_methods[] = {{"skip_transfers", skip_transfers, METH_VARARGS, NULL},
                               {"read_dispositions", read_dispositions, METH_VARARGS, NULL},
                               {NULL, NULL, 0, NULL}};
