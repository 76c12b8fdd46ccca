// SPDX-License-Identifier: Apache-2.0
// The run-time side of the plug-in on a real device: queues, memory, graph captures, blocks. Without a device
// there is nothing to test.
#include "device_fixture.h"

#include "backend/operation.h"
#include "blas.h"

#include <cstring>
#include <future>
#include <thread>

using namespace tartan_test;

namespace {

// Keeps the stream busy for that many clocks, then stores a number.
__global__ void store_late(int *to, int value, long long clocks) {
    const long long start = clock64();
    while (clock64() - start < clocks) {
    }
    *to = value;
}

} // namespace

TEST_F(CudaDevice, RefusesBadStreams) {
    tartan_cuda_queue *other = nullptr;
    EXPECT_FAILS(DEVICE, "stream is 0x10, expected a CUDA stream",
                 tartan_cuda_queue_open("test", 0, (void *)0x10, &other));
    EXPECT_EQ(nullptr, other);
}

TEST_F(CudaDevice, UsesTheCallersStream) {
    cudaStream_t own;
    ASSERT_CUDA(cudaStreamCreate(&own));
    for (const cudaStream_t stream : {own, cudaStreamLegacy, cudaStreamPerThread}) {
        tartan_cuda_queue *other = nullptr;
        ASSERT_OK(tartan_cuda_queue_open("test", 0, stream, &other));
        EXPECT_EQ(stream, other->stream);
        Memory m;
        EXPECT_OK(tartan_cuda_memory_allocate("test", other, 8, &m.pointer, &m.owner));
        tartan_cuda_memory_release(m.owner, other);
        tartan_cuda_queue_close(other);
    }
    ASSERT_CUDA(cudaStreamSynchronize(own)); // it is still there
    ASSERT_CUDA(cudaStreamDestroy(own));
}

TEST_F(CudaDevice, CublasIsThereOrSaysWhy) {
    tartan_i_memory_fail_at(0);
    const tartan_status status = tartan_cuda_blas_open("test", queue);
    tartan_i_memory_fail_at(-1);
    EXPECT_EQ(nullptr, queue->blas);
    ASSERT_NE(nullptr, queue->chip.no_cublas);
    ASSERT_OK(tartan_cuda_blas_open("test", queue));
    EXPECT_EQ(queue->blas == nullptr, queue->chip.no_cublas != nullptr);
    EXPECT_EQ(queue->blas == nullptr ? TARTAN_OK : TARTAN_ERR_MEMORY, status);
}

TEST_F(CudaDevice, MemoryOutlivesItsQueue) {
    Memory m;
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &m.pointer, &m.owner));
    store_late<<<1, 1, 0, queue->stream>>>((int *)m.pointer, 7, 100000000);
    tartan_cuda_queue_close(queue); // waits for the work
    queue = nullptr;
    EXPECT_EQ(7, get(m.pointer));
    std::thread(tartan_cuda_memory_release, m.owner, (void *)nullptr).join();
}

// Measured each time anew, but the chip stays what it is.
TEST_F(CudaDevice, SidesAreTheSameEachTime) {
    if (queue->chip.major != 9) GTEST_SKIP() << "not measured on such a chip";
    const tartan_cuda_sides first = queue->sides;
    int32_t others = 0;
    for (int32_t p = 0; p < queue->chip.processors; p++) others += (int32_t)(first.of[p / 32] >> p % 32 & 1);
    if (queue->chip.processors == 132) {
        EXPECT_EQ(2, first.count);
        EXPECT_TRUE(others >= 50 && others <= 82) << others;
    } else if (first.count == 1) {
        EXPECT_EQ(0, others);
    }
    for (int i = 0; i < 20; i++) {
        tartan_cuda_sides again;
        ASSERT_OK(tartan_cuda_measure_sides("test", &queue->chip, &again));
        ASSERT_EQ(first.count, again.count);
        for (int j = 0; j < TARTAN_CUDA_PROCESSORS / 32; j++) ASSERT_EQ(first.of[j], again.of[j]);
    }
}

TEST_F(CudaDevice, TooMuchMemoryIsAnError) {
    Memory m;
    EXPECT_FAILS(MEMORY, "no 1125899906842624 bytes of memory on device cuda:0",
                 tartan_cuda_memory_allocate("test", queue, (int64_t)1 << 50, &m.pointer, &m.owner));
    EXPECT_OK(tartan_cuda_memory_allocate("test", queue, 0, &m.pointer, &m.owner));
    EXPECT_NE(nullptr, m.pointer);
    tartan_cuda_memory_release(m.owner, queue);
}

TEST_F(CudaDevice, KnowsWherePointersPoint) {
    tartan_cuda_current current(0);
    Memory m;
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &m.pointer, &m.owner));
    int here = 0, *pinned = nullptr, *managed = nullptr;
    ASSERT_CUDA(cudaMallocHost(&pinned, sizeof *pinned));
    ASSERT_CUDA(cudaMallocManaged(&managed, sizeof *managed));
    EXPECT_OK(tartan_cuda_check_pointer("test", queue, "b", m.pointer));
    EXPECT_OK(tartan_cuda_check_pointer("test", queue, "b", pinned));
    EXPECT_OK(tartan_cuda_check_pointer("test", queue, "b", managed));
    EXPECT_FAILS(UNSUPPORTED, "b is host memory, expected memory of cuda:0",
                 tartan_cuda_check_pointer("test", queue, "b", &here));
    ASSERT_CUDA(cudaFreeHost(pinned));
    ASSERT_CUDA(cudaFree(managed));
    tartan_cuda_memory_release(m.owner, queue);
}

TEST_F(CudaDevice, CapturesOutliveWhatTheyCannotHave) {
    const Layout known = random_layout({9, 7, 1, 1, 2}, 0.3, 1),
                 fresh = random_layout({9, 7, 1, 1, 2}, 0.3, 2);
    tartan_cuda_row_index lists;
    tartan_cuda_group_index groups;
    Memory kept, freed, none;
    ASSERT_OK(tartan_cuda_index_get_rows("test", queue, known.get(), true, &lists));
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &kept.pointer, &kept.owner));
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &freed.pointer, &freed.owner));

    ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
    EXPECT_OK(tartan_cuda_index_get_rows("test", queue, known.get(), true, &lists));
    EXPECT_FAILS(UNSUPPORTED, "captured in a graph: run the operation once before",
                 tartan_cuda_index_get_rows("test", queue, known.get(), false, &lists));
    EXPECT_FAILS(UNSUPPORTED, "captured",
                 tartan_cuda_index_get_groups("test", queue, fresh.get(), false, 2, &groups));
    EXPECT_FAILS(UNSUPPORTED, "cannot allocate persistent memory during graph capture; allocate before it",
                 tartan_cuda_memory_allocate("test", queue, 4, &none.pointer, &none.owner));
    tartan_cuda_memory_release(freed.owner, queue); // freed after the capture
    void *scratch = nullptr;
    EXPECT_OK(tartan_cuda_scratch("test", queue, 4096, &scratch));
    store_late<<<1, 1, 0, queue->stream>>>((int *)scratch, 1, 0);
    store_late<<<1, 1, 0, queue->stream>>>((int *)kept.pointer, 41, 0);
    tartan_cuda_scratch_free(queue, scratch);
    std::thread([&] { // another thread goes on meanwhile
        tartan_cuda_queue *other = nullptr;
        EXPECT_OK(tartan_cuda_queue_open("test", 0, nullptr, &other));
        EXPECT_OK(tartan_cuda_index_get_rows("test", other, fresh.get(), false, &lists));
        EXPECT_OK(tartan_cuda_memory_allocate("test", other, 100, &none.pointer, &none.owner));
        tartan_cuda_queue_close(other);
        tartan_cuda_memory_release(none.owner, nullptr);
    })
        .join();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) ASSERT_CUDA(cudaGraphLaunch(exec, queue->stream));
    ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
    EXPECT_EQ(41, get(kept.pointer));
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    ASSERT_CUDA(cudaGraphDestroy(graph));

    EXPECT_NE(nullptr, queue->waiting);
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &freed.pointer, &freed.owner));
    EXPECT_EQ(nullptr, queue->waiting);
    tartan_cuda_memory_release(freed.owner, queue);
    tartan_cuda_memory_release(kept.owner, queue);
}

// ---- Order between streams ----

namespace {

// `later` reads what `first` stores late, since it waits.
void expect_waits(tartan_cuda_queue *queue, cudaStream_t later, cudaStream_t first) {
    Memory m;
    int *copy = nullptr;
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &m.pointer, &m.owner));
    ASSERT_CUDA(cudaMalloc(&copy, sizeof *copy));
    ASSERT_CUDA(cudaMemsetAsync(m.pointer, 0, 4, queue->stream));
    ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
    store_late<<<1, 1, 0, first>>>((int *)m.pointer, 7, 100000000);
    tartan_wait wait = TARTAN_WAIT_ON_HOST;
    ASSERT_OK(tartan_cuda_wait("test", 0, later, 0, first, &wait));
    EXPECT_EQ(TARTAN_WAIT_ON_DEVICE, wait);
    EXPECT_EQ(cudaErrorNotReady, cudaStreamQuery(first)) << "the host waited";
    (void)cudaGetLastError(); // not ready is one
    ASSERT_CUDA(cudaMemcpyAsync(copy, m.pointer, 4, cudaMemcpyDeviceToDevice, later));
    ASSERT_CUDA(cudaStreamSynchronize(later));
    int value = 0;
    ASSERT_CUDA(cudaMemcpy(&value, copy, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT_EQ(7, value);
    ASSERT_CUDA(cudaFree(copy));
    ASSERT_CUDA(cudaDeviceSynchronize());
    tartan_cuda_memory_release(m.owner, queue);
}

} // namespace

TEST_F(CudaDevice, StreamsWaitForEachOther) {
    tartan_cuda_current current(0);
    cudaStream_t other;
    ASSERT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (int i = 0; i < 3; i++) expect_waits(queue, other, queue->stream);
    expect_waits(queue, queue->stream, other);
    for (const cudaStream_t stream : {cudaStreamLegacy, cudaStreamPerThread}) {
        expect_waits(queue, other, stream);
        expect_waits(queue, stream, other);
    }
    ASSERT_CUDA(cudaStreamDestroy(other));
}

// The host waits by `drained` for a store on `stream` by another thread, which lives until that is done.
void expect_drained(tartan_cuda_queue *queue, cudaStream_t stream, cudaStream_t drained) {
    Memory m;
    std::promise<void> stored, waited;
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &m.pointer, &m.owner));
    ASSERT_CUDA(cudaMemsetAsync(m.pointer, 0, 4, queue->stream));
    ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
    std::thread other([&] {
        tartan_cuda_current there(0);
        store_late<<<1, 1, 0, stream>>>((int *)m.pointer, 7, 100000000);
        stored.set_value();
        waited.get_future().wait();
    });
    stored.get_future().wait();
    EXPECT_OK(tartan_cuda_drain("test", 0, drained));
    int value = 0;
    EXPECT_EQ(cudaSuccess,
              cudaMemcpyAsync(&value, m.pointer, sizeof value, cudaMemcpyDeviceToHost, queue->stream));
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(queue->stream));
    EXPECT_EQ(7, value);
    waited.set_value();
    other.join();
    tartan_cuda_memory_release(m.owner, queue);
}

TEST_F(CudaDevice, TheHostWaitsForStreams) {
    tartan_cuda_current current(0);
    cudaStream_t other;
    ASSERT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (const cudaStream_t stream : {other, queue->stream, cudaStreamLegacy})
        expect_drained(queue, stream, stream);
    ASSERT_CUDA(cudaStreamDestroy(other));
}

// Another thread's default stream is waited for by way of the legacy one.
TEST_F(CudaDevice, TheHostWaitsForDefaultStreamsOfThreads) {
    tartan_cuda_current current(0);
    expect_drained(queue, cudaStreamPerThread, cudaStreamLegacy);
}

TEST_F(CudaDevice, StreamsWaitInCaptures) {
    tartan_cuda_current current(0);
    cudaStream_t other;
    Memory m;
    tartan_wait wait = TARTAN_WAIT_ON_DEVICE;
    ASSERT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &m.pointer, &m.owner));
    ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
    store_late<<<1, 1, 0, other>>>((int *)m.pointer, 1, 10000000);
    EXPECT_FAILS(UNSUPPORTED, "cannot wait for a stream during its graph capture",
                 tartan_cuda_wait("test", 0, other, 0, queue->stream, &wait));
    EXPECT_FAILS(UNSUPPORTED, "cannot wait for a stream during its graph capture",
                 tartan_cuda_drain("test", 0, queue->stream));
    EXPECT_OK(tartan_cuda_wait("test", 0, queue->stream, 0, other, &wait));
    EXPECT_EQ(TARTAN_WAIT_ON_HOST, wait);
    EXPECT_OK(tartan_cuda_drain("test", 0, other));
    {
        const tartan_cuda_relaxed relaxed; // a global capture forbids even to ask
        EXPECT_EQ(cudaSuccess, cudaStreamQuery(other));
    }
    // Another stream that has joined the capture, and comes back.
    cudaEvent_t fork;
    ASSERT_CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    ASSERT_CUDA(cudaEventRecord(fork, queue->stream));
    ASSERT_CUDA(cudaStreamWaitEvent(other, fork, 0));
    store_late<<<1, 1, 0, other>>>((int *)m.pointer, 2, 10000000);
    EXPECT_OK(tartan_cuda_wait("test", 0, queue->stream, 0, other, &wait));
    store_late<<<1, 1, 0, queue->stream>>>((int *)m.pointer, 3, 0);
    EXPECT_OK(tartan_cuda_wait("test", 0, other, 0, queue->stream, &wait));
    EXPECT_EQ(TARTAN_WAIT_IN_GRAPH, wait);
    EXPECT_OK(tartan_cuda_wait("test", 0, queue->stream, 0, other, &wait));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    ASSERT_CUDA(cudaGraphLaunch(exec, queue->stream));
    ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
    EXPECT_EQ(3, get(m.pointer));
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    ASSERT_CUDA(cudaEventDestroy(fork));
    expect_waits(queue, other, queue->stream); // and after it
    ASSERT_CUDA(cudaStreamDestroy(other));
    tartan_cuda_memory_release(m.owner, queue);
}

// ---- Index sets from masks ----

namespace {

// Values of a host matrix in device memory.
class OnDevice {
  public:
    OnDevice(const tartan_matrix *m, bool filled) {
        bytes = (size_t)(m->layout->blocks * tartan_i_block_elements(m) * tartan_dtype_bytes(m->dtype));
        EXPECT_EQ(cudaSuccess, cudaMalloc(&matrix.values, bytes + 1));
        EXPECT_EQ(cudaSuccess, filled ? cudaMemcpy(matrix.values, m->values, bytes, cudaMemcpyHostToDevice)
                                      : cudaMemset(matrix.values, 0xff, bytes));
        EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize()); // the queue's stream does not wait for it
        matrix.dtype = m->dtype, matrix.block_order = m->block_order, matrix.layout = m->layout;
    }
    ~OnDevice() { cudaFree(matrix.values); }
    void expect_values_of(const tartan_matrix *m) const {
        std::vector<char> got(bytes);
        ASSERT_CUDA(cudaMemcpy(got.data(), matrix.values, bytes, cudaMemcpyDeviceToHost));
        EXPECT_EQ(0, memcmp(got.data(), m->values, bytes));
    }
    tartan_matrix matrix = {};
    size_t bytes;
};

} // namespace

TEST_F(CudaDevice, BlocksAreCastGatheredAndMeasured) {
    const Context context = open_context();
    const int32_t dtypes[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16};
    std::mt19937_64 random(11);
    for (int i = 0; i < 48; i++) {
        const int64_t edge = (int64_t)1 << random() % 6, other = 1 + (int64_t)(random() % 20);
        const Layout layout = random_layout({97, 121, edge, i % 2 ? edge : other, 1}, 0.4, (uint64_t)i);
        tartan_matrix *raw = nullptr;
        ASSERT_OK(tartan_matrix_create(layout.get(), dtypes[i % 4], i / 4 % 2, &raw));
        const Matrix from(raw);
        ASSERT_OK(tartan_matrix_fill_normal(context.get(), from.get(), 1, i));
        ASSERT_OK(tartan_matrix_cast(context.get(), from.get(), dtypes[i / 4 % 4], i / 8 % 2, &raw));
        const Matrix cast(raw);
        OnDevice there(from.get(), true), got(cast.get(), false);
        tartan_op_block_copy copy = {};
        copy.to = &got.matrix, copy.from = &there.matrix;
        ASSERT_OK(tartan_cuda_block_copy_plain("test", queue, &copy));
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        got.expect_values_of(cast.get());
        ASSERT_OK(tartan_matrix_transpose(context.get(), from.get(), &raw));
        const Matrix transposed(raw);
        std::vector<int64_t> sources((size_t)layout->blocks); // block i of the transpose: column lists
        const tartan_i_columns *columns = nullptr;
        ASSERT_OK(tartan_i_layout_columns(layout.get(), &columns));
        std::copy_n(columns->ids, layout->blocks, sources.begin());
        int64_t *sources_there = nullptr;
        ASSERT_CUDA(cudaMalloc(&sources_there, sources.size() * sizeof(int64_t) + 1));
        ASSERT_CUDA(cudaMemcpy(sources_there, sources.data(), sources.size() * sizeof(int64_t),
                               cudaMemcpyHostToDevice));
        ASSERT_CUDA(cudaDeviceSynchronize());
        OnDevice result(transposed.get(), false);
        copy.to = &result.matrix, copy.sources = sources_there, copy.transpose = true;
        ASSERT_OK(tartan_cuda_block_copy_plain("test", queue, &copy));
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        result.expect_values_of(transposed.get());
        ASSERT_CUDA(cudaFree(sources_there));
        std::vector<double> norms((size_t)layout->blocks), norms_got((size_t)layout->blocks);
        ASSERT_OK(tartan_matrix_block_norms(context.get(), from.get(), TARTAN_NORM_MAX, norms.data(),
                                            layout->blocks));
        double *norms_there = nullptr;
        ASSERT_CUDA(cudaMalloc(&norms_there, norms.size() * sizeof(double) + 1));
        tartan_array norms_array = {};
        norms_array.data = norms_there;
        tartan_op_block_norms measure = {};
        measure.matrix = &there.matrix, measure.norm = TARTAN_NORM_MAX, measure.norms = &norms_array;
        ASSERT_OK(tartan_cuda_block_norms_plain("test", queue, &measure));
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        ASSERT_CUDA(
            cudaMemcpy(norms_got.data(), norms_there, norms.size() * sizeof(double), cudaMemcpyDeviceToHost));
        EXPECT_EQ(norms, norms_got);
        ASSERT_CUDA(cudaFree(norms_there));
    }
}
