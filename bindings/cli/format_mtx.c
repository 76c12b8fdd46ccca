/* SPDX-License-Identifier: Apache-2.0
 * Matrix Market: coordinate and array, real, integer and pattern, general and symmetric. */
#include "formats.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct header {
    bool coordinate, pattern, symmetric, skew;
    int64_t rows, cols, lines;
} header;

static bool read_banner(const char *line, header *h) {
    char object[32], format[32], field[32], symmetry[32];
    if (sscanf(line, "%%%%MatrixMarket %31s %31s %31s %31s", object, format, field, symmetry) != 4) return false;
    h->coordinate = strcasecmp(format, "coordinate") == 0;
    h->pattern = strcasecmp(field, "pattern") == 0;
    h->skew = strcasecmp(symmetry, "skew-symmetric") == 0;
    h->symmetric = h->skew || strcasecmp(symmetry, "symmetric") == 0;
    bool known_field = h->pattern || strcasecmp(field, "real") == 0 || strcasecmp(field, "integer") == 0;
    bool known_format = h->coordinate || (strcasecmp(format, "array") == 0 && !h->pattern);
    return strcasecmp(object, "matrix") == 0 && known_format && known_field &&
           (h->symmetric || strcasecmp(symmetry, "general") == 0);
}

static bool read_sizes(const char *line, header *h) {
    h->lines = 0;
    int found = sscanf(line, "%" SCNd64 " %" SCNd64 " %" SCNd64, &h->rows, &h->cols, &h->lines);
    if (found != (h->coordinate ? 3 : 2) || h->rows < 0 || h->cols < 0 || h->lines < 0) return false;
    if (!h->coordinate) {
        if (h->symmetric && h->rows != h->cols) return false;
        if (__builtin_mul_overflow(h->rows, h->cols, &h->lines)) return false;
        if (h->symmetric) h->lines = h->skew ? h->rows * (h->rows - 1) / 2 : h->rows * (h->rows + 1) / 2;
    }
    return h->lines <= INT64_MAX / 64;
}

/* The next entry, 0-based. Arrays list columns one after the other, the lower triangle only where symmetric. */
static bool read_entry(char *line, const header *h, int64_t *row, int64_t *col, double *value) {
    char *rest = line, *end;
    *value = 1;
    if (h->coordinate) {
        *row = strtoll(rest, &end, 10) - 1;
        if (end == rest) return false;
        *col = strtoll(rest = end, &end, 10) - 1;
        if (end == rest) return false;
        rest = end;
    } else if (++*row == h->rows) {
        ++*col;
        *row = h->symmetric ? *col + h->skew : 0;
    }
    if (!h->pattern) {
        *value = strtod(rest, &end);
        if (end == rest) return false;
    }
    return *row >= 0 && *row < h->rows && *col >= 0 && *col < h->cols;
}

static int read_entries(FILE *in, const char *path, const header *h, content *out) {
    char line[1024];
    int64_t row = h->skew && !h->coordinate ? 0 : -1, col = 0;
    for (int64_t i = 0; i < h->lines; i++) {
        double value;
        if (fgets(line, sizeof line, in) == NULL || !read_entry(line, h, &row, &col, &value))
            return complain("%s: entry %lld of %lld is missing, not readable or outside the matrix", path, (long long)(i + 1),
                            (long long)h->lines);
        int copies = h->symmetric && row != col ? 2 : 1;
        for (int copy = 0; copy < copies; copy++) {
            out->rows_of[out->entries] = copy ? col : row;
            out->cols_of[out->entries] = copy ? row : col;
            out->values[out->entries++] = copy && h->skew ? -value : value;
        }
        if (i % 1000000 == 999999) progress("reading", (double)i / (double)h->lines);
    }
    return EXIT_FINE;
}

int read_mtx(const char *path, content *out) {
    FILE *in = fopen(path, "r");
    if (in == NULL) return complain("cannot open %s: %s", path, strerror(errno));
    char line[1024];
    header h = {0};
    int result = EXIT_FAILED;
    bool good = fgets(line, sizeof line, in) != NULL && read_banner(line, &h);
    while (good && (good = fgets(line, sizeof line, in) != NULL) && (line[0] == '%' || line[strspn(line, " \t\r\n")] == '\0')) continue;
    if (!good || !read_sizes(line, &h))
        complain("%s: not a real, integer or pattern Matrix Market matrix", path);
    else if (!content_reserve(out, h.symmetric ? 2 * h.lines : h.lines))
        complain("%s: out of memory for %lld entries", path, (long long)h.lines);
    else {
        out->rows = h.rows, out->cols = h.cols, out->dtype = TARTAN_F64;
        result = read_entries(in, path, &h, out);
    }
    fclose(in);
    return result;
}

int write_mtx(const tartan_matrix *matrix, const char *path) {
    tartan_layout *layout = NULL;
    if (tartan_matrix_get_layout(matrix, &layout) != TARTAN_OK) return complain_status(path);
    int64_t n = tartan_layout_elements(layout), rows = tartan_layout_rows(layout), cols = tartan_layout_cols(layout);
    tartan_layout_free(layout);
    content c = {0};
    tartan_array values;
    if (!content_reserve(&c, n) || tartan_array_init(c.values, TARTAN_F64, 1, &n, NULL, &values) != TARTAN_OK ||
        tartan_matrix_to_coo(matrix, c.rows_of, n, c.cols_of, n, &values) != TARTAN_OK) {
        content_free(&c);
        return complain_status(path);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) kept += c.values[i] != 0;
    FILE *out = fopen(path, "w");
    bool good = out != NULL && fprintf(out, "%%%%MatrixMarket matrix coordinate real general\n%lld %lld %lld\n", (long long)rows,
                                       (long long)cols, (long long)kept) > 0;
    for (int64_t i = 0; good && i < n; i++) {
        if (c.values[i] == 0) continue;
        good = fprintf(out, "%lld %lld %.17g\n", (long long)c.rows_of[i] + 1, (long long)c.cols_of[i] + 1, c.values[i]) > 0;
    }
    if (out != NULL && fclose(out) != 0) good = false;
    content_free(&c);
    return good ? EXIT_FINE : complain("cannot write %s: %s", path, strerror(errno));
}
