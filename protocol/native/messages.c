/* Reads messages of clients, and writes the sections before a delivered message.
   Only the plain form is known here: sections in their order and in short encodings, as nearly every sender writes
   them, and messages without changes. For any other message None is returned, and protocol/codec reads or writes it.
   So nothing is refused here, and whatever is accepted must give the same result as protocol/codec. */
#include "native.h"

#define ID_BYTES 34 /* a short string of 32 hexadecimal digits */
enum { PRELUDE_MAX_BYTES = 1024, VALUES_MAX = 9000 }; /* values of a section; if there are more, the codec counts them */
#define HISTORY_MAX_BYTES 4096 /* the longest head of a message that the history keeps */
enum { EXPIRY_TIME = 8, GROUP_ID = 10 }; /* positions in the list of properties */
enum { HEADER_SECTION = 0x70, PROPERTIES = 0x73, APPLICATION_PROPERTIES, DATA, VALUE = 0x77 }; /* codes of sections */

static PyTypeObject *message_type; /* broker.core.contract.message.Message */
static PyObject *read_prelude;     /* protocol.codec.section_reader.read_prelude */

/* The sections before the last bare message, and a message without others. Mostly, the next message has the same. */
static PyObject *prelude, *example;

/* The slots that are read or written here, in the order of slot_names. */
enum { BODY, ANNOTATIONS, HEADER, TIME_TO_LIVE, SCHEDULED, SIZE, CHANGES, NUMBER, FIRST_NUMBER, ENQUEUED, COUNT, STATE };
static const char *const slot_names[] = {
    "body", "annotations", "header", "time_to_live_ms", "scheduled_enqueue_time_ms", "size", "changes",
    "sequence_number", "enqueue_sequence_number", "enqueued_time_ms", "delivery_count", "state", NULL};
static Py_ssize_t offset_of[sizeof slot_names / sizeof *slot_names];

#define SLOT(message, offset) (*(PyObject **)((char *)(message) + (offset)))
#define FIELD(message, name) SLOT(message, offset_of[name])

/* set_message_type(type, read_prelude): takes the class of a message, which has only slots, and a function of the codec
   that reads a message without properties and body. */
static PyObject *set_message_type(PyObject *module, PyObject *args) {
    PyTypeObject *type;
    PyObject *reader;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &reader))
        return NULL;
    for (int i = 0; slot_names[i] != NULL; i++) {
        PyObject *descriptor = PyDict_GetItemString(type->tp_dict, slot_names[i]);
        if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type) || type->tp_dictoffset != 0 ||
            type->tp_weaklistoffset != 0)
            return PyErr_Format(PyExc_TypeError, "%s is not a slot of a message", slot_names[i]);
        offset_of[i] = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    Py_XSETREF(message_type, (PyTypeObject *)Py_NewRef(type));
    Py_XSETREF(read_prelude, Py_NewRef(reader));
    Py_CLEAR(prelude);
    Py_RETURN_NONE;
}

#define START_OF(bytes) ((const uint8_t *)PyBytes_AS_STRING(bytes))
#define END_OF(bytes) (START_OF(bytes) + PyBytes_GET_SIZE(bytes))

/* Returns a list of what `make` returns for the bytes in a sequence, and None for None. */
static PyObject *list_of(PyObject *items, PyObject *(*make)(PyObject *, const uint8_t *, const uint8_t *)) {
    items = PySequence_Fast(items, "a sequence is needed");
    PyObject *list = items == NULL ? NULL : PyList_New(PySequence_Fast_GET_SIZE(items));
    for (Py_ssize_t i = 0; list != NULL && i < PyList_GET_SIZE(list); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, i);
        PyObject *made = PyBytes_CheckExact(item) ? make(item, START_OF(item), END_OF(item))
                         : item == Py_None        ? Py_NewRef(item)
                                                  : PyErr_Format(PyExc_TypeError, "bytes or None are needed");
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

/* Whether an item can be decoded: text is UTF-8, a boolean is 0 or 1. Characters are left to the codec. */
static int is_readable(const uint8_t *item, const uint8_t *end) {
    const uint8_t *p = (*item & 0xed) == 0xa1 ? item + (*item < 0xb0 ? 2 : 5) : end; /* strings and symbols */
    for (uint64_t next; end - p >= 8 && (memcpy(&next, p, 8), (next & 0x8080808080808080) == 0); p += 8)
        ;
    while (p < end && *p < 0x80)
        p++;
    PyObject *text = p < end ? PyUnicode_DecodeUTF8((char *)p, end - p, NULL) : Py_NewRef(Py_None);
    Py_XDECREF(text);
    return text != NULL && *item != 0x73 && (*item != 0x56 || item[1] < 2);
}

/* Checks that properties are stored as they are: they hold simple values, and no expiry time, which limits the time to
   live. Names of application properties are short strings, and no value is a decimal. May set an error. */
static int check_properties(Items *items, int is_map) {
    const uint8_t *p;
    for (int i = 0; items->count > 0; i++) {
        if (i == VALUES_MAX || (p = take_item(items)) == NULL || !is_readable(p, items->next) ||
            (!is_map && i == EXPIRY_TIME && *p != 0x40))
            return 0;
        if (is_map && (i % 2 == 0 ? *p != 0xa1 || items->count == 0 : *p == 0x74 || *p == 0x84 || *p == 0x94))
            return 0;
    }
    return items->next == items->end;
}

/* Returns where the properties of a message begin, or what follows if it has none. Returns NULL if it is not plain. */
static const uint8_t *find_bare(const uint8_t *p, const uint8_t *end) {
    const uint8_t *bare = NULL;
    Items items;
    for (uint8_t section = HEADER_SECTION; section < DATA; section++) {
        int is_map = section != HEADER_SECTION && section != PROPERTIES;
        if (section == PROPERTIES)
            bare = p;
        if (!has_descriptor(p, end, section))
            continue;
        if (!read_items(p + 3, end, is_map ? 0xc1 : 0xc0, &items) ||
            (section >= PROPERTIES && !check_properties(&items, is_map)))
            return NULL;
        p = items.end;
    }
    int is_data = has_descriptor(p, end, DATA) && (p[3] == 0xa0 || p[3] == 0xb0);
    return (is_data || has_descriptor(p, end, VALUE)) && value_end(p + 3, end) == end ? bare : NULL;
}

/* Has the codec read the sections before the bare message. Returns 0 with an error. */
static int use_prelude(const uint8_t *start, Py_ssize_t size) {
    if (prelude != NULL && PyBytes_GET_SIZE(prelude) == size &&
        memcmp(PyBytes_AS_STRING(prelude), start, (size_t)size) == 0)
        return 1;
    PyObject *sections = PyBytes_FromStringAndSize((char *)start, size);
    PyObject *message = sections == NULL ? NULL : PyObject_CallOneArg(read_prelude, sections);
    Py_XSETREF(prelude, sections);
    Py_XSETREF(example, message);
    if (message == NULL || !Py_IS_TYPE(message, message_type))
        Py_CLEAR(prelude);
    return prelude != NULL;
}

/* Returns a message, or None if it is not plain. */
static PyObject *message_of(PyObject *data, const uint8_t *start, const uint8_t *end) {
    const uint8_t *bare = find_bare(start, end);
    if (message_type == NULL || bare == NULL || bare - start > PRELUDE_MAX_BYTES || !use_prelude(start, bare - start)) {
        PyErr_Clear(); /* the codec will raise the same error */
        Py_RETURN_NONE;
    }
    PyObject *message = message_type->tp_alloc(message_type, 0);
    if (message == NULL)
        return NULL;
    for (Py_ssize_t at = sizeof(PyObject); at < message_type->tp_basicsize; at += sizeof(PyObject *))
        SLOT(message, at) = Py_XNewRef(SLOT(example, at));
    PyObject *body = bare == start ? Py_NewRef(data) /* large ones are not copied */
                                   : PyBytes_FromStringAndSize((char *)bare, end - bare);
    if (!set_field(message, BODY, body) || !set_field(message, SIZE, PyLong_FromSsize_t(end - start)))
        Py_CLEAR(message);
    return message;
}

/* read_messages(payloads): returns a list of messages, with None for those that are not plain. */
static PyObject *read_messages(PyObject *module, PyObject *payloads) { return list_of(payloads, message_of); }

static uint8_t *write_bytes(uint8_t *p, const void *bytes, size_t size) {
    memcpy(p, bytes, size);
    return p + size;
}

static uint8_t *write_number(uint8_t *p, uint64_t value, int size) {
    while (size-- > 0)
        *p++ = (uint8_t)(value >> 8 * size);
    return p;
}

/* Returns a body with an id in its properties. Returns NULL without an error if it has one or cannot be read. The body
   is canonical: it begins with its properties, if it has any. */
static PyObject *body_with_id(PyObject *body, const char *prefix, uint64_t number) {
    const uint8_t *start = START_OF(body), *end = END_OF(body), *id;
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
    uint8_t *p = (uint8_t *)PyBytes_AS_STRING(changed);
    p = write_bytes(p, width == 1 ? "\x00\x53\x73\xc0" : "\x00\x53\x73\xd0", 4);
    p = write_number(write_number(p, width + size, width), rest.count + 1, width);
    p = write_bytes(write_bytes(p, "\xa1\x20", 2), prefix, 16);
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

/* The numbers in a head, in the order of `places`: the slot of the message, and the width in bytes. */
static const struct {
    int slot, width;
} head_numbers[] = {{TIME_TO_LIVE, 4}, {COUNT, 4}, {ENQUEUED, 8}, {NUMBER, 8}, {FIRST_NUMBER, 8}, {SCHEDULED, 8}};
#define HEAD_NUMBERS (sizeof head_numbers / sizeof *head_numbers)

/* Reads the numbers of a message, and what its head has besides them. Returns 0 if the message is not plain. */
static int read_fields(PyObject *message, int64_t *field, int64_t *shape) {
    for (int i = 0; slot_names[i] != NULL; i++)
        if (!Py_IS_TYPE(message, message_type) || FIELD(message, i) == NULL)
            return 0;
    if (FIELD(message, CHANGES) != Py_None || PyObject_IsTrue(FIELD(message, ANNOTATIONS)) ||
        !PyBytes_CheckExact(FIELD(message, BODY)))
        return 0;
    for (int i = HEADER; slot_names[i] != NULL; i++)
        if (i != CHANGES)
            field[i] = FIELD(message, i) == Py_None ? -1 : PyLong_AsLongLong(FIELD(message, i));
    *shape = field[HEADER] << 16 | field[STATE] << 4 | (field[TIME_TO_LIVE] < 0) << 3 |
             (field[FIRST_NUMBER] == field[NUMBER]) << 2 | (field[SCHEDULED] != 0) << 1 |
             (field[SCHEDULED] == field[ENQUEUED]);
    return field[TIME_TO_LIVE] <= UINT32_MAX;
}

/* write_heads(messages, tokens, start, shape, template, places): returns the sections before the body of each message
   from `start` on, until one is not plain or has another shape. The template is a head, and `places` says where the
   lock token and the numbers are in it, with 0 for what it does not have. */
static PyObject *write_heads(PyObject *module, PyObject *args) {
    PyObject *messages, *tokens;
    const uint8_t *template, *places;
    Py_ssize_t start, size, places_size;
    int64_t field[sizeof slot_names / sizeof *slot_names], shape;
    long long wanted;
    if (!PyArg_ParseTuple(args, "O!O!nLy#y#", &PyList_Type, &messages, &PyList_Type, &tokens, &start, &wanted,
                          &template, &size, &places, &places_size))
        return NULL;
    if (start < 0 || places_size != 1 + HEAD_NUMBERS)
        return PyErr_Format(PyExc_ValueError, "the places do not fit");
    PyObject *heads = PyList_New(0);
    for (Py_ssize_t i = start; heads != NULL && i < PyList_GET_SIZE(messages) && i < PyList_GET_SIZE(tokens); i++) {
        PyObject *message = PyList_GET_ITEM(messages, i), *token = PyList_GET_ITEM(tokens, i);
        int has_token = PyBytes_CheckExact(token) && PyBytes_GET_SIZE(token) == 16;
        if (!read_fields(message, field, &shape) || shape != wanted || has_token != (places[0] > 0))
            break;
        int has_properties = has_descriptor(START_OF(FIELD(message, BODY)), END_OF(FIELD(message, BODY)), PROPERTIES);
        PyObject *head = PyBytes_FromStringAndSize(NULL, size + (has_properties ? 0 : 4));
        if (append(heads, head) < 0)
            break;
        uint8_t *p = (uint8_t *)PyBytes_AS_STRING(head);
        write_bytes(write_bytes(p, template, (size_t)size), "\x00\x53\x73\x45", has_properties ? 0 : 4);
        if (has_token && places[0] + 16 <= size)
            write_bytes(p + places[0], PyBytes_AS_STRING(token), 16);
        for (size_t j = 0; j < HEAD_NUMBERS; j++)
            if (places[1 + j] > 0 && places[1 + j] + head_numbers[j].width <= size)
                write_number(p + places[1 + j], (uint64_t)field[head_numbers[j].slot], head_numbers[j].width);
    }
    if (PyErr_Occurred())
        Py_CLEAR(heads);
    return heads;
}

/* Returns the properties and application properties of a stored body. A section that is too long is left out, with what
   follows. */
static PyObject *head_of(PyObject *body, const uint8_t *start, const uint8_t *end) {
    const uint8_t *p = start;
    Items items;
    for (uint8_t section = PROPERTIES; section < DATA; section++)
        if (has_descriptor(p, end, section) && read_items(p + 3, end, section == PROPERTIES ? 0xc0 : 0xc1, &items) &&
            items.end - start <= HISTORY_MAX_BYTES)
            p = items.end;
    return PyBytes_FromStringAndSize((char *)start, p - start);
}

/* read_heads(bodies): returns the heads of stored bodies, for the history. */
static PyObject *read_heads(PyObject *module, PyObject *bodies) { return list_of(bodies, head_of); }

/* Returns the group id of a stored body as text, or None if it is absent or not a short string. */
static PyObject *session_id_of(PyObject *body, const uint8_t *start, const uint8_t *end) {
    Items fields = {0};
    const uint8_t *item = NULL;
    if (has_descriptor(start, end, PROPERTIES) && !read_items(start + 3, end, 0xc0, &fields))
        Py_RETURN_NONE;
    for (int i = 0; i <= GROUP_ID; i++)
        if ((item = take_item(&fields)) == NULL)
            Py_RETURN_NONE;
    PyObject *text = *item == 0xa1 ? PyUnicode_DecodeUTF8((char *)item + 2, item[1], NULL) : Py_NewRef(Py_None);
    return text != NULL ? text : (PyErr_Clear(), Py_NewRef(Py_None));
}

/* read_session_ids(bodies): returns the group ids of stored bodies. */
static PyObject *read_session_ids(PyObject *module, PyObject *bodies) { return list_of(bodies, session_id_of); }

PyMethodDef message_methods[] = {{"set_message_type", set_message_type, METH_VARARGS, NULL},
                                 {"read_messages", read_messages, METH_O, NULL},
                                 {"give_ids", give_ids, METH_VARARGS, NULL},
                                 {"write_heads", write_heads, METH_VARARGS, NULL},
                                 {"read_heads", read_heads, METH_O, NULL},
                                 {"read_session_ids", read_session_ids, METH_O, NULL},
                                 {NULL, NULL, 0, NULL}};
