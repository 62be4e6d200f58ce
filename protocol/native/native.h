/* What the C files of the compiled module share. See __init__.py. */
#ifndef PEEKLOCK_NATIVE_H
#define PEEKLOCK_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

static inline uint16_t read_16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t read_32(const uint8_t *p) { return (uint32_t)read_16(p) << 16 | read_16(p + 2); }

static inline uint8_t *write_bytes(uint8_t *p, const void *bytes, size_t size) {
    memcpy(p, bytes, size);
    return p + size;
}

static inline uint8_t *write_number(uint8_t *p, uint64_t value, int size) {
    while (size-- > 0)
        *p++ = (uint8_t)(value >> 8 * size);
    return p;
}

#define WRITE_TEXT(p, text) write_bytes(p, text, sizeof text - 1)

/* --- Proton --------------------------------------------------------------------------------- */

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
    F(void, delivery_settle, (void *)) F(ssize_t, transport_push, (void *, const char *, size_t))                     \
    F(ssize_t, transport_peek, (void *, char *, size_t)) F(void, transport_pop, (void *, size_t))                     \
    F(int, transport_close_tail, (void *)) F(int, transport_close_head, (void *)) F(int, transport_unbind, (void *))  \
    F(void, collector_release, (void *)) F(void, collector_free, (void *)) F(void, connection_release, (void *))      \
    F(int, decref, (void *))
#define PROTON_FIELD(result, name, arguments) result(*name) arguments;

typedef struct {
    PROTON_FUNCTIONS(PROTON_FIELD)
    int delivery_event, flow_event; /* PN_DELIVERY, PN_LINK_FLOW */
    uint8_t is_handled[256];        /* by type of event: whether the engine acts on it */
} Proton;

extern Proton proton;

/* --- values ---------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *first, *end;
    uint32_t count;
} Compound;

/* Both are in messages.c. */
const uint8_t *simple_end(const uint8_t *p, const uint8_t *end);
int read_compound(const uint8_t *p, const uint8_t *end, uint8_t code, Compound *found);

/* --- deliveries ----------------------------------------------------------------------------- */

typedef struct Deliveries Deliveries;

typedef struct {
    uint64_t mark; /* the key plus 1, or 0 if the entry is free */
    uint64_t value;
    Deliveries *owner;
} Entry;

typedef struct {
    Entry *entries;
    size_t mask, count;
} Table;

typedef struct {
    PyObject_HEAD
    Table numbers; /* the numbers of the unsettled deliveries by delivery id, with their link */
} SentSession;

extern PyTypeObject DeliveriesType, SentSessionType;

/* Both return -1 with an error. */
int record_written(Deliveries *link, uint32_t id);
int take_range(SentSession *session, uint32_t first, uint32_t last, int settled, long state, PyObject *groups);

/* The functions of each file, as a table that ends with an empty entry. */
extern PyMethodDef message_methods[], frame_methods[], socket_methods[];

#endif
