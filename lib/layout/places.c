/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/places.h"

tartan_status tartan_i_indices_check(const char *function, const char *name, const int64_t *indices,
                                     int64_t count, int64_t limit) {
    bool bad = false; /* the first loop has no branches, so the compiler can vectorise it */
    for (int64_t i = 0; i < count; i++) bad |= (uint64_t)indices[i] >= (uint64_t)limit;
    for (int64_t i = 0; bad && i < count; i++)
        CHECK_IN(function, indices[i] >= 0 && indices[i] < limit, LAYOUT,
                 "%s[%" PRId64 "] is %" PRId64 ", expected 0 .. %" PRId64, name, i, indices[i], limit - 1);
    return TARTAN_OK;
}

tartan_status tartan_i_places_check(const char *function, const tartan_places *places, int64_t heads,
                                    int64_t rows, int64_t cols) {
    CHECK_IN(function, places != NULL, HANDLE, "places is NULL, expected lists of rows and columns");
    const int64_t count = places->count;
    CHECK_IN(function, count >= 0, SHAPE, "places has a count of %" PRId64 ", expected 0 or more", count);
    PASS(tartan_i_list_check(function, "rows", places->rows, count, count, "places"));
    PASS(tartan_i_list_check(function, "cols", places->cols, count, count, "places"));
    PASS(tartan_i_indices_check(function, "rows", places->rows, count, rows));
    PASS(tartan_i_indices_check(function, "cols", places->cols, count, cols));
    if (places->heads == NULL) return TARTAN_OK;
    return tartan_i_indices_check(function, "heads", places->heads, count, heads);
}

tartan_status tartan_i_lists_check(const char *function, const tartan_compressed *lists, int64_t lines,
                                   const char *meaning, int64_t limit) {
    CHECK_IN(function, lists != NULL, HANDLE, "lists is NULL, expected pointers and indices");
    const int64_t *pointers = lists->pointers, count = lists->nindices;
    PASS(tartan_i_list_check(function, "pointers", pointers, lists->npointers, lines + 1, meaning));
    CHECK_IN(function, count >= 0, SHAPE, "indices has %" PRId64 " entries, expected 0 or more", count);
    PASS(tartan_i_list_check(function, "indices", lists->indices, count, count, "entries"));
    CHECK_IN(function, pointers[0] == 0 && pointers[lines] == count, LAYOUT,
             "pointers go from %" PRId64 " to %" PRId64 ", expected 0 to %" PRId64 " (the length of indices)",
             pointers[0], pointers[lines], count);
    for (int64_t line = 0; line < lines; line++)
        CHECK_IN(function, pointers[line] <= pointers[line + 1], LAYOUT,
                 "pointers[%" PRId64 "] is %" PRId64 " after %" PRId64 ", expected ascending numbers",
                 line + 1, pointers[line + 1], pointers[line]);
    return tartan_i_indices_check(function, "indices", lists->indices, count, limit);
}

tartan_status tartan_i_row_lists_check(const char *function, const tartan_compressed *lists, int64_t rows,
                                       const char *meaning, int64_t limit) {
    CHECK_IN(function, lists == NULL || lists->by_column == 0, ARGUMENT,
             "by_column is %d, expected 0 (compressed rows)", lists->by_column);
    return tartan_i_lists_check(function, lists, rows, meaning, limit);
}
