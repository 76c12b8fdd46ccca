/* SPDX-License-Identifier: Apache-2.0
 * Counter-based random numbers (Philox4x32-10 of Random123): a number is a function of the seed, a stream
 * (what it is for) and a counter, so any thread can compute any of them. */
#ifndef TARTAN_CORE_RANDOM_H
#define TARTAN_CORE_RANDOM_H

#include <stdint.h>

/* Streams: one for each purpose, never renumbered. */
enum tartan_i_random_stream {
    TARTAN_I_STREAM_PATTERN = 1,
    TARTAN_I_STREAM_NORMAL = 2,
    TARTAN_I_STREAM_ORTHOGONAL = 3,
    TARTAN_I_STREAM_DROPOUT = 4,         /* of attention */
    TARTAN_I_STREAM_ELEMENT_DROPOUT = 5, /* of arrays; */
    TARTAN_I_STREAM_UNIFORM = 6,
    TARTAN_I_STREAM_ARRAY_NORMAL = 7,
    TARTAN_I_STREAM_GATE = 8,
    TARTAN_I_STREAM_QUANTIZE = 9,
    TARTAN_I_STREAM_QUANTIZE_GRADIENT = 10,
    TARTAN_I_STREAM_UPDATE = 11, /* of parameters that are rounded */
    TARTAN_I_STREAM_GROWTH = 12,
    TARTAN_I_STREAM_MEAN = 13,   /* of first moments of 8 bits; */
    TARTAN_I_STREAM_SQUARE = 14, /* of second ones */
};

/* Four 32-bit words for (seed, stream, head or block, counter). */
void tartan_i_philox(uint64_t seed, uint32_t stream, uint64_t index, uint32_t counter, uint32_t out[4]);

/* Two standard normal numbers in f64, computed from such words by the Box-Muller method. */
void tartan_i_normal_pair(uint64_t seed, uint32_t stream, uint64_t index, uint32_t counter, double out[2]);

/* A sequence drawn from one (seed, stream, index). */
typedef struct tartan_i_sequence {
    uint64_t seed, index;
    uint32_t stream, counter, used;
    uint32_t words[4];
} tartan_i_sequence;
void tartan_i_sequence_begin(tartan_i_sequence *s, uint64_t seed, uint32_t stream, uint64_t index);
uint32_t tartan_i_next(tartan_i_sequence *s);
/* Uniform on 0 .. n-1 without bias (n >= 1), and uniform on [0, 1) with 53 bits. */
uint64_t tartan_i_below(tartan_i_sequence *s, uint64_t n);
double tartan_i_uniform(tartan_i_sequence *s);

#endif
