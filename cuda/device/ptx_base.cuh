/* SPDX-License-Identifier: Apache-2.0
 * Instructions that CUDA C++ has no name for, for kernels of all chips: special registers, dependent launches, barriers, timing.
 * Source: PTX ISA 9.0, sections "special registers", "griddepcontrol", "bar". */
#ifndef TARTAN_CUDA_PTX_BASE_CUH
#define TARTAN_CUDA_PTX_BASE_CUH

#include <cstdint>

namespace tartan_cuda {

/* ---- Programmatic dependent launch; no effect before sm_90 ---- */

/* The next kernel of the stream may begin once all CTAs of this one have come here or ended. */
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Waits until earlier kernels have ended and their writes are visible. */
__device__ __forceinline__ void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- Barriers of some warps of a CTA ---- */

/* Waits until `threads` threads have come to barrier `number`; __syncthreads uses number 0. */
__device__ __forceinline__ void wait_at_barrier(uint32_t number, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* ---- The SM that runs the thread ---- */

__device__ __forceinline__ uint32_t sm_number() {
    uint32_t number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}

/* Clock cycles that an atomic operation on *at takes; comparing its result makes the clock wait for it. */
__device__ __forceinline__ uint32_t atomic_cycles(const void *at) {
    uint32_t begin, end;
    asm volatile("{\n"
                 ".reg .u32 value;\n"
                 ".reg .pred never;\n"
                 "mov.u32 %0, %%clock;\n"
                 "atom.global.add.u32 value, [%2], 0;\n"
                 "setp.ne.u32 never, value, 0;\n"
                 "@never trap;\n"
                 "mov.u32 %1, %%clock;\n"
                 "}"
                 : "=r"(begin), "=r"(end)
                 : "l"(at)
                 : "memory");
    return end - begin;
}

/* No instruction: the compiler uses these words after what comes before this, and not before. */
__device__ __forceinline__ void begin_with(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d)::"memory");
}

} // namespace tartan_cuda

#endif
