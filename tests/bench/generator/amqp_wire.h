/* Writes and reads the AMQP 1.0 frames that the load generator needs.
 *
 * It knows bytes, not sockets. Frames are written without an engine, so that the generator costs little beside the
 * broker that it measures. Section numbers in comments are those of the AMQP 1.0 specification. */
#ifndef AMQP_WIRE_H
#define AMQP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { /* descriptors of performatives (2.7), SASL frames (5.3.3) and outcomes (3.4) */
  OPEN = 0x10,
  BEGIN = 0x11,
  ATTACH = 0x12,
  FLOW = 0x13,
  TRANSFER = 0x14,
  DISPOSITION = 0x15,
  DETACH = 0x16,
  END = 0x17,
  CLOSE = 0x18,
  ACCEPTED = 0x24,
  SOURCE = 0x28,
  TARGET = 0x29,
  SASL_MECHANISMS = 0x40,
  SASL_INIT = 0x41,
  SASL_OUTCOME = 0x44,
};

/* --- writing --------------------------------------------------------------------------------- */

struct bytes {
  uint8_t *start;
  size_t length, capacity;
};

static uint8_t *extend(struct bytes *out, size_t count) {
  if (out->length + count > out->capacity) {
    out->capacity = (out->length + count) * 2 + 1024;
    out->start = realloc(out->start, out->capacity);
    if (!out->start) abort();
  }
  uint8_t *added = out->start + out->length;
  out->length += count;
  return added;
}

static void write_u32(uint8_t *to, uint32_t value) {
  value = __builtin_bswap32(value);
  memcpy(to, &value, 4);
}

static void write_u64(uint8_t *to, uint64_t value) {
  value = __builtin_bswap64(value);
  memcpy(to, &value, 8);
}

static void put(struct bytes *out, const void *data, size_t count) { memcpy(extend(out, count), data, count); }
static void put_u8(struct bytes *out, uint8_t value) { *extend(out, 1) = value; }
static void put_u32(struct bytes *out, uint32_t value) { write_u32(extend(out, 4), value); }
static void put_null(struct bytes *out) { put_u8(out, 0x40); }
static void put_bool(struct bytes *out, bool value) { put_u8(out, value ? 0x41 : 0x42); }

static void put_ubyte(struct bytes *out, uint8_t value) {
  put_u8(out, 0x50);
  put_u8(out, value);
}

static void put_uint(struct bytes *out, uint32_t value) {
  put_u8(out, 0x70);
  put_u32(out, value);
}

static void put_text(struct bytes *out, uint8_t code, const char *text) {
  put_u8(out, code);
  put_u32(out, (uint32_t)strlen(text));
  put(out, text, strlen(text));
}

static void put_string(struct bytes *out, const char *text) { put_text(out, 0xb1, text); }
static void put_symbol(struct bytes *out, const char *text) { put_text(out, 0xb3, text); }

/* A described list. Returns where it starts, for `end_list`. */
static size_t begin_list(struct bytes *out, uint8_t descriptor, uint32_t fields) {
  const uint8_t head[] = {0x00, 0x53, descriptor, 0xd0};
  put(out, head, sizeof head);
  size_t at = out->length;
  put_u32(out, 0);
  put_u32(out, fields);
  return at;
}

static void end_list(struct bytes *out, size_t at) {
  write_u32(out->start + at, (uint32_t)(out->length - at - 4));
}

static size_t begin_frame(struct bytes *out, uint8_t type) {
  size_t at = out->length;
  const uint8_t head[] = {0, 0, 0, 0, 2, type, 0, 0};
  put(out, head, sizeof head);
  return at;
}

static void end_frame(struct bytes *out, size_t at) { write_u32(out->start + at, (uint32_t)(out->length - at)); }

/* --- reading --------------------------------------------------------------------------------- */

static uint32_t read_u32(const uint8_t *from) {
  uint32_t value;
  memcpy(&value, from, 4);
  return __builtin_bswap32(value);
}

static uint64_t read_u64(const uint8_t *from) {
  uint64_t value;
  memcpy(&value, from, 8);
  return __builtin_bswap64(value);
}

/* The fields of a performative that are not read yet. A field that is absent reads as its default. */
struct fields {
  const uint8_t *at, *end;
  uint32_t left;
};

/* Returns the first byte behind the value (1.6.1: the code's high nibble says how long it is), or NULL. */
static const uint8_t *behind(const uint8_t *at, const uint8_t *end) {
  if (at >= end) return NULL;
  uint8_t code = *at++;
  size_t size = 0;
  if (code == 0x00) {
    const uint8_t *value = behind(at, end);
    return value ? behind(value, end) : NULL;
  }
  switch (code >> 4) {
    case 0x4: break;
    case 0x5: size = 1; break;
    case 0x6: size = 2; break;
    case 0x7: size = 4; break;
    case 0x8: size = 8; break;
    case 0x9: size = 16; break;
    case 0xa: case 0xc: case 0xe:
      if (at >= end) return NULL;
      size = 1 + (size_t)*at;
      break;
    case 0xb: case 0xd: case 0xf:
      if (end - at < 4) return NULL;
      size = 4 + (size_t)read_u32(at);
      break;
    default: return NULL;
  }
  return (size_t)(end - at) < size ? NULL : at + size;
}

static const uint8_t *next_field(struct fields *fields) {
  if (!fields->left) return NULL;
  const uint8_t *at = fields->at;
  const uint8_t *after = behind(at, fields->end);
  if (!after) {
    fields->left = 0;
    return NULL;
  }
  fields->left--;
  fields->at = after;
  return at;
}

/* Whether the next field is there and not null. */
static bool has_value(const struct fields *fields) { return fields->left && *fields->at != 0x40; }

static void skip_fields(struct fields *fields, int count) {
  while (count--) next_field(fields);
}

static uint64_t next_number(struct fields *fields, uint64_t absent) {
  const uint8_t *at = next_field(fields);
  if (!at) return absent;
  switch (*at) {
    case 0x43: case 0x44: return 0;
    case 0x50: case 0x52: case 0x53: return at[1];
    case 0x70: return read_u32(at + 1);
    case 0x80: return read_u64(at + 1);
    default: return absent;
  }
}

static bool next_bool(struct fields *fields) {
  const uint8_t *at = next_field(fields);
  return at && (*at == 0x41 || (*at == 0x56 && at[1]));
}

/* Copies a string, symbol or binary value, cut to the room there is. */
static void next_text(struct fields *fields, char *text, size_t room) {
  const uint8_t *at = next_field(fields);
  size_t size = 0;
  if (at && *at >> 4 == 0xa) {
    size = at[1];
    at += 2;
  } else if (at && *at >> 4 == 0xb) {
    size = read_u32(at + 1);
    at += 5;
  }
  if (size >= room) size = room - 1;
  if (size) memcpy(text, at, size);
  text[size] = '\0';
}

/* Enters a described list. Returns its descriptor, and sets `after` to the first byte behind it; 0 if it is none. */
static uint8_t enter_list(const uint8_t *at, const uint8_t *end, struct fields *fields, const uint8_t **after) {
  const uint8_t *whole = at ? behind(at, end) : NULL;
  if (!whole || *at++ != 0x00) return 0;
  uint64_t descriptor = *at == 0x53 ? at[1] : *at == 0x80 ? read_u64(at + 1) : 0;
  at = behind(at, end);
  *after = whole;
  *fields = (struct fields){at, whole, 0};
  if (*at == 0xc0)
    *fields = (struct fields){at + 3, whole, at[2]};
  else if (*at == 0xd0)
    *fields = (struct fields){at + 9, whole, read_u32(at + 5)};
  else if (*at != 0x45)
    return 0;
  return (uint8_t)descriptor;
}

#endif
