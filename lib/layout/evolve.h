/* SPDX-License-Identifier: Apache-2.0
 * Schedules of blocks that are dropped and grown while a model trains; tartan_layout_evolve explains them. */
#ifndef TARTAN_LAYOUT_EVOLVE_H
#define TARTAN_LAYOUT_EVOLVE_H

#include "core/options.h"
#include "layout/layout.h"

typedef struct tartan_i_schedule {
    double density, initial, threshold, swap; /* density, threshold: NaN if not given */
    int64_t begin, end, every, seed;
    int32_t curve, decay;
    uint32_t given; /* the words that were read, for the refusal of a second one */
} tartan_i_schedule;

#define TARTAN_I_SCHEDULE_WORDS "density, initial, threshold, swap, begin, end, every, seed, curve or decay"

tartan_i_schedule tartan_i_schedule_default(void);

/* Reads an option of the argument `text`; *out_known is false if it is none of a schedule. Errors: ARGUMENT. */
tartan_status tartan_i_schedule_read(const char *function, const char *text, const tartan_i_option *o,
                                     tartan_i_schedule *s, bool *out_known);

/* Whether all that was read fits together. Errors: ARGUMENT. */
tartan_status tartan_i_schedule_check(const char *function, const char *text, const tartan_i_schedule *s);

/* Of a step that is due: the fraction of blocks that are swapped and, if there is a density, the blocks of `grid` that it wants. */
bool tartan_i_schedule_is_due(const tartan_i_schedule *s, int64_t step);
double tartan_i_schedule_swap(const tartan_i_schedule *s, int64_t step);
int64_t tartan_i_schedule_target(const tartan_i_schedule *s, int64_t grid, int64_t step);

/* The places of a grid. */
static inline int64_t tartan_i_layout_grid(const tartan_layout *layout) {
    return layout->shape.heads * layout->grid_rows * layout->grid_cols;
}

/* tartan_layout_evolve with a schedule that was read: scores [blocks], growth [grid] or NULL. The result has `target` blocks, or if
 * that is negative, as many as the schedule says. Errors: ARGUMENT (NaN), MEMORY. */
tartan_status tartan_i_layout_evolve(const char *function, const tartan_i_schedule *schedule,
                                     tartan_layout *layout, const double *scores, const double *growth,
                                     int64_t step, int64_t target, tartan_layout **out);

#endif
