/* Reads messages of clients, and writes the sections before a delivered message.

   Only the plain form is known here: sections in their order and in short encodings, as nearly every sender writes
   them, and messages without changes. For any other message None is returned, and protocol/codec reads or writes it.
   So nothing is refused here, and whatever is accepted must give the same result as protocol/codec. */
#include "native.h"

/* --- the class Message ---------------------------------------------------------------------- */

#define SLOTS_MAX 64
#define HEAD_MAX_BYTES 320
#define ID_BYTES 34 /* a short string of 32 hexadecimal digits */

static PyTypeObject *message_type; /* broker.core.contract.message.Message */
static PyObject *read_annotations; /* protocol.codec.section_maps.read_annotations */
static PyObject *slot_defaults[SLOTS_MAX];
static Py_ssize_t slot_offsets[SLOTS_MAX];
static int slot_count;

/* The slots that are read or written here, in the order of slot_names. */
enum { BODY, ANNOTATIONS, HEADER, TIME_TO_LIVE, SCHEDULED, SIZE, CHANGES, NUMBER, FIRST_NUMBER, ENQUEUED, COUNT, STATE };
static const char *const slot_names[] = {
    "body", "annotations", "header", "time_to_live_ms", "scheduled_enqueue_time_ms", "size", "changes",
    "sequence_number", "enqueue_sequence_number", "enqueued_time_ms", "delivery_count", "state", NULL};
static Py_ssize_t offset_of[sizeof slot_names / sizeof *slot_names];

#define SLOT(message, offset) (*(PyObject **)((char *)(message) + (offset)))
#define FIELD(message, name) SLOT(message, offset_of[name])

/* set_message_type(message, read_annotations): takes the class of a message and the values with which every message
   begins, and a function of the codec. */
static PyObject *set_message_type(PyObject *module, PyObject *args) {
    PyObject *message, *reader, *key, *descriptor;
    Py_ssize_t position = 0;
    if (!PyArg_ParseTuple(args, "OO", &message, &reader))
        return NULL;
    for (int i = 0; slot_names[i] != NULL; i++) {
        descriptor = PyDict_GetItemString(Py_TYPE(message)->tp_dict, slot_names[i]);
        if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
            return PyErr_Format(PyExc_TypeError, "%s is not a slot of a message", slot_names[i]);
        offset_of[i] = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    slot_count = 0;
    while (PyDict_Next(Py_TYPE(message)->tp_dict, &position, &key, &descriptor))
        if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type) && slot_count < SLOTS_MAX) {
            slot_offsets[slot_count] = ((PyMemberDescrObject *)descriptor)->d_member->offset;
            Py_XSETREF(slot_defaults[slot_count], Py_XNewRef(SLOT(message, slot_offsets[slot_count])));
            slot_count++;
        }
    Py_XSETREF(message_type, (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(message)));
    Py_XSETREF(read_annotations, Py_NewRef(reader));
    Py_RETURN_NONE;
}

/* Sets a field to a new reference. Returns 0 with an error if that is NULL, because it could not be created. */
static int set_field(PyObject *message, int name, PyObject *value) {
    if (value != NULL)
        Py_XSETREF(FIELD(message, name), value);
    return value != NULL;
}

/* --- reading -------------------------------------------------------------------------------- */

/* Returns where a simple value ends. Returns NULL if it is longer than the data, is compound or described, or has a
   constructor that is not known. */
const uint8_t *simple_end(const uint8_t *p, const uint8_t *end) {
    /* By the high half of a constructor: which low halves exist, and the width of the value (AMQP 1.0 §1.2). */
    static const uint16_t known[16] = {[4] = 0x1f, [5] = 0x7f, [6] = 3, [7] = 0x1f, [8] = 0x1f, [9] = 0x110,
                                       [10] = 0xb, [11] = 0xb};
    static const uint8_t widths[16] = {[5] = 1, [6] = 2, [7] = 4, [8] = 8, [9] = 16, [10] = 1, [11] = 4};
    if (p >= end || !(known[*p >> 4] >> (*p & 15) & 1))
        return NULL;
    uint8_t category = *p++ >> 4;
    size_t size = widths[category];
    if (category >= 10) {
        if ((size_t)(end - p) < size)
            return NULL;
        p += size;
        size = size == 1 ? p[-1] : read_32(p - 4);
    }
    return (size_t)(end - p) >= size ? p + size : NULL;
}

/* Reads the list or map at p, whose constructor is `code` or its wide form. Returns 0 if it is another value. */
int read_compound(const uint8_t *p, const uint8_t *end, uint8_t code, Compound *found) {
    int width = end - p < 3 ? 0 : *p == code ? 1 : *p == code + 0x10 ? 4 : 0;
    if (width == 0 || end - p < 1 + 2 * width)
        return 0;
    size_t size = width == 1 ? p[1] : read_32(p + 1);
    *found = (Compound){p + 1 + 2 * width, p + 1 + width + size, width == 1 ? p[2] : read_32(p + 5)};
    return (size_t)(end - p) >= 1 + width + size && found->first <= found->end;
}

/* Whether a section with a short descriptor begins here. */
static int is_section(const uint8_t *p, const uint8_t *end, uint8_t code) {
    return end - p >= 4 && p[0] == 0 && p[1] == 0x53 && p[2] == code;
}

typedef struct {
    long header; /* see pack_header */
    uint32_t time_to_live_ms; /* 0 for none */
    const uint8_t *annotations, *bare;
} Sections;

static int read_header(const Compound *list, Sections *found) {
    const uint8_t *p = list->first, *next;
    for (uint32_t i = 0; i < list->count; i++, p = next) {
        if ((next = simple_end(p, list->end)) == NULL || i > 4)
            return 0;
        if (i == 0 && *p <= 0x42)
            found->header |= *p == 0x41 ? 1 : *p == 0x42 ? 1 << 10 : 0;
        else if (i == 3 && *p <= 0x42)
            found->header |= (*p - 0x40) << 11;
        else if (i == 1 && (*p == 0x40 || *p == 0x50))
            found->header |= *p == 0x50 ? (p[1] + 1) << 1 : 0;
        else if ((i == 2 || i == 4) && (*p == 0x40 || *p == 0x43 || *p == 0x52 || *p == 0x70))
            found->time_to_live_ms = i == 4 ? found->time_to_live_ms : *p == 0x70 ? read_32(p + 1) : *p == 0x52 ? p[1] : 0;
        else
            return 0;
    }
    return p == list->end;
}

/* Checks that properties hold simple values, and no expiry time, which limits the time to live. */
static int check_properties(const Compound *list) {
    const uint8_t *p = list->first;
    for (uint32_t i = 0; i < list->count; i++) {
        if (i == 8 && p < list->end && *p != 0x40)
            return 0;
        if ((p = simple_end(p, list->end)) == NULL)
            return 0;
    }
    return p == list->end;
}

/* Checks that application properties are stored as they are: with names that are short strings in ASCII, and without
   decimals. */
static int check_application_properties(const Compound *map) {
    const uint8_t *p = map->first, *value;
    for (uint32_t i = 0; i < map->count; i += 2) {
        if (p >= map->end || *p != 0xa1 || (value = simple_end(p, map->end)) == NULL)
            return 0;
        for (p += 2; p < value; p++)
            if (*p >= 0x80)
                return 0;
        if ((p = simple_end(value, map->end)) == NULL || *value == 0x74 || *value == 0x84 || *value == 0x94)
            return 0;
    }
    return p == map->end && map->count % 2 == 0;
}

/* Finds the sections of a message. Returns 0 if it is not plain. */
static int read_sections(const uint8_t *p, const uint8_t *end, Sections *found) {
    Compound compound;
    if (is_section(p, end, 0x70)) {
        if (p[3] == 0x45)
            compound.end = p + 4;
        else if (!read_compound(p + 3, end, 0xc0, &compound) || !read_header(&compound, found))
            return 0;
        p = compound.end;
    }
    if (is_section(p, end, 0x72)) {
        if (!read_compound(p + 3, end, 0xc1, &compound))
            return 0;
        found->annotations = compound.count > 0 || compound.first != compound.end ? p + 3 : NULL;
        p = compound.end;
    }
    found->bare = p;
    if (is_section(p, end, 0x73)) {
        if (p[3] == 0x45)
            compound.end = p + 4;
        else if (!read_compound(p + 3, end, 0xc0, &compound) || !check_properties(&compound))
            return 0;
        p = compound.end;
    }
    if (is_section(p, end, 0x74)) {
        if (!read_compound(p + 3, end, 0xc1, &compound) || !check_application_properties(&compound))
            return 0;
        p = compound.end;
    }
    int is_data = is_section(p, end, 0x75) && (p[3] == 0xa0 || p[3] == 0xb0);
    return (is_data || is_section(p, end, 0x77)) && simple_end(p + 3, end) == end;
}

/* Sets the annotations and the scheduled time. Returns 0 with an error. */
static int set_annotations(PyObject *message, PyObject *data, Py_ssize_t position) {
    PyObject *annotations, *scheduled_ms, *found = PyObject_CallFunction(read_annotations, "On", data, position);
    int is_set = found != NULL && PyArg_ParseTuple(found, "OO", &annotations, &scheduled_ms) &&
                 set_field(message, ANNOTATIONS, Py_NewRef(annotations)) &&
                 set_field(message, SCHEDULED, Py_NewRef(scheduled_ms));
    Py_XDECREF(found);
    return is_set;
}

/* Returns a message, or None if it is not plain. */
static PyObject *read_one(PyObject *data) {
    Sections found = {0};
    if (message_type == NULL || !PyBytes_CheckExact(data))
        return PyErr_Format(PyExc_TypeError, "a message is read from bytes, after set_message_type");
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data);
    if (!read_sections(start, end, &found))
        Py_RETURN_NONE;
    PyObject *message = message_type->tp_alloc(message_type, 0);
    if (message == NULL)
        return NULL;
    for (int i = 0; i < slot_count; i++)
        SLOT(message, slot_offsets[i]) = Py_XNewRef(slot_defaults[i]);
    PyObject *body = found.bare == start ? Py_NewRef(data) /* large ones are not copied */
                                         : PyBytes_FromStringAndSize((char *)found.bare, end - found.bare);
    if (!set_field(message, BODY, body) ||
        !set_field(message, SIZE, PyLong_FromSsize_t(end - start)) ||
        (found.header != 0 && !set_field(message, HEADER, PyLong_FromLong(found.header))) ||
        (found.time_to_live_ms != 0 &&
         !set_field(message, TIME_TO_LIVE, PyLong_FromUnsignedLong(found.time_to_live_ms))))
        Py_CLEAR(message);
    else if (found.annotations != NULL && !set_annotations(message, data, found.annotations - start)) {
        PyErr_Clear(); /* the codec will raise the same error */
        Py_SETREF(message, Py_NewRef(Py_None));
    }
    return message;
}

/* read_messages(payloads): returns a list of messages, with None for those that are not plain. */
static PyObject *read_messages(PyObject *module, PyObject *payloads) {
    payloads = PySequence_Fast(payloads, "payloads are a sequence");
    PyObject *messages = payloads == NULL ? NULL : PyList_New(PySequence_Fast_GET_SIZE(payloads));
    for (Py_ssize_t i = 0; messages != NULL && i < PyList_GET_SIZE(messages); i++) {
        PyObject *message = read_one(PySequence_Fast_GET_ITEM(payloads, i));
        PyList_SET_ITEM(messages, i, message);
        if (message == NULL)
            Py_CLEAR(messages);
    }
    Py_XDECREF(payloads);
    return messages;
}

/* --- message ids ---------------------------------------------------------------------------- */

/* Returns a body with an id in its properties. Returns NULL without an error if it has one or cannot be read. The body
   is canonical: it begins with its properties, if it has any. */
static PyObject *body_with_id(PyObject *body, const char *prefix, uint64_t number) {
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(body), *end = start + PyBytes_GET_SIZE(body);
    Compound list = {start, start, 0};
    size_t fields = 0; /* bytes of the fields behind the id */
    if (is_section(start, end, 0x73)) {
        if (start[3] == 0x45)
            list.end = start + 4;
        else if (!read_compound(start + 3, end, 0xc0, &list) || (list.count > 0 && *list.first != 0x40))
            return NULL;
        if (list.count > 0 && list.end > list.first)
            fields = (size_t)(list.end - list.first) - 1;
    }
    uint32_t count = list.count > 0 ? list.count : 1;
    int width = ID_BYTES + fields + 1 < 256 && count < 256 ? 1 : 4;
    PyObject *changed = PyBytes_FromStringAndSize(NULL, 4 + 2 * width + ID_BYTES + (Py_ssize_t)fields + (end - list.end));
    if (changed == NULL)
        return NULL;
    uint8_t *p = WRITE_TEXT((uint8_t *)PyBytes_AS_STRING(changed), "\x00\x53\x73");
    *p++ = width == 1 ? 0xc0 : 0xd0;
    p = write_number(write_number(p, width + ID_BYTES + fields, width), count, width);
    p = write_bytes(WRITE_TEXT(p, "\xa1\x20"), prefix, 16);
    for (int shift = 60; shift >= 0; shift -= 4)
        *p++ = (uint8_t)"0123456789abcdef"[number >> shift & 15];
    p = write_bytes(p, list.first + (fields > 0), fields);
    write_bytes(p, list.end, (size_t)(end - list.end));
    return changed;
}

/* give_ids(messages, prefix, number): gives an id to each message that has none. Returns the next number. */
static PyObject *give_ids(PyObject *module, PyObject *args) {
    PyObject *messages;
    const char *prefix;
    Py_ssize_t prefix_size;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "O!y#K", &PyList_Type, &messages, &prefix, &prefix_size, &number))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(messages); i++) {
        PyObject *message = PyList_GET_ITEM(messages, i);
        if (prefix_size != 16 || !Py_IS_TYPE(message, message_type) || FIELD(message, BODY) == NULL ||
            !PyBytes_CheckExact(FIELD(message, BODY)))
            return PyErr_Format(PyExc_TypeError, "a prefix of 16 digits and messages with bodies are needed");
        PyObject *body = body_with_id(FIELD(message, BODY), prefix, number);
        number += body != NULL && set_field(message, BODY, body);
        if (PyErr_Occurred())
            return NULL;
    }
    return PyLong_FromUnsignedLongLong(number);
}

/* --- writing -------------------------------------------------------------------------------- */

static uint8_t *write_entry(uint8_t *p, const char *name, uint8_t code, uint64_t value) {
    *p++ = 0xa3;
    *p++ = (uint8_t)strlen(name);
    p = write_bytes(p, name, strlen(name));
    *p++ = code;
    return write_number(p, value, code == 0x54 ? 1 : 8);
}

static uint8_t *write_head(uint8_t *p, const int64_t *field, const char *token, int64_t locked_until_ms, int from_topic,
                           int with_state) {
    uint8_t *size;
    int64_t header = field[HEADER], priority = header >> 1 & 0x1ff, scheduled_ms = field[SCHEDULED], count = 4;
    size = p = WRITE_TEXT(p, "\x00\x53\x70\xc0");
    p[1] = 5;
    p[2] = header & 1 ? 0x41 : header & 1 << 10 ? 0x42 : 0x40;
    p[3] = priority ? 0x50 : 0x40;
    p = write_number(p + 4, (uint64_t)priority - 1, priority ? 1 : 0);
    *p++ = field[TIME_TO_LIVE] < 0 ? 0x40 : 0x70;
    p = write_number(p, (uint64_t)field[TIME_TO_LIVE], field[TIME_TO_LIVE] < 0 ? 0 : 4);
    *p++ = (uint8_t)(0x40 + (header >> 11 & 3));
    *p++ = 0x70;
    p = write_number(p, (uint64_t)field[COUNT], 4);
    *size = (uint8_t)(p - size - 1);

    /* The section is present without a lock too: the live tests of the Python SDK require an empty map in
       receive-and-delete. */
    p = WRITE_TEXT(p, "\x00\x53\x71\xc1");
    if (token != NULL)
        p = write_bytes(WRITE_TEXT(p, "\x24\x02\xa3\x10x-opt-lock-token\x98"), token, 16);
    else
        p = WRITE_TEXT(p, "\x01\x00");

    size = p = WRITE_TEXT(p, "\x00\x53\x72\xc1");
    p = write_entry(p + 2, "x-opt-enqueued-time", 0x83, (uint64_t)field[ENQUEUED]);
    p = write_entry(p, "x-opt-sequence-number", 0x81, (uint64_t)field[NUMBER]);
    if (from_topic || field[FIRST_NUMBER] != field[NUMBER])
        p = write_entry(p, "x-opt-enqueue-sequence-number", 0x81, (uint64_t)field[FIRST_NUMBER]), count += 2;
    if (scheduled_ms != 0)
        p = write_entry(p, "x-opt-scheduled-enqueue-time", 0x83, (uint64_t)scheduled_ms), count += 2;
    /* A message that waited was enqueued at its scheduled time. One that arrived later was not scheduled. */
    if (with_state || (scheduled_ms != 0 && scheduled_ms == field[ENQUEUED]))
        p = write_entry(p, "x-opt-message-state", 0x54, with_state ? (uint64_t)field[STATE] : 2), count += 2;
    if (token != NULL || locked_until_ms != 0)
        p = write_entry(p, "x-opt-locked-until", 0x83, (uint64_t)locked_until_ms), count += 2;
    size[0] = (uint8_t)(p - size - 1);
    size[1] = (uint8_t)count;
    return p;
}

/* Returns the sections before the body of a message, or None if the message is not plain. */
static PyObject *head_of(PyObject *message, PyObject *token, int64_t locked_until_ms, int from_topic, int with_state) {
    int64_t field[sizeof slot_names / sizeof *slot_names] = {0};
    uint8_t head[HEAD_MAX_BYTES];
    for (int i = 0; slot_names[i] != NULL; i++)
        if (!Py_IS_TYPE(message, message_type) || FIELD(message, i) == NULL)
            Py_RETURN_NONE;
    if (FIELD(message, CHANGES) != Py_None || PyObject_IsTrue(FIELD(message, ANNOTATIONS)) ||
        !PyBytes_CheckExact(FIELD(message, BODY)))
        Py_RETURN_NONE;
    for (int i = HEADER; slot_names[i] != NULL; i++)
        if (i != CHANGES)
            field[i] = FIELD(message, i) == Py_None ? -1 : PyLong_AsLongLong(FIELD(message, i));
    if (token != Py_None && (!PyBytes_CheckExact(token) || PyBytes_GET_SIZE(token) != 16))
        PyErr_SetString(PyExc_TypeError, "a lock token has 16 bytes");
    if (PyErr_Occurred())
        return NULL;
    if (field[TIME_TO_LIVE] > UINT32_MAX)
        Py_RETURN_NONE;
    uint8_t *end = write_head(head, field, token == Py_None ? NULL : PyBytes_AS_STRING(token), locked_until_ms,
                              from_topic, with_state);
    const uint8_t *body = (uint8_t *)PyBytes_AS_STRING(FIELD(message, BODY));
    if (!is_section(body, body + PyBytes_GET_SIZE(FIELD(message, BODY)), 0x73))
        end = WRITE_TEXT(end, "\x00\x53\x73\x45");
    return PyBytes_FromStringAndSize((char *)head, end - head);
}

/* write_heads(messages, tokens, locked_until_ms, from_topic, with_state): returns the sections before the body of each
   message, with None for those that are not plain. */
static PyObject *write_heads(PyObject *module, PyObject *args) {
    PyObject *messages, *tokens, *heads = NULL;
    long long locked_until_ms;
    int from_topic, with_state;
    if (!PyArg_ParseTuple(args, "OOLpp", &messages, &tokens, &locked_until_ms, &from_topic, &with_state))
        return NULL;
    messages = PySequence_Fast(messages, "messages are a sequence");
    tokens = messages == NULL ? NULL : PySequence_Fast(tokens, "tokens are a sequence");
    if (tokens != NULL && PySequence_Fast_GET_SIZE(messages) != PySequence_Fast_GET_SIZE(tokens))
        PyErr_SetString(PyExc_ValueError, "every message needs a token or None");
    else if (tokens != NULL)
        heads = PyList_New(PySequence_Fast_GET_SIZE(messages));
    for (Py_ssize_t i = 0; heads != NULL && i < PyList_GET_SIZE(heads); i++) {
        PyObject *head = head_of(PySequence_Fast_GET_ITEM(messages, i), PySequence_Fast_GET_ITEM(tokens, i),
                                 locked_until_ms, from_topic, with_state);
        PyList_SET_ITEM(heads, i, head);
        if (head == NULL)
            Py_CLEAR(heads);
    }
    Py_XDECREF(messages);
    Py_XDECREF(tokens);
    return heads;
}

/* --- heads for the history ------------------------------------------------------------------ */

/* read_heads(bodies, max_bytes): returns the properties and application properties of stored bodies, as bytes. A section
   that ends after max_bytes is left out, with what follows. None for a body that is None. */
static PyObject *read_heads(PyObject *module, PyObject *args) {
    static const uint8_t sections[] = {0x73, 0x74}, codes[] = {0xc0, 0xc1};
    PyObject *bodies, *heads;
    Py_ssize_t max_bytes;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &bodies, &max_bytes))
        return NULL;
    heads = PyList_New(PyList_GET_SIZE(bodies));
    for (Py_ssize_t i = 0; heads != NULL && i < PyList_GET_SIZE(heads); i++) {
        PyObject *body = PyList_GET_ITEM(bodies, i), *head = Py_None;
        if (PyBytes_CheckExact(body)) {
            const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(body), *end = start + PyBytes_GET_SIZE(body), *p = start;
            for (int k = 0; k < 2; k++) {
                Compound compound = {.end = p};
                if (!is_section(p, end, sections[k]))
                    continue;
                if (p[3] == 0x45)
                    compound.end = p + 4;
                else if (!read_compound(p + 3, end, codes[k], &compound))
                    break;
                if (compound.end - start > max_bytes)
                    break;
                p = compound.end;
            }
            head = PyBytes_FromStringAndSize((char *)start, p - start);
        } else
            Py_INCREF(head);
        PyList_SET_ITEM(heads, i, head);
        if (head == NULL)
            Py_CLEAR(heads);
    }
    return heads;
}

/* --- session ids ---------------------------------------------------------------------------- */

#define GROUP_ID 10 /* its position in the list of properties */

/* Returns the group id of a stored body as text, or None if it is absent or not a short string. */
static PyObject *session_id_of(PyObject *body) {
    Compound list;
    if (!PyBytes_CheckExact(body))
        Py_RETURN_NONE;
    const uint8_t *p = (uint8_t *)PyBytes_AS_STRING(body), *end = p + PyBytes_GET_SIZE(body);
    if (!is_section(p, end, 0x73) || !read_compound(p + 3, end, 0xc0, &list) || list.count <= GROUP_ID)
        Py_RETURN_NONE;
    p = list.first;
    for (int i = 0; i < GROUP_ID && p != NULL; i++)
        p = p < list.end && *p == 0x40 ? p + 1 : simple_end(p, list.end);
    if (p == NULL || p >= list.end || *p != 0xa1 || (end = simple_end(p, list.end)) == NULL)
        Py_RETURN_NONE;
    PyObject *text = PyUnicode_DecodeUTF8((char *)p + 2, end - p - 2, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return text;
}

/* read_session_ids(bodies): returns the group ids of stored bodies, with None for those that are absent or have another
   form than a short string. */
static PyObject *read_session_ids(PyObject *module, PyObject *bodies) {
    if (!PyList_CheckExact(bodies))
        return PyErr_Format(PyExc_TypeError, "bodies are a list");
    PyObject *ids = PyList_New(PyList_GET_SIZE(bodies));
    for (Py_ssize_t i = 0; ids != NULL && i < PyList_GET_SIZE(ids); i++) {
        PyObject *id = session_id_of(PyList_GET_ITEM(bodies, i));
        PyList_SET_ITEM(ids, i, id);
        if (id == NULL)
            Py_CLEAR(ids);
    }
    return ids;
}

PyMethodDef message_methods[] = {{"set_message_type", set_message_type, METH_VARARGS, NULL},
                                 {"read_messages", read_messages, METH_O, NULL},
                                 {"give_ids", give_ids, METH_VARARGS, NULL},
                                 {"write_heads", write_heads, METH_VARARGS, NULL},
                                 {"read_heads", read_heads, METH_VARARGS, NULL},
                                 {"read_session_ids", read_session_ids, METH_O, NULL},
                                 {NULL, NULL, 0, NULL}};
