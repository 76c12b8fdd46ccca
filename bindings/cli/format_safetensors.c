/* SPDX-License-Identifier: Apache-2.0
 * safetensors: a JSON header of tensors, then their bytes. A block-sparse matrix NAME is three tensors:
 * NAME.blocks [n, br, bc], NAME.indptr and NAME.indices (int64), with its shape in the metadata. */
#include "formats.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, KEY_ROOM = 512 };

static const struct {
    const char *name;
    int32_t dtype; /* 0: indices */
    char kind;
    int bytes;
} types[] = {{"F64", TARTAN_F64, 'f', 8},
             {"F32", TARTAN_F32, 'f', 4},
             {"F16", TARTAN_F16, 'f', 2},
             {"BF16", TARTAN_BF16, 'h', 2},
             {"I64", 0, 'i', 8}};
enum { TYPES = sizeof types / sizeof types[0] };

static const char *type_name(int32_t dtype) {
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return NULL;
}

/* An opened file: its header, and the bytes that the offsets count from. */
typedef struct file {
    const char *path;
    json_t *header;
    const unsigned char *data;
    uint64_t size;
} file;

static json_t *find_part(const file *f, const char *name, size_t length, const char *part) {
    char key[KEY_ROOM];
    int used = snprintf(key, sizeof key, "%.*s.%s", (int)(length < KEY_ROOM ? length : KEY_ROOM), name, part);
    return used < KEY_ROOM ? json_object_get(f->header, key) : NULL;
}

/* The tensor as an array, after checking that its bytes exist and match its shape. */
static bool take_tensor(const file *f, const char *what, const json_t *tensor, npy *out) {
    json_int_t begin = -1, end = -1;
    const char *type = NULL;
    json_t *shape = NULL;
    int i = 0;
    memset(out, 0, sizeof *out);
    if (json_unpack((json_t *)tensor, "{s:s, s:o, s:[I,I!]}", "dtype", &type, "shape", &shape, "data_offsets",
                    &begin, &end) == 0)
        while (i < TYPES && strcmp(types[i].name, type) != 0) i++;
    else
        i = TYPES;
    if (i == TYPES || json_array_size(shape) > 8) {
        complain("%s: %s is not a tensor of F64, F32, F16, BF16 or I64", f->path, what);
        return false;
    }
    out->kind = types[i].kind, out->bytes = types[i].bytes, out->elements = 1;
    out->ndim = (int)json_array_size(shape);
    int64_t needed = -1;
    bool good = json_is_array(shape);
    for (int d = 0; good && d < out->ndim; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        out->shape[d] = json_is_integer(size) ? json_integer_value(size) : -1;
        good = out->shape[d] >= 0 && !__builtin_mul_overflow(out->elements, out->shape[d], &out->elements);
    }
    good = good && !__builtin_mul_overflow(out->elements, (int64_t)out->bytes, &needed) && begin >= 0 &&
           end >= begin && end - begin == needed && (uint64_t)end <= f->size;
    if (good)
        out->data = f->data + begin;
    else
        complain("%s: %s: the shape does not fit the bytes", f->path, what);
    return good;
}

static int use_dense(const file *f, const char *name, const json_t *tensor, content *out) {
    npy a;
    if (!take_tensor(f, name, tensor, &a)) return EXIT_FAILED;
    if (a.ndim != 2 || a.kind == 'i')
        return complain("%s: %s is not a matrix of F64, F32, F16 or BF16", f->path, name);
    return content_use_dense(out, f->path, a.data, npy_dtype(&a), 2, a.shape, NULL);
}

/* The sparse matrix whose name is the first `length` bytes of `name`. */
static int use_sparse(const file *f, const char *name, size_t length, content *out) {
    npy blocks, pointers, indices;
    if (!take_tensor(f, "blocks", find_part(f, name, length, "blocks"), &blocks) ||
        !take_tensor(f, "indptr", find_part(f, name, length, "indptr"), &pointers) ||
        !take_tensor(f, "indices", find_part(f, name, length, "indices"), &indices))
        return EXIT_FAILED;
    const char *shape =
        json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), "shape"));
    char *end = NULL;
    out->rows = shape != NULL ? strtoll(shape, &end, 10) : -1;
    out->cols = end != NULL && *end == ',' ? strtoll(end + 1, &end, 10) : -1;
    if (out->rows < 0 || out->cols < 0 || *end != '\0')
        return complain("%s: the metadata have no shape such as \"4096,4096\"", f->path);
    return content_from_lists(out, f->path, "bsr", &pointers, &indices, &blocks);
}

/* Every byte after the header belongs to a tensor; in a truncated file, tensors reach past its end. */
static int check_extent(const file *f) {
    const char *key;
    json_t *tensor;
    json_int_t last = 0;
    json_object_foreach(f->header, key, tensor) {
        json_int_t begin, end;
        if (strcmp(key, "__metadata__") == 0) continue;
        if (json_unpack(tensor, "{s:[I,I!]}", "data_offsets", &begin, &end) != 0 || begin < 0 || end < begin)
            return complain("%s: damaged: %s has no data_offsets such as [0, 64]", f->path, key);
        if (end > last) last = end;
    }
    if ((uint64_t)last == f->size) return EXIT_FINE;
    return complain("%s: %s: its tensors take %lld bytes, but it has %llu", f->path,
                    (uint64_t)last > f->size ? "truncated" : "damaged", (long long)last,
                    (unsigned long long)f->size);
}

/* The length of the matrix name if the tensor is a real matrix, or the blocks NAME.blocks of one; else 0. */
static size_t matrix_name(const char *key, const json_t *tensor) {
    const char *dot = strrchr(key, '.'), *type = json_string_value(json_object_get(tensor, "dtype"));
    const bool is_flat = json_array_size(json_object_get(tensor, "shape")) == 2;
    for (int i = 0; is_flat && type != NULL && i < TYPES; i++)
        if (types[i].dtype != 0 && strcmp(types[i].name, type) == 0) return strlen(key);
    return dot != NULL && strcmp(dot, ".blocks") == 0 ? (size_t)(dot - key) : 0;
}

static int refuse_several(const file *f) {
    enum { SHOWN = 5 };
    char names[256] = "";
    const char *key;
    json_t *tensor;
    int count = 0;
    json_object_foreach(f->header, key, tensor) {
        const size_t length = matrix_name(key, tensor), used = strlen(names);
        if (length > 0 && ++count <= SHOWN)
            snprintf(names + used, sizeof names - used, "%s%.*s", used > 0 ? ", " : "", (int)length, key);
    }
    return complain("%s: has %d matrices (%s%s): name one with --tensor", f->path, count, names,
                    count > SHOWN ? ", ..." : "");
}

/* The requested tensor or sparse matrix, or the only one. */
static int use_any(const file *f, const char *wanted, content *out) {
    const char *key;
    json_t *tensor;
    if (wanted != NULL && (tensor = json_object_get(f->header, wanted)) != NULL)
        return use_dense(f, wanted, tensor, out);
    if (wanted != NULL) {
        if (find_part(f, wanted, strlen(wanted), "blocks") != NULL)
            return use_sparse(f, wanted, strlen(wanted), out);
        return complain("%s: no tensor %s", f->path, wanted);
    }
    const char *only = NULL;
    json_object_foreach(f->header, key, tensor) {
        if (matrix_name(key, tensor) == 0) continue;
        if (only != NULL) return refuse_several(f);
        only = key;
    }
    if (only == NULL) return complain("%s: no matrix", f->path);
    tensor = json_object_get(f->header, only);
    const size_t length = matrix_name(only, tensor);
    return length == strlen(only) ? use_dense(f, only, tensor, out) : use_sparse(f, only, length, out);
}

int read_safetensors(const char *path, const char *wanted, content *out) {
    size_t size;
    unsigned char *bytes = read_whole(path, &size);
    if (bytes == NULL) return EXIT_FAILED;
    out->memory = bytes;
    uint64_t length = 0;
    for (int i = LENGTH_BYTES; size >= LENGTH_BYTES && i-- > 0;) length = length << 8 | bytes[i];
    file f = {.path = path};
    if (size >= LENGTH_BYTES && length <= size - LENGTH_BYTES) {
        f.header = json_loadb((char *)bytes + LENGTH_BYTES, length, 0, NULL);
        f.data = bytes + LENGTH_BYTES + length;
        f.size = size - LENGTH_BYTES - length;
    }
    int result = !json_is_object(f.header)       ? complain("%s: not a safetensors file", path)
                 : check_extent(&f) != EXIT_FINE ? EXIT_FAILED
                                                 : use_any(&f, wanted, out);
    json_decref(f.header);
    return result;
}

/* ---- Writing ---- */

static bool add_tensor(json_t *header, const char *matrix, const char *part, const char *type, int ndim,
                       const int64_t *shape, int64_t bytes, int64_t *offset) {
    char key[KEY_ROOM];
    if (snprintf(key, sizeof key, "%s.%s", matrix, part) >= KEY_ROOM) return false;
    json_t *sizes = json_array();
    for (int i = 0; i < ndim; i++) json_array_append_new(sizes, json_integer(shape[i]));
    json_int_t begin = *offset, end = *offset + bytes;
    *offset += bytes;
    return json_object_set_new(header, key,
                               json_pack("{s:s, s:o, s:[I,I]}", "dtype", type, "shape", sizes, "data_offsets",
                                         begin, end)) == 0;
}

/* The header's text, padded with blanks to a multiple of 8 bytes. */
static char *make_header(const bsr *b, const char *name) {
    int32_t dtype = b->values.dtype;
    int64_t offset = 0,
            block_bytes = b->blocks * b->values.shape[1] * b->values.shape[2] * tartan_dtype_bytes(dtype);
    int64_t word = sizeof(int64_t);
    char shape[64];
    snprintf(shape, sizeof shape, "%lld,%lld", (long long)tartan_layout_rows(b->layout),
             (long long)tartan_layout_cols(b->layout));
    json_t *header = json_pack("{s:{s:s, s:s}}", "__metadata__", "format", "tartan bsr", "shape", shape);
    bool good =
        header != NULL &&
        add_tensor(header, name, "blocks", type_name(dtype), 3, b->values.shape, block_bytes, &offset) &&
        add_tensor(header, name, "indptr", "I64", 1, &b->pointers, word * b->pointers, &offset) &&
        add_tensor(header, name, "indices", "I64", 1, &b->blocks, word * b->blocks, &offset);
    char *text = good ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    size_t length = text != NULL ? strlen(text) : 0, padded = (length + 7) / 8 * 8;
    char *result = text != NULL ? malloc(padded + 1) : NULL;
    if (result != NULL) {
        memset(result, ' ', padded);
        memcpy(result, text, length);
        result[padded] = '\0';
    }
    free(text);
    return result;
}

static bool write_numbers(FILE *stream, const void *data, size_t bytes) {
    return bytes == 0 || fwrite(data, 1, bytes, stream) == bytes;
}

int write_safetensors(const tartan_matrix *matrix, const char *name, const char *path) {
    bsr b;
    output out;
    if (!bsr_of(matrix, tartan_matrix_dtype(matrix), &b)) return EXIT_FAILED;
    int result = EXIT_FAILED;
    if (tartan_layout_is_variable(b.layout) == 1) {
        bsr_free(&b);
        complain("%s: the blocks of the matrix differ in size, which such files cannot hold", path);
        return EXIT_FAILED;
    }
    char *header = make_header(&b, name);
    if (header == NULL) {
        complain("%s: the name \"%s\" is not UTF-8, or is longer than 500 bytes", path, name);
    } else if (output_open(path, &out)) {
        size_t length = strlen(header), word = sizeof(int64_t);
        unsigned char prefix[LENGTH_BYTES];
        for (int i = 0; i < LENGTH_BYTES; i++) prefix[i] = (unsigned char)((uint64_t)length >> 8 * i);
        size_t block_bytes =
            (size_t)(b.blocks * b.values.shape[1] * b.values.shape[2] * tartan_dtype_bytes(b.values.dtype));
        bool good = write_numbers(out.stream, prefix, LENGTH_BYTES) &&
                    write_numbers(out.stream, header, length) &&
                    write_numbers(out.stream, b.values.data, block_bytes) &&
                    write_numbers(out.stream, b.row_pointers, word * (size_t)b.pointers) &&
                    write_numbers(out.stream, b.block_cols, word * (size_t)b.blocks);
        result = output_close(&out, good);
    }
    free(header);
    bsr_free(&b);
    return result;
}
