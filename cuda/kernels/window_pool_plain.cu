/* SPDX-License-Identifier: Apache-2.0
 * Which windows of a mask are active: a warp for each window, or a CTA for each large one. */
#include "device/element.cuh"
#include "device/launch.cuh"

namespace {

constexpr int THREADS = 256;

struct pool {
    const void *mask;
    int64_t item, step[3];
    int32_t length[3], count[3], size[3], stride[3], offset[3];
    double tolerance, positions;
    int64_t all;
    int32_t shift; /* 2^shift lanes go along a line of a window */
    uint8_t *active;
};

/* Type of comparisons: bytes may be compared with any tolerance. */
template <typename T>
using compared = std::conditional_t<std::is_same_v<T, double> || std::is_same_v<T, uint8_t>, double, float>;

/* The part of a window inside of the mask. */
struct box {
    int64_t at;
    int32_t size[3];
};
__device__ __forceinline__ box box_of(const pool &p, int64_t number) {
    const int32_t k = (int32_t)(number % p.count[2]);
    number /= p.count[2];
    const int32_t j = (int32_t)(number % p.count[1]);
    number /= p.count[1];
    const int32_t window[3] = {(int32_t)(number % p.count[0]), j, k};
    box b = {number / p.count[0] * p.item, {}};
#pragma unroll
    for (int d = 0; d < 3; d++) {
        const int64_t first = p.offset[d] + (int64_t)window[d] * p.stride[d];
        const int64_t begin = first > 0 ? first : 0;
        const int64_t end = first + p.size[d] < p.length[d] ? first + p.size[d] : p.length[d];
        b.size[d] = end > begin ? (int32_t)(end - begin) : 0;
        b.at += begin * p.step[d];
    }
    return b;
}

/* LANES threads look at a window; lanes' sums are added in a fixed order. */
template <typename T, bool AVERAGE, int LANES>
__global__ void __launch_bounds__(THREADS) window_pool(const __grid_constant__ pool p) {
    constexpr int at_once = THREADS / LANES;
    using C = compared<T>;
    const int64_t number = (int64_t)blockIdx.x * at_once + threadIdx.x / LANES;
    const bool is = number < p.all;
    const int32_t lane = (int32_t)(threadIdx.x % LANES), x = lane & ((1 << p.shift) - 1), y = lane >> p.shift;
    const box b = is ? box_of(p, number) : box{};
    const T *mask = (const T *)p.mask + b.at;
    const C tolerance = (C)p.tolerance;
    bool found = false;
    double sum = 0;
    for (int32_t i = 0; i < b.size[0]; i++)
#pragma unroll 4
        for (int32_t j = y; j < b.size[1]; j += LANES >> p.shift)
            for (int32_t k = x; k < b.size[2]; k += 1 << p.shift) {
                const T value = mask[i * p.step[0] + j * p.step[1] + k * p.step[2]];
                if (AVERAGE)
                    sum += tartan_cuda_to<double>(value);
                else
                    found = found || !(tartan_cuda_to<C>(value) <= tolerance);
            }
    if constexpr (AVERAGE) {
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if constexpr (LANES > 32) {
            __shared__ double warps[LANES / 32];
            if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
            __syncthreads();
            sum = warps[0];
            for (int i = 1; i < LANES / 32; i++) sum += warps[i];
        }
        found = !(sum / p.positions <= p.tolerance);
    } else if constexpr (LANES > 32) {
        found = __syncthreads_or(found) != 0;
    } else {
        found = __any_sync(0xffffffffu, found);
    }
    if (lane == 0 && is) p.active[number] = found;
}

template <typename T, int LANES>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const pool &p, bool average) {
    constexpr int at_once = THREADS / LANES;
    const int64_t ctas = (p.all - 1) / at_once + 1;
    if (ctas > INT32_MAX)
        return tartan_cuda_host->fail(TARTAN_ERR_UNSUPPORTED, function,
                                      "%lld windows, expected fewer than 2^31", (long long)p.all);
    return tartan_cuda_launch(function, queue,
                              average ? window_pool<T, true, LANES> : window_pool<T, false, LANES>,
                              dim3((unsigned)ctas), dim3(THREADS), p);
}

} // namespace

tartan_status tartan_cuda_window_pool_plain(const char *function, tartan_cuda_queue *queue,
                                            const void *problem) {
    const tartan_cuda_window_pool *w = (const tartan_cuda_window_pool *)problem;
    pool p = {};
    p.mask = w->mask.data;
    p.item = w->mask.item;
    p.positions = 1;
    for (int d = 0; d < 3; d++) {
        p.step[d] = w->mask.step[d];
        p.length[d] = (int32_t)w->mask.size[d];
        p.count[d] = (int32_t)w->windows.count[d];
        p.size[d] = (int32_t)w->windows.size[d];
        p.stride[d] = (int32_t)w->windows.stride[d];
        p.offset[d] = (int32_t)w->windows.offset[d];
        p.positions *= (double)w->windows.size[d];
    }
    p.tolerance = w->tolerance;
    p.all = w->all;
    p.active = w->active;
    while (p.shift < 5 && 1 << p.shift < p.size[2]) p.shift++;
    const bool large = p.positions > 8192;
    const auto run = [&](auto tag) {
        using T = typename decltype(tag)::type;
        return large ? launch<T, THREADS>(function, queue, p, w->average)
                     : launch<T, 32>(function, queue, p, w->average);
    };
    return w->mask.dtype == TARTAN_U8 ? run(tartan_cuda_type<uint8_t>())
                                      : tartan_cuda_by_dtype(w->mask.dtype, run);
}
