/* The unsettled deliveries of a link, in either direction. Python knows a delivery by its number on the link. Numbers
   are never used again, so that of a settled delivery means nothing, whatever Proton does with its memory. */
#include "native.h"

struct Deliveries {
    PyObject_HEAD
    Table table;          /* by number: addresses of Proton's deliveries, or delivery ids if the broker sends */
    uint64_t next;        /* the next number. If the broker sends: of the next delivery that Proton writes */
    SentSession *session; /* NULL if the client sends */
    uint32_t last_id;     /* of the delivery that Proton has written last */
};

/* --- tables --------------------------------------------------------------------------------- */

static size_t home_of(const Table *table, uint64_t key) { return key * 0x9e3779b97f4a7c15u >> 32 & table->mask; }

static Entry *place_of(const Table *table, uint64_t key) {
    size_t at = home_of(table, key);
    while (table->entries[at].mark != 0 && table->entries[at].mark != key + 1)
        at = (at + 1) & table->mask;
    return &table->entries[at];
}

static int resize(Table *table, size_t capacity) {
    Table old = *table;
    Entry *entries = PyMem_Calloc(capacity, sizeof(Entry));
    if (entries == NULL)
        return -1;
    *table = (Table){entries, capacity - 1, old.count};
    for (size_t i = 0; old.entries != NULL && i <= old.mask; i++)
        if (old.entries[i].mark != 0)
            *place_of(table, old.entries[i].mark - 1) = old.entries[i];
    PyMem_Free(old.entries);
    return 0;
}

static int put(Table *table, uint64_t key, uint64_t value, Deliveries *owner) {
    size_t capacity = table->entries == NULL ? 0 : table->mask + 1;
    if (table->count * 3 >= capacity * 2 && resize(table, capacity == 0 ? 8 : capacity * 2) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    Entry *entry = place_of(table, key);
    table->count += entry->mark == 0;
    *entry = (Entry){key + 1, value, owner};
    return 0;
}

static Entry *get(const Table *table, uint64_t key) {
    Entry *entry = table->entries == NULL ? NULL : place_of(table, key);
    return entry != NULL && entry->mark != 0 ? entry : NULL;
}

static void clear(Table *table) {
    PyMem_Free(table->entries);
    *table = (Table){NULL, 0, 0};
}

/* Removes an entry if it is there, and moves those behind it that would not be found any more. */
static void discard(Table *table, uint64_t key) {
    Entry *entry = get(table, key);
    if (entry == NULL)
        return;
    size_t hole = (size_t)(entry - table->entries);
    for (size_t at = (hole + 1) & table->mask; table->entries[at].mark != 0; at = (at + 1) & table->mask) {
        size_t home = home_of(table, table->entries[at].mark - 1);
        if (((at - home) & table->mask) >= ((at - hole) & table->mask)) {
            table->entries[hole] = table->entries[at];
            hole = at;
        }
    }
    table->entries[hole].mark = 0;
    if (--table->count == 0)
        clear(table);
    else if (table->mask > 1024 && table->count * 8 < table->mask)
        resize(table, (table->mask + 1) / 4); /* without memory it stays as large as it is */
}

static int compare(const void *one, const void *two) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)two;
    return a < b ? -1 : a > b;
}

/* Returns how far the keys are behind `first`, modulo `modulus_mask` + 1, in ascending order. Only those that are at
   most `span` behind it count. Returns NULL with an error. */
static uint64_t *keys_behind(const Table *table, uint64_t first, uint64_t span, uint64_t modulus_mask, size_t *count) {
    uint64_t *keys = PyMem_Malloc((table->count + 1) * sizeof *keys);
    *count = 0;
    for (size_t i = 0; keys != NULL && table->entries != NULL && i <= table->mask; i++) {
        uint64_t behind = (table->entries[i].mark - 1 - first) & modulus_mask;
        if (table->entries[i].mark != 0 && behind <= span)
            keys[(*count)++] = behind;
    }
    if (keys == NULL)
        PyErr_NoMemory();
    else
        qsort(keys, *count, sizeof *keys, compare);
    return keys;
}

static int append(PyObject *list, PyObject *item) {
    int failed = list == NULL || item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

/* Returns the number at a place of a sequence, or -1, which is none. None stands for a delivery without an answer. */
static int64_t number_at(PyObject *numbers, Py_ssize_t index) {
    PyObject *number = PySequence_Fast_GET_ITEM(numbers, index);
    return number == Py_None ? -1 : PyLong_AsLongLong(number);
}

/* --- both directions ------------------------------------------------------------------------ */

/* Deliveries(session=None): `session` is given if the broker sends on the link. */
static PyObject *deliveries_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *session = NULL;
    if (!PyArg_ParseTuple(args, "|O!", &SentSessionType, &session))
        return NULL;
    Deliveries *self = (Deliveries *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->session = (SentSession *)Py_XNewRef(session);
    return (PyObject *)self;
}

/* clear(): forgets all deliveries, because their link is freed. */
static PyObject *deliveries_clear(Deliveries *self, PyObject *none) {
    for (size_t i = 0; self->session != NULL && self->table.entries != NULL && i <= self->table.mask; i++)
        if (self->table.entries[i].mark != 0)
            discard(&self->session->numbers, self->table.entries[i].value);
    clear(&self->table);
    Py_RETURN_NONE;
}

static void deliveries_dealloc(Deliveries *self) {
    Py_XDECREF(deliveries_clear(self, NULL));
    Py_XDECREF(self->session);
    Py_TYPE(self)->tp_free(self);
}

static Py_ssize_t deliveries_length(Deliveries *self) { return (Py_ssize_t)self->table.count; }

/* numbers(): returns the numbers of the unsettled deliveries, in their order. */
static PyObject *deliveries_numbers(Deliveries *self, PyObject *none) {
    size_t count;
    PyObject *list = PyList_New(0);
    uint64_t *keys = keys_behind(&self->table, 0, UINT64_MAX, UINT64_MAX, &count);
    for (size_t i = 0; keys != NULL && i < count && list != NULL; i++)
        if (append(list, PyLong_FromUnsignedLongLong(keys[i])) < 0)
            Py_CLEAR(list);
    if (keys == NULL)
        Py_CLEAR(list);
    PyMem_Free(keys);
    return list;
}

/* find(numbers, forget): returns what is known of these deliveries, addresses or ids. Settled ones are skipped. */
static PyObject *deliveries_find(Deliveries *self, PyObject *args) {
    PyObject *numbers, *found = NULL;
    int forget;
    if (!PyArg_ParseTuple(args, "Op", &numbers, &forget) || (numbers = PySequence_Fast(numbers, "no sequence")) == NULL)
        return NULL;
    found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < PySequence_Fast_GET_SIZE(numbers); i++) {
        int64_t number = number_at(numbers, i);
        Entry *entry = get(&self->table, (uint64_t)number);
        if (PyErr_Occurred() || (entry != NULL && append(found, PyLong_FromUnsignedLongLong(entry->value)) < 0))
            Py_CLEAR(found);
        else if (entry != NULL && forget) {
            if (self->session != NULL)
                discard(&self->session->numbers, entry->value);
            discard(&self->table, (uint64_t)number);
        }
    }
    Py_DECREF(numbers);
    return found;
}

/* --- deliveries that clients send ----------------------------------------------------------- */

/* add(address): returns the number of a delivery. */
static PyObject *deliveries_add(Deliveries *self, PyObject *address) {
    uint64_t pointer = PyLong_AsUnsignedLongLong(address);
    if (PyErr_Occurred() || put(&self->table, self->next, pointer, NULL) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(self->next++);
}

/* settle(numbers, code): settles deliveries with an outcome that has no fields, or with none if the code is 0. */
static PyObject *deliveries_settle(Deliveries *self, PyObject *args) {
    PyObject *numbers;
    unsigned long long code;
    if (!PyArg_ParseTuple(args, "OK", &numbers, &code) || (numbers = PySequence_Fast(numbers, "no sequence")) == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(numbers) && !PyErr_Occurred(); i++) {
        int64_t number = number_at(numbers, i);
        Entry *entry = self->session != NULL ? NULL : get(&self->table, (uint64_t)number);
        if (entry != NULL) {
            void *delivery = (void *)(uintptr_t)entry->value;
            discard(&self->table, (uint64_t)number);
            if (code != 0)
                proton.delivery_update(delivery, code);
            proton.delivery_settle(delivery);
        }
    }
    Py_DECREF(numbers);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* take(collector, link, limit, max_bytes, may_be_settled, may_have_state): takes complete messages of the link, of
   at most `limit` events, that are first in the event queue and are all settled or all not. Returns their numbers and payloads, whether they are
   settled, and what comes next: 0 another event, 1 a delivery that the caller has to take, 2 more messages. */
static PyObject *deliveries_take(Deliveries *self, PyObject *args) {
    unsigned long long collector_address, link_address;
    Py_ssize_t limit, max_bytes, seen = 0;
    int may_be_settled, may_have_state, settled = 0, next = 0;
    if (!PyArg_ParseTuple(args, "KKnnpp", &collector_address, &link_address, &limit, &max_bytes, &may_be_settled,
                          &may_have_state))
        return NULL;
    void *collector = (void *)(uintptr_t)collector_address, *link = (void *)(uintptr_t)link_address, *event;
    PyObject *numbers = PyList_New(0), *payloads = PyList_New(0);
    while (numbers != NULL && payloads != NULL && (event = proton.collector_peek(collector)) != NULL &&
           proton.event_type(event) == proton.delivery_event && proton.event_link(event) == link) {
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
            proton.delivery_aborted(delivery) || (may_have_state && proton.delivery_remote_state(delivery) != 0))
            next = 1;
        else if (PyList_GET_SIZE(numbers) > 0 && is_settled != settled)
            next = 2;
        if (next != 0)
            break;
        settled = is_settled;
        PyObject *payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (payload != NULL)
            proton.link_recv(link, PyBytes_AS_STRING(payload), size);
        if (append(payloads, payload) < 0 || append(numbers, PyLong_FromUnsignedLongLong(self->next)) < 0 ||
            put(&self->table, self->next, (uintptr_t)delivery, NULL) < 0)
            break;
        self->next++;
        proton.collector_pop(collector);
        proton.link_advance(link);
    }
    if (!PyErr_Occurred())
        return Py_BuildValue("(NNNi)", numbers, payloads, PyBool_FromLong(settled), next);
    Py_XDECREF(numbers);
    Py_XDECREF(payloads);
    return NULL;
}

/* --- deliveries that the broker sends ------------------------------------------------------- */

/* Records the id of a delivery of which Proton has written a transfer. Proton writes those of a link in order. */
int record_written(Deliveries *self, uint32_t id) {
    Table *numbers = &self->session->numbers;
    if (self->next > 0 && self->last_id == id)
        return 0; /* another transfer of the same delivery */
    Entry *older = get(numbers, id); /* from 2^32 deliveries ago */
    if (older != NULL)
        discard(&older->owner->table, older->value);
    discard(numbers, id);
    self->last_id = id;
    if (put(&self->table, self->next, id, NULL) < 0 || put(numbers, id, self->next, self) < 0) {
        discard(&self->table, self->next);
        return -1;
    }
    self->next++;
    return 0;
}

/* Adds a delivery to the last of the groups if that has the same link, state and settlement, or else to a new one. */
static int add_to_groups(PyObject *groups, Deliveries *link, uint64_t number, long state, int settled) {
    Py_ssize_t count = PyList_GET_SIZE(groups);
    PyObject *group = count == 0 ? NULL : PyList_GET_ITEM(groups, count - 1);
    if (group == NULL || PyTuple_GET_ITEM(group, 0) != (PyObject *)link ||
        PyLong_AsLong(PyTuple_GET_ITEM(group, 2)) != state || (PyTuple_GET_ITEM(group, 3) == Py_True) != settled) {
        group = Py_BuildValue("(ONlN)", link, PyList_New(0), state, PyBool_FromLong(settled));
        if (append(groups, group) < 0)
            return -1;
    }
    return append(PyTuple_GET_ITEM(group, 1), PyLong_FromUnsignedLongLong(number));
}

/* Finds the deliveries of a disposition and adds them to the groups, in the order of their ids. Settled ones are
   forgotten. */
int take_range(SentSession *self, uint32_t first, uint32_t last, int settled, long state, PyObject *groups) {
    uint32_t span = last - first;
    uint64_t *keys = NULL;
    size_t count = (size_t)span + 1;
    if (span >= self->numbers.count) { /* there are fewer deliveries than ids */
        keys = keys_behind(&self->numbers, first, span, UINT32_MAX, &count);
        if (keys == NULL)
            return -1;
    }
    for (size_t i = 0; i < count && !PyErr_Occurred(); i++) {
        uint32_t id = first + (uint32_t)(keys == NULL ? i : keys[i]);
        Entry *entry = get(&self->numbers, id);
        if (entry != NULL && add_to_groups(groups, entry->owner, entry->value, state, settled) == 0 && settled) {
            discard(&entry->owner->table, entry->value);
            discard(&self->numbers, id);
        }
    }
    PyMem_Free(keys);
    return PyErr_Occurred() ? -1 : 0;
}

/* take(first, last, settled): returns (link, numbers, 0, settled) for each run of deliveries of one link. */
static PyObject *session_take(SentSession *self, PyObject *args) {
    unsigned int first, last;
    int settled;
    PyObject *groups = NULL;
    if (PyArg_ParseTuple(args, "IIp", &first, &last, &settled) && (groups = PyList_New(0)) != NULL &&
        take_range(self, first, last, settled, 0, groups) < 0)
        Py_CLEAR(groups);
    return groups;
}

static void session_dealloc(SentSession *self) {
    clear(&self->numbers); /* every link of it is gone, so it is empty */
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef session_methods[] = {{"take", (PyCFunction)session_take, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
PyTypeObject SentSessionType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "compiled.SentSession", .tp_basicsize = sizeof(SentSession),
    .tp_flags = Py_TPFLAGS_DEFAULT, .tp_new = PyType_GenericNew, .tp_dealloc = (destructor)session_dealloc,
    .tp_methods = session_methods};

static PyMethodDef deliveries_methods[] = {{"add", (PyCFunction)deliveries_add, METH_O, NULL},
                                           {"clear", (PyCFunction)deliveries_clear, METH_NOARGS, NULL},
                                           {"find", (PyCFunction)deliveries_find, METH_VARARGS, NULL},
                                           {"numbers", (PyCFunction)deliveries_numbers, METH_NOARGS, NULL},
                                           {"settle", (PyCFunction)deliveries_settle, METH_VARARGS, NULL},
                                           {"take", (PyCFunction)deliveries_take, METH_VARARGS, NULL},
                                           {NULL, NULL, 0, NULL}};
static PySequenceMethods deliveries_sequence = {.sq_length = (lenfunc)deliveries_length};
PyTypeObject DeliveriesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "compiled.Deliveries", .tp_basicsize = sizeof(Deliveries),
    .tp_flags = Py_TPFLAGS_DEFAULT, .tp_new = deliveries_new, .tp_dealloc = (destructor)deliveries_dealloc,
    .tp_as_sequence = &deliveries_sequence, .tp_methods = deliveries_methods};
