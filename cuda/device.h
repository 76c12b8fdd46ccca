/* SPDX-License-Identifier: Apache-2.0
 * The run-time side of the plug-in: queues, memory, errors, index sets in device memory. */
#ifndef TARTAN_CUDA_DEVICE_H
#define TARTAN_CUDA_DEVICE_H

#include <cuda_runtime.h>
#include <pthread.h>

#include "order.h"
#include "tune.h"

/* The library that loaded the plug-in. */
extern const tartan_host *tartan_cuda_host;

typedef struct tartan_cuda_memory tartan_cuda_memory;
typedef struct tartan_cuda_blas tartan_cuda_blas; /* blas.h */

/* What a context has on a device: one stream, the caller's or its own. Counted: the memory that came from it
 * refers to it. */
typedef struct tartan_cuda_queue tartan_cuda_queue;
struct tartan_cuda_queue {
    int32_t references; /* by the __atomic builtins */
    int32_t device_id;
    cudaStream_t stream;
    bool owns_stream;
    tartan_cuda_chip chip;
    cudaMemPool_t pool; /* the device's default one */
    tartan_cuda_sides sides;
    int32_t *tickets;       /* see below */
    int32_t turns[2];       /* 0 or 1: which set of sided tickets is next, [of those for captured kernels] */
    tartan_cuda_blas *blas; /* or NULL */
    pthread_mutex_t lock;   /* of what follows */
    bool open;              /* false once the context was freed; its work has ended then */
    tartan_cuda_memory *waiting; /* freed during a graph capture, to be given back after it */
};

/* Counters of a queue in device memory, 0 between kernels: sets of sided tickets (tiles handed out to each side, and blocks
 * that are done), of which kernels take two in turns, since two kernels may run at a time: the second one begins early.
 * Kernels that are captured take two others, since what is captured is not run between those before and after it; a graph
 * as a whole waits for what is ahead of it. Then the tickets of kernels that wait first: tiles handed out and blocks that are
 * done; and for each warp of as many blocks as there are processors, whether it has left its part of a sum. */
enum {
    TARTAN_CUDA_SIDED_SETS = 4,
    TARTAN_CUDA_SIDED_TICKETS = 3,
    TARTAN_CUDA_TICKETS = 2,
    TARTAN_CUDA_FLAGS = 8
};

/* A queue on the stream, or on one of its own (NULL). Errors: DEVICE (below compute capability 8.0, a stream of
 * another device or none), MEMORY. */
tartan_status tartan_cuda_queue_open(const char *function, int32_t device_id, void *stream,
                                     tartan_cuda_queue **out);
/* Waits for its work. The queue itself lives as long as memory refers to it. */
void tartan_cuda_queue_close(tartan_cuda_queue *queue);

/* At which side of L2 each multiprocessor of the thread's device is, measured when the process first asks; that may wait for
 * a multiprocessor that is in use, but for no stream. One side where it is not known, or before or after Hopper.
 * Errors: DEVICE, MEMORY. */
tartan_status tartan_cuda_find_sides(const char *function, int32_t device_id, const tartan_cuda_chip *chip,
                                     tartan_cuda_sides *out);
/* The measurement itself, on a Hopper chip; *out is written on success only. Errors: DEVICE, MEMORY. */
tartan_status tartan_cuda_measure_sides(const char *function, const tartan_cuda_chip *chip,
                                        tartan_cuda_sides *out);

/* Memory that may outlive the context, in the order of the queue; the table's allocate and release. */
tartan_status tartan_cuda_memory_allocate(const char *function, tartan_cuda_queue *queue, int64_t bytes,
                                          void **out_pointer, void **out_owner);
void tartan_cuda_memory_release(void *owner);

/* Makes the queue's device the thread's current one while it lives. */
class tartan_cuda_current {
  public:
    explicit tartan_cuda_current(int32_t device_id);
    ~tartan_cuda_current();
    tartan_cuda_current(const tartan_cuda_current &) = delete;
    tartan_cuda_current &operator=(const tartan_cuda_current &) = delete;

  private:
    void *before_; /* the driver's context of the thread */
    bool changed_;
};

/* Lets the thread get and give back memory while it, or another thread, captures a graph: that would end the
 * capture otherwise. */
class tartan_cuda_relaxed {
  public:
    tartan_cuda_relaxed();
    ~tartan_cuda_relaxed();
    tartan_cuda_relaxed(const tartan_cuda_relaxed &) = delete;
    tartan_cuda_relaxed &operator=(const tartan_cuda_relaxed &) = delete;

  private:
    cudaStreamCaptureMode mode_;
};

/* TARTAN_OK, or an error of the runtime as a status with its text: out of memory is MEMORY, a fault that has ended
 * the CUDA context says that the process must start anew, all others DEVICE. Clears the runtime's last error. */
tartan_status tartan_cuda_check(const char *function, cudaError_t error, const char *what);

/* Whether work is being recorded in a graph instead of being done. */
tartan_status tartan_cuda_capturing(const char *function, tartan_cuda_queue *queue, bool *out);

/* UNSUPPORTED, naming `what`, where a kernel on the queue's device must not use the pointer: memory of the host that
 * the device cannot see, or of another device. The queue's device is the thread's. */
tartan_status tartan_cuda_check_pointer(const char *function, tartan_cuda_queue *queue, const char *what,
                                        const void *pointer);

/* Room for the time of one operation: allocated and freed in the order of the queue (safe in graph capture). */
tartan_status tartan_cuda_scratch(const char *function, tartan_cuda_queue *queue, int64_t bytes, void **out);
void tartan_cuda_scratch_free(tartan_cuda_queue *queue, void *pointer);

/* Index sets of a layout on the queue's device, made on first use and kept in the layout. The first use copies from
 * the host in the order of the queue and waits, so it cannot be captured in a graph (UNSUPPORTED); later uses do
 * nothing. `group` is at least 1. A layout whose blocks change has its own (layout.h): pointers
 * say how many entries there are, and `entries`, as the number of its blocks, is only a bound. */
tartan_status tartan_cuda_lists_get(const char *function, tartan_cuda_queue *queue,
                                    const tartan_layout *layout, bool by_columns, tartan_cuda_lists *out);
tartan_status tartan_cuda_unions_get(const char *function, tartan_cuda_queue *queue,
                                     const tartan_layout *layout, bool by_columns, int32_t group,
                                     tartan_cuda_unions *out);

/* The tiles of unions of that layout (of block rows; one whose blocks stay), which a kernel takes in always the same
 * form for a group; made and kept as they are. */
tartan_status tartan_cuda_tiles_get(const char *function, tartan_cuda_queue *queue,
                                    const tartan_layout *layout, const tartan_cuda_unions *unions,
                                    const tartan_cuda_tile_form *form, tartan_cuda_tiles *out);

/* What was counted of a layout, on first use; valid as long as the layout. */
tartan_status tartan_cuda_figures_get(const char *function, const tartan_layout *layout,
                                      const tartan_cuda_figures **out);

/* For kernels that know no gates: where there are gates, *out_values is the values of A with each block times its
 * gate, rounded to their dtype, and in `unions` blocks that a gate of 0 shuts become absent (-1), so that nothing of B
 * reaches their rows through them. Both are in scratch memory, *out_scratch, to be freed by the caller; NULL where
 * there are no gates. */
tartan_status tartan_cuda_gate_operands(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_spmm *p, tartan_cuda_unions *unions,
                                        const void **out_values, void **out_scratch);

/* The kernels. Each is given what its `refuses` let pass. */
typedef tartan_status (*tartan_cuda_spmm_launch)(const char *function, tartan_cuda_queue *queue,
                                                 const tartan_layout *layout, const tartan_cuda_spmm *p);
typedef tartan_status (*tartan_cuda_sddmm_launch)(const char *function, tartan_cuda_queue *queue,
                                                  const tartan_layout *layout, const tartan_cuda_sddmm *p);
tartan_status tartan_cuda_spmm_plain(const char *, tartan_cuda_queue *, const tartan_layout *,
                                     const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_simt(const char *, tartan_cuda_queue *, const tartan_layout *,
                                    const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_mma(const char *, tartan_cuda_queue *, const tartan_layout *,
                                   const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_wgmma(const char *, tartan_cuda_queue *, const tartan_layout *,
                                     const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_narrow(const char *, tartan_cuda_queue *, const tartan_layout *,
                                      const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_dense(const char *, tartan_cuda_queue *, const tartan_layout *,
                                     const tartan_cuda_spmm *);
tartan_status tartan_cuda_sddmm_plain(const char *, tartan_cuda_queue *, const tartan_layout *,
                                      const tartan_cuda_sddmm *);
tartan_status tartan_cuda_sddmm_mma(const char *, tartan_cuda_queue *, const tartan_layout *,
                                    const tartan_cuda_sddmm *);
tartan_status tartan_cuda_sddmm_wgmma(const char *, tartan_cuda_queue *, const tartan_layout *,
                                      const tartan_cuda_sddmm *);

/* Whole operations that need no choice of kernels; checked by lib/ops. */
tartan_status tartan_cuda_gate_gradient(tartan_cuda_queue *queue, const tartan_op_gate_gradient *op);
tartan_status tartan_cuda_growth_score(tartan_cuda_queue *queue, const tartan_op_growth_score *op);

/* Blocks in device memory, [blocks][block_rows * block_cols], inside in `order` (tartan_block_order). */
typedef struct tartan_cuda_blocks {
    void *values;
    int32_t dtype, order;
    const tartan_layout *layout;
} tartan_cuda_blocks;

/* Block i of `to` becomes block sources[i] of `from` (sources NULL: block i; -1: zeros), its rows and columns
 * exchanged if `transposed`. Converts, rounding once; the padding of `from` is not read, that of `to` becomes zero.
 * `sources` and `targets` are device memory. */
tartan_status tartan_cuda_blocks_gather(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_blocks *to, const tartan_cuda_blocks *from,
                                        const int64_t *sources, bool transposed);

/* Block targets[i] of `to` becomes block i of `from`, for each block i of `from`; -1: it goes nowhere. No target
 * may occur twice; the other blocks of `to` stay. */
tartan_status tartan_cuda_blocks_scatter(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_blocks *to, const tartan_cuda_blocks *from,
                                         const int64_t *targets);

/* The same blocks in another dtype or block order: a gather of all. */
tartan_status tartan_cuda_blocks_cast(const char *function, tartan_cuda_queue *queue,
                                      const tartan_cuda_blocks *to, const tartan_cuda_blocks *from);

/* The norm (tartan_norm) of every block, in f64, into out [blocks] in device memory; NaN where a block has one. */
tartan_status tartan_cuda_blocks_norms(const char *function, tartan_cuda_queue *queue,
                                       const tartan_cuda_blocks *from, int32_t norm, double *out);

#endif
