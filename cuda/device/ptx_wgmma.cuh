/* SPDX-License-Identifier: Apache-2.0
 * wgmma of 16-bit factors and f32 sums in tiles of 64 x 32 to 256: attention multiplies scores, which are sums in
 * registers, by what lies in shared memory; convolution has tiles of many sizes. Source: PTX ISA 9.0, section "wgmma".
 * Only code for sm_90a may call them. */
#ifndef TARTAN_CUDA_PTX_WGMMA_CUH
#define TARTAN_CUDA_PTX_WGMMA_CUH

#include "device/ptx.cuh"

namespace tartan_cuda {

#define TARTAN_OUT_8(d, i)                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),              \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define TARTAN_OUT_16(d, i) TARTAN_OUT_8(d, i), TARTAN_OUT_8(d, i + 8)
#define TARTAN_OUT_32(d, i)                                                                                  \
    TARTAN_OUT_8(d, i), TARTAN_OUT_8(d, i + 8), TARTAN_OUT_8(d, i + 16), TARTAN_OUT_8(d, i + 24)
#define TARTAN_OUT_40(d)    TARTAN_OUT_32(d, 0), TARTAN_OUT_8(d, 32)
#define TARTAN_OUT_48(d)    TARTAN_OUT_32(d, 0), TARTAN_OUT_16(d, 32)
#define TARTAN_OUT_56(d)    TARTAN_OUT_32(d, 0), TARTAN_OUT_16(d, 32), TARTAN_OUT_8(d, 48)
#define TARTAN_OUT_64(d, i) TARTAN_OUT_32(d, i), TARTAN_OUT_32(d, i + 32)
#define TARTAN_OUT_96(d)    TARTAN_OUT_64(d, 0), TARTAN_OUT_32(d, 64)
#define TARTAN_OUT_112(d)   TARTAN_OUT_96(d), TARTAN_OUT_16(d, 96)
#define TARTAN_OUT_128(d)   TARTAN_OUT_64(d, 0), TARTAN_OUT_64(d, 64)
#define TARTAN_AT_16        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TARTAN_AT_32                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "             \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TARTAN_AT_40 TARTAN_AT_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TARTAN_AT_48 TARTAN_AT_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TARTAN_AT_56 TARTAN_AT_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TARTAN_AT_64 TARTAN_AT_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TARTAN_AT_96                                                                                         \
    TARTAN_AT_64                                                                                             \
    ", "                                                                                                     \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "             \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TARTAN_AT_112                                                                                        \
    TARTAN_AT_96                                                                                             \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define TARTAN_AT_128                                                                                        \
    TARTAN_AT_112                                                                                            \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* Waits until all products but the last kPending groups are in; the sums d may be used from here on. */
template <int kPending, int kCount> __device__ __forceinline__ void wgmma_wait_for(float (&d)[kCount]) {
    static_assert(kCount == 16 || kCount == 32 || kCount == 64 || kCount == 128,
                  "sums of 64 x 32, 64, 128 or 256");
    if constexpr (kCount == 16)
        asm volatile("wgmma.wait_group.sync.aligned %16;" : TARTAN_OUT_16(d, 0) : "n"(kPending) : "memory");
    else if constexpr (kCount == 32)
        asm volatile("wgmma.wait_group.sync.aligned %32;" : TARTAN_OUT_32(d, 0) : "n"(kPending) : "memory");
    else if constexpr (kCount == 64)
        asm volatile("wgmma.wait_group.sync.aligned %64;" : TARTAN_OUT_64(d, 0) : "n"(kPending) : "memory");
    else
        asm volatile("wgmma.wait_group.sync.aligned %128;" : TARTAN_OUT_128(d) : "n"(kPending) : "memory");
}

/* Tells the compiler that d is read and written here, so that no use of it moves across. */
template <int kCount> __device__ __forceinline__ void wgmma_pin(float (&d)[kCount]) {
    static_assert(kCount == 16 || kCount == 32 || kCount == 40 || kCount == 48 || kCount == 56 ||
                      kCount == 64 || kCount == 96 || kCount == 128,
                  "sums of 64 x 32 to 256");
    if constexpr (kCount == 16)
        asm volatile("" : TARTAN_OUT_16(d, 0)::"memory");
    else if constexpr (kCount == 32)
        asm volatile("" : TARTAN_OUT_32(d, 0)::"memory");
    else if constexpr (kCount == 40)
        asm volatile("" : TARTAN_OUT_40(d)::"memory");
    else if constexpr (kCount == 48)
        asm volatile("" : TARTAN_OUT_48(d)::"memory");
    else if constexpr (kCount == 56)
        asm volatile("" : TARTAN_OUT_56(d)::"memory");
    else if constexpr (kCount == 64)
        asm volatile("" : TARTAN_OUT_64(d, 0)::"memory");
    else if constexpr (kCount == 96)
        asm volatile("" : TARTAN_OUT_96(d)::"memory");
    else
        asm volatile("" : TARTAN_OUT_128(d)::"memory");
}

/* The same for a number: values computed from it earlier are not kept in registers. */
__device__ __forceinline__ void wgmma_pin(uint32_t &x) {
    asm volatile("" : "+r"(x));
}

#define TARTAN_SHARED(shape, types, sums, a_at, b_at, keep_at, a_major, b_major, ...)                        \
    asm volatile("{\n"                                                                                       \
                 ".reg .pred keep;\n"                                                                        \
                 "setp.ne.b32 keep, " keep_at ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned." shape ".f32." types " {" sums "}, " a_at ", " b_at          \
                 ", keep, 1, 1, " a_major ", " b_major ";\n"                                                 \
                 "}"                                                                                         \
                 : __VA_ARGS__                                                                               \
                 : "l"(a), "l"(b), "r"(keep), "n"(kA), "n"(kB))

#define TARTAN_SHARED_OF_WIDTH(width, sums, a_at, b_at, keep_at, a_major, b_major, ...)                      \
    if constexpr (kFactor == Factor::bf16)                                                                   \
        TARTAN_SHARED("m64n" width "k16", "bf16.bf16", sums, a_at, b_at, keep_at, a_major, b_major,          \
                      __VA_ARGS__);                                                                          \
    else                                                                                                     \
        TARTAN_SHARED("m64n" width "k16", "f16.f16", sums, a_at, b_at, keep_at, a_major, b_major, __VA_ARGS__)

/* d = a b + (keep ? d : 0): a is 64 x 16, b is 16 x kCols, both in shared memory, by descriptors. kA, kB: 0 if K-major, 1 if
 * MN-major. */
template <Factor kFactor, int kCols, int kA = 0, int kB = 0>
__device__ __forceinline__ void wgmma_shared(float (&d)[kCols / 2], uint64_t a, uint64_t b, int32_t keep) {
    static_assert(kFactor == Factor::bf16 || kFactor == Factor::f16, "16-bit factors");
    if constexpr (kCols == 32) {
        TARTAN_SHARED_OF_WIDTH("32", TARTAN_AT_16, "%16", "%17", "%18", "%19", "%20", TARTAN_OUT_16(d, 0));
    } else if constexpr (kCols == 64) {
        TARTAN_SHARED_OF_WIDTH("64", TARTAN_AT_32, "%32", "%33", "%34", "%35", "%36", TARTAN_OUT_32(d, 0));
    } else if constexpr (kCols == 80) {
        TARTAN_SHARED_OF_WIDTH("80", TARTAN_AT_40, "%40", "%41", "%42", "%43", "%44", TARTAN_OUT_40(d));
    } else if constexpr (kCols == 96) {
        TARTAN_SHARED_OF_WIDTH("96", TARTAN_AT_48, "%48", "%49", "%50", "%51", "%52", TARTAN_OUT_48(d));
    } else if constexpr (kCols == 112) {
        TARTAN_SHARED_OF_WIDTH("112", TARTAN_AT_56, "%56", "%57", "%58", "%59", "%60", TARTAN_OUT_56(d));
    } else if constexpr (kCols == 128) {
        TARTAN_SHARED_OF_WIDTH("128", TARTAN_AT_64, "%64", "%65", "%66", "%67", "%68", TARTAN_OUT_64(d, 0));
    } else if constexpr (kCols == 192) {
        TARTAN_SHARED_OF_WIDTH("192", TARTAN_AT_96, "%96", "%97", "%98", "%99", "%100", TARTAN_OUT_96(d));
    } else if constexpr (kCols == 224) {
        TARTAN_SHARED_OF_WIDTH("224", TARTAN_AT_112, "%112", "%113", "%114", "%115", "%116",
                               TARTAN_OUT_112(d));
    } else {
        static_assert(kCols == 256, "there is no other width");
        wgmma_256<kFactor, kA, kB>(d, a, b, keep);
    }
}

#define TARTAN_REGISTERS(shape, types, sums, x0, x1, x2, x3, b_at, keep_at, b_major, outputs)                \
    asm volatile("{\n"                                                                                       \
                 ".reg .pred keep;\n"                                                                        \
                 "setp.ne.b32 keep, " keep_at ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned." shape ".f32." types " {" sums "}, {" x0 ", " x1 ", " x2     \
                 ", " x3 "}, " b_at ", keep, 1, 1, " b_major ";\n"                                           \
                 "}"                                                                                         \
                 : outputs                                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(kB))

/* d = a b + (keep ? d : 0): a is 64 x 16 in registers, as two neighbouring pieces of 8 columns of sums are once packed;
 * b is 16 x kCols in shared memory, by descriptor. kB: 0 if K-major, 1 if MN-major. */
template <Factor kFactor, int kCols, int kB = 1>
__device__ __forceinline__ void wgmma_registers(float (&d)[kCols / 2], const uint32_t *a, uint64_t b,
                                                int32_t keep) {
    static_assert(kFactor == Factor::bf16 || kFactor == Factor::f16, "16-bit factors");
    if constexpr (kCols == 64 && kFactor == Factor::bf16)
        TARTAN_REGISTERS("m64n64k16", "bf16.bf16", TARTAN_AT_32, "%32", "%33", "%34", "%35", "%36", "%37",
                         "%38", TARTAN_OUT_32(d, 0));
    else if constexpr (kCols == 64)
        TARTAN_REGISTERS("m64n64k16", "f16.f16", TARTAN_AT_32, "%32", "%33", "%34", "%35", "%36", "%37",
                         "%38", TARTAN_OUT_32(d, 0));
    else if constexpr (kCols == 128 && kFactor == Factor::bf16)
        TARTAN_REGISTERS("m64n128k16", "bf16.bf16", TARTAN_AT_64, "%64", "%65", "%66", "%67", "%68", "%69",
                         "%70", TARTAN_OUT_64(d, 0));
    else if constexpr (kCols == 128)
        TARTAN_REGISTERS("m64n128k16", "f16.f16", TARTAN_AT_64, "%64", "%65", "%66", "%67", "%68", "%69",
                         "%70", TARTAN_OUT_64(d, 0));
    else if constexpr (kCols == 256 && kFactor == Factor::bf16)
        TARTAN_REGISTERS("m64n256k16", "bf16.bf16", TARTAN_AT_128, "%128", "%129", "%130", "%131", "%132",
                         "%133", "%134", TARTAN_OUT_128(d));
    else {
        static_assert(kCols == 256, "there is no other width");
        TARTAN_REGISTERS("m64n256k16", "f16.f16", TARTAN_AT_128, "%128", "%129", "%130", "%131", "%132",
                         "%133", "%134", TARTAN_OUT_128(d));
    }
}

#undef TARTAN_REGISTERS
#undef TARTAN_SHARED_OF_WIDTH
#undef TARTAN_SHARED
#undef TARTAN_AT_128
#undef TARTAN_AT_112
#undef TARTAN_AT_96
#undef TARTAN_AT_64
#undef TARTAN_AT_56
#undef TARTAN_AT_48
#undef TARTAN_AT_40
#undef TARTAN_AT_32
#undef TARTAN_AT_16
#undef TARTAN_OUT_128
#undef TARTAN_OUT_112
#undef TARTAN_OUT_96
#undef TARTAN_OUT_64
#undef TARTAN_OUT_56
#undef TARTAN_OUT_48
#undef TARTAN_OUT_40
#undef TARTAN_OUT_32
#undef TARTAN_OUT_16
#undef TARTAN_OUT_8

/* Synchronises a warpgroup. `number` of the barrier: 1 to 15, but not 3. */
__device__ __forceinline__ void warpgroup_barrier(uint32_t number) {
    asm volatile("barrier.cta.sync %0, 128;" ::"r"(number) : "memory");
}

/* Two warpgroups take turns: each waits for its turn, and passes it on afterwards. `number`: the barrier of the
 * warpgroup whose turn comes. */
__device__ __forceinline__ void turn_wait(uint32_t number) {
    asm volatile("barrier.cta.sync %0, 256;" ::"r"(number) : "memory");
}
__device__ __forceinline__ void turn_pass(uint32_t number) {
    asm volatile("barrier.cta.arrive %0, 256;" ::"r"(number) : "memory");
}

/* 2^x with a relative error of about 2^-22; 0 for -infinity. */
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The same, or 0. Without a branch, so that the compiler may move it among others. */
__device__ __forceinline__ float exp2_or_zero(float x, bool wanted) {
    asm("{\n"
        ".reg .pred wanted;\n"
        "setp.ne.s32 wanted, %1, 0;\n"
        "@wanted ex2.approx.ftz.f32 %0, %0;\n"
        "@!wanted mov.f32 %0, 0f00000000;\n"
        "}"
        : "+f"(x)
        : "r"((int32_t)wanted));
    return x;
}

/* x becomes `infinity` + `finite`, which is -infinity, unless the bit `one` of `bits` is set. It is an addition, not a select,
 * because selects use the unit that also finds the largest numbers. `finite` differs from x to x, so that the compiler does
 * not add once and then select. */
__device__ __forceinline__ void infinity_unless(float &x, uint32_t bits, uint32_t one, float infinity,
                                                float finite) {
    asm("{\n"
        ".reg .b32 found;\n"
        ".reg .pred hidden;\n"
        "and.b32 found, %1, %2;\n"
        "setp.eq.u32 hidden, found, 0;\n"
        "@hidden add.f32 %0, %3, %4;\n"
        "}"
        : "+f"(x)
        : "r"(bits), "r"(one), "f"(infinity), "f"(finite));
}

} // namespace tartan_cuda

#endif
