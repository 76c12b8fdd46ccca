/* SPDX-License-Identifier: Apache-2.0
 * Matrix Market: coordinate and array, real, integer and pattern, general, symmetric and skew-symmetric. */
#include "formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

typedef struct header {
    bool coordinate, pattern, symmetric, skew;
    int64_t rows, cols, lines;
} header;

/* An open file; `line` is the last one read. */
typedef struct reader {
    FILE *in;
    const char *path;
    char *line;
    size_t room;
    long long number; /* of the line */
} reader;

/* The next line that is neither blank nor a comment. */
static bool next_line(reader *r) {
    while (getline(&r->line, &r->room, r->in) >= 0) {
        r->number++;
        if (r->line[0] != '%' && r->line[strspn(r->line, " \t\r\n")] != '\0') return true;
    }
    return false;
}

static bool read_banner(const char *line, header *h) {
    char object[32], format[32], field[32], symmetry[32];
    if (sscanf(line, "%%%%MatrixMarket %31s %31s %31s %31s", object, format, field, symmetry) != 4)
        return false;
    h->coordinate = strcasecmp(format, "coordinate") == 0;
    h->pattern = strcasecmp(field, "pattern") == 0;
    h->skew = strcasecmp(symmetry, "skew-symmetric") == 0;
    h->symmetric = h->skew || strcasecmp(symmetry, "symmetric") == 0;
    bool known_field = h->pattern || strcasecmp(field, "real") == 0 || strcasecmp(field, "integer") == 0;
    bool known_format = h->coordinate || (strcasecmp(format, "array") == 0 && !h->pattern);
    return strcasecmp(object, "matrix") == 0 && known_format && known_field &&
           (h->symmetric || strcasecmp(symmetry, "general") == 0);
}

static bool take_integer(char **rest, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(*rest, &end, 10);
    bool good = end != *rest && errno == 0;
    *rest = end;
    return good;
}

static bool at_end(const char *rest) {
    return rest[strspn(rest, " \t\r\n")] == '\0';
}

/* The number of lines of entries after the sizes. */
static bool read_sizes(char *line, header *h) {
    char *rest = line;
    int64_t all;
    if (!take_integer(&rest, &h->rows) || !take_integer(&rest, &h->cols)) return false;
    if (h->coordinate && !take_integer(&rest, &h->lines)) return false;
    if (!at_end(rest) || h->rows < 0 || h->cols < 0 || h->lines < 0) return false;
    if (h->symmetric && h->rows != h->cols) return false;
    if (h->coordinate) return true;
    if (__builtin_mul_overflow(h->rows, h->cols, &all) || all > INT64_MAX / 64) return false;
    h->lines = h->skew ? (all - h->rows) / 2 : h->symmetric ? (all + h->rows) / 2 : all;
    return true;
}

/* The next entry, 0-based, or what is wrong with its line. Arrays are listed by columns, symmetric ones only with the lower
 * triangle. Of a pattern, numbers after the place are ignored, as in SciPy. */
static const char *read_entry(char *line, const header *h, int64_t *row, int64_t *col, double *value) {
    char *rest = line;
    *value = 1;
    if (h->coordinate) {
        if (!take_integer(&rest, row) || !take_integer(&rest, col)) return "expected a row and a column";
        if (*row < 1 || *col < 1 || *row > h->rows || *col > h->cols)
            return "the entry is outside of the matrix";
        --*row, --*col;
        if (h->skew && *row == *col) return "a skew-symmetric matrix has no entries on its diagonal";
    } else if (++*row == h->rows) {
        ++*col;
        *row = h->symmetric ? *col + h->skew : 0;
    }
    if (!h->pattern) {
        char *end;
        *value = strtod(rest, &end);
        if (end == rest)
            return h->coordinate ? "expected a number after row and column" : "expected a number";
        rest = end;
        if (!at_end(rest)) return "expected nothing after the number";
    }
    return *row < h->rows && *col < h->cols ? NULL : "the entry is outside of the matrix";
}

static int read_entries(reader *r, const header *h, content *out) {
    enum { SHOWN = 1 << 20 };
    int64_t row = h->skew && !h->coordinate ? 0 : -1, col = 0;
    for (int64_t i = 0; i < h->lines; i++) {
        double value;
        if (!next_line(r))
            return complain("%s: entry %lld of %lld is missing", r->path, (long long)(i + 1),
                            (long long)h->lines);
        const char *fault = read_entry(r->line, h, &row, &col, &value);
        if (fault != NULL)
            return complain("%s: line %lld, entry %lld of %lld: %s", r->path, r->number, (long long)(i + 1),
                            (long long)h->lines, fault);
        int copies = h->symmetric && row != col ? 2 : 1;
        for (int copy = 0; copy < copies; copy++) {
            out->rows_of[out->entries] = copy ? col : row;
            out->cols_of[out->entries] = copy ? row : col;
            out->values[out->entries++] = copy && h->skew ? -value : value;
        }
        if (h->lines >= SHOWN && ((i + 1) % SHOWN == 0 || i + 1 == h->lines))
            progress("reading", (double)(i + 1) / (double)h->lines);
    }
    return next_line(r) ? complain("%s: more than %lld entries", r->path, (long long)h->lines) : EXIT_FINE;
}

/* An entry takes at least two bytes: a header with more entries than fit into the file is damaged. */
static bool can_hold(const reader *r, int64_t lines) {
    struct stat about;
    return fstat(fileno(r->in), &about) != 0 || !S_ISREG(about.st_mode) || lines <= about.st_size / 2 + 1;
}

static int read_all(reader *r, content *out) {
    header h = {0};
    r->number = 1;
    if (getline(&r->line, &r->room, r->in) < 0 || !read_banner(r->line, &h))
        return complain("%s: not a real, integer or pattern Matrix Market matrix", r->path);
    if (!next_line(r) || !read_sizes(r->line, &h))
        return complain("%s: the line with the sizes is invalid or missing", r->path);
    if (!can_hold(r, h.lines))
        return complain("%s: too short for the %lld entries that its header announces", r->path,
                        (long long)h.lines);
    if (!content_reserve(out, r->path, h.symmetric ? 2 * h.lines : h.lines)) return EXIT_FAILED;
    out->rows = h.rows, out->cols = h.cols, out->dtype = TARTAN_F64;
    return read_entries(r, &h, out);
}

int read_mtx(const char *path, content *out) {
    reader r = {.in = fopen(path, "r"), .path = path};
    if (r.in == NULL) return complain("cannot open %s: %s", path, strerror(errno));
    int result = read_all(&r, out);
    free(r.line);
    fclose(r.in);
    return result;
}

/* ---- Writing: the stored elements that are not zero ---- */

static int write_entries(const content *c, const char *path) {
    int64_t kept = 0;
    for (int64_t i = 0; i < c->entries; i++) kept += c->values[i] != 0;
    output out;
    if (!output_open(path, &out)) return EXIT_FAILED;
    bool good = fprintf(out.stream, "%%%%MatrixMarket matrix coordinate real general\n%lld %lld %lld\n",
                        (long long)c->rows, (long long)c->cols, (long long)kept) > 0;
    for (int64_t i = 0; good && i < c->entries; i++)
        if (c->values[i] != 0)
            good = fprintf(out.stream, "%lld %lld %.17g\n", (long long)c->rows_of[i] + 1,
                           (long long)c->cols_of[i] + 1, c->values[i]) > 0;
    return output_close(&out, good);
}

int write_mtx(const tartan_matrix *matrix, const char *path) {
    tartan_layout *layout = NULL;
    if (tartan_matrix_get_layout(matrix, &layout) != TARTAN_OK) return complain_status(path);
    content c = {.rows = tartan_layout_rows(layout), .cols = tartan_layout_cols(layout)};
    int64_t n = tartan_layout_elements(layout);
    tartan_layout_free(layout);
    tartan_array values;
    int result = EXIT_FAILED;
    if (content_reserve(&c, path, n)) {
        c.entries = n;
        if (tartan_array_init(c.values, TARTAN_F64, 1, &n, NULL, &values) != TARTAN_OK ||
            tartan_matrix_to_coo(matrix, c.rows_of, n, c.cols_of, n, &values) != TARTAN_OK)
            complain_status(path);
        else
            result = write_entries(&c, path);
    }
    content_free(&c);
    return result;
}
