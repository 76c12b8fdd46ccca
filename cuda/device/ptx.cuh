/* SPDX-License-Identifier: Apache-2.0
 * Instructions of Hopper that CUDA C++ has no name for: mbarriers, TMA, wgmma. Each wrapper is one instruction. Source: PTX
 * ISA 9.0, sections "mbarrier", "cp.async.bulk.tensor", "wgmma". Only code for sm_90a may call them. */
#ifndef TARTAN_CUDA_PTX_CUH
#define TARTAN_CUDA_PTX_CUH

#include <cstdint>
#include <cuda.h>

namespace tartan_cuda {

/* An address in the shared window. */
__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* ---- Barriers ---- */

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to TMA. */
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* One arrival that also expects `bytes` from copies. */
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* `count` arrivals at once. */
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* Waits until the phase of that parity has completed. */
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Asks whether the phase of that parity has completed. A warp waits for the answer only where it uses it, and all its lanes
 * must do so together. */
__device__ __forceinline__ int32_t barrier_ask(uint32_t barrier, uint32_t parity) {
    int32_t done;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.s32 %0, 1, 0, done;\n"
                 "}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}

/* Whether the phase of that parity has completed; the same answer for the whole warp. */
__device__ __forceinline__ bool barrier_test(uint32_t barrier, uint32_t parity) {
    return __all_sync(~0u, barrier_ask(barrier, parity));
}

/* Synchronises all consumers of a wgmma kernel. */
__device__ __forceinline__ void consumer_barrier() {
    asm volatile("barrier.cta.sync 3, 256;" ::: "memory");
}
/* Synchronises a warpgroup and returns whether `mine` is true in any of its threads. `number` of the barrier: 1 to 15, but not
 * 3. */
__device__ __forceinline__ bool warpgroup_any(uint32_t number, bool mine) {
    int32_t any;
    asm volatile("{\n"
                 ".reg .pred mine, any;\n"
                 "setp.ne.s32 mine, %2, 0;\n"
                 "barrier.cta.red.or.pred any, %1, 128, mine;\n"
                 "selp.s32 %0, 1, 0, any;\n"
                 "}"
                 : "=r"(any)
                 : "r"(number), "r"((int32_t)mine)
                 : "memory");
    return any != 0;
}

/* ---- Clusters and distributed shared memory ---- */

/* Synchronises all threads of a cluster that have not exited; by whole warps. Orders no writes but the initialisation of
 * barriers. */
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
/* The same, after which all that threads of the cluster wrote before may be read. */
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
/* The address of the same place in the shared memory of the CTA of that rank. */
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
/* A number at such an address. */
__device__ __forceinline__ double cluster_load(uint32_t from) {
    double x;
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(x) : "r"(from) : "memory");
    return x;
}
__device__ __forceinline__ float4 cluster_load_16(uint32_t from) {
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(from)
                 : "memory");
    return x;
}
/* Writes 16 bytes to such an address; `barrier`, of the same CTA, counts them. */
__device__ __forceinline__ void cluster_store_16(uint32_t to, uint32_t barrier, const float *from) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::
            "r"(to),
        "r"(barrier), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3])
        : "memory");
}
/* barrier_wait for what other CTAs of the cluster wrote. */
__device__ __forceinline__ void cluster_barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* ---- Asynchronous copies of 16 bytes into shared memory; `bytes` 0 writes zeros ---- */

__device__ __forceinline__ void piece_load(uint32_t to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
/* The thread arrives once all its copies have completed. */
__device__ __forceinline__ void barrier_arrive_with_pieces(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/* Makes ordinary writes to shared memory visible to wgmma and TMA. */
__device__ __forceinline__ void shared_fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The same for memory of any kind. */
__device__ __forceinline__ void memory_fence_async() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* True in one lane of a warp; all lanes must call it. For instructions that take uniform registers, the compiler makes a loop
 * over all lanes that might run them; code that only this lane runs needs none. */
__device__ __forceinline__ bool elect_one() {
    uint32_t elected;
    asm volatile("{\n"
                 ".reg .pred mine;\n"
                 "elect.sync _|mine, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, mine;\n"
                 "}"
                 : "=r"(elected));
    return elected != 0;
}

/* Prefetches a line of 128 bytes to L1. */
__device__ __forceinline__ void list_prefetch(const void *from) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

/* Brings bytes to L2; address and size are multiples of 16. */
__device__ __forceinline__ void bulk_prefetch(const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
/* A bulk copy of contiguous bytes into shared memory; addresses and size are multiples of 16. */
__device__ __forceinline__ void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

/* ---- TMA: boxes of a tensor into shared memory; elements outside the tensor become zeros ---- */

__device__ __forceinline__ void tensor_prefetch(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tensor_load_3d(uint32_t to, const CUtensorMap *map, uint32_t barrier,
                                               int32_t c0, int32_t c1, int32_t c2) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}

__device__ __forceinline__ void tensor_load_5d(uint32_t to, const CUtensorMap *map, uint32_t barrier,
                                               int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}

/* Prefetches to L2 a box that will be loaded soon. */
__device__ __forceinline__ void tensor_prefetch_5d(const CUtensorMap *map, int32_t c0, int32_t c1, int32_t c2,
                                                   int32_t c3, int32_t c4) {
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(map),
                 "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}

/* TMA from shared memory to a tensor; elements outside the tensor are skipped. A thread's stores form bulk groups. */
__device__ __forceinline__ void tensor_store_5d(const CUtensorMap *map, uint32_t from, int32_t c0, int32_t c1,
                                                int32_t c2, int32_t c3, int32_t c4) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
                 "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}
__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Adds f32 in shared memory to those in memory, atomically one by one; addresses and size are multiples of 16. */
__device__ __forceinline__ void bulk_reduce_add(float *to, uint32_t from, uint32_t bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}
/* Waits until all bulk groups but the last kPending have read their shared memory. */
template <int kPending> __device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/* ---- stmatrix: 8 x 8 matrices of 16-bit elements from the registers of a warp ---- */

__device__ __forceinline__ void store_matrices(uint32_t to, uint32_t m0, uint32_t m1, uint32_t m2,
                                               uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(m0),
                 "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}
__device__ __forceinline__ void store_matrices_transposed(uint32_t to, uint32_t m0, uint32_t m1, uint32_t m2,
                                                          uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(m0),
                 "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

__device__ __forceinline__ void shared_store_16(uint32_t to, const float *from) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(from[0]), "f"(from[1]),
                 "f"(from[2]), "f"(from[3])
                 : "memory");
}

__device__ __forceinline__ uint32_t shared_load_4(uint32_t from) {
    uint32_t value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
    return value;
}

/* NaN if one of them is. */
__device__ __forceinline__ float larger_or_nan(float x, float y) {
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(x), "f"(y));
    return most;
}

__device__ __forceinline__ void shared_store_4(uint32_t to, uint32_t value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}

__device__ __forceinline__ void shared_store_16(uint32_t to, uint4 value) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

__device__ __forceinline__ uint4 shared_load_16(uint32_t from) {
    uint4 value;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(from)
                 : "memory");
    return value;
}

__device__ __forceinline__ uint2 shared_load_8(uint32_t from) {
    uint2 value;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(from) : "memory");
    return value;
}

/* An element of 2 or 4 bytes, as bits. */
template <typename Element> __device__ __forceinline__ Element shared_load_element(uint32_t from) {
    if constexpr (sizeof(Element) == 4) {
        return shared_load_4(from);
    } else {
        uint16_t value;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(from) : "memory");
        return value;
    }
}

/* ---- Registers of a warpgroup ---- */

template <int kRegisters> __device__ __forceinline__ void registers_raise() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters> __device__ __forceinline__ void registers_lower() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/* ---- wgmma ---- */

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/* Types of factors; sums are f32. */
enum class Factor { bf16, f16, tf32, e4m3, e5m2 };

#define TARTAN_SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TARTAN_SUMS_16(d, i)                                                                                 \
    TARTAN_SUMS_4(d, i), TARTAN_SUMS_4(d, i + 4), TARTAN_SUMS_4(d, i + 8), TARTAN_SUMS_4(d, i + 12)
#define TARTAN_SUMS_32(d, i) TARTAN_SUMS_16(d, i), TARTAN_SUMS_16(d, i + 16)
#define TARTAN_SUMS_64(d, i) TARTAN_SUMS_32(d, i), TARTAN_SUMS_32(d, i + 32)
#define TARTAN_SUMS_128(d)   TARTAN_SUMS_64(d, 0), TARTAN_SUMS_64(d, 64)
#define TARTAN_WGMMA(shape, types, a_major, b_major, ...)                                                    \
    asm volatile("{\n"                                                                                       \
                 ".reg .pred keep;\n"                                                                        \
                 "setp.ne.b32 keep, %130, 0;\n"                                                              \
                 "wgmma.mma_async.sync.aligned." shape ".f32." types " {"                                    \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "          \
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "          \
                 "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "          \
                 "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "          \
                 "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "          \
                 "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "          \
                 "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "        \
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "      \
                 "%126, %127"                                                                                \
                 "}, %128, %129, keep, 1, 1" a_major b_major ";\n"                                           \
                 "}"                                                                                         \
                 : TARTAN_SUMS_128(d)                                                                        \
                 : "l"(a), "l"(b), "r"(keep)__VA_ARGS__)

/* d = a b + (keep ? d : 0): d is 64 x 256 (f32), spread over the warpgroup; a is 64 x 32 bytes and b 32 bytes x 256, in shared
 * memory, by descriptors. kA, kB: 0 if K-major, 1 if MN-major (16-bit types only). */
template <Factor kFactor, int kA, int kB>
__device__ __forceinline__ void wgmma_256(float (&d)[128], uint64_t a, uint64_t b, int32_t keep) {
    if constexpr (kFactor == Factor::bf16) {
        TARTAN_WGMMA("m64n256k16", "bf16.bf16", ", %131", ", %132", , "n"(kA), "n"(kB));
    } else if constexpr (kFactor == Factor::f16) {
        TARTAN_WGMMA("m64n256k16", "f16.f16", ", %131", ", %132", , "n"(kA), "n"(kB));
    } else if constexpr (kFactor == Factor::tf32) {
        TARTAN_WGMMA("m64n256k8", "tf32.tf32", "", "");
    } else if constexpr (kFactor == Factor::e4m3) {
        TARTAN_WGMMA("m64n256k32", "e4m3.e4m3", "", "");
    } else {
        TARTAN_WGMMA("m64n256k32", "e5m2.e5m2", "", "");
    }
}

#undef TARTAN_WGMMA
#undef TARTAN_SUMS_128
#undef TARTAN_SUMS_64
#undef TARTAN_SUMS_32
#undef TARTAN_SUMS_16
#undef TARTAN_SUMS_4

} // namespace tartan_cuda

#endif
