/* SPDX-License-Identifier: Apache-2.0
 * The dummy device's memory, and who works with it. */
#include "dummy_memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const tartan_host *tartan_dummy_host;

/* ---- Memory. Each allocation has its own pages, which are accessible only while `users` > 0. ---- */

typedef struct block {
    struct block *next;
    char *memory;
    int64_t bytes, mapped;
    int32_t device_id;
    dummy_marks marks;
} block;

enum { PAGE = 4096 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *blocks;
static int64_t users;

static void protect_all(int protection) {
    for (block *b = blocks; b != NULL; b = b->next) mprotect(b->memory, (size_t)b->mapped, protection);
}

void dummy_begin_use(void) {
    pthread_mutex_lock(&lock);
    if (users++ == 0) protect_all(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}
void dummy_end_use(void) {
    pthread_mutex_lock(&lock);
    if (--users == 0) protect_all(PROT_NONE);
    pthread_mutex_unlock(&lock);
}

bool dummy_owns(int32_t device_id, const void *begin, int64_t bytes, bool all) {
    const char *first = begin, *end = first + bytes;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const block *b = blocks; b != NULL && !found; b = b->next) {
        if (device_id >= 0 && b->device_id != device_id) continue;
        found = all ? first >= b->memory && end <= b->memory + b->bytes
                    : first < b->memory + b->mapped && end > b->memory;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int64_t bytes_in_use(int32_t device_id) {
    int64_t sum = 0;
    for (const block *b = blocks; b != NULL; b = b->next) sum += b->device_id == device_id ? b->bytes : 0;
    return sum;
}

static const char *environment(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

tartan_status dummy_check_lost(const char *function, int32_t device_id) {
    if (!tartan_dummy.lost && environment("TARTAN_DUMMY_LOST") == NULL) return TARTAN_OK;
    return tartan_dummy_host->fail(TARTAN_ERR_DEVICE, function, "device dummy:%d was lost", device_id);
}

tartan_status dummy_work_on(const char *function, const dummy_device *d, const void *pointer, bool writes) {
    bool ordered = true;
    pthread_mutex_lock(&lock);
    for (block *b = blocks; b != NULL; b = b->next)
        if ((const char *)pointer >= b->memory && (const char *)pointer < b->memory + b->mapped)
            ordered = dummy_stream_works(d->number, &b->marks, writes);
    pthread_mutex_unlock(&lock);
    if (ordered) return TARTAN_OK;
    return tartan_dummy_host->fail(TARTAN_ERR_INTERNAL, function,
                                   "stream %p %s memory at %p while another stream may be at work on it",
                                   d->stream, writes ? "writes" : "reads", pointer);
}

void dummy_check_release(const void *of, const dummy_marks *marks) {
    const dummy_device *d = of;
    if (tartan_dummy.lost || environment("TARTAN_DUMMY_LOST") != NULL) return;
    if (d != NULL ? dummy_stream_is_last(d->number, marks) : dummy_all_done(marks)) return;
    fprintf(stderr, "the dummy device: memory is released while a stream may be at work on it\n");
    abort();
}

/* Maps the memory and enters the block, or says that there is no more. */
static tartan_status enter(const char *function, block *b) {
    const char *limit = environment("TARTAN_DUMMY_BYTES");
    pthread_mutex_lock(&lock);
    bool enough = tartan_dummy.asked++ != tartan_dummy.fail_at;
    if (limit != NULL && bytes_in_use(b->device_id) > strtoll(limit, NULL, 10) - b->bytes) enough = false;
    if (enough) {
        b->memory = mmap(NULL, (size_t)b->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        enough = b->memory != MAP_FAILED;
    }
    if (enough) {
        memset(b->memory, 0xa5, (size_t)b->mapped); /* NaN in every dtype: nothing may rely on zeros */
        if (users == 0) mprotect(b->memory, (size_t)b->mapped, PROT_NONE);
        b->next = blocks;
        blocks = b;
        tartan_dummy.live++;
    }
    pthread_mutex_unlock(&lock);
    if (enough) return TARTAN_OK;
    return tartan_dummy_host->fail(TARTAN_ERR_MEMORY, function,
                                   "out of memory on device dummy:%d (%" PRId64 " bytes)", b->device_id,
                                   b->bytes);
}

tartan_status dummy_allocate(const char *function, void *d, int64_t bytes, void **out_pointer,
                             void **out_owner) {
    block *b;
    *out_pointer = *out_owner = NULL;
    PASS(dummy_check_lost(function, ((dummy_device *)d)->id));
    PASS(tartan_dummy_host->allocate(&b, 1, sizeof *b));
    *b = (block){.bytes = bytes, .mapped = bytes / PAGE * PAGE + PAGE, .device_id = ((dummy_device *)d)->id};
    const tartan_status status = enter(function, b);
    if (status != TARTAN_OK) {
        tartan_dummy_host->free(b);
        return status;
    }
    *out_pointer = b->memory;
    *out_owner = b;
    return TARTAN_OK;
}

void dummy_release(void *owner, void *d) {
    block *b = owner;
    if (b == NULL) return;
    dummy_check_release(d, &b->marks);
    pthread_mutex_lock(&lock);
    for (block **link = &blocks; *link != NULL; link = &(*link)->next)
        if (*link == b) {
            *link = b->next;
            break;
        }
    tartan_dummy.live--;
    pthread_mutex_unlock(&lock);
    munmap(b->memory, (size_t)b->mapped);
    tartan_dummy_host->free(b);
}

static block *block_at(const void *memory) {
    pthread_mutex_lock(&lock);
    block *b = blocks;
    while (b != NULL && b->memory != memory) b = b->next;
    pthread_mutex_unlock(&lock);
    return b;
}

tartan_status dummy_scratch(const char *function, void *d, int64_t bytes, void **out) {
    void *owner;
    return dummy_allocate(function, d, bytes, out, &owner);
}

void dummy_scratch_free(void *d, void *memory) {
    dummy_release(block_at(memory), d);
}

tartan_status dummy_check_pointer(const char *function, const char *name, int32_t device_id, const void *p,
                                  int64_t bytes, bool on_device) {
    if (bytes == 0) return TARTAN_OK;
    if (on_device ? dummy_owns(device_id, p, bytes, true) : !dummy_owns(-1, p, bytes, false))
        return TARTAN_OK;
    return tartan_dummy_host->fail(TARTAN_ERR_INTERNAL, function, "%s at %p is %s dummy:%d", name, p,
                                   on_device ? "no memory of device" : "not the host's but memory of device",
                                   device_id);
}

tartan_status dummy_copy(const char *function, void *d, void *to, const void *from, int64_t bytes,
                         tartan_copy_kind kind) {
    const int32_t id = ((dummy_device *)d)->id;
    PASS(dummy_check_lost(function, id));
    PASS(dummy_check_pointer(function, "the copy's target", id, to, bytes, kind != TARTAN_COPY_TO_HOST));
    PASS(dummy_check_pointer(function, "the copy's source", kind == TARTAN_COPY_ON_DEVICE ? -1 : id, from,
                             bytes, kind != TARTAN_COPY_TO_DEVICE));
    if (bytes > 0) PASS(dummy_work_on(function, d, from, false));
    if (bytes > 0) PASS(dummy_work_on(function, d, to, true));
    dummy_begin_use();
    memcpy(to, from, (size_t)bytes);
    dummy_end_use();
    if (kind != TARTAN_COPY_TO_HOST) return TARTAN_OK;
    dummy_stream_drained(((dummy_device *)d)->number);
    if (tartan_dummy.at_work != NULL) tartan_dummy.at_work();
    return TARTAN_OK;
}

tartan_status dummy_clear(const char *function, void *d, void *to, int64_t bytes) {
    PASS(dummy_check_lost(function, ((dummy_device *)d)->id));
    PASS(dummy_check_pointer(function, "what to clear", ((dummy_device *)d)->id, to, bytes, true));
    PASS(dummy_work_on(function, d, to, true));
    dummy_begin_use();
    memset(to, 0, (size_t)bytes);
    dummy_end_use();
    return TARTAN_OK;
}

/* ---- Another library on the device ---- */

static int foreign_stream(int32_t device_id, void *stream) {
    return dummy_stream_open(device_id, stream, &stream);
}

void *dummy_foreign_new(int32_t device_id, int64_t bytes) {
    dummy_device d = {.id = device_id};
    void *memory, *owner;
    (void)dummy_allocate("dummy_foreign_new", &d, bytes, &memory, &owner);
    return memory;
}

void dummy_foreign_copy(void *to, const void *from, int64_t bytes) {
    dummy_begin_use();
    memcpy(to, from, (size_t)bytes);
    dummy_end_use();
}

void dummy_foreign_wait(int32_t device_id, void *stream, void *first) {
    dummy_stream_after(foreign_stream(device_id, stream), foreign_stream(device_id, first));
}

int32_t dummy_foreign_works(int32_t device_id, void *stream, const void *memory, int32_t writes) {
    const dummy_device d = {.id = device_id, .stream = stream, .number = foreign_stream(device_id, stream)};
    return dummy_work_on("dummy_foreign_works", &d, memory, writes != 0) == TARTAN_OK;
}

int32_t dummy_foreign_free(int32_t device_id, void *stream, void *memory) {
    dummy_device d = {.id = device_id, .stream = stream, .number = foreign_stream(device_id, stream)};
    block *b = block_at(memory);
    if (b == NULL || !dummy_stream_works(d.number, &b->marks, true)) return 0;
    dummy_release(b, &d);
    return 1;
}

int64_t dummy_times_synced(void) {
    return tartan_dummy.synced;
}
