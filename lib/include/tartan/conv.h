/* SPDX-License-Identifier: Apache-2.0
 * Convolution in 1, 2 or 3 spatial dimensions with block-sparse filters, over whole images or only in their active
 * windows (windows.h).
 *
 * A filter is a matrix (matrix.h) with K rows, one for each output channel, and taps * Cp columns, where Cp is the
 * number C of input channels rounded up to whole blocks. Column t * Cp + c holds the weights of input channel c at
 * tap t. Taps are counted in row-major order of the kernel (last dimension fastest). Weights with c >= C have no
 * effect, and their gradient is 0. Filters can be initialised, saved, pruned and measured like all matrices. With one
 * tap, stride 1 and no padding, the convolution is tartan_spmm.
 *
 * For an output position p, a vector with one number for each dimension, and x = 0 outside the image:
 *
 *     y[n,k,p] = sum over t, c of  filter[k, t * Cp + c] x[n, c, p * stride + t * dilation - before]
 *
 * This is a cross-correlation, as in all neural-network libraries. `before` is the padding before the first position.
 *
 * Images are arrays [n, channels, spatial...] with any strides. Memory with contiguous channels ([n, spatial...,
 * channels], "channels last") is the fastest; describe it by an array whose channel axis has moved to second place.
 *
 * dtypes: filter and images have one dtype, f64, f32, f16 or bf16. If it has 16 bits, y, the gradients of images and
 * the gradient of the filter may also be f32. gain and bias are f64 with f64 images, else f32. Sums of 16-bit types
 * are kept in f32. On the CPU, f64 and f32 results do not depend on the number of threads nor on the instruction set.
 * No result depends on the run.
 *
 * Any length may be 0. operations.h has the passes tartan_conv_forward, tartan_conv_input_gradient and
 * tartan_conv_filter_gradient, the last step of the forward pass by itself, tartan_channel_linear, and weight
 * normalisation, tartan_conv_normalize.
 * Sources: Gray, Radford, Kingma, "GPU Kernels for Block-Sparse Weights" (2017); Ren et al., "SBNet: Sparse Blocks
 * Network for Fast Inference" (2018). */
#ifndef TARTAN_CONV_H
#define TARTAN_CONV_H

#include "tartan/context.h"
#include "tartan/layout.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The geometry of a convolution and the layout of its filters. Immutable, reference-counted and safe to share between
 * threads. */
typedef struct tartan_conv tartan_conv;

/* Create a convolution with blocks of channels.
 *   channels   K x C elements, one head: the filter stores these blocks at each tap. For groups, use a layout with
 *              blocks on its diagonal only; for a depthwise convolution, such blocks of 1 x 1
 *   options    "name=value" separated by blanks or commas. Write one number for each dimension, as in 3x3, or a
 *              single number for all of them:
 *     kernel=3x3     required; determines the number of spatial dimensions, 1 to 3 (kernel=3: one)
 *     stride=1       default 1
 *     dilation=1     default 1
 *     padding=valid  no padding (default);
 *             =same  as in TensorFlow and JAX, and in PyTorch for stride 1: y has ceil(size / stride) positions, and
 *                    if the total padding is odd, the larger part comes after; =tf is another name for it;
 *             =half  half of dilation * (kernel - 1) + 1, rounded down, before and after (the "SAME" of
 *                    openai/blocksparse): for stride 1 and an even extent dilation * (kernel - 1) + 1, y has one
 *                    position more than x;
 *             =1x0   these numbers before and after;  =0:1x2:0  before:after
 *     transposed=1   exchanges the forward pass and the input gradient: x has K channels and y has C (PyTorch's
 *                    ConvTranspose). Default 0
 *     per_tap=1      `channels` is the layout of the filter itself, K x (taps * Cp), so that each tap has its own
 *                    blocks. Default 0
 * The caller frees *out with tartan_conv_free; it is NULL on failure. Errors: HANDLE, ARGUMENT (options), SHAPE
 * (heads; cols not a multiple of taps), UNSUPPORTED (a dynamic layout), OVERFLOW, MEMORY. */
TARTAN_API tartan_status tartan_conv_create(tartan_layout *channels, const char *options, tartan_conv **out);

/* A list of sets of channels. Set b has the channels ids[offsets[b]] .. ids[offsets[b + 1] - 1], each once. */
typedef struct tartan_channel_sets {
    int64_t channels;       /* the number of channels of the image, in a set or not */
    const int64_t *offsets; /* ascending from 0 to nids */
    int64_t noffsets;       /* sets + 1 */
    const int64_t *ids;     /* 0 .. channels - 1 */
    int64_t nids;
} tartan_channel_sets;

/* Create a convolution whose blocks have arbitrary channels. Block b connects the input channels in set b of `cols`,
 * which are columns of the filter, with the output channels in set b of `rows`, which are rows (for a transposed
 * convolution the other way round). Blocks may have any size and list their channels in any order. Where blocks
 * overlap, their results are added. Output channels in no block are 0. The filter is a matrix with one or more stored
 * blocks for each block and tap, and with rows or columns that belong to no channel, whose weights have no effect;
 * tartan_conv_filter_from_sets fills it. options: as for tartan_conv_create, without per_tap. Errors: as there;
 * ARGUMENT also for a channel out of range or repeated within a set, SHAPE for offsets that do not ascend from 0 to
 * the number of ids. */
TARTAN_API tartan_status tartan_conv_from_sets(const tartan_channel_sets *cols,
                                               const tartan_channel_sets *rows, const char *options,
                                               tartan_conv **out);

/* tartan_conv_retain adds a reference; tartan_conv_free releases one (from any thread; NULL is allowed). */
TARTAN_API tartan_conv *tartan_conv_retain(tartan_conv *conv);
TARTAN_API void tartan_conv_free(tartan_conv *conv);

/* A new reference to the layout of filters; the caller frees it. Errors: HANDLE. */
TARTAN_API tartan_status tartan_conv_get_layout(const tartan_conv *conv, tartan_layout **out);

/* ---- Queries. 0 or NULL for a bad handle. ---- */

TARTAN_API int64_t tartan_conv_dims(const tartan_conv *conv);
TARTAN_API int64_t tartan_conv_in_channels(const tartan_conv *conv);  /* of x */
TARTAN_API int64_t tartan_conv_out_channels(const tartan_conv *conv); /* of y */
TARTAN_API const char *
tartan_conv_options(const tartan_conv *conv); /* all options with their values; valid as long as conv */

/* The spatial lengths of y for those of x, `dims` numbers each. For a transposed convolution with strides, several
 * lengths of y fit one length of x. This returns the smallest; the passes accept any of them. Errors: HANDLE, SHAPE
 * (a kernel larger than the padded image, lengths). */
TARTAN_API tartan_status tartan_conv_output_size(const tartan_conv *conv, const int64_t *in_size,
                                                 int64_t nin_size, int64_t *out_size, int64_t nout_size);
/* The class of every output position, row-major. Positions at which the same taps fall outside the image form a
 * class. Class 0 is the interior. The others are numbered in the order of their first positions, so the number of
 * classes is one more than the largest number. For a transposed convolution in_size may have 2 * dims numbers, the
 * lengths of x followed by those of y. Errors: as for tartan_conv_output_size; MEMORY. */
TARTAN_API tartan_status tartan_conv_edge_classes(const tartan_conv *conv, const int64_t *in_size,
                                                  int64_t nin_size, int64_t *out_class, int64_t nout_class);

/* ---- Filters in other orders, in host memory. ---- */

/* Convert from and to a dense filter [K, C, kernel...] with any strides, as PyTorch stores it. `from` reads the
 * stored blocks and ignores all others. `to` writes 0 for the others and adds sets that overlap, which `from` refuses
 * (UNSUPPORTED).
 * Errors: HANDLE, SHAPE, DTYPE, LAYOUT (the filter has another layout), UNSUPPORTED (device memory), MEMORY. */
TARTAN_API tartan_status tartan_conv_filter_from_dense(const tartan_conv *conv, const tartan_array *dense,
                                                       tartan_matrix *filter);
TARTAN_API tartan_status tartan_conv_filter_to_dense(const tartan_conv *conv, const tartan_matrix *filter,
                                                     tartan_array *dense);

/* Convert from and to the order of openai/blocksparse: a one-dimensional list, block after block, each [output
 * channels, input channels, kernel...]. The blocks are the sets or, without sets, the stored blocks of `channels`
 * (per_tap: UNSUPPORTED).
 * Errors: as above. */
TARTAN_API tartan_status tartan_conv_filter_from_sets(const tartan_conv *conv, const tartan_array *list,
                                                      tartan_matrix *filter);
TARTAN_API tartan_status tartan_conv_filter_to_sets(const tartan_conv *conv, const tartan_matrix *filter,
                                                    tartan_array *list);

#ifdef __cplusplus
}
#endif
#endif
