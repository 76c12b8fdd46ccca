/* SPDX-License-Identifier: Apache-2.0
 * The order of work on the dummy device, which does everything at once but knows what a real one need not: each stream has
 * a clock that counts its own work and what it knows of the others', by waits and by the host. Work on memory that
 * another stream may still be at work on is refused (INTERNAL): a wait is missing. What a stream does while it is being
 * captured in a graph counts for other work of the same graph only: nothing else comes after it. */
#ifndef TARTAN_TESTS_DUMMY_ORDER_H
#define TARTAN_TESTS_DUMMY_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum { DUMMY_STREAMS = 128 };

/* Which streams used a piece of memory or index sets; zero-initialised: none. */
typedef struct dummy_marks {
    struct {
        int64_t time;
        uint32_t life; /* of the stream: those of earlier lives have ended */
    } read[DUMMY_STREAMS], written[DUMMY_STREAMS], captured_read[DUMMY_STREAMS],
        captured_write[DUMMY_STREAMS]; /* the life of those is the graph's number */
} dummy_marks;

/* The number of the stream at that address of a device, or -1 if there are too many. For address NULL a new stream
 * is made; *out_address is its address. */
int dummy_stream_open(int32_t device_id, void *address, void **out_address);

/* Closes a stream made by dummy_stream_open: its work has ended, its number is free. */
void dummy_stream_close(int stream);

/* Puts a stream into the capture of a graph, by its number; 0: the capture has ended. */
void dummy_stream_capture(int32_t device_id, void *address, uint32_t graph);

/* The wait slot of the backend table: a tartan_wait, or -1 where `first` is being captured in another graph. */
int dummy_wait(int32_t device_id, void *address, int32_t first_device_id, void *first);

/* The host waits for the stream. By address: false if it is being captured. */
bool dummy_drain(int32_t device_id, void *address);
void dummy_stream_drained(int stream);

/* Later work of `stream` begins after the earlier work of `first`; both are in one graph or in none. */
void dummy_stream_after(int stream, int first);

/* Records work of the stream on the memory; false if a wait is missing. */
bool dummy_stream_works(int stream, dummy_marks *marks, bool writes);

/* Whether all work with the memory comes before later work of the stream, outside graphs; and has ended for the host. */
bool dummy_stream_is_last(int stream, const dummy_marks *marks);
bool dummy_all_done(const dummy_marks *marks);

#endif
