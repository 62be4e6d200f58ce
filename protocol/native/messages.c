/* Reads messages of clients, and writes the sections before a delivered message.

   Only the plain form is known here: sections in their order and in short encodings, as nearly every sender writes
   them, and messages without changes. For any other message None is returned, and protocol/codec reads or writes it.
   So nothing is refused here, and whatever is accepted must give the same result as protocol/codec. */
#include "native.h"

/* --- the class Message ---------------------------------------------------------------------- */

#define SLOTS_MAX 64

static PyTypeObject *message_type; /* broker.core.contract.message.Message */
static Py_ssize_t slot_offsets[SLOTS_MAX];
static PyObject *slot_defaults[SLOTS_MAX];
static int slot_count;

/* The slots that are read or written here, in the order of slot_names. */
enum { BODY, ANNOTATIONS, HEADER, TIME_TO_LIVE, SCHEDULED, SIZE, CHANGES, NUMBER, FIRST_NUMBER, ENQUEUED, COUNT, STATE,
       NAMED };
static const char *const slot_names[NAMED] = {
    "body", "annotations", "header", "time_to_live_ms", "scheduled_enqueue_time_ms", "size", "changes",
    "sequence_number", "enqueue_sequence_number", "enqueued_time_ms", "delivery_count", "state"};
static Py_ssize_t offset_of[NAMED];

#define SLOT(message, offset) (*(PyObject **)((char *)(message) + (offset)))
#define FIELD(message, name) SLOT(message, offset_of[name])

/* set_message_type(message): takes the class of a message, and the values with which every message begins. */
static PyObject *set_message_type(PyObject *module, PyObject *message)
{
    PyTypeObject *type = Py_TYPE(message);
    PyObject *key, *descriptor, *names = type->tp_dict;
    Py_ssize_t position = 0;
    int count = 0, named = 0;
    while (PyDict_Next(names, &position, &key, &descriptor)) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
            continue;
        Py_ssize_t offset = ((PyMemberDescrObject *)descriptor)->d_member->offset;
        if (count == SLOTS_MAX || SLOT(message, offset) == NULL) {
            PyErr_Format(PyExc_TypeError, "slot %R has no value, or there are too many", key);
            return NULL;
        }
        slot_offsets[count] = offset;
        Py_XSETREF(slot_defaults[count], Py_NewRef(SLOT(message, offset)));
        count++;
        for (int i = 0; i < NAMED; i++)
            if (PyUnicode_CompareWithASCIIString(key, slot_names[i]) == 0) {
                offset_of[i] = offset;
                named++;
            }
    }
    if (named != NAMED) {
        PyErr_SetString(PyExc_TypeError, "a message must have all its fields as slots");
        return NULL;
    }
    slot_count = count;
    Py_XSETREF(message_type, (PyTypeObject *)Py_NewRef(type));
    Py_RETURN_NONE;
}

/* Sets a field to a new reference. Returns -1 if that is NULL, because it could not be created. */
static int set_field(PyObject *message, int name, PyObject *value)
{
    if (value == NULL)
        return -1;
    Py_SETREF(FIELD(message, name), value);
    return 0;
}

/* --- reading -------------------------------------------------------------------------------- */

/* Returns where a simple value ends, or NULL if it is longer than the data, has a compound or described type, or a
   constructor that is not known. */
static const uint8_t *simple_end(const uint8_t *p, const uint8_t *end)
{
    size_t size;
    if (p >= end)
        return NULL;
    uint8_t code = *p++;
    switch (code) {
    case 0x40: case 0x41: case 0x42: case 0x43: case 0x44:
        return p;
    case 0x50: case 0x51: case 0x52: case 0x53: case 0x54: case 0x55: case 0x56:
        size = 1;
        break;
    case 0x60: case 0x61:
        size = 2;
        break;
    case 0x70: case 0x71: case 0x72: case 0x73: case 0x74:
        size = 4;
        break;
    case 0x80: case 0x81: case 0x82: case 0x83: case 0x84:
        size = 8;
        break;
    case 0x94: case 0x98:
        size = 16;
        break;
    case 0xa0: case 0xa1: case 0xa3:
        if (end - p < 1)
            return NULL;
        size = *p++;
        break;
    case 0xb0: case 0xb1: case 0xb3:
        if (end - p < 4)
            return NULL;
        size = read_32(p);
        p += 4;
        break;
    default:
        return NULL;
    }
    return (size_t)(end - p) >= size ? p + size : NULL;
}

/* A list or map. */
typedef struct {
    const uint8_t *first, *end;
    uint32_t count;
} Compound;

/* Reads the list or map at p, whose constructor is `wide` or the short form of it. Returns 0 if it is another value. */
static int read_compound(const uint8_t *p, const uint8_t *end, uint8_t wide, Compound *found)
{
    size_t size;
    if (end - p >= 3 && *p == wide - 0x10) {
        size = p[1];
        found->count = p[2];
        found->first = p + 3;
        p += 2;
    } else if (end - p >= 9 && *p == wide) {
        size = read_32(p + 1);
        found->count = read_32(p + 5);
        found->first = p + 9;
        p += 5;
    } else
        return 0;
    found->end = p + size;
    return (size_t)(end - p) >= size && found->first <= found->end;
}

static int is_section(const uint8_t *p, const uint8_t *end, uint8_t code)
{
    return end - p >= 4 && p[0] == 0 && p[1] == 0x53 && p[2] == code;
}

static int is_ascii(const uint8_t *p, size_t size)
{
    uint8_t all = 0;
    for (size_t i = 0; i < size; i++)
        all |= p[i];
    return all < 0x80;
}

typedef struct {
    long header; /* see pack_header */
    int64_t time_to_live_ms; /* 0 for none */
    int64_t scheduled_ms;
    const uint8_t *annotations, *annotations_end, *bare;
} Sections;

/* Reads a flag of the header. Returns 0 for null, 1 for true, 2 for false and -1 for anything else. */
static int flag_at(const uint8_t *p) { return *p >= 0x40 && *p <= 0x42 ? *p - 0x40 : -1; }

static int read_header(const Compound *list, Sections *found)
{
    const uint8_t *p = list->first, *end = list->end;
    if (list->count > 5)
        return 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const uint8_t *next = simple_end(p, end);
        int flag = next == NULL ? -1 : flag_at(p);
        if (next == NULL)
            return 0;
        if (i == 0 || i == 3) {
            if (flag < 0)
                return 0;
            found->header |= i == 3 ? flag << 11 : flag == 1 ? 1 : flag == 2 ? 1 << 10 : 0;
        } else if (i == 1) {
            if (*p != 0x40 && *p != 0x50)
                return 0;
            found->header |= *p == 0x50 ? (p[1] + 1L) << 1 : 0;
        } else {
            if (*p != 0x40 && *p != 0x43 && *p != 0x52 && *p != 0x70)
                return 0;
            if (i == 2)
                found->time_to_live_ms = *p == 0x70 ? read_32(p + 1) : *p == 0x52 ? p[1] : 0;
        }
        p = next;
    }
    return p == end;
}

/* Reads message annotations. Plain are those that are stored as they are, and a time that comes alone. */
static int read_annotations(const uint8_t *start, const Compound *map, Sections *found)
{
    static const char scheduled[] = "x-opt-scheduled-enqueue-time", partition[] = "x-opt-partition-key";
    const uint8_t *p = map->first, *end = map->end;
    if (map->count & 1 || *start != 0xc1)
        return 0;
    for (uint32_t i = 0; i < map->count; i += 2) {
        const uint8_t *middle = simple_end(p, end), *next = middle == NULL ? NULL : simple_end(middle, end);
        if (next == NULL || *p != 0xa3 || !is_ascii(p + 2, p[1]))
            return 0;
        if (p[1] == sizeof scheduled - 1 && memcmp(p + 2, scheduled, sizeof scheduled - 1) == 0) {
            int64_t moment = *middle == 0x83 ? (int64_t)read_64(middle + 1) : -1;
            if (moment < 0 || map->count != 2 || next != end)
                return 0;
            found->scheduled_ms = moment;
            return 1;
        }
        int is_partition_key = p[1] == sizeof partition - 1 && memcmp(p + 2, partition, sizeof partition - 1) == 0;
        if (p[1] >= 5 && memcmp(p + 2, "x-opt", 5) == 0 && !(is_partition_key && (*middle == 0xa1 || *middle == 0xb1)))
            return 0;
        p = next;
    }
    if (p != end)
        return 0;
    if (map->count > 0) {
        found->annotations = start;
        found->annotations_end = end;
    }
    return 1;
}

/* Checks properties. An expiry and a creation time limit the time to live, see time_to_live.py. */
static int read_properties(const Compound *list, Sections *found)
{
    const uint8_t *p = list->first, *end = list->end, *expiry = NULL, *creation = NULL;
    for (uint32_t i = 0; i < list->count; i++) {
        const uint8_t *next = simple_end(p, end);
        if (next == NULL)
            return 0;
        if (i == 8 && *p != 0x40)
            expiry = p;
        else if (i == 9)
            creation = p;
        p = next;
    }
    if (p != end)
        return 0;
    if (expiry == NULL)
        return 1;
    int64_t live_ms, unlimited_ms = INT64_MAX / 10000;
    if (*expiry != 0x83 || creation == NULL || *creation != 0x83 ||
        __builtin_sub_overflow((int64_t)read_64(expiry + 1), (int64_t)read_64(creation + 1), &live_ms) ||
        live_ms >= unlimited_ms)
        return 0;
    live_ms = live_ms < 1 ? 1 : live_ms;
    if (found->time_to_live_ms == 0 || found->time_to_live_ms == UINT32_MAX || live_ms < found->time_to_live_ms)
        found->time_to_live_ms = live_ms;
    return 1;
}

/* Checks application properties. Plain are those that are stored as they are. */
static int check_application_properties(const Compound *map)
{
    const uint8_t *p = map->first, *end = map->end;
    if (map->count & 1)
        return 0;
    for (uint32_t i = 0; i < map->count; i += 2) {
        const uint8_t *middle = simple_end(p, end), *next = middle == NULL ? NULL : simple_end(middle, end);
        if (next == NULL || *p != 0xa1 || !is_ascii(p + 2, p[1]))
            return 0;
        if (*middle == 0x74 || *middle == 0x84 || *middle == 0x94)
            return 0; /* a decimal, which is written differently */
        p = next;
    }
    return p == end;
}

/* Finds the sections of a message. Returns 0 if it is not plain. */
static int read_sections(const uint8_t *p, const uint8_t *end, Sections *found)
{
    Compound compound;
    if (is_section(p, end, 0x70)) {
        if (p[3] == 0x45)
            p += 4;
        else if (read_compound(p + 3, end, 0xd0, &compound) && read_header(&compound, found))
            p = compound.end;
        else
            return 0;
    }
    if (is_section(p, end, 0x72)) {
        if (!read_compound(p + 3, end, 0xd1, &compound) || !read_annotations(p + 3, &compound, found))
            return 0;
        p = compound.end;
    }
    found->bare = p;
    if (is_section(p, end, 0x73)) {
        if (p[3] == 0x45)
            p += 4;
        else if (read_compound(p + 3, end, 0xd0, &compound) && read_properties(&compound, found))
            p = compound.end;
        else
            return 0;
    }
    if (is_section(p, end, 0x74)) {
        if (!read_compound(p + 3, end, 0xd1, &compound) || !check_application_properties(&compound))
            return 0;
        p = compound.end;
    }
    int is_data = is_section(p, end, 0x75) && (p[3] == 0xa0 || p[3] == 0xb0);
    return (is_data || is_section(p, end, 0x77)) && simple_end(p + 3, end) == end;
}

/* Returns a Message, or None if it is not plain. */
static PyObject *read_one(PyObject *data)
{
    Sections found = {0};
    if (message_type == NULL || !PyBytes_CheckExact(data)) {
        PyErr_SetString(PyExc_TypeError, "a message is read from bytes, after set_message_type");
        return NULL;
    }
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data);
    if (!read_sections(start, end, &found))
        Py_RETURN_NONE;
    PyObject *message = message_type->tp_alloc(message_type, 0);
    if (message == NULL)
        return NULL;
    for (int i = 0; i < slot_count; i++)
        SLOT(message, slot_offsets[i]) = Py_NewRef(slot_defaults[i]);
    PyObject *body = found.bare == start ? Py_NewRef(data)
                                         : PyBytes_FromStringAndSize((char *)found.bare, end - found.bare);
    int failed = set_field(message, BODY, body) < 0 || set_field(message, SIZE, PyLong_FromSsize_t(end - start)) < 0 ||
                 (found.header && set_field(message, HEADER, PyLong_FromLong(found.header)) < 0) ||
                 (found.time_to_live_ms &&
                  set_field(message, TIME_TO_LIVE, PyLong_FromLongLong(found.time_to_live_ms)) < 0) ||
                 (found.scheduled_ms && set_field(message, SCHEDULED, PyLong_FromLongLong(found.scheduled_ms)) < 0) ||
                 (found.annotations != NULL &&
                  set_field(message, ANNOTATIONS,
                            PyBytes_FromStringAndSize((char *)found.annotations,
                                                      found.annotations_end - found.annotations)) < 0);
    if (failed)
        Py_CLEAR(message);
    return message;
}

/* read_messages(payloads): returns a list of messages, with None for those that are not plain. */
static PyObject *read_messages(PyObject *module, PyObject *payloads)
{
    PyObject *items = PySequence_Fast(payloads, "payloads are a sequence");
    if (items == NULL)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    PyObject *messages = PyList_New(count);
    for (Py_ssize_t i = 0; messages != NULL && i < count; i++) {
        PyObject *message = read_one(PySequence_Fast_GET_ITEM(items, i));
        if (message == NULL)
            Py_CLEAR(messages);
        else
            PyList_SET_ITEM(messages, i, message);
    }
    Py_DECREF(items);
    return messages;
}

/* --- message ids ---------------------------------------------------------------------------- */

#define ID_BYTES 34 /* a short string of 32 hexadecimal digits */

/* Returns a body with an id in its properties, or NULL without an error if it has one or its properties cannot be
   read. The body is canonical: it begins with its properties, if it has any. */
static PyObject *body_with_id(PyObject *body, const uint8_t *prefix, uint64_t number)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(body), *end = start + PyBytes_GET_SIZE(body), *rest = start;
    Compound list = {NULL, NULL, 0};
    size_t fields = 0; /* the bytes of the fields behind the id */
    if (is_section(start, end, 0x73)) {
        if (start[3] == 0x45)
            rest = start + 4;
        else if (read_compound(start + 3, end, 0xd0, &list)) {
            rest = list.end;
            if (list.count > 0 && (list.first >= list.end || *list.first != 0x40))
                return NULL;
            fields = list.count > 0 ? (size_t)(list.end - list.first) - 1 : 0;
        } else
            return NULL;
    }
    uint32_t count = list.count > 0 ? list.count : 1;
    int is_short = ID_BYTES + fields + 1 <= 255 && count <= 255;
    Py_ssize_t size = 3 + (is_short ? 3 : 9) + ID_BYTES + (Py_ssize_t)fields + (end - rest);
    PyObject *changed = PyBytes_FromStringAndSize(NULL, size);
    if (changed == NULL)
        return NULL;
    uint8_t *p = WRITE_TEXT((uint8_t *)PyBytes_AS_STRING(changed), "\x00\x53\x73");
    if (is_short) {
        *p++ = 0xc0;
        *p++ = (uint8_t)(ID_BYTES + fields + 1);
        *p++ = (uint8_t)count;
    } else {
        *p++ = 0xd0;
        p = write_32(write_32(p, (uint32_t)(ID_BYTES + fields + 4)), count);
    }
    p = write_bytes(WRITE_TEXT(p, "\xa1\x20"), prefix, 16);
    for (int shift = 60; shift >= 0; shift -= 4)
        *p++ = (uint8_t)digits[number >> shift & 15];
    if (fields > 0)
        p = write_bytes(p, list.first + 1, fields);
    write_bytes(p, rest, (size_t)(end - rest));
    return changed;
}

/* give_ids(messages, prefix, number): gives an id to each message that has none. Returns the next number. */
static PyObject *give_ids(PyObject *module, PyObject *args)
{
    PyObject *messages;
    const char *prefix;
    Py_ssize_t prefix_size;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "O!y#K", &PyList_Type, &messages, &prefix, &prefix_size, &number))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(messages); i++) {
        PyObject *message = PyList_GET_ITEM(messages, i);
        if (prefix_size != 16 || !Py_IS_TYPE(message, message_type) || !PyBytes_CheckExact(FIELD(message, BODY))) {
            PyErr_SetString(PyExc_TypeError, "ids need a prefix of 16 digits, and messages whose bodies are in memory");
            return NULL;
        }
        PyObject *body = body_with_id(FIELD(message, BODY), (const uint8_t *)prefix, number);
        if (body != NULL) {
            set_field(message, BODY, body);
            number++;
        } else if (PyErr_Occurred())
            return NULL;
    }
    return PyLong_FromUnsignedLongLong(number);
}

/* --- writing -------------------------------------------------------------------------------- */

#define HEAD_MAX_BYTES 320

typedef struct {
    int64_t number, first_number, enqueued_ms, scheduled_ms, time_to_live_ms, header, delivery_count, state;
} Fields;

/* Reads the fields of a message that are written. Returns 0 if the message is not plain. */
static int read_fields(PyObject *message, Fields *fields)
{
    PyObject *live = FIELD(message, TIME_TO_LIVE);
    fields->number = PyLong_AsLongLong(FIELD(message, NUMBER));
    fields->first_number = PyLong_AsLongLong(FIELD(message, FIRST_NUMBER));
    fields->enqueued_ms = PyLong_AsLongLong(FIELD(message, ENQUEUED));
    fields->scheduled_ms = PyLong_AsLongLong(FIELD(message, SCHEDULED));
    fields->header = PyLong_AsLongLong(FIELD(message, HEADER));
    fields->delivery_count = PyLong_AsLongLong(FIELD(message, COUNT));
    fields->state = PyLong_AsLongLong(FIELD(message, STATE));
    fields->time_to_live_ms = live == Py_None ? -1 : PyLong_AsLongLong(live);
    return !PyErr_Occurred() && fields->time_to_live_ms <= UINT32_MAX;
}

static uint8_t *write_entry(uint8_t *p, const char *name, uint8_t code, int64_t value)
{
    size_t size = strlen(name);
    *p++ = 0xa3;
    *p++ = (uint8_t)size;
    p = write_bytes(p, name, size);
    *p++ = code;
    if (code != 0x54)
        return write_64(p, (uint64_t)value);
    *p++ = (uint8_t)value;
    return p;
}

static uint8_t *write_head(uint8_t *p, const Fields *fields, const uint8_t *token, int64_t locked_until_ms,
                           int from_topic, int with_state)
{
    uint8_t *size;
    long priority = fields->header >> 1 & 0x1ff;
    p = WRITE_TEXT(p, "\x00\x53\x70\xc0");
    size = p++;
    *p++ = 5;
    *p++ = fields->header & 1 ? 0x41 : fields->header & 1 << 10 ? 0x42 : 0x40;
    *p++ = priority ? 0x50 : 0x40;
    if (priority)
        *p++ = (uint8_t)(priority - 1);
    *p++ = fields->time_to_live_ms < 0 ? 0x40 : 0x70;
    if (fields->time_to_live_ms >= 0)
        p = write_32(p, (uint32_t)fields->time_to_live_ms);
    *p++ = (uint8_t)(0x40 + (fields->header >> 11 & 3));
    *p++ = 0x70;
    p = write_32(p, (uint32_t)fields->delivery_count);
    *size = (uint8_t)(p - size - 1);

    /* The section is present without a lock too: the live tests of the Python SDK require an empty map in
       receive-and-delete. */
    p = WRITE_TEXT(p, "\x00\x53\x71\xc1");
    if (token != NULL) {
        p = write_bytes(WRITE_TEXT(p, "\x24\x02\xa3\x10x-opt-lock-token\x98"), token, 16);
    } else
        p = WRITE_TEXT(p, "\x01\x00");

    int count = 4;
    p = WRITE_TEXT(p, "\x00\x53\x72\xc1");
    size = p;
    p = write_entry(p + 2, "x-opt-enqueued-time", 0x83, fields->enqueued_ms);
    p = write_entry(p, "x-opt-sequence-number", 0x81, fields->number);
    if (from_topic || fields->first_number != fields->number) {
        p = write_entry(p, "x-opt-enqueue-sequence-number", 0x81, fields->first_number);
        count += 2;
    }
    if (fields->scheduled_ms != 0) {
        p = write_entry(p, "x-opt-scheduled-enqueue-time", 0x83, fields->scheduled_ms);
        count += 2;
    }
    /* A message that waited was enqueued at its scheduled time. One that arrived later was not scheduled. */
    if (with_state || (fields->scheduled_ms != 0 && fields->scheduled_ms == fields->enqueued_ms)) {
        p = write_entry(p, "x-opt-message-state", 0x54, with_state ? fields->state : 2);
        count += 2;
    }
    if (token != NULL || locked_until_ms != 0) {
        p = write_entry(p, "x-opt-locked-until", 0x83, locked_until_ms);
        count += 2;
    }
    size[0] = (uint8_t)(p - size - 1);
    size[1] = (uint8_t)count;
    return p;
}

/* Returns the sections before the body of a message, or None if the message is not plain. */
static PyObject *head_of(PyObject *message, PyObject *token, int64_t locked_until_ms, int from_topic, int with_state)
{
    Fields fields;
    uint8_t head[HEAD_MAX_BYTES];
    if (!Py_IS_TYPE(message, message_type) || FIELD(message, CHANGES) != Py_None ||
        PyObject_IsTrue(FIELD(message, ANNOTATIONS)) || !PyBytes_CheckExact(FIELD(message, BODY)))
        Py_RETURN_NONE;
    if (!read_fields(message, &fields)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    if (token != Py_None && (!PyBytes_CheckExact(token) || PyBytes_GET_SIZE(token) != 16)) {
        PyErr_SetString(PyExc_TypeError, "a lock token has 16 bytes");
        return NULL;
    }
    uint8_t *end = write_head(head, &fields, token == Py_None ? NULL : (uint8_t *)PyBytes_AS_STRING(token),
                              locked_until_ms, from_topic, with_state);
    PyObject *body = FIELD(message, BODY);
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(body);
    if (!is_section(start, start + PyBytes_GET_SIZE(body), 0x73))
        end = WRITE_TEXT(end, "\x00\x53\x73\x45");
    return PyBytes_FromStringAndSize((char *)head, end - head);
}

/* write_heads(messages, tokens, locked_until_ms, from_topic, with_state): returns the sections before the body of each
   message, with None for those that are not plain. */
static PyObject *write_heads(PyObject *module, PyObject *args)
{
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
        if (head == NULL)
            Py_CLEAR(heads);
        else
            PyList_SET_ITEM(heads, i, head);
    }
    Py_XDECREF(messages);
    Py_XDECREF(tokens);
    return heads;
}

PyMethodDef message_methods[] = {
    {"set_message_type", set_message_type, METH_O, NULL},
    {"read_messages", read_messages, METH_O, NULL},
    {"give_ids", give_ids, METH_VARARGS, NULL},
    {"write_heads", write_heads, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
