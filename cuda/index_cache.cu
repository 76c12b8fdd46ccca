/* SPDX-License-Identifier: Apache-2.0 */
#include "index_cache.h"

#include "index_dynamic.h"

namespace {

/* These addresses are the makers of the plans. Variant: 2 * group + by_columns, group 0 for a row index; of tiles see
 * tartan_cuda_index_get_tiles; of sub-blocks see tartan_cuda_index_get_sub_groups. */
const char maker = 0, sub_maker = 0, tiles_maker = 0, mask_maker = 0;

/* The plan that a layout or mask keeps. Its memory belongs to no queue, since layouts outlive contexts. */
struct index_set {
    int32_t device_id;
    void *memory;
    tartan_cuda_row_index rows;
    tartan_cuda_group_index groups;
    tartan_cuda_tile_index tiles;
    tartan_cuda_block_mask mask;
    int64_t *costs; /* of the tiles, in host memory; the facts of other tables */
};

struct request {
    const char *function;
    tartan_cuda_queue *queue;
    bool by_columns;
    int32_t group;
    const tartan_cuda_group_index *groups; /* cut these into tiles of that form */
    const tartan_cuda_tile_form *form;
    const tartan_cuda_sub_blocks *sub; /* or NULL: whole blocks */
    const tartan_block_mask *mask;     /* copy this */
    tartan_cuda_making *make;          /* other tables */
    const void *user;
};

void release(void *plan) {
    index_set *set = (index_set *)plan;
    tartan_cuda_current current(set->device_id);
    tartan_cuda_relaxed relaxed;
    if (cudaFree(set->memory) != cudaSuccess)
        (void)cudaGetLastError(); /* waits for kernels that still read it */
    tartan_cuda_host->free(set->costs);
    tartan_cuda_host->free(set);
}

/* Copies `size` values and waits. If memory is short, trims the pool and tries again. */
tartan_status upload(const request *r, const int32_t *values, int64_t size, index_set *set) {
    const size_t bytes = (size_t)size * sizeof *values;
    tartan_cuda_relaxed relaxed;
    cudaError_t error = cudaMalloc(&set->memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaStreamSynchronize(r->queue->stream);
        (void)cudaMemPoolTrimTo(r->queue->pool, 0);
        error = cudaMalloc(&set->memory, bytes);
    }
    PASS(tartan_cuda_check(r->function, error, "allocating index sets"));
    error = cudaMemcpyAsync(set->memory, values, bytes, cudaMemcpyHostToDevice, r->queue->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(r->queue->stream);
    if (error == cudaSuccess) return TARTAN_OK;
    (void)cudaFree(set->memory);
    return tartan_cuda_check(r->function, error, "copying index sets to the device");
}

tartan_status make_rows(const tartan_layout *layout, const request *r, index_set *set) {
    tartan_cuda_host_rows made = {};
    PASS(tartan_cuda_index_rows(tartan_cuda_host, layout, r->by_columns, &made));
    const tartan_status status = upload(r, made.values, made.size, set);
    const int32_t *at = (const int32_t *)set->memory;
    if (status == TARTAN_OK)
        set->rows = {at + made.pointers, at + made.cols, made.ids < 0 ? nullptr : at + made.ids};
    tartan_cuda_host->free(made.values);
    return status;
}

tartan_status make_groups(const tartan_layout *layout, const request *r, index_set *set) {
    tartan_cuda_host_groups made = {};
    if (r->sub != nullptr)
        PASS(tartan_cuda_index_sub_groups(tartan_cuda_host, layout, r->by_columns, r->sub, r->group, &made));
    else
        PASS(tartan_cuda_index_groups(tartan_cuda_host, layout, r->by_columns, r->group, &made));
    const tartan_status status = upload(r, made.values, made.size, set);
    const int32_t *at = (const int32_t *)set->memory;
    if (status == TARTAN_OK)
        set->groups = {made.group,         made.groups_per_head, made.entries,  made.longest,
                       at + made.pointers, at + made.cols,       at + made.ids, at + made.order};
    tartan_cuda_host->free(made.values);
    return status;
}

/* The groups are on the device, so what is needed of them is fetched from there. */
tartan_status make_tiles(const tartan_layout *layout, const request *r, index_set *set) {
    tartan_cuda_group_index u = *r->groups;
    const int64_t heads = layout->shape.heads, groups = heads * u.groups_per_head;
    int32_t *lists = nullptr;
    PASS(tartan_cuda_host->allocate(&lists, groups + 1 + u.entries, sizeof *lists));
    cudaStream_t stream = r->queue->stream;
    cudaError_t error = cudaMemcpyAsync(lists, u.pointers, (size_t)(groups + 1) * sizeof *lists,
                                        cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(lists + groups + 1, u.cols, (size_t)u.entries * sizeof *lists,
                                cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    u.pointers = lists;
    u.cols = lists + groups + 1;
    tartan_cuda_host_tiles made = {};
    tartan_status status = tartan_cuda_check(r->function, error, "copying index sets from the device");
    if (status == TARTAN_OK)
        status = tartan_cuda_index_tiles(tartan_cuda_host, &u, heads, layout->grid_cols, r->form, &made);
    tartan_cuda_host->free(lists);
    if (status != TARTAN_OK) return status;
    status = upload(r, made.values, 4 * made.count, set);
    tartan_cuda_host->free(made.values);
    if (status != TARTAN_OK) {
        tartan_cuda_host->free(made.costs);
        return status;
    }
    set->costs = made.costs;
    set->tiles = {made.count, made.costs, (const int32_t *)set->memory};
    return TARTAN_OK;
}

tartan_status make_mask(const request *r, index_set *set) {
    tartan_cuda_host_block_mask made = {};
    PASS(tartan_cuda_index_block_mask(tartan_cuda_host, r->mask, r->by_columns, &made));
    const tartan_status status = upload(r, made.values, made.size, set);
    const int32_t *at = (const int32_t *)set->memory;
    if (status == TARTAN_OK) set->mask = {at + made.words_of, (const uint32_t *)(at + made.bits)};
    tartan_cuda_host->free(made.values);
    return status;
}

tartan_status make_tables(const tartan_layout *layout, const request *r, index_set *set) {
    tartan_cuda_made made = {};
    PASS(r->make(tartan_cuda_host, layout, r->user, &made));
    const tartan_status status = upload(r, made.values, made.size, set);
    tartan_cuda_host->free(made.values);
    if (status == TARTAN_OK)
        set->costs = made.facts;
    else
        tartan_cuda_host->free(made.facts);
    return status;
}

tartan_status make(const tartan_layout *layout, void *user, void **out) {
    const request *r = (const request *)user;
    tartan_cuda_current current(r->queue->device_id);
    bool capturing;
    PASS(tartan_cuda_capturing(r->function, r->queue, &capturing));
    if (capturing)
        return tartan_cuda_host->fail(TARTAN_ERR_UNSUPPORTED, r->function,
                                      "the first use of a %s to the device, which cannot be captured in a "
                                      "graph: run the operation once before",
                                      r->mask != nullptr ? "block mask copies its bits"
                                                         : "layout copies its index sets");
    index_set *set = nullptr;
    PASS(tartan_cuda_host->allocate(&set, 1, sizeof *set));
    *set = {};
    set->device_id = r->queue->device_id;
    const tartan_status status = r->make != nullptr     ? make_tables(layout, r, set)
                                 : r->mask != nullptr   ? make_mask(r, set)
                                 : r->groups != nullptr ? make_tiles(layout, r, set)
                                 : r->group == 0        ? make_rows(layout, r, set)
                                                        : make_groups(layout, r, set);
    if (status != TARTAN_OK) {
        tartan_cuda_host->free(set);
        return status;
    }
    *out = set;
    return TARTAN_OK;
}

tartan_status get(const char *function, tartan_cuda_queue *queue, const tartan_layout *layout,
                  bool by_columns, int32_t group, const index_set **out) {
    request r = {function, queue, by_columns, group, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
    const tartan_i_plan_key key = {&maker, queue->device_id, 2 * group + by_columns};
    void *plan = nullptr;
    PASS(tartan_cuda_host->plan(layout, &key, make, &r, release, &plan));
    *out = (const index_set *)plan;
    return TARTAN_OK;
}

tartan_status make_bounds(const tartan_host *host, const tartan_layout *layout, const void *by_columns,
                          tartan_cuda_made *out) {
    tartan_cuda_host_bounds made = {};
    PASS(tartan_cuda_index_bounds(host, layout, *(const bool *)by_columns, &made));
    *out = {made.values, made.size, nullptr};
    return TARTAN_OK;
}

} // namespace

tartan_status tartan_cuda_index_get_rows(const char *function, tartan_cuda_queue *queue,
                                         const tartan_layout *layout, bool by_columns,
                                         tartan_cuda_row_index *out) {
    const index_set *set = nullptr;
    if (tartan_i_is_dynamic(layout))
        return tartan_cuda_dynamic_index_rows(function, queue, layout->index, by_columns, out);
    PASS(get(function, queue, layout, by_columns, 0, &set));
    *out = set->rows;
    return TARTAN_OK;
}

tartan_status tartan_cuda_index_get_bounds(const char *function, tartan_cuda_queue *queue,
                                           const tartan_layout *layout, bool by_columns,
                                           tartan_cuda_bounds *out) {
    *out = {};
    if (!tartan_i_is_variable(layout)) return TARTAN_OK;
    const int32_t *values = nullptr;
    PASS(tartan_cuda_index_get_tables(function, queue, layout, by_columns, make_bounds, &by_columns, &values,
                                      nullptr));
    const int64_t grid = by_columns ? layout->grid_cols : layout->grid_rows,
                  across = by_columns ? layout->grid_rows : layout->grid_cols;
    *out = {values, values + grid + 1, values + grid + 1 + across + 1};
    return TARTAN_OK;
}

tartan_status tartan_cuda_index_get_groups(const char *function, tartan_cuda_queue *queue,
                                           const tartan_layout *layout, bool by_columns, int32_t group,
                                           tartan_cuda_group_index *out) {
    const index_set *set = nullptr;
    if (tartan_i_is_dynamic(layout))
        return tartan_cuda_dynamic_index_groups(function, queue, layout->index, by_columns, group, out);
    PASS(get(function, queue, layout, by_columns, group, &set));
    *out = set->groups;
    return TARTAN_OK;
}

tartan_status tartan_cuda_index_get_sub_groups(const char *function, tartan_cuda_queue *queue,
                                               const tartan_layout *layout, bool by_columns,
                                               const tartan_cuda_sub_blocks *sub, int32_t group,
                                               tartan_cuda_group_index *out) {
    request r = {function, queue, by_columns, group, nullptr, nullptr, sub, nullptr, nullptr, nullptr};
    /* The ids depend on the order inside blocks. */
    const int32_t kind = 2 * (int32_t)sub->kind + (sub->col_stride == 1);
    const int32_t variant = ((group * 256 + sub->edge) * 8 + kind) * 2 + by_columns;
    const tartan_i_plan_key key = {&sub_maker, queue->device_id, variant};
    void *plan = nullptr;
    PASS(tartan_cuda_host->plan(layout, &key, make, &r, release, &plan));
    *out = ((const index_set *)plan)->groups;
    return TARTAN_OK;
}

tartan_status tartan_cuda_index_get_tiles(const char *function, tartan_cuda_queue *queue,
                                          const tartan_layout *layout, const tartan_cuda_group_index *groups,
                                          const tartan_cuda_tile_form *form, tartan_cuda_tile_index *out) {
    request r = {function, queue, false, groups->group, groups, form, nullptr, nullptr, nullptr, nullptr};
    const tartan_i_plan_key key = {&tiles_maker, queue->device_id,
                                   (form->each * 128 + form->entries) * 32 + groups->group};
    void *plan = nullptr;
    PASS(tartan_cuda_host->plan(layout, &key, make, &r, release, &plan));
    *out = ((const index_set *)plan)->tiles;
    return TARTAN_OK;
}

tartan_status tartan_cuda_index_get_block_mask(const char *function, tartan_cuda_queue *queue,
                                               const tartan_block_mask *block_mask, bool transposed,
                                               tartan_cuda_block_mask *out) {
    request r = {function, queue, transposed, 0, nullptr, nullptr, nullptr, block_mask, nullptr, nullptr};
    const tartan_i_plan_key key = {&mask_maker, queue->device_id, transposed};
    void *plan = nullptr;
    PASS(tartan_cuda_host->mask_plan(block_mask, &key, make, &r, release, &plan));
    *out = ((const index_set *)plan)->mask;
    return TARTAN_OK;
}

tartan_status tartan_cuda_index_get_tables(const char *function, tartan_cuda_queue *queue,
                                           const tartan_layout *layout, int32_t variant,
                                           tartan_cuda_making *make_them, const void *user,
                                           const int32_t **out_values, const int64_t **out_facts) {
    request r = {function, queue, false, 0, nullptr, nullptr, nullptr, nullptr, make_them, user};
    const tartan_i_plan_key key = {(const void *)make_them, queue->device_id, variant};
    void *plan = nullptr;
    PASS(tartan_cuda_host->plan(layout, &key, make, &r, release, &plan));
    *out_values = (const int32_t *)((const index_set *)plan)->memory;
    if (out_facts != nullptr) *out_facts = ((const index_set *)plan)->costs;
    return TARTAN_OK;
}
