/* SPDX-License-Identifier: Apache-2.0
 * The dummy device's memory: pages of their own for each allocation, which the processor may touch only between begin_use
 * and end_use. */
#ifndef TARTAN_TESTS_DUMMY_MEMORY_H
#define TARTAN_TESTS_DUMMY_MEMORY_H

#include "dummy_backend.h"
#include "dummy_order.h"

extern const tartan_host *tartan_dummy_host;

/* What a context has of the backend. */
typedef struct dummy_device {
    int32_t id;
    void *stream;
    int number; /* of the stream, see dummy_order.h */
    bool owns_stream;
} dummy_device;

tartan_status dummy_check_lost(const char *function, int32_t device_id);
void dummy_begin_use(void);
void dummy_end_use(void);

/* Whether all of [begin, begin + bytes) is (or some of it is) in one allocation of the device; -1: of any. */
bool dummy_owns(int32_t device_id, const void *begin, int64_t bytes, bool all);

/* Refuses a pointer that should be device memory but is not, or the reverse. */
tartan_status dummy_check_pointer(const char *function, const char *name, int32_t device_id, const void *p,
                                  int64_t bytes, bool on_device);

/* Records work of a stream on the device memory at `pointer`; fails if a wait is missing. */
tartan_status dummy_work_on(const char *function, const dummy_device *d, const void *pointer, bool writes);

/* No work on released memory may be pending, in the order of the releasing stream or else for the host. */
void dummy_check_release(const void *of, const dummy_marks *marks);

/* For the table. */
tartan_status dummy_allocate(const char *function, void *d, int64_t bytes, void **out_pointer,
                             void **out_owner);
void dummy_release(void *owner, void *d);
tartan_status dummy_scratch(const char *function, void *d, int64_t bytes, void **out);
void dummy_scratch_free(void *d, void *memory);
tartan_status dummy_copy(const char *function, void *d, void *to, const void *from, int64_t bytes,
                         tartan_copy_kind kind);
tartan_status dummy_clear(const char *function, void *d, void *to, int64_t bytes);

#endif
