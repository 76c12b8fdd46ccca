// SPDX-License-Identifier: Apache-2.0
// The run-time side of the plug-in on a real device: queues, memory, graph captures, index sets. Without a device
// there is nothing to test.
#include <cuda_runtime.h>

extern "C" {
#include "core/memory.h"
#include "layout/plans.h"
#include "matrix/matrix.h"
}
#include "blas.h"
#include "layout.h"
#include "support.h"

#include <algorithm>
#include <cstring>
#include <thread>

using namespace tartan_test;

namespace {

#define ASSERT_CUDA(call) ASSERT_EQ(cudaSuccess, (call)) << cudaGetErrorString(cudaGetLastError())

// Keeps the stream busy for that many clocks, then stores a number.
__global__ void store_late(int *to, int value, long long clocks) {
    const long long start = clock64();
    while (clock64() - start < clocks) {
    }
    *to = value;
}

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

} // namespace

TEST_F(CudaDevice, RefusesBadStreams) {
    tartan_cuda_queue *other = nullptr;
    EXPECT_FAILS(DEVICE, "options->stream is 0x10, expected a CUDA stream",
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
        tartan_cuda_memory_release(m.owner);
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
    std::thread(tartan_cuda_memory_release, m.owner).join();
}

TEST_F(CudaDevice, TooMuchMemoryIsAnError) {
    Memory m;
    EXPECT_FAILS(MEMORY, "no 1125899906842624 bytes of memory on device cuda:0",
                 tartan_cuda_memory_allocate("test", queue, (int64_t)1 << 50, &m.pointer, &m.owner));
    EXPECT_OK(tartan_cuda_memory_allocate("test", queue, 0, &m.pointer, &m.owner));
    EXPECT_NE(nullptr, m.pointer);
    tartan_cuda_memory_release(m.owner);
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
    tartan_cuda_memory_release(m.owner);
}

TEST_F(CudaDevice, CapturesOutliveWhatTheyCannotHave) {
    const Layout known = random_layout({9, 7, 1, 1, 2}, 0.3, 1),
                 fresh = random_layout({9, 7, 1, 1, 2}, 0.3, 2);
    tartan_cuda_lists lists;
    tartan_cuda_unions unions;
    Memory kept, freed, none;
    ASSERT_OK(tartan_cuda_lists_get("test", queue, known.get(), true, &lists));
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &kept.pointer, &kept.owner));
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 4, &freed.pointer, &freed.owner));

    ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
    EXPECT_OK(tartan_cuda_lists_get("test", queue, known.get(), true, &lists));
    EXPECT_FAILS(UNSUPPORTED, "captured in a graph: do the operation once before",
                 tartan_cuda_lists_get("test", queue, known.get(), false, &lists));
    EXPECT_FAILS(UNSUPPORTED, "captured",
                 tartan_cuda_unions_get("test", queue, fresh.get(), false, 2, &unions));
    EXPECT_FAILS(UNSUPPORTED, "captured",
                 tartan_cuda_memory_allocate("test", queue, 4, &none.pointer, &none.owner));
    tartan_cuda_memory_release(freed.owner); // given back after the capture
    void *scratch = nullptr;
    EXPECT_OK(tartan_cuda_scratch("test", queue, 4096, &scratch));
    store_late<<<1, 1, 0, queue->stream>>>((int *)scratch, 1, 0);
    store_late<<<1, 1, 0, queue->stream>>>((int *)kept.pointer, 41, 0);
    tartan_cuda_scratch_free(queue, scratch);
    std::thread([&] { // another thread goes on meanwhile
        tartan_cuda_queue *other = nullptr;
        EXPECT_OK(tartan_cuda_queue_open("test", 0, nullptr, &other));
        EXPECT_OK(tartan_cuda_lists_get("test", other, fresh.get(), false, &lists));
        EXPECT_OK(tartan_cuda_memory_allocate("test", other, 100, &none.pointer, &none.owner));
        tartan_cuda_queue_close(other);
        tartan_cuda_memory_release(none.owner);
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
    tartan_cuda_memory_release(freed.owner);
    tartan_cuda_memory_release(kept.owner);
}

// ---- Index sets from masks ----

namespace {

std::vector<int32_t> fetched(const int32_t *from, int64_t count) {
    std::vector<int32_t> values((size_t)count);
    EXPECT_EQ(cudaSuccess,
              cudaMemcpy(values.data(), from, (size_t)count * sizeof *from, cudaMemcpyDeviceToHost));
    return values;
}

// Poisoned room on the device for some index sets.
struct Indexes {
    std::vector<tartan_cuda_index> all;
    std::vector<void *> memory;
    int32_t *blocks = room(1);

    int32_t *room(int64_t count) {
        void *at = nullptr;
        EXPECT_EQ(cudaSuccess, cudaMalloc(&at, (size_t)(count + 1) * sizeof(int32_t)));
        EXPECT_EQ(cudaSuccess, cudaMemset(at, 0xee, (size_t)(count + 1) * sizeof(int32_t)));
        memory.push_back(at);
        return (int32_t *)at;
    }
    void add(const tartan_shape &shape, int64_t capacity, bool by_columns, int32_t group) {
        const int64_t lines = by_columns ? shape.cols : shape.rows, each = std::max(group, 1);
        const int64_t groups = shape.heads * grid(lines, each);
        tartan_cuda_index index = {by_columns, group, room(groups + 1), room(capacity), nullptr, nullptr};
        if (by_columns || group > 0) index.ids = room(capacity * each);
        if (group > 0) index.order = room(groups);
        all.push_back(index);
    }
    ~Indexes() {
        for (void *at : memory) (void)cudaFree(at);
    }
};

void expect_same(const int32_t *device, const int32_t *plan, int64_t count) {
    const std::vector<int32_t> values = fetched(device, count);
    for (int64_t i = 0; i < count; i++) ASSERT_EQ(plan[i], values[(size_t)i]) << i;
}

// Whether the index set, or its first lists, is that of the plan.
void check(const tartan_layout *l, const tartan_cuda_index &index) {
    const bool columns = index.by_columns;
    if (index.group == 0) {
        tartan_cuda_lists_plan plan;
        ASSERT_OK(tartan_cuda_plan_lists(&tartan_i_host, l, columns, &plan));
        const int64_t lines =
            tartan_layout_heads(l) * (columns ? tartan_layout_grid_cols(l) : tartan_layout_grid_rows(l));
        expect_same(index.pointers, plan.values + plan.pointers, lines + 1);
        expect_same(index.cols, plan.values + plan.cols, tartan_layout_blocks(l));
        if (index.ids != nullptr) expect_same(index.ids, plan.values + plan.ids, tartan_layout_blocks(l));
        tartan_i_host.free(plan.values);
        return;
    }
    tartan_cuda_unions_plan plan;
    ASSERT_OK(tartan_cuda_plan_unions(&tartan_i_host, l, columns, index.group, &plan));
    const int64_t groups = tartan_layout_heads(l) * plan.groups_per_head;
    expect_same(index.pointers, plan.values + plan.pointers, groups + 1);
    expect_same(index.cols, plan.values + plan.cols, plan.entries);
    expect_same(index.ids, plan.values + plan.ids, plan.entries * index.group);
    expect_same(index.order, plan.values + plan.order, groups);
    tartan_i_host.free(plan.values);
}

// What a mask with more blocks than there is room for leaves.
void expect_none(const tartan_shape &shape, const tartan_cuda_index &index) {
    const int64_t lines = index.by_columns ? shape.cols : shape.rows;
    const int64_t groups = shape.heads * grid(lines, std::max(index.group, 1));
    for (const int32_t pointer : fetched(index.pointers, groups + 1)) ASSERT_EQ(0, pointer);
}

} // namespace

TEST_F(CudaDevice, MasksGiveTheIndexSetsOfThePlans) {
    std::mt19937_64 random(7);
    const double densities[] = {0, 0.02, 0.3, 0.9, 1};
    for (int i = 0; i < 60 && !HasFailure(); i++) {
        const tartan_shape shape = {(int64_t)(random() % 150),
                                    (int64_t)(random() % (i % 10 == 0 ? 3000 : 150)), 1, 1,
                                    (int64_t)(1 + random() % 4)};
        const double density = densities[random() % 5];
        std::vector<uint8_t> mask((size_t)(shape.heads * shape.rows * shape.cols));
        for (auto &m : mask)
            m = std::generate_canonical<double, 32>(random) < density ? (uint8_t)(1 + random() % 255) : 0;
        const Layout l = from_mask(shape, mask);
        const int64_t blocks = tartan_layout_blocks(l.get()),
                      capacity = i % 4 == 3 ? blocks / 2 : blocks + i % 3;
        Indexes indexes;
        indexes.add(shape, capacity, false, 0);
        indexes.add(shape, capacity, true, 0);
        indexes.add(shape, capacity, false, 1 << random() % 6);
        indexes.add(shape, capacity, true, 1 << random() % 6);
        uint8_t *bytes = (uint8_t *)indexes.room((int64_t)mask.size() / 4 + 4) + i % 5;
        ASSERT_CUDA(cudaMemcpy(bytes, mask.data(), mask.size(), cudaMemcpyHostToDevice));
        const tartan_cuda_mask on_device = {bytes, (int32_t)shape.heads, (int32_t)shape.rows,
                                            (int32_t)shape.cols};
        ASSERT_OK(tartan_cuda_index_mask("test", queue, &on_device, (int32_t)capacity, indexes.all.data(),
                                         (int32_t)indexes.all.size(), indexes.blocks));
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        EXPECT_EQ(blocks, fetched(indexes.blocks, 1)[0]);
        for (const auto &index : indexes.all)
            if (capacity >= blocks)
                check(l.get(), index);
            else
                expect_none(shape, index);
    }
}

// A mask, and a layout of it whose sets are asked for one by one: each is made without its mask, and again with the next.
TEST_F(CudaDevice, SetsFollowTheMask) {
    std::mt19937_64 random(9);
    const tartan_shape shape = {75, 130, 1, 1, 3};
    const size_t positions = 3 * 75 * 130;
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_i_layout_new_dynamic("test", &shape, (int64_t)positions / 2, TARTAN_CUDA, 0, &raw));
    const Layout layout(raw);
    ASSERT_OK(tartan_cuda_sets_create("test", queue, raw, &raw->sets));
    raw->release_sets = tartan_cuda_sets_release;
    Memory bytes;
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, (int64_t)positions, &bytes.pointer, &bytes.owner));
    std::vector<std::pair<bool, int32_t>> wanted; // direction, group
    cudaGraphExec_t exec = nullptr;
    for (int step = 0; step < 20 && !HasFailure(); step++) {
        const double density = step % 7 == 6 ? 0.9 : 0.05 * (step % 7); // 0.9 is too much
        std::vector<uint8_t> mask(positions);
        for (auto &m : mask) m = std::generate_canonical<double, 32>(random) < density;
        const Layout l = from_mask(shape, mask);
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        ASSERT_CUDA(cudaMemcpy(bytes.pointer, mask.data(), positions, cudaMemcpyHostToDevice));
        if (step == 14) { // all are wanted: from here on the same work, captured
            cudaGraph_t graph;
            ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
            EXPECT_OK(tartan_cuda_sets_plan("test", queue, raw->sets, bytes.pointer));
            tartan_cuda_unions unions;
            EXPECT_OK(tartan_cuda_unions_get("test", queue, raw, true, 32, &unions));
            ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
            ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
            ASSERT_CUDA(cudaGraphDestroy(graph));
        }
        if (exec != nullptr)
            ASSERT_CUDA(cudaGraphLaunch(exec, queue->stream));
        else
            ASSERT_OK(tartan_cuda_sets_plan("test", queue, raw->sets, bytes.pointer));
        ASSERT_CUDA(cudaMemsetAsync(bytes.pointer, 1, positions, queue->stream)); // nobody reads it later
        if (step < 14) wanted.push_back({step % 2 == 1, step < 2 ? 0 : 1 << (step / 2 - 1)});
        for (const auto &one : wanted) {
            tartan_cuda_index index = {one.first, one.second, nullptr, nullptr, nullptr, nullptr};
            tartan_cuda_lists lists;
            tartan_cuda_unions unions;
            if (one.second == 0) {
                ASSERT_OK(tartan_cuda_lists_get("test", queue, raw, one.first, &lists));
                index.pointers = (int32_t *)lists.pointers, index.cols = (int32_t *)lists.cols;
                index.ids = (int32_t *)lists.ids;
            } else {
                ASSERT_OK(tartan_cuda_unions_get("test", queue, raw, one.first, one.second, &unions));
                index.pointers = (int32_t *)unions.pointers, index.cols = (int32_t *)unions.cols;
                index.ids = (int32_t *)unions.ids, index.order = (int32_t *)unions.order;
            }
            ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
            if (density < 0.5)
                check(l.get(), index);
            else
                expect_none(shape, index);
        }
        int64_t blocks = 0;
        std::vector<int64_t> pointers(3 * 75 + 1);
        std::vector<int32_t> cols(positions);
        ASSERT_OK(tartan_cuda_sets_fetch("test", queue, raw->sets, &blocks, pointers.data(), cols.data()));
        EXPECT_EQ(tartan_layout_blocks(l.get()), blocks);
        EXPECT_EQ(density < 0.5 ? blocks : 0, pointers.back());
    }
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    tartan_cuda_memory_release(bytes.owner);
}

TEST_F(CudaDevice, NewSetsAreNotCaptured) {
    const tartan_shape shape = {8, 8, 1, 1, 1};
    tartan_layout *raw = nullptr;
    void *none = nullptr;
    ASSERT_OK(tartan_i_layout_new_dynamic("test", &shape, 64, TARTAN_CUDA, 0, &raw));
    const Layout layout(raw);
    Memory bytes;
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 64, &bytes.pointer, &bytes.owner));
    ASSERT_OK(tartan_cuda_sets_create("test", queue, raw, &raw->sets));
    raw->release_sets = tartan_cuda_sets_release;
    ASSERT_OK(tartan_cuda_sets_plan("test", queue, raw->sets, bytes.pointer));
    tartan_cuda_lists lists;
    ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
    EXPECT_OK(tartan_cuda_lists_get("test", queue, raw, false, &lists));
    EXPECT_FAILS(UNSUPPORTED, "captured in a graph: do the operation once before",
                 tartan_cuda_lists_get("test", queue, raw, true, &lists));
    EXPECT_FAILS(UNSUPPORTED, "captured", tartan_cuda_sets_create("test", queue, raw, &none));
    cudaGraph_t graph;
    ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    EXPECT_OK(tartan_cuda_lists_get("test", queue, raw, true, &lists));
    const tartan_shape large = {1 << 20, 1 << 20, 1, 1, 1};
    tartan_layout *too_large = nullptr;
    ASSERT_OK(tartan_i_layout_new_dynamic("test", &large, 64, TARTAN_CUDA, 0, &too_large));
    EXPECT_FAILS(UNSUPPORTED, "1048576 x 1048576 positions, expected fewer than 2^31 in all",
                 tartan_cuda_sets_create("test", queue, too_large, &none));
    tartan_layout_free(too_large);
    tartan_cuda_memory_release(bytes.owner);
}

namespace {

// Values of a host matrix in device memory.
class OnDevice {
  public:
    OnDevice(const tartan_matrix *m, bool filled) {
        bytes = (size_t)(m->layout->blocks * tartan_i_block_elements(m) * tartan_dtype_bytes(m->dtype));
        EXPECT_EQ(cudaSuccess, cudaMalloc(&blocks.values, bytes + 1));
        EXPECT_EQ(cudaSuccess, filled ? cudaMemcpy(blocks.values, m->values, bytes, cudaMemcpyHostToDevice)
                                      : cudaMemset(blocks.values, 0xff, bytes));
        blocks.dtype = m->dtype, blocks.order = m->block_order, blocks.layout = m->layout;
    }
    ~OnDevice() { cudaFree(blocks.values); }
    void expect_values_of(const tartan_matrix *m) const {
        std::vector<char> got(bytes);
        ASSERT_CUDA(cudaMemcpy(got.data(), blocks.values, bytes, cudaMemcpyDeviceToHost));
        EXPECT_EQ(0, memcmp(got.data(), m->values, bytes));
    }
    tartan_cuda_blocks blocks = {};
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
        const OnDevice there(from.get(), true), got(cast.get(), false);
        ASSERT_OK(tartan_cuda_blocks_cast("test", queue, &got.blocks, &there.blocks));
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        got.expect_values_of(cast.get());
        ASSERT_OK(tartan_matrix_transpose(context.get(), from.get(), &raw));
        const Matrix turned(raw);
        std::vector<int64_t> sources((size_t)layout->blocks); // block i of the transpose: column lists
        for (int64_t b = 0; b < layout->blocks; b++) sources[(size_t)b] = layout->col_ids[b];
        int64_t *sources_there = nullptr;
        ASSERT_CUDA(cudaMalloc(&sources_there, sources.size() * sizeof(int64_t) + 1));
        ASSERT_CUDA(cudaMemcpy(sources_there, sources.data(), sources.size() * sizeof(int64_t),
                               cudaMemcpyHostToDevice));
        const OnDevice result(turned.get(), false);
        ASSERT_OK(
            tartan_cuda_blocks_gather("test", queue, &result.blocks, &there.blocks, sources_there, true));
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        result.expect_values_of(turned.get());
        ASSERT_CUDA(cudaFree(sources_there));
        std::vector<double> norms((size_t)layout->blocks), norms_got((size_t)layout->blocks);
        ASSERT_OK(tartan_matrix_block_norms(context.get(), from.get(), TARTAN_NORM_MAX, norms.data(),
                                            layout->blocks));
        double *norms_there = nullptr;
        ASSERT_CUDA(cudaMalloc(&norms_there, norms.size() * sizeof(double) + 1));
        ASSERT_OK(tartan_cuda_blocks_norms("test", queue, &there.blocks, TARTAN_NORM_MAX, norms_there));
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        ASSERT_CUDA(
            cudaMemcpy(norms_got.data(), norms_there, norms.size() * sizeof(double), cudaMemcpyDeviceToHost));
        EXPECT_EQ(norms, norms_got);
        ASSERT_CUDA(cudaFree(norms_there));
    }
}
