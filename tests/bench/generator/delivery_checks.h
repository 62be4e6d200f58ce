/* What a measured message carries, and whether what was received is what was sent.
 *
 * The layout is that of tests/bench/payload.py: messages of one generator are checked by the other, too. A damaged
 * message counts as corrupt and, as nobody can tell which it was, also as lost. */
#ifndef DELIVERY_CHECKS_H
#define DELIVERY_CHECKS_H

#include <string.h>

#include "amqp_wire.h"

#define HEAD_BYTES 12u    /* magic, run, body size */
#define STAMP_BYTES 20u   /* stream, sequence, send time in nanoseconds */
#define MIN_BODY_BYTES 32u
static const uint8_t MAGIC[4] = {'p', 'l', 'l', 'd'};

/* A durable message with one data section. Returns where its body starts. */
static size_t put_message(struct bytes *out, uint32_t run, uint32_t body_bytes) {
  static const uint8_t head[] = {0x00, 0x53, 0x70, 0xc0, 0x02, 0x01, 0x41, 0x00, 0x53, 0x75, 0xb0};
  put(out, head, sizeof head);
  put_u32(out, body_bytes);
  size_t at = out->length;
  put(out, MAGIC, sizeof MAGIC);
  put_u32(out, run);
  put_u32(out, body_bytes);
  memset(extend(out, STAMP_BYTES), 0, STAMP_BYTES);
  for (uint32_t index = 0; index < body_bytes - MIN_BODY_BYTES; index++) put_u8(out, (uint8_t)('a' + index % 26));
  return at;
}

struct stream {
  uint64_t expected;
  uint64_t *next; /* by link: the messages of a stream may be spread over several links, and rise on each */
  uint8_t *seen;
};

struct checks {
  struct bytes body; /* as expected, with an empty stamp */
  struct stream *streams;
  uint32_t stream_count;
  uint64_t first_sequence;
  uint64_t received, lost, duplicate, corrupt, out_of_order, foreign;
};

/* Checks one encoded message. Returns its send time, or 0 if something is wrong with it. */
static uint64_t check(struct checks *checks, uint32_t link, const uint8_t *message, size_t size) {
  const struct bytes *expected = &checks->body;
  checks->received++;
  if (size < expected->length || memcmp(message + size - expected->length, expected->start, HEAD_BYTES)) {
    /* A message of this run with a damaged head still shows our magic and run somewhere. */
    checks->corrupt += memmem(message, size, expected->start, 8) != NULL;
    checks->foreign += memmem(message, size, expected->start, 8) == NULL;
    return 0;
  }
  const uint8_t *body = message + size - expected->length;
  uint32_t stream = read_u32(body + HEAD_BYTES);
  uint64_t sequence = read_u64(body + HEAD_BYTES + 4) - checks->first_sequence;
  if (memcmp(body + MIN_BODY_BYTES, expected->start + MIN_BODY_BYTES, expected->length - MIN_BODY_BYTES) ||
      stream >= checks->stream_count || sequence >= checks->streams[stream].expected) {
    checks->corrupt++;
    return 0;
  }
  struct stream *of = &checks->streams[stream];
  if (of->seen[sequence]) {
    checks->duplicate++;
    return 0;
  }
  of->seen[sequence] = 1;
  checks->out_of_order += sequence < of->next[link];
  of->next[link] = sequence + 1;
  return read_u64(body + HEAD_BYTES + 12);
}

static void count_lost(struct checks *checks) {
  for (uint32_t index = 0; index < checks->stream_count; index++)
    for (uint64_t place = 0; place < checks->streams[index].expected; place++)
      checks->lost += !checks->streams[index].seen[place];
}

#endif
