/* SPDX-License-Identifier: Apache-2.0 */
#include "device/tensor_map.h"

namespace tartan_cuda {

namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/* The driver's function, since the plug-in links the static runtime only. NULL if the driver is too old. */
Encode find_encode() {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                               cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return nullptr;
    }
    return (Encode)function;
}

CUtensorMapDataType type_of(int32_t dtype) {
    switch (dtype) {
    case TARTAN_F64:
        return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case TARTAN_F32: /* only tf32 products read it: TMA rounds, where they would truncate */
        return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    case TARTAN_F16:
        return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case TARTAN_F8E4M3:
    case TARTAN_F8E5M2:
        return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case TARTAN_I32: /* 32 bits as they are */
        return CU_TENSOR_MAP_DATA_TYPE_INT32;
    default:
        return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    }
}

CUtensorMapSwizzle swizzle_of(int32_t span) {
    return span == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
           : span == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                        : CU_TENSOR_MAP_SWIZZLE_NONE;
}

} // namespace

tartan_status tensor_map_make(const char *function, const Tensor *tensor, CUtensorMap *out) {
    static const Encode encode = find_encode();
    if (encode == nullptr)
        return tartan_cuda_host->fail(TARTAN_ERR_DEVICE, function,
                                      "the CUDA driver has no tensor maps, expected version 12.0 or later");
    cuuint64_t lengths[5], strides[4];
    cuuint32_t box[5], every[5];
    for (int32_t d = 0; d < tensor->ndim; d++) {
        lengths[d] = (cuuint64_t)tensor->lengths[d];
        box[d] = tensor->box[d];
        every[d] = tensor->every[d] > 0 ? tensor->every[d] : 1;
        if (d > 0) strides[d - 1] = (cuuint64_t)(tensor->strides[d] * tartan_cuda_bytes_of(tensor->dtype));
    }
    const CUresult result =
        encode(out, type_of(tensor->dtype), (cuuint32_t)tensor->ndim, const_cast<void *>(tensor->data),
               lengths, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(tensor->span),
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return tartan_cuda_host->fail(TARTAN_ERR_INTERNAL, function,
                                      "the driver refused a tensor map (error %d)", (int)result);
    return TARTAN_OK;
}

} // namespace tartan_cuda
