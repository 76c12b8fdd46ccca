/* SPDX-License-Identifier: Apache-2.0
 * Convolution on Hopper's tensor cores, as products without im2col, in tiles of 64 output channels x 256 pixels (128 for factors of f32
 * in two parts, whose sums take twice the registers). A CTA has
 * two warpgroups that take tiles in turns: one multiplies while the other stores its results; a third one loads for both. The
 * pixels of a tile are loaded once for all taps, as boxes with a halo: 8 neighbouring pixels of a row are what a matrix
 * descriptor calls 8 rows, and a tap is another start address in the same box (also where it is swizzled, since the swizzle
 * depends on addresses). conv_steps.h has the order of work.
 *
 * The 64 channels belong to all block rows in them: a block that one of them lacks is packed as zeros. So what limits the
 * kernel is the share of stored blocks in the merged list, beside the tensor cores themselves and, for short lists, the
 * stores. docs/lab/convolution_gpu.md has the figures. */
#include "kernels/conv_wgmma.cuh"

#include "device/tensor_map.h"
#include "kernels.h"
#include "kernels/conv_around.cuh"

namespace tartan_cuda {

namespace {

template <Factor kFactor, int kA> ConvKernel kernel_of(const tartan_cuda_conv_form &f) {
    return f.units == 4   ? conv<kFactor, 4, 8, kA, 1>
           : f.units == 2 ? conv<kFactor, 2, 16, kA, 1>
           : f.rows == 28 ? conv<kFactor, 1, 28, kA, 1>
                          : conv<kFactor, 1, 32, kA, 1>;
}

ConvKernel kernel_of(int32_t dtype, bool slots_first, const tartan_cuda_conv_form &f) {
    if (dtype == TARTAN_F32) return (ConvKernel)conv_f32_kernel(&f);
    if (dtype == TARTAN_F16) return slots_first ? kernel_of<Factor::f16, 1>(f) : kernel_of<Factor::f16, 0>(f);
    return slots_first ? kernel_of<Factor::bf16, 1>(f) : kernel_of<Factor::bf16, 0>(f);
}

/* Pixels as [image][d][h][w][channel]. A box has the channels in `span` bytes, and every `step`-th row and column. The
 * stride of a dimension of length 1 may be any. */
struct Box {
    int32_t span, rows, cols, row_step, col_step;
};
tartan_status map_pixels(const char *function, const tartan_cuda_image &x, int32_t dtype, int64_t entries,
                         const Box &box, CUtensorMap *out) {
    const auto stride = [](int64_t length, int64_t value) { return length > 1 ? value : 8; };
    const Tensor t = {x.data,
                      dtype,
                      5,
                      {x.channels, x.size[2], x.size[1], x.size[0], entries},
                      {1, stride(x.size[2], x.step[2]), stride(x.size[1], x.step[1]),
                       stride(x.size[0], x.step[0]), stride(entries, x.entry)},
                      {(uint32_t)(box.span / tartan_cuda_bytes_of(dtype)),
                       (uint32_t)(box.cols * box.col_step), (uint32_t)(box.rows * box.row_step), 1, 1},
                      box.span,
                      {1, (uint32_t)box.col_step, (uint32_t)box.row_step, 1, 1}};
    return tensor_map_make(function, &t, out);
}

/* The filter's values as [parts of a line][line][slots in memory order]. */
tartan_status map_values(const char *function, const tartan_cuda_conv *p, const tartan_cuda_conv_form &f,
                         CUtensorMap *out) {
    const tartan_cuda_slots &from = p->from_slots, &to = p->to_slots;
    const int64_t width = from.stride == 1 ? from.edge : to.edge,
                  lines = from.stride == 1 ? to.edge : from.edge;
    const Tensor t = {p->values,
                      p->dtype,
                      3,
                      {f.box_width, p->layout->blocks * lines, width / f.box_width},
                      {1, width, f.box_width},
                      {(uint32_t)f.box_width, (uint32_t)f.box_lines, 1},
                      f.element * f.box_width,
                      {}};
    return tensor_map_make(function, &t, out);
}

/* Whether TMA can load the image: contiguous channels, the other strides multiples of 16 bytes and below 2^40. */
bool is_boxed(const tartan_cuda_image &x, int64_t entries) {
    const int64_t bytes = tartan_cuda_bytes_of(x.dtype), unit = 16 / bytes, most = ((int64_t)1 << 39) / bytes;
    if (x.channel != 1 || (uintptr_t)x.data % 16 != 0) return false;
    if (entries > 1 && (x.entry % unit != 0 || x.entry <= 0 || x.entry >= most)) return false;
    for (int d = 0; d < TARTAN_I_DIMS; d++)
        if (x.size[d] > 1 && (x.step[d] % unit != 0 || x.step[d] <= 0 || x.step[d] >= most)) return false;
    return true;
}

/* Whether 16 bytes of channels lie together in y, at a multiple of 16 bytes. */
bool is_wide(const tartan_cuda_image &y, int64_t entries) {
    const int64_t unit = 16 / tartan_cuda_bytes_of(y.dtype);
    if (y.channels % 8 != 0 || y.channel != 1 || (uintptr_t)y.data % 16 != 0 ||
        (entries > 1 && y.entry % unit != 0))
        return false;
    for (int d = 0; d < TARTAN_I_DIMS; d++)
        if (y.size[d] > 1 && y.step[d] % unit != 0) return false;
    return true;
}

/* Whether the kernel itself can write the results. */
bool writes_directly(const tartan_cuda_conv *p, const tartan_cuda_conv_form &f) {
    if (p->add || p->edges != nullptr || f.splits > 1) return false;
    return p->to.dtype == TARTAN_F32 || is_wide(p->to, p->entries);
}

/* Whether the kernel writes results of 16 bits whose channels are contiguous, which a copy brings to planes. */
bool writes_planes(const tartan_cuda_conv *p) {
    const bool restricted = p->active.layout != nullptr && !p->active_from;
    return !p->add && p->edges == nullptr && !restricted && p->to.dtype != TARTAN_F32 &&
           p->to.channels % 8 == 0 && has_planes(p->to);
}

void describe_results(const tartan_cuda_conv *p, float *sums, ConvProblem *g) {
    const tartan_cuda_image &y = p->to;
    g->channels = (int32_t)y.channels;
    g->as_they_are = true;
    g->boxed = g->form.boxed && sums == nullptr && y.dtype != TARTAN_F32 && is_boxed(y, p->entries);
    if (sums != nullptr) {
        g->to = (char *)sums;
        g->to_f32 = true;
        g->to_wide = y.channels % 8 == 0;
        g->to_channel = sizeof(float);
        g->to_phase[2] = g->to_channel * y.channels;
        g->to_phase[1] = g->to_phase[2] * y.size[2];
        g->to_phase[0] = g->to_phase[1] * y.size[1];
        g->to_image = g->to_phase[0] * y.size[0];
        g->to_split = g->to_image * p->entries;
    } else {
        const int64_t bytes = tartan_cuda_bytes_of(y.dtype);
        g->to = (char *)y.data;
        g->to_f32 = y.dtype == TARTAN_F32;
        g->to_wide = g->to_f32 && is_wide(y, p->entries);
        g->to_image = y.entry * bytes;
        for (int d = 0; d < TARTAN_I_DIMS; d++) g->to_phase[d] = y.step[d] * bytes;
        g->to_channel = y.channel * bytes;
    }
    for (int d = 0; d < TARTAN_I_DIMS; d++) g->to_step[d] = g->to_phase[d] * g->spread[d];
    if (sums != nullptr) return;
    g->gain = (const float *)p->gain.data, g->gain_channel = p->gain.channel;
    g->bias = (const float *)p->bias.data, g->bias_channel = p->bias.channel;
    g->relu = p->relu, g->bias_first = p->bias_first;
    g->as_they_are = g->gain == nullptr && g->bias == nullptr && !g->relu;
}

/* Whether the call numbers the windows, as it does for a dynamic layout. */
bool numbers_windows(const tartan_cuda_conv *p) {
    return p->active.layout != nullptr && !p->active_from && p->active.dynamic;
}

void describe_work(const tartan_cuda_conv *p, ConvProblem *g) {
    const tartan_cuda_conv_form &f = g->form;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        g->spread[d] = (int32_t)tartan_cuda_conv_spread(p, d);
        g->step[d] = p->adjoint ? 1 : (int32_t)p->taps.stride[d];
        g->size[d] = (int32_t)p->to.size[d];
    }
    g->groups = (int32_t)((p->to_slots.grid * p->to_slots.edge + TARTAN_CUDA_CONV_GROUP - 1) /
                          TARTAN_CUDA_CONV_GROUP);
    g->depth = (uint32_t)((g->size[0] + g->spread[0] - 1) / g->spread[0]);
    g->restricted = p->active.layout != nullptr && !p->active_from;
    const int64_t planes =
        g->restricted ? p->active.layout->blocks * p->active.size[0] : p->entries * g->depth;
    g->units = (uint32_t)(planes * f.row_blocks * f.strips);
    g->stage_boxed = (uint32_t)(f.units * f.box_cols * f.box_rows * f.span);
    g->numbered = numbers_windows(p);
    g->alone = !g->numbered && !f.in_place && g->lists.steps > 0;
    const tartan_cuda_conv_weights w = tartan_cuda_conv_weights_of(p, &f);
    g->a_low = w.leading << 16, g->a_next = w.next, g->a_second = w.second;
    g->a_high = w.stride | (w.swizzle == 128 ? 1u : w.swizzle == 64 ? 2u : 0u) << 30;
    g->values = p->values, g->from = p->from.data;
    g->taps = p->taps, g->adjoint = p->adjoint;
    g->from_image = p->from, g->from_slots = p->from_slots, g->to_slots = p->to_slots;
}

tartan_status pack_weights(const char *function, tartan_cuda_queue *queue, const tartan_cuda_conv *p,
                           const ConvProblem &g) {
    const int64_t count =
        g.form.in_place ? 0 : g.lists.steps * TARTAN_CUDA_CONV_ITEMS * TARTAN_CUDA_CONV_SOURCES;
    const auto ctas = [](int64_t threads) { return (threads + kConvPackThreads - 1) / kConvPackThreads; };
    const int64_t blocks = ctas(8 * count), more = numbers_windows(p) ? ctas(p->active.layout->blocks) : 0;
    if (blocks + more == 0) return TARTAN_OK;
    if (p->dtype == TARTAN_F32) {
        const cudaError_t error = tartan_cuda_launch_early(
            queue, true, conv_pack_f32, dim3((unsigned)(blocks + more)), dim3(kConvPackThreads), 0,
            g.lists.sources, count, g.form.parts, (const uint32_t *)p->values, p->to_slots.stride,
            p->from_slots.stride, (uint4 *)g.packed, (uint32_t)blocks, g.windows,
            const_cast<int32_t *>(g.windows_at));
        return tartan_cuda_check(function, error, "starting the kernel that packs weights");
    }
    const cudaError_t error = tartan_cuda_launch_early(
        queue, true, conv_pack, dim3((unsigned)(blocks + more)), dim3(kConvPackThreads), 0, g.lists.sources,
        count, (const uint16_t *)p->values, p->to_slots.stride, p->from_slots.stride, (uint4 *)g.packed,
        (uint32_t)blocks, g.windows, const_cast<int32_t *>(g.windows_at));
    return tartan_cuda_check(function, error, "starting the kernel that packs weights");
}

tartan_status multiply_all(const char *function, tartan_cuda_queue *queue, const tartan_cuda_conv *p,
                           ConvProblem *g) {
    const tartan_cuda_conv_form &f = g->form;
    CUtensorMap map, map_to, map_weights;
    /* What is divided into two parts comes as it is. */
    PASS(map_pixels(function, p->from, f.parts == 2 ? TARTAN_I32 : p->dtype, p->entries,
                    {f.span, f.box_rows, f.box_cols, g->step[1], g->step[2]}, &map));
    map_weights = map_to = map;
    if (f.in_place) PASS(map_values(function, p, f, &map_weights));
    if (g->boxed)
        PASS(map_pixels(function, p->to, p->dtype, p->entries,
                        {2 * TARTAN_CUDA_CONV_GROUP, f.lines ? 1 : f.rows, f.lines ? 8 * f.rows : 8, 1, 1},
                        &map_to));
    const ConvKernel kernel = kernel_of(p->dtype, f.in_place && p->from_slots.stride != 1, f);
    const size_t shared = (size_t)f.stages * (size_t)f.stage_bytes + (size_t)f.room_bytes + conv_fixed_bytes;
    cudaError_t error =
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    PASS(tartan_cuda_check(function, error, "setting the kernel's shared memory"));
    const int64_t pixels = ((int64_t)g->units + f.units - 1) / f.units, tiles = pixels * g->lists.count;
    g->panel = (uint32_t)tartan_cuda_conv_panel(&f, pixels, g->lists.busy, g->lists.steps, g->lists.stages,
                                                g->lists.spans);
    const int64_t most = queue->chip.processors;
    error = tartan_cuda_launch_early(queue, true, kernel, dim3((unsigned)(tiles < most ? tiles : most)),
                                     dim3(kConvThreads), shared, *g, map, map_to, map_weights);
    return tartan_cuda_check(function, error, "starting the kernel conv_wgmma");
}

tartan_status write_results(const char *function, tartan_cuda_queue *queue, const tartan_cuda_conv *p,
                            const ConvProblem &g, const float *sums) {
    const Windows &windows = g.windows;
    tartan_cuda_edge_lists edges;
    PASS(tartan_cuda_edge_lists_get(function, queue, p, &edges));
    const bool restricted = p->active.layout != nullptr && !p->active_from;
    const int64_t positions = restricted ? p->active.layout->blocks * windows.positions
                                         : p->entries * p->to.size[0] * p->to.size[1] * p->to.size[2];
    const int64_t all = positions * p->to.channels;
    if (g.form.splits > 1 && !p->add && p->edges == nullptr && is_wide(p->to, p->entries) &&
        all / 4 < INT32_MAX) {
        const cudaError_t error = tartan_cuda_launch_early(
            queue, true, conv_add, dim3((unsigned)((all / 4 + 255) / 256)), dim3(256), 0, g, p->to,
            epilogue_of(p, edges), sums, (uint32_t)(all / 4));
        return tartan_cuda_check(function, error, "starting the kernel that adds sums");
    }
    const auto kernel = p->dtype == TARTAN_F32   ? conv_last<float>
                        : p->dtype == TARTAN_F16 ? conv_last<__half>
                                                 : conv_last<__nv_bfloat16>;
    return tartan_cuda_launch(function, queue, kernel, tartan_cuda_grid((all + 255) / 256), dim3(256), g, *p,
                              epilogue_of(p, edges), windows, restricted, sums, positions);
}

/* Where scratch memory has the packed weights, and, if not negative, a copy of the image, sums, and results that planes are
 * copied from; the numbers of windows are at its begin. */
struct Rooms {
    int64_t weights, copy, sums, results;
};

/* The whole call. */
tartan_status run_in(const char *function, tartan_cuda_queue *queue, tartan_cuda_conv *p, ConvProblem *g,
                     char *scratch, const Rooms &rooms) {
    const tartan_cuda_image y = p->to;
    if (rooms.results >= 0) describe_copy(slots_of_channels(y), scratch + rooms.results, &p->to);
    describe_work(p, g);
    if (numbers_windows(p)) g->windows_at = (const int32_t *)scratch;
    g->packed = scratch + rooms.weights;
    PASS(pack_weights(function, queue, p, *g));
    if (rooms.copy >= 0) {
        PASS(
            turn_channels(function, queue, p->entries, p->dtype, g->windows, scratch + rooms.copy, &p->from));
        describe_work(p, g);
        g->alone = false;
    }
    float *const sums = rooms.sums >= 0 ? (float *)(scratch + rooms.sums) : nullptr;
    describe_results(p, sums, g);
    PASS(multiply_all(function, queue, p, g));
    if (sums != nullptr) PASS(write_results(function, queue, p, *g, sums));
    if (rooms.results >= 0)
        PASS((turn_planes<2, false>(function, queue, p->entries, y, slots_of_channels(y), p->to.data)));
    return TARTAN_OK;
}

} // namespace

} // namespace tartan_cuda

tartan_status tartan_cuda_conv_wgmma(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    tartan_cuda_conv p = *(const tartan_cuda_conv *)problem;
    ConvProblem g = {};
    g.form = tartan_cuda_conv_form_of(&p);
    PASS(tartan_cuda_conv_lists_get(function, queue, &p, &g.form, &g.lists));
    PASS(tartan_cuda_index_get_rows(function, queue, p.layout, p.adjoint, &g.filter));
    if (p.active.layout != nullptr && !p.active_from && !p.active.dynamic)
        PASS(tartan_cuda_window_numbers_get(function, queue, p.active.layout, &g.windows_at));
    g.counters = queue->counters + TARTAN_CUDA_SIDED_SETS * TARTAN_CUDA_SIDED_COUNTERS;
    const auto elements = [&](const tartan_cuda_image &x) {
        return (p.entries * x.size[0] * x.size[1] * x.size[2] * x.channels + 7) / 8 * 8;
    };
    const int64_t element = g.form.element;
    Rooms rooms = {numbers_windows(&p) ? (p.active.layout->blocks + 3) / 4 * 16 : 0, -1, -1, -1};
    int64_t bytes = rooms.weights + (g.form.in_place ? 0 : g.lists.steps * kConvWeightBytes);
    if (p.active_from || !is_boxed(p.from, p.entries)) {
        rooms.copy = bytes;
        bytes += element * elements(p.from);
    }
    if (!writes_directly(&p, g.form)) {
        const bool planes = writes_planes(&p);
        (planes ? rooms.results : rooms.sums) = bytes;
        bytes += (planes ? 2 : (int64_t)sizeof(float)) * elements(p.to) * g.form.splits;
    }
    void *map = nullptr, *scratch = nullptr;
    tartan_status status = windows_of(function, queue, p.active, p.active_from, &g.windows, &map);
    if (status == TARTAN_OK && bytes > 0) status = tartan_cuda_scratch(function, queue, bytes, &scratch);
    if (status == TARTAN_OK) status = run_in(function, queue, &p, &g, (char *)scratch, rooms);
    if (scratch != nullptr) tartan_cuda_scratch_free(queue, scratch);
    if (map != nullptr) tartan_cuda_scratch_free(queue, map);
    return status;
}
