/* SPDX-License-Identifier: Apache-2.0
 * Searches in the lists of a layout. */
#ifndef TARTAN_LAYOUT_SEARCH_H
#define TARTAN_LAYOUT_SEARCH_H

#include <stdint.h>

/* The first block of a row, from `begin` on, that is at block column `col` or after. */
static inline int64_t tartan_i_find_col(const int32_t *cols, int64_t begin, int64_t end, int64_t col) {
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (cols[middle] < col)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

#endif
