/* SPDX-License-Identifier: Apache-2.0
 * The measured peak of the CPU, which rates are held against. */
#include "backend/cpu.h"

tartan_status tartan_context_peak(tartan_context *context, int32_t dtype, double *out_gflops) {
    CHECK_HANDLE(context, CONTEXT, "context");
    CHECK(out_gflops != NULL, HANDLE, "out_gflops is NULL, expected a pointer for the result");
    CHECK(dtype == TARTAN_F64 || dtype == TARTAN_F32 || dtype == TARTAN_F16 || dtype == TARTAN_BF16, DTYPE,
          "dtype is %d, expected %d (float64), %d (float32), %d (float16) or %d (bfloat16)", dtype,
          TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16);
    const tartan_i_kernels kernels = tartan_i_cpu_product_kernels(dtype, NULL);
    PASS(tartan_i_context_enter(__func__, context));
    *out_gflops = tartan_i_product_peak(&kernels.product);
    tartan_i_context_leave(context);
    return TARTAN_OK;
}
