/* SPDX-License-Identifier: Apache-2.0 */
#include "objects.h"

#include <string.h>

/* By tartan_r_class. */
static const struct {
    const char *noun, *tag, *restored;
} kinds[] = {
    {"matrix", TARTAN_R_CACHE, ""},
    {"layout", TARTAN_R_CACHE, ""},
    {"device matrix", "tartan_matrix", "which keeps no memory of devices: expected one of this session"},
    {"device layout", "tartan_layout", "which keeps no memory of devices: expected one of this session"},
    {"device array", "tartan_buffer", "which keeps no memory of devices: expected one of this session"},
    {"context", "tartan_context", "expected one that tartan_context() opened"},
    {"file", "tartan_file", "expected one that block_file() opened"},
    {"mask", TARTAN_R_CACHE, ""},
    {"convolution", TARTAN_R_CACHE, ""},
    {"sparsifier", "tartan_sparsifier",
     "expected one that block_sparsifier() made or sparsifier_load() read"},
};

tartan_r_class tartan_r_class_of(SEXP x) {
    static const char *classes[] = {"BlockMatrix",
                                    "BlockLayout",
                                    "DeviceBlockMatrix",
                                    "DeviceBlockLayout",
                                    "DeviceArray",
                                    "TartanContext",
                                    "BlockFile",
                                    "BlockMask",
                                    "BlockConv",
                                    "BlockSparsifier",
                                    ""};
    if (!IS_S4_OBJECT(x)) return TARTAN_R_OTHER;
    SEXP class = Rf_getAttrib(x, R_ClassSymbol);
    const char *name = CHAR(STRING_ELT(class, 0));
    for (int i = 0; *classes[i] != '\0'; i++)
        if (strcmp(name, classes[i]) == 0) return (tartan_r_class)i;
    int found = R_check_class_etc(x, classes); /* checks superclasses in R code */
    return found < 0 ? TARTAN_R_OTHER : (tartan_r_class)found;
}

static SEXP slot(SEXP x, const char *name) {
    return R_do_slot(x, Rf_install(name));
}

/* The handle of an open object. */
static SEXP open_handle(SEXP x, tartan_r_class class) {
    SEXP handle = slot(x, "handle");
    switch (tartan_r_state_of(handle, kinds[class].tag)) {
    case TARTAN_R_OPEN:
        break;
    case TARTAN_R_CLOSED:
        tartan_r_fail(TARTAN_ERR_HANDLE, "the %s is closed, expected an open one", kinds[class].noun);
    case TARTAN_R_RESTORED:
        tartan_r_fail(TARTAN_ERR_HANDLE, "the %s is from a saved session, %s", kinds[class].noun,
                      kinds[class].restored);
    case TARTAN_R_FOREIGN:
        tartan_r_fail(TARTAN_ERR_HANDLE, "the %s was not made by this package", kinds[class].noun);
    }
    return handle;
}

static void *object_of(SEXP x, tartan_r_class class) {
    return R_ExternalPtrAddr(open_handle(x, class));
}

SEXP tartan_r_expect_open(SEXP x) {
    open_handle(x, tartan_r_class_of(x));
    return R_NilValue;
}

SEXP tartan_r_is_closed(SEXP x) {
    tartan_r_class class = tartan_r_class_of(x);
    return Rf_ScalarLogical(tartan_r_state_of(slot(x, "handle"), kinds[class].tag) == TARTAN_R_CLOSED);
}

SEXP tartan_r_is_restored(SEXP x) {
    tartan_r_class class = tartan_r_class_of(x);
    return Rf_ScalarLogical(tartan_r_state_of(slot(x, "handle"), kinds[class].tag) == TARTAN_R_RESTORED);
}

/* The content of the cache if it is an open handle of the library. */
static SEXP cached(SEXP cache, const char *tag) {
    SEXP handle = tartan_r_held(cache);
    return tartan_r_state_of(handle, tag) == TARTAN_R_OPEN ? handle : R_NilValue;
}

/* ---- Contexts and files ---- */

static SEXP own_context = NULL; /* a handle, kept alive */

SEXP tartan_r_set_context(SEXP handle) {
    if (handle != R_NilValue) tartan_r_address(handle, "tartan_context");
    if (own_context != NULL) R_ReleaseObject(own_context);
    own_context = handle == R_NilValue ? NULL : handle;
    if (own_context != NULL) R_PreserveObject(own_context);
    return handle;
}

tartan_context *tartan_r_as_context(SEXP x, const char *name) {
    if (TYPEOF(x) == EXTPTRSXP) return tartan_r_address(x, "tartan_context");
    if (x == R_NilValue) {
        if (own_context == NULL) tartan_r_call(".open_own_context", R_NilValue);
        return tartan_r_address(own_context, "tartan_context");
    }
    if (tartan_r_class_of(x) != TARTAN_R_CONTEXT)
        tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a TartanContext");
    return object_of(x, TARTAN_R_CONTEXT);
}

tartan_file *tartan_r_as_file(SEXP x, const char *name) {
    if (TYPEOF(x) == EXTPTRSXP) return tartan_r_address(x, "tartan_file");
    if (tartan_r_class_of(x) != TARTAN_R_FILE) tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a BlockFile");
    return object_of(x, TARTAN_R_FILE);
}

tartan_conv *tartan_r_as_conv(SEXP x, const char *name) {
    if (x == R_NilValue) return NULL; /* the library refuses it where it needs one */
    if (TYPEOF(x) == EXTPTRSXP) return tartan_r_address(x, "tartan_conv");
    if (tartan_r_class_of(x) != TARTAN_R_CONV) tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a BlockConv");
    SEXP cache = open_handle(x, TARTAN_R_CONV), handle = cached(cache, "tartan_conv");
    if (handle == R_NilValue) {
        handle = PROTECT(tartan_r_call(".make_conv", x));
        tartan_r_hold(cache, handle);
        UNPROTECT(1);
    }
    return R_ExternalPtrAddr(handle);
}

tartan_sparsifier *tartan_r_as_sparsifier(SEXP x, const char *name) {
    if (tartan_r_class_of(x) != TARTAN_R_SPARSIFIER)
        tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a BlockSparsifier");
    return object_of(x, TARTAN_R_SPARSIFIER);
}

tartan_buffer *tartan_r_as_buffer(SEXP x, const char *name) {
    if (TYPEOF(x) == EXTPTRSXP) return tartan_r_address(x, "tartan_buffer");
    if (tartan_r_class_of(x) != TARTAN_R_DEVICE_ARRAY)
        tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a DeviceArray");
    return object_of(x, TARTAN_R_DEVICE_ARRAY);
}

/* ---- Layouts ---- */

tartan_r_bounds tartan_r_bounds_of(const tartan_layout *layout) {
    tartan_r_bounds bounds = {{tartan_layout_block_rows(layout), tartan_layout_block_cols(layout)},
                              {tartan_layout_rows(layout), tartan_layout_cols(layout)},
                              {NULL, NULL}};
    if (tartan_layout_is_variable(layout) != 1) return bounds;
    const int64_t rows = tartan_layout_grid_rows(layout) + 1, cols = tartan_layout_grid_cols(layout) + 1;
    bounds.begins[0] = (int64_t *)R_alloc((size_t)rows, sizeof(int64_t));
    bounds.begins[1] = (int64_t *)R_alloc((size_t)cols, sizeof(int64_t));
    tartan_r_check(tartan_layout_get_boundaries(layout, bounds.begins[0], rows, bounds.begins[1], cols));
    return bounds;
}

int64_t tartan_r_block_begin(const tartan_r_bounds *b, int side, int64_t i, int64_t *out_size) {
    const int64_t begin = b->begins[side] != NULL ? b->begins[side][i] : i * b->block[side];
    const int64_t left = (b->begins[side] != NULL ? b->begins[side][i + 1] : b->size[side]) - begin;
    *out_size = left < b->block[side] ? left : b->block[side];
    return begin;
}

/* Lists of the boundaries of an R object, or NULL: its blocks have one size. */
static SEXP bounds_in(SEXP x) {
    SEXP bounds = Rf_getAttrib(x, Rf_install("bounds")); /* objects that older versions saved have none */
    return TYPEOF(bounds) == VECSXP && XLENGTH(bounds) == 2 ? bounds : NULL;
}

/* A layout of the library from the lists of the R object. */
static SEXP make_layout(SEXP x) {
    tartan_shape shape;
    SEXP bounds = bounds_in(x);
    const int64_t *rows = NULL, *cols = NULL;
    int64_t nrows = 0, ncols = 0;
    int64_t npointers, ncolumns;
    const int64_t *pointers = tartan_r_counts(slot(x, "pointers"), "pointers", &npointers);
    const int64_t *columns = tartan_r_counts(slot(x, "columns"), "columns", &ncolumns);
    SEXP handle = PROTECT(tartan_r_new_handle("tartan_layout"));
    tartan_layout *layout = NULL;
    tartan_r_shape(slot(x, "frame"), &shape);
    if (bounds != NULL) { /* the blocks of the grid first */
        rows = tartan_r_counts(VECTOR_ELT(bounds, 0), "bounds", &nrows);
        cols = tartan_r_counts(VECTOR_ELT(bounds, 1), "bounds", &ncols);
        shape = (tartan_shape){nrows - 1, ncols - 1, 1, 1, shape.heads};
    }
    tartan_r_check(tartan_layout_from_csr(
        &shape, &(const tartan_compressed){pointers, npointers, columns, ncolumns, 0}, &layout));
    if (bounds != NULL) {
        tartan_layout *grid = layout;
        const tartan_status status = tartan_layout_with_boundaries(grid, rows, nrows, cols, ncols, &layout);
        tartan_layout_free(grid);
        tartan_r_check(status);
    }
    R_SetExternalPtrAddr(handle, layout);
    SEXP identity = slot(x, "identity");
    if (TYPEOF(identity) != STRSXP || XLENGTH(identity) != 1 ||
        strcmp(CHAR(STRING_ELT(identity, 0)), tartan_layout_identity(layout)) != 0)
        tartan_r_refuse(TARTAN_ERR_LAYOUT, identity, "the layout was damaged: its identity",
                        tartan_layout_identity(layout));
    UNPROTECT(1);
    return handle;
}

tartan_layout *tartan_r_as_layout(SEXP x, const char *name) {
    if (TYPEOF(x) == EXTPTRSXP) return tartan_r_address(x, "tartan_layout");
    tartan_r_class class = tartan_r_class_of(x);
    if (class == TARTAN_R_MATRIX || class == TARTAN_R_DEVICE_MATRIX) {
        x = slot(x, "layout");
        class = tartan_r_class_of(x);
    }
    if (class == TARTAN_R_DEVICE_LAYOUT) return object_of(x, class);
    if (class != TARTAN_R_LAYOUT) tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a BlockLayout");
    SEXP cache = open_handle(x, class), handle = cached(cache, "tartan_layout");
    if (handle == R_NilValue) {
        handle = PROTECT(make_layout(x));
        tartan_r_hold(cache, handle);
        UNPROTECT(1);
    }
    return R_ExternalPtrAddr(handle);
}

const double *tartan_r_frame(SEXP x, const char *name) {
    tartan_r_class class = tartan_r_class_of(x);
    if (class == TARTAN_R_MATRIX || class == TARTAN_R_DEVICE_MATRIX) {
        x = slot(x, "layout");
        class = tartan_r_class_of(x);
    }
    if (class != TARTAN_R_LAYOUT && class != TARTAN_R_DEVICE_LAYOUT)
        tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a BlockMatrix or a BlockLayout");
    SEXP frame = slot(x, "frame");
    if (TYPEOF(frame) != REALSXP || XLENGTH(frame) != 5)
        tartan_r_fail(TARTAN_ERR_HANDLE, "the %s was not made by this package", kinds[class].noun);
    return REAL(frame);
}

/* ---- Masks ---- */

/* A mask of the library from the bits of the R object. */
static SEXP make_block_mask(SEXP x) {
    SEXP index = slot(x, "index"), bits = slot(x, "bits");
    SEXP handle = PROTECT(tartan_r_new_handle("tartan_block_mask"));
    int64_t count;
    const int64_t *positions = tartan_r_counts(index, "index", &count);
    tartan_block_mask *mask = NULL;
    tartan_r_check(tartan_block_mask_from_index(tartan_r_as_layout(slot(x, "layout"), "layout"), positions,
                                                count, RAW(bits), XLENGTH(bits), &mask));
    R_SetExternalPtrAddr(handle, mask);
    SEXP held = PROTECT(Rf_cons(index, bits));
    tartan_r_hold(handle, held);
    MARK_NOT_MUTABLE(index); /* later changes make a copy */
    MARK_NOT_MUTABLE(bits);
    UNPROTECT(2);
    return handle;
}

/* Whether a handle stands for what the R object holds now. */
static int is_of(SEXP handle, SEXP x) {
    SEXP held = tartan_r_held(handle);
    return CAR(held) == slot(x, "index") && CDR(held) == slot(x, "bits");
}

tartan_block_mask *tartan_r_as_block_mask(SEXP x, const char *name) {
    if (TYPEOF(x) == EXTPTRSXP) return tartan_r_address(x, "tartan_block_mask");
    if (tartan_r_class_of(x) != TARTAN_R_BLOCK_MASK)
        tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a BlockMask");
    SEXP cache = open_handle(x, TARTAN_R_BLOCK_MASK), handle = cached(cache, "tartan_block_mask");
    if (handle == R_NilValue || !is_of(handle, x)) {
        handle = PROTECT(make_block_mask(x));
        tartan_r_hold(cache, handle);
        UNPROTECT(1);
    }
    return R_ExternalPtrAddr(handle);
}

/* ---- Matrices ---- */

/* A matrix around memory that `keeper` keeps alive. */
static SEXP wrap(tartan_layout *layout, const tartan_array *values, SEXP keeper) {
    SEXP handle = PROTECT(tartan_r_new_handle("tartan_matrix"));
    tartan_r_hold(handle, keeper);
    tartan_matrix *matrix = NULL;
    tartan_r_check(tartan_matrix_wrap(layout, values, NULL, NULL, &matrix));
    R_SetExternalPtrAddr(handle, matrix);
    UNPROTECT(1);
    return handle;
}

SEXP tartan_r_wrap_values(SEXP layout, SEXP values, SEXP dtype_name) {
    int32_t dtype = tartan_r_dtype(dtype_name, "dtype");
    tartan_layout *blocks = tartan_r_as_layout(layout, "layout");
    int64_t rows = tartan_layout_block_rows(blocks), cols = tartan_layout_block_cols(blocks);
    int64_t shape[3] = {tartan_layout_blocks(blocks), rows, cols}, strides[3] = {rows * cols, 1, rows};
    if (TYPEOF(values) != (dtype == TARTAN_F64 ? REALSXP : RAWSXP))
        tartan_r_fail(TARTAN_ERR_DTYPE, "values are of type %s, expected %s", tartan_r_type(values),
                      dtype == TARTAN_F64 ? "double" : "raw");
    double bytes = (double)shape[0] * (double)(rows * cols) * (double)tartan_dtype_bytes(dtype);
    double held = (double)XLENGTH(values) * (TYPEOF(values) == REALSXP ? 8 : 1);
    if (bytes != held)
        tartan_r_fail(TARTAN_ERR_SHAPE, "values have %.0f bytes, expected %.0f (%lld blocks of %lld x %lld)",
                      held, bytes, (long long)shape[0], (long long)rows, (long long)cols);
    tartan_array array;
    tartan_r_check(tartan_array_init(tartan_r_data(values), dtype, 3, shape, strides, &array));
    SEXP handle = wrap(blocks, &array, values);
    MARK_NOT_MUTABLE(values); /* later changes of the values make a copy */
    return handle;
}

SEXP tartan_r_wrap_buffer(SEXP layout, SEXP buffer) {
    tartan_array memory;
    tartan_r_check(tartan_buffer_view(tartan_r_as_buffer(buffer, "values"), &memory));
    if (memory.ndim != 3)
        tartan_r_fail(TARTAN_ERR_SHAPE, "the buffer has %d dimensions, expected 3", memory.ndim);
    tartan_array values = memory; /* C counts the blocks first */
    for (int i = 0; i < 3; i++) {
        values.shape[i] = memory.shape[(i + 2) % 3];
        values.strides[i] = memory.strides[(i + 2) % 3];
    }
    return wrap(tartan_r_as_layout(layout, "layout"), &values, buffer);
}

tartan_matrix *tartan_r_as_matrix(SEXP x, const char *name) {
    if (TYPEOF(x) == EXTPTRSXP) return tartan_r_address(x, "tartan_matrix");
    tartan_r_class class = tartan_r_class_of(x);
    if (class == TARTAN_R_DEVICE_MATRIX) return object_of(x, class);
    if (class != TARTAN_R_MATRIX) tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a BlockMatrix");
    SEXP cache = open_handle(x, class), handle = cached(cache, "tartan_matrix"), values = slot(x, "values");
    if (handle == R_NilValue || tartan_r_held(handle) != values) {
        handle = PROTECT(tartan_r_wrap_values(slot(x, "layout"), values, slot(x, "dtype")));
        tartan_r_hold(cache, handle);
        UNPROTECT(1);
    }
    return R_ExternalPtrAddr(handle);
}

const tartan_matrix *const *tartan_r_matrices(SEXP list, const char *name, int64_t *out_count) {
    if (TYPEOF(list) != VECSXP) tartan_r_refuse(TARTAN_ERR_ARGUMENT, list, name, "a list of BlockMatrix");
    *out_count = XLENGTH(list);
    const tartan_matrix **matrices =
        (const tartan_matrix **)R_alloc((size_t)*out_count + 1, sizeof *matrices);
    for (int64_t i = 0; i < *out_count; i++) matrices[i] = tartan_r_as_matrix(VECTOR_ELT(list, i), name);
    return matrices;
}

int32_t tartan_r_dtype_of(SEXP x, const char *name) {
    return tartan_r_any_dtype(slot(x, "dtype"), name);
}

/* ---- Places ---- */

static SEXP device_of(SEXP context) {
    return STRING_ELT(slot(context, "device"), 0);
}

/* The place so far: the first operand on a device sets it, the others must be on the same device. */
static SEXP join(SEXP x, const char *name, SEXP place, const char **first) {
    tartan_r_class class = tartan_r_class_of(x);
    if (class < TARTAN_R_DEVICE_MATRIX || class > TARTAN_R_DEVICE_ARRAY) return place;
    SEXP context = slot(x, "context");
    if (place == R_NilValue) {
        *first = name;
        return context;
    }
    if (strcmp(CHAR(device_of(context)), CHAR(device_of(place))) != 0)
        tartan_r_fail(TARTAN_ERR_UNSUPPORTED,
                      "%s is on %s and %s on %s, expected one device for all operands", name,
                      CHAR(device_of(context)), *first, CHAR(device_of(place)));
    return place;
}

static void expect_on_device(SEXP x, const char *name, SEXP place) {
    tartan_r_class class = tartan_r_class_of(x);
    if (x == R_NilValue || class == TARTAN_R_LAYOUT || class == TARTAN_R_BLOCK_MASK || class == TARTAN_R_CONV)
        return;
    if (class < TARTAN_R_DEVICE_MATRIX || class > TARTAN_R_DEVICE_ARRAY)
        tartan_r_fail(TARTAN_ERR_UNSUPPORTED,
                      "%s is in R's memory, but other operands are on %s: move it there with to_device()",
                      name, CHAR(device_of(place)));
}

static int is_list(SEXP x) {
    return TYPEOF(x) == VECSXP && !OBJECT(x);
}

SEXP tartan_r_place(SEXP operands) {
    return tartan_r_place_of(operands, Rf_getAttrib(operands, R_NamesSymbol));
}

SEXP tartan_r_place_of(SEXP operands, SEXP names) {
    SEXP place = R_NilValue;
    const char *first = "";
    for (R_xlen_t i = 0; i < XLENGTH(operands); i++) {
        SEXP x = VECTOR_ELT(operands, i);
        const char *name = CHAR(STRING_ELT(names, i));
        if (!is_list(x))
            place = join(x, name, place, &first);
        else
            for (R_xlen_t k = 0; k < XLENGTH(x); k++) place = join(VECTOR_ELT(x, k), name, place, &first);
    }
    if (place == R_NilValue) return place;
    for (R_xlen_t i = 0; i < XLENGTH(operands); i++) {
        SEXP x = VECTOR_ELT(operands, i);
        const char *name = CHAR(STRING_ELT(names, i));
        if (!is_list(x))
            expect_on_device(x, name, place);
        else
            for (R_xlen_t k = 0; k < XLENGTH(x); k++) expect_on_device(VECTOR_ELT(x, k), name, place);
    }
    return place;
}
