/* SPDX-License-Identifier: Apache-2.0
 * safetensors: a JSON header of tensors, then their bytes. A block-sparse matrix NAME is three tensors:
 * NAME.blocks [n, br, bc], NAME.indptr and NAME.indices (int64), with its shape in the metadata. */
#include "formats.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };

static const struct {
    const char *name;
    int32_t dtype;
} types[] = {{"F64", TARTAN_F64}, {"F32", TARTAN_F32}, {"F16", TARTAN_F16}, {"BF16", TARTAN_BF16}};

static const char *type_name(int32_t dtype) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return NULL;
}

static int32_t type_of(const char *name) {
    for (size_t i = 0; name != NULL && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].dtype;
    return 0;
}

/* The tensor asked for, or the first matrix in the file. */
static const json_t *choose(json_t *header, const char *wanted) {
    if (wanted != NULL) return json_object_get(header, wanted);
    const char *key;
    json_t *tensor;
    json_object_foreach(header, key, tensor) if (json_array_size(json_object_get(tensor, "shape")) == 2) return tensor;
    return NULL;
}

static int use_tensor(const json_t *tensor, const char *path, unsigned char *data, size_t size, content *out) {
    json_int_t begin = -1, end = -1, rows = -1, cols = -1;
    const char *type = NULL;
    int32_t dtype;
    int64_t bytes;
    if (json_unpack((json_t *)tensor, "{s:s, s:[I,I], s:[I,I]}", "dtype", &type, "shape", &rows, &cols, "data_offsets", &begin, &end) != 0 ||
        (dtype = type_of(type)) == 0)
        return complain("%s: the tensor is not a matrix of F64, F32, F16 or BF16", path);
    if (rows < 0 || cols < 0 || __builtin_mul_overflow((int64_t)rows, (int64_t)cols, &bytes) ||
        __builtin_mul_overflow(bytes, tartan_dtype_bytes(dtype), &bytes) || begin < 0 || end < begin || end - begin != bytes ||
        (uint64_t)end > size)
        return complain("%s: the tensor's shape does not fit its bytes", path);
    const int64_t shape[] = {rows, cols};
    out->is_dense = true;
    out->rows = rows, out->cols = cols, out->dtype = dtype;
    /* Offsets need not be aligned: move the tensor to the front of the block. */
    memmove(out->memory, data + begin, (size_t)bytes);
    if (tartan_array_init(out->memory, dtype, 2, shape, NULL, &out->dense) != TARTAN_OK) return complain_status(path);
    return EXIT_FINE;
}

int read_safetensors(const char *path, const char *wanted, content *out) {
    size_t size;
    unsigned char *bytes = read_whole(path, &size);
    if (bytes == NULL) return EXIT_FAILED;
    out->memory = bytes;
    uint64_t length = 0;
    for (int i = LENGTH_BYTES; size >= LENGTH_BYTES && i-- > 0;) length = length << 8 | bytes[i];
    json_error_t error;
    json_t *header = size >= LENGTH_BYTES && length <= size - LENGTH_BYTES ? json_loadb((char *)bytes + LENGTH_BYTES, length, 0, &error) : NULL;
    const json_t *tensor = choose(header, wanted);
    int result;
    if (header == NULL)
        result = complain("%s: not a safetensors file", path);
    else if (tensor == NULL)
        result = complain("%s: no %s%s", path, wanted != NULL ? "tensor " : "matrix", wanted != NULL ? wanted : "");
    else
        result = use_tensor(tensor, path, bytes + LENGTH_BYTES + length, size - LENGTH_BYTES - length, out);
    json_decref(header);
    return result;
}

static bool add_tensor(json_t *header, const char *matrix, const char *part, const char *type, int ndim, const int64_t *shape,
                       int64_t bytes, int64_t *offset) {
    char key[512];
    snprintf(key, sizeof key, "%s.%s", matrix, part);
    json_t *sizes = json_array();
    for (int i = 0; i < ndim; i++) json_array_append_new(sizes, json_integer(shape[i]));
    json_t *tensor = json_pack("{s:s, s:o, s:[I,I]}", "dtype", type, "shape", sizes, "data_offsets", (json_int_t)*offset,
                               (json_int_t)(*offset + bytes));
    *offset += bytes;
    return json_object_set_new(header, key, tensor) == 0;
}

int write_safetensors(const tartan_matrix *matrix, const char *name, const char *path) {
    int32_t dtype = tartan_matrix_dtype(matrix);
    bsr b;
    if (!bsr_of(matrix, dtype, &b)) return complain_status(path);
    int64_t offset = 0, block_bytes = b.blocks * b.values.shape[1] * b.values.shape[2] * tartan_dtype_bytes(dtype);
    int64_t word = sizeof(int64_t);
    char shape[64];
    snprintf(shape, sizeof shape, "%lld,%lld", (long long)tartan_layout_rows(b.layout), (long long)tartan_layout_cols(b.layout));
    json_t *header = json_pack("{s:{s:s, s:s}}", "__metadata__", "format", "tartan bsr", "shape", shape);
    bool good = header != NULL &&
                add_tensor(header, name, "blocks", type_name(dtype), 3, b.values.shape, block_bytes, &offset) &&
                add_tensor(header, name, "indptr", "I64", 1, &b.pointers, word * b.pointers, &offset) &&
                add_tensor(header, name, "indices", "I64", 1, &b.blocks, word * b.blocks, &offset);
    char *text = good ? json_dumps(header, JSON_COMPACT) : NULL;
    size_t length = text != NULL ? strlen(text) : 0, padded = (length + 7) / 8 * 8;
    unsigned char prefix[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++) prefix[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    FILE *out = text != NULL ? fopen(path, "wb") : NULL;
    good = out != NULL && fwrite(prefix, 1, LENGTH_BYTES, out) == LENGTH_BYTES && fprintf(out, "%-*s", (int)padded, text) == (int)padded &&
           fwrite(b.values.data, 1, (size_t)block_bytes, out) == (size_t)block_bytes &&
           fwrite(b.row_pointers, (size_t)word, (size_t)b.pointers, out) == (size_t)b.pointers &&
           fwrite(b.block_cols, (size_t)word, (size_t)b.blocks, out) == (size_t)b.blocks;
    if (out != NULL && fclose(out) != 0) good = false;
    free(text);
    json_decref(header);
    bsr_free(&b);
    return good ? EXIT_FINE : complain("cannot write %s: %s", path, strerror(errno));
}
