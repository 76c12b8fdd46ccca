/* SPDX-License-Identifier: Apache-2.0 */
#include "formats.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BLOCK = 16, MAX_BLOCK = 256 };

typedef enum format { NONE, HDF5, MTX, NPZ, NPY, SAFETENSORS } format;

static format format_of(const char *path) {
    static const struct {
        const char *suffix;
        format format;
    } known[] = {{".h5", HDF5},   {".hdf5", HDF5}, {".mtx", MTX},
                 {".npz", NPZ},   {".npy", NPY},   {".safetensors", SAFETENSORS},
                 {".mtx.gz", MTX}};
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t end = strlen(known[i].suffix);
        if (length > end && strcmp(path + length - end, known[i].suffix) == 0) return known[i].format;
    }
    complain("%s: expected a name ending in .h5, .mtx, .npz, .npy or .safetensors", path);
    return NONE;
}

/* What the user asks for. */
typedef struct wish {
    const char *input, *output;
    format from, to;
    int64_t block_rows, block_cols; /* 0: the file's own, else the default */
    double density;                 /* -1: all blocks with non-zeros */
    int32_t dtype;                  /* 0: the file's */
    bool reorder;
    mtx_part part;
    const char *name, *tensor;
} wish;

static int parse_wish(const arguments *a, wish *out) {
    const char *block = option_value(a, "block", NULL), *dtype = option_value(a, "dtype", NULL);
    const char *order = option_value(a, "reorder", NULL);
    memset(out, 0, sizeof *out);
    out->input = a->positional[0], out->output = a->positional[1];
    out->from = format_of(out->input);
    out->to = out->from != NONE ? format_of(out->output) : NONE;
    if (out->to == NONE) return EXIT_USAGE;
    if (block != NULL && !parse_pair("--block", block, &out->block_rows, &out->block_cols)) return EXIT_USAGE;
    if (block != NULL && (out->block_rows < 1 || out->block_cols < 1 || out->block_rows > MAX_BLOCK ||
                          out->block_cols > MAX_BLOCK))
        return complain_usage("--block is \"%s\", expected 1 to %d", block, MAX_BLOCK);
    if (!option_number(a, "density", -1, &out->density)) return EXIT_USAGE;
    if (option_given(a, "density") && (out->density < 0 || out->density > 1))
        return complain_usage("--density is %g, expected 0 to 1", out->density);
    if (dtype != NULL && (out->dtype = parse_dtype(dtype)) == 0)
        return complain_usage("--dtype is \"%s\", expected f64, f32, f16 or bf16", dtype);
    if (order != NULL && strcmp(order, "rcm") != 0)
        return complain_usage("--reorder is \"%s\", expected rcm", order);
    out->reorder = order != NULL;
    const char *part = option_value(a, "part", NULL);
    if (part != NULL && strcmp(part, "real") != 0 && strcmp(part, "imaginary") != 0)
        return complain_usage("--part is \"%s\", expected real or imaginary", part);
    if (part != NULL && out->from != MTX) return complain_usage("--part is for .mtx input");
    out->part = part == NULL ? MTX_WHOLE : part[0] == 'r' ? MTX_REAL : MTX_IMAGINARY;
    if (out->to == MTX && strlen(out->output) > 3 &&
        strcmp(out->output + strlen(out->output) - 3, ".gz") == 0)
        return complain_usage("%s: .mtx.gz is for input", out->output);
    out->name = option_value(a, "name", NULL), out->tensor = option_value(a, "tensor", NULL);
    if (out->from == HDF5 && (block != NULL || order != NULL || option_given(a, "density")))
        return complain_usage(
            "--block, --density and --reorder are not for .h5 input, whose blocks are kept");
    if (out->from != SAFETENSORS && out->tensor != NULL)
        return complain_usage("--tensor is for .safetensors input");
    return EXIT_FINE;
}

/* A matrix with its data in a file of ours. */
typedef struct item {
    tartan_matrix *matrix;
    char *name; /* NULL: none of its own */
    double *gates;
    int64_t blocks;
    char *metadata;
} item;

static void item_free(item *t) {
    tartan_matrix_free(t->matrix);
    free(t->name), free(t->gates);
    tartan_text_free(t->metadata);
}

static tartan_status make_from_dense(const wish *w, const tartan_shape *shape, const content *c,
                                     tartan_matrix **out) {
    tartan_layout *layout = NULL;
    int32_t dtype = w->dtype != 0 ? w->dtype : c->dtype;
    tartan_status status = w->density >= 0 ? tartan_layout_from_dense_largest(shape, &c->dense, w->density,
                                                                              TARTAN_NORM_L2, &layout)
                                           : tartan_layout_from_dense(shape, &c->dense, &layout);
    if (status == TARTAN_OK)
        status = tartan_matrix_from_dense(layout, &c->dense, dtype, TARTAN_ROW_MAJOR, out);
    tartan_layout_free(layout);
    return status;
}

static tartan_status make_from_entries(const wish *w, const tartan_shape *shape, content *c,
                                       tartan_matrix **out) {
    tartan_layout *layout = NULL;
    tartan_array values;
    int32_t dtype = w->dtype != 0 ? w->dtype : c->dtype;
    int64_t n = c->entries;
    tartan_status status =
        tartan_layout_from_entries(shape, &(const tartan_places){NULL, c->rows_of, c->cols_of, n}, &layout);
    if (status == TARTAN_OK) status = tartan_array_init(c->values, TARTAN_F64, 1, &n, NULL, &values);
    if (status == TARTAN_OK)
        status = tartan_matrix_from_coo(layout, &(const tartan_places){NULL, c->rows_of, c->cols_of, n},
                                        &values, dtype, TARTAN_ROW_MAJOR, out);
    tartan_layout_free(layout);
    return status;
}

static int make_matrix(const wish *w, content *c, tartan_matrix **out) {
    tartan_shape shape = {c->rows, c->cols, w->block_rows, w->block_cols, c->is_dense ? c->heads : 1};
    if (shape.block_rows == 0) {
        bool own = c->block_rows > 0 && c->block_rows <= MAX_BLOCK && c->block_cols <= MAX_BLOCK;
        shape.block_rows = own ? c->block_rows : DEFAULT_BLOCK,
        shape.block_cols = own ? c->block_cols : DEFAULT_BLOCK;
    }
    if (w->density >= 0 && !c->is_dense)
        return complain("%s is sparse: --density is for dense input", w->input);
    if (!c->is_dense && content_add_duplicates(c) != EXIT_FINE) return EXIT_FAILED;
    if (w->reorder && content_reorder(c) != EXIT_FINE) return EXIT_FAILED;
    tartan_status status =
        c->is_dense ? make_from_dense(w, &shape, c, out) : make_from_entries(w, &shape, c, out);
    return status == TARTAN_OK ? EXIT_FINE : complain_status(w->input);
}

static int read_foreign(const wish *w, item *out) {
    content c = {0};
    int result = EXIT_FAILED;
    if (w->from == MTX) result = read_mtx(w->input, w->part, &c);
    if (w->from == NPZ) result = read_npz(w->input, &c);
    if (w->from == NPY) result = read_npy(w->input, &c);
    if (w->from == SAFETENSORS) result = read_safetensors(w->input, w->tensor, &c);
    if (result == EXIT_FINE) result = make_matrix(w, &c, &out->matrix);
    content_free(&c);
    return result;
}

/* ---- Tartan's own files ---- */

static tartan_status read_gates(tartan_file *file, item *out) {
    tartan_layout *layout = NULL;
    if (!tartan_file_has_gates(file, out->name)) return TARTAN_OK;
    tartan_status status = tartan_matrix_get_layout(out->matrix, &layout);
    if (status != TARTAN_OK) return status;
    out->blocks = tartan_layout_blocks(layout);
    tartan_layout_free(layout);
    out->gates = malloc(sizeof *out->gates * (size_t)(out->blocks + 1));
    return out->gates != NULL ? tartan_file_get_gates(file, out->name, out->gates, out->blocks)
                              : TARTAN_ERR_MEMORY;
}

static tartan_status read_item(tartan_file *file, const wish *w, item *out) {
    tartan_status status = tartan_file_get_matrix(file, out->name, &out->matrix);
    if (status == TARTAN_OK) status = read_gates(file, out);
    if (status == TARTAN_OK)
        status = tartan_file_get_metadata(file, TARTAN_KIND_MATRIX, out->name, &out->metadata);
    if (status != TARTAN_OK || w->dtype == 0) return status;
    tartan_matrix *cast = NULL;
    status = cast_matrix(out->matrix, w->dtype, tartan_matrix_block_order(out->matrix), &cast);
    if (status == TARTAN_OK) {
        tartan_matrix_free(out->matrix);
        out->matrix = cast;
    }
    return status;
}

static int read_tartan(const wish *w, item *out) {
    tartan_file *file = NULL;
    if (tartan_file_open(w->input, &file) != TARTAN_OK) return complain_status("cannot open");
    const char *name = w->name;
    int matrices = 0, result = EXIT_FAILED;
    for (int64_t i = 0; w->name == NULL && i < tartan_file_count(file); i++)
        if (tartan_file_kind(file, i) == TARTAN_KIND_MATRIX) {
            name = tartan_file_name(file, i);
            matrices++;
        }
    if (matrices > 1)
        complain("%s: has several matrices: name one with --name", w->input);
    else if (name == NULL)
        complain("%s: no matrix in the file", w->input);
    else if ((out->name = strdup(name)) == NULL)
        complain("out of memory");
    else if (read_item(file, w, out) != TARTAN_OK)
        complain_status(w->input);
    else
        result = EXIT_FINE;
    tartan_file_free(file);
    return result;
}

static int write_tartan(const wish *w, const char *name, const item *t) {
    tartan_file *file = NULL;
    tartan_array gates;
    const char *metadata = t->metadata != NULL && t->metadata[0] != '\0' ? t->metadata : NULL;
    tartan_status status = tartan_file_create(&file);
    if (status == TARTAN_OK && t->gates != NULL)
        status = tartan_array_init(t->gates, TARTAN_F64, 1, &t->blocks, NULL, &gates);
    if (status == TARTAN_OK)
        status = tartan_file_put_matrix(file, name, t->matrix, t->gates != NULL ? &gates : NULL, metadata);
    if (status == TARTAN_OK) status = tartan_file_save(file, w->output, TARTAN_KEEP_PLAIN);
    tartan_file_free(file);
    return status == TARTAN_OK ? EXIT_FINE : complain_status("cannot save");
}

static int write_any(const wish *w, const item *t, const tartan_layout *layout) {
    const char *name = w->name != NULL ? w->name : t->name != NULL ? t->name : "matrix";
    if (w->to == HDF5) return write_tartan(w, name, t);
    if (tartan_layout_heads(layout) != 1 && w->to != NPY)
        return complain("the matrix has %lld heads: only .h5 and .npy files keep them",
                        (long long)tartan_layout_heads(layout));
    if (t->gates != NULL) return complain("the matrix has gates: only Tartan's own files keep them");
    if (w->to == MTX) return write_mtx(t->matrix, w->output);
    if (w->to == NPZ) return write_npz(t->matrix, w->output);
    if (w->to == NPY) return write_npy(t->matrix, w->output);
    return write_safetensors(t->matrix, name, w->output);
}

static int convert(const wish *w) {
    item t = {0};
    tartan_layout *layout = NULL;
    int result = w->from == HDF5 ? read_tartan(w, &t) : read_foreign(w, &t);
    if (result == EXIT_FINE && tartan_matrix_get_layout(t.matrix, &layout) != TARTAN_OK)
        result = complain_status(w->input);
    if (result == EXIT_FINE) result = write_any(w, &t, layout);
    if (result == EXIT_FINE)
        printf("%s: %lld x %lld %s, %lld blocks of %lld x %lld, density %.4f\n", w->output,
               (long long)tartan_layout_rows(layout), (long long)tartan_layout_cols(layout),
               tartan_dtype_name(tartan_matrix_dtype(t.matrix)), (long long)tartan_layout_blocks(layout),
               (long long)tartan_layout_block_rows(layout), (long long)tartan_layout_block_cols(layout),
               tartan_layout_density(layout));
    tartan_layout_free(layout);
    item_free(&t);
    return result;
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {
        {"block", false, false},  {"density", false, false}, {"dtype", false, false}, {"name", false, false},
        {"tensor", false, false}, {"reorder", false, false}, {"part", false, false},  {NULL, false, false}};
    arguments a;
    int code;
    if (!parse_arguments(&command_convert, specs, argc, argv, &a, &code)) return code;
    if (a.positional_count != 2) return show_usage(&command_convert);
    wish w;
    int result = parse_wish(&a, &w);
    return result == EXIT_FINE ? convert(&w) : result;
}

const command command_convert = {
    "convert", "convert between HDF5, Matrix Market, scipy, numpy and safetensors",
    "Usage: tartan convert INPUT OUTPUT [OPTIONS]\n\n"
    "Reads a matrix and writes it in another format. The file name extensions determine the formats:\n"
    "  .h5            Tartan's HDF5\n"
    "  .mtx           Matrix Market; .mtx.gz as input, too\n"
    "  .npz           scipy.sparse.save_npz: csr, csc, coo, bsr or dia; written as bsr (csr if an edge is "
    "ragged),\n"
    "                 16-bit values as float32\n"
    "  .npy           a dense numpy matrix, or [heads, rows, cols]; written dense, bf16 as float32\n"
    "  .safetensors   a dense matrix, or NAME.blocks, NAME.indptr, NAME.indices; written as the latter\n\n"
    "  --block ROWSxCOLS  size of the blocks (default: as in the input, else 16); not for .h5 input\n"
    "  --density D        keep the fraction D of the blocks, those with the largest norms; dense input only\n"
    "                     (default: all blocks with non-zeros)\n"
    "  --dtype TYPE       dtype of the values: f64, f32, f16, bf16 (default: as in the input)\n"
    "  --reorder rcm      renumber a square sparse matrix to bring its entries close to the diagonal\n"
    "  --part PART        the part of a complex .mtx matrix to read: real or imaginary\n"
    "  --name NAME        the matrix in an .h5 input (required if there are several), or in the output\n"
    "                     (default: matrix)\n"
    "  --tensor NAME      the tensor or sparse matrix in a safetensors input, required if there are "
    "several\n\n"
    "Duplicate entries are added.\n\n"
    "Example: tartan convert counties.mtx counties.h5 --block 8 --reorder rcm\n",
    run};
