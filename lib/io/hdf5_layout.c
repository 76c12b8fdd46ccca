/* SPDX-License-Identifier: Apache-2.0
 * Reading a layout. */
#include "io/hdf5_check.h"

#include <string.h>

/* Reads a list of integers; the caller frees out->data. */
static tartan_status read_list(tartan_i_call *call, hid_t object, const char *name, int64_t count,
                               tartan_i_integers *out) {
    void *data = NULL;
    *out = (tartan_i_integers){0};
    tartan_i_dataset list = {.id = -1};
    tartan_status status;
    TRY(tartan_i_open_dataset(call, object, name, 1, &list));
    TRY(tartan_i_check_integers(call, &list, out));
    if (count >= 0 && list.dims[0] != count) {
        status = tartan_i_fail_format(call, "%s has %" PRId64 " entries, expected %" PRId64, name,
                                      list.dims[0], count);
        goto fail;
    }
    TRY(tartan_i_allocate(&data, list.dims[0], out->bytes));
    TRY(tartan_i_read_dataset(call, &list, data));
    out->data = data;
    out->count = list.dims[0];
    data = NULL;
fail:
    tartan_i_close_dataset(&list);
    tartan_i_free(data);
    return status;
}

/* What a layout says before its lists: `begun` is the frame to begin it with, on a grid of grid[0] x grid[1]. */
typedef struct frame {
    tartan_shape begun;
    int64_t grid[2];
    int64_t *row_bounds, *col_bounds; /* of blocks of different sizes, or NULL */
} frame;

static void frame_free(frame *f) {
    tartan_i_free(f->row_bounds);
    tartan_i_free(f->col_bounds);
}

static tartan_status read_bounds(tartan_i_call *call, hid_t object, const char *name, int64_t size,
                                 int64_t block, int64_t *out_grid, int64_t **out) {
    tartan_i_integers list;
    PASS(read_list(call, object, name, -1, &list));
    const tartan_status status =
        tartan_i_schema_take_bounds(call->function, call->where, name, &list, size, block, out);
    *out_grid = list.count - 1;
    tartan_i_free((void *)list.data);
    return status;
}

static tartan_status check_frame(const tartan_i_call *call, const tartan_shape *said, frame *f) {
    if (tartan_i_shape_check(call->function, &f->begun, &f->grid[0], &f->grid[1]) == TARTAN_OK)
        return TARTAN_OK;
    return tartan_i_fail_format(call,
                                "its frame is not allowed: shape [%" PRId64 ", %" PRId64
                                "], block_shape [%" PRId64 ", %" PRId64 "], heads %" PRId64,
                                said->rows, said->cols, said->block_rows, said->block_cols, said->heads);
}

static tartan_status read_frame(tartan_i_call *call, hid_t object, frame *f) {
    int64_t size[2], block[2], said[2], heads = 1;
    PASS(tartan_i_read_integers(call, object, "shape", 2, false, size));
    PASS(tartan_i_read_integers(call, object, "block_shape", 2, false, block));
    PASS(tartan_i_read_integers(call, object, "heads", 1, true, &heads));
    const tartan_shape shape = {size[0], size[1], block[0], block[1], heads};
    f->begun = shape;
    const htri_t rows = H5Lexists(object, "row_bounds", H5P_DEFAULT),
                 cols = H5Lexists(object, "col_bounds", H5P_DEFAULT);
    if (rows < 0 || cols < 0) return tartan_i_fail_hdf5(call, "its links cannot be read");
    if (rows > 0 || cols > 0) {
        PASS(read_bounds(call, object, "row_bounds", size[0], block[0], &f->grid[0], &f->row_bounds));
        PASS(read_bounds(call, object, "col_bounds", size[1], block[1], &f->grid[1], &f->col_bounds));
        f->begun = (tartan_shape){f->grid[0], f->grid[1], 1, 1, heads};
    }
    PASS(check_frame(call, &shape, f));
    memcpy(said, f->grid, sizeof said);
    PASS(tartan_i_read_integers(call, object, "grid", 2, true, said));
    if (said[0] != f->grid[0] || said[1] != f->grid[1])
        return tartan_i_fail_format(call,
                                    "grid is [%" PRId64 ", %" PRId64
                                    "], but shape and block_shape make [%" PRId64 ", %" PRId64 "]",
                                    said[0], said[1], f->grid[0], f->grid[1]);
    if (heads * f->grid[1] > call->most_columns)
        return tartan_i_fail_format(call,
                                    "%" PRId64 " block columns in %" PRId64 " heads exceed the %" PRId64
                                    " allowed in a file without a seal",
                                    f->grid[1], heads, call->most_columns);
    return TARTAN_OK;
}

tartan_status tartan_i_read_layout(tartan_i_call *call, hid_t object, tartan_layout **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    tartan_i_integers pointers = {0}, indices = {0};
    char *recipe = NULL, said[TARTAN_I_IDENTITY_CHARS + 1] = "";
    frame f = {0};
    TRY(read_frame(call, object, &f));
    TRY(tartan_i_read_text(call, object, "recipe", &recipe));
    TRY(tartan_i_read_identity(call, object, said));
    TRY(read_list(call, object, tartan_i_pointers_name(f.begun.heads), f.begun.heads * f.grid[0] + 1,
                  &pointers));
    TRY(read_list(call, object, tartan_i_indices_name(f.begun.heads), -1, &indices));
    TRY(tartan_i_layout_begin(&f.begun, indices.count, &layout));
    TRY(tartan_i_schema_take_lists(call->function, call->where, &pointers, &indices, layout));
    TRY(tartan_i_layout_finish(layout));
    if (f.row_bounds != NULL)
        TRY(tartan_i_layout_take_bounds(call->function, layout, f.row_bounds, f.col_bounds));
    if (said[0] != '\0' && strcmp(said, tartan_i_layout_identity(layout)) != 0) {
        status = tartan_i_fail_format(call, "its index sets have the identity %s, the file says %s",
                                      tartan_i_layout_identity(layout), said);
        goto fail;
    }
    if (recipe != NULL && recipe[0] != '\0') TRY(tartan_i_layout_set_recipe(layout, recipe));
    *out = layout;
    layout = NULL;
fail:
    tartan_layout_free(layout);
    frame_free(&f);
    tartan_i_free((void *)pointers.data);
    tartan_i_free((void *)indices.data);
    tartan_i_free(recipe);
    return status;
}
