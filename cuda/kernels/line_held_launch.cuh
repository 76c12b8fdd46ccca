/* SPDX-License-Identifier: Apache-2.0
 * How clusters share out the lines that they hold, and launches of their kernels. */
#ifndef TARTAN_CUDA_LINE_HELD_LAUNCH_CUH
#define TARTAN_CUDA_LINE_HELD_LAUNCH_CUH

#include "device_memory.h"
#include "kernels/line_held.cuh"

#include <algorithm>

namespace tartan_cuda {
namespace {

/* Whether the elements of each line of some arrays lie side by side, and those of all arrays equally far from multiples of 16 bytes;
 * arrays that are not there do not count. */
inline bool lie_alike(const tartan_cuda_sweep &s, std::initializer_list<int> arrays) {
    const tartan_cuda_swept &x = s.array[*arrays.begin()];
    const int32_t per = 16 / tartan_cuda_bytes_of(x.dtype);
    if (s.axes[TARTAN_CUDA_SUMMED].ndim != 1) return false;
    for (const int i : arrays) {
        const tartan_cuda_swept &a = s.array[i];
        if (a.data == nullptr) continue;
        if (a.dtype != x.dtype || a.step[TARTAN_CUDA_SUMMED][0] != 1 ||
            (uintptr_t)a.data % 16 != (uintptr_t)x.data % 16)
            return false;
        for (int32_t d = 0; d < s.axes[TARTAN_CUDA_KEPT].ndim; d++)
            if ((a.step[TARTAN_CUDA_KEPT][d] - x.step[TARTAN_CUDA_KEPT][d]) % per != 0) return false;
    }
    return true;
}

/* Of as many clusters as run at once, which may be fewer than SMs would hold: a cluster has SMs of one part of the chip. */
template <typename... Parameters>
tartan_status clusters_at_once(const char *function, void (*kernel)(Parameters...), int32_t ctas,
                               int32_t threads, size_t shared, int *count) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)ctas;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)ctas);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return tartan_cuda_check(function, cudaOccupancyMaxActiveClusters(count, kernel, &config),
                             "asking for clusters");
}

/* f(an element) for the dtypes that clusters take; others are left to other kernels. */
template <typename F> tartan_status by_dtype_of_clusters(int32_t dtype, F f) {
    switch (dtype) {
    case TARTAN_F32:
        return f(float());
    case TARTAN_F16:
        return f(__half());
    case TARTAN_BF16:
        return f(__nv_bfloat16());
    default:
        return TARTAN_OK;
    }
}

/* Bytes of shared memory that each of CTAS CTAs of an SM can ask for: the chip takes RESERVED of it, and its teams have theirs. */
template <class Lines, int CTAS> size_t held_room(const tartan_cuda_chip &chip) {
    enum { RESERVED = 1024, OF_TEAMS = Lines::TEAMS * sizeof(typename Lines::Shared) };
    return ((size_t)chip.shared_bytes + RESERVED) / CTAS - RESERVED - (OF_TEAMS + ROW - 1) / ROW * ROW;
}

/* Whether lines of `n` elements in some arrays begin or end between units of 16 bytes. */
inline bool is_ragged(const tartan_cuda_sweep &s, std::initializer_list<int> arrays, int64_t n) {
    const int32_t per = 16 / tartan_cuda_bytes_of(s.array[*arrays.begin()].dtype);
    bool ragged = n % per != 0;
    for (const int i : arrays) {
        const tartan_cuda_swept &a = s.array[i];
        if (a.data == nullptr) continue;
        ragged = ragged || (uintptr_t)a.data % 16 != 0;
        for (int32_t d = 0; d < s.axes[TARTAN_CUDA_KEPT].ndim; d++)
            ragged = ragged || a.step[TARTAN_CUDA_KEPT][d] % per != 0;
    }
    return ragged;
}

/* Sizes of clusters: powers of 2, or those that leave few of an H200's SMs without a CTA, of which an SM has `of_sm`. */
inline int32_t next_power_of_2(int32_t ctas) {
    return 2 * ctas;
}
template <int OF_SM> int32_t next_that_fits(int32_t ctas) {
    return OF_SM > 1 || ctas < 6 ? ctas + 1 : ctas == 6 ? 8 : 2 * ctas;
}

/* How clusters share out lines: the fewest CTAs that hold one. Each CTA has `fixed` bytes of shared memory and `each` for each element of its
 * part. `next`: of a size of clusters, the next one. No CTAs if a line has too many, if lines would leave SMs idle, or if there is no room for
 * a stage of each team. */
template <class Lines, int CTAS = 1>
Clusters held_by(const tartan_cuda_chip &chip, int64_t n, int64_t lines, bool ragged, int32_t inputs,
                 int32_t least_stages, int32_t most_stages, size_t fixed, size_t each, size_t *shared,
                 int32_t (*next)(int32_t) = next_power_of_2) {
    constexpr int64_t EACH = Lines::EACH;
    const int64_t units = (n + (ragged ? 2 * (EACH - 1) : 0)) / EACH;
    Clusters c = {};
    c.ctas = 1;
    /* A CTA that has whole lines has the elements before and after units besides. */
    if (n / EACH > Lines::TEAM * Lines::UNITS)
        while (c.ctas <= MOST_IN_CLUSTER && (int64_t)c.ctas * Lines::TEAM * Lines::UNITS < units)
            c.ctas = next(c.ctas);
    if (c.ctas > MOST_IN_CLUSTER || lines > INT32_MAX || 2 * lines * c.ctas < chip.processors) return {};
    constexpr int64_t OF_ROW = ROW / 16;
    c.per_cta = (int32_t)(((units + c.ctas - 1) / c.ctas + OF_ROW - 1) / OF_ROW * OF_ROW * EACH);
    const size_t stage = (size_t)Lines::TEAMS * (size_t)inputs * (size_t)c.per_cta * (16 / EACH),
                 others = fixed + each * (size_t)c.per_cta, room = held_room<Lines, CTAS>(chip);
    for (c.stages = most_stages; c.stages >= least_stages; c.stages--) {
        *shared = others + (size_t)c.stages * stage;
        if (*shared <= room) return c;
    }
    return {};
}

/* How many clusters run at once, of those that lines keep at work; 0 if none does. An SM has room for CTAS. */
template <class Lines, int CTAS = 1, typename... Parameters>
tartan_status held_at_once(const char *function, tartan_cuda_queue *queue, void (*kernel)(Parameters...),
                           const Clusters &c, size_t shared, int64_t lines, int32_t *count) {
    int clusters = queue->chip.processors * CTAS;
    *count = 0;
    if (c.ctas == 0) return TARTAN_OK;
    PASS((tartan_cuda_allow_shared(function, queue, (const void *)kernel,
                                   held_room<Lines, CTAS>(queue->chip))));
    if (c.ctas > 8)
        PASS(tartan_cuda_check(
            function, cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
            "allowing large clusters"));
    if (c.ctas > 1)
        PASS(clusters_at_once(function, kernel, c.ctas, Lines::TEAMS * Lines::TEAM, shared, &clusters));
    *count = (int32_t)std::min<int64_t>(clusters, (lines + Lines::TEAMS - 1) / Lines::TEAMS);
    return TARTAN_OK;
}

/* The pause of clusters that could compute `most` lines while they get ready for lines that begin elsewhere: less where they have few
 * lines, so that each cluster has some. */
inline int32_t pause_of(int64_t lines, int32_t clusters, int32_t most) {
    return (int32_t)std::min<int64_t>(most, lines / clusters / 4);
}

template <class Lines, typename... Parameters, typename... Arguments>
tartan_status launch_held(const char *function, tartan_cuda_queue *queue, void (*kernel)(Parameters...),
                          const Clusters &c, size_t shared, int32_t clusters, const Arguments &...arguments) {
    return tartan_cuda_check(function,
                             tartan_cuda_launch_clusters(
                                 queue, false, (uint32_t)c.ctas, kernel, dim3((unsigned)(clusters * c.ctas)),
                                 dim3((unsigned)(Lines::TEAMS * Lines::TEAM)), shared, arguments...),
                             "launching a kernel");
}

} // namespace
} // namespace tartan_cuda

#endif
