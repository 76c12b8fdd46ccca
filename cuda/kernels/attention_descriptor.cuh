/* SPDX-License-Identifier: Apache-2.0
 * Matrix descriptors of attention's tiles, whose rows are 128 bytes and swizzled: the whole descriptor, or its lower word, since
 * the upper one is constant. What is added to a lower word for a stage or a step of 16 is the same in all threads, so uniform
 * registers hold it, while 64-bit sums would take five instructions before each product. But where ptxas is short of registers,
 * it may spill more. */
#ifndef TARTAN_CUDA_ATTENTION_DESCRIPTOR_CUH
#define TARTAN_CUDA_ATTENTION_DESCRIPTOR_CUH

#include "device/ring.cuh"

namespace tartan_cuda {

namespace {

static constexpr uint32_t kUpperWord = 1024 >> 4 | 1 << 30;

__device__ __forceinline__ uint64_t descriptor(uint32_t lower) {
    return (uint64_t)kUpperWord << 32 | lower;
}
__device__ __forceinline__ uint64_t descriptor(uint64_t whole) {
    return whole;
}

/* The descriptor of a tile at an address in shared memory, K-major, or MN-major in panels of that many bytes. Descriptor:
 * uint32_t, the lower word, or uint64_t. */
template <typename Descriptor> __device__ __forceinline__ Descriptor k_major(uint32_t address) {
    return (Descriptor)((uint64_t)kUpperWord << 32 | 16 >> 4 << 16) | in_descriptor(address);
}
template <typename Descriptor, uint32_t kPanel>
__device__ __forceinline__ Descriptor mn_major(uint32_t address) {
    return (Descriptor)((uint64_t)kUpperWord << 32 | kPanel >> 4 << 16) | in_descriptor(address);
}

} // namespace

} // namespace tartan_cuda

#endif
