/* SPDX-License-Identifier: Apache-2.0
 * How the arguments enter Philox4x32-10; this never changes. The key is the seed (low word, high word), the counter
 * is (counter, index low, index high, stream). Other backends must do the same to get the same numbers. */
#include "core/random.h"

#include <Random123/philox.h>
#include <math.h>

void tartan_i_philox(uint64_t seed, uint32_t stream, uint64_t index, uint32_t counter, uint32_t out[4]) {
    philox4x32_ctr_t place = {{counter, (uint32_t)index, (uint32_t)(index >> 32), stream}};
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t words = philox4x32_R(10, place, key);
    for (int i = 0; i < 4; i++) out[i] = words.v[i];
}

/* 53 bits of two words as a fraction in [0, 1). */
static double fraction(uint32_t high, uint32_t low) {
    uint64_t bits = (uint64_t)(high >> 5) << 26 | low >> 6;
    return (double)bits * 0x1p-53;
}

void tartan_i_normal_pair(uint64_t seed, uint32_t stream, uint64_t index, uint32_t counter, double out[2]) {
    uint32_t words[4];
    tartan_i_philox(seed, stream, index, counter, words);
    double radius = sqrt(-2 * log(1 - fraction(words[0], words[1]))); /* 1 - [0, 1) is never 0 */
    double angle = 6.283185307179586476925 * fraction(words[2], words[3]);
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

void tartan_i_sequence_begin(tartan_i_sequence *s, uint64_t seed, uint32_t stream, uint64_t index) {
    *s = (tartan_i_sequence){.seed = seed, .index = index, .stream = stream, .used = 4};
}

uint32_t tartan_i_next(tartan_i_sequence *s) {
    if (s->used == 4) {
        tartan_i_philox(s->seed, s->stream, s->index, s->counter++, s->words);
        s->used = 0;
    }
    return s->words[s->used++];
}

uint64_t tartan_i_below(tartan_i_sequence *s, uint64_t n) {
    if (n >> 32 == 0) {
        /* The upper half of word * n; words that would favour some results are rejected (Lemire). */
        uint32_t unfair = (uint32_t)((0x100000000u - n) % n);
        uint64_t product;
        do product = (uint64_t)tartan_i_next(s) * n;
        while ((uint32_t)product < unfair);
        return product >> 32;
    }
    uint64_t mask = ~(uint64_t)0 >> __builtin_clzll(n), draw;
    do {
        draw = (uint64_t)tartan_i_next(s) << 32;
        draw = (draw | tartan_i_next(s)) & mask;
    } while (draw >= n);
    return draw;
}

double tartan_i_uniform(tartan_i_sequence *s) {
    uint32_t high = tartan_i_next(s);
    return fraction(high, tartan_i_next(s));
}
