/* SPDX-License-Identifier: Apache-2.0
 * The tables of kernels, one for each operation, and the choice among them. Plain C: a test that supplies the launch
 * functions needs no GPU. */
#ifndef TARTAN_CUDA_KERNELS_H
#define TARTAN_CUDA_KERNELS_H

#include "refuse.h"
#include "tune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tartan_cuda_queue tartan_cuda_queue; /* queue.h */

/* Starts the kernel, which does not refuse the problem, in the order of the queue, whose device is the thread's. */
typedef tartan_status tartan_cuda_launching(const char *function, tartan_cuda_queue *queue,
                                            const void *problem);

typedef struct tartan_cuda_kernel {
    const char *name;
    tartan_cuda_refusal *refuses; /* NULL: can do every problem */
    tartan_cuda_rating *rate;     /* NULL: not known */
    tartan_cuda_launching *launch;
    const char *remark; /* for explain, or NULL */
} tartan_cuda_kernel;

/* What the plug-in has for a kind of operations. */
typedef struct tartan_cuda_kernels {
    int32_t count;
    const tartan_cuda_kernel *rows; /* by rising arithmetic throughput */
    tartan_cuda_maker *make;        /* of their problems; NULL: these are the operations' own structs */
} tartan_cuda_kernels;

/* Of a tartan_op_kind; NULL if there are no kernels. */
const tartan_cuda_kernels *tartan_cuda_kernels_of(int32_t kind);

/* The problem of an operation that has kernels: its own struct, or what is made in `room`, of which `nothing` is set then. */
tartan_status tartan_cuda_problem_of(const tartan_host *host, const tartan_context *context,
                                     const tartan_op *op, tartan_cuda_problem *room, const void **out);

#define LAUNCH(kernel)      tartan_cuda_launching tartan_cuda_##kernel;
#define KERNEL(kernel, ...) LAUNCH(kernel)
#define MANY(op, ...)       __VA_ARGS__
#define MADE(op)            LAUNCH(op##_plain)
#define PLAIN(op)           LAUNCH(op##_plain)
#include "kernels.def"
#undef LAUNCH
#undef KERNEL
#undef MANY
#undef MADE
#undef PLAIN

/* Parts of kernels, which other kernels start. */
tartan_cuda_launching tartan_cuda_attention_backward_extras, tartan_cuda_attention_forward_extras,
    tartan_cuda_conv_filter_gradient_pieces_f32, tartan_cuda_conv_pieces_f32;

/* Why the kernel cannot do the problem, or NULL; and its expected rate, 0 if it is not known. */
const char *tartan_cuda_kernel_refuses(const tartan_cuda_kernel *kernel, const tartan_cuda_chip *chip,
                                       const void *problem);
double tartan_cuda_kernel_rate(const tartan_cuda_kernel *kernel, const void *problem);

/* The row to run: the fastest of those that can do the problem; the last of equals. -1 if all refuse. */
int32_t tartan_cuda_choose(const tartan_cuda_kernels *kernels, const tartan_cuda_chip *chip,
                           const void *problem);

#ifdef __cplusplus
}
#endif
#endif
