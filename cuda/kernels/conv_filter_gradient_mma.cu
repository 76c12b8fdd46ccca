/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter on the tensor cores (mma.sync, 16-bit factors), for blocks whose edges are multiples of 8. conv_jobs.h
 * says how the work is divided. CTAs add up their shares of the pixels, and a second kernel adds up the shares in a fixed
 * order, so that results do not depend on the run. */
#include "kernels.h"
#include "kernels/conv_around.cuh"
#include "kernels/conv_filter_gradient_mma.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_mma {
namespace {

/* Whether copies of 16 bytes can load the image: contiguous channels, the other strides multiples of 16 bytes. */
bool is_loadable(const tartan_cuda_image &x) {
    bool good = x.channel == 1 && (uintptr_t)x.data % 16 == 0 && x.entry % 8 == 0;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        const int64_t step = x.step[d] < 0 ? -x.step[d] : x.step[d];
        good = good && step % 8 == 0 && (double)step * (double)x.size[d] < 8.0 * INT32_MAX;
    }
    return good;
}

int64_t bytes_of(const tartan_cuda_image &x, int64_t entries) {
    return (2 * entries * x.size[0] * x.size[1] * x.size[2] * x.channels + 127) / 128 * 128;
}

/* Lists the tiles with active pixels at `scratch`. */
tartan_status list_active(const char *function, tartan_cuda_queue *queue, char *scratch, Problem *g) {
    auto *const list = (ActiveTile *)scratch;
    auto *const active = (uint4 *)(list + g->tiles);
    auto *const count = (int32_t *)(active + g->tiles);
    PASS(tartan_cuda_launch(function, queue, mark_tiles, tartan_cuda_grid((g->tiles + 7) / 8), dim3(256), *g,
                            active));
    PASS(tartan_cuda_launch(function, queue, list_tiles, dim3(1), dim3(1024), *g, active, list, count));
    g->list = list;
    g->count = count;
    return TARTAN_OK;
}

template <typename T, int HIGH>
tartan_status multiply(const char *function, tartan_cuda_queue *queue, const Problem &g) {
    const auto kernel = gradient<T, HIGH>;
    cudaError_t error = cudaFuncSetAttribute((const void *)kernel,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, g.form.shared);
    PASS(tartan_cuda_check(function, error, "setting the kernel's shared memory"));
    error = tartan_cuda_launch_early(queue, tartan_cuda_starts_early(queue, g.p.layout), kernel,
                                     dim3((unsigned)(g.jobs.count * g.splits)), dim3(kThreads),
                                     (size_t)g.form.shared, g);
    return tartan_cuda_check(function, error, "starting the kernel conv_filter_gradient_mma");
}

template <typename T>
tartan_status compute(const char *function, tartan_cuda_queue *queue, const Problem &g) {
    if (g.jobs.count > 0)
        PASS(g.form.high == 1 ? (multiply<T, 1>(function, queue, g)) : (multiply<T, 2>(function, queue, g)));
    const bool early = g.jobs.count > 0 && tartan_cuda_starts_early(queue, g.p.layout);
    const cudaError_t error = tartan_cuda_launch_early(
        queue, early, add_shares<T>, tartan_cuda_grid((g.weights + 255) / 256), dim3(256), (size_t)0, g);
    return tartan_cuda_check(function, error, "adding up the shares of a filter's gradient");
}

} // namespace
} // namespace conv_filter_gradient_mma
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_filter_gradient_mma(const char *function, tartan_cuda_queue *queue,
                                                   const void *problem) {
    using namespace tartan_cuda;
    using namespace tartan_cuda::conv_filter_gradient_mma;
    Problem g = {};
    g.p = *(const tartan_cuda_conv_filter_gradient *)problem;
    tartan_cuda_conv_filter_gradient &p = g.p;
    g.form = tartan_cuda_conv_job_form_of(&p);
    g.weights = p.layout->blocks * p.rows.edge * p.cols.edge;
    g.tiles = p.entries * p.out.size[0] * g.form.tiles_h * g.form.tiles_w;
    PASS(tartan_cuda_conv_jobs_get(function, queue, &p, &g.form, &g.jobs));
    PASS(tartan_cuda_index_get_rows(function, queue, p.layout, false, &g.rows));
    const bool listed = p.active.layout != nullptr && !p.active_in;
    const bool turns_in = p.active_in || !is_loadable(p.in), turns_out = !is_loadable(p.out);
    /* The tiles that a window meets. */
    const double share = listed ? (double)p.active.layout->blocks / ((double)p.active.layout->shape.heads *
                                                                     (double)p.active.layout->grid_rows *
                                                                     (double)p.active.layout->grid_cols)
                                : 1;
    g.splits = tartan_cuda_conv_job_splits(&g.form, g.jobs.count, (int64_t)(share * (double)g.tiles) + 1,
                                           g.weights, queue->chip.processors);
    const int64_t list_bytes =
        listed ? (g.tiles * (int64_t)(sizeof(ActiveTile) + sizeof(uint4)) + 4 + 127) / 128 * 128 : 0;
    const int64_t in_bytes = turns_in ? bytes_of(p.in, p.entries) : 0,
                  out_bytes = turns_out ? bytes_of(p.out, p.entries) : 0,
                  sum_bytes = (int64_t)sizeof(float) * g.splits * g.weights;
    void *map = nullptr, *scratch = nullptr;
    tartan_status status =
        windows_of(function, queue, p.active, p.active.layout != nullptr, &g.windows, &map);
    if (status == TARTAN_OK)
        status =
            tartan_cuda_scratch(function, queue, list_bytes + in_bytes + out_bytes + sum_bytes, &scratch);
    char *const at = (char *)scratch;
    if (status == TARTAN_OK && listed) status = list_active(function, queue, at, &g);
    const Windows all = {};
    if (status == TARTAN_OK && turns_in)
        status = turn_channels(function, queue, p.entries, p.dtype, p.active_in ? g.windows : all,
                               at + list_bytes, &p.in);
    if (status == TARTAN_OK && turns_out)
        status = turn_channels(function, queue, p.entries, p.dtype, all, at + list_bytes + in_bytes, &p.out);
    g.sums = (float *)(at + list_bytes + in_bytes + out_bytes);
    if (status == TARTAN_OK)
        status = p.dtype == TARTAN_F16 ? compute<__half>(function, queue, g)
                                       : compute<__nv_bfloat16>(function, queue, g);
    if (scratch != nullptr) tartan_cuda_scratch_free(queue, scratch);
    if (map != nullptr) tartan_cuda_scratch_free(queue, map);
    return status;
}
