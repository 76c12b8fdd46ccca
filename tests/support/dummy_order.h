/* SPDX-License-Identifier: Apache-2.0
 * Checks the order of work on the dummy device, which itself runs everything at once: each stream has a clock that
 * counts its own work and the work of other streams that it has waited for, directly or through the host. Work on
 * memory that another stream may still be using is refused (INTERNAL), because a wait is missing. */
#ifndef TARTAN_TESTS_DUMMY_ORDER_H
#define TARTAN_TESTS_DUMMY_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum { DUMMY_STREAMS = 128 };

/* Which streams used a piece of memory or index sets; zero-initialised: none. */
typedef struct dummy_marks {
    struct {
        int64_t time;
        uint32_t life; /* of the stream; the work of earlier generations has ended */
    } read[DUMMY_STREAMS], written[DUMMY_STREAMS];
} dummy_marks;

/* The number of the stream at that address of a device, or -1 if there are too many. For address NULL a new stream
 * is made; *out_address is its address. */
int dummy_stream_open(int32_t device_id, void *address, void **out_address);

/* Closes a stream made by dummy_stream_open: its work has ended, its number is free. */
void dummy_stream_close(int stream);

/* The host has waited for the stream. The other function: later work of `stream` starts after the earlier work of
 * `first`. */
void dummy_stream_drained(int stream);
void dummy_stream_after(int stream, int first);

/* Records work of the stream on the memory; false if a wait is missing. */
bool dummy_stream_works(int stream, dummy_marks *marks, bool writes);

/* Whether the host knows that all work on the memory has ended. */
bool dummy_all_done(const dummy_marks *marks);

#endif
