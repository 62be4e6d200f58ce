/* What the C files of the compiled module share. See __init__.py. */
#ifndef PEEKLOCK_NATIVE_H
#define PEEKLOCK_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t read_16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static inline uint32_t read_32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t read_64(const uint8_t *p) { return (uint64_t)read_32(p) << 32 | read_32(p + 4); }

static inline uint8_t *write_16(uint8_t *p, uint16_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
    return p + 2;
}

static inline uint8_t *write_32(uint8_t *p, uint32_t value)
{
    return write_16(write_16(p, (uint16_t)(value >> 16)), (uint16_t)value);
}

static inline uint8_t *write_64(uint8_t *p, uint64_t value)
{
    return write_32(write_32(p, (uint32_t)(value >> 32)), (uint32_t)value);
}

static inline uint8_t *write_bytes(uint8_t *p, const void *bytes, size_t size)
{
    memcpy(p, bytes, size);
    return p + size;
}

#define WRITE_TEXT(p, text) write_bytes(p, text, sizeof text - 1)

/* The functions of each file, as a table that ends with an empty entry. */
extern PyMethodDef message_methods[];

#endif
