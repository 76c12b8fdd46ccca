/* SPDX-License-Identifier: Apache-2.0
 * The dummy device: memory, queue, table. The CPU backend runs its operations while its memory is accessible. */
#include "dummy_memory.h"

#include "core/dtype.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tartan_dummy_state tartan_dummy = {.fail_at = -1};

/* ---- The functions of the table ---- */

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
    dummy_device *d;
    *out_device = NULL;
    PASS(dummy_check_lost(function, options->device_id));
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
    dummy_device *d = of;
    dummy_stream_drained(d->number);
    if (d->owns_stream) dummy_stream_close(d->number);
    tartan_dummy.closed++;
    tartan_dummy_host->free(d);
}

static void *stream_of(void *d) {
    return ((dummy_device *)d)->stream;
}

static const char captured[] = "cannot wait for a stream of the dummy during its graph capture";

static tartan_status wait(const char *function, int32_t device_id, void *stream, int32_t first_device_id,
                          void *first, tartan_wait *out_wait) {
    PASS(dummy_check_lost(function, device_id));
    const int wait = dummy_wait(device_id, stream, first_device_id, first);
    if (wait < 0) return tartan_dummy_host->fail(TARTAN_ERR_UNSUPPORTED, function, captured);
    *out_wait = (tartan_wait)wait;
    if (wait != TARTAN_WAIT_ON_HOST) tartan_dummy.waits++;
    return TARTAN_OK;
}

static tartan_status drain(const char *function, int32_t device_id, void *stream) {
    PASS(dummy_check_lost(function, device_id));
    tartan_dummy.drained = stream;
    if (!dummy_drain(device_id, stream))
        return tartan_dummy_host->fail(TARTAN_ERR_UNSUPPORTED, function, captured);
    if (tartan_dummy.at_work != NULL) tartan_dummy.at_work();
    tartan_dummy.synced++;
    return fail_once(function, "drain");
}

static bool supports(void *d, const tartan_op *op, const char **out_reason) {
    (void)d;
    *out_reason = tartan_dummy.refusal;
    return tartan_dummy.refusal == NULL && tartan_dummy_host->cpu->supports(NULL, op, out_reason);
}

static tartan_status explain(const tartan_context *context, const tartan_op *op, tartan_i_text *text) {
    PASS(dummy_check_lost(op->function, ((dummy_device *)context->device)->id));
    tartan_dummy_host->text_add(text,
                                "\"kernel\": \"plain\", \"why\": \"the dummy has no other\", "
                                "\"refused\": [{\"kernel\": \"dense\", \"why\": \"%s\"}], "
                                "\"expected_tflops\": null",
                                context->options.allow_dense
                                    ? "the dummy has no cuBLAS"
                                    : "uses a dense copy of a, which the context does not allow");
    return text->status;
}

/* ---- Dynamic layouts. The index sets are the CPU's; a note beside them records which streams use them. ---- */

typedef struct index_note {
    struct index_note *next;
    void *index;
    dummy_marks marks;
} index_note;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static index_note *notes;

static tartan_status work_on_index(const char *function, const dummy_device *d, const void *index,
                                   bool writes) {
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
    PASS(dummy_check_lost(function, ((dummy_device *)d)->id));
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
    dummy_check_release(d, &note->marks);
    tartan_dummy_host->free(note);
    tartan_dummy_host->cpu->index_release(index, NULL);
}

/* From a mask or, if k > 0, from scores. */
static tartan_status fill_index(const char *function, void *d, void *index, const void *source, int32_t dtype,
                                int64_t k) {
    const int32_t id = ((dummy_device *)d)->id;
    const tartan_backend *cpu = tartan_dummy_host->cpu;
    PASS(dummy_check_lost(function, id));
    if (source != NULL &&
        !dummy_owns(id, source, 1, false)) /* its length is not known here; guard pages follow it */
        return tartan_dummy_host->fail(TARTAN_ERR_INTERNAL, function,
                                       "the %s at %p are no memory of device dummy:%d",
                                       k > 0 ? "scores" : "bytes of the mask", source, id);
    PASS(dummy_work_on(function, d, source, false));
    PASS(work_on_index(function, d, index, true));
    dummy_begin_use();
    const tartan_status status = k > 0 ? cpu->index_from_scores(function, NULL, index, source, dtype, k)
                                       : cpu->index_from_mask(function, NULL, index, source);
    dummy_end_use();
    tartan_dummy.planned++;
    return status;
}

static tartan_status index_from_mask(const char *function, void *d, void *index, const void *mask) {
    return fill_index(function, d, index, mask, TARTAN_U8, 0);
}

static tartan_status index_from_scores(const char *function, void *d, void *index, const void *scores,
                                       int32_t dtype, int64_t k) {
    return fill_index(function, d, index, scores, dtype, k);
}

static tartan_status index_fetch(const char *function, void *d, void *index, int64_t *out_blocks,
                                 int64_t *out_row_pointers, int32_t *out_block_cols) {
    PASS(work_on_index(function, d, index, false));
    PASS(drain(function, ((dummy_device *)d)->id, ((dummy_device *)d)->stream));
    return tartan_dummy_host->cpu->index_fetch(function, NULL, index, out_blocks, out_row_pointers,
                                               out_block_cols);
}

/* ---- Operations: all operands must be in the device's memory ---- */

static int64_t bytes_of_dtype(int32_t dtype) {
    return dtype == TARTAN_F64                           ? 8
           : dtype == TARTAN_F32                         ? 4
           : tartan_i_is_f8(dtype) || dtype == TARTAN_U8 ? 1
                                                         : 2;
}

static tartan_status check_array(const char *function, int32_t id, const char *name, const tartan_array *a) {
    int64_t first = 0, last = 0;
    for (int32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] == 0) return TARTAN_OK;
        const int64_t span = (a->shape[i] - 1) * a->strides[i];
        *(span < 0 ? &first : &last) += span;
    }
    const int64_t bytes = bytes_of_dtype(a->dtype);
    return dummy_check_pointer(function, name, id, (const char *)a->data + first * bytes,
                               (last - first + 1) * bytes, true);
}

static tartan_status check_operand(const char *function, const dummy_device *d, const tartan_i_operand *one) {
    const tartan_matrix *m = one->matrix;
    for (int64_t i = 0; i < one->arrays; i++) PASS(check_array(function, d->id, one->name, &one->array[i]));
    if (one->array != NULL) return TARTAN_OK;
    if (m == NULL)
        return dummy_check_pointer(function, one->name, d->id, one->list,
                                   one->length * (int64_t)sizeof *one->list, true);
    return dummy_check_pointer(function, one->name, d->id, m->values,
                               m->layout->blocks * tartan_i_block_elements(m) * bytes_of_dtype(m->dtype),
                               true);
}

/* Without an element nobody works. */
static bool is_empty_array(const tartan_array *a) {
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] == 0) return true;
    return false;
}
static bool is_empty(const tartan_i_operand *one) {
    return one->matrix != NULL ? one->matrix->layout->blocks == 0 : one->length == 0;
}

static tartan_status work_on_operand(const char *function, const dummy_device *d,
                                     const tartan_i_operand *one) {
    const tartan_matrix *m = one->matrix;
    const tartan_layout *layout = m != NULL ? m->layout : one->layout;
    if (layout != NULL && tartan_i_is_dynamic(layout)) PASS(work_on_index(function, d, layout->index, false));
    for (int64_t i = 0; i < one->arrays; i++)
        if (!is_empty_array(&one->array[i]))
            PASS(dummy_work_on(function, d, one->array[i].data, one->written));
    if (one->array != NULL || is_empty(one)) return TARTAN_OK;
    return dummy_work_on(function, d, m != NULL ? m->values : one->list, one->written);
}

static tartan_status begin_operation(const tartan_context *context, const tartan_op *op) {
    const dummy_device *d = context->device;
    if (tartan_dummy.before_work != NULL) tartan_dummy.before_work();
    PASS(dummy_check_lost(op->function, d->id));
    for (int32_t i = 0; i < op->noperands; i++) PASS(check_operand(op->function, d, &op->operands[i]));
    for (int32_t i = 0; i < op->noperands; i++) PASS(work_on_operand(op->function, d, &op->operands[i]));
    if (tartan_dummy.at_work != NULL) tartan_dummy.at_work();
    dummy_begin_use();
    return TARTAN_OK;
}

static tartan_status run(const tartan_context *context, const tartan_op *op) {
    PASS(begin_operation(context, op));
    const tartan_status status = tartan_dummy_host->cpu->run(context, op);
    dummy_end_use();
    return status;
}

static const tartan_backend backend = {
    .abi = TARTAN_BACKEND_ABI,
    .name = "dummy",
    .device_type = TARTAN_CUDA,
    .devices = devices,
    .describe = describe,
    .open = open,
    .close = close,
    .stream = stream_of,
    .wait = wait,
    .drain = drain,
    .allocate = dummy_allocate,
    .release = dummy_release,
    .scratch = dummy_scratch,
    .scratch_free = dummy_scratch_free,
    .copy = dummy_copy,
    .clear = dummy_clear,
    .index_create = index_create,
    .index_from_mask = index_from_mask,
    .index_from_scores = index_from_scores,
    .index_fetch = index_fetch,
    .index_release = index_release,
    .supports = supports,
    .run = run,
    .explain = explain,
};

__attribute__((visibility("default"))) const tartan_backend *tartan_plugin_get(const tartan_host *host) {
    if (host->abi == TARTAN_BACKEND_ABI) tartan_dummy_host = host;
    return &backend;
}
