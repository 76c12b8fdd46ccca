/* SPDX-License-Identifier: Apache-2.0
 * Queues: one CUDA stream each, with what its kernels share. */
#ifndef TARTAN_CUDA_QUEUE_H
#define TARTAN_CUDA_QUEUE_H

#include <cuda_runtime.h>
#include <pthread.h>

#include "device.h"
#include "order.h"

typedef struct tartan_cuda_memory tartan_cuda_memory;
typedef struct tartan_cuda_blas tartan_cuda_blas; /* blas.h */

enum { TARTAN_CUDA_READY = 32 };

/* What a context has on a device: the caller's stream, or one of its own. */
struct tartan_cuda_queue {
    int32_t device_id;
    cudaStream_t stream;
    bool owns_stream;
    tartan_cuda_chip chip;
    cudaMemPool_t pool; /* the device's default pool */
    tartan_cuda_sides sides;
    int32_t *counters;      /* see below */
    int32_t turns[2];       /* [captured]: 0 or 1, the set of per-side counters that the next kernel takes */
    tartan_cuda_blas *blas; /* or NULL */
    pthread_mutex_t lock;   /* of what follows */
    tartan_cuda_memory *waiting; /* freed during a graph capture; given back when it ends */
    void *scratch;               /* small scratch memory, kept for the next operation, or NULL */
    bool scratch_in_use;
    const void *ready[TARTAN_CUDA_READY]; /* kernels that may use their shared memory already */
    int32_t ready_count;
};

/* Tile counters of a queue, in device memory, 0 between kernels:
 *   - per L2 side: tiles handed out on each side, and CTAs that have finished. Double-buffered, because consecutive
 *     kernels overlap. Captured kernels have a pair of their own, since a graph does not run in between the kernels
 *     before and after its capture; a graph as a whole waits for what precedes it.
 *   - for kernels that do not overlap: tiles handed out, and CTAs that have finished.
 *   - flags: for each warp of one CTA per SM, whether it has written its partial sums. */
enum {
    TARTAN_CUDA_SIDED_SETS = 4,
    TARTAN_CUDA_SIDED_COUNTERS = 3,
    TARTAN_CUDA_COUNTERS = 2,
    TARTAN_CUDA_FLAGS = 8
};

/* A queue on `stream`, or on a stream of its own (NULL). Errors: DEVICE (compute capability below 8.0, a stream of
 * another device, no stream), MEMORY. */
tartan_status tartan_cuda_queue_open(const char *function, int32_t device_id, void *stream,
                                     tartan_cuda_queue **out);
/* Waits for its work and frees the queue. */
void tartan_cuda_queue_close(tartan_cuda_queue *queue);

/* Lets a kernel use that much dynamic shared memory, always the same amount for one kernel; the runtime is asked once. */
tartan_status tartan_cuda_allow_shared(const char *function, tartan_cuda_queue *queue, const void *kernel,
                                       size_t bytes);

/* Whether work is being captured in a graph instead of being run. */
tartan_status tartan_cuda_capturing(const char *function, tartan_cuda_queue *queue, bool *out);
/* UNSUPPORTED if so, since nothing can wait for the stream then. */
tartan_status tartan_cuda_check_waiting(const char *function, tartan_cuda_queue *queue);
/* The same as capturing; also true where the stream's state cannot be read. Nothing may be freed in its order then. */
bool tartan_cuda_is_capturing(const tartan_cuda_queue *queue);

/* Which L2 side each SM of the thread's device is on, measured once per process. May wait for an SM that is busy, but
 * for no stream. One side where it is not known and on other chips than Hopper. Errors: DEVICE, MEMORY. */
tartan_status tartan_cuda_find_sides(const char *function, int32_t device_id, const tartan_cuda_chip *chip,
                                     tartan_cuda_sides *out);
/* The measurement itself, on a Hopper chip; *out is written on success only. Errors: DEVICE, MEMORY. */
tartan_status tartan_cuda_measure_sides(const char *function, const tartan_cuda_chip *chip,
                                        tartan_cuda_sides *out);

/* Turns an error of the runtime into a status with its text: MEMORY where memory is short, else DEVICE; an error that
 * has ended the CUDA context says that the process must be restarted. Clears the runtime's last error. */
tartan_status tartan_cuda_check(const char *function, cudaError_t error, const char *what);

/* Enters a device for the lifetime of the object. */
class tartan_cuda_current {
  public:
    explicit tartan_cuda_current(int32_t device_id) { tartan_cuda_enter(device_id, &entered_); }
    ~tartan_cuda_current() { tartan_cuda_leave(&entered_); }
    tartan_cuda_current(const tartan_cuda_current &) = delete;
    tartan_cuda_current &operator=(const tartan_cuda_current &) = delete;

  private:
    tartan_cuda_entered entered_;
};

/* Lets the thread allocate and free memory while a graph is being captured, by it or another thread; the capture would
 * end otherwise. */
class tartan_cuda_relaxed {
  public:
    tartan_cuda_relaxed();
    ~tartan_cuda_relaxed();
    tartan_cuda_relaxed(const tartan_cuda_relaxed &) = delete;
    tartan_cuda_relaxed &operator=(const tartan_cuda_relaxed &) = delete;

  private:
    cudaStreamCaptureMode mode_;
};

#endif
