/* The measured loop of the load generator: publish within a window, receive, check, acknowledge.
 *
 * Python opens the connections, builds the frames and owns every array; this file only moves
 * bytes and counts. engines.py has the same loop in numpy, for machines without a compiler, and
 * describes the fields of struct load. Nothing here knows MQTT beyond "40 02 id id".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum { RAN = 0, STALLED = 1, CLOSED = 2, MALFORMED = 3, DRAINED = 4, BROKEN = 5 };
enum { EVENTS = 1024, READ_SIZE = 1 << 18, SUB_BUCKETS = 32 };

struct stamp {
    uint32_t publisher;
    uint64_t number;
    uint64_t sent_ns;
} __attribute__((packed));

struct connection {
    int32_t fd;
    uint32_t rest_size, out_start, out_end, out_size;
    int32_t waits_to_write;
    uint8_t *rest, *out;
};

struct load {
    int32_t publishers, subscribers, templates, window;
    int32_t out_frame, out_stamp, out_id;
    int32_t in_frame, in_stamp, in_id, in_prefix_size;
    int32_t acknowledged; /* whether publishers get PUBACKs */
    const int32_t *fds;
    const uint8_t *frames, *in_prefix;
    const int32_t *first_subscriber, *subscriber_count;
    const uint32_t *steps; /* null: every message goes to every subscriber of its publisher */
    uint64_t *sent, *acked, *expected;
    uint64_t *latency;
    uint64_t deliveries, gaps, stale, wrong_acks;
    /* private */
    int32_t epoll;
    struct connection *connections;
    uint8_t *buffer, *touched;
    int32_t *touched_list;
    int32_t touched_size;
    uint64_t last_delivery;
};

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int load_open(struct load *l) {
    int total = l->publishers + l->subscribers;
    l->epoll = epoll_create1(0);
    l->connections = calloc((size_t)total, sizeof *l->connections);
    l->buffer = malloc(READ_SIZE + 4096);
    l->touched = calloc((size_t)l->publishers, 1);
    l->touched_list = calloc((size_t)l->publishers, sizeof(int32_t));
    if (l->epoll < 0 || !l->connections || !l->buffer || !l->touched || !l->touched_list)
        return BROKEN;
    for (int i = 0; i < total; i++) {
        struct connection *c = &l->connections[i];
        c->fd = l->fds[i];
        /* A subscriber owes at most one PUBACK for each message in all the windows. */
        c->out_size = i < l->publishers ? (uint32_t)(l->window * l->out_frame)
                                        : (uint32_t)(l->publishers * l->window * 4 + READ_SIZE);
        c->out = malloc(l->in_id >= 0 || i < l->publishers ? c->out_size : 1);
        c->rest = malloc((size_t)l->in_frame + 4);
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (!c->out || !c->rest || epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &e))
            return BROKEN;
    }
    return RAN;
}

static int flush(struct load *l, int index) {
    struct connection *c = &l->connections[index];
    while (c->out_start < c->out_end) {
        ssize_t n = send(c->fd, c->out + c->out_start, c->out_end - c->out_start, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return CLOSED;
        if (n < 0)
            break;
        c->out_start += (uint32_t)n;
    }
    int waits = c->out_start < c->out_end;
    if (!waits)
        c->out_start = c->out_end = 0;
    if (waits != c->waits_to_write) {
        struct epoll_event e = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.u32 = (uint32_t)index};
        if (epoll_ctl(l->epoll, EPOLL_CTL_MOD, c->fd, &e))
            return BROKEN;
        c->waits_to_write = waits;
    }
    return RAN;
}

static uint8_t *room(struct connection *c, uint32_t size) {
    if (c->out_end + size > c->out_size && c->out_start) {
        memmove(c->out, c->out + c->out_start, c->out_end - c->out_start);
        c->out_end -= c->out_start;
        c->out_start = 0;
    }
    if (c->out_end + size > c->out_size)
        return NULL;
    c->out_end += size;
    return c->out + c->out_end - size;
}

/* The oldest message of a publisher that is not yet delivered to all, or not acknowledged. */
static uint64_t settled(const struct load *l, int p) {
    uint64_t least = l->acknowledged ? l->acked[p] : l->sent[p];
    if (least > l->sent[p])
        least = l->sent[p];
    int end = l->first_subscriber[p] + l->subscriber_count[p];
    for (int s = l->first_subscriber[p]; s < end; s++) {
        uint64_t e = l->expected[(size_t)s * (size_t)l->publishers + (size_t)p];
        if (e < least)
            least = e;
    }
    return least;
}

static int refill(struct load *l, int p) {
    struct connection *c = &l->connections[p];
    int64_t count = l->window - (int64_t)(l->sent[p] - settled(l, p));
    if (count <= 0)
        return RAN;
    uint64_t number = l->sent[p], sent_ns = now_ns();
    const uint8_t *frames = l->frames + (size_t)p * (size_t)l->templates * (size_t)l->out_frame;
    for (int64_t i = 0; i < count; i++, number++) {
        uint8_t *out = room(c, (uint32_t)l->out_frame);
        if (!out)
            break;
        struct stamp stamp = {(uint32_t)p, number, sent_ns};
        memcpy(out, frames + number % (uint64_t)l->templates * (uint64_t)l->out_frame, (size_t)l->out_frame);
        memcpy(out + l->out_stamp, &stamp, sizeof stamp);
        if (l->out_id >= 0) {
            uint32_t id = (uint32_t)(number % 65535) + 1;
            out[l->out_id] = (uint8_t)(id >> 8);
            out[l->out_id + 1] = (uint8_t)id;
        }
    }
    l->sent[p] = number;
    return flush(l, p);
}

static void touch(struct load *l, int p) {
    if (!l->touched[p]) {
        l->touched[p] = 1;
        l->touched_list[l->touched_size++] = p;
    }
}

static void note_latency(struct load *l, uint64_t ns) {
    if (ns < SUB_BUCKETS)
        ns = SUB_BUCKETS;
    int high = 63 - __builtin_clzll(ns);
    l->latency[high * SUB_BUCKETS + (int)((ns >> (high - 5)) & (SUB_BUCKETS - 1))]++;
}

static int check(struct load *l, int s, const uint8_t *frame, uint64_t now) {
    struct stamp stamp;
    if (memcmp(frame, l->in_prefix, (size_t)l->in_prefix_size))
        return MALFORMED;
    memcpy(&stamp, frame + l->in_stamp, sizeof stamp);
    if (stamp.publisher >= (uint32_t)l->publishers)
        return MALFORMED;
    int p = (int)stamp.publisher;
    uint64_t *expected = &l->expected[(size_t)s * (size_t)l->publishers + (size_t)p];
    l->deliveries++;
    note_latency(l, now - stamp.sent_ns);
    if (stamp.number < *expected) {
        l->stale++;
        return RAN;
    }
    if (stamp.number > *expected)
        l->gaps++;
    uint64_t template = stamp.number % (uint64_t)l->templates;
    *expected = stamp.number + (l->steps ? l->steps[template * (uint64_t)l->subscribers + (uint64_t)s] : 1);
    touch(l, p);
    return RAN;
}

static int receive_delivery(struct load *l, int s, const uint8_t *frame, uint64_t now) {
    int outcome = check(l, s, frame, now);
    if (outcome == RAN && l->in_id >= 0) {
        uint8_t *ack = room(&l->connections[l->publishers + s], 4);
        if (!ack)
            return BROKEN;
        ack[0] = 0x40;
        ack[1] = 2;
        ack[2] = frame[l->in_id];
        ack[3] = frame[l->in_id + 1];
    }
    return outcome;
}

static int receive_ack(struct load *l, int p, const uint8_t *frame) {
    if (frame[0] != 0x40 || frame[1] != 2)
        return MALFORMED;
    if ((uint32_t)(frame[2] << 8 | frame[3]) != l->acked[p] % 65535 + 1)
        l->wrong_acks++;
    l->acked[p]++;
    touch(l, p);
    return RAN;
}

static int receive(struct load *l, int index, uint64_t now) {
    struct connection *c = &l->connections[index];
    int is_publisher = index < l->publishers;
    uint32_t frame_size = is_publisher ? 4 : (uint32_t)l->in_frame;
    memcpy(l->buffer, c->rest, c->rest_size);
    ssize_t n = recv(c->fd, l->buffer + c->rest_size, READ_SIZE, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return RAN;
    if (n <= 0)
        return CLOSED;
    uint32_t size = c->rest_size + (uint32_t)n, start = 0;
    for (; size - start >= frame_size; start += frame_size) {
        int outcome = is_publisher ? receive_ack(l, index, l->buffer + start)
                                   : receive_delivery(l, index - l->publishers, l->buffer + start, now);
        if (outcome != RAN)
            return outcome;
    }
    c->rest_size = size - start;
    memcpy(c->rest, l->buffer + start, c->rest_size);
    l->last_delivery = now;
    return is_publisher ? RAN : flush(l, index);
}

static int all_settled(const struct load *l) {
    for (int p = 0; p < l->publishers; p++)
        if (settled(l, p) < l->sent[p])
            return 0;
    return 1;
}

/* Run for run_ns; without publishing, return as soon as nothing is under way. */
int load_run(struct load *l, uint64_t run_ns, uint64_t stall_ns, int publishing) {
    struct epoll_event events[EVENTS];
    uint64_t now = now_ns(), end = now + run_ns;
    int outcome;
    l->last_delivery = now;
    for (int p = 0; publishing && p < l->publishers; p++)
        if ((outcome = refill(l, p)) != RAN)
            return outcome;
    while (now < end) {
        if (!publishing && all_settled(l))
            return DRAINED;
        int count = epoll_wait(l->epoll, events, EVENTS, end - now < 20000000 ? (int)((end - now) / 1000000) : 20);
        if (count < 0 && errno != EINTR)
            return BROKEN;
        now = now_ns();
        for (int i = 0; i < count; i++) {
            int index = (int)events[i].data.u32;
            if (events[i].events & EPOLLOUT && (outcome = flush(l, index)) != RAN)
                return outcome;
            if (events[i].events & ~(uint32_t)EPOLLOUT && (outcome = receive(l, index, now_ns())) != RAN)
                return outcome;
        }
        for (int i = 0; i < l->touched_size; i++) {
            int p = l->touched_list[i];
            l->touched[p] = 0;
            if (publishing && (outcome = refill(l, p)) != RAN)
                return outcome;
        }
        l->touched_size = 0;
        if (now - l->last_delivery > stall_ns && now > l->last_delivery)
            return STALLED;
    }
    return RAN;
}
