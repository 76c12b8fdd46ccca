/* SPDX-License-Identifier: Apache-2.0
 * The content of a foreign file in any format. */
#include "formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void content_free(content *c) {
    free(c->rows_of), free(c->cols_of), free(c->values), free(c->memory);
    memset(c, 0, sizeof *c);
}

bool content_reserve(content *c, const char *path, int64_t n) {
    size_t bytes;
    if (!__builtin_mul_overflow(sizeof(int64_t), (size_t)n + 1, &bytes))
        c->rows_of = malloc(bytes), c->cols_of = malloc(bytes), c->values = malloc(bytes);
    if (c->rows_of != NULL && c->cols_of != NULL && c->values != NULL) return true;
    complain("%s: out of memory for %lld entries", path, (long long)n);
    return false;
}

int content_use_dense(content *c, const char *path, const unsigned char *data, int32_t dtype, int ndim,
                      const int64_t *shape, const int64_t *strides) {
    int64_t elements = 1;
    for (int i = 0; i < ndim; i++) elements *= shape[i];
    memmove(c->memory, data, (size_t)(elements * tartan_dtype_bytes(dtype)));
    c->is_dense = true;
    c->heads = ndim == 3 ? shape[0] : 1;
    const int first = c->heads == 1 ? ndim - 2 : 0; /* a matrix of one head has two dimensions */
    c->rows = shape[ndim - 2], c->cols = shape[ndim - 1], c->dtype = dtype;
    if (tartan_array_init(c->memory, dtype, ndim - first, shape + first,
                          strides == NULL ? NULL : strides + first, &c->dense) != TARTAN_OK)
        return complain_status(path);
    return EXIT_FINE;
}

unsigned char *read_whole(const char *path, size_t *out_size) {
    struct stat about;
    errno = 0;
    FILE *in = fopen(path, "rb");
    unsigned char *bytes = NULL;
    bool good = in != NULL && fstat(fileno(in), &about) == 0;
    const char *reason = NULL;
    if (good && !S_ISREG(about.st_mode)) {
        good = false, reason = "not a regular file";
    } else if (good) {
        *out_size = (size_t)about.st_size;
        bytes = aligned_alloc(64, (*out_size + 64) / 64 * 64);
        good = bytes != NULL && fread(bytes, 1, *out_size, in) == *out_size;
        if (bytes != NULL && !good && errno == 0) reason = "it became shorter while it was read";
    }
    if (!good) {
        complain("cannot read %s: %s", path, reason != NULL ? reason : strerror(errno));
        free(bytes);
    }
    if (in != NULL) fclose(in);
    return good ? bytes : NULL;
}

/* ---- Duplicate entries ---- */

typedef struct entry {
    int64_t row, col, at; /* at: its index in the file */
    double value;
} entry;

static int compare_entries(const void *left, const void *right) {
    const entry *a = left, *b = right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    if (a->col != b->col) return a->col < b->col ? -1 : 1;
    return a->at < b->at ? -1 : 1;
}

/* Whether entries ascend by row or by column, as in most files; then there are no duplicates. */
static bool ascend(const content *c, const int64_t *major, const int64_t *minor) {
    for (int64_t i = 1; i < c->entries; i++)
        if (major[i] < major[i - 1] || (major[i] == major[i - 1] && minor[i] <= minor[i - 1])) return false;
    return true;
}

int content_add_duplicates(content *c) {
    if (ascend(c, c->rows_of, c->cols_of) || ascend(c, c->cols_of, c->rows_of)) return EXIT_FINE;
    size_t bytes;
    entry *sorted = NULL;
    if (!__builtin_mul_overflow(sizeof *sorted, (size_t)c->entries, &bytes)) sorted = malloc(bytes);
    if (sorted == NULL) return complain("out of memory for %lld entries", (long long)c->entries);
    for (int64_t i = 0; i < c->entries; i++)
        sorted[i] = (entry){.row = c->rows_of[i], .col = c->cols_of[i], .at = i, .value = c->values[i]};
    qsort(sorted, (size_t)c->entries, sizeof *sorted, compare_entries);
    int64_t kept = 0;
    for (int64_t i = 0; i < c->entries; i++) {
        const bool again = i > 0 && sorted[i].row == sorted[i - 1].row && sorted[i].col == sorted[i - 1].col;
        if (again) {
            c->values[kept - 1] += sorted[i].value;
            continue;
        }
        c->rows_of[kept] = sorted[i].row, c->cols_of[kept] = sorted[i].col;
        c->values[kept++] = sorted[i].value;
    }
    c->entries = kept;
    free(sorted);
    return EXIT_FINE;
}

/* ---- Reordering ---- */

/* The entries as CSR, columns in any order within a row: a counting sort. */
static void sort_by_row(const content *c, int64_t *pointers, int64_t *cols) {
    memset(pointers, 0, sizeof *pointers * (size_t)(c->rows + 2));
    /* pointers[r + 1] is the fill position of row r, so in the end it is the end of row r. */
    for (int64_t i = 0; i < c->entries; i++) pointers[c->rows_of[i] + 2]++;
    for (int64_t r = 0; r < c->rows; r++) pointers[r + 2] += pointers[r + 1];
    for (int64_t i = 0; i < c->entries; i++) cols[pointers[c->rows_of[i] + 1]++] = c->cols_of[i];
}

static bool entries_inside(const content *c) {
    for (int64_t i = 0; i < c->entries; i++)
        if (c->rows_of[i] < 0 || c->rows_of[i] >= c->rows || c->cols_of[i] < 0 || c->cols_of[i] >= c->cols)
            return false;
    return true;
}

int content_reorder(content *c) {
    if (c->rows != c->cols || c->is_dense) return complain("--reorder rcm needs a square sparse matrix");
    if (!entries_inside(c)) return complain("cannot reorder: an entry lies outside the matrix");
    int64_t n = c->rows;
    if (n > INT64_MAX / 16) return complain("out of memory for %lld rows", (long long)n);
    size_t room = sizeof(int64_t) * (size_t)(n + 2); /* for pointers; the others need less */
    int64_t *order = malloc(room), *place = malloc(room), *pointers = malloc(room);
    int64_t *cols = calloc((size_t)c->entries + 1, sizeof *cols);
    int result = EXIT_FAILED;
    if (order == NULL || place == NULL || pointers == NULL || cols == NULL) {
        complain("out of memory");
    } else {
        sort_by_row(c, pointers, cols);
        if (tartan_reorder_rcm(&(const tartan_compressed){pointers, n + 1, cols, c->entries, 0}, order, n) ==
            TARTAN_OK) {
            for (int64_t i = 0; i < n; i++) place[order[i]] = i;
            for (int64_t i = 0; i < c->entries; i++)
                c->rows_of[i] = place[c->rows_of[i]], c->cols_of[i] = place[c->cols_of[i]];
            result = EXIT_FINE;
        } else {
            complain_status("cannot reorder");
        }
    }
    free(order), free(place), free(pointers), free(cols);
    return result;
}
