/* SPDX-License-Identifier: Apache-2.0
 * The patterns of arguments in the public headers, and the names that follow each.
 *
 * A language file gives typemaps for these (bodies in lang/<language>.i):
 *
 *     (const int64_t *IN_INT64, int64_t IN_COUNT)      index array, or nothing: NULL and 0
 *     (const double *IN_DOUBLE, int64_t IN_COUNT)
 *     (const uint8_t *IN_BYTES, int64_t IN_COUNT)
 *     (int64_t *OUT_INT64, int64_t OUT_COUNT)          written, of a length that the function states
 *     (double *OUT_DOUBLE, int64_t OUT_COUNT)
 *     (uint8_t *OUT_BYTES, int64_t OUT_COUNT)
 *     const tartan_array *                             dense operand, read
 *     const tartan_array *OPTIONAL_ARRAY               the same, or nothing: NULL
 *     const tartan_array *MASK_ARRAY                   bytes that are 0 or not, read (TARTAN_U8)
 *     tartan_array *                                   dense operand, written in place
 *     tartan_array *OPTIONAL_RESULT                    the same, or nothing: NULL
 *     tartan_array *LENT_ARRAY                         no input; the result describes memory of a handle
 *     const tartan_shape *                             rows, cols, block_rows, block_cols, heads
 *     const tartan_places *                            three index arrays of one length: heads (or nothing), rows, cols
 *     const tartan_compressed *                        two index arrays: pointers and indices; and whether by column
 *     const tartan_channel_sets *                      a number of channels and two index arrays: offsets and ids
 *     double *OUT_VALUE                                no input; a number is the result
 *     char **OUT_TEXT                                  no input; the text is the result (tartan_text_free)
 *     T **out, T * and const T *                       handle made and handle used, T being tartan_context,
 *                                                      tartan_layout, tartan_block_mask, tartan_matrix,
 *                                                      tartan_file, tartan_buffer, tartan_conv, tartan_sparsifier
 *     (const T *const *IN_LIST, int64_t IN_COUNT)      handles used, T being tartan_matrix
 *     const tartan_block_mask *OPTIONAL_MASK           handle used, or nothing: NULL
 *     const tartan_layout *OPTIONAL_LAYOUT             the same
 *     const char *OPTIONAL_TEXT                        UTF-8, or nothing: NULL
 *     const tartan_hooks *                             no input where a language supplies none: NULL
 *     (const tartan_array *values, tartan_release release, void *user)
 *                                                      memory of the language that a matrix wraps; a language that cannot
 *                                                      lend any ignores tartan_matrix_wrap
 *     int32_t, int64_t, double, const char *           numbers and texts, also as results
 * Patterns without a name in capitals apply by type alone. Two traps of SWIG:
 * - It gives the typemaps of `T *` to `const T *` too. With a %typemap(argout) of tartan_array *, write an empty one for
 *   each pattern of const tartan_array *, or inputs are returned as results.
 * - It does not know stdint.h, and its own stdint.i takes int64_t for long long. Write the typemaps of int32_t and
 *   int64_t, or %apply int { int32_t } and %apply long { int64_t }. */
%apply (const int64_t *IN_INT64, int64_t IN_COUNT) {
    (const int64_t *cols, int64_t ncols),
    (const int64_t *rows, int64_t nrows),
    (const int64_t *ids, int64_t nids),
    (const int64_t *index, int64_t nindex),
    (const int64_t *q_offsets, int64_t nq_offsets),
    (const int64_t *k_offsets, int64_t nk_offsets),
    (const int64_t *row_order, int64_t nrow_order),
    (const int64_t *col_order, int64_t ncol_order),
    (const int64_t *row_bounds, int64_t nrow_bounds),
    (const int64_t *col_bounds, int64_t ncol_bounds),
    (const int64_t *sources, int64_t nsources),
    (const int64_t *targets, int64_t ntargets),
    (const int64_t *lengths, int64_t nlengths),
    (const int64_t *heads, int64_t nheads),
    (const int64_t *counts, int64_t ncounts),
    (const int64_t *image, int64_t nimage),
    (const int64_t *in_size, int64_t nin_size)
};
%apply (const double *IN_DOUBLE, int64_t IN_COUNT) {
    (const double *gates, int64_t ngates),
    (const double *scores, int64_t nscores),
    (const double *growth, int64_t ngrowth),
    (const double *diagonal, int64_t ndiagonal)
};
%apply (const uint8_t *IN_BYTES, int64_t IN_COUNT) {
    (const uint8_t *mask, int64_t nmask)
};
%apply (int64_t *OUT_INT64, int64_t OUT_COUNT) {
    (int64_t *out_row_pointers, int64_t nout_row_pointers),
    (int64_t *out_col_pointers, int64_t nout_col_pointers),
    (int64_t *out_heads, int64_t nout_heads),
    (int64_t *out_block_rows, int64_t nout_block_rows),
    (int64_t *out_block_cols, int64_t nout_block_cols),
    (int64_t *out_entry_rows, int64_t nout_entry_rows),
    (int64_t *out_entry_cols, int64_t nout_entry_cols),
    (int64_t *out_cols, int64_t nout_cols),
    (int64_t *out_ids, int64_t nout_ids),
    (int64_t *out_index, int64_t nout_index),
    (int64_t *out_lengths, int64_t nout_lengths),
    (int64_t *out_bandwidth, int64_t nout_bandwidth),
    (int64_t *out_bounds, int64_t nout_bounds),
    (int64_t *out_row_bounds, int64_t nout_row_bounds),
    (int64_t *out_col_bounds, int64_t nout_col_bounds),
    (int64_t *out_sources, int64_t nout_sources),
    (int64_t *out_order, int64_t nout_order),
    (int64_t *out_ends, int64_t nout_ends),
    (int64_t *out_row_order, int64_t nout_row_order),
    (int64_t *out_col_order, int64_t nout_col_order),
    (int64_t *out_size, int64_t nout_size),
    (int64_t *out_class, int64_t nout_class)
};
%apply (double *OUT_DOUBLE, int64_t OUT_COUNT) {
    (double *out_spread, int64_t nout_spread),
    (double *out_reach, int64_t nout_reach),
    (double *out_norms, int64_t nout_norms),
    (double *out_gates, int64_t nout_gates),
    (double *out_rates, int64_t nout_rates),
    (double *out_diagonal, int64_t nout_diagonal),
    (double *out_results, int64_t nout_results)
};
%apply (uint8_t *OUT_BYTES, int64_t OUT_COUNT) {
    (uint8_t *out_mask, int64_t nout_mask)
};
%apply (const tartan_matrix *const *IN_LIST, int64_t IN_COUNT) {
    (const tartan_matrix *const *matrices, int64_t nmatrices)
};
%apply const tartan_array *OPTIONAL_ARRAY { const tartan_array *gates, const tartan_array *gain, const tartan_array *bias,
                                                     const tartan_array *sinks, const tartan_array *blocks,
                                                     const tartan_array *base, const tartan_array *row_factors,
                                                     const tartan_array *col_factors };
%apply tartan_array *OPTIONAL_RESULT { tartan_array *lse, tartan_array *bias_grad, tartan_array *sinks_grad, tartan_array *x_grad,
                                              tartan_array *gain_grad };
%apply const tartan_block_mask *OPTIONAL_MASK { const tartan_block_mask *block_mask };
%apply const tartan_layout *OPTIONAL_LAYOUT { const tartan_layout *active };
%apply const tartan_array *MASK_ARRAY { const tartan_array *mask };
%apply tartan_array *LENT_ARRAY { tartan_array *out_view };
%apply double *OUT_VALUE { double *out_value, double *out_gflops };
%apply char **OUT_TEXT { char **out_text, char **out_input, char **out_output };
%apply const char *OPTIONAL_TEXT { const char *parameters, const char *metadata, const char *options,
                                         const char *windows };
