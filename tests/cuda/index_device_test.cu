// SPDX-License-Identifier: Apache-2.0
// Index sets on a real device: built on the host, or following masks.
#include "device_fixture.h"

#include <algorithm>

using namespace tartan_test;

namespace {

std::vector<int32_t> fetched(const int32_t *from, int64_t count) {
    std::vector<int32_t> values((size_t)count);
    EXPECT_EQ(cudaSuccess,
              cudaMemcpy(values.data(), from, (size_t)count * sizeof *from, cudaMemcpyDeviceToHost));
    return values;
}

// Poisoned device memory for some index sets.
struct Indexes {
    std::vector<tartan_cuda_mask_index> all;
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
        tartan_cuda_mask_index index = {by_columns,     group,   room(groups + 1),
                                        room(capacity), nullptr, nullptr};
        if (by_columns || group > 0) index.ids = room(capacity * each);
        if (group > 0) index.order = room(groups);
        all.push_back(index);
    }
    ~Indexes() {
        for (void *at : memory) (void)cudaFree(at);
    }
};

// The index sets go with the layout; their work has ended by then.
void own_index(tartan_layout *layout) {
    layout->resource = (struct tartan_i_resource *)layout->index;
    layout->release = [](void *index) { tartan_cuda_index_release(index, nullptr); };
}

void expect_same(const int32_t *device, const int32_t *host, int64_t count) {
    const std::vector<int32_t> values = fetched(device, count);
    for (int64_t i = 0; i < count; i++) ASSERT_EQ(host[i], values[(size_t)i]) << i;
}

// Whether the index set is the one that the host builds.
void check(const tartan_layout *l, const tartan_cuda_mask_index &index) {
    const bool columns = index.by_columns;
    if (index.group == 0) {
        tartan_cuda_host_rows host;
        ASSERT_OK(tartan_cuda_index_rows(&tartan_i_host, l, columns, &host));
        const int64_t lines =
            tartan_layout_heads(l) * (columns ? tartan_layout_grid_cols(l) : tartan_layout_grid_rows(l));
        expect_same(index.pointers, host.values + host.pointers, lines + 1);
        expect_same(index.cols, host.values + host.cols, tartan_layout_blocks(l));
        if (index.ids != nullptr) expect_same(index.ids, host.values + host.ids, tartan_layout_blocks(l));
        tartan_i_host.free(host.values);
        return;
    }
    tartan_cuda_host_groups host;
    ASSERT_OK(tartan_cuda_index_groups(&tartan_i_host, l, columns, index.group, &host));
    const int64_t groups = tartan_layout_heads(l) * host.groups_per_head;
    expect_same(index.pointers, host.values + host.pointers, groups + 1);
    expect_same(index.cols, host.values + host.cols, host.entries);
    expect_same(index.ids, host.values + host.ids, host.entries * index.group);
    expect_same(index.order, host.values + host.order, groups);
    tartan_i_host.free(host.values);
}

// The index sets of a mask with more blocks than the capacity: empty.
void expect_none(const tartan_shape &shape, const tartan_cuda_mask_index &index) {
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
        ASSERT_CUDA(cudaDeviceSynchronize()); // the queue's stream does not wait for poison and copies
        const tartan_cuda_mask on_device = {bytes, (int32_t)shape.heads, (int32_t)shape.rows,
                                            (int32_t)shape.cols};
        ASSERT_OK(tartan_cuda_index_from_mask("test", queue, &on_device, (int32_t)capacity,
                                              indexes.all.data(), (int32_t)indexes.all.size(),
                                              indexes.blocks));
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        EXPECT_EQ(blocks, fetched(indexes.blocks, 1)[0]);
        for (const auto &index : indexes.all)
            if (capacity >= blocks)
                check(l.get(), index);
            else
                expect_none(shape, index);
    }
}

// A mask, and a dynamic layout whose index sets are asked for one by one: each is built from the row index first, then from
// every further mask.
TEST_F(CudaDevice, SetsFollowTheMask) {
    std::mt19937_64 random(9);
    const tartan_shape shape = {75, 130, 1, 1, 3};
    const size_t positions = 3 * 75 * 130;
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_i_layout_new_dynamic("test", &shape, (int64_t)positions / 2, TARTAN_CUDA, 0, &raw));
    const Layout layout(raw);
    ASSERT_OK(tartan_cuda_index_create("test", queue, raw, &raw->index));
    own_index(raw);
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
        ASSERT_CUDA(cudaDeviceSynchronize());
        if (step == 14) { // all are wanted: from here on the same work, captured
            cudaGraph_t graph;
            ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
            EXPECT_OK(tartan_cuda_index_update("test", queue, raw->index, bytes.pointer));
            tartan_cuda_group_index groups;
            EXPECT_OK(tartan_cuda_index_get_groups("test", queue, raw, true, 32, &groups));
            ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
            ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
            ASSERT_CUDA(cudaGraphDestroy(graph));
        }
        if (exec != nullptr)
            ASSERT_CUDA(cudaGraphLaunch(exec, queue->stream));
        else
            ASSERT_OK(tartan_cuda_index_update("test", queue, raw->index, bytes.pointer));
        ASSERT_CUDA(cudaMemsetAsync(bytes.pointer, 1, positions, queue->stream)); // nobody reads it later
        if (step < 14) wanted.push_back({step % 2 == 1, step < 2 ? 0 : 1 << (step / 2 - 1)});
        for (const auto &one : wanted) {
            tartan_cuda_mask_index index = {one.first, one.second, nullptr, nullptr, nullptr, nullptr};
            tartan_cuda_row_index lists;
            tartan_cuda_group_index groups;
            if (one.second == 0) {
                ASSERT_OK(tartan_cuda_index_get_rows("test", queue, raw, one.first, &lists));
                index.pointers = (int32_t *)lists.pointers, index.cols = (int32_t *)lists.cols;
                index.ids = (int32_t *)lists.ids;
            } else {
                ASSERT_OK(tartan_cuda_index_get_groups("test", queue, raw, one.first, one.second, &groups));
                index.pointers = (int32_t *)groups.pointers, index.cols = (int32_t *)groups.cols;
                index.ids = (int32_t *)groups.ids, index.order = (int32_t *)groups.order;
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
        ASSERT_OK(tartan_cuda_index_fetch("test", queue, raw->index, &blocks, pointers.data(), cols.data()));
        EXPECT_EQ(tartan_layout_blocks(l.get()), blocks);
        EXPECT_EQ(density < 0.5 ? blocks : 0, pointers.back());
    }
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    tartan_cuda_memory_release(bytes.owner, queue);
}

// The same from scores, whose mask is scratch memory, captured in a graph from the second step on.
TEST_F(CudaDevice, SetsFollowTheScores) {
    std::mt19937_64 random(11);
    const tartan_shape shape = {75, 1300, 1, 1, 3};
    const int64_t k = 40, lines = 3 * 75, positions = lines * 1300;
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_i_layout_new_dynamic("test", &shape, lines * k, TARTAN_CUDA, 0, &raw));
    const Layout layout(raw);
    ASSERT_OK(tartan_cuda_index_create("test", queue, raw, &raw->index));
    own_index(raw);
    Memory memory;
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, positions * (int64_t)sizeof(float), &memory.pointer,
                                          &memory.owner));
    cudaGraphExec_t exec = nullptr;
    for (int step = 0; step < 4 && !HasFailure(); step++) {
        std::vector<float> scores((size_t)positions);
        std::vector<uint8_t> mask((size_t)positions, 0);
        for (float &x : scores) x = random() % 50 == 0 ? -INFINITY : (float)(random() % 2000);
        for (int64_t line = 0; line < lines; line++) {
            const float *row = scores.data() + line * 1300;
            std::vector<int32_t> order(1300);
            for (int32_t i = 0; i < 1300; i++) order[(size_t)i] = i;
            std::stable_sort(order.begin(), order.end(),
                             [&](int32_t a, int32_t b) { return row[a] > row[b]; });
            for (int32_t i = 0; i < k; i++) mask[(size_t)(line * 1300 + order[(size_t)i])] = 1;
        }
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        ASSERT_CUDA(
            cudaMemcpy(memory.pointer, scores.data(), scores.size() * sizeof(float), cudaMemcpyHostToDevice));
        ASSERT_CUDA(cudaDeviceSynchronize());
        if (step == 1) {
            cudaGraph_t graph;
            ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
            EXPECT_OK(
                tartan_cuda_index_from_scores("test", queue, raw->index, memory.pointer, TARTAN_F32, k));
            ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
            ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
            ASSERT_CUDA(cudaGraphDestroy(graph));
        }
        if (exec != nullptr)
            ASSERT_CUDA(cudaGraphLaunch(exec, queue->stream));
        else
            ASSERT_OK(
                tartan_cuda_index_from_scores("test", queue, raw->index, memory.pointer, TARTAN_F32, k));
        tartan_cuda_row_index lists;
        ASSERT_OK(tartan_cuda_index_get_rows("test", queue, raw, true, &lists));
        ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
        const tartan_cuda_mask_index index = {
            true, 0, (int32_t *)lists.pointers, (int32_t *)lists.cols, (int32_t *)lists.ids, nullptr};
        check(from_mask(shape, mask).get(), index);
    }
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    tartan_cuda_memory_release(memory.owner, queue);
}

TEST_F(CudaDevice, NewSetsAreNotCaptured) {
    const tartan_shape shape = {8, 8, 1, 1, 1};
    tartan_layout *raw = nullptr;
    void *none = nullptr;
    ASSERT_OK(tartan_i_layout_new_dynamic("test", &shape, 64, TARTAN_CUDA, 0, &raw));
    const Layout layout(raw);
    Memory bytes;
    ASSERT_OK(tartan_cuda_memory_allocate("test", queue, 64, &bytes.pointer, &bytes.owner));
    ASSERT_OK(tartan_cuda_index_create("test", queue, raw, &raw->index));
    own_index(raw);
    ASSERT_OK(tartan_cuda_index_update("test", queue, raw->index, bytes.pointer));
    tartan_cuda_row_index lists;
    ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
    EXPECT_OK(tartan_cuda_index_get_rows("test", queue, raw, false, &lists));
    EXPECT_FAILS(UNSUPPORTED, "captured in a graph: run the operation once before",
                 tartan_cuda_index_get_rows("test", queue, raw, true, &lists));
    EXPECT_FAILS(UNSUPPORTED, "graph capture", tartan_cuda_index_create("test", queue, raw, &none));
    cudaGraph_t graph;
    ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    EXPECT_OK(tartan_cuda_index_get_rows("test", queue, raw, true, &lists));
    const tartan_shape large = {1 << 20, 1 << 20, 1, 1, 1};
    tartan_layout *too_large = nullptr;
    ASSERT_OK(tartan_i_layout_new_dynamic("test", &large, 64, TARTAN_CUDA, 0, &too_large));
    EXPECT_FAILS(UNSUPPORTED, "1048576 x 1048576 positions, expected fewer than 2^31 in all",
                 tartan_cuda_index_create("test", queue, too_large, &none));
    tartan_layout_free(too_large);
    ASSERT_CUDA(cudaStreamSynchronize(queue->stream));
    tartan_cuda_memory_release(bytes.owner, queue);
}

// Each mask has bits of its own on the device, for as long as it lives.
TEST_F(CudaDevice, MasksHaveTheirBitsThere) {
    const tartan_shape shape = {100, 90, 16, 40, 2};
    const auto index_of = [&](const tartan_block_mask *mask, tartan_cuda_block_mask *out) {
        return tartan_cuda_index_get_block_mask("test", queue, mask, false, out);
    };
    const auto check = [&](const tartan_layout *layout, const tartan_block_mask *mask) {
        tartan_cuda_block_mask index = {}, again = {};
        ASSERT_OK(index_of(mask, &index));
        ASSERT_OK(index_of(mask, &again));
        EXPECT_EQ(index.bits, again.bits);
        std::vector<int32_t> words_of((size_t)layout->blocks);
        ASSERT_CUDA(cudaMemcpy(words_of.data(), index.words_of, 4 * words_of.size(), cudaMemcpyDeviceToHost));
        EXPECT_TRUE(std::equal(words_of.begin(), words_of.end(), mask->words_of));
        std::vector<uint32_t> stored((size_t)(mask->stored * 16 * 2));
        ASSERT_CUDA(cudaMemcpy(stored.data(), index.bits, 4 * stored.size(), cudaMemcpyDeviceToHost));
        EXPECT_TRUE(std::equal(stored.begin(), stored.end(), mask->bits));
    };
    const Layout layout = random_layout(shape, 0.5, 1);
    const auto keep = [](void *user, int64_t head, int64_t row, int64_t col) -> int32_t {
        return (head + 3 * row + 5 * col) % *(int64_t *)user == 0;
    };
    int64_t every = 2;
    tartan_block_mask *first = nullptr, *second = nullptr;
    ASSERT_OK(tartan_block_mask_from_rule(layout.get(), keep, &every, &first));
    check(layout.get(), first);
    for (every = 3; every < 7; every++) {
        tartan_cuda_block_mask index = {};
        ASSERT_OK(tartan_block_mask_from_rule(layout.get(), keep, &every, &second));
        ASSERT_CUDA(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeGlobal));
        EXPECT_OK(index_of(first, &index));
        EXPECT_FAILS(UNSUPPORTED,
                     "the first use of a block mask copies its bits to the device, which cannot be captured "
                     "in a graph: run the operation once before",
                     index_of(second, &index));
        cudaGraph_t graph;
        ASSERT_CUDA(cudaStreamEndCapture(queue->stream, &graph));
        ASSERT_CUDA(cudaGraphDestroy(graph));
        check(layout.get(), second);
        check(layout.get(), first);
        tartan_block_mask_free(first);
        first = second;
    }
    tartan_block_mask_free(first);
}
