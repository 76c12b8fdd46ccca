/* SPDX-License-Identifier: Apache-2.0
 * The backend table: whole operations on whole matrices. "cpu" is built in; others are plug-ins. */
#ifndef TARTAN_BACKEND_BACKEND_H
#define TARTAN_BACKEND_BACKEND_H

#include "backend/operation_parts.h"
#include "core/context.h"
#include "core/memory.h"
#include "layout/plans.h"

enum { TARTAN_BACKEND_ABI = 26 };

typedef enum tartan_copy_kind {
    TARTAN_COPY_TO_DEVICE, /* returns when the source may change */
    TARTAN_COPY_TO_HOST,   /* waits for the queue's earlier work; returns when the copy is there */
    TARTAN_COPY_ON_DEVICE, /* enqueued; the source may be memory of another device of the backend */
} tartan_copy_kind;

/* The outcome of one stream's wait for another. */
typedef enum tartan_wait {
    TARTAN_WAIT_ON_DEVICE, /* the stream waits */
    TARTAN_WAIT_IN_GRAPH,  /* both are being captured in one graph, whose replays wait; nothing waits now */
    TARTAN_WAIT_ON_HOST, /* nothing was done: the stream is being captured and `first` is not; drain `first` */
} tartan_wait;

/* Every function may fail, but only before it has changed anything. `device` is what open returned. No slot is NULL
 * unless its comment says so. */
typedef struct tartan_backend tartan_backend;
struct tartan_backend {
    int32_t abi; /* TARTAN_BACKEND_ABI */
    const char *name;
    int32_t device_type;
    /* The number of devices; `out_reason` (static text) says why there are none. */
    int32_t (*devices)(const char **out_reason);
    /* JSON object with numbers and texts that describe device i, into text of `size` bytes, for `tartan info`. */
    void (*describe)(int32_t i, char *text, int64_t size);
    tartan_status (*open)(const char *function, const tartan_i_context_options *options, void **out_device);
    void (*close)(void *device);
    /* `stream` returns the stream of an open device. `wait` makes later work of `stream` start after the earlier work
     * of `first`. `drain` makes the host wait for all work of a stream. Any thread may call the last two; nothing can
     * wait for a stream that is being captured in another graph (UNSUPPORTED). All three slots are NULL if the
     * backend's work is done when a call returns. */
    void *(*stream)(void *device);
    tartan_status (*wait)(const char *function, int32_t device_id, void *stream, int32_t first_device_id,
                          void *first, tartan_wait *out_wait);
    tartan_status (*drain)(const char *function, int32_t device_id, void *stream);
    /* Memory in the order of the queue: later work of the device may use *out_pointer. Any thread may call release
     * with *out_owner; `device` is then an open one of the same device_id, whose later work may reuse the memory,
     * or NULL if no work uses it any more. `bytes` may be 0 here, but not in copy and clear. */
    tartan_status (*allocate)(const char *function, void *device, int64_t bytes, void **out_pointer,
                              void **out_owner);
    void (*release)(void *owner, void *device);
    /* Memory for one call, in the order of the queue; the call frees it before it returns. Unlike `allocate`, it
     * also works during a graph capture. Both slots are NULL where calls use the workspace of the context
     * (CPU). */
    tartan_status (*scratch)(const char *function, void *device, int64_t bytes, void **out);
    void (*scratch_free)(void *device, void *memory);
    tartan_status (*copy)(const char *function, void *device, void *to, const void *from, int64_t bytes,
                          tartan_copy_kind kind);
    tartan_status (*clear)(const char *function, void *device, void *to, int64_t bytes);
    /* The index sets of a dynamic layout. index_create makes them, without blocks, for the frame and capacity of
     * `layout`. index_from_mask fills them from a mask of bytes in the device's memory (NULL: an empty mask), in
     * the order of the queue; index_from_scores does so from the k >= 1 largest scores of each block row, as
     * tartan_layout_from_device_scores says: of f64, f32, f16 or bf16, row-major, and never more blocks than the
     * capacity. index_fetch copies the row lists to the host: pointers [heads * grid_rows + 1], as many columns as
     * the last pointer, and the number of blocks in the mask (if that exceeds the capacity, all pointers are 0).
     * index_release is like release. A new source of blocks is a new index_from_... slot. The slots are NULL if the
     * backend has no dynamic layouts. */
    tartan_status (*index_create)(const char *function, void *device, const tartan_layout *layout,
                                  void **out_index);
    tartan_status (*index_from_mask)(const char *function, void *device, void *index, const void *mask);
    tartan_status (*index_from_scores)(const char *function, void *device, void *index, const void *scores,
                                       int32_t dtype, int64_t k);
    tartan_status (*index_fetch)(const char *function, void *device, void *index, int64_t *out_blocks,
                                 int64_t *out_row_pointers, int32_t *out_block_cols);
    void (*index_release)(void *index, void *device);
    /* Whether the backend can run the operation; `out_reason` (static text) says why not. */
    bool (*supports)(void *device, const tartan_op *op, const char **out_reason);
    /* Runs an operation that it supports; op->operands lists what that uses. */
    tartan_status (*run)(const tartan_context *context, const tartan_op *op);
    /* Appends to `text` the members of a JSON object, without its braces: "kernel", "why", "refused": [{"kernel",
     * "why"}], "expected_tflops" (number or null). */
    tartan_status (*explain)(const tartan_context *context, const tartan_op *op, tartan_i_text *text);
};

/* The functions of the loading library that a plug-in may call; the library exports no internal symbols. */
typedef struct tartan_host {
    int32_t abi; /* TARTAN_BACKEND_ABI */
    tartan_status (*fail)(tartan_status status, const char *function, const char *format, ...);
    tartan_status (*allocate)(void *out_pointer, int64_t count, int64_t size);
    void (*free)(void *pointer);
    void (*text_add)(tartan_i_text *text, const char *format, ...);
    tartan_status (*plan)(const tartan_layout *layout, const tartan_i_plan_key *key, tartan_i_plan_make make,
                          void *user, void (*release)(void *plan), void **out);
    tartan_status (*mask_plan)(const tartan_block_mask *block_mask, const tartan_i_plan_key *key,
                               tartan_i_plan_make make, void *user, void (*release)(void *plan), void **out);
    const tartan_backend *cpu; /* for devices whose memory the CPU can read while they work */
    tartan_status (*columns)(const tartan_layout *layout,
                             const tartan_i_columns **out); /* tartan_i_layout_columns */
} tartan_host;

/* The backend of a device type, loaded on first use; NULL with a reason if there is none. */
const tartan_backend *tartan_i_backend_find(int32_t device_type, const char **out_reason);

extern const tartan_backend tartan_i_backend_cpu;

/* The host table that the registry passes to plug-ins. */
extern const tartan_host tartan_i_host;

/* For tests: use this backend for a device type (NULL: the usual one). */
void tartan_i_backend_install(int32_t device_type, const tartan_backend *backend);

/* Whether the context's backend can run the operation; `out_reason` (static text) says why not. */
bool tartan_i_backend_supports(const tartan_context *context, const tartan_op *op, const char **out_reason);

/* Whether this thread is between tartan_explain_begin and tartan_explain_end; and the description of one operation. */
bool tartan_i_explaining(void);
tartan_status tartan_i_explain(const tartan_context *context, const tartan_op *op);

/* Runs the operation on the context's backend if it supports it, with a list of operands unless it has one. lib/device/run.h
 * orders it after other queues' work. */
tartan_status tartan_i_backend_run(const tartan_context *context, const tartan_op *op);

/* Plug-ins export this as tartan_plugin_get. `host` lives as long as the process. A plug-in that was made for another
 * host->abi uses nothing of the host but still returns its table, so that the host can report both numbers. */
typedef const tartan_backend *(*tartan_plugin_get_function)(const tartan_host *host);

#endif
