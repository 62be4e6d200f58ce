/* What the C files of the compiled module share. See __init__.py. */
#ifndef PEEKLOCK_NATIVE_H
#define PEEKLOCK_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

/* The functions of each file, as a table that ends with an empty entry. */
extern PyMethodDef message_methods[], frame_methods[], proton_methods[];

/* Changes the frames that Proton has written. It is in frames.c. */
PyObject *unsettle_transfers(uint8_t *data, size_t size, PyObject *links);

/* Appends a new reference to a list. Returns -1 with an error if either is NULL, because it could not be created. */
static inline int append(PyObject *list, PyObject *item) {
    int failed = list == NULL || item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

/* --- encoded values of AMQP, in a header because they are read for every field of a message --- */

static inline uint16_t read_16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t read_32(const uint8_t *p) { return (uint32_t)read_16(p) << 16 | read_16(p + 2); }

/* The items of a list or map that are not taken yet. */
typedef struct {
    const uint8_t *next, *end;
    uint32_t count;
} Items;

/* Returns where a simple value ends. Returns NULL if it is longer than the data, is compound or described, or has a
   constructor that is not known. */
static inline const uint8_t *value_end(const uint8_t *p, const uint8_t *end) {
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

/* Reads the list or map at p, whose constructor is `code` (0xc0 or 0xc1), its wide form, or that of an empty list.
   Returns 0 if it is another value or is longer than the data. */
static inline int read_items(const uint8_t *p, const uint8_t *end, uint8_t code, Items *found) {
    if (p < end && *p == 0x45 && code == 0xc0) {
        *found = (Items){p + 1, p + 1, 0};
        return 1;
    }
    int width = end - p < 3 ? 0 : *p == code ? 1 : *p == code + 0x10 ? 4 : 0;
    if (width == 0 || end - p < 1 + 2 * width)
        return 0;
    size_t size = width == 1 ? p[1] : read_32(p + 1);
    *found = (Items){p + 1 + 2 * width, p + 1 + width + size, width == 1 ? p[2] : read_32(p + 5)};
    return (size_t)(end - p) >= 1 + width + size && found->next <= found->end;
}

/* Whether a described value begins here whose descriptor is this short one. */
static inline int has_descriptor(const uint8_t *p, const uint8_t *end, uint8_t descriptor) {
    return end - p >= 4 && p[0] == 0 && p[1] == 0x53 && p[2] == descriptor;
}

/* Returns the next item and moves behind it. Returns NULL if there is none that is a simple value. */
static inline const uint8_t *take_item(Items *items) {
    const uint8_t *item = items->next, *next = items->count > 0 ? value_end(item, items->end) : NULL;
    if (next == NULL)
        return NULL;
    items->next = next;
    items->count--;
    return item;
}

/* Takes an unsigned integer in one of its three encodings. Returns 0 if the next item is another value. */
static inline int take_uint(Items *items, uint32_t *value) {
    const uint8_t *item = take_item(items);
    if (item == NULL || (*item != 0x70 && *item != 0x52 && *item != 0x43))
        return 0;
    *value = *item == 0x70 ? read_32(item + 1) : *item == 0x52 ? item[1] : 0;
    return 1;
}

#endif
