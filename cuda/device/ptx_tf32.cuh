/* SPDX-License-Identifier: Apache-2.0
 * wgmma of tf32 whose left factor comes from registers, in tiles of 64 x 64 to 128, or from shared memory, of 64 x 32 to 256. Source: PTX ISA 9.0, section "wgmma".
 * Only code for sm_90a may call them. */
#ifndef TARTAN_CUDA_PTX_TF32_CUH
#define TARTAN_CUDA_PTX_TF32_CUH

#include "device/ptx.cuh"

namespace tartan_cuda {

/* The bits of the number of tf32 that is nearest to x. */
__device__ __forceinline__ uint32_t near_tf32(float x) {
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

/* The left factor of a 64 x 8 product in a warpgroup's registers: f32, of which the instruction takes the bits of tf32. For
 * lane l of warp w, x[0] and x[2] are in row 16 w + l / 4, x[1] and x[3] 8 rows further; x[0] and x[1] are at k l % 4, x[2]
 * and x[3] at k l % 4 + 4. */
struct Factors {
    uint32_t x[4];
};

#define TARTAN_OUT_4(i)   "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TARTAN_OUT_16(i)  TARTAN_OUT_4(i), TARTAN_OUT_4(i + 4), TARTAN_OUT_4(i + 8), TARTAN_OUT_4(i + 12)
#define TARTAN_OUT_32(i)  TARTAN_OUT_16(i), TARTAN_OUT_16(i + 16)
#define TARTAN_OUT_36(i)  TARTAN_OUT_32(i), TARTAN_OUT_4(i + 32)
#define TARTAN_OUT_40(i)  TARTAN_OUT_36(i), TARTAN_OUT_4(i + 36)
#define TARTAN_OUT_44(i)  TARTAN_OUT_40(i), TARTAN_OUT_4(i + 40)
#define TARTAN_OUT_48(i)  TARTAN_OUT_44(i), TARTAN_OUT_4(i + 44)
#define TARTAN_OUT_52(i)  TARTAN_OUT_48(i), TARTAN_OUT_4(i + 48)
#define TARTAN_OUT_56(i)  TARTAN_OUT_52(i), TARTAN_OUT_4(i + 52)
#define TARTAN_OUT_60(i)  TARTAN_OUT_56(i), TARTAN_OUT_4(i + 56)
#define TARTAN_OUT_64(i)  TARTAN_OUT_60(i), TARTAN_OUT_4(i + 60)
#define TARTAN_OUT_112(i) TARTAN_OUT_64(i), TARTAN_OUT_48(i + 64)
#define TARTAN_AT_16      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TARTAN_AT_32                                                                                         \
    TARTAN_AT_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TARTAN_AT_36 TARTAN_AT_32 ", %32, %33, %34, %35"
#define TARTAN_AT_40 TARTAN_AT_36 ", %36, %37, %38, %39"
#define TARTAN_AT_44 TARTAN_AT_40 ", %40, %41, %42, %43"
#define TARTAN_AT_48 TARTAN_AT_44 ", %44, %45, %46, %47"
#define TARTAN_AT_52 TARTAN_AT_48 ", %48, %49, %50, %51"
#define TARTAN_AT_56 TARTAN_AT_52 ", %52, %53, %54, %55"
#define TARTAN_AT_60 TARTAN_AT_56 ", %56, %57, %58, %59"
#define TARTAN_AT_64 TARTAN_AT_60 ", %60, %61, %62, %63"
#define TARTAN_AT_112                                                                                        \
    TARTAN_AT_64                                                                                             \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, "      \
    "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, "      \
    "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define TARTAN_WGMMA_TF32(width, sums, x0, x1, x2, x3, matrix, keep_at, outputs)                             \
    asm volatile("{\n"                                                                                       \
                 ".reg .pred keep;\n"                                                                        \
                 "setp.ne.b32 keep, " keep_at ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" width "k8.f32.tf32.tf32 {" sums "}, "                   \
                 "{" x0 ", " x1 ", " x2 ", " x3 "}, " matrix ", keep, 1, 1;\n"                               \
                 "}"                                                                                         \
                 : outputs                                                                                   \
                 : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "r"(keep))

/* Part kTile of d = a b + (keep ? d : 0): 64 x kCols of f32, a in registers, b in shared memory, K-major. */
template <int kCols, int kTile, int kSums>
__device__ __forceinline__ void wgmma_tf32(float (&d)[kSums], const Factors &a, uint64_t b, int32_t keep) {
    constexpr int at = kTile * kCols / 2;
    static_assert(at + kCols / 2 <= kSums, "sums of a product");
    if constexpr (kCols == 64) {
        TARTAN_WGMMA_TF32("64", TARTAN_AT_32, "%32", "%33", "%34", "%35", "%36", "%37", TARTAN_OUT_32(at));
    } else if constexpr (kCols == 72) {
        TARTAN_WGMMA_TF32("72", TARTAN_AT_36, "%36", "%37", "%38", "%39", "%40", "%41", TARTAN_OUT_36(at));
    } else if constexpr (kCols == 80) {
        TARTAN_WGMMA_TF32("80", TARTAN_AT_40, "%40", "%41", "%42", "%43", "%44", "%45", TARTAN_OUT_40(at));
    } else if constexpr (kCols == 88) {
        TARTAN_WGMMA_TF32("88", TARTAN_AT_44, "%44", "%45", "%46", "%47", "%48", "%49", TARTAN_OUT_44(at));
    } else if constexpr (kCols == 96) {
        TARTAN_WGMMA_TF32("96", TARTAN_AT_48, "%48", "%49", "%50", "%51", "%52", "%53", TARTAN_OUT_48(at));
    } else if constexpr (kCols == 104) {
        TARTAN_WGMMA_TF32("104", TARTAN_AT_52, "%52", "%53", "%54", "%55", "%56", "%57", TARTAN_OUT_52(at));
    } else if constexpr (kCols == 112) {
        TARTAN_WGMMA_TF32("112", TARTAN_AT_56, "%56", "%57", "%58", "%59", "%60", "%61", TARTAN_OUT_56(at));
    } else if constexpr (kCols == 120) {
        TARTAN_WGMMA_TF32("120", TARTAN_AT_60, "%60", "%61", "%62", "%63", "%64", "%65", TARTAN_OUT_60(at));
    } else {
        static_assert(kCols == 128, "there is no other width");
        TARTAN_WGMMA_TF32("128", TARTAN_AT_64, "%64", "%65", "%66", "%67", "%68", "%69", TARTAN_OUT_64(at));
    }
}

#define TARTAN_SHARED_TF32(width, sums, a_at, b_at, keep_at, outputs)                                        \
    asm volatile("{\n"                                                                                       \
                 ".reg .pred keep;\n"                                                                        \
                 "setp.ne.b32 keep, " keep_at ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" width "k8.f32.tf32.tf32 {" sums "}, " a_at ", " b_at    \
                 ", keep, 1, 1;\n"                                                                           \
                 "}"                                                                                         \
                 : outputs                                                                                   \
                 : "l"(a), "l"(b), "r"(keep))

/* Part kTile of d = a b + (keep ? d : 0): a is 64 x 8, b is 8 x kCols, both in shared memory, K-major, by descriptors. */
template <int kCols, int kTile = 0, int kSums>
__device__ __forceinline__ void wgmma_tf32_shared(float (&d)[kSums], uint64_t a, uint64_t b, int32_t keep) {
    constexpr int at = kTile * kCols / 2;
    static_assert(at + kCols / 2 <= kSums, "sums of a product");
    if constexpr (kCols == 32) {
        TARTAN_SHARED_TF32("32", TARTAN_AT_16, "%16", "%17", "%18", TARTAN_OUT_16(at));
    } else if constexpr (kCols == 64) {
        TARTAN_SHARED_TF32("64", TARTAN_AT_32, "%32", "%33", "%34", TARTAN_OUT_32(at));
    } else if constexpr (kCols == 112) {
        TARTAN_SHARED_TF32("112", TARTAN_AT_56, "%56", "%57", "%58", TARTAN_OUT_56(at));
    } else if constexpr (kCols == 128) {
        TARTAN_SHARED_TF32("128", TARTAN_AT_64, "%64", "%65", "%66", TARTAN_OUT_64(at));
    } else if constexpr (kCols == 224) {
        TARTAN_SHARED_TF32("224", TARTAN_AT_112, "%112", "%113", "%114", TARTAN_OUT_112(at));
    } else {
        static_assert(kCols == 256 && kSums == 128, "there is no other width");
        wgmma_256<Factor::tf32, 0, 0>(d, a, b, keep);
    }
}

#undef TARTAN_SHARED_TF32
#undef TARTAN_WGMMA_TF32
#undef TARTAN_AT_112
#undef TARTAN_AT_64
#undef TARTAN_AT_60
#undef TARTAN_AT_56
#undef TARTAN_AT_52
#undef TARTAN_AT_48
#undef TARTAN_AT_44
#undef TARTAN_AT_40
#undef TARTAN_AT_36
#undef TARTAN_AT_32
#undef TARTAN_AT_16
#undef TARTAN_OUT_112
#undef TARTAN_OUT_64
#undef TARTAN_OUT_60
#undef TARTAN_OUT_56
#undef TARTAN_OUT_52
#undef TARTAN_OUT_48
#undef TARTAN_OUT_44
#undef TARTAN_OUT_40
#undef TARTAN_OUT_36
#undef TARTAN_OUT_32
#undef TARTAN_OUT_16
#undef TARTAN_OUT_4

} // namespace tartan_cuda

#endif
