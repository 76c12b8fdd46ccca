/* SPDX-License-Identifier: Apache-2.0
 * Fuzzes our checks of what a file says, not HDF5's parser: the input decides what a well-formed HDF5 file
 * contains, and Tartan must refuse it or make sound objects of it. Zeros (the end of the input, too) mean what
 * the schema wants, so a mutation spoils one thing at a time. */
#include "io/schema.h"
#include "matrix/matrix.h"
#include "tartan.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint8_t *input;
static size_t left;

static void demand(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "broken: %s: %s\n", what, tartan_last_error());
    abort();
}

/* The next decision, 0 .. 255. */
static unsigned next(void) {
    if (left == 0) return 0;
    left--;
    return *input++;
}

/* Mostly the number given; else one near it, near the limits, or any. */
static int64_t spoil(int64_t wanted) {
    static const int64_t odd[] = {0,
                                  1,
                                  -1,
                                  INT32_MAX,
                                  (int64_t)INT32_MAX + 1,
                                  INT64_MAX,
                                  INT64_MIN,
                                  INT32_MIN,
                                  256,
                                  257,
                                  1 << 20,
                                  (1 << 20) + 1,
                                  65536,
                                  UINT32_MAX,
                                  (int64_t)1 << 40,
                                  (int64_t)1 << 62};
    unsigned choice = next();
    if (choice < 224) return wanted;
    if (choice < 234) return wanted + 1;
    if (choice < 244) return wanted - 1;
    if (choice < 252) return odd[next() % (sizeof odd / sizeof *odd)];
    uint64_t any = 0;
    for (int i = 0; i < 8; i++) any = any << 8 | next();
    return (int64_t)any;
}

static bool spoilt(void) {
    return next() >= 240;
}

static void put_text(hid_t object, const char *name, const char *wanted) {
    static const char *const odd[] = {"",         "\xff",       "block-sparse", "1.99",   "2.0",
                                      "bfloat16", "/layouts/p", "/layouts/",    "F",      "/layouts/../a",
                                      "float16",  "C",          "bsr",          "layout", "0"};
    char any[40] = {0};
    const char *text = wanted;
    if (spoilt()) {
        unsigned choice = next();
        if (choice < 32) return;
        text = odd[choice % (sizeof odd / sizeof *odd)];
        if (choice >= 200) {
            for (unsigned i = 0; i < sizeof any - 1; i++) any[i] = (char)next();
            text = any;
        }
    }
    bool variable = !spoilt();
    hsize_t count = spoilt() ? next() % 3 : 1;
    hid_t space = spoilt() ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR),
          type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, variable ? H5T_VARIABLE : strlen(text) + 1);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute >= 0 && H5Sget_simple_extent_npoints(space) == 1)
        H5Awrite(attribute, type, variable ? (const void *)&text : text);
    if (attribute >= 0) H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
}

static hid_t integer_type(void) {
    switch (next() / 32) {
    case 5:
        return H5T_STD_I64LE;
    case 6:
        return H5T_STD_U32LE;
    case 7: {
        hid_t rare[] = {H5T_STD_U64LE, H5T_STD_I32BE, H5T_STD_I16LE, H5T_IEEE_F64LE, H5T_STD_U8LE};
        return rare[next() % 5];
    }
    default:
        return H5T_STD_I32LE;
    }
}

static void put_numbers(hid_t object, const char *name, hsize_t given, const int64_t *wanted) {
    int64_t values[3];
    hsize_t count = given;
    if (spoilt()) return;
    if (spoilt()) count = 1 + next() % 3;
    for (hsize_t i = 0; i < count; i++) values[i] = spoil(i < given ? wanted[i] : 0);
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t attribute =
        H5Acreate2(object, name, spoilt() ? integer_type() : H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute >= 0) {
        H5Awrite(attribute, H5T_NATIVE_INT64, values);
        H5Aclose(attribute);
    }
    H5Sclose(space);
}

/* A dataset of the shape, whose values come from `values` where it is small enough to be written. */
static void put_data(hid_t group, const char *name, hid_t type, int given, const int64_t *wanted,
                     hid_t memory, const void *values) {
    hsize_t dims[3], chunk[3], points = 1;
    int rank = given;
    if (spoilt()) return;
    if (spoilt()) rank = 1 + (int)(next() % 3);
    bool same = rank == given;
    for (int i = 0; i < rank; i++) {
        int64_t size = spoil(i < given ? wanted[i] : 1);
        same = same && i < given && size == wanted[i];
        dims[i] = size < 0 ? 0 : (hsize_t)size;
        chunk[i] = dims[i] > 64 ? 64 : dims[i];
        points = dims[i] != 0 && points > 4096 / dims[i] ? 8192 : points * dims[i];
    }
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(rank, dims, NULL);
    unsigned way = next();
    if (way >= 128 && points > 0) {
        H5Pset_chunk(plist, rank, chunk);
        if (way & 1) H5Pset_shuffle(plist);
        if (way & 2) H5Pset_deflate(plist, 1);
        if (way & 4) H5Pset_fletcher32(plist);
        if (way & 8) H5Pset_nbit(plist);
        if (way & 16 && way & 32) H5Pset_shuffle(plist);
    } else if (way >= 120) {
        H5Pset_layout(plist, H5D_COMPACT);
    } else if (way >= 116) {
        H5Pset_external(plist, "/etc/hostname", 0, H5F_UNLIMITED);
    } else if (way >= 112 && space >= 0) {
        H5Pset_virtual(plist, space, ".", "/tensors/m/blocks", space);
    }
    hid_t dataset = space < 0 ? -1 : H5Dcreate2(group, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    if (dataset >= 0 && same && points <= 4096 && (way < 112 || way >= 120))
        H5Dwrite(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    if (dataset >= 0) H5Dclose(dataset);
    if (space >= 0) H5Sclose(space);
    H5Pclose(plist);
}

static hid_t float_type(int32_t dtype) {
    hid_t type = H5Tcopy(dtype == TARTAN_F64 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
    size_t exponent = dtype == TARTAN_F16 ? 5 : 8;
    if (dtype == TARTAN_F16 || dtype == TARTAN_BF16) {
        H5Tset_fields(type, 15, 15 - exponent, exponent, 0, 15 - exponent);
        H5Tset_size(type, 2);
        H5Tset_ebias(type, ((size_t)1 << (exponent - 1)) - 1);
    }
    if (spoilt()) H5Tset_order(type, H5T_ORDER_BE);
    return type;
}

enum { MOST = 64 };

static void make_file(const char *path) {
    int64_t grid[2] = {1 + next() % 5, 1 + next() % 5}, block[2] = {1 + next() % 4, 1 + next() % 4};
    int64_t heads = next() < 192 ? 1 : 2, lists[2 * 5 + 1] = {0}, indices[MOST], count = 0;
    const int64_t ragged[2] = {next() % (unsigned)block[0], next() % (unsigned)block[1]};
    const int64_t shape[2] = {grid[0] * block[0] - ragged[0], grid[1] * block[1] - ragged[1]};
    for (int64_t line = 0; line < heads * grid[0]; line++) {
        unsigned mask = next();
        for (int64_t col = 0; col < grid[1]; col++)
            if (mask >> col & 1) indices[count++] = spoil(col);
        lists[line + 1] = spoil(count);
    }
    bool by_row = next() < 128;
    int32_t dtype = 1 + (int32_t)(next() % 4);
    const int64_t dims[3] = {count, by_row ? block[0] : block[1], by_row ? block[1] : block[0]};
    const int64_t lines[1] = {heads * grid[0] + 1};
    static const double values[MOST * 16];
    const char *pointers_name = tartan_i_pointers_name(heads), *indices_name = tartan_i_indices_name(heads);

    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    demand(file >= 0, "the file cannot be made");
    put_text(file, "tartan_schema", "block-sparse");
    put_text(file, "tartan_schema_version", "1.0");
    hid_t layouts = H5Gcreate2(file, "layouts", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t tensors = H5Gcreate2(file, "tensors", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t layout = H5Gcreate2(layouts, "p", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t tensor = H5Gcreate2(tensors, "m", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    put_text(layout, "kind", "layout");
    put_numbers(layout, "shape", 2, shape);
    put_numbers(layout, "block_shape", 2, block);
    put_numbers(layout, "heads", 1, &heads);
    if (next() >= 128) put_numbers(layout, "grid", 2, grid);
    if (next() >= 224) put_text(layout, "layout_identity", "0123456789abcdef0123456789abcdef");
    if (next() >= 200) put_text(layout, "recipe", "{}");
    put_data(layout, pointers_name, integer_type(), 1, lines, H5T_NATIVE_INT64, lists);
    put_data(layout, indices_name, integer_type(), 1, &count, H5T_NATIVE_INT64, indices);
    put_text(tensor, "kind", "bsr");
    put_text(tensor, "layout", "/layouts/p");
    if (next() < 200) put_text(tensor, "dtype", tartan_dtype_name(dtype));
    put_text(tensor, "block_order", by_row ? "C" : "F");
    hid_t type = float_type(dtype);
    put_data(tensor, "blocks", type, 3, dims, H5T_NATIVE_DOUBLE, values);
    if (next() >= 128)
        put_data(tensor, "gates", spoilt() ? type : H5T_IEEE_F64LE, 1, &count, H5T_NATIVE_DOUBLE, values);
    if (next() >= 200) put_text(tensor, "metadata", "{\"a\":1}");
    if (next() >= 128) H5Lcreate_hard(layout, indices_name, tensor, indices_name, H5P_DEFAULT, H5P_DEFAULT);
    if (spoilt()) H5Lcreate_soft("/tensors/m", layouts, "soft", H5P_DEFAULT, H5P_DEFAULT);
    if (spoilt()) H5Lcreate_external("/etc/hostname", "/", tensors, "out", H5P_DEFAULT, H5P_DEFAULT);
    if (spoilt()) H5Lcreate_hard(layouts, "p", tensors, "\xff", H5P_DEFAULT, H5P_DEFAULT);
    if (spoilt()) H5Lcreate_hard(file, "layouts", layouts, "loop", H5P_DEFAULT, H5P_DEFAULT);
    H5Tclose(type);
    H5Gclose(tensor), H5Gclose(layout), H5Gclose(tensors), H5Gclose(layouts), H5Fclose(file);
}

/* Whatever the reader hands out must be sound. */
static void use_all(const char *path, size_t size) {
    tartan_file *file = NULL;
    char *report = NULL;
    tartan_status verified = tartan_file_verify(path, &report);
    demand(verified != TARTAN_ERR_INTERNAL, "the reader says INTERNAL");
    tartan_text_free(report);
    demand(verified == TARTAN_OK || size > 0, "what follows the schema is refused");
    if (tartan_file_open(path, &file) != TARTAN_OK) return;
    for (int64_t i = 0; i < tartan_file_count(file); i++) {
        tartan_matrix *matrix = NULL;
        tartan_layout *layout = NULL;
        char *text = NULL;
        const char *name = tartan_file_name(file, i);
        int32_t kind = tartan_file_kind(file, i);
        if (tartan_file_get_metadata(file, kind, name, &text) == TARTAN_OK) tartan_text_free(text);
        if (kind == TARTAN_KIND_LAYOUT && tartan_file_get_layout(file, name, &layout) == TARTAN_OK)
            demand(tartan_layout_equal(layout, layout) == 1, "a layout differs from itself");
        if (kind == TARTAN_KIND_MATRIX && tartan_file_get_matrix(file, name, &matrix) == TARTAN_OK)
            demand(tartan_matrix_check(matrix, 0) == TARTAN_OK, "a matrix is not sound");
        tartan_layout_free(layout);
        tartan_matrix_free(matrix);
    }
    tartan_file_free(file);
    demand(tartan_i_memory_live() == 0, "memory is left");
    demand(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0, "HDF5 objects are left open");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "/tmp/tartan-fuzz-XXXXXX"; /* HDF5 resolves names, so one in memory will not do */
    int fd = mkstemp(path);
    demand(fd >= 0, "no room for a file");
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    input = data;
    left = size;
    make_file(path);
    use_all(path, size);
    close(fd);
    unlink(path);
    return 0;
}
