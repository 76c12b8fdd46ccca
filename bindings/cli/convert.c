/* SPDX-License-Identifier: Apache-2.0 */
#include "formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void content_free(content *c) {
    free(c->rows_of), free(c->cols_of), free(c->values), free(c->memory);
    memset(c, 0, sizeof *c);
}

bool content_reserve(content *c, int64_t n) {
    size_t bytes = sizeof(int64_t) * (size_t)n + 1;
    c->rows_of = malloc(bytes), c->cols_of = malloc(bytes), c->values = malloc(bytes);
    return c->rows_of != NULL && c->cols_of != NULL && c->values != NULL;
}

unsigned char *read_whole(const char *path, size_t *out_size) {
    FILE *in = fopen(path, "rb");
    long size = -1;
    unsigned char *bytes = NULL;
    if (in != NULL && fseek(in, 0, SEEK_END) == 0 && (size = ftell(in)) >= 0 && fseek(in, 0, SEEK_SET) == 0)
        bytes = aligned_alloc(64, ((size_t)size + 64) / 64 * 64);
    bool good = bytes != NULL && fread(bytes, 1, (size_t)size, in) == (size_t)size;
    if (!good) {
        complain("cannot read %s: %s", path, errno != 0 ? strerror(errno) : "out of memory");
        free(bytes);
    }
    if (in != NULL) fclose(in);
    *out_size = (size_t)size;
    return good ? bytes : NULL;
}

void bsr_free(bsr *b) {
    free(b->row_pointers), free(b->block_cols);
    tartan_matrix_free(b->matrix);
    tartan_layout_free(b->layout);
}

bool bsr_of(const tartan_matrix *matrix, int32_t dtype, bsr *out) {
    memset(out, 0, sizeof *out);
    if (tartan_matrix_get_layout(matrix, &out->layout) != TARTAN_OK) return false;
    out->blocks = tartan_layout_blocks(out->layout);
    out->pointers = tartan_layout_heads(out->layout) * tartan_layout_grid_rows(out->layout) + 1;
    out->row_pointers = malloc(sizeof(int64_t) * (size_t)out->pointers);
    out->block_cols = malloc(sizeof(int64_t) * (size_t)(out->blocks + 1));
    if (out->row_pointers != NULL && out->block_cols != NULL &&
        tartan_layout_get_row_lists(out->layout, out->row_pointers, out->pointers, out->block_cols, out->blocks) == TARTAN_OK &&
        tartan_matrix_cast(matrix, dtype, TARTAN_ROW_MAJOR, &out->matrix) == TARTAN_OK &&
        tartan_matrix_values(out->matrix, &out->values) == TARTAN_OK)
        return true;
    bsr_free(out);
    return false;
}

static bool has_suffix(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcmp(path + n - m, suffix) == 0;
}

static bool is_hdf5(const char *path) {
    return has_suffix(path, ".h5") || has_suffix(path, ".hdf5");
}

static int compare_entries(const void *a, const void *b, void *rows) {
    int64_t x = ((int64_t *)rows)[*(const int64_t *)a], y = ((int64_t *)rows)[*(const int64_t *)b];
    return (x > y) - (x < y);
}

/* Renumbers rows and columns of a square matrix by reverse Cuthill-McKee. */
static int reorder(content *c) {
    if (c->rows != c->cols || c->is_dense) return complain("--reorder rcm needs a square matrix of entries");
    int64_t n = c->rows;
    int64_t *order = malloc(sizeof *order * (size_t)(n + 1)), *place = malloc(sizeof *place * (size_t)(n + 1));
    int64_t *pointers = calloc((size_t)n + 1, sizeof *pointers), *cols = malloc(sizeof *cols * (size_t)(c->entries + 1));
    int64_t *sorted = malloc(sizeof *sorted * (size_t)(c->entries + 1));
    int result = EXIT_FAILED;
    if (order == NULL || place == NULL || pointers == NULL || cols == NULL || sorted == NULL) {
        complain("out of memory");
        goto done;
    }
    for (int64_t i = 0; i < c->entries; i++) sorted[i] = i, pointers[c->rows_of[i] + 1]++;
    for (int64_t i = 0; i < n; i++) pointers[i + 1] += pointers[i];
    qsort_r(sorted, (size_t)c->entries, sizeof *sorted, compare_entries, c->rows_of);
    for (int64_t i = 0; i < c->entries; i++) cols[i] = c->cols_of[sorted[i]];
    if (tartan_reorder_rcm(pointers, n + 1, cols, c->entries, order, n) != TARTAN_OK) {
        complain_status("cannot reorder");
        goto done;
    }
    for (int64_t i = 0; i < n; i++) place[order[i]] = i;
    for (int64_t i = 0; i < c->entries; i++) c->rows_of[i] = place[c->rows_of[i]], c->cols_of[i] = place[c->cols_of[i]];
    result = EXIT_FINE;
done:
    free(order), free(place), free(pointers), free(cols), free(sorted);
    return result;
}

static int make_matrix(const arguments *a, content *c, tartan_matrix **out) {
    tartan_shape shape = {c->rows, c->cols, 0, 0, 1};
    double density;
    const char *order = option_value(a, "reorder", NULL), *dtype_text = option_value(a, "dtype", NULL);
    int32_t dtype = dtype_text != NULL ? parse_dtype(dtype_text) : c->dtype;
    if (dtype == 0) return complain("--dtype is \"%s\", expected f64, f32, f16 or bf16", dtype_text);
    if (!parse_pair("--block", option_value(a, "block", "16"), &shape.block_rows, &shape.block_cols) || !option_number(a, "density", 1, &density))
        return EXIT_FAILED;
    if (order != NULL && strcmp(order, "rcm") != 0) return complain("--reorder is \"%s\", expected rcm", order);
    if (order != NULL && reorder(c) != EXIT_FINE) return EXIT_FAILED;
    tartan_layout *layout = NULL;
    tartan_array values;
    tartan_status status;
    if (c->is_dense) {
        status = option_given(a, "density") ? tartan_layout_from_dense_largest(&shape, &c->dense, density, TARTAN_NORM_L2, &layout)
                                            : tartan_layout_from_dense(&shape, &c->dense, &layout);
        if (status == TARTAN_OK) status = tartan_matrix_from_dense(layout, &c->dense, dtype, TARTAN_ROW_MAJOR, out);
    } else {
        status = tartan_layout_from_entries(&shape, c->rows_of, c->entries, c->cols_of, c->entries, &layout);
        if (status == TARTAN_OK) status = tartan_array_init(c->values, TARTAN_F64, 1, &c->entries, NULL, &values);
        if (status == TARTAN_OK)
            status = tartan_matrix_from_coo(layout, c->rows_of, c->entries, c->cols_of, c->entries, &values, dtype, TARTAN_ROW_MAJOR, out);
    }
    tartan_layout_free(layout);
    return status == TARTAN_OK ? EXIT_FINE : complain_status("cannot convert");
}

static int read_tartan(const arguments *a, const char *path, tartan_matrix **out) {
    tartan_file *file = NULL;
    const char *name = option_value(a, "name", NULL);
    tartan_status status = tartan_file_open(path, &file);
    for (int64_t i = 0; status == TARTAN_OK && name == NULL && i < tartan_file_count(file); i++)
        if (tartan_file_kind(file, i) == TARTAN_KIND_MATRIX) name = tartan_file_name(file, i);
    int result = EXIT_FAILED;
    if (status == TARTAN_OK && name == NULL)
        complain("%s: no matrix in the file", path);
    else if (status == TARTAN_OK && (status = tartan_file_get_matrix(file, name, out)) == TARTAN_OK)
        result = EXIT_FINE;
    if (status != TARTAN_OK) complain_status(path);
    tartan_file_free(file);
    return result;
}

static int read_any(const arguments *a, const char *path, tartan_matrix **out) {
    if (is_hdf5(path)) return read_tartan(a, path, out);
    content c = {0};
    int result;
    if (has_suffix(path, ".mtx"))
        result = read_mtx(path, &c);
    else if (has_suffix(path, ".npz"))
        result = read_npz(path, &c);
    else if (has_suffix(path, ".npy"))
        result = read_npy(path, &c);
    else if (has_suffix(path, ".safetensors"))
        result = read_safetensors(path, option_value(a, "tensor", NULL), &c);
    else
        result = complain("%s: expected a name ending in .h5, .mtx, .npz, .npy or .safetensors", path);
    if (result == EXIT_FINE) result = make_matrix(a, &c, out);
    content_free(&c);
    return result;
}

static int write_tartan(const char *name, tartan_matrix *matrix, const char *path) {
    tartan_file *file = NULL;
    tartan_status status = tartan_file_create(&file);
    if (status == TARTAN_OK) status = tartan_file_put_matrix(file, name, matrix, NULL, NULL);
    if (status == TARTAN_OK) status = tartan_file_save(file, path, TARTAN_KEEP_PLAIN);
    tartan_file_free(file);
    return status == TARTAN_OK ? EXIT_FINE : complain_status("cannot save");
}

static int write_any(const char *name, tartan_matrix *matrix, const char *path) {
    if (is_hdf5(path)) return write_tartan(name, matrix, path);
    tartan_layout *layout = NULL;
    if (tartan_matrix_get_layout(matrix, &layout) != TARTAN_OK) return complain_status(path);
    int64_t heads = tartan_layout_heads(layout);
    tartan_layout_free(layout);
    if (heads != 1) return complain("the matrix has %lld heads: only Tartan's own files keep them", (long long)heads);
    if (has_suffix(path, ".mtx")) return write_mtx(matrix, path);
    if (has_suffix(path, ".npz")) return write_npz(matrix, path);
    if (has_suffix(path, ".npy")) return write_npy(matrix, path);
    if (has_suffix(path, ".safetensors")) return write_safetensors(matrix, name, path);
    return complain("%s: expected a name ending in .h5, .mtx, .npz, .npy or .safetensors", path);
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {{"block", false, false},   {"density", false, false}, {"dtype", false, false},
                                        {"name", false, false},    {"tensor", false, false},  {"reorder", false, false},
                                        {NULL, false, false}};
    arguments a;
    int code;
    if (!parse_arguments(&command_convert, specs, argc, argv, &a, &code)) return code;
    if (a.positional_count != 2) {
        fputs(command_convert.help, stderr);
        return EXIT_USAGE;
    }
    tartan_matrix *matrix = NULL;
    int result = read_any(&a, a.positional[0], &matrix);
    if (result == EXIT_FINE) result = write_any(option_value(&a, "name", "matrix"), matrix, a.positional[1]);
    if (result == EXIT_FINE) {
        tartan_layout *layout = NULL;
        if (tartan_matrix_get_layout(matrix, &layout) == TARTAN_OK)
            printf("%s: %lld x %lld %s, %lld blocks, density %.4f\n", a.positional[1], (long long)tartan_layout_rows(layout),
                   (long long)tartan_layout_cols(layout), tartan_dtype_name(tartan_matrix_dtype(matrix)),
                   (long long)tartan_layout_blocks(layout), tartan_layout_density(layout));
        tartan_layout_free(layout);
    }
    tartan_matrix_free(matrix);
    return result;
}

const command command_convert = {
    "convert", "between HDF5, Matrix Market, scipy, numpy and safetensors",
    "Usage: tartan convert INPUT OUTPUT [OPTIONS]\n\n"
    "Reads a matrix and writes it in another format; the endings of the names say which:\n"
    "  .h5            Tartan's HDF5\n"
    "  .mtx           Matrix Market\n"
    "  .npz           scipy.sparse.save_npz: csr, csc, coo or bsr; written as bsr\n"
    "  .npy           a dense numpy matrix; written dense\n"
    "  .safetensors   a dense matrix; written as NAME.blocks, NAME.indptr, NAME.indices\n\n"
    "  --block ROWSxCOLS  of the blocks to make (default 16); not for .h5 input\n"
    "  --density D        keep the share D of the blocks of largest norm (dense input; default: all with non-zeros)\n"
    "  --dtype TYPE       of the values: f64, f32, f16, bf16 (default: as the input)\n"
    "  --reorder rcm      renumber a square matrix so that its entries come near the diagonal\n"
    "  --name NAME        of the matrix in an .h5 or .safetensors file (default: matrix, or the first one)\n"
    "  --tensor NAME      of the tensor to read from safetensors (default: the first matrix)\n\n"
    "Example: tartan convert counties.mtx counties.h5 --block 8 --reorder rcm\n",
    run};
