/* SPDX-License-Identifier: Apache-2.0
 * What a foreign file holds, whatever its format. */
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

int content_use_dense(content *c, const char *path, const unsigned char *data, int32_t dtype,
                      const int64_t *shape, const int64_t *strides) {
    memmove(c->memory, data, (size_t)(shape[0] * shape[1] * tartan_dtype_bytes(dtype)));
    c->is_dense = true;
    c->rows = shape[0], c->cols = shape[1], c->dtype = dtype;
    if (tartan_array_init(c->memory, dtype, 2, shape, strides, &c->dense) != TARTAN_OK)
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
        if (bytes != NULL && !good && errno == 0) reason = "it became shorter meanwhile";
    }
    if (!good) {
        complain("cannot read %s: %s", path, reason != NULL ? reason : strerror(errno));
        free(bytes);
    }
    if (in != NULL) fclose(in);
    return good ? bytes : NULL;
}

/* ---- Reordering ---- */

/* The entries as CSR, columns in any order within a row: a counting sort. */
static void sort_by_row(const content *c, int64_t *pointers, int64_t *cols) {
    memset(pointers, 0, sizeof *pointers * (size_t)(c->rows + 2));
    /* pointers[r + 1] is where row r goes on, so that in the end it is where row r ends. */
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
    size_t room = sizeof(int64_t) * (size_t)(n + 2); /* of pointers; the others need less */
    int64_t *order = malloc(room), *place = malloc(room), *pointers = malloc(room);
    int64_t *cols = calloc((size_t)c->entries + 1, sizeof *cols);
    int result = EXIT_FAILED;
    if (order == NULL || place == NULL || pointers == NULL || cols == NULL) {
        complain("out of memory");
    } else {
        sort_by_row(c, pointers, cols);
        if (tartan_reorder_rcm(pointers, n + 1, cols, c->entries, order, n) == TARTAN_OK) {
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

/* ---- Index lists ---- */

static int misfit(const char *path, const char *what) {
    return complain("%s: damaged: %s", path, what);
}

/* Pointers must ascend from 0 to `groups`, one for each list and one more. */
static bool pointers_fit(const npy *pointers, int64_t lists, int64_t groups) {
    if (pointers->elements - 1 != lists || npy_integer(pointers, 0) != 0 ||
        npy_integer(pointers, lists) != groups)
        return false;
    for (int64_t i = 0; i < lists; i++)
        if (npy_integer(pointers, i) > npy_integer(pointers, i + 1)) return false;
    return true;
}

/* Element (i, j) of block g: blocks are stored in C or in Fortran order as a whole. */
static int64_t place_in_block(const npy *data, int64_t g, int64_t i, int64_t j) {
    int64_t groups = data->shape[0], br = data->ndim == 3 ? data->shape[1] : 1,
            bc = data->ndim == 3 ? data->shape[2] : 1;
    return data->fortran_order ? g + groups * (i + br * j) : (g * br + i) * bc + j;
}

/* The elements of one block, less the padding of a ragged edge. */
static void add_block(content *c, const npy *data, int64_t g, int64_t row, int64_t col) {
    int64_t top = row * c->block_rows, left = col * c->block_cols;
    for (int64_t i = 0; i < c->block_rows && top + i < c->rows; i++)
        for (int64_t j = 0; j < c->block_cols && left + j < c->cols; j++) {
            c->rows_of[c->entries] = top + i;
            c->cols_of[c->entries] = left + j;
            c->values[c->entries++] = npy_number(data, place_in_block(data, g, i, j));
        }
}

int content_from_lists(content *c, const char *path, const char *format, const npy *first, const npy *second,
                       const npy *data) {
    bool blocks = strcmp(format, "bsr") == 0, coo = strcmp(format, "coo") == 0,
         csc = strcmp(format, "csc") == 0;
    int64_t groups = second->elements;
    c->dtype = npy_dtype(data);
    if (c->dtype == 0) return complain("%s: the values are neither real numbers nor integers", path);
    if (!npy_is_integer(first) || !npy_is_integer(second)) return misfit(path, "indices are not integers");
    if (data->ndim != (blocks ? 3 : 1) || data->shape[0] != groups)
        return misfit(path, "as many values as indices expected");
    c->block_rows = blocks ? data->shape[1] : 1, c->block_cols = blocks ? data->shape[2] : 1;
    if (c->rows < 0 || c->cols < 0 || c->block_rows < 1 || c->block_cols < 1)
        return misfit(path, "a size is out of range");
    int64_t grid_rows = c->rows / c->block_rows + (c->rows % c->block_rows != 0);
    int64_t grid_cols = c->cols / c->block_cols + (c->cols % c->block_cols != 0);
    int64_t lists = csc ? grid_cols : grid_rows, limit = csc ? grid_rows : grid_cols, list = 0;
    if (coo ? first->elements != groups : !pointers_fit(first, lists, groups))
        return misfit(path, "the pointers do not fit the shape and the indices");
    if (!content_reserve(c, path, data->elements)) return EXIT_FAILED;
    for (int64_t g = 0; g < groups; g++) {
        while (!coo && npy_integer(first, list + 1) <= g) list++;
        int64_t major = coo ? npy_integer(first, g) : list, minor = npy_integer(second, g);
        if (major < 0 || major >= lists || minor < 0 || minor >= limit)
            return misfit(path, "an index is out of range");
        add_block(c, data, g, csc ? minor : major, csc ? major : minor);
    }
    if (!blocks) c->block_rows = c->block_cols = 0;
    return EXIT_FINE;
}

/* ---- Blocks of a matrix, for writers ---- */

void bsr_free(bsr *b) {
    free(b->row_pointers), free(b->block_cols);
    tartan_matrix_free(b->matrix);
    tartan_layout_free(b->layout);
}

tartan_status cast_matrix(const tartan_matrix *matrix, int32_t dtype, int32_t block_order,
                          tartan_matrix **out) {
    tartan_context *context = NULL;
    tartan_status status = tartan_context_create("cpu", NULL, NULL, &context);
    if (status == TARTAN_OK) status = tartan_matrix_cast(context, matrix, dtype, block_order, out);
    tartan_context_free(context);
    return status;
}

bool bsr_of(const tartan_matrix *matrix, int32_t dtype, bsr *out) {
    memset(out, 0, sizeof *out);
    if (tartan_matrix_get_layout(matrix, &out->layout) != TARTAN_OK) return false;
    out->blocks = tartan_layout_blocks(out->layout);
    out->pointers = tartan_layout_grid_rows(out->layout) + 1;
    out->row_pointers = malloc(sizeof(int64_t) * (size_t)out->pointers);
    out->block_cols = malloc(sizeof(int64_t) * (size_t)(out->blocks + 1));
    if (out->row_pointers == NULL || out->block_cols == NULL)
        complain("out of memory for the index lists");
    else if (tartan_layout_get_row_lists(out->layout, out->row_pointers, out->pointers, out->block_cols,
                                         out->blocks) != TARTAN_OK ||
             cast_matrix(matrix, dtype, TARTAN_ROW_MAJOR, &out->matrix) != TARTAN_OK ||
             tartan_matrix_values(out->matrix, &out->values) != TARTAN_OK)
        complain_status("cannot take the matrix apart");
    else
        return true;
    bsr_free(out);
    return false;
}
