/* SPDX-License-Identifier: Apache-2.0
 * Writes blocks to the active windows of an image, or adds them. Where windows overlap, each element of the image adds up
 * its blocks in the order of ids, so no result depends on the run. */
#include "device_memory.h"
#include "kernels/windows.cuh"

namespace {

/* ---- Windows that do not overlap ---- */

/* N elements that are moved at once. */
template <typename T, int N> struct alignas(N * sizeof(T)) pack { T at[N]; };

template <typename T, int N, bool CHANNELS, typename I>
__global__ void __launch_bounds__(THREADS)
    add_elements(const __grid_constant__ frame f, I elements, bool relu) {
    using S = tartan_cuda_sum<T>;
    const window w = window_of(f, blockIdx.x);
    if (!w.is) return;
    const I step = (I)gridDim.y * THREADS;
#pragma unroll 4
    for (I n = (I)blockIdx.y * THREADS + threadIdx.x; n < elements; n += step) {
        const place p = element_of<CHANNELS>(f, w, n);
        if (!p.inside) continue;
        pack<T, N> *to = (pack<T, N> *)f.image.data + p.image;
        const pack<T, N> x = ((const pack<T, N> *)f.blocks.data)[p.block];
        pack<T, N> y = *to;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const S sum = tartan_cuda_to<S>(y.at[i]) + tartan_cuda_to<S>(x.at[i]);
            y.at[i] = tartan_cuda_to<T>(relu && sum <= 0 ? (S)0 : sum);
        }
        *to = y;
    }
}

/* ---- Windows that overlap ---- */

/* The id of each window, which is -1 so far. A warp for each row of the grid. */
__global__ void __launch_bounds__(THREADS)
    set_ids(const int32_t *pointers, const int32_t *cols, int64_t lines, int64_t grid_cols, int32_t *ids) {
    const int64_t step = (int64_t)gridDim.x * (THREADS / 32);
    for (int64_t line = blockIdx.x * (int64_t)(THREADS / 32) + threadIdx.x / 32; line < lines; line += step)
        for (int32_t e = pointers[line] + (int32_t)(threadIdx.x % 32); e < pointers[line + 1]; e += 32)
            ids[line * grid_cols + cols[e]] = e;
}

/* Windows [x, y) of dimension d that cover a position. */
__device__ __forceinline__ int2 covering(const frame &f, int d, int64_t position) {
    const int64_t at = position - f.offset[d];
    if (at < 0) return make_int2(0, 0);
    const int64_t last = at / f.stride[d] + 1;
    const int end = (int)(last < f.count[d] ? last : f.count[d]);
    const int64_t from = at < f.size[d] ? 0 : (at - f.size[d]) / f.stride[d] + 1;
    return make_int2((int)(from < end ? from : end), end);
}

/* A thread for each element of the image, counted with channels or the last dimension fastest. */
template <typename T, bool CHANNELS, typename I>
__global__ void __launch_bounds__(THREADS)
    sum_elements(const __grid_constant__ frame f, I elements, const int32_t *ids) {
    using S = tartan_cuda_sum<T>;
    const int64_t image = blockIdx.y;
    ids += image * f.grid_rows * f.count[2];
    const I step = (I)gridDim.x * THREADS;
    for (I n = (I)blockIdx.x * THREADS + threadIdx.x; n < elements; n += step) {
        I rest = n, c = 0;
        if (CHANNELS) c = rest % (I)f.channels, rest /= (I)f.channels;
        int64_t at[3];
        at[2] = (int64_t)(rest % (I)f.length[2]), rest /= (I)f.length[2];
        at[1] = (int64_t)(rest % (I)f.length[1]), rest /= (I)f.length[1];
        at[0] = (int64_t)(CHANNELS ? rest : rest % (I)f.length[0]);
        if (!CHANNELS) c = rest / (I)f.length[0];
        const int2 i = covering(f, 0, at[0]), j = covering(f, 1, at[1]), k = covering(f, 2, at[2]);
        S sum = 0;
        bool any = false;
        T *y = (T *)f.image.data + image * f.image.item + (int64_t)c * f.image.channel +
               at[0] * f.image.step[0] + at[1] * f.image.step[1] + at[2] * f.image.step[2];
        for (int a = i.x; a < i.y; a++)
            for (int b = j.x; b < j.y; b++)
                for (int d = k.x; d < k.y; d++) {
                    const int32_t id = ids[((int64_t)a * f.count[1] + b) * f.count[2] + d];
                    if (id < 0) continue;
                    const int64_t from = id * f.blocks.item + (int64_t)c * f.blocks.channel +
                                         (at[0] - f.offset[0] - (int64_t)a * f.stride[0]) * f.blocks.step[0] +
                                         (at[1] - f.offset[1] - (int64_t)b * f.stride[1]) * f.blocks.step[1] +
                                         (at[2] - f.offset[2] - (int64_t)d * f.stride[2]) * f.blocks.step[2];
                    if (!any) sum = tartan_cuda_to<S>(*y);
                    any = true;
                    sum += tartan_cuda_to<S>(((const T *)f.blocks.data)[from]);
                }
        if (any) *y = tartan_cuda_to<T>(sum);
    }
}

tartan_status add_overlapping(const char *function, tartan_cuda_queue *queue,
                              const tartan_cuda_window_scatter *p, const frame &f) {
    const int64_t elements = p->image.channels * p->image.size[0] * p->image.size[1] * p->image.size[2];
    const int64_t grid = f.lines * f.count[2];
    void *ids = nullptr;
    PASS(tartan_cuda_scratch(function, queue, grid * (int64_t)sizeof(int32_t), &ids));
    tartan_status status =
        tartan_cuda_check(function, cudaMemsetAsync(ids, 0xff, (size_t)grid * sizeof(int32_t), queue->stream),
                          "clearing a list");
    if (status == TARTAN_OK && grid > 0)
        status = tartan_cuda_launch(function, queue, set_ids,
                                    tartan_cuda_grid((f.lines - 1) / (THREADS / 32) + 1), dim3(THREADS),
                                    f.pointers, f.cols, f.lines, (int64_t)f.count[2], (int32_t *)ids);
    for (int64_t image = 0; status == TARTAN_OK && image < p->image.count; image += MOST_Y) {
        frame part = f; /* of as many images as a grid can have */
        part.image.data = (char *)f.image.data + image * f.image.item * p->image.bytes;
        dim3 all = tartan_cuda_grid((elements - 1) / THREADS + 1);
        all.y = (unsigned)(p->image.count - image < MOST_Y ? p->image.count - image : MOST_Y);
        const int32_t *of = (const int32_t *)ids + image * f.grid_rows * f.count[2];
        status = tartan_cuda_by_dtype(p->image.dtype, [&](auto tag) {
            return by_order(by_channel(&p->image), elements, [&](auto channels, auto index) {
                using T = typename decltype(tag)::type;
                return tartan_cuda_launch(function, queue,
                                          sum_elements<T, decltype(channels)::value, decltype(index)>, all,
                                          dim3(THREADS), part, (decltype(index))elements, of);
            });
        });
    }
    tartan_cuda_scratch_free(queue, ids);
    return status;
}

/* ---- The image to begin with ---- */

struct copy {
    view to, from;
    int64_t length[5]; /* the last one is fastest in `to`; strides are in that order, too: */
    int64_t to_stride[5], from_stride[5];
    int64_t elements;
};

template <typename T> __global__ void __launch_bounds__(THREADS) copy_image(const __grid_constant__ copy c) {
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < c.elements; n += step) {
        int64_t rest = n, to = 0, from = 0;
#pragma unroll
        for (int d = 4; d >= 0; d--) {
            const int64_t i = d > 0 ? rest % c.length[d] : rest;
            if (d > 0) rest /= c.length[d];
            to += i * c.to_stride[d];
            from += i * c.from_stride[d];
        }
        ((T *)c.to.data)[to] = ((const T *)c.from.data)[from];
    }
}

tartan_status copy_base(const char *function, tartan_cuda_queue *queue, const tartan_i_image *y,
                        const tartan_i_image *base) {
    const bool channels = by_channel(y);
    copy c = {};
    c.to = view_of(y), c.from = view_of(base);
    const int order[5] = {0, channels ? 2 : 1, channels ? 3 : 2, channels ? 4 : 3, channels ? 1 : 4};
    const int64_t length[5] = {y->count, y->channels, y->size[0], y->size[1], y->size[2]};
    const int64_t to[5] = {y->item, y->channel, y->step[0], y->step[1], y->step[2]};
    const int64_t from[5] = {base->item, base->channel, base->step[0], base->step[1], base->step[2]};
    bool same = true;
    c.elements = 1;
    for (int d = 4; d >= 0; d--) {
        c.length[d] = length[order[d]];
        c.to_stride[d] = to[order[d]];
        c.from_stride[d] = from[order[d]];
        same = same && (c.length[d] == 1 || (c.to_stride[d] == c.elements && c.from_stride[d] == c.elements));
        c.elements *= c.length[d];
    }
    if (same)
        return tartan_cuda_check(function,
                                 cudaMemcpyAsync(y->data, base->data, (size_t)(c.elements * y->bytes),
                                                 cudaMemcpyDeviceToDevice, queue->stream),
                                 "copying an image");
    const dim3 grid = tartan_cuda_grid((c.elements - 1) / THREADS + 1);
    switch (y->bytes) {
    case 8:
        return tartan_cuda_launch(function, queue, copy_image<uint64_t>, grid, dim3(THREADS), c);
    case 4:
        return tartan_cuda_launch(function, queue, copy_image<uint32_t>, grid, dim3(THREADS), c);
    default:
        return tartan_cuda_launch(function, queue, copy_image<uint16_t>, grid, dim3(THREADS), c);
    }
}

template <typename T, int N>
tartan_status add_packs(const char *function, tartan_cuda_queue *queue, const tartan_cuda_window_scatter *p) {
    const tartan_i_image image = packed(&p->image, N), blocks = packed(&p->blocks, N);
    frame f;
    PASS(frame_of(function, queue, p->layout, &p->windows, &image, &blocks, &f));
    const int64_t elements = elements_of(f);
    dim3 grid = tartan_cuda_grid(p->layout->blocks);
    grid.y = pieces(elements, 4 * THREADS);
    return by_order(N > 1 || by_channel(&p->image), elements, [&](auto channels, auto index) {
        return tartan_cuda_launch(function, queue,
                                  add_elements<T, N, decltype(channels)::value, decltype(index)>, grid,
                                  dim3(THREADS), f, (decltype(index))elements, p->relu);
    });
}

tartan_status add_windows(const char *function, tartan_cuda_queue *queue,
                          const tartan_cuda_window_scatter *p) {
    if (p->overlap) {
        frame f;
        PASS(frame_of(function, queue, p->layout, &p->windows, &p->image, &p->blocks, &f));
        return add_overlapping(function, queue, p, f);
    }
    return tartan_cuda_by_dtype(p->image.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int count = 16 / sizeof(T);
        return can_pack(&p->image, count) && can_pack(&p->blocks, count)
                   ? add_packs<T, count>(function, queue, p)
                   : add_packs<T, 1>(function, queue, p);
    });
}

} // namespace

tartan_status tartan_cuda_window_scatter_plain(const char *function, tartan_cuda_queue *queue,
                                               const void *problem) {
    const tartan_cuda_window_scatter *p = (const tartan_cuda_window_scatter *)problem;
    if (p->based) PASS(copy_base(function, queue, &p->image, &p->base));
    if (p->layout->blocks == 0) return TARTAN_OK;
    if (p->add) return add_windows(function, queue, p);
    if (p->zeros) return move_windows<CLEAR>(function, queue, p->layout, &p->windows, &p->image, &p->blocks);
    return move_windows<SCATTER>(function, queue, p->layout, &p->windows, &p->image, &p->blocks);
}
