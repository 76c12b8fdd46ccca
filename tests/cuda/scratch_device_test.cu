// SPDX-License-Identifier: Apache-2.0
// What a queue keeps from one operation to the next, on a real device.
#include "device_fixture.h"

using namespace tartan_test;

namespace {

__global__ void store(int *to, int value) {
    *to = value;
}

} // namespace

// One operation after the other uses the scratch memory that the queue keeps, in graphs too; others get their own. In a
// capture there is none to keep.
TEST_F(CudaDevice, SmallScratchMemoryIsKept) {
    void *first = nullptr, *second = nullptr, *again = nullptr, *large = nullptr, *captured = nullptr;
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
    EXPECT_OK(tartan_cuda_scratch("test", queue, 4096, &captured));
    EXPECT_EQ(nullptr, queue->scratch);
    tartan_cuda_scratch_free(queue, captured);
    ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    ASSERT_OK(tartan_cuda_scratch("test", queue, 4096, &first));
    ASSERT_OK(tartan_cuda_scratch("test", queue, 4096, &second));
    EXPECT_NE(first, second);
    tartan_cuda_scratch_free(queue, first);
    ASSERT_OK(tartan_cuda_scratch("test", queue, 16 << 20, &again));
    EXPECT_EQ(first, again);
    tartan_cuda_scratch_free(queue, again);
    ASSERT_OK(tartan_cuda_scratch("test", queue, (16 << 20) + 1, &large));
    EXPECT_NE(first, large);
    tartan_cuda_scratch_free(queue, large);
    tartan_cuda_scratch_free(queue, second);
    ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
    EXPECT_OK(tartan_cuda_scratch("test", queue, 4096, &captured));
    EXPECT_EQ(first, captured);
    tartan_cuda_scratch_free(queue, captured);
    ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    ASSERT_OK(tartan_cuda_scratch("test", queue, 0, &again));
    EXPECT_EQ(first, again);
    tartan_cuda_scratch_free(queue, again);
}

// The default stream of threads is another one in each, so there is no order to rely on.
TEST_F(CudaDevice, ScratchMemoryOfThreadsStreamsIsNotKept) {
    tartan_cuda_queue *threads = nullptr;
    ASSERT_OK(tartan_cuda_queue_open("test", 0, cudaStreamPerThread, &threads));
    void *pointer = nullptr;
    EXPECT_OK(tartan_cuda_scratch("test", threads, 4096, &pointer));
    EXPECT_EQ(nullptr, threads->scratch);
    tartan_cuda_scratch_free(threads, pointer);
    tartan_cuda_queue_close(threads);
}

TEST_F(CudaDevice, SharedMemoryIsAskedForOnce) {
    const void *kernel = (const void *)store;
    ASSERT_OK(tartan_cuda_allow_shared("test", queue, kernel, 100 << 10));
    ASSERT_OK(tartan_cuda_allow_shared("test", queue, kernel, 100 << 10));
    EXPECT_EQ(1, queue->ready_count);
    cudaFuncAttributes attributes = {};
    ASSERT_CUDA(cudaFuncGetAttributes(&attributes, kernel));
    EXPECT_EQ(100 << 10, attributes.maxDynamicSharedSizeBytes);
    EXPECT_FAILS(DEVICE, "setting the kernel's shared memory",
                 tartan_cuda_allow_shared("test", queue, (const void *)&queue, 100 << 10));
    EXPECT_EQ(1, queue->ready_count);
}
