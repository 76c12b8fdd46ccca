/* SPDX-License-Identifier: Apache-2.0
 * numpy's .npy as a dense matrix. */
#include "formats.h"

#include <stdlib.h>

/* Converts integers and booleans to f64. */
static int widen(const npy *a, const char *path, content *out) {
    double *numbers = malloc(sizeof *numbers * (size_t)(a->elements + 1));
    if (numbers == NULL) return complain("%s: out of memory", path);
    for (int64_t i = 0; i < a->elements; i++) numbers[i] = npy_number(a, i);
    free(out->memory);
    out->memory = numbers;
    return EXIT_FINE;
}

int read_npy(const char *path, content *out) {
    size_t size;
    unsigned char *bytes = read_whole(path, &size);
    npy a;
    if (bytes == NULL) return EXIT_FAILED;
    out->memory = bytes;
    if (!npy_parse(path, bytes, size, &a)) return EXIT_FAILED;
    if (npy_dtype(&a) == 0)
        return complain("%s: the elements are not float64, float32, float16, integers or booleans", path);
    if (a.ndim != 2 && a.ndim != 3)
        return complain("%s: has %d dimension%s, expected a matrix (2), or heads and one for each (3)", path,
                        a.ndim, a.ndim == 1 ? "" : "s");
    bool wide = a.kind != 'f';
    if (wide && widen(&a, path, out) != EXIT_FINE) return EXIT_FAILED;
    int64_t strides[3], stride = 1;
    for (int i = 0; i < a.ndim; i++) {
        const int d = a.fortran_order ? i : a.ndim - 1 - i;
        strides[d] = stride;
        stride *= a.shape[d];
    }
    return content_use_dense(out, path, wide ? out->memory : a.data, npy_dtype(&a), a.ndim, a.shape, strides);
}

int write_npy(const tartan_matrix *matrix, const char *path) {
    int32_t dtype = tartan_matrix_dtype(matrix);
    if (npy_descr(dtype) == NULL) dtype = TARTAN_F32; /* bf16, which numpy lacks */
    tartan_layout *layout = NULL;
    if (tartan_matrix_get_layout(matrix, &layout) != TARTAN_OK) return complain_status(path);
    const int64_t all[] = {tartan_layout_heads(layout), tartan_layout_rows(layout),
                           tartan_layout_cols(layout)};
    tartan_layout_free(layout);
    const int ndim = all[0] == 1 ? 2 : 3;
    const int64_t *shape = all + 3 - ndim;
    int64_t bytes = tartan_dtype_bytes(dtype);
    bool fits = true;
    for (int i = 0; i < 3; i++) fits = fits && !__builtin_mul_overflow(bytes, all[i], &bytes);
    void *data = fits && bytes < INT64_MAX ? malloc((size_t)bytes + 1) : NULL;
    if (data == NULL)
        return complain("%s: out of memory for %lld x %lld numbers", path, (long long)(all[0] * all[1]),
                        (long long)all[2]);
    tartan_array dense;
    output out;
    int result = EXIT_FAILED;
    if (tartan_array_init(data, dtype, ndim, shape, NULL, &dense) != TARTAN_OK ||
        tartan_matrix_to_dense(matrix, &dense) != TARTAN_OK) {
        complain_status(path);
    } else if (output_open(path, &out)) {
        char header[NPY_HEADER_ROOM];
        size_t length = (size_t)npy_header(npy_descr(dtype), ndim, shape, header, sizeof header),
               size = (size_t)bytes;
        bool good =
            fwrite(header, 1, length, out.stream) == length && fwrite(data, 1, size, out.stream) == size;
        result = output_close(&out, good);
    }
    free(data);
    return result;
}
