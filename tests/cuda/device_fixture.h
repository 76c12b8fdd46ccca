// SPDX-License-Identifier: Apache-2.0
// What the tests of the run-time side share: a queue on a real device; without one they are skipped.
#ifndef TARTAN_TESTS_CUDA_DEVICE_FIXTURE_H
#define TARTAN_TESTS_CUDA_DEVICE_FIXTURE_H

#include <cuda_runtime.h>

extern "C" {
#include "core/memory.h"
#include "layout/plans.h"
#include "matrix/matrix.h"
}
#include "device_memory.h"
#include "index_cache.h"
#include "index_dynamic.h"
#include "support.h"

#define ASSERT_CUDA(call) ASSERT_EQ(cudaSuccess, (call)) << cudaGetErrorString(cudaGetLastError())

namespace tartan_test {

class CudaDevice : public ::testing::Test {
  protected:
    void SetUp() override {
        int count = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no device";
        tartan_cuda_host = &tartan_i_host;
        live = tartan_i_memory_live();
        ASSERT_CUDA(cudaSetDevice(0));
        ASSERT_OK(tartan_cuda_queue_open("test", 0, nullptr, &queue));
    }
    void TearDown() override {
        if (queue != nullptr) tartan_cuda_queue_close(queue);
        if (IsSkipped()) return;
        EXPECT_EQ(live, tartan_i_memory_live());
        EXPECT_EQ(cudaSuccess, cudaGetLastError());
    }
    int get(const void *from) {
        int value = 0;
        EXPECT_EQ(cudaSuccess, cudaMemcpy(&value, from, sizeof value, cudaMemcpyDeviceToHost));
        return value;
    }
    tartan_cuda_queue *queue = nullptr;
    int64_t live = 0;
};

struct Memory {
    void *pointer = nullptr, *owner = nullptr;
};

} // namespace tartan_test

#endif
