/* amqp_load: sends, receives and checks messages over AMQP 1.0, as fast as the peer allows or at a given rate.
 *
 * A role has a thread and one link on each of its connections. With both roles, sending begins when the receivers are
 * attached. The output is one JSON object with the figures of each role. tests/bench/load_program.py compiles and
 * runs it, and says what the options mean.
 *
 * `ack` is the time from a message to its outcome, `end to end` from a message to its receipt. At a given rate both
 * begin when the message was to be sent, so that a peer that stalls is charged for the messages that it held up. */
#define _GNU_SOURCE
#include "connection.h"

#define CHUNK_MESSAGES 256u       /* messages that are written before the socket is read again */
#define OUTPUT_LIMIT_BYTES (1u << 18)
#define HEARTBEAT_NS (5 * SECOND_NS)

/* --- the roles -------------------------------------------------------------------------------- */

static uint32_t smaller(uint64_t one, uint64_t other) { return (uint32_t)(one < other ? one : other); }

/* Writes messages as far as credit, windows and the rate allow. */
static void push_messages(struct connection *one) {
  struct role *role = one->role;
  const struct options *options = role->options;
  uint32_t allowed = one->peer_delivery_count + one->peer_credit - (uint32_t)one->sent;
  if ((int32_t)allowed <= 0 || one->out.length > OUTPUT_LIMIT_BYTES) return;
  uint32_t of_session = one->peer_next_id + one->peer_window - one->next_outgoing_id;
  if ((int32_t)of_session <= 0) return;
  allowed = smaller(allowed, of_session);
  allowed = smaller(allowed, options->window - one->outstanding);
  allowed = smaller(allowed, one->count - one->sent);
  bool is_chunk = allowed > CHUNK_MESSAGES;
  if (is_chunk) allowed = CHUNK_MESSAGES;
  uint64_t at_ns = allowed ? now_ns(CLOCK_MONOTONIC) : 0, stamp_ns = at_ns;
  while (allowed--) {
    if (options->rate_per_s > 0) {
      double place = (double)(one->sent * options->connections + one->number);
      stamp_ns = role->begin_ns + (uint64_t)(place * (double)SECOND_NS / options->rate_per_s);
      if (stamp_ns > at_ns) {
        if (!role->due_ns || stamp_ns < role->due_ns) role->due_ns = stamp_ns;
        return;
      }
    }
    put_transfer(one, stamp_ns);
  }
  if (is_chunk) role->due_ns = 1; /* there is more to send: look at the sockets, do not wait */
}

/* Keeps the credit between half and all of what it may be, as long as there is more to take. */
static void push_credit(struct connection *one) {
  struct role *role = one->role;
  put_accepted(one);
  if (!role->grantable || one->credit > role->options->credit / 2) return;
  uint32_t more = smaller(role->options->credit - one->credit, role->grantable);
  role->grantable -= more;
  put_credit(one, one->credit + more);
}

/* Until the next message that is to be sent, or the next heartbeat. */
static struct timespec time_to_wait(const struct role *role) {
  uint64_t now = now_ns(CLOCK_MONOTONIC);
  uint64_t wait_ns = !role->due_ns ? SECOND_NS / 2 : role->due_ns > now ? role->due_ns - now : 0;
  return (struct timespec){(time_t)(wait_ns / SECOND_NS), (long)(wait_ns % SECOND_NS)};
}

static void work(struct role *role) {
  const struct options *options = role->options;
  uint32_t count = options->connections;
  struct pollfd *waiting = calloc(count, sizeof *waiting);
  uint64_t last_done = 0, moved_ns = role->begin_ns, heartbeat_ns = role->begin_ns;
  while (role->done < options->count && !role->error[0]) {
    role->due_ns = 0;
    for (uint32_t index = 0; index < count; index++) {
      struct connection *one = &role->connections[index];
      role->sends ? push_messages(one) : push_credit(one);
      flush(one);
      waiting[index] = (struct pollfd){one->socket, (short)(POLLIN | (one->out.length ? POLLOUT : 0)), 0};
    }
    struct timespec wait = time_to_wait(role);
    int ready = ppoll(waiting, count, &wait, NULL);
    for (uint32_t index = 0; index < count && ready > 0; index++) {
      if (waiting[index].revents & ~POLLOUT) receive(&role->connections[index]);
      if (role->connections[index].closed && role->done < options->count) fail(role, "the peer closed the connection");
    }
    uint64_t at_ns = now_ns(CLOCK_MONOTONIC);
    if (role->done != last_done) {
      last_done = role->done;
      moved_ns = at_ns;
    } else if (at_ns > moved_ns + (uint64_t)(options->stall_timeout_s * SECOND_NS)) {
      fail(role, "nothing moved for %g s", options->stall_timeout_s);
    }
    if (at_ns > heartbeat_ns + HEARTBEAT_NS) {
      heartbeat_ns = at_ns;
      for (uint32_t index = 0; index < count; index++)
        end_frame(&role->connections[index].out, begin_frame(&role->connections[index].out, 0));
    }
  }
  free(waiting);
}

/* The link is detached before the connection is closed: some brokers read a close before the dispositions in front of it,
 * and would deliver the messages again. */
static void close_all(struct role *role) {
  for (uint32_t index = 0; index < role->options->connections && !role->error[0]; index++) {
    struct connection *one = &role->connections[index];
    if (!role->sends) put_accepted(one);
    put_detach(one);
    wait_for(one, &one->detached);
    put_close(one);
    wait_for(one, &one->closed);
  }
}

static void *run_role(void *argument) {
  struct role *role = argument;
  for (uint32_t index = 0; index < role->options->connections && !role->error[0]; index++)
    attach(&role->connections[index]);
  if (role->start) pthread_barrier_wait(role->start);
  uint64_t cpu_before_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
  role->begin_ns = role->end_ns = now_ns(CLOCK_MONOTONIC);
  if (!role->error[0]) work(role);
  role->cpu_s = (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_before_ns) / SECOND_NS;
  close_all(role);
  return NULL;
}

static uint64_t share(uint64_t count, uint32_t parts, uint32_t index) { return count / parts + (index < count % parts); }

static void prepare(struct role *role, const struct options *options, bool sends) {
  *role = (struct role){.options = options, .sends = sends, .grantable = options->count};
  role->latencies_ns = calloc(options->count, sizeof *role->latencies_ns);
  role->connections = calloc(options->connections, sizeof *role->connections);
  for (uint32_t index = 0; index < options->connections; index++) {
    struct connection *one = &role->connections[index];
    one->role = role;
    one->number = index;
    one->count = share(options->count, options->connections, index);
    if (sends) {
      one->sent_ns = calloc(one->count, sizeof *one->sent_ns);
      prepare_transfer(one);
    }
  }
  if (sends) return;
  struct bytes message = {0};
  struct checks *checks = &role->checks;
  size_t body_at = put_message(&message, options->run, options->body_bytes);
  put(&checks->body, message.start + body_at, message.length - body_at);
  checks->first_sequence = options->first_sequence;
  checks->stream_count = options->connections;
  checks->streams = calloc(options->connections, sizeof *checks->streams);
  for (uint32_t index = 0; index < options->connections; index++) {
    struct stream *stream = &checks->streams[index];
    stream->expected = share(options->count, options->connections, index);
    stream->seen = calloc(stream->expected, 1);
    stream->next = calloc(options->connections, sizeof *stream->next);
  }
}

/* --- the result ------------------------------------------------------------------------------- */

static int compare(const void *one, const void *other) {
  uint64_t left = *(const uint64_t *)one, right = *(const uint64_t *)other;
  return (left > right) - (left < right);
}

static void print_latencies(struct role *role) {
  uint64_t last = role->latency_count - 1;
  printf("\"latency_us\": {");
  if (role->latency_count) {
    qsort(role->latencies_ns, role->latency_count, sizeof *role->latencies_ns, compare);
    static const int shares[] = {50, 95, 99};
    for (int index = 0; index < 3; index++)
      printf("\"p%d\": %.1f, ", shares[index],
             (double)role->latencies_ns[(last * (uint64_t)shares[index] + 50) / 100] / 1e3);
    printf("\"max\": %.1f", (double)role->latencies_ns[last] / 1e3);
  }
  printf("}");
}

static bool print_result(struct role *role) {
  struct checks *checks = &role->checks;
  double elapsed_s = (double)(role->end_ns - role->begin_ns) / SECOND_NS;
  uint64_t count = role->options->count;
  count_lost(checks);
  uint64_t wrong = role->sends
                       ? count - role->accepted
                       : checks->lost + checks->duplicate + checks->corrupt + checks->out_of_order + checks->foreign;
  bool is_clean = !role->error[0] && !wrong;
  printf("{\"role\": \"%s\", \"count\": %lu, \"elapsed_s\": %.6f, \"messages_per_s\": %.1f, ",
         role->sends ? "send" : "receive", role->done, elapsed_s, elapsed_s > 0 ? (double)role->done / elapsed_s : 0.0);
  printf("\"client_cpu_us_per_message\": %.3f, \"begin_ns\": %lu, \"end_ns\": %lu, \"error\": \"%s\", ",
         role->cpu_s * 1e6 / (double)(role->done ? role->done : 1), role->begin_ns, role->end_ns, role->error);
  if (role->sends)
    printf("\"accepted\": %lu, \"not_accepted\": %lu, ", role->accepted, count - role->accepted);
  else
    printf("\"received\": %lu, \"verdict\": {\"lost\": %lu, \"duplicate\": %lu, \"corrupt\": %lu, "
           "\"out_of_order\": %lu, \"foreign\": %lu}, ",
           checks->received, checks->lost, checks->duplicate, checks->corrupt, checks->out_of_order, checks->foreign);
  print_latencies(role);
  printf(", \"is_clean\": %s}", is_clean ? "true" : "false");
  return is_clean;
}

int main(int argument_count, char **arguments) {
  if (argument_count != 16) {
    fprintf(stderr, "use tests/bench/load_program.py\n");
    return 2;
  }
  char **next = arguments + 1;
  const char *kind = *next++;
  struct options options = {.host = *next++};
  options.port = *next++;
  options.address = *next++;
  options.capability = **next ? *next : NULL;
  next++;
  options.count = strtoull(*next++, NULL, 10);
  options.first_sequence = strtoull(*next++, NULL, 10);
  options.window = strtoull(*next++, NULL, 10);
  options.credit = strtoull(*next++, NULL, 10);
  options.run = (uint32_t)strtoul(*next++, NULL, 10);
  options.body_bytes = (uint32_t)strtoul(*next++, NULL, 10);
  options.connections = (uint32_t)strtoul(*next++, NULL, 10);
  options.rate_per_s = strtod(*next++, NULL);
  options.stall_timeout_s = strtod(*next++, NULL);
  options.sasl = !strcmp(*next++, "sasl");

  struct role roles[2];
  pthread_t threads[2];
  pthread_barrier_t start;
  int count = 0;
  if (strcmp(kind, "send")) prepare(&roles[count++], &options, false);
  if (strcmp(kind, "receive")) prepare(&roles[count++], &options, true);
  pthread_barrier_init(&start, NULL, (unsigned)count);
  for (int index = 0; index < count; index++) {
    roles[index].start = &start;
    pthread_create(&threads[index], NULL, run_role, &roles[index]);
  }
  bool is_clean = true;
  for (int index = 0; index < count; index++) pthread_join(threads[index], NULL);
  printf("[");
  for (int index = 0; index < count; index++) {
    if (index) printf(", ");
    is_clean &= print_result(&roles[index]);
  }
  printf("]\n");
  return is_clean ? 0 : 1;
}
