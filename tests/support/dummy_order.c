/* SPDX-License-Identifier: Apache-2.0 */
#include "dummy_order.h"

#include "backend/backend.h"
#include "backend/operation.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

typedef struct stream {
    bool open;
    int32_t device_id;
    void *address;
    uint32_t life;
    int64_t clock[DUMMY_STREAMS];
    uint32_t graph;                  /* that it is being captured in, or 0 */
    int64_t captured[DUMMY_STREAMS]; /* the clock of that */
} stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static stream streams[DUMMY_STREAMS];
static int64_t host[DUMMY_STREAMS]; /* what the host has waited for */
static uintptr_t addresses = 0x10000;

static void join(int64_t *clock, const int64_t *other) {
    for (int i = 0; i < DUMMY_STREAMS; i++)
        if (other[i] > clock[i]) clock[i] = other[i];
}

static int open_locked(int32_t device_id, void *address) {
    int free = -1;
    for (int i = 0; i < DUMMY_STREAMS; i++) {
        const stream *s = &streams[i];
        if (s->open && s->device_id == device_id && s->address == address) return i;
        if (!s->open && free < 0) free = i;
    }
    if (free < 0) return -1;
    stream *s = &streams[free];
    *s = (stream){.open = true, .device_id = device_id, .address = address, .life = s->life + 1};
    host[free] = 0;
    for (int i = 0; i < DUMMY_STREAMS; i++) streams[i].clock[free] = 0;
    return free;
}

int dummy_stream_open(int32_t device_id, void *address, void **out_address) {
    pthread_mutex_lock(&lock);
    if (address == NULL) address = (void *)(addresses += 0x100);
    const int number = open_locked(device_id, address);
    pthread_mutex_unlock(&lock);
    *out_address = address;
    return number;
}

void dummy_stream_close(int number) {
    pthread_mutex_lock(&lock);
    streams[number].open = false;
    pthread_mutex_unlock(&lock);
}

void dummy_stream_capture(int32_t device_id, void *address, uint32_t graph) {
    pthread_mutex_lock(&lock);
    stream *s = &streams[open_locked(device_id, address)];
    s->graph = graph;
    memset(s->captured, 0, sizeof s->captured);
    pthread_mutex_unlock(&lock);
}

void dummy_stream_drained(int number) {
    pthread_mutex_lock(&lock);
    join(host, streams[number].clock);
    pthread_mutex_unlock(&lock);
}

void dummy_stream_after(int number, int first) {
    stream *s = &streams[number];
    pthread_mutex_lock(&lock);
    if (s->graph != 0) {
        join(s->captured, streams[first].captured);
    } else {
        join(s->clock, host);
        join(s->clock, streams[first].clock);
    }
    pthread_mutex_unlock(&lock);
}

/* The legacy default stream waits for the threads' default streams, and they for it. The dummy has one of these. */
static bool is_legacy(const void *address) {
    return address == (void *)1;
}
static int of_threads(int32_t device_id) {
    void *same;
    return dummy_stream_open(device_id, (void *)2, &same);
}

int dummy_wait(int32_t device_id, void *address, int32_t first_device_id, void *first) {
    void *same;
    const int later = dummy_stream_open(device_id, address, &same),
              earlier = dummy_stream_open(first_device_id, first, &same);
    const uint32_t graph = streams[later].graph, first_graph = streams[earlier].graph;
    if (first_graph != 0 && first_graph != graph) return -1;
    if (graph != first_graph) return TARTAN_WAIT_ON_HOST;
    dummy_stream_after(later, earlier);
    if (is_legacy(address)) dummy_stream_after(of_threads(device_id), earlier);
    if (is_legacy(first)) dummy_stream_after(later, of_threads(first_device_id));
    return graph != 0 ? TARTAN_WAIT_IN_GRAPH : TARTAN_WAIT_ON_DEVICE;
}

bool dummy_drain(int32_t device_id, void *address) {
    void *same;
    const int number = dummy_stream_open(device_id, address, &same);
    if (streams[number].graph != 0) return false;
    dummy_stream_drained(number);
    if (is_legacy(address)) dummy_stream_drained(of_threads(device_id));
    return true;
}

/* Work of a graph that is being captured comes after the earlier work of its own streams. */
static bool knows(const int64_t *clock, const dummy_marks *marks, bool reads_too, uint32_t graph) {
    for (int i = 0; i < DUMMY_STREAMS; i++) {
        if (!streams[i].open || (graph != 0 && streams[i].graph == graph)) continue;
        if (marks->written[i].life == streams[i].life && marks->written[i].time > clock[i]) return false;
        if (reads_too && marks->read[i].life == streams[i].life && marks->read[i].time > clock[i])
            return false;
    }
    return true;
}

static bool knows_captured(const stream *s, const dummy_marks *marks, bool reads_too) {
    for (int i = 0; s->graph != 0 && i < DUMMY_STREAMS; i++) {
        if (marks->captured_write[i].life == s->graph && marks->captured_write[i].time > s->captured[i])
            return false;
        if (reads_too && marks->captured_read[i].life == s->graph &&
            marks->captured_read[i].time > s->captured[i])
            return false;
    }
    return true;
}

bool dummy_stream_works(int number, dummy_marks *marks, bool writes) {
    pthread_mutex_lock(&lock);
    stream *s = &streams[number];
    join(s->clock, host);
    const int64_t time = s->graph != 0 ? ++s->captured[number] : ++s->clock[number];
    const bool ordered = knows(s->clock, marks, writes, s->graph) && knows_captured(s, marks, writes);
    if (s->graph != 0 && writes)
        marks->captured_write[number].time = time, marks->captured_write[number].life = s->graph;
    else if (s->graph != 0)
        marks->captured_read[number].time = time, marks->captured_read[number].life = s->graph;
    else if (writes)
        marks->written[number].time = time, marks->written[number].life = s->life;
    else
        marks->read[number].time = time, marks->read[number].life = s->life;
    pthread_mutex_unlock(&lock);
    return ordered;
}

bool dummy_stream_is_last(int number, const dummy_marks *marks) {
    pthread_mutex_lock(&lock);
    stream *s = &streams[number];
    join(s->clock, host);
    const bool last = knows(s->clock, marks, true, 0);
    pthread_mutex_unlock(&lock);
    return last;
}

bool dummy_all_done(const dummy_marks *marks) {
    pthread_mutex_lock(&lock);
    const bool done = knows(host, marks, true, 0);
    pthread_mutex_unlock(&lock);
    return done;
}
