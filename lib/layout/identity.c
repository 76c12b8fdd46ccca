/* SPDX-License-Identifier: Apache-2.0
 * The identity of a layout: XXH3-128 with seed 0 over these canonical bytes, written in big-endian byte order as 32
 * lower-case hexadecimal digits. This format never changes:
 *
 *     "tartan layout 1\0"                                       16 bytes
 *     rows, cols, block_rows, block_cols, heads                 5 x int64, little-endian
 *     row_pointers[0 .. heads * grid_rows]                      int64 each, little-endian
 *     block_cols[0 .. blocks - 1]                               int64 each, little-endian
 *
 * The bytes of a variable layout, whose block_rows and block_cols are the largest, begin with "tartan layout 2\0"
 * and go on:
 *
 *     row_bounds[0 .. grid_rows], col_bounds[0 .. grid_cols]    int64 each, little-endian
 */
#include "layout/layout.h"

/* Inlined, so that the hash state is on the stack: it is not allocated outside memory.c, and its size matches the
 * code that uses it. */
#define XXH_INLINE_ALL
#include <endian.h>
#include <string.h>
#include <xxhash.h>

enum { CHUNK = 512 };

typedef struct stream {
    XXH3_state_t state;
    int64_t filled;
    unsigned char bytes[8 * CHUNK];
} stream;

static void flush(stream *s) {
    XXH3_128bits_update(&s->state, s->bytes, (size_t)(8 * s->filled));
    s->filled = 0;
}

static inline void store(unsigned char *place, int64_t number) {
    const uint64_t little = htole64((uint64_t)number);
    memcpy(place, &little, sizeof little);
}

static inline void put(stream *s, int64_t number) {
    if (s->filled == CHUNK) flush(s);
    store(s->bytes + 8 * s->filled++, number);
}

static void put_columns(stream *s, const int32_t *cols, int64_t count) {
    while (count > 0) {
        if (s->filled == CHUNK) flush(s);
        const int64_t room = CHUNK - s->filled, n = count < room ? count : room;
        for (int64_t i = 0; i < n; i++) store(s->bytes + 8 * (s->filled + i), cols[i]);
        s->filled += n, cols += n, count -= n;
    }
}

static void put_list(stream *s, const int64_t *list, int64_t count) {
    for (int64_t i = 0; i < count; i++) put(s, list[i]);
}

static void compute(const tartan_layout *layout, char out[TARTAN_I_IDENTITY_CHARS + 1]) {
    static const char tags[2][16] = {"tartan layout 1", "tartan layout 2"};
    const tartan_shape *shape = &layout->shape;
    stream s;
    s.filled = 0;
    XXH3_INITSTATE(&s.state);
    XXH3_128bits_reset(&s.state);
    XXH3_128bits_update(&s.state, tags[tartan_i_is_variable(layout)], sizeof tags[0]);
    put(&s, shape->rows);
    put(&s, shape->cols);
    put(&s, shape->block_rows);
    put(&s, shape->block_cols);
    put(&s, shape->heads);
    put_list(&s, layout->row_pointers, shape->heads * layout->grid_rows + 1);
    put_columns(&s, layout->block_cols, layout->blocks);
    if (tartan_i_is_variable(layout)) {
        put_list(&s, layout->row_bounds, layout->grid_rows + 1);
        put_list(&s, layout->col_bounds, layout->grid_cols + 1);
    }
    flush(&s);

    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&s.state));
    for (int i = 0; i < 16; i++) {
        out[2 * i] = "0123456789abcdef"[digest.digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest.digest[i] & 15];
    }
    out[TARTAN_I_IDENTITY_CHARS] = '\0';
}

const char *tartan_i_layout_identity(const tartan_layout *layout) {
    tartan_layout *owner = (tartan_layout *)layout; /* what is computed once is not part of its value */
    char computed[TARTAN_I_IDENTITY_CHARS + 1];
    if (tartan_i_is_dynamic(layout) || __atomic_load_n(&layout->identity_made, __ATOMIC_ACQUIRE) == 2)
        return layout->identity;
    compute(layout, computed);
    if (tartan_i_makes(&owner->identity_made)) {
        memcpy(owner->identity, computed, sizeof computed);
        tartan_i_made(&owner->identity_made);
    }
    return layout->identity;
}
