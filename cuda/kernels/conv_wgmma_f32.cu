/* SPDX-License-Identifier: Apache-2.0
 * The kernels of conv_wgmma.cu for factors of f32. */
#include "kernels/conv_wgmma.cuh"

const void *tartan_cuda::conv_f32_kernel(const tartan_cuda_conv_form *f) {
    ConvKernel kernel;
    if (f->parts == 2)
        kernel = f->units == 2   ? conv<Factor::tf32, 2, 8, 0, 2>
                 : f->rows == 14 ? conv<Factor::tf32, 1, 14, 0, 2>
                                 : conv<Factor::tf32, 1, 16, 0, 2>;
    else
        kernel = f->units == 4   ? conv<Factor::tf32, 4, 8, 0, 1>
                 : f->units == 2 ? conv<Factor::tf32, 2, 16, 0, 1>
                 : f->rows == 28 ? conv<Factor::tf32, 1, 28, 0, 1>
                                 : conv<Factor::tf32, 1, 32, 0, 1>;
    return (const void *)kernel;
}
