/* SPDX-License-Identifier: Apache-2.0
 * Convolution in 1, 2 or 3 spatial dimensions with block-sparse filters, and in the active windows of an image alone
 * (windows.h). Both may be used at once.
 *
 * A filter is a matrix (matrix.h): K rows, one for each output channel, and taps * Cp columns, where Cp is the number C of
 * input channels rounded up to whole blocks. Column t * Cp + c holds the weights of input channel c at tap t; taps are
 * counted in row-major order of the kernel (last dimension fastest). Weights of c >= C have no effect, and their gradient
 * is 0. So all that matrices can do, filters can: be initialised, saved, pruned, measured. With one tap, stride 1 and no
 * padding, the convolution is tartan_spmm.
 *
 * For output position p, a vector of one number for each dimension, with x = 0 outside of the image:
 *
 *     y[n,k,p] = sum over t, c of  filter[k, t * Cp + c] x[n, c, p * stride + t * dilation - before]
 *
 * This is a cross-correlation, as in all libraries for neural networks. `before` is the padding before the first position.
 *
 * Images are arrays [n, channels, spatial...] with any strides. Memory whose channels lie side by side ([n, spatial...,
 * channels], "channels last") is the fastest; its array has the axis of channels moved to second place.
 *
 * dtypes: filter and images have one dtype, f64, f32, f16 or bf16; y and gradients of images may also be f32 where that is of
 * 16 bits, and the gradient of a filter too. gain and bias are of f64 with f64, else of f32. Sums of 16-bit types are kept in
 * f32. On the CPU, results of f64 and f32 do not depend on the number of threads nor on the instruction set; no result
 * depends on the run.
 *
 * Any length may be 0. operations.h has the passes, tartan_conv_forward, tartan_conv_input_gradient and tartan_conv_filter_gradient, the
 * last step of the forward pass alone, tartan_channel_linear, and weight normalisation, tartan_conv_normalize.
 *
 * Source of the operation: Gray, Radford, Kingma, "GPU Kernels for Block-Sparse Weights" (2017); Ren et al., "SBNet: Sparse
 * Blocks Network for Fast Inference" (2018). */
#ifndef TARTAN_CONV_H
#define TARTAN_CONV_H

#include "tartan/context.h"
#include "tartan/layout.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The geometry of a convolution and the layout of its filters. Immutable and counted; any threads may use it. */
typedef struct tartan_conv tartan_conv;

/* A convolution with blocks of channels.
 *   channels   K x C elements, one head: the filter stores these blocks at each tap. Groups are a layout with blocks on its
 *              diagonal alone; a depthwise convolution has such blocks of 1 x 1
 *   options    "name=value" separated by blanks or commas. Numbers for the dimensions are written 3x3; one number serves
 *              for all of them:
 *     kernel=3x3     required; says how many spatial dimensions there are, 1 to 3 (kernel=3: one)
 *     stride=1       default 1
 *     dilation=1     default 1
 *     padding=valid  no padding (default);
 *             =same  as in TensorFlow and JAX, and in PyTorch, which has it for stride 1: y has ceil(size / stride) positions,
 *                    and of an odd sum of padding the larger part comes after; =tf is another name for it;
 *             =half  half of dilation * (kernel - 1) + 1, rounded down, before and after (the "SAME" of openai/blocksparse): y has a
 *                    position more than x where that number is even and the stride is 1;
 *             =1x0   these numbers before and after;  =0:1x2:0  before:after
 *     transposed=1   the forward pass is the input gradient of this convolution and the other way round: x has K channels
 *                    and y has C (ConvTranspose of PyTorch). Default 0
 *     per_tap=1      `channels` is the layout of the filter itself, K x (taps * Cp), so that each tap has blocks of its
 *                    own. Default 0
 * The caller frees *out with tartan_conv_free; NULL on failure. Errors: HANDLE, ARGUMENT (options), SHAPE (heads; cols not a
 * multiple of taps), UNSUPPORTED (a dynamic layout), OVERFLOW, MEMORY. */
TARTAN_API tartan_status tartan_conv_create(tartan_layout *channels, const char *options, tartan_conv **out);

/* A list of sets of channels: set b has the channels ids[offsets[b]] .. ids[offsets[b + 1] - 1], each once. */
typedef struct tartan_channel_sets {
    int64_t channels;       /* of the image, whether or not a set has them */
    const int64_t *offsets; /* ascending from 0 to nids */
    int64_t noffsets;       /* sets + 1 */
    const int64_t *ids;     /* 0 .. channels - 1 */
    int64_t nids;
} tartan_channel_sets;

/* A convolution with blocks of any channels. Block b joins the columns of the filter for set b of `cols`, which are input
 * channels, with the rows for set b of `rows`, output channels (of a transposed convolution the other way round). Blocks may have any sizes, their channels any order, and they may overlap, where
 * results are added. Output channels that no block has are 0.
 * The filter is then a matrix with one or more stored blocks for each of these and tap, and with rows or columns that belong
 * to no channel, whose weights have no effect; tartan_conv_filter_from_sets fills it. options: as tartan_conv_create,
 * without per_tap. Errors: as there; ARGUMENT also for a channel out of range or twice in a set, SHAPE for offsets that do
 * not ascend from 0 to the number of ids. */
TARTAN_API tartan_status tartan_conv_from_sets(const tartan_channel_sets *cols,
                                               const tartan_channel_sets *rows, const char *options,
                                               tartan_conv **out);

/* One more reference; and one less (from any thread; NULL is allowed). */
TARTAN_API tartan_conv *tartan_conv_retain(tartan_conv *conv);
TARTAN_API void tartan_conv_free(tartan_conv *conv);

/* The layout of filters, with one more reference: the caller frees it. Errors: HANDLE. */
TARTAN_API tartan_status tartan_conv_get_layout(const tartan_conv *conv, tartan_layout **out);

/* ---- Queries; 0 or NULL for a bad handle. ---- */
TARTAN_API int64_t tartan_conv_dims(const tartan_conv *conv);
TARTAN_API int64_t tartan_conv_in_channels(const tartan_conv *conv);  /* of x */
TARTAN_API int64_t tartan_conv_out_channels(const tartan_conv *conv); /* of y */
TARTAN_API const char *
tartan_conv_options(const tartan_conv *conv); /* all, with their values; lives as long as conv */
/* The spatial lengths of y for those of x, `dims` numbers each. Several lengths of y belong to one of x if a transposed
 * convolution has strides; this gives the smallest, and the passes take any of them. Errors: HANDLE, SHAPE (a kernel larger
 * than the padded image, lengths). */
TARTAN_API tartan_status tartan_conv_output_size(const tartan_conv *conv, const int64_t *in_size,
                                                 int64_t nin_size, int64_t *out_size, int64_t nout_size);
/* The class of every output position, row-major. Positions at which the same taps fall outside of the image form a class.
 * Class 0 is the interior, the others are numbered in the order of their first positions; so the number of classes is one
 * more than the largest number. For a transposed convolution in_size may have 2 * dims numbers, the lengths of x and then
 * those of y. Errors: as tartan_conv_output_size; MEMORY. */
TARTAN_API tartan_status tartan_conv_edge_classes(const tartan_conv *conv, const int64_t *in_size,
                                                  int64_t nin_size, int64_t *out_class, int64_t nout_class);

/* ---- Filters in other orders, in host memory. ---- */

/* From and to a dense filter [K, C, kernel...] with any strides, as PyTorch stores it. `from` takes the stored blocks and ignores
 * the others; `to` fills the others with 0 and adds up sets that overlap (`from` refuses these: UNSUPPORTED).
 * Errors: HANDLE, SHAPE, DTYPE, LAYOUT (the filter is of another layout), UNSUPPORTED (device memory), MEMORY. */
TARTAN_API tartan_status tartan_conv_filter_from_dense(const tartan_conv *conv, const tartan_array *dense,
                                                       tartan_matrix *filter);
TARTAN_API tartan_status tartan_conv_filter_to_dense(const tartan_conv *conv, const tartan_matrix *filter,
                                                     tartan_array *dense);

/* From and to the order of openai/blocksparse: a list of one dimension, block after block, each [output channels, input
 * channels, kernel...]. The blocks are the sets, or without sets the stored blocks of `channels` (per_tap: UNSUPPORTED).
 * Errors: as above. */
TARTAN_API tartan_status tartan_conv_filter_from_sets(const tartan_conv *conv, const tartan_array *list,
                                                      tartan_matrix *filter);
TARTAN_API tartan_status tartan_conv_filter_to_sets(const tartan_conv *conv, const tartan_matrix *filter,
                                                    tartan_array *list);

#ifdef __cplusplus
}
#endif
#endif
