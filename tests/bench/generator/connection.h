/* A connection with one link: the frames that it writes, the frames that it reads, and its socket.
 *
 * When to send, to grant credit and to stop is decided in amqp_load.c. Include it once. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "delivery_checks.h"

#define SECOND_NS 1000000000ull
#define READ_BYTES (1u << 18)
#define MAX_FRAME_BYTES (1u << 20)
#define WINDOW_FRAMES 0x7fffffffu /* transfers that the peer may send: more than any run has */

struct options {
  const char *host, *port, *address, *capability;
  uint64_t count, first_sequence, window, credit;
  uint32_t run, body_bytes, connections;
  double rate_per_s, stall_timeout_s;
  bool sasl;
};

struct role;

struct connection {
  struct role *role;
  uint32_t number;
  int socket;
  struct bytes in, out;
  size_t in_start, out_start;
  uint8_t header_left;  /* bytes of the peer's protocol header that are still to come */
  bool sasl_done, attached, detaching, detached, closed;
  /* Transfers of this side. */
  uint32_t next_outgoing_id, peer_next_id, peer_window;
  uint32_t peer_delivery_count, peer_credit;
  struct bytes transfer; /* a frame in which only the id, the tag and the stamp change */
  size_t id_at, tag_at, stamp_at;
  uint64_t count, sent, outstanding;
  uint64_t *sent_ns; /* by delivery id; 0 when the outcome is known */
  /* Transfers of the peer. */
  uint32_t next_incoming_id, delivery_count, credit;
  uint32_t accept_first, accept_count;
};

struct role {
  const struct options *options;
  bool sends;
  struct connection *connections;
  uint64_t done, accepted, grantable, begin_ns, end_ns, due_ns;
  uint64_t *latencies_ns, latency_count;
  double cpu_s;
  struct checks checks;
  char error[256];
  pthread_barrier_t *start;
};

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void fail(struct role *role, const char *format, ...) {
  if (role->error[0]) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(role->error, sizeof role->error, format, arguments);
  va_end(arguments);
  for (char *at = role->error; *at; at++)
    if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') *at = '\'';
}

/* --- frames that are written ------------------------------------------------------------------ */

static void put_sasl_init(struct bytes *out) {
  put(out, "AMQP\3\1\0\0", 8);
  size_t frame = begin_frame(out, 1), list = begin_list(out, SASL_INIT, 1);
  put_symbol(out, "ANONYMOUS");
  end_list(out, list);
  end_frame(out, frame);
}

static void put_terminus(struct bytes *out, uint8_t descriptor, const char *address, const char *capability) {
  size_t list = begin_list(out, descriptor, capability ? (descriptor == SOURCE ? 11 : 7) : 1);
  put_string(out, address);
  if (capability) {
    /* Durable, expiry, timeout, dynamic and its properties; a source also has a mode, a filter and two of outcomes. */
    for (int absent = 0; absent < (descriptor == SOURCE ? 9 : 5); absent++) put_null(out);
    put_symbol(out, capability);
  }
  end_list(out, list);
}

static void put_opening(struct connection *one) {
  const struct options *options = one->role->options;
  struct bytes *out = &one->out;
  char name[64];
  snprintf(name, sizeof name, "load-%u-%s-%u", options->run, one->role->sends ? "send" : "receive", one->number);
  put(out, "AMQP\0\1\0\0", 8);
  size_t frame = begin_frame(out, 0), list = begin_list(out, OPEN, 3);
  put_string(out, name);
  put_string(out, options->host);
  put_uint(out, MAX_FRAME_BYTES);
  end_list(out, list);
  end_frame(out, frame);

  frame = begin_frame(out, 0), list = begin_list(out, BEGIN, 4);
  put_null(out);
  put_uint(out, 0);
  put_uint(out, WINDOW_FRAMES);
  put_uint(out, WINDOW_FRAMES);
  end_list(out, list);
  end_frame(out, frame);

  bool sends = one->role->sends;
  frame = begin_frame(out, 0), list = begin_list(out, ATTACH, sends ? 10 : 7);
  put_string(out, name);
  put_uint(out, 0);
  put_bool(out, !sends);
  put_ubyte(out, 0); /* the sender settles nothing, the receiver settles first */
  put_ubyte(out, 0);
  put_terminus(out, SOURCE, sends ? name : options->address, sends ? NULL : options->capability);
  put_terminus(out, TARGET, sends ? options->address : name, sends ? options->capability : NULL);
  if (sends) {
    put_null(out);
    put_null(out);
    put_uint(out, 0);
  }
  end_list(out, list);
  end_frame(out, frame);
}

static void put_credit(struct connection *one, uint32_t credit) {
  struct bytes *out = &one->out;
  size_t frame = begin_frame(out, 0), list = begin_list(out, FLOW, 7);
  put_uint(out, one->next_incoming_id);
  put_uint(out, WINDOW_FRAMES);
  put_uint(out, one->next_outgoing_id);
  put_uint(out, WINDOW_FRAMES);
  put_uint(out, 0);
  put_uint(out, one->delivery_count);
  put_uint(out, credit);
  end_list(out, list);
  end_frame(out, frame);
  one->credit = credit;
}

static void put_accepted(struct connection *one) {
  struct bytes *out = &one->out;
  if (!one->accept_count) return;
  size_t frame = begin_frame(out, 0), list = begin_list(out, DISPOSITION, 5);
  put_bool(out, true);
  put_uint(out, one->accept_first);
  put_uint(out, one->accept_first + one->accept_count - 1);
  put_bool(out, true);
  static const uint8_t accepted[] = {0x00, 0x53, ACCEPTED, 0x45};
  put(out, accepted, sizeof accepted);
  end_list(out, list);
  end_frame(out, frame);
  one->accept_count = 0;
}

static void put_detach(struct connection *one) {
  size_t frame = begin_frame(&one->out, 0), list = begin_list(&one->out, DETACH, 2);
  put_uint(&one->out, 0);
  put_bool(&one->out, true);
  end_list(&one->out, list);
  end_frame(&one->out, frame);
  one->detaching = true;
}

static void put_close(struct connection *one) {
  size_t frame = begin_frame(&one->out, 0);
  end_list(&one->out, begin_list(&one->out, CLOSE, 0));
  end_frame(&one->out, frame);
}

static void prepare_transfer(struct connection *one) {
  const struct options *options = one->role->options;
  struct bytes *out = &one->transfer;
  size_t frame = begin_frame(out, 0), list = begin_list(out, TRANSFER, 5);
  put_uint(out, 0);
  put_uint(out, 0);
  one->id_at = out->length - 4;
  put_u8(out, 0xa0);
  put_u8(out, 4);
  one->tag_at = out->length;
  put_u32(out, 0);
  put_uint(out, 0);
  put_bool(out, false);
  end_list(out, list);
  one->stamp_at = put_message(out, options->run, options->body_bytes) + HEAD_BYTES;
  end_frame(out, frame);
}

static void put_transfer(struct connection *one, uint64_t stamp_ns) {
  uint8_t *frame = extend(&one->out, one->transfer.length);
  memcpy(frame, one->transfer.start, one->transfer.length);
  write_u32(frame + one->id_at, one->next_outgoing_id);
  write_u32(frame + one->tag_at, one->next_outgoing_id);
  write_u32(frame + one->stamp_at, one->number);
  write_u64(frame + one->stamp_at + 4, one->role->options->first_sequence + one->sent);
  write_u64(frame + one->stamp_at + 12, stamp_ns);
  one->sent_ns[one->sent] = stamp_ns;
  one->next_outgoing_id++;
  one->sent++;
  one->outstanding++;
}

/* --- frames that are read --------------------------------------------------------------------- */

static void fail_with_condition(struct connection *one, const char *what, struct fields fields) {
  char condition[80] = "no reason", description[150] = "";
  struct fields error;
  const uint8_t *after;
  const uint8_t *at = next_field(&fields);
  if (at && enter_list(at, fields.end, &error, &after)) {
    next_text(&error, condition, sizeof condition);
    next_text(&error, description, sizeof description);
  }
  fail(one->role, "%s: %s %s", what, condition, description);
}

static void on_flow(struct connection *one, struct fields fields) {
  one->peer_next_id = (uint32_t)next_number(&fields, 0);
  one->peer_window = (uint32_t)next_number(&fields, 0);
  skip_fields(&fields, 2);
  if (next_number(&fields, UINT64_MAX) == UINT64_MAX) return; /* of the session alone */
  one->peer_delivery_count = (uint32_t)next_number(&fields, 0);
  one->peer_credit = (uint32_t)next_number(&fields, 0);
}

static void on_transfer(struct connection *one, struct fields fields, const uint8_t *payload, const uint8_t *end,
                        uint64_t at_ns) {
  struct role *role = one->role;
  skip_fields(&fields, 1);
  uint32_t id = (uint32_t)next_number(&fields, 0);
  skip_fields(&fields, 3);
  if (next_bool(&fields)) {
    fail(role, "a message came in several transfers, which this generator cannot check");
    return;
  }
  one->next_incoming_id++;
  one->delivery_count++;
  one->credit--;
  uint64_t sent_ns = check(&role->checks, one->number, payload, (size_t)(end - payload));
  if (sent_ns) role->latencies_ns[role->latency_count++] = at_ns - sent_ns;
  if (one->accept_count && id != one->accept_first + one->accept_count) put_accepted(one);
  if (!one->accept_count) one->accept_first = id;
  one->accept_count++;
  role->done++;
  role->end_ns = at_ns;
}

static void on_disposition(struct connection *one, struct fields fields, uint64_t at_ns) {
  struct role *role = one->role;
  if (!next_bool(&fields) || !role->sends) return; /* an answer of the sending side */
  uint32_t first = (uint32_t)next_number(&fields, 0);
  uint32_t last = (uint32_t)next_number(&fields, first);
  skip_fields(&fields, 1);
  struct fields state;
  const uint8_t *after;
  uint8_t outcome = enter_list(next_field(&fields), fields.end, &state, &after);
  if (!outcome) return;
  for (uint64_t id = first; id <= last && id < one->sent; id++) {
    if (!one->sent_ns[id]) continue;
    if (outcome == ACCEPTED) {
      role->latencies_ns[role->latency_count++] = at_ns - one->sent_ns[id];
      role->accepted++;
    }
    one->sent_ns[id] = 0;
    one->outstanding--;
    role->done++;
  }
  role->end_ns = at_ns;
}

static void on_frame(struct connection *one, const uint8_t *frame, const uint8_t *end, uint64_t at_ns) {
  const uint8_t *body = frame + frame[4] * 4, *payload = NULL;
  struct fields fields;
  if (body >= end) return; /* a heartbeat */
  uint8_t code = enter_list(body, end, &fields, &payload);
  switch (code) {
    case SASL_OUTCOME:
      if (next_number(&fields, 1)) fail(one->role, "SASL ANONYMOUS was refused");
      one->sasl_done = true;
      one->header_left = 8;
      break;
    case BEGIN:
      skip_fields(&fields, 1);
      one->next_incoming_id = (uint32_t)next_number(&fields, 0);
      one->peer_window = (uint32_t)next_number(&fields, 0);
      one->peer_next_id = 0;
      break;
    case ATTACH:
      one->attached = true;
      skip_fields(&fields, 9);
      one->delivery_count = (uint32_t)next_number(&fields, 0);
      break;
    case FLOW: on_flow(one, fields); break;
    case TRANSFER: on_transfer(one, fields, payload, end, at_ns); break;
    case DISPOSITION: on_disposition(one, fields, at_ns); break;
    case DETACH:
      skip_fields(&fields, 2);
      one->detached = true;
      if (!one->detaching || has_value(&fields)) fail_with_condition(one, "link closed", fields);
      break;
    case END: fail_with_condition(one, "session closed", fields); break;
    case CLOSE:
      one->closed = true;
      if (has_value(&fields)) fail_with_condition(one, "connection closed", fields);
      break;
    case OPEN: case SASL_MECHANISMS: break;
    default: fail(one->role, "a frame cannot be read: descriptor 0x%02x", code);
  }
}

static void on_input(struct connection *one, uint64_t at_ns) {
  for (;;) {
    const uint8_t *at = one->in.start + one->in_start;
    size_t left = one->in.length - one->in_start;
    if (one->header_left) {
      if (left < 8) break;
      if (memcmp(at, "AMQP", 4)) fail(one->role, "the peer speaks no AMQP");
      one->header_left = 0;
      one->in_start += 8;
      continue;
    }
    if (left < 8 || left < read_u32(at) || one->role->error[0]) break;
    on_frame(one, at, at + read_u32(at), at_ns);
    one->in_start += read_u32(at) < 8 ? 8 : read_u32(at);
  }
  size_t left = one->in.length - one->in_start;
  memmove(one->in.start, one->in.start + one->in_start, left);
  one->in.length = left;
  one->in_start = 0;
}

/* --- sockets ---------------------------------------------------------------------------------- */

static void flush(struct connection *one) {
  while (one->out_start < one->out.length) {
    ssize_t sent = send(one->socket, one->out.start + one->out_start, one->out.length - one->out_start,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno != EAGAIN) fail(one->role, "the connection ended: %s", strerror(errno));
      return;
    }
    one->out_start += (size_t)sent;
  }
  one->out_start = one->out.length = 0;
}

static void receive(struct connection *one) {
  uint8_t *to = extend(&one->in, READ_BYTES);
  ssize_t count = recv(one->socket, to, READ_BYTES, MSG_DONTWAIT);
  one->in.length -= READ_BYTES - (count > 0 ? (size_t)count : 0);
  if (count == 0 || (count < 0 && errno != EAGAIN)) {
    if (!one->closed) fail(one->role, "the connection ended");
    one->closed = true;
  }
  if (count > 0) on_input(one, now_ns(CLOCK_MONOTONIC));
}

static void wait_for(struct connection *one, const bool *condition) {
  struct role *role = one->role;
  uint64_t end_ns = now_ns(CLOCK_MONOTONIC) + (uint64_t)(role->options->stall_timeout_s * SECOND_NS);
  flush(one);
  while (!*condition && !role->error[0]) {
    struct pollfd waiting = {one->socket, POLLIN, 0};
    poll(&waiting, 1, 100);
    if (waiting.revents) receive(one);
    flush(one);
    if (now_ns(CLOCK_MONOTONIC) > end_ns) fail(role, "the peer did not answer");
  }
}

static void attach(struct connection *one) {
  const struct options *options = one->role->options;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  if (getaddrinfo(options->host, options->port, &hints, &found)) {
    fail(one->role, "%s cannot be found", options->host);
    return;
  }
  one->socket = socket(found->ai_family, SOCK_STREAM, 0);
  int on = 1;
  setsockopt(one->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(one->socket, found->ai_addr, found->ai_addrlen))
    fail(one->role, "no connection to %s:%s: %s", options->host, options->port, strerror(errno));
  freeaddrinfo(found);
  if (one->role->error[0]) return;
  one->header_left = 8;
  if (options->sasl) {
    put_sasl_init(&one->out);
    wait_for(one, &one->sasl_done);
  }
  put_opening(one);
  wait_for(one, &one->attached);
}

#endif
