/* SPDX-License-Identifier: Apache-2.0
 * The order of work on the dummy device, which does everything at once but knows what a real one need not: each stream has
 * a clock that counts its own work and what it knows of the others', by waits and by the host. Work on memory that
 * another stream may still be at work on is refused (INTERNAL): a wait is missing. */
#ifndef TARTAN_TESTS_DUMMY_ORDER_H
#define TARTAN_TESTS_DUMMY_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum { DUMMY_STREAMS = 128 };

/* Who worked with a piece of memory, or with index sets. Zeroed: nobody. */
typedef struct dummy_marks {
    struct {
        int64_t time;
        uint32_t life; /* of the stream: those of earlier lives have ended */
    } read[DUMMY_STREAMS], written[DUMMY_STREAMS];
} dummy_marks;

/* The number of the stream at that address of a device, or -1: there are too many. Address NULL: a new one, whose address
 * *out_address is. */
int dummy_stream_open(int32_t device_id, void *address, void **out_address);

/* The end of a stream that was new: its work has ended, its number is free. */
void dummy_stream_close(int stream);

/* The host has waited for the stream; later work of `stream` begins after the earlier work of `first`. */
void dummy_stream_drained(int stream);
void dummy_stream_after(int stream, int first);

/* Work of the stream with the memory. False: a wait is missing. */
bool dummy_stream_works(int stream, dummy_marks *marks, bool writes);

/* Whether all work with the memory has ended for the host. */
bool dummy_all_done(const dummy_marks *marks);

#endif
