/* SPDX-License-Identifier: Apache-2.0
 * Instructions of sm_80 and later that CUDA C++ has no name for: cp.async, mbarriers, ldmatrix, mma.sync. Each wrapper is one
 * instruction, or its equivalent on older chips. Source: PTX ISA 9.0, sections "cp.async", "mbarrier", "ldmatrix", "mma". */
#ifndef TARTAN_CUDA_PTX_MMA_CUH
#define TARTAN_CUDA_PTX_MMA_CUH

#include <cstdint>

namespace tartan_cuda {

__device__ __forceinline__ uint32_t shared_offset(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* ---- Copies into shared memory: the first `bytes` of kBytes come from memory, the others become zeros ---- */

/* Kept in L1 for other copies of it. */
template <int kBytes>
__device__ __forceinline__ void copy_async_kept(uint32_t to, const void *from, int32_t bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
}

/* 16 bytes, past L1. */
template <int kBytes>
__device__ __forceinline__ void copy_async(uint32_t to, const void *from, int32_t bytes) {
    if constexpr (kBytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                     : "memory");
    else
        copy_async_kept<kBytes>(to, from, bytes);
}

/* All 16 bytes. */
__device__ __forceinline__ void copy_async(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* Groups of a thread's copies; the wait leaves the last kPending groups under way. */
__device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending> __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/* A bulk copy, which the barrier counts; addresses and size are multiples of 16. From sm_90 on. */
__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

/* Orders bulk copies after ordinary accesses to the same shared memory. */
__device__ __forceinline__ void copy_bulk_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Prefetches a line of 128 bytes to L2. */
__device__ __forceinline__ void prefetch_line(const void *from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

/* ---- Barriers ---- */

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("{\n"
                 ".reg .b64 state;\n"
                 "mbarrier.arrive.shared.b64 state, [%0];\n"
                 "}" ::"r"(barrier)
                 : "memory");
}

/* The thread arrives once all its copies have completed. */
__device__ __forceinline__ void mbarrier_arrive_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Waits until the phase of that parity has completed. */
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
#define TARTAN_MBARRIER_WAIT "mbarrier.try_wait.parity.shared.b64"
#else
#define TARTAN_MBARRIER_WAIT "mbarrier.test_wait.parity.shared.b64"
#endif
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n" TARTAN_MBARRIER_WAIT " done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
#undef TARTAN_MBARRIER_WAIT
}

/* ---- Loads from shared memory ---- */

__device__ __forceinline__ void shared_load(double &value, uint32_t from) {
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(value) : "r"(from) : "memory");
}
__device__ __forceinline__ void shared_load(uint32_t &value, uint32_t from) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
}
__device__ __forceinline__ void shared_load_pair(double &first, double &second, uint32_t from) {
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(first), "=d"(second) : "r"(from) : "memory");
}
__device__ __forceinline__ void shared_load_pair(uint32_t &first, uint32_t &second, uint32_t from) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(from) : "memory");
}
__device__ __forceinline__ int4 shared_load_int4(uint32_t from) {
    int4 value;
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(from)
                 : "memory");
    return value;
}
__device__ __forceinline__ int32_t shared_load_int(uint32_t from) {
    int32_t value;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
    return value;
}
__device__ __forceinline__ void shared_store(uint32_t to, int32_t value) {
    asm volatile("st.shared.s32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void shared_store_16(uint32_t to, uint16_t value) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(value) : "memory");
}

/* ldmatrix: 8 x 8 matrices of 16-bit elements (or 8 x 4 of 32-bit ones). Lane i gives the address of row i % 8 of matrix
 * i / 8, and gets the 4 bytes i % 4 of row i / 4 of each matrix; transposed: elements 2 * (i % 4) and the next of column
 * i / 4. */
template <bool kTransposed> __device__ __forceinline__ void load_pieces(uint32_t (&m)[4], uint32_t from) {
    if constexpr (kTransposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(from)
                     : "memory");
}
template <bool kTransposed> __device__ __forceinline__ void load_pieces(uint32_t (&m)[2], uint32_t from) {
    if constexpr (kTransposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(m[0]), "=r"(m[1])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(m[0]), "=r"(m[1])
                     : "r"(from)
                     : "memory");
}

/* ---- mma.sync: d[16 x 8] += a[16 x step] b[step x 8] ----
 * Lane i = 4 g + t holds elements (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1) of d. With words of one f64, one f32 or
 * two 16-bit elements of k, it holds words (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4) of a and (t, g), (t + 4, g) of b:
 * a step is 8 words. */

__device__ __forceinline__ void multiply_f64(double (&d)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+d"(d[i % 2 * 2]), "+d"(d[i % 2 * 2 + 1])
                     : "d"(a[i]), "d"(b[i / 2]));
#endif
}

#define TARTAN_SUMS(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define TARTAN_MULTIPLY(shape, types)                                                                        \
    asm volatile("mma.sync.aligned." shape ".row.col.f32." types ".f32 "                                     \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
                 : TARTAN_SUMS(d)                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define TARTAN_MULTIPLY_HALF(types)                                                                          \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." types ".f32 "                                       \
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                                       \
                 : TARTAN_SUMS(d)                                                                            \
                 : "r"(a[2 * kHalf]), "r"(a[2 * kHalf + 1]), "r"(b[kHalf]))

/* f32 factors, of which the instruction takes the upper 19 bits. */
__device__ __forceinline__ void multiply_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    TARTAN_MULTIPLY("m16n8k8", "tf32.tf32");
}
__device__ __forceinline__ void multiply_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    TARTAN_MULTIPLY("m16n8k16", "f16.f16");
}
__device__ __forceinline__ void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    TARTAN_MULTIPLY("m16n8k16", "bf16.bf16");
}

/* Only the first or the second half of the step. */
template <int kHalf>
__device__ __forceinline__ void multiply_half_f16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
    TARTAN_MULTIPLY_HALF("f16.f16");
}
template <int kHalf>
__device__ __forceinline__ void multiply_half_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                   const uint32_t (&b)[2]) {
    TARTAN_MULTIPLY_HALF("bf16.bf16");
}

#undef TARTAN_MULTIPLY_HALF
#undef TARTAN_MULTIPLY
#undef TARTAN_SUMS

} // namespace tartan_cuda

#endif
