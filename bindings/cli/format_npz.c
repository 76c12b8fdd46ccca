/* SPDX-License-Identifier: Apache-2.0
 * The .npz of scipy.sparse.save_npz: a zip archive of .npy files. */
#include "formats.h"

#include <stdlib.h>
#include <string.h>
#include <zip.h>

/* Member `name` of the archive as a parsed array. The caller frees *out_bytes in any case. */
static bool read_member(zip_t *archive, const char *path, const char *name, unsigned char **out_bytes,
                        npy *out) {
    zip_stat_t about;
    if (zip_stat(archive, name, 0, &about) != 0 || (about.valid & ZIP_STAT_SIZE) == 0 ||
        about.size > INT64_MAX / 2) {
        complain("%s: no member %s: not written by scipy.sparse.save_npz, or damaged", path, name);
        return false;
    }
    zip_file_t *member = zip_fopen(archive, name, 0);
    unsigned char *bytes = *out_bytes = member != NULL ? malloc(about.size + 1) : NULL;
    /* Read to the end: only then is the checksum compared. */
    bool good = bytes != NULL && zip_fread(member, bytes, about.size) == (zip_int64_t)about.size &&
                zip_fread(member, bytes + about.size, 1) == 0;
    if (member != NULL && zip_fclose(member) != 0) good = false;
    if (!good) complain("%s: cannot read member %s: damaged, or out of memory", path, name);
    char what[1024];
    snprintf(what, sizeof what, "%s: %s", path, name);
    return good && npy_parse(what, bytes, about.size, out);
}

typedef struct arrays {
    npy format, shape, data, first, second; /* indptr and indices, row and col, or only offsets */
    unsigned char *memory[5];
    char name[4];
} arrays;

/* b'csr' (S3) or 'csr' (U3). */
static bool read_format(zip_t *archive, const char *path, arrays *a) {
    if (!read_member(archive, path, "format.npy", &a->memory[0], &a->format)) return false;
    int step = a->format.kind == 'U' ? 4 : 1;
    bool is_text = a->format.kind == 'U' || a->format.kind == 'S';
    for (int i = 0; is_text && a->format.elements == 1 && i < 3 && i * step < a->format.bytes; i++)
        a->name[i] = (char)a->format.data[i * step];
    static const char *const known[] = {"csr", "csc", "coo", "bsr", "dia"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(a->name, known[i]) == 0) return true;
    complain("%s: the format is not csr, csc, coo, bsr or dia", path);
    return false;
}

static int read_arrays(zip_t *archive, const char *path, arrays *a, content *out) {
    if (!read_format(archive, path, a)) return EXIT_FAILED;
    bool coo = strcmp(a->name, "coo") == 0, dia = strcmp(a->name, "dia") == 0;
    const char *first = coo   ? "row.npy"
                        : dia ? "offsets.npy"
                              : "indptr.npy",
               *second = coo ? "col.npy" : "indices.npy";
    if (!read_member(archive, path, "shape.npy", &a->memory[1], &a->shape) ||
        !read_member(archive, path, "data.npy", &a->memory[2], &a->data) ||
        !read_member(archive, path, first, &a->memory[3], &a->first) ||
        (!dia && !read_member(archive, path, second, &a->memory[4], &a->second)))
        return EXIT_FAILED;
    if (a->shape.elements != 2 || !npy_is_integer(&a->shape))
        return complain("%s: shape is not two integers", path);
    out->rows = npy_integer(&a->shape, 0), out->cols = npy_integer(&a->shape, 1);
    if (dia) return content_from_diagonals(out, path, &a->first, &a->data);
    return content_from_lists(out, path, a->name, &a->first, &a->second, &a->data);
}

int read_npz(const char *path, content *out) {
    int code;
    zip_t *archive = zip_open(path, ZIP_RDONLY, &code);
    if (archive == NULL) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        complain("cannot open %s: %s", path, zip_error_strerror(&error));
        zip_error_fini(&error);
        return EXIT_FAILED;
    }
    arrays a = {0};
    int result = read_arrays(archive, path, &a, out);
    for (int i = 0; i < 5; i++) free(a.memory[i]);
    zip_discard(archive);
    return result;
}

/* ---- Writing ---- */

/* Adds header and data as a member; the archive owns the joined bytes and frees them when it is closed. */
static bool add_member(zip_t *archive, const char *name, const char *descr, int ndim, const int64_t *shape,
                       const void *data, size_t bytes) {
    char header[NPY_HEADER_ROOM];
    size_t length = (size_t)npy_header(descr, ndim, shape, header, sizeof header);
    char *joined = malloc(length + bytes);
    if (joined == NULL) return false;
    memcpy(joined, header, length);
    if (bytes > 0) memcpy(joined + length, data, bytes);
    zip_source_t *source = zip_source_buffer(archive, joined, length + bytes, 1);
    if (source == NULL) {
        free(joined);
        return false;
    }
    if (zip_file_add(archive, name, source, ZIP_FL_OVERWRITE) >= 0) return true;
    zip_source_free(source);
    return false;
}

static bool add_matrix(zip_t *archive, const char *format, const int64_t *shape, const int64_t *first,
                       int64_t nfirst, const int64_t *second, int64_t nsecond, const tartan_array *values) {
    const int64_t two = 2;
    size_t word = sizeof(int64_t), bytes = (size_t)tartan_dtype_bytes(values->dtype);
    for (int i = 0; i < values->ndim; i++) bytes *= (size_t)values->shape[i];
    return add_member(archive, "format.npy", "|S3", 0, NULL, format, 3) &&
           add_member(archive, "shape.npy", "<i8", 1, &two, shape, 2 * word) &&
           add_member(archive, "indptr.npy", "<i8", 1, &nfirst, first, word * (size_t)nfirst) &&
           add_member(archive, "indices.npy", "<i8", 1, &nsecond, second, word * (size_t)nsecond) &&
           add_member(archive, "data.npy", npy_descr(values->dtype), values->ndim, values->shape,
                      values->data, bytes);
}

/* scipy's BSR only has whole blocks, so a matrix with a ragged edge becomes CSR of its stored elements. */
static bool add_ragged(zip_t *archive, const bsr *b, const int64_t *shape) {
    int64_t n = tartan_layout_elements(b->layout), pointers = shape[0] + 1;
    int64_t *first = malloc(sizeof *first * (size_t)pointers),
            *second = malloc(sizeof *second * (size_t)(n + 1));
    double *numbers = malloc(sizeof *numbers * (size_t)(n + 1));
    tartan_array values;
    bool good = false;
    if (first == NULL || second == NULL || numbers == NULL)
        complain("out of memory for %lld elements", (long long)n);
    else if (tartan_array_init(numbers, b->values.dtype, 1, &n, NULL, &values) != TARTAN_OK ||
             tartan_matrix_to_csr(b->matrix, first, pointers, second, n, &values) != TARTAN_OK)
        complain_status("cannot take the matrix apart");
    else
        good = add_matrix(archive, "csr", shape, first, pointers, second, n, &values);
    free(first), free(second), free(numbers);
    return good;
}

int write_npz(const tartan_matrix *matrix, const char *path) {
    int32_t dtype =
        tartan_matrix_dtype(matrix) == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32; /* scipy has no 16-bit types */
    bsr b;
    output out;
    if (!bsr_of(matrix, dtype, &b)) return EXIT_FAILED;
    if (!output_open(path, &out)) {
        bsr_free(&b);
        return EXIT_FAILED;
    }
    const int64_t shape[] = {tartan_layout_rows(b.layout), tartan_layout_cols(b.layout)};
    bool ragged = tartan_layout_is_variable(b.layout) == 1 || shape[0] % b.values.shape[1] != 0 ||
                  shape[1] % b.values.shape[2] != 0;
    int code, result = EXIT_FAILED;
    /* On closing, libzip replaces the temporary file with its own. */
    zip_t *archive = out.temporary != NULL ? zip_open(out.temporary, ZIP_TRUNCATE, &code) : NULL;
    bool good = archive != NULL && (ragged ? add_ragged(archive, &b, shape)
                                           : add_matrix(archive, "bsr", shape, b.row_pointers, b.pointers,
                                                        b.block_cols, b.blocks, &b.values));
    if (good && zip_close(archive) == 0) {
        result = output_close(&out, true);
    } else {
        if (archive != NULL) zip_discard(archive);
        output_close(&out, false);
    }
    bsr_free(&b);
    return result;
}
