/* SPDX-License-Identifier: Apache-2.0
 * Statistics of layouts. */
#include "layout/positions.h"

#include <math.h>
#include <string.h>

static int64_t variable_elements(const tartan_layout *l) {
    int64_t elements = 0;
    for (int64_t id = 0; id < l->blocks; id++)
        elements += tartan_i_rows_of(l, l->block_rows[id]) * tartan_i_cols_of(l, l->block_cols[id]);
    return elements;
}

/* The blocks of the last block column of a head. */
static int64_t in_last_column(const tartan_layout *l, int64_t head) {
    const int64_t column = (head + 1) * l->grid_cols - 1;
    const tartan_i_columns *columns = tartan_i_columns_of(l);
    if (columns != NULL) return columns->pointers[column + 1] - columns->pointers[column];
    int64_t count = 0;
    for (int64_t line = head * l->grid_rows; line < (head + 1) * l->grid_rows; line++) {
        const int64_t end = l->row_pointers[line + 1];
        count += l->row_pointers[line] < end && l->block_cols[end - 1] == l->grid_cols - 1;
    }
    return count;
}

int64_t tartan_layout_elements(const tartan_layout *l) {
    if (!tartan_i_is_host_layout(l)) return -1;
    if (l->blocks == 0) return 0;
    if (tartan_i_is_variable(l)) return variable_elements(l);
    const tartan_shape *s = &l->shape;
    int64_t missing_rows = s->block_rows - tartan_i_rows_of(l, l->grid_rows - 1);
    int64_t missing_cols = s->block_cols - tartan_i_cols_of(l, l->grid_cols - 1);
    int64_t elements = l->blocks * s->block_rows * s->block_cols;
    if (missing_rows == 0 && missing_cols == 0) return elements;
    for (int64_t head = 0; head < s->heads; head++) {
        int64_t last_line = (head + 1) * l->grid_rows - 1;
        int64_t in_last_row = l->row_pointers[last_line + 1] - l->row_pointers[last_line];
        bool corner = tartan_i_layout_find(l, head, l->grid_rows - 1, l->grid_cols - 1) >= 0;
        elements -= in_last_row * missing_rows * s->block_cols +
                    (missing_cols == 0 ? 0 : in_last_column(l, head)) * missing_cols * s->block_rows -
                    corner * missing_rows * missing_cols; /* subtracted twice above */
    }
    return elements;
}

double tartan_layout_density(const tartan_layout *layout) {
    if (!tartan_i_is_host_layout(layout)) return -1;
    int64_t all = layout->shape.heads * layout->grid_rows * layout->grid_cols;
    return all == 0 ? 0 : (double)layout->blocks / (double)all;
}

tartan_status tartan_layout_row_lengths(const tartan_layout *layout, int64_t *out_lengths,
                                        int64_t nout_lengths) {
    CHECK_HOST_LAYOUT(layout);
    CHECK_LIST(out_lengths, layout->shape.heads * layout->grid_rows, "heads * grid_rows");
    for (int64_t line = 0; line < nout_lengths; line++)
        out_lengths[line] = layout->row_pointers[line + 1] - layout->row_pointers[line];
    return TARTAN_OK;
}

tartan_status tartan_layout_row_spread(const tartan_layout *layout, double *out_spread, int64_t nout_spread) {
    CHECK_HOST_LAYOUT(layout);
    CHECK_LIST(out_spread, 4, "smallest, mean, largest, standard deviation");
    int64_t lines = layout->shape.heads * layout->grid_rows, smallest = INT64_MAX, largest = 0;
    double mean = lines == 0 ? 0 : (double)layout->blocks / (double)lines, squares = 0;
    for (int64_t line = 0; line < lines; line++) {
        int64_t length = layout->row_pointers[line + 1] - layout->row_pointers[line];
        smallest = length < smallest ? length : smallest;
        largest = length > largest ? length : largest;
        squares += ((double)length - mean) * ((double)length - mean);
    }
    out_spread[0] = lines == 0 ? 0 : (double)smallest;
    out_spread[1] = mean;
    out_spread[2] = (double)largest;
    out_spread[3] = lines == 0 ? 0 : sqrt(squares / (double)lines);
    return TARTAN_OK;
}

tartan_status tartan_layout_bandwidth(const tartan_layout *layout, int64_t *out_bandwidth,
                                      int64_t nout_bandwidth) {
    CHECK_HOST_LAYOUT(layout);
    CHECK_LIST(out_bandwidth, 2, "lower, upper");
    int64_t lower = 0, upper = 0;
    for (int64_t line = 0; line < layout->shape.heads * layout->grid_rows; line++) {
        int64_t begin = layout->row_pointers[line], end = layout->row_pointers[line + 1];
        if (begin == end) continue;
        int64_t row = layout->block_rows[begin];
        int64_t below = row - layout->block_cols[begin], above = layout->block_cols[end - 1] - row;
        lower = below > lower ? below : lower;
        upper = above > upper ? above : upper;
    }
    out_bandwidth[0] = lower;
    out_bandwidth[1] = upper;
    return TARTAN_OK;
}

/* Reach is computed for one strip of targets at a time: bit t of reached[u] says that target t of the strip can be
 * reached from u. A strip takes one cache line per row, so memory grows only with the rows. */
enum { STRIP_WORDS = 8, STRIP = 64 * STRIP_WORDS };
typedef struct strip {
    uint64_t words[STRIP_WORDS];
} strip;

static int64_t strip_pairs(const strip *reached, int64_t n) {
    int64_t pairs = 0;
    for (int64_t u = 0; u < n; u++)
        for (int w = 0; w < STRIP_WORDS; w++) pairs += __builtin_popcountll(reached[u].words[w]);
    return pairs;
}

static void one_step(const tartan_layout *l, int64_t head, int64_t target, strip *reached) {
    const int64_t *pointers = l->row_pointers + head * l->grid_rows;
    memset(reached, 0, (size_t)l->grid_rows * sizeof *reached);
    for (int64_t u = 0; u < l->grid_rows; u++)
        for (int64_t id = pointers[u]; id < pointers[u + 1]; id++) {
            int64_t t = l->block_cols[id] - target;
            if (t >= 0 && t < STRIP) reached[u].words[t / 64] |= (uint64_t)1 << (t % 64);
        }
}

/* next[u] = reached[u], or a step from u and then `reached` from there. */
static void one_step_more(const tartan_layout *l, int64_t head, const strip *reached, strip *next) {
    const int64_t *pointers = l->row_pointers + head * l->grid_rows;
    for (int64_t u = 0; u < l->grid_rows; u++) {
        strip sum = reached[u];
        for (int64_t id = pointers[u]; id < pointers[u + 1]; id++)
            for (int w = 0; w < STRIP_WORDS; w++) sum.words[w] |= reached[l->block_cols[id]].words[w];
        next[u] = sum;
    }
}

tartan_status tartan_layout_reach(const tartan_layout *layout, int64_t head, double *out_reach,
                                  int64_t nout_reach) {
    tartan_status status;
    strip *reached = NULL, *next = NULL;
    CHECK_HOST_LAYOUT(layout);
    int64_t n = layout->grid_rows;
    CHECK(n == layout->grid_cols, SHAPE,
          "layout has a grid of %" PRId64 " x %" PRId64 ", expected a square one", n, layout->grid_cols);
    CHECK(head >= 0 && head < layout->shape.heads, ARGUMENT, "head is %" PRId64 ", expected 0 .. %" PRId64,
          head, layout->shape.heads - 1);
    CHECK(nout_reach >= 0, SHAPE, "nout_reach is %" PRId64 ", expected >= 0", nout_reach);
    CHECK_LIST(out_reach, nout_reach, "steps");

    NEW(reached, n);
    NEW(next, n);
    for (int64_t i = 0; i < nout_reach; i++) out_reach[i] = 0;
    for (int64_t target = 0; target < n; target += STRIP) {
        one_step(layout, head, target, reached);
        int64_t pairs = strip_pairs(reached, n), before = -1;
        for (int64_t i = 0; i < nout_reach; i++) {
            out_reach[i] += (double)pairs;
            if (pairs == before || i + 1 == nout_reach) continue; /* reach does not grow any more */
            one_step_more(layout, head, reached, next);
            strip *swap = reached;
            reached = next, next = swap;
            before = pairs;
            pairs = strip_pairs(reached, n);
        }
    }
    for (int64_t i = 0; i < nout_reach; i++) out_reach[i] /= n == 0 ? 1 : (double)n * (double)n;
    status = TARTAN_OK;
fail:
    tartan_i_free(reached);
    tartan_i_free(next);
    return status;
}

/* The first line that begins at block `target` or later, or the line before it if that begins closer to it. */
static int64_t nearest_line(const int64_t *row_pointers, int64_t lines, int64_t target) {
    int64_t low = 0, high = lines;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (row_pointers[middle] < target)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && target - row_pointers[low - 1] < row_pointers[low] - target) low--;
    return low;
}

tartan_status tartan_layout_partition(const tartan_layout *layout, int64_t *out_bounds, int64_t nout_bounds) {
    CHECK_HOST_LAYOUT(layout);
    CHECK(nout_bounds >= 2, SHAPE, "nout_bounds is %" PRId64 ", expected at least 2", nout_bounds);
    CHECK_LIST(out_bounds, nout_bounds, "runs + 1");
    int64_t lines = layout->shape.heads * layout->grid_rows, runs = nout_bounds - 1;
    int64_t work = layout->blocks == 0 ? lines : layout->blocks; /* no blocks: equal numbers of lines */
    for (int64_t run = 1; run < runs; run++) {
        int64_t target = work / runs * run + (int64_t)((double)(work % runs) * (double)run / (double)runs);
        out_bounds[run] = layout->blocks == 0 ? target : nearest_line(layout->row_pointers, lines, target);
    }
    out_bounds[0] = 0;
    out_bounds[runs] = lines;
    return TARTAN_OK;
}
