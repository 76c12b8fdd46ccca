/* SPDX-License-Identifier: Apache-2.0
 * A backend that poses as a CUDA device with its own memory; the CPU backend runs its operations. It stands in for
 * a device in the C++ tests (installed in the process) and in those of the languages (as a plug-in, see
 * dummy_plugin/). Its memory is accessible only while one of its own functions runs: any other access crashes, and
 * pointers that are not its memory are refused (INTERNAL). It does not link libtartan. */
#ifndef TARTAN_TESTS_DUMMY_BACKEND_H
#define TARTAN_TESTS_DUMMY_BACKEND_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/backend.h"
#include "backend/operation.h"

enum { TARTAN_DUMMY_DEVICES = 2 };

/* Its counters and switches. Programs without access to it, such as the languages, have two environment variables,
 * read at each call: TARTAN_DUMMY_LOST (not empty: `lost`) and TARTAN_DUMMY_BYTES (the memory of a device in bytes;
 * allocations beyond it fail with MEMORY). */
typedef struct tartan_dummy_state {
    int64_t opened, closed, synced, waits;
    void *drained;             /* the stream that the host waited for last */
    int64_t planned;           /* masks made into index sets */
    int64_t live;              /* allocations not yet released */
    int64_t asked, fail_at;    /* requested allocations; the one that fails, counted from 0 (-1: none) */
    bool lost;                 /* every call fails with DEVICE */
    bool fail_next;            /* the next open or drain fails with DEVICE, once */
    void (*before_work)(void); /* called by run before anything is enqueued, or NULL */
    void (*at_work)(void);     /* called by run, drain and copies to the host, or NULL */
    const char *refusal;       /* supports says no for this reason, or NULL */
} tartan_dummy_state;
extern tartan_dummy_state tartan_dummy;

/* The plug-in's export. */
const tartan_backend *tartan_plugin_get(const tartan_host *host);

/* Another library on the device, for the tests of the languages: memory that Tartan does not know (NULL: there is no more),
 * and work with any memory on streams of its own. `works` and `free` return 0 if the stream did not wait for all that it
 * should have. And how often the host waited for a stream. The plug-in exports these too. */
#define DUMMY_EXPORT __attribute__((visibility("default")))
DUMMY_EXPORT void *dummy_foreign_new(int32_t device_id, int64_t bytes);
DUMMY_EXPORT void dummy_foreign_copy(void *to, const void *from, int64_t bytes);
DUMMY_EXPORT void dummy_foreign_wait(int32_t device_id, void *stream, void *first);
DUMMY_EXPORT int32_t dummy_foreign_works(int32_t device_id, void *stream, const void *memory, int32_t writes);
DUMMY_EXPORT int32_t dummy_foreign_free(int32_t device_id, void *stream, void *memory);
DUMMY_EXPORT int64_t dummy_times_synced(void);

#ifdef __cplusplus
}
#endif
#endif
