// SPDX-License-Identifier: Apache-2.0
// Shared by all C++ tests.
#ifndef TARTAN_TESTS_SUPPORT_H
#define TARTAN_TESTS_SUPPORT_H

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tartan.h"

extern "C" {
int64_t tartan_i_memory_live(void);
void tartan_i_memory_fail_at(int64_t n);
int64_t tartan_i_memory_asked(void);
void tartan_i_parallel_from(double work);
}

#define ASSERT_OK(call) ASSERT_EQ(TARTAN_OK, (call)) << tartan_last_error()
#define EXPECT_OK(call) EXPECT_EQ(TARTAN_OK, (call)) << tartan_last_error()

// The call fails with TARTAN_ERR_<status>, and its text contains `part`.
#define EXPECT_FAILS(status, part, call)                                                                     \
    do {                                                                                                     \
        EXPECT_EQ(TARTAN_ERR_##status, (call)) << tartan_last_error();                                       \
        EXPECT_NE(std::string(tartan_last_error()).find(part), std::string::npos) << tartan_last_error();    \
    } while (0)

// Makes allocation 0, then 1, then 2, ... of `call` fail until it succeeds. Each failure must be ERR_MEMORY and
// leak nothing. What a failed call may leave in a layout for later calls, its column lists and a plan, it leaves once: then all starts
// over, with fewer allocations; what leaks is there again. `undo` frees the result of the final success. Use one BRUTAL per scope.
#define BRUTAL(call, undo)                                                                                   \
    for (int64_t brutal_n = 0, brutal_kept = 0;; brutal_n++) {                                               \
        const int64_t brutal_live = tartan_i_memory_live();                                                  \
        tartan_i_memory_fail_at(brutal_n);                                                                   \
        const tartan_status brutal_status = (call);                                                          \
        const bool brutal_over = tartan_i_memory_asked() <= brutal_n;                                        \
        tartan_i_memory_fail_at(-1);                                                                         \
        if (brutal_over) {                                                                                   \
            EXPECT_EQ(TARTAN_OK, brutal_status) << tartan_last_error();                                      \
            undo;                                                                                            \
        } else {                                                                                             \
            ASSERT_EQ(TARTAN_ERR_MEMORY, brutal_status) << "allocation " << brutal_n << " failed";           \
        }                                                                                                    \
        if (tartan_i_memory_live() > brutal_live && brutal_kept++ < 2) {                                     \
            if (brutal_over) break;                                                                          \
            brutal_n = -1;                                                                                   \
            continue;                                                                                        \
        }                                                                                                    \
        ASSERT_EQ(brutal_live, tartan_i_memory_live()) << "leak after allocation " << brutal_n << " failed"; \
        if (!brutal_over) continue;                                                                          \
        EXPECT_GT(brutal_n + brutal_kept, 0) << "the call allocates nothing";                                \
        break;                                                                                               \
    }

namespace tartan_test {

// Where a checker or an emulator makes tests slow, TARTAN_TEST_SHARE=7 runs the first seventh of random cases, and
// every seventh of a list of cases.
inline const int share = [] {
    const char *text = std::getenv("TARTAN_TEST_SHARE");
    return text == nullptr || std::atoi(text) < 1 ? 1 : std::atoi(text);
}();
template <typename T> T rounds(T n) {
    return (n + (T)share - 1) / (T)share;
}
inline bool is_of_the_share(int number) {
    return number % share == 0;
}

// Fails every test that leaks memory of the library: refusals leak as easily as failed allocations.
class LeakCheck : public testing::EmptyTestEventListener {
    int64_t live_ = 0;
    void OnTestStart(const testing::TestInfo &) override { live_ = tartan_i_memory_live(); }
    void OnTestEnd(const testing::TestInfo &) override {
        EXPECT_EQ(live_, tartan_i_memory_live()) << "allocations of the library are left";
    }
};
inline const bool leaks_are_failures =
    (testing::UnitTest::GetInstance()->listeners().Append(new LeakCheck), true);

// What tartan_spmm does, as numbers, and the text that says so.
enum Side : int32_t { kLeft, kRight };
enum Transpose : int32_t { kAsIs, kTransposed };
inline const char *spmm_options(int32_t side, int32_t op) {
    static const char *const texts[] = {nullptr, "transpose=1", "side=right", "side=right transpose=1"};
    return texts[2 * side + op];
}

// Owning handles.
struct Free {
    void operator()(tartan_layout *p) const { tartan_layout_free(p); }
    void operator()(tartan_matrix *p) const { tartan_matrix_free(p); }
    void operator()(tartan_context *p) const { tartan_context_free(p); }
    void operator()(tartan_file *p) const { tartan_file_free(p); }
};
using Layout = std::unique_ptr<tartan_layout, Free>;
using Matrix = std::unique_ptr<tartan_matrix, Free>;
using Context = std::unique_ptr<tartan_context, Free>;
using File = std::unique_ptr<tartan_file, Free>;

// Even the smallest work is shared among threads, so that tests use real teams.
inline const bool teams_always = (tartan_i_parallel_from(0), true);

inline Context open_context(const char *device, const std::string &options = "",
                            const tartan_hooks *hooks = nullptr) {
    tartan_context *context = nullptr;
    EXPECT_OK(tartan_context_create(device, options.c_str(), hooks, &context));
    return Context(context);
}
inline Context open_context(int32_t threads = 1) {
    return open_context("cpu", "threads=" + std::to_string(threads));
}

// Runs in a new context without scratch memory, so every allocation happens and can fail.
template <typename Run> tartan_status in_new_context(int32_t threads, Run run) {
    tartan_context *raw = nullptr;
    const std::string options = "threads=" + std::to_string(threads);
    const tartan_status status = tartan_context_create("cpu", options.c_str(), nullptr, &raw);
    const Context context(raw);
    return status == TARTAN_OK ? run(raw) : status;
}

// One for all tests that need no particular one.
inline const Context any_context = open_context(2);
inline tartan_context *cpu() {
    return any_context.get();
}

inline Layout from_mask(const tartan_shape &shape, const std::vector<uint8_t> &mask) {
    tartan_layout *layout = nullptr;
    EXPECT_OK(tartan_layout_from_mask(&shape, mask.data(), (int64_t)mask.size(), &layout));
    return Layout(layout);
}

// Structs of lists as arguments: they live as long as the call.
template <class T> struct Argument {
    T value;
    operator const T *() const { return &value; }
};
inline Argument<tartan_places> places_of(const int64_t *heads, const int64_t *rows, const int64_t *cols,
                                         int64_t count) {
    return {{heads, rows, cols, count}};
}
inline Argument<tartan_places> places_of(const std::vector<int64_t> &rows, const std::vector<int64_t> &cols) {
    EXPECT_EQ(rows.size(), cols.size());
    return places_of(nullptr, rows.data(), cols.data(), (int64_t)rows.size());
}
inline Argument<tartan_compressed> lists_of(const int64_t *pointers, int64_t npointers,
                                            const int64_t *indices, int64_t nindices,
                                            bool by_column = false) {
    return {{pointers, npointers, indices, nindices, by_column}};
}
inline Argument<tartan_compressed> lists_of(const std::vector<int64_t> &pointers,
                                            const std::vector<int64_t> &indices, bool by_column = false) {
    return lists_of(pointers.data(), (int64_t)pointers.size(), indices.data(), (int64_t)indices.size(),
                    by_column);
}
inline Argument<tartan_channel_sets> sets_of(int64_t channels, const int64_t *offsets, int64_t noffsets,
                                             const int64_t *ids, int64_t nids) {
    return {{channels, offsets, noffsets, ids, nids}};
}
inline Argument<tartan_channel_sets> sets_of(int64_t channels, const std::vector<int64_t> &offsets,
                                             const std::vector<int64_t> &ids) {
    return sets_of(channels, offsets.data(), (int64_t)offsets.size(), ids.data(), (int64_t)ids.size());
}

inline int64_t grid(int64_t n, int64_t block) {
    return (n + block - 1) / block;
}

// A random layout of about the given density, determined by the seed.
inline Layout random_layout(const tartan_shape &shape, double density, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<uint8_t> mask(
        (size_t)(shape.heads * grid(shape.rows, shape.block_rows) * grid(shape.cols, shape.block_cols)));
    for (auto &m : mask) m = std::generate_canonical<double, 32>(random) < density;
    return from_mask(shape, mask);
}

// Boundaries of `blocks` blocks of 1 .. `most`.
inline std::vector<int64_t> random_bounds(std::mt19937_64 &random, int64_t blocks, int64_t most) {
    std::vector<int64_t> bounds(1, 0);
    for (int64_t i = 0; i < blocks; i++)
        bounds.push_back(bounds.back() + 1 + (int64_t)(random() % (uint64_t)most));
    return bounds;
}

// The blocks of a layout with other boundaries; none: the layout's own.
inline Layout with_boundaries(const Layout &layout, const std::vector<int64_t> &rows,
                              const std::vector<int64_t> &cols) {
    tartan_layout *out = nullptr;
    EXPECT_OK(tartan_layout_with_boundaries(layout.get(), rows.empty() ? nullptr : rows.data(),
                                            (int64_t)rows.size(), cols.empty() ? nullptr : cols.data(),
                                            (int64_t)cols.size(), &out));
    return Layout(out);
}

// A random layout of blocks of different sizes, up to block_rows x block_cols and about as many elements as the frame.
inline Layout random_variable_layout(const tartan_shape &shape, double density, uint64_t seed) {
    std::mt19937_64 random(seed);
    const int64_t rows = 2 * shape.rows / (shape.block_rows + 1),
                  cols = 2 * shape.cols / (shape.block_cols + 1);
    return with_boundaries(random_layout({rows, cols, 1, 1, shape.heads}, density, seed),
                           random_bounds(random, rows, shape.block_rows),
                           random_bounds(random, cols, shape.block_cols));
}

inline std::vector<double> random_values(size_t n, uint64_t seed, double low = -1, double high = 1) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(low, high);
    std::vector<double> values(n);
    for (auto &v : values) v = uniform(random);
    return values;
}

} // namespace tartan_test

#endif
