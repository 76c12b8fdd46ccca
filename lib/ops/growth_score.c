/* SPDX-License-Identifier: Apache-2.0
 * The growth score of every block of a grid. */
#include "ops/operand.h"

tartan_status tartan_growth_score(tartan_context *context, const tartan_shape *shape, int32_t norm,
                                  double scale, const tartan_array *x, int64_t nx, const tartan_array *y,
                                  int64_t ny, double beta, tartan_array *score) {
    CHECK_HANDLE(context, CONTEXT, "context");
    int64_t grid_rows, grid_cols;
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    CHECK(shape->heads == 1, ARGUMENT, "shape->heads is %" PRId64 ", expected 1", shape->heads);
    CHECK(norm == TARTAN_NORM_MAX || norm == TARTAN_NORM_L2, ARGUMENT,
          "norm is %d, expected %d (max) or %d (L2)", norm, TARTAN_NORM_MAX, TARTAN_NORM_L2);
    PASS(tartan_i_operand_pairs(__func__, context, x, nx, y, ny, shape->rows, shape->cols, 1));
    char text[TARTAN_I_SHAPE_TEXT];
    for (int64_t i = 0; i < nx; i++)
        CHECK(x[i].ndim == 2, SHAPE, "x has shape %s, expected 2 dimensions",
              tartan_i_shape_text(&x[i], text));
    PASS(tartan_i_operand_array(__func__, context, "score", score, true));
    CHECK(score->dtype == tartan_i_sum_dtype(x[0].dtype), DTYPE, "score is of %s, expected %s",
          tartan_dtype_name(score->dtype), tartan_dtype_name(tartan_i_sum_dtype(x[0].dtype)));
    CHECK(score->ndim == 2 && score->shape[0] == grid_rows && score->shape[1] == grid_cols, SHAPE,
          "score has shape %s, expected [%" PRId64 ", %" PRId64 "] (the grid of blocks)",
          tartan_i_shape_text(score, text), grid_rows, grid_cols);
    PASS(tartan_i_scalar_check(__func__, "scale", scale, x[0].dtype));
    PASS(tartan_i_scalar_check(__func__, "beta", beta, x[0].dtype));
    for (int64_t i = 0; i < nx; i++) {
        PASS(tartan_i_array_check_apart(__func__, "score", score, "x", &x[i]));
        PASS(tartan_i_array_check_apart(__func__, "score", score, "y", &y[i]));
    }
    const tartan_op call = {.kind = TARTAN_OP_GROWTH_SCORE,
                            .growth_score = {.function = __func__,
                                             .shape = shape,
                                             .norm = norm,
                                             .scale = scale,
                                             .beta = beta,
                                             .pairs = nx,
                                             .x = x,
                                             .y = y,
                                             .score = score}};
    return tartan_i_run(context, &call);
}
