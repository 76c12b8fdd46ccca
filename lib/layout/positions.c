/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/positions.h"

#include "layout/places.h"

#include <string.h>

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* One stable pass of the radix sort, by the digit at `shift`, from (keys, ids) to (to_keys, to_ids). */
static void scatter(const int64_t *keys, const int64_t *ids, int64_t count, int shift, int64_t *to_keys,
                    int64_t *to_ids) {
    int64_t place[DIGITS + 1] = {0};
    for (int64_t i = 0; i < count; i++) place[(keys[i] >> shift & (DIGITS - 1)) + 1]++;
    for (int digit = 0; digit < DIGITS; digit++) place[digit + 1] += place[digit];
    for (int64_t i = 0; i < count; i++) {
        int64_t to = place[keys[i] >> shift & (DIGITS - 1)]++;
        to_keys[to] = keys[i];
        if (ids != NULL) to_ids[to] = ids[i];
    }
}

tartan_status tartan_i_sort(int64_t *keys, int64_t *ids, int64_t count) {
    tartan_status status;
    int64_t *other_keys = NULL, *other_ids = NULL, all = 0, unsorted = 0;
    for (int64_t i = 0; i < count; i++) {
        all |= keys[i];
        unsorted |= i > 0 && keys[i] < keys[i - 1];
    }
    if (!unsorted) return TARTAN_OK;
    NEW(other_keys, count);
    if (ids != NULL) NEW(other_ids, count);

    int64_t *from_keys = keys, *from_ids = ids, *to_keys = other_keys, *to_ids = other_ids;
    for (int shift = 0; shift < 63 && all >> shift != 0; shift += DIGIT_BITS) {
        scatter(from_keys, from_ids, count, shift, to_keys, to_ids);
        int64_t *swap_keys = from_keys, *swap_ids = from_ids;
        from_keys = to_keys, to_keys = swap_keys;
        from_ids = to_ids, to_ids = swap_ids;
    }
    if (from_keys != keys) {
        memcpy(keys, from_keys, (size_t)count * sizeof *keys);
        if (ids != NULL) memcpy(ids, from_ids, (size_t)count * sizeof *ids);
    }
    status = TARTAN_OK;
fail:
    tartan_i_free(other_keys);
    tartan_i_free(other_ids);
    return status;
}

static tartan_status twice(const char *function, int64_t position, int64_t grid_rows, int64_t grid_cols) {
    int64_t line = position / grid_cols;
    return tartan_i_fail(TARTAN_ERR_LAYOUT, function,
                         "the block at block row %" PRId64 ", block column %" PRId64 " of head %" PRId64
                         " appears twice, expected once",
                         line % grid_rows, position % grid_cols, line / grid_rows);
}

/* Drops repeats from sorted positions if `repeats`, else stops at the first. Returns how many positions are left,
 * or -1 - the index of the repeat. */
static int64_t settle(int64_t *positions, int64_t count, bool repeats) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        if (kept > 0 && positions[i] == positions[kept - 1]) {
            if (!repeats) return -1 - i;
            continue;
        }
        positions[kept++] = positions[i];
    }
    return kept;
}

tartan_status tartan_i_layout_from_positions(const char *function, const tartan_shape *shape,
                                             int64_t *positions, int64_t count, bool repeats,
                                             int64_t **out_sources, tartan_layout **out) {
    tartan_status status;
    int64_t *sources = NULL, grid_rows, grid_cols;
    tartan_layout *layout = NULL;
    PASS(tartan_i_shape_check(function, shape, &grid_rows, &grid_cols));
    if (out_sources != NULL) {
        NEW(sources, count);
        for (int64_t i = 0; i < count; i++) sources[i] = i;
    }
    TRY(tartan_i_sort(positions, sources, count));
    int64_t blocks = settle(positions, count, repeats);
    if (blocks < 0) TRY(twice(function, positions[-1 - blocks], grid_rows, grid_cols));
    TRY(tartan_i_layout_begin(shape, blocks, &layout));

    int64_t id = 0, line_begin = 0;
    for (int64_t line = 0; line < shape->heads * grid_rows; line++, line_begin += grid_cols) {
        layout->row_pointers[line] = id;
        for (; id < blocks && positions[id] - line_begin < grid_cols; id++)
            layout->block_cols[id] = (int32_t)(positions[id] - line_begin);
    }
    layout->row_pointers[shape->heads * grid_rows] = id;
    TRY(tartan_i_layout_finish(layout));

    *out = layout;
    if (out_sources != NULL) *out_sources = sources;
    return TARTAN_OK;
fail:
    tartan_i_free(sources);
    tartan_layout_free(layout);
    return status;
}

tartan_status tartan_i_positions_of_places(const char *function, const tartan_shape *shape, int64_t room,
                                           const tartan_places *places, int64_t **out_positions,
                                           int64_t *out_count) {
    tartan_status status;
    int64_t grid_rows, grid_cols, count, *positions = NULL;
    PASS(tartan_i_shape_check(function, shape, &grid_rows, &grid_cols));
    PASS(tartan_i_places_check(function, places, shape->heads, grid_rows, grid_cols));
    const int64_t copies = places->heads == NULL ? shape->heads : 1;
    CHECK_IN(function,
             tartan_i_multiply(places->count, copies, &count) && !__builtin_add_overflow(count, room, &count),
             OVERFLOW, "%" PRId64 " blocks in %" PRId64 " heads exceed what can be addressed", places->count,
             copies);

    NEW(positions, count);
    int64_t *next = positions + room;
    for (int64_t copy = 0; copy < copies; copy++)
        for (int64_t i = 0; i < places->count; i++) {
            const int64_t head = places->heads == NULL ? copy : places->heads[i];
            *next++ = (head * grid_rows + places->rows[i]) * grid_cols + places->cols[i];
        }
    *out_positions = positions;
    *out_count = count;
    return TARTAN_OK;
fail:
    return status;
}

void tartan_i_layout_positions(const tartan_layout *layout, int64_t *out_positions) {
    int64_t line_begin = 0;
    for (int64_t line = 0; line < layout->shape.heads * layout->grid_rows; line++) {
        for (int64_t id = layout->row_pointers[line]; id < layout->row_pointers[line + 1]; id++)
            out_positions[id] = line_begin + layout->block_cols[id];
        line_begin += layout->grid_cols;
    }
}

int64_t tartan_i_layout_match(const tartan_layout *to, const tartan_layout *from, int64_t *out_sources) {
    int64_t matched = 0;
    for (int64_t i = 0; i < to->shape.heads * to->grid_rows; i++) {
        int64_t other = from->row_pointers[i], end = from->row_pointers[i + 1];
        for (int64_t id = to->row_pointers[i]; id < to->row_pointers[i + 1]; id++) {
            while (other < end && from->block_cols[other] < to->block_cols[id]) other++;
            const bool here = other < end && from->block_cols[other] == to->block_cols[id];
            out_sources[id] = here ? other : -1;
            matched += here;
        }
    }
    return matched;
}

/* An integer that orders as the number does. -0 counts as 0. */
static uint64_t rank_of(double x) {
    uint64_t bits;
    x += 0.0;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

void tartan_i_select_largest(const double *scores, int64_t n, int64_t count, uint8_t *keep) {
    /* Find the rank of the last score to keep, byte by byte from the top, as far as is needed to tell those that are kept:
     * linear time, without sorting. */
    uint64_t rank = 0, known = 0;
    int64_t wanted = count;
    bool found = false;
    for (int shift = 56; shift >= 0 && !found; shift -= 8) {
        int64_t histogram[256] = {0};
        for (int64_t i = 0; i < n; i++) {
            uint64_t r = rank_of(scores[i]);
            histogram[r >> shift & 255] += (r & known) == rank;
        }
        int byte = 255;
        while (byte > 0 && histogram[byte] < wanted) wanted -= histogram[byte--];
        rank |= (uint64_t)byte << shift;
        known |= (uint64_t)255 << shift;
        found = histogram[byte] == wanted; /* all with these bytes are kept */
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = rank_of(scores[i]) & known;
        keep[i] = r > rank || (r == rank && wanted-- > 0);
    }
}
