/* SPDX-License-Identifier: Apache-2.0
 * The index sets of dynamic layouts. An index set exists once a kernel has asked for it: it is built from the row index
 * then, and from every mask that follows. Scores become a mask first. Its memory comes from the queue that asked first. */
#include "index_dynamic.h"

#include "device/launch.cuh"
#include "device_memory.h"
#include "index_scores.h"

namespace {

enum {
    LOG2_GROUPS = 6,            /* group indexes of 1, 2, .. 32 lines; the row index comes first */
    VARIANTS = LOG2_GROUPS + 1, /* of a direction */
    ALIGNED = 128,              /* lists start at multiples of so many bytes */
    SCATTER_THREADS = 256,
};

struct index_set {
    tartan_cuda_mask_index is; /* pointers NULL: not asked for yet */
    int32_t groups_per_head;
    int64_t room; /* entries */
    void *owner;
};

struct dynamic_index {
    int32_t device_id;
    tartan_cuda_mask frame; /* without bytes */
    int32_t capacity;
    int32_t *blocks; /* of the last mask */
    void *blocks_owner;
    pthread_mutex_t lock; /* of what follows */
    index_set set[2 * VARIANTS];
};

/* Divides memory into lists; with base NULL it only counts bytes. */
struct parts {
    char *base;
    int64_t bytes;
    int32_t *take(int64_t count) {
        int32_t *at = base == nullptr ? nullptr : (int32_t *)(base + bytes);
        bytes += (count * (int64_t)sizeof(int32_t) + ALIGNED - 1) / ALIGNED * ALIGNED;
        return at;
    }
};

/* Lays out one index set in `memory`; returns its bytes. */
int64_t divide(const dynamic_index *s, bool by_columns, int32_t group, void *memory, index_set *out) {
    const int64_t lines = by_columns ? s->frame.grid_cols : s->frame.grid_rows;
    const int64_t across = by_columns ? s->frame.grid_rows : s->frame.grid_cols;
    const int64_t each = group > 1 ? group : 1, per_head = (lines + each - 1) / each;
    const int64_t groups = s->frame.heads * per_head, all = groups * across;
    parts p = {(char *)memory, 0};
    *out = {};
    out->groups_per_head = (int32_t)per_head;
    out->room = all < s->capacity ? all : s->capacity;
    out->is.by_columns = by_columns;
    out->is.group = group;
    out->is.pointers = p.take(groups + 1);
    out->is.cols = p.take(out->room);
    if (by_columns || group > 0) out->is.ids = p.take(out->room * each);
    if (group > 0) out->is.order = p.take(groups);
    return p.bytes;
}

tartan_status make_room(const char *function, tartan_cuda_queue *queue, const dynamic_index *s,
                        bool by_columns, int32_t group, index_set *out) {
    void *memory = nullptr, *owner = nullptr;
    PASS(tartan_cuda_memory_allocate(function, queue, divide(s, by_columns, group, nullptr, out), &memory,
                                     &owner));
    (void)divide(s, by_columns, group, memory, out);
    out->owner = owner;
    return TARTAN_OK;
}

/* Builds all index sets that exist, as many at a time as possible. */
tartan_status make_all(const char *function, tartan_cuda_queue *queue, const dynamic_index *s,
                       const void *mask) {
    tartan_cuda_mask_index some[TARTAN_CUDA_MAX_INDEXES] = {s->set[0].is};
    tartan_cuda_mask bytes = s->frame;
    bytes.bytes = (const uint8_t *)mask;
    int32_t count = 1;
    bool made = false;
    for (int32_t i = 1; i < 2 * VARIANTS; i++) {
        if (s->set[i].is.pointers == nullptr) continue;
        some[count++] = s->set[i].is;
        if (count < TARTAN_CUDA_MAX_INDEXES) continue;
        PASS(tartan_cuda_index_from_mask(function, queue, &bytes, s->capacity, some, count, s->blocks));
        made = true;
        count = 1;
    }
    if (made && count == 1) return TARTAN_OK;
    return tartan_cuda_index_from_mask(function, queue, &bytes, s->capacity, some, count, s->blocks);
}

/* ---- The first use of an index set ---- */

/* Writes the mask of a row index, a warp for each row, to bytes that are 0. */
__global__ void __launch_bounds__(SCATTER_THREADS)
    scatter(tartan_cuda_mask_index rows, int64_t lines, int32_t grid_cols, uint8_t *mask) {
    const int64_t step = (int64_t)gridDim.x * (SCATTER_THREADS / 32);
    for (int64_t line = blockIdx.x * (int64_t)(SCATTER_THREADS / 32) + threadIdx.x / 32; line < lines;
         line += step)
        for (int32_t e = rows.pointers[line] + (int32_t)(threadIdx.x % 32); e < rows.pointers[line + 1];
             e += 32)
            mask[line * grid_cols + rows.cols[e]] = 1;
}

/* Builds an index set from the row index, through a mask in scratch memory. */
tartan_status make_one(const char *function, tartan_cuda_queue *queue, const dynamic_index *s,
                       const index_set *set) {
    const int64_t lines = (int64_t)s->frame.heads * s->frame.grid_rows,
                  positions = lines * s->frame.grid_cols;
    const int64_t groups = (lines - 1) / (SCATTER_THREADS / 32) + 1;
    void *scratch = nullptr;
    PASS(tartan_cuda_scratch(function, queue, ALIGNED + positions, &scratch));
    tartan_cuda_mask mask = s->frame; /* after the number of blocks, which nobody reads */
    uint8_t *bytes = (uint8_t *)scratch + ALIGNED;
    mask.bytes = bytes;
    tartan_status status =
        tartan_cuda_check(function, cudaMemsetAsync(scratch, 0, (size_t)(ALIGNED + positions), queue->stream),
                          "clearing a mask");
    if (status == TARTAN_OK && positions > 0)
        status = tartan_cuda_launch(function, queue, scatter, tartan_cuda_grid(groups), dim3(SCATTER_THREADS),
                                    s->set[0].is, lines, s->frame.grid_cols, bytes);
    const tartan_cuda_mask_index both[] = {s->set[0].is, set->is};
    if (status == TARTAN_OK)
        status =
            tartan_cuda_index_from_mask(function, queue, &mask, s->capacity, both, 2, (int32_t *)scratch);
    tartan_cuda_scratch_free(queue, scratch);
    return status;
}

/* With the lock held. */
tartan_status want(const char *function, tartan_cuda_queue *queue, dynamic_index *s, bool by_columns,
                   int32_t group, index_set *set) {
    bool capturing;
    PASS(tartan_cuda_capturing(function, queue, &capturing));
    if (capturing)
        return tartan_cuda_host->fail(TARTAN_ERR_UNSUPPORTED, function,
                                      "the first use of a layout by an operation builds index sets, which "
                                      "cannot be captured in a graph: run the operation once before");
    index_set made;
    PASS(make_room(function, queue, s, by_columns, group, &made));
    tartan_status status = make_one(function, queue, s, &made);
    if (status == TARTAN_OK) /* other queues do not wait for this one */
        status =
            tartan_cuda_check(function, cudaStreamSynchronize(queue->stream), "waiting for a new index set");
    if (status != TARTAN_OK) {
        tartan_cuda_memory_release(made.owner, queue);
        return status;
    }
    *set = made;
    return TARTAN_OK;
}

tartan_status get(const char *function, tartan_cuda_queue *queue, dynamic_index *s, bool by_columns,
                  int32_t group, index_set *out) {
    int32_t variant = 0;
    while (variant < LOG2_GROUPS && group != 0 && group != 1 << variant) variant++;
    if (group != 0 && variant == LOG2_GROUPS)
        return tartan_cuda_host->fail(TARTAN_ERR_INTERNAL, function,
                                      "groups of %d lines, expected a power of two up to %d", group,
                                      TARTAN_CUDA_MAX_DEVICE_GROUP);
    index_set *set = &s->set[VARIANTS * by_columns + (group == 0 ? 0 : variant + 1)];
    tartan_cuda_current current(queue->device_id);
    tartan_status status = TARTAN_OK;
    pthread_mutex_lock(&s->lock);
    if (set->is.pointers == nullptr) status = want(function, queue, s, by_columns, group, set);
    *out = *set;
    pthread_mutex_unlock(&s->lock);
    return status;
}

} // namespace

/* ---- The backend table's functions ---- */

tartan_status tartan_cuda_index_create(const char *function, void *device, const tartan_layout *layout,
                                       void **out_index) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    const int64_t heads = layout->shape.heads, rows = heads * layout->grid_rows,
                  cols = heads * layout->grid_cols;
    if (rows > INT32_MAX || cols > INT32_MAX || rows * layout->grid_cols > INT32_MAX)
        return tartan_cuda_host->fail(
            TARTAN_ERR_UNSUPPORTED, function,
            "the grid has %lld heads of %lld x %lld positions, expected fewer than 2^31 in all",
            (long long)heads, (long long)layout->grid_rows, (long long)layout->grid_cols);
    tartan_cuda_current current(queue->device_id);
    dynamic_index *s = nullptr;
    PASS(tartan_cuda_host->allocate(&s, 1, sizeof *s));
    *s = {};
    s->device_id = queue->device_id;
    s->frame = {nullptr, (int32_t)heads, (int32_t)layout->grid_rows, (int32_t)layout->grid_cols};
    s->capacity = (int32_t)layout->blocks;
    pthread_mutex_init(&s->lock, nullptr); /* cannot fail for a default mutex */
    void *blocks = nullptr;
    tartan_status status =
        tartan_cuda_memory_allocate(function, queue, sizeof *s->blocks, &blocks, &s->blocks_owner);
    s->blocks = (int32_t *)blocks;
    if (status == TARTAN_OK) status = make_room(function, queue, s, false, 0, &s->set[0]);
    if (status != TARTAN_OK) {
        tartan_cuda_index_release(s, queue);
        return status;
    }
    *out_index = s;
    return TARTAN_OK;
}

static int64_t positions_of(const dynamic_index *s) {
    return (int64_t)s->frame.heads * s->frame.grid_rows * s->frame.grid_cols;
}

static tartan_status update(const char *function, tartan_cuda_queue *queue, dynamic_index *s,
                            const void *mask) {
    pthread_mutex_lock(&s->lock);
    const tartan_status status = make_all(function, queue, s, mask);
    pthread_mutex_unlock(&s->lock);
    return status;
}

tartan_status tartan_cuda_index_update(const char *function, void *device, void *index, const void *mask) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    dynamic_index *s = (dynamic_index *)index;
    tartan_cuda_current current(queue->device_id);
    if (positions_of(s) > 0) PASS(tartan_cuda_check_pointer(function, queue, "mask", mask));
    return update(function, queue, s, mask);
}

tartan_status tartan_cuda_index_from_scores(const char *function, void *device, void *index,
                                            const void *scores, int32_t dtype, int64_t k) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    dynamic_index *s = (dynamic_index *)index;
    tartan_cuda_current current(queue->device_id);
    const int64_t positions = positions_of(s);
    if (positions == 0) return update(function, queue, s, nullptr);
    PASS(tartan_cuda_check_pointer(function, queue, "scores", scores));
    void *mask = nullptr;
    PASS(tartan_cuda_scratch(function, queue, positions, &mask));
    tartan_status status =
        tartan_cuda_choose_largest(function, queue, scores, dtype, positions / s->frame.grid_cols,
                                   s->frame.grid_cols, k, (uint8_t *)mask);
    if (status == TARTAN_OK) status = update(function, queue, s, mask);
    tartan_cuda_scratch_free(queue, mask);
    return status;
}

tartan_status tartan_cuda_index_fetch(const char *function, void *device, void *index, int64_t *out_blocks,
                                      int64_t *out_row_pointers, int32_t *out_block_cols) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    PASS(tartan_cuda_check_waiting(function, queue));
    const dynamic_index *s = (const dynamic_index *)index;
    const tartan_cuda_mask_index *rows = &s->set[0].is;
    const int64_t count = (int64_t)s->frame.heads * s->frame.grid_rows + 1;
    int32_t *narrow = nullptr, blocks = 0;
    PASS(tartan_cuda_host->allocate(&narrow, count, sizeof *narrow));
    cudaError_t error =
        cudaMemcpyAsync(&blocks, s->blocks, sizeof blocks, cudaMemcpyDeviceToHost, queue->stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(narrow, rows->pointers, (size_t)count * sizeof *narrow,
                                cudaMemcpyDeviceToHost, queue->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(queue->stream);
    for (int64_t i = 0; error == cudaSuccess && i < count; i++) out_row_pointers[i] = narrow[i];
    tartan_cuda_host->free(narrow);
    PASS(tartan_cuda_check(function, error, "copying index sets from the device"));
    *out_blocks = blocks;
    const int64_t stored = out_row_pointers[count - 1];
    if (stored == 0) return TARTAN_OK;
    error = cudaMemcpyAsync(out_block_cols, rows->cols, (size_t)stored * sizeof *out_block_cols,
                            cudaMemcpyDeviceToHost, queue->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(queue->stream);
    return tartan_cuda_check(function, error, "copying index sets from the device");
}

void tartan_cuda_index_release(void *index, void *device) {
    dynamic_index *s = (dynamic_index *)index;
    for (index_set &set : s->set) tartan_cuda_memory_release(set.owner, device);
    tartan_cuda_memory_release(s->blocks_owner, device);
    pthread_mutex_destroy(&s->lock);
    tartan_cuda_host->free(s);
}

/* ---- For kernels ---- */

tartan_status tartan_cuda_dynamic_index_rows(const char *function, tartan_cuda_queue *queue, void *index,
                                             bool by_columns, tartan_cuda_row_index *out) {
    index_set set;
    PASS(get(function, queue, (dynamic_index *)index, by_columns, 0, &set));
    *out = {set.is.pointers, set.is.cols, set.is.ids};
    return TARTAN_OK;
}

tartan_status tartan_cuda_dynamic_index_groups(const char *function, tartan_cuda_queue *queue, void *index,
                                               bool by_columns, int32_t group, tartan_cuda_group_index *out) {
    index_set set;
    PASS(get(function, queue, (dynamic_index *)index, by_columns, group, &set));
    *out = {group, set.groups_per_head, set.room, 0, set.is.pointers, set.is.cols, set.is.ids, set.is.order};
    return TARTAN_OK;
}
