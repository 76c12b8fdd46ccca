/* SPDX-License-Identifier: Apache-2.0
 * Device memory and index sets that Tartan owns: which queues may still be working on them, and which calls use
 * them now.
 *
 * Operands are descriptors, which may be slices of anything, so memory is looked up by its address. A call names
 * what it uses before it calls the backend. Its queue then waits for queues that write what it uses or read what it
 * writes, and nothing it uses is released before it returns, whoever frees it. Memory of other libraries is not
 * tracked; the caller orders work on it (tartan_context_wait_stream). */
#ifndef TARTAN_DEVICE_RESOURCE_H
#define TARTAN_DEVICE_RESOURCE_H

#include "device/queue.h"

enum { TARTAN_I_READERS = 4 };

typedef struct tartan_i_resource tartan_i_resource;
struct tartan_i_resource {
    tartan_i_resource *left, *right; /* treap by address; unused for index sets */
    char *begin, *end;               /* of the memory; NULL for index sets */
    const tartan_backend *backend;
    int32_t device_id;
    uint64_t home;          /* the queue that allocated it */
    tartan_i_mark writer;   /* the last call that wrote it */
    tartan_i_mark *readers; /* the last call of each queue that read it since: `few`, or allocated */
    int32_t room;           /* for readers */
    tartan_i_mark few[TARTAN_I_READERS];
    int32_t calls;                  /* calls that use it now */
    bool freed;                     /* the last call releases it */
    tartan_i_resource *next_parked; /* on a queue */
    void *owner;                    /* the backend's owner of the memory, or the index sets */
};

/* Memory of the context's device; the context's current call counts as its writer. Errors: MEMORY, those of the
 * backend. */
tartan_status tartan_i_resource_allocate(const char *function, tartan_context *context, int64_t bytes,
                                         tartan_i_resource **out);

/* Takes ownership of index sets on success. Errors: MEMORY. */
tartan_status tartan_i_resource_of_index(tartan_context *context, void *index, tartan_i_resource **out);

/* Releases a resource (a tartan_i_resource; NULL is allowed) after all work on it, from any thread at any time. */
void tartan_i_resource_free(void *resource);

/* Tries again to release what was parked on the context's queue; the caller has entered the context. */
void tartan_i_resource_retry(const tartan_context *context);

/* Takes a context off its queue. */
void tartan_i_resource_leave_queue(tartan_context *context);

/* ---- Calls ---- */

enum { TARTAN_I_MAX_USES = TARTAN_I_MAX_OPERANDS + 4 };

typedef struct tartan_i_use {
    const void *address; /* or NULL */
    tartan_i_resource *resource;
    bool written;
} tartan_i_use;

typedef struct tartan_i_call {
    const char *function;
    tartan_context *context;
    int64_t uses, ordered, room; /* of `use` */
    tartan_i_use *use;           /* `few`, or allocated */
    tartan_i_use few[TARTAN_I_MAX_USES];
} tartan_i_call;

/* Enters the context and numbers the call. Errors: ARGUMENT (another thread is inside). */
tartan_status tartan_i_call_enter(const char *function, tartan_context *context, tartan_i_call *out);

/* Before the operands of an operation are named, so many arrays among them, makes room for all. Errors: MEMORY. */
tartan_status tartan_i_call_expect_arrays(tartan_i_call *call, int64_t count);

/* Name what the call uses. For a matrix these are its values and the index sets of a dynamic layout. */
void tartan_i_call_uses_array(tartan_i_call *call, const tartan_array *array, bool written);
void tartan_i_call_uses_matrix(tartan_i_call *call, const tartan_matrix *matrix, bool written);
void tartan_i_call_uses_layout(tartan_i_call *call, const tartan_layout *layout, bool written);

/* Orders the call after other queues' work on everything named since the last call of this function; then the
 * backend may use it. Errors: MEMORY, DEVICE, UNSUPPORTED (a stream that is being captured in another graph). */
tartan_status tartan_i_call_order(tartan_i_call *call);

/* Leaves the context. */
void tartan_i_call_leave(tartan_i_call *call);

#endif
