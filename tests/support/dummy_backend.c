/* SPDX-License-Identifier: Apache-2.0
 * The device: memory, queue, table. The CPU backend runs its operations while its memory is open. */
#include "dummy_backend.h"

#include "core/dtype.h"
#include "dummy_order.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

tartan_dummy_state tartan_dummy = {.fail_at = -1};
static const tartan_host *tartan_dummy_host;

/* ---- Memory. Pages of their own for each allocation, open only while `users` > 0. ---- */

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

static void begin_use(void) {
    pthread_mutex_lock(&lock);
    if (users++ == 0) protect_all(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}
static void end_use(void) {
    pthread_mutex_lock(&lock);
    if (--users == 0) protect_all(PROT_NONE);
    pthread_mutex_unlock(&lock);
}

/* Whether all of [begin, begin + bytes) is (or some of it is) in one allocation of the device; -1: of any. */
static bool is_ours(int32_t device_id, const void *begin, int64_t bytes, bool all) {
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

static tartan_status check_lost(const char *function, int32_t device_id) {
    if (!tartan_dummy.lost && environment("TARTAN_DUMMY_LOST") == NULL) return TARTAN_OK;
    return tartan_dummy_host->fail(TARTAN_ERR_DEVICE, function, "device dummy:%d was lost", device_id);
}

/* ---- The functions of the table ---- */

typedef struct device {
    int32_t id;
    void *stream;
    int number; /* of the stream, see dummy_order.h */
    bool owns_stream;
} device;

static int32_t devices(const char **out_reason) {
    *out_reason = "";
    return TARTAN_DUMMY_DEVICES;
}

static void describe(int32_t i, char *text, int64_t size) {
    snprintf(text, (size_t)size, "{\"device\": %d, \"name\": \"dummy %d\"}", i, i);
}

static tartan_status fail_once(const char *function, const char *what) {
    if (!tartan_dummy.fail_next) return TARTAN_OK;
    tartan_dummy.fail_next = false;
    return tartan_dummy_host->fail(TARTAN_ERR_DEVICE, function, "the dummy was told to fail (%s)", what);
}

static tartan_status open(const char *function, const tartan_i_context_options *options, void **out_device) {
    device *d;
    *out_device = NULL;
    PASS(check_lost(function, options->device_id));
    PASS(fail_once(function, "open"));
    PASS(tartan_dummy_host->allocate(&d, 1, sizeof *d));
    d->id = options->device_id;
    d->owns_stream = options->stream == NULL;
    d->number = dummy_stream_open(d->id, options->stream, &d->stream);
    if (d->number < 0) {
        tartan_dummy_host->free(d);
        return tartan_dummy_host->fail(TARTAN_ERR_DEVICE, function, "the dummy has %d streams",
                                       DUMMY_STREAMS);
    }
    tartan_dummy.opened++;
    *out_device = d;
    return TARTAN_OK;
}

static void close(void *of) {
    device *d = of;
    dummy_stream_drained(d->number);
    if (d->owns_stream) dummy_stream_close(d->number);
    tartan_dummy.closed++;
    tartan_dummy_host->free(d);
}

static void *stream_of(void *d) {
    return ((device *)d)->stream;
}

static tartan_status wait(const char *function, int32_t device_id, void *stream, int32_t first_device_id,
                          void *first) {
    void *same;
    PASS(check_lost(function, device_id));
    const int later = dummy_stream_open(device_id, stream, &same),
              earlier = dummy_stream_open(first_device_id, first, &same);
    dummy_stream_after(later, earlier);
    tartan_dummy.waits++;
    return TARTAN_OK;
}

/* Work of a stream with the memory at `pointer`, if that is the device's; it knows what it must wait for. */
static tartan_status work_on(const char *function, const device *d, const void *pointer, bool writes) {
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

/* What is given back must be done with, for the stream in whose order that happens or else for the host. */
static void check_release(const void *of, dummy_marks *marks) {
    const device *d = of;
    if (tartan_dummy.lost || environment("TARTAN_DUMMY_LOST") != NULL) return;
    if (d != NULL ? dummy_stream_works(d->number, marks, true) : dummy_all_done(marks)) return;
    fprintf(stderr, "the dummy device: memory is released while a stream may be at work on it\n");
    abort();
}

static tartan_status sync(const char *function, void *d) {
    PASS(check_lost(function, ((device *)d)->id));
    if (tartan_dummy.at_work != NULL) tartan_dummy.at_work();
    tartan_dummy.synced++;
    dummy_stream_drained(((device *)d)->number);
    return fail_once(function, "sync");
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
        memset(b->memory, 0xa5,
               (size_t)b->mapped); /* a NaN in every dtype's way: nothing may rely on zeros */
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

static tartan_status allocate(const char *function, void *d, int64_t bytes, void **out_pointer,
                              void **out_owner) {
    block *b;
    *out_pointer = *out_owner = NULL;
    PASS(check_lost(function, ((device *)d)->id));
    PASS(tartan_dummy_host->allocate(&b, 1, sizeof *b));
    *b = (block){.bytes = bytes, .mapped = bytes / PAGE * PAGE + PAGE, .device_id = ((device *)d)->id};
    const tartan_status status = enter(function, b);
    if (status != TARTAN_OK) {
        tartan_dummy_host->free(b);
        return status;
    }
    *out_pointer = b->memory;
    *out_owner = b;
    return TARTAN_OK;
}

static void release(void *owner, void *d) {
    block *b = owner;
    if (b == NULL) return;
    check_release(d, &b->marks);
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

/* Refuses what is not the device's where it should be, or is where it should not. */
static tartan_status check_pointer(const char *function, const char *name, int32_t device_id, const void *p,
                                   int64_t bytes, bool on_device) {
    if (bytes == 0) return TARTAN_OK;
    if (on_device ? is_ours(device_id, p, bytes, true) : !is_ours(-1, p, bytes, false)) return TARTAN_OK;
    return tartan_dummy_host->fail(TARTAN_ERR_INTERNAL, function, "%s at %p is %s dummy:%d", name, p,
                                   on_device ? "no memory of device" : "not the host's but memory of device",
                                   device_id);
}

static tartan_status copy(const char *function, void *d, void *to, const void *from, int64_t bytes,
                          tartan_copy_kind kind) {
    const int32_t id = ((device *)d)->id;
    PASS(check_lost(function, id));
    PASS(check_pointer(function, "the copy's target", id, to, bytes, kind != TARTAN_COPY_TO_HOST));
    PASS(check_pointer(function, "the copy's source", kind == TARTAN_COPY_ON_DEVICE ? -1 : id, from, bytes,
                       kind != TARTAN_COPY_TO_DEVICE));
    PASS(work_on(function, d, from, false));
    PASS(work_on(function, d, to, true));
    begin_use();
    memcpy(to, from, (size_t)bytes);
    end_use();
    if (kind == TARTAN_COPY_TO_HOST) dummy_stream_drained(((device *)d)->number);
    return TARTAN_OK;
}

static tartan_status clear(const char *function, void *d, void *to, int64_t bytes) {
    PASS(check_lost(function, ((device *)d)->id));
    PASS(check_pointer(function, "what to clear", ((device *)d)->id, to, bytes, true));
    PASS(work_on(function, d, to, true));
    begin_use();
    memset(to, 0, (size_t)bytes);
    end_use();
    return TARTAN_OK;
}

static bool supports(void *d, const tartan_op *op, const char **out_reason) {
    (void)d;
    (void)op;
    *out_reason = tartan_dummy.refusal;
    return tartan_dummy.refusal == NULL;
}

static tartan_status explain(const tartan_context *context, const tartan_op *op, tartan_i_text *text) {
    PASS(check_lost(op->function, ((device *)context->device)->id));
    tartan_dummy_host->text_add(text,
                                "\"kernel\": \"plain\", \"why\": \"the dummy has no other\", "
                                "\"refused\": [{\"kernel\": \"dense\", \"why\": \"%s\"}], "
                                "\"expected_tflops\": null",
                                context->options.allow_dense
                                    ? "the dummy has no cuBLAS"
                                    : "uses a dense copy of a, which the context does not allow");
    return text->status;
}

/* ---- Layouts whose blocks change. The index sets are the CPU's; who works with them is noted beside them. ---- */

typedef struct index_note {
    struct index_note *next;
    void *index;
    dummy_marks marks;
} index_note;
static index_note *notes;

static tartan_status work_on_index(const char *function, const device *d, const void *index, bool writes) {
    bool ordered = true;
    pthread_mutex_lock(&lock);
    for (index_note *n = notes; n != NULL; n = n->next)
        if (n->index == index) ordered = dummy_stream_works(d->number, &n->marks, writes);
    pthread_mutex_unlock(&lock);
    if (ordered) return TARTAN_OK;
    return tartan_dummy_host->fail(TARTAN_ERR_INTERNAL, function,
                                   "stream %p %s index sets while another stream may be at work on them",
                                   d->stream, writes ? "writes" : "reads");
}

static tartan_status index_create(const char *function, void *d, const tartan_layout *layout,
                                  void **out_index) {
    index_note *note;
    PASS(check_lost(function, ((device *)d)->id));
    PASS(tartan_dummy_host->allocate(&note, 1, sizeof *note));
    memset(note, 0, sizeof *note);
    const tartan_status status = tartan_dummy_host->cpu->index_create(function, NULL, layout, out_index);
    if (status != TARTAN_OK) {
        tartan_dummy_host->free(note);
        return status;
    }
    note->index = *out_index;
    pthread_mutex_lock(&lock);
    note->next = notes;
    notes = note;
    pthread_mutex_unlock(&lock);
    return TARTAN_OK;
}

static void index_release(void *index, void *d) {
    pthread_mutex_lock(&lock);
    index_note **link = &notes, *note;
    while ((*link)->index != index) link = &(*link)->next;
    note = *link;
    *link = note->next;
    pthread_mutex_unlock(&lock);
    check_release(d, &note->marks);
    tartan_dummy_host->free(note);
    tartan_dummy_host->cpu->index_release(index, NULL);
}

static tartan_status index_from_mask(const char *function, void *d, void *index, const void *mask) {
    const int32_t id = ((device *)d)->id;
    PASS(check_lost(function, id));
    if (mask != NULL &&
        !is_ours(id, mask, 1, false)) /* its length is not known here; pages guard what follows it */
        return tartan_dummy_host->fail(TARTAN_ERR_INTERNAL, function,
                                       "the mask at %p is no memory of device dummy:%d", mask, id);
    PASS(work_on(function, d, mask, false));
    PASS(work_on_index(function, d, index, true));
    begin_use();
    const tartan_status status = tartan_dummy_host->cpu->index_from_mask(function, NULL, index, mask);
    end_use();
    tartan_dummy.planned++;
    return status;
}

static tartan_status index_fetch(const char *function, void *d, void *index, int64_t *out_blocks,
                                 int64_t *out_row_pointers, int32_t *out_block_cols) {
    PASS(work_on_index(function, d, index, false));
    PASS(sync(function, d));
    return tartan_dummy_host->cpu->index_fetch(function, NULL, index, out_blocks, out_row_pointers,
                                               out_block_cols);
}

/* ---- Operations: all operands must be in the device's memory ---- */

static int64_t bytes_of_dtype(int32_t dtype) {
    return dtype == TARTAN_F64 ? 8 : dtype == TARTAN_F32 ? 4 : tartan_i_is_f8(dtype) ? 1 : 2;
}

static tartan_status check_array(const char *function, int32_t id, const char *name, const tartan_array *a) {
    int64_t first = 0, last = 0;
    for (int32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] == 0) return TARTAN_OK;
        const int64_t span = (a->shape[i] - 1) * a->strides[i];
        *(span < 0 ? &first : &last) += span;
    }
    const int64_t bytes = bytes_of_dtype(a->dtype);
    return check_pointer(function, name, id, (const char *)a->data + first * bytes,
                         (last - first + 1) * bytes, true);
}

static tartan_status check_operand(const char *function, const device *d, const tartan_i_operand *one) {
    const tartan_matrix *m = one->matrix;
    if (one->array != NULL) return check_array(function, d->id, one->name, one->array);
    if (m == NULL)
        return check_pointer(function, one->name, d->id, one->list, one->length * (int64_t)sizeof *one->list,
                             true);
    return check_pointer(function, one->name, d->id, m->values,
                         m->layout->blocks * tartan_i_block_elements(m) * bytes_of_dtype(m->dtype), true);
}

static tartan_status work_on_operand(const char *function, const device *d, const tartan_i_operand *one) {
    const tartan_matrix *m = one->matrix;
    if (m != NULL && tartan_i_is_dynamic(m->layout))
        PASS(work_on_index(function, d, m->layout->index, false));
    return work_on(function, d,
                   m != NULL            ? m->values
                   : one->array != NULL ? one->array->data
                                        : one->list,
                   one->written);
}

static tartan_status begin_operation(const tartan_context *context, const tartan_op *op) {
    const device *d = context->device;
    tartan_i_operand operands[TARTAN_I_MAX_OPERANDS];
    const int32_t count = tartan_dummy_host->operands(op, operands);
    PASS(check_lost(op->function, d->id));
    for (int32_t i = 0; i < count; i++) PASS(check_operand(op->function, d, &operands[i]));
    for (int32_t i = 0; i < count; i++) PASS(work_on_operand(op->function, d, &operands[i]));
    if (tartan_dummy.at_work != NULL) tartan_dummy.at_work();
    begin_use();
    return TARTAN_OK;
}

#define RUN(NAME, name)                                                                                      \
    static tartan_status run_##name(const tartan_context *context, const tartan_op_##name *op) {             \
        const tartan_op any = {.kind = TARTAN_OP_##NAME, .name = *op};                                       \
        PASS(begin_operation(context, &any));                                                                \
        const tartan_status status = tartan_dummy_host->cpu->name(context, op);                              \
        end_use();                                                                                           \
        return status;                                                                                       \
    }
TARTAN_I_OPERATIONS(RUN)

static const tartan_backend backend = {
    .abi = TARTAN_BACKEND_ABI,
    .name = "dummy",
    .device_type = TARTAN_CUDA,
    .devices = devices,
    .describe = describe,
    .open = open,
    .close = close,
    .sync = sync,
    .stream = stream_of,
    .wait = wait,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .clear = clear,
    .index_create = index_create,
    .index_from_mask = index_from_mask,
    .index_fetch = index_fetch,
    .index_release = index_release,
    .supports = supports,
#define SLOT(NAME, name) .name = run_##name,
    TARTAN_I_OPERATIONS(SLOT).explain = explain,
};

__attribute__((visibility("default"))) const tartan_backend *tartan_plugin_get(const tartan_host *host) {
    tartan_dummy_host = host;
    return &backend;
}
