/* SPDX-License-Identifier: Apache-2.0
 * numpy's .npy and the .npz of scipy.sparse.save_npz. */
#include "formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

enum { NPY_PREFIX = 10, HEADER_ROOM = 256 };
static const char magic[] = "\x93NUMPY";

static bool parse_shape(const char *text, npy *out) {
    out->ndim = 0;
    out->elements = 1;
    for (const char *c = text; *c != ')' && *c != '\0';) {
        char *end;
        long long size = strtoll(c, &end, 10);
        if (end == c) {
            c++;
            continue;
        }
        if (out->ndim == 8 || size < 0 || __builtin_mul_overflow(out->elements, size, &out->elements)) return false;
        out->shape[out->ndim++] = size;
        c = end;
    }
    return true;
}

/* The header is the text of a Python dictionary with three known keys. */
static bool parse_header(const char *header, npy *out) {
    const char *descr = strstr(header, "'descr':"), *order = strstr(header, "'fortran_order':"), *shape = strstr(header, "'shape':");
    if (descr == NULL || order == NULL || shape == NULL || (shape = strchr(shape, '(')) == NULL) return false;
    char byte_order;
    if (sscanf(descr + 8, " '%c%c%d'", &byte_order, &out->kind, &out->bytes) != 3) return false;
    if (byte_order == '>' || strchr("fiubSU", out->kind) == NULL || out->bytes < 1 || out->bytes > 1 << 20) return false;
    if (out->kind == 'U') out->bytes *= 4;
    out->fortran_order = strncmp(order + 16 + strspn(order + 16, " "), "True", 4) == 0;
    return parse_shape(shape + 1, out);
}

bool npy_parse(const char *what, const unsigned char *bytes, size_t size, npy *out) {
    bool good = size > NPY_PREFIX + 2 && memcmp(bytes, magic, 6) == 0 && bytes[6] >= 1 && bytes[6] <= 3;
    size_t prefix = good && bytes[6] > 1 ? NPY_PREFIX + 2 : NPY_PREFIX, length = 0;
    for (size_t i = prefix; good && i-- > 8;) length = length << 8 | bytes[i];
    good = good && length < size - prefix;
    char *header = good ? malloc(length + 1) : NULL;
    if (header != NULL) {
        memcpy(header, bytes + prefix, length);
        header[length] = '\0';
        int64_t needed;
        out->data = bytes + prefix + length;
        good = parse_header(header, out) && !__builtin_mul_overflow(out->elements, (int64_t)out->bytes, &needed) &&
               (uint64_t)needed <= size - prefix - length;
        free(header);
    }
    if (!good || header == NULL) complain("%s: not a little-endian numeric .npy, or cut short", what);
    return good && header != NULL;
}

double npy_number(const npy *a, int64_t i) {
    const unsigned char *p = a->data + i * a->bytes;
    if (a->kind != 'f') return (double)npy_integer(a, i);
    double f64 = 0;
    float f32;
    if (a->bytes == 8)
        memcpy(&f64, p, 8);
    else if (a->bytes == 4) {
        memcpy(&f32, p, 4);
        f64 = f32;
    }
    return f64;
}

int64_t npy_integer(const npy *a, int64_t i) {
    const unsigned char *p = a->data + i * a->bytes;
    uint64_t value = 0;
    for (int b = a->bytes > 8 ? 8 : a->bytes; b-- > 0;) value = value << 8 | p[b];
    int unused = 64 - 8 * a->bytes;
    if (a->kind == 'i' && unused > 0) return (int64_t)(value << unused) >> unused;
    return (int64_t)value;
}

const char *npy_descr(int32_t dtype) {
    return dtype == TARTAN_F64 ? "<f8" : dtype == TARTAN_F32 ? "<f4" : dtype == TARTAN_F16 ? "<f2" : NULL;
}

int npy_header(const char *descr, bool fortran_order, int ndim, const int64_t *shape, char *out, int size) {
    int used = snprintf(out, (size_t)size, "%sxxxx{'descr': '%s', 'fortran_order': %s, 'shape': (", magic, descr,
                        fortran_order ? "True" : "False");
    for (int i = 0; i < ndim; i++) used += snprintf(out + used, (size_t)(size - used), "%lld,", (long long)shape[i]);
    used += snprintf(out + used, (size_t)(size - used), "), }");
    int total = (used + 1 + 63) / 64 * 64;
    memset(out + used, ' ', (size_t)(total - used));
    out[total - 1] = '\n';
    out[6] = 1, out[7] = 0;
    out[8] = (char)((total - NPY_PREFIX) & 0xff), out[9] = (char)((total - NPY_PREFIX) >> 8);
    return total;
}

static int32_t dtype_of(const npy *a) {
    if (a->kind != 'f') return TARTAN_F64;
    return a->bytes == 8 ? TARTAN_F64 : a->bytes == 4 ? TARTAN_F32 : a->bytes == 2 ? TARTAN_F16 : 0;
}

int read_npy(const char *path, content *out) {
    size_t size;
    unsigned char *bytes = read_whole(path, &size);
    npy a;
    if (bytes == NULL) return EXIT_FAILED;
    out->memory = bytes;
    if (!npy_parse(path, bytes, size, &a)) return EXIT_FAILED;
    if (a.ndim != 2 || a.kind != 'f' || dtype_of(&a) == 0)
        return complain("%s: expected a matrix of float64, float32 or float16", path);
    out->is_dense = true;
    out->rows = a.shape[0], out->cols = a.shape[1], out->dtype = dtype_of(&a);
    const int64_t strides[] = {a.fortran_order ? 1 : a.shape[1], a.fortran_order ? a.shape[0] : 1};
    /* The header is padded to 64 bytes, so the data is aligned in the allocated block. */
    if (tartan_array_init((void *)(uintptr_t)a.data, out->dtype, 2, a.shape, strides, &out->dense) != TARTAN_OK)
        return complain_status(path);
    return EXIT_FINE;
}

int write_npy(const tartan_matrix *matrix, const char *path) {
    int32_t dtype = tartan_matrix_dtype(matrix);
    if (npy_descr(dtype) == NULL) dtype = TARTAN_F32;
    tartan_layout *layout = NULL;
    if (tartan_matrix_get_layout(matrix, &layout) != TARTAN_OK) return complain_status(path);
    const int64_t shape[] = {tartan_layout_rows(layout), tartan_layout_cols(layout)};
    size_t bytes = (size_t)(shape[0] * shape[1] * tartan_dtype_bytes(dtype));
    tartan_layout_free(layout);
    tartan_array dense;
    char header[HEADER_ROOM];
    void *data = malloc(bytes + 1);
    if (data == NULL) return complain("%s: out of memory", path);
    if (tartan_array_init(data, dtype, 2, shape, NULL, &dense) != TARTAN_OK || tartan_matrix_to_dense(matrix, &dense) != TARTAN_OK) {
        free(data);
        return complain_status(path);
    }
    int length = npy_header(npy_descr(dtype), false, 2, shape, header, sizeof header);
    FILE *out = fopen(path, "wb");
    bool good = out != NULL && fwrite(header, 1, (size_t)length, out) == (size_t)length && fwrite(data, 1, bytes, out) == bytes;
    if (out != NULL && fclose(out) != 0) good = false;
    free(data);
    return good ? EXIT_FINE : complain("cannot write %s: %s", path, strerror(errno));
}

/* ---- .npz: a zip of .npy files ---- */

/* Member `name` of the archive as a parsed array; *out_bytes is to be freed. */
static bool read_member(zip_t *archive, const char *path, const char *name, unsigned char **out_bytes, npy *out) {
    *out_bytes = NULL;
    zip_stat_t stat;
    if (zip_stat(archive, name, 0, &stat) != 0 || stat.size > INT64_MAX / 2) return complain("%s: no member %s", path, name), false;
    zip_file_t *member = zip_fopen(archive, name, 0);
    unsigned char *bytes = member != NULL ? malloc(stat.size + 1) : NULL;
    bool good = bytes != NULL && zip_fread(member, bytes, stat.size) == (zip_int64_t)stat.size;
    if (member != NULL) zip_fclose(member);
    *out_bytes = bytes;
    if (!good) return complain("%s: cannot read member %s", path, name), false;
    return npy_parse(name, bytes, stat.size, out);
}

typedef struct npz_arrays {
    npy format, shape, data, first, second; /* indptr and indices, or row and col */
    unsigned char *memory[5];
    char name[4];
} npz_arrays;

static bool read_members(zip_t *archive, const char *path, npz_arrays *a) {
    if (!read_member(archive, path, "format.npy", &a->memory[0], &a->format) || a->format.elements != 1) return false;
    /* b'csr' (S3) or 'csr' (U3) */
    int step = a->format.kind == 'U' ? 4 : 1;
    for (int i = 0; i < 3 && i * step < a->format.bytes; i++) a->name[i] = (char)a->format.data[i * step];
    bool coo = strcmp(a->name, "coo") == 0;
    return read_member(archive, path, "shape.npy", &a->memory[1], &a->shape) && a->shape.elements == 2 &&
           read_member(archive, path, "data.npy", &a->memory[2], &a->data) &&
           read_member(archive, path, coo ? "row.npy" : "indptr.npy", &a->memory[3], &a->first) &&
           read_member(archive, path, coo ? "col.npy" : "indices.npy", &a->memory[4], &a->second);
}

static int fill_entries(const npz_arrays *a, const char *path, content *out) {
    bool bsr_format = strcmp(a->name, "bsr") == 0, coo = strcmp(a->name, "coo") == 0, csc = strcmp(a->name, "csc") == 0;
    if (!bsr_format && !coo && !csc && strcmp(a->name, "csr") != 0) return complain("%s: format \"%s\" is not csr, csc, coo or bsr", path, a->name);
    int64_t br = bsr_format && a->data.ndim == 3 ? a->data.shape[1] : 1, bc = bsr_format && a->data.ndim == 3 ? a->data.shape[2] : 1;
    int64_t groups = a->second.elements, lists = a->first.elements - 1;
    if (groups * br * bc != a->data.elements || (coo && a->first.elements != groups) || (!coo && lists < 0) ||
        (a->data.kind == 'f' && a->data.bytes == 2))
        return complain("%s: members do not fit together", path);
    if (!content_reserve(out, a->data.elements)) return complain("%s: out of memory", path);
    out->rows = npy_integer(&a->shape, 0), out->cols = npy_integer(&a->shape, 1);
    out->dtype = dtype_of(&a->data);
    int64_t list = 0;
    for (int64_t g = 0; g < groups; g++) {
        while (!coo && list < lists && npy_integer(&a->first, list + 1) <= g) list++;
        int64_t major = coo ? npy_integer(&a->first, g) : list, minor = npy_integer(&a->second, g);
        for (int64_t e = 0; e < br * bc; e++) {
            out->rows_of[out->entries] = (csc ? minor : major) * br + e / bc;
            out->cols_of[out->entries] = (csc ? major : minor) * bc + e % bc;
            out->values[out->entries++] = npy_number(&a->data, g * br * bc + e);
        }
    }
    return EXIT_FINE;
}

int read_npz(const char *path, content *out) {
    int code;
    zip_t *archive = zip_open(path, ZIP_RDONLY, &code);
    if (archive == NULL) return complain("cannot open %s: %s", path, code == ZIP_ER_NOENT ? "no such file" : "not a zip archive");
    npz_arrays a = {0};
    int result = read_members(archive, path, &a) ? fill_entries(&a, path, out) : EXIT_FAILED;
    for (int i = 0; i < 5; i++) free(a.memory[i]);
    zip_discard(archive);
    return result;
}

/* Adds header and data as a member; the archive copies them when it is closed, so `joined` stays alive. */
static bool add_member(zip_t *archive, const char *name, const char *descr, int ndim, const int64_t *shape, const void *data, size_t bytes) {
    char header[HEADER_ROOM];
    int length = npy_header(descr, false, ndim, shape, header, sizeof header);
    char *joined = malloc((size_t)length + bytes + 1);
    if (joined == NULL) return false;
    memcpy(joined, header, (size_t)length);
    if (bytes > 0) memcpy(joined + length, data, bytes);
    zip_source_t *source = zip_source_buffer(archive, joined, (size_t)length + bytes, 1);
    if (source == NULL) {
        free(joined);
        return false;
    }
    if (zip_file_add(archive, name, source, ZIP_FL_OVERWRITE) >= 0) return true;
    zip_source_free(source);
    return false;
}

int write_npz(const tartan_matrix *matrix, const char *path) {
    int32_t dtype = tartan_matrix_dtype(matrix) == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32; /* scipy has no 16-bit BSR */
    bsr b;
    if (!bsr_of(matrix, dtype, &b)) return complain_status(path);
    const int64_t two = 2, shape[] = {tartan_layout_rows(b.layout), tartan_layout_cols(b.layout)};
    int code, result = EXIT_FAILED;
    zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    size_t word = sizeof(int64_t);
    bool good = archive != NULL && add_member(archive, "format.npy", "|S3", 0, NULL, "bsr", 3) &&
                add_member(archive, "shape.npy", "<i8", 1, &two, shape, 2 * word) &&
                add_member(archive, "indptr.npy", "<i8", 1, &b.pointers, b.row_pointers, word * (size_t)b.pointers) &&
                add_member(archive, "indices.npy", "<i8", 1, &b.blocks, b.block_cols, word * (size_t)b.blocks) &&
                add_member(archive, "data.npy", npy_descr(dtype), 3, b.values.shape, b.values.data,
                           (size_t)(b.blocks * b.values.shape[1] * b.values.shape[2] * tartan_dtype_bytes(dtype)));
    if (good && zip_close(archive) == 0)
        result = EXIT_FINE;
    else {
        complain("cannot write %s: %s", path, archive != NULL ? zip_strerror(archive) : strerror(errno));
        if (archive != NULL) zip_discard(archive);
    }
    bsr_free(&b);
    return result;
}
