/* Frames that Proton writes and that clients send. Proton gets every message that the broker sends as settled. In the
   transfers that it writes, the flag is changed back if the client has to settle, and their ids go to Python;
   dispositions of the client for these deliveries do not go to Proton. */
#include "native.h"

#define HEADER_BYTES 8
#define DISPOSITION_MAX_BYTES 1024
#define NO_KEY UINT64_MAX
enum { TRANSFER = 0x14, DISPOSITION, NONE = 0x40, TRUE, FALSE };

/* Finds the fields of a frame with this performative. Returns 0 if it has another one or is encoded unusually. */
static int read_frame(const uint8_t *frame, const uint8_t *end, uint8_t performative, Items *fields) {
    return end - frame >= HEADER_BYTES && frame[4] == 2 && frame[5] == 0 &&
           has_descriptor(frame + HEADER_BYTES, end, performative) &&
           read_items(frame + HEADER_BYTES + 3, end, 0xc0, fields);
}

/* Deliveries with consecutive ids, and what they have in common. */
typedef struct {
    uint64_t key;
    uint32_t first, last;
} Range;

/* Appends a range to the list, if there is one. Returns -1 with an error. */
static int append_range(PyObject *list, const Range *range) {
    return range->key == NO_KEY ? 0 : append(list, Py_BuildValue("(KII)", range->key, range->first, range->last));
}

/* Adds the next range to the one before it if it continues that, or else appends that to the list. Returns -1 with an
   error, and 0 if `known` does not have the key of a range that begins. */
static int join(PyObject *list, Range *range, Range next, PyObject *known, uint64_t known_key) {
    if (range->key != next.key || next.first != range->last + 1 || next.last - range->first >= 1u << 31) {
        PyObject *number = PyLong_FromUnsignedLongLong(known_key);
        int is_known = number == NULL ? -1 : PyDict_Contains(known, number);
        Py_XDECREF(number);
        if (is_known <= 0 || append_range(list, range) < 0)
            return is_known == 0 ? 0 : -1;
        *range = next;
    }
    range->last = next.last;
    return 1;
}

/* Inspects a frame that Proton has written. If it is a transfer of a link in `links`, the flag `settled` is set to
   false, and the delivery is added to the range, or to a new one. Returns -1 with an error. */
static int inspect_output(uint8_t *frame, const uint8_t *end, PyObject *links, Range *range, PyObject *ranges) {
    Items fields;
    uint32_t handle, id, format;
    if (!read_frame(frame, end, TRANSFER, &fields) || !take_uint(&fields, &handle) || !take_uint(&fields, &id))
        return 0;
    uint64_t key = (uint64_t)read_16(frame + 6) << 32 | handle;
    int is_continued = range->key == key && range->last == id; /* the same delivery */
    int is_known = is_continued ? 1 : join(ranges, range, (Range){key, id, id}, links, key);
    if (is_known <= 0)
        return is_known;
    if (take_item(&fields) == NULL || !take_uint(&fields, &format)) { /* the tag comes first */
        PyErr_SetString(PyExc_TypeError, "a transfer is not encoded as expected");
        return -1;
    }
    const uint8_t *settled = take_item(&fields);
    if (settled != NULL && *settled == TRUE)
        frame[settled - frame] = FALSE;
    return 0;
}

/* Inspects all frames of the output. `links` has the links by channel << 32 | handle. Returns the ranges of deliveries
   on them: key, first id and last id. */
PyObject *unsettle_transfers(uint8_t *data, size_t size, PyObject *links) {
    PyObject *ranges = PyList_New(0);
    Range range = {.key = NO_KEY};
    size_t at = size >= HEADER_BYTES && memcmp(data, "AMQP", 4) == 0 ? HEADER_BYTES : 0;
    while (ranges != NULL && PyDict_GET_SIZE(links) > 0 && size - at >= HEADER_BYTES) {
        uint32_t frame_size = read_32(data + at);
        if (frame_size < HEADER_BYTES || frame_size > size - at)
            PyErr_Format(PyExc_ValueError, "Proton has written a frame of %u bytes", frame_size);
        if (PyErr_Occurred() || inspect_output(data + at, data + at + frame_size, links, &range, ranges) < 0)
            Py_CLEAR(ranges);
        at += frame_size;
    }
    if (ranges != NULL && append_range(ranges, &range) < 0)
        Py_CLEAR(ranges);
    return ranges;
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

/* Takes a boolean, or null, which is false. Returns 0 if the next field is another value. */
static int take_flag(Items *fields, int *flag) {
    const uint8_t *item = take_item(fields);
    *flag = item != NULL && *item == TRUE;
    return item != NULL && *item <= FALSE;
}

/* Takes a state without fields: none, accepted or released. Returns 0 if it is another. */
static int take_state(Items *fields, int *state) {
    Items empty;
    if (!has_descriptor(fields->next, fields->end, 0x24) && !has_descriptor(fields->next, fields->end, 0x26)) {
        const uint8_t *item = take_item(fields);
        return item != NULL && *item == NONE;
    }
    *state = fields->next[2];
    if (!read_items(fields->next + 3, fields->end, 0xc0, &empty) || empty.count > 0 || empty.next != empty.end)
        return 0;
    fields->next = empty.end;
    fields->count--;
    return 1;
}

/* Reads a disposition of a receiver that has a plain state. Its key is channel << 32 | outcome << 1 | settled. Returns
   0 if it is another. */
static int read_disposition(const uint8_t *frame, const uint8_t *end, Range *found) {
    Items fields;
    int is_receiver, settled = 0, state = 0, batchable;
    if (!read_frame(frame, end, DISPOSITION, &fields) || fields.end != end || fields.count > 6 ||
        !take_flag(&fields, &is_receiver) || !is_receiver || !take_uint(&fields, &found->first))
        return 0;
    found->last = found->first;
    if (fields.count > 0 && fields.next < end && *fields.next == NONE)
        take_item(&fields);
    else if (fields.count > 0 && !take_uint(&fields, &found->last))
        return 0;
    if ((fields.count > 0 && !take_flag(&fields, &settled)) || (fields.count > 0 && !take_state(&fields, &state)) ||
        (fields.count > 0 && !take_flag(&fields, &batchable)))
        return 0;
    found->key = (uint64_t)read_16(frame + 6) << 32 | (uint64_t)state << 1 | (uint64_t)settled;
    return fields.next == end && found->last - found->first < 1u << 31;
}

/* read_dispositions(data, position, max_frame_bytes, sessions): reads the plain dispositions that are next, of sessions
   by the client's channel. Returns where they end, and for each the key, the first id and the last id. Those that
   continue one another are joined, because many clients settle each message in a frame of its own. */
static PyObject *read_dispositions(PyObject *module, PyObject *args) {
    const uint8_t *data;
    Py_ssize_t size, position, largest, frame_size;
    PyObject *sessions;
    Range range = {.key = NO_KEY}, next;
    if (!PyArg_ParseTuple(args, "y#nnO!", &data, &size, &position, &largest, &PyDict_Type, &sessions))
        return NULL;
    PyObject *ranges = PyList_New(0);
    int is_known = ranges == NULL ? -1 : position >= 0;
    largest = largest < DISPOSITION_MAX_BYTES ? largest : DISPOSITION_MAX_BYTES;
    for (; is_known > 0 && size - position >= HEADER_BYTES; position += is_known > 0 ? frame_size : 0) {
        frame_size = read_32(data + position);
        if (frame_size > largest || frame_size > size - position ||
            !read_disposition(data + position, data + position + frame_size, &next))
            break;
        is_known = join(ranges, &range, next, sessions, next.key >> 32);
    }
    if (is_known >= 0 && append_range(ranges, &range) == 0)
        return Py_BuildValue("(nN)", position, ranges);
    Py_XDECREF(ranges);
    return NULL;
}

PyMethodDef frame_methods[] = {{"skip_transfers", skip_transfers, METH_VARARGS, NULL},
                               {"read_dispositions", read_dispositions, METH_VARARGS, NULL},
                               {NULL, NULL, 0, NULL}};
