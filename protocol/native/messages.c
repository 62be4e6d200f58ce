/* Reads messages of clients, and writes the sections before a delivered message.

   Only the plain form is known here: sections in their order and in short encodings, as nearly every sender writes
   them, and messages without changes. For any other message None is returned, and protocol/codec reads or writes it.
   So nothing is refused here, and whatever is accepted must give the same result as protocol/codec. */
#include "native.h"

/* --- the class Message ---------------------------------------------------------------------- */

#define HEAD_MAX_BYTES 320
#define ID_BYTES 34 /* a short string of 32 hexadecimal digits */
#define GROUP_ID 10 /* its position in the list of properties */

/* Codes of sections. */
enum { HEADER_SECTION = 0x70, ANNOTATIONS_SECTION = 0x72, PROPERTIES, APPLICATION_PROPERTIES, DATA, VALUE = 0x77 };

static PyObject *example;          /* a Message with the values with which every message begins */
static PyObject *read_annotations; /* protocol.codec.section_maps.read_annotations */

/* The slots that are read or written here, in the order of slot_names. */
enum { BODY, ANNOTATIONS, HEADER, TIME_TO_LIVE, SCHEDULED, SIZE, CHANGES, NUMBER, FIRST_NUMBER, ENQUEUED, COUNT, STATE };
static const char *const slot_names[] = {
    "body", "annotations", "header", "time_to_live_ms", "scheduled_enqueue_time_ms", "size", "changes",
    "sequence_number", "enqueue_sequence_number", "enqueued_time_ms", "delivery_count", "state", NULL};
static Py_ssize_t offset_of[sizeof slot_names / sizeof *slot_names];

#define SLOT(message, offset) (*(PyObject **)((char *)(message) + (offset)))
#define FIELD(message, name) SLOT(message, offset_of[name])
#define IS_MESSAGE(object) (example != NULL && Py_IS_TYPE(object, Py_TYPE(example)))

/* set_message_type(message, read_annotations): takes a message with the values with which every message begins, and a
   function of the codec. Its class has only slots. */
static PyObject *set_message_type(PyObject *module, PyObject *args) {
    PyObject *message, *reader;
    if (!PyArg_ParseTuple(args, "OO", &message, &reader))
        return NULL;
    for (int i = 0; slot_names[i] != NULL; i++) {
        PyObject *descriptor = PyDict_GetItemString(Py_TYPE(message)->tp_dict, slot_names[i]);
        if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type) ||
            Py_TYPE(message)->tp_dictoffset != 0 || Py_TYPE(message)->tp_weaklistoffset != 0)
            return PyErr_Format(PyExc_TypeError, "%s is not a slot of a message", slot_names[i]);
        offset_of[i] = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    Py_XSETREF(example, Py_NewRef(message));
    Py_XSETREF(read_annotations, Py_NewRef(reader));
    Py_RETURN_NONE;
}

/* Returns a list of what `make` returns for each item of a sequence. Takes the reference to the sequence. */
static PyObject *list_of(PyObject *items, PyObject *(*make)(PyObject *, Py_ssize_t, void *), void *context) {
    PyObject *list = items == NULL ? NULL : PyList_New(PySequence_Fast_GET_SIZE(items));
    for (Py_ssize_t i = 0; list != NULL && i < PyList_GET_SIZE(list); i++) {
        PyObject *made = make(PySequence_Fast_GET_ITEM(items, i), i, context);
        PyList_SET_ITEM(list, i, made);
        if (made == NULL)
            Py_CLEAR(list);
    }
    Py_XDECREF(items);
    return list;
}

/* Sets a field to a new reference. Returns 0 with an error if that is NULL, because it could not be created. */
static int set_field(PyObject *message, int name, PyObject *value) {
    if (value != NULL)
        Py_XSETREF(FIELD(message, name), value);
    return value != NULL;
}

/* --- reading -------------------------------------------------------------------------------- */

typedef struct {
    long header; /* see pack_header */
    uint32_t time_to_live_ms; /* 0 for none */
    const uint8_t *annotations, *bare;
} Sections;

static int read_header(Items *list, Sections *found) {
    const uint8_t *p;
    for (int i = 0; list->count > 0; i++) {
        if ((p = take_item(list)) == NULL || i > 4)
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
    return list->next == list->end;
}

/* Checks that properties hold simple values, and no expiry time, which limits the time to live. */
static int check_properties(Items *list) {
    const uint8_t *p;
    for (int i = 0; list->count > 0; i++)
        if ((p = take_item(list)) == NULL || (i == 8 && *p != 0x40))
            return 0;
    return list->next == list->end;
}

/* Checks that application properties are stored as they are: with names that are short strings in ASCII, and without
   decimals. */
static int check_application_properties(Items *map) {
    const uint8_t *p, *value;
    while (map->count > 0) {
        if ((p = take_item(map)) == NULL || *p != 0xa1 || (value = take_item(map)) == NULL || *value == 0x74 ||
            *value == 0x84 || *value == 0x94)
            return 0;
        for (p += 2; p < value; p++)
            if (*p >= 0x80)
                return 0;
    }
    return map->next == map->end;
}

/* Finds the sections of a message. Returns 0 if it is not plain. */
static int read_sections(const uint8_t *p, const uint8_t *end, Sections *found) {
    Items items;
    found->bare = p;
    for (uint8_t section = HEADER_SECTION; section < DATA; section++) {
        int is_list = section == HEADER_SECTION || section == PROPERTIES;
        if (!has_descriptor(p, end, section))
            continue;
        if (!read_items(p + 3, end, is_list ? 0xc0 : 0xc1, &items))
            return 0;
        const uint8_t *value = p + 3;
        p = items.end;
        if (section < PROPERTIES)
            found->bare = p;
        if (section == ANNOTATIONS_SECTION)
            found->annotations = items.count > 0 || items.next != items.end ? value : NULL;
        else if (!(section == HEADER_SECTION    ? read_header(&items, found)
                   : section == PROPERTIES      ? check_properties(&items)
                   : section == APPLICATION_PROPERTIES && check_application_properties(&items)))
            return 0;
    }
    int is_data = has_descriptor(p, end, DATA) && (p[3] == 0xa0 || p[3] == 0xb0);
    return (is_data || has_descriptor(p, end, VALUE)) && value_end(p + 3, end) == end;
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
static PyObject *message_of(PyObject *data, Py_ssize_t index, void *none) {
    Sections found = {0};
    if (example == NULL || !PyBytes_CheckExact(data))
        return PyErr_Format(PyExc_TypeError, "a message is read from bytes, after set_message_type");
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data);
    if (!read_sections(start, end, &found))
        Py_RETURN_NONE;
    PyObject *message = Py_TYPE(example)->tp_alloc(Py_TYPE(example), 0);
    if (message == NULL)
        return NULL;
    for (Py_ssize_t at = sizeof(PyObject); at < Py_TYPE(example)->tp_basicsize; at += sizeof(PyObject *))
        SLOT(message, at) = Py_XNewRef(SLOT(example, at));
    PyObject *body = found.bare == start ? Py_NewRef(data) /* large ones are not copied */
                                         : PyBytes_FromStringAndSize((char *)found.bare, end - found.bare);
    if (!set_field(message, BODY, body) || !set_field(message, SIZE, PyLong_FromSsize_t(end - start)) ||
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
    return list_of(PySequence_Fast(payloads, "payloads are a sequence"), message_of, NULL);
}

/* --- writing -------------------------------------------------------------------------------- */

static uint8_t *write_bytes(uint8_t *p, const void *bytes, size_t size) {
    memcpy(p, bytes, size);
    return p + size;
}

static uint8_t *write_number(uint8_t *p, uint64_t value, int size) {
    while (size-- > 0)
        *p++ = (uint8_t)(value >> 8 * size);
    return p;
}

#define WRITE_TEXT(p, text) write_bytes(p, text, sizeof text - 1)

/* Returns a body with an id in its properties. Returns NULL without an error if it has one or cannot be read. The body
   is canonical: it begins with its properties, if it has any. */
static PyObject *body_with_id(PyObject *body, const char *prefix, uint64_t number) {
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(body), *end = start + PyBytes_GET_SIZE(body), *id;
    Items rest = {start, start, 0}; /* the fields behind the id */
    if (has_descriptor(start, end, PROPERTIES) &&
        (!read_items(start + 3, end, 0xc0, &rest) ||
         (rest.count > 0 && ((id = take_item(&rest)) == NULL || *id != 0x40))))
        return NULL;
    size_t size = ID_BYTES + (size_t)(rest.end - rest.next);
    int width = size + 1 < 256 && rest.count + 1 < 256 ? 1 : 4;
    PyObject *changed = PyBytes_FromStringAndSize(NULL, 4 + 2 * width + (Py_ssize_t)size + (end - rest.end));
    if (changed == NULL)
        return NULL;
    uint8_t *p = WRITE_TEXT((uint8_t *)PyBytes_AS_STRING(changed), "\x00\x53\x73");
    *p++ = width == 1 ? 0xc0 : 0xd0;
    p = write_number(write_number(p, width + size, width), rest.count + 1, width);
    p = write_bytes(WRITE_TEXT(p, "\xa1\x20"), prefix, 16);
    for (int shift = 60; shift >= 0; shift -= 4)
        *p++ = (uint8_t)"0123456789abcdef"[number >> shift & 15];
    write_bytes(p, rest.next, (size_t)(end - rest.next)); /* the body follows them */
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
        if (prefix_size != 16 || !IS_MESSAGE(message) || FIELD(message, BODY) == NULL ||
            !PyBytes_CheckExact(FIELD(message, BODY)))
            return PyErr_Format(PyExc_TypeError, "a prefix of 16 digits and messages with bodies are needed");
        PyObject *body = body_with_id(FIELD(message, BODY), prefix, number);
        number += body != NULL && set_field(message, BODY, body);
        if (PyErr_Occurred())
            return NULL;
    }
    return PyLong_FromUnsignedLongLong(number);
}

typedef struct {
    PyObject *tokens;
    long long locked_until_ms;
    int from_topic, with_state;
} Delivering;

static uint8_t *write_entry(uint8_t *p, const char *name, uint8_t code, uint64_t value) {
    *p++ = 0xa3;
    *p++ = (uint8_t)strlen(name);
    p = write_bytes(p, name, strlen(name));
    *p++ = code;
    return write_number(p, value, code == 0x54 ? 1 : 8);
}

static uint8_t *write_head(uint8_t *p, const int64_t *field, const char *token, const Delivering *how) {
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
    if (how->from_topic || field[FIRST_NUMBER] != field[NUMBER])
        p = write_entry(p, "x-opt-enqueue-sequence-number", 0x81, (uint64_t)field[FIRST_NUMBER]), count += 2;
    if (scheduled_ms != 0)
        p = write_entry(p, "x-opt-scheduled-enqueue-time", 0x83, (uint64_t)scheduled_ms), count += 2;
    /* A message that waited was enqueued at its scheduled time. One that arrived later was not scheduled. */
    if (how->with_state || (scheduled_ms != 0 && scheduled_ms == field[ENQUEUED]))
        p = write_entry(p, "x-opt-message-state", 0x54, how->with_state ? (uint64_t)field[STATE] : 2), count += 2;
    if (token != NULL || how->locked_until_ms != 0)
        p = write_entry(p, "x-opt-locked-until", 0x83, (uint64_t)how->locked_until_ms), count += 2;
    size[0] = (uint8_t)(p - size - 1);
    size[1] = (uint8_t)count;
    return p;
}

/* Returns the sections before the body of a message, or None if the message is not plain. */
static PyObject *head_of(PyObject *message, Py_ssize_t index, void *context) {
    const Delivering *how = context;
    PyObject *token = PySequence_Fast_GET_ITEM(how->tokens, index);
    int64_t field[sizeof slot_names / sizeof *slot_names] = {0};
    uint8_t head[HEAD_MAX_BYTES];
    for (int i = 0; slot_names[i] != NULL; i++)
        if (!IS_MESSAGE(message) || FIELD(message, i) == NULL)
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
    uint8_t *end = write_head(head, field, token == Py_None ? NULL : PyBytes_AS_STRING(token), how);
    const uint8_t *body = (uint8_t *)PyBytes_AS_STRING(FIELD(message, BODY));
    if (!has_descriptor(body, body + PyBytes_GET_SIZE(FIELD(message, BODY)), PROPERTIES))
        end = WRITE_TEXT(end, "\x00\x53\x73\x45");
    return PyBytes_FromStringAndSize((char *)head, end - head);
}

/* write_heads(messages, tokens, locked_until_ms, from_topic, with_state): returns the sections before the body of each
   message, with None for those that are not plain. */
static PyObject *write_heads(PyObject *module, PyObject *args) {
    PyObject *messages, *heads = NULL;
    Delivering how;
    if (!PyArg_ParseTuple(args, "OOLpp", &messages, &how.tokens, &how.locked_until_ms, &how.from_topic, &how.with_state))
        return NULL;
    messages = PySequence_Fast(messages, "messages are a sequence");
    how.tokens = PySequence_Fast(how.tokens, "tokens are a sequence");
    if (messages != NULL && how.tokens != NULL) {
        if (PySequence_Fast_GET_SIZE(messages) == PySequence_Fast_GET_SIZE(how.tokens))
            heads = list_of(Py_NewRef(messages), head_of, &how);
        else
            PyErr_SetString(PyExc_ValueError, "every message needs a token or None");
    }
    Py_XDECREF(messages);
    Py_XDECREF(how.tokens);
    return heads;
}

/* --- stored bodies -------------------------------------------------------------------------- */

/* Returns the properties and application properties of a stored body, as bytes, or None for a body that is None. A
   section that ends after max_bytes is left out, with what follows. */
static PyObject *head_of_body(PyObject *body, Py_ssize_t index, void *max_bytes) {
    Items items;
    if (!PyBytes_CheckExact(body))
        Py_RETURN_NONE;
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(body), *end = start + PyBytes_GET_SIZE(body), *p = start;
    for (uint8_t section = PROPERTIES; section < DATA; section++) {
        if (!has_descriptor(p, end, section))
            continue;
        if (!read_items(p + 3, end, section == PROPERTIES ? 0xc0 : 0xc1, &items) ||
            items.end - start > *(Py_ssize_t *)max_bytes)
            break;
        p = items.end;
    }
    return PyBytes_FromStringAndSize((char *)start, p - start);
}

/* read_heads(bodies, max_bytes): returns the heads of stored bodies, for the history. */
static PyObject *read_heads(PyObject *module, PyObject *args) {
    PyObject *bodies;
    Py_ssize_t max_bytes;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &bodies, &max_bytes))
        return NULL;
    return list_of(Py_NewRef(bodies), head_of_body, &max_bytes);
}

/* Returns the group id of a stored body as text, or None if it is absent or not a short string. */
static PyObject *session_id_of(PyObject *body, Py_ssize_t index, void *none) {
    Items fields = {0};
    const uint8_t *item = NULL;
    if (!PyBytes_CheckExact(body))
        Py_RETURN_NONE;
    const uint8_t *p = (uint8_t *)PyBytes_AS_STRING(body), *end = p + PyBytes_GET_SIZE(body);
    if (!has_descriptor(p, end, PROPERTIES) || !read_items(p + 3, end, 0xc0, &fields))
        Py_RETURN_NONE;
    for (int i = 0; i <= GROUP_ID; i++)
        if ((item = take_item(&fields)) == NULL)
            break;
    if (item == NULL || *item != 0xa1)
        Py_RETURN_NONE;
    PyObject *text = PyUnicode_DecodeUTF8((char *)item + 2, item[1], NULL);
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
    return list_of(Py_NewRef(bodies), session_id_of, NULL);
}

PyMethodDef message_methods[] = {{"set_message_type", set_message_type, METH_VARARGS, NULL},
                                 {"read_messages", read_messages, METH_O, NULL},
                                 {"give_ids", give_ids, METH_VARARGS, NULL},
                                 {"write_heads", write_heads, METH_VARARGS, NULL},
                                 {"read_heads", read_heads, METH_VARARGS, NULL},
                                 {"read_session_ids", read_session_ids, METH_O, NULL},
                                 {NULL, NULL, 0, NULL}};
