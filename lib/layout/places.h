/* SPDX-License-Identifier: Apache-2.0
 * Checks of the lists that callers give: places, and compressed rows or columns. */
#ifndef TARTAN_LAYOUT_PLACES_H
#define TARTAN_LAYOUT_PLACES_H

#include "core/status.h"
#include "tartan/layout.h"

/* Whether every index is in 0 .. limit - 1. */
tartan_status tartan_i_indices_check(const char *function, const char *name, const int64_t *indices,
                                     int64_t count, int64_t limit);

/* Whether all places lie in `heads` matrices of rows x cols. */
tartan_status tartan_i_places_check(const char *function, const tartan_places *places, int64_t heads,
                                    int64_t rows, int64_t cols);

/* Whether the lists describe `lines` rows or columns with indices in 0 .. limit - 1; the text of an error calls the
 * number of pointers `meaning`. */
tartan_status tartan_i_lists_check(const char *function, const tartan_compressed *lists, int64_t lines,
                                   const char *meaning, int64_t limit);

/* The same of rows; refuses columns. */
tartan_status tartan_i_row_lists_check(const char *function, const tartan_compressed *lists, int64_t rows,
                                       const char *meaning, int64_t limit);

static inline int64_t tartan_i_head_at(const tartan_places *places, int64_t i) {
    return places->heads != NULL ? places->heads[i] : 0;
}

#endif
