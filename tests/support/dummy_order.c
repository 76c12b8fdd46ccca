/* SPDX-License-Identifier: Apache-2.0 */
#include "dummy_order.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

typedef struct stream {
    bool open;
    int32_t device_id;
    void *address;
    uint32_t life;
    int64_t clock[DUMMY_STREAMS];
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

void dummy_stream_drained(int number) {
    pthread_mutex_lock(&lock);
    join(host, streams[number].clock);
    pthread_mutex_unlock(&lock);
}

void dummy_stream_after(int number, int first) {
    pthread_mutex_lock(&lock);
    join(streams[number].clock, host);
    join(streams[number].clock, streams[first].clock);
    pthread_mutex_unlock(&lock);
}

static bool knows(const int64_t *clock, const dummy_marks *marks, bool reads_too) {
    for (int i = 0; i < DUMMY_STREAMS; i++) {
        if (!streams[i].open) continue;
        if (marks->written[i].life == streams[i].life && marks->written[i].time > clock[i]) return false;
        if (reads_too && marks->read[i].life == streams[i].life && marks->read[i].time > clock[i])
            return false;
    }
    return true;
}

bool dummy_stream_works(int number, dummy_marks *marks, bool writes) {
    pthread_mutex_lock(&lock);
    stream *s = &streams[number];
    join(s->clock, host);
    const int64_t time = ++s->clock[number];
    const bool ordered = knows(s->clock, marks, writes);
    if (writes)
        marks->written[number].time = time, marks->written[number].life = s->life;
    else
        marks->read[number].time = time, marks->read[number].life = s->life;
    pthread_mutex_unlock(&lock);
    return ordered;
}

bool dummy_all_done(const dummy_marks *marks) {
    pthread_mutex_lock(&lock);
    const bool done = knows(host, marks, true);
    pthread_mutex_unlock(&lock);
    return done;
}
