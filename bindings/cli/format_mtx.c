/* SPDX-License-Identifier: Apache-2.0
 * Matrix Market: coordinate and array; real, integer, pattern and one part of complex; general, symmetric, skew-symmetric
 * and Hermitian; plain or compressed by gzip. */
#include "formats.h"

#include <zlib.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

typedef struct header {
    bool coordinate, pattern, complex, symmetric, skew;
    bool mirrored_minus; /* the other triangle has the opposite sign */
    int64_t rows, cols, lines;
} header;

/* An open file; `line` is the last one read, and `number` its number. zlib reads files that are not compressed as they
 * are. */
typedef struct reader {
    gzFile in;
    const char *path;
    char *line;
    int room;
    int64_t number;
} reader;

/* The next line, as long as it may be. */
static bool any_line(reader *r) {
    int length = 0;
    for (;;) {
        if (r->room - length < 256) {
            char *longer = r->room > INT32_MAX / 4 ? NULL : realloc(r->line, (size_t)(2 * r->room + 1024));
            if (longer == NULL) return false;
            r->line = longer;
            r->room = 2 * r->room + 1024;
        }
        if (gzgets(r->in, r->line + length, r->room - length) == NULL) break;
        length += (int)strlen(r->line + length);
        if (length > 0 && r->line[length - 1] == '\n') break;
    }
    r->number++;
    return length > 0;
}

/* The next line that is neither blank nor a comment. */
static bool next_line(reader *r) {
    while (any_line(r))
        if (r->line[0] != '%' && r->line[strspn(r->line, " \t\r\n")] != '\0') return true;
    return false;
}

static bool read_banner(const char *line, mtx_part part, header *h) {
    char object[32], format[32], field[32], symmetry[32];
    if (sscanf(line, "%%%%MatrixMarket %31s %31s %31s %31s", object, format, field, symmetry) != 4)
        return false;
    h->coordinate = strcasecmp(format, "coordinate") == 0;
    h->pattern = strcasecmp(field, "pattern") == 0;
    h->complex = strcasecmp(field, "complex") == 0;
    /* Of a Hermitian matrix the real part is symmetric, the imaginary one skew-symmetric, with zeros on its diagonal. */
    const bool hermitian = h->complex && strcasecmp(symmetry, "hermitian") == 0;
    h->skew = strcasecmp(symmetry, "skew-symmetric") == 0;
    h->symmetric = h->skew || hermitian || strcasecmp(symmetry, "symmetric") == 0;
    h->mirrored_minus = h->skew || (hermitian && part == MTX_IMAGINARY);
    bool known_field =
        h->pattern || h->complex || strcasecmp(field, "real") == 0 || strcasecmp(field, "integer") == 0;
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

/* One number of an entry. */
static bool take_number(char **rest, double *out) {
    char *end;
    *out = strtod(*rest, &end);
    const bool good = end != *rest;
    *rest = end;
    return good;
}

/* What is wrong with an entry, or NULL; the entry is 0-based. Arrays are listed by columns, symmetric ones only with
 * the lower triangle. A number after the place of an entry of a pattern is ignored, as SciPy does. */
static const char *read_entry(char *line, const header *h, mtx_part part, int64_t *row, int64_t *col,
                              double *value) {
    double imaginary;
    char *rest = line;
    *value = 1;
    if (h->coordinate) {
        if (!take_integer(&rest, row) || !take_integer(&rest, col))
            return "does not begin with a row and a column";
        if (*row < 1 || *col < 1) return "is outside the matrix";
        --*row, --*col;
        if (h->skew && *row == *col) return "is on the diagonal of a skew-symmetric matrix";
    } else if (++*row == h->rows) {
        ++*col;
        *row = h->symmetric ? *col + h->skew : 0;
    }
    if (*row >= h->rows || *col >= h->cols) return "is outside the matrix";
    if (h->pattern) {
        double ignored;
        (void)take_number(&rest, &ignored);
    } else if (!take_number(&rest, value)) {
        return "has no value";
    }
    if (h->complex && !take_number(&rest, &imaginary)) return "has no imaginary part";
    if (h->complex && part == MTX_IMAGINARY) *value = imaginary;
    return at_end(rest) ? NULL : "has something behind its value";
}

static int read_entries(reader *r, const header *h, mtx_part part, content *out) {
    enum { SHOWN = 1 << 20 };
    int64_t row = h->skew && !h->coordinate ? 0 : -1, col = 0;
    for (int64_t i = 0; i < h->lines; i++) {
        double value;
        if (!next_line(r))
            return complain("%s: entry %lld of %lld is missing", r->path, (long long)(i + 1),
                            (long long)h->lines);
        const char *fault = read_entry(r->line, h, part, &row, &col, &value);
        if (fault != NULL)
            return complain("%s: line %lld, entry %lld of %lld, %s", r->path, (long long)r->number,
                            (long long)(i + 1), (long long)h->lines, fault);
        int copies = h->symmetric && row != col ? 2 : 1;
        for (int copy = 0; copy < copies; copy++) {
            out->rows_of[out->entries] = copy ? col : row;
            out->cols_of[out->entries] = copy ? row : col;
            out->values[out->entries++] = copy && h->mirrored_minus ? -value : value;
        }
        if (h->lines >= SHOWN && ((i + 1) % SHOWN == 0 || i + 1 == h->lines))
            progress("reading", (double)(i + 1) / (double)h->lines);
    }
    return next_line(r) ? complain("%s: more than %lld entries", r->path, (long long)h->lines) : EXIT_FINE;
}

/* An entry takes at least two bytes, and gzip makes at most 1032 bytes of one: a header with more entries than fit into
 * the file is damaged. */
static bool can_hold(const reader *r, int64_t lines) {
    struct stat about;
    const int64_t expansion = gzdirect(r->in) ? 1 : 1032;
    return stat(r->path, &about) != 0 || !S_ISREG(about.st_mode) ||
           lines / expansion <= about.st_size / 2 + 1;
}

static int read_all(reader *r, mtx_part part, content *out) {
    header h = {0};
    if (!any_line(r) || !read_banner(r->line, part, &h))
        return complain("%s: not a real, complex, integer or pattern Matrix Market matrix", r->path);
    if (h.complex && part == MTX_WHOLE)
        return complain("%s: is complex: choose one part with --part real or --part imaginary", r->path);
    if (!h.complex && part != MTX_WHOLE)
        return complain("%s: is not complex: --part is for complex matrices", r->path);
    if (!next_line(r) || !read_sizes(r->line, &h))
        return complain("%s: the line with the sizes is invalid or missing", r->path);
    if (!can_hold(r, h.lines))
        return complain("%s: too short for the %lld entries that its header announces", r->path,
                        (long long)h.lines);
    if (!content_reserve(out, r->path, h.symmetric ? 2 * h.lines : h.lines)) return EXIT_FAILED;
    out->rows = h.rows, out->cols = h.cols, out->dtype = TARTAN_F64;
    return read_entries(r, &h, part, out);
}

int read_mtx(const char *path, mtx_part part, content *out) {
    errno = 0;
    reader r = {.in = gzopen(path, "r"), .path = path};
    if (r.in == NULL) return complain("cannot open %s: %s", path, strerror(errno != 0 ? errno : ENOMEM));
    int result = read_all(&r, part, out), code;
    const char *why = gzerror(r.in, &code);
    if (code != Z_OK && code != Z_STREAM_END) /* what came too early looks like a short file */
        result = complain("%s: cannot be read: %s", path, code == Z_ERRNO ? strerror(errno) : why);
    free(r.line);
    gzclose(r.in);
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
