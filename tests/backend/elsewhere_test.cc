// SPDX-License-Identifier: Apache-2.0
// Functions that need their operands in host memory refuse operands on a device, and do not even look at them:
// the memory of the dummy is out of reach.
#include "placed.h"

#include <functional>

namespace {

using namespace tartan_test;

class Elsewhere : public ::testing::Test {
  protected:
    DummyInstalled installed;
    Context context, cpu = open_context();
    Layout layout = from_mask({8, 12, 4, 4, 1}, {1, 0, 1, 0, 1, 1}),
           other = from_mask({8, 12, 4, 4, 1}, {1, 1, 1, 1, 1, 1});
    std::mt19937_64 random{1};
    Matrix host = random_matrix(layout, TARTAN_F64, 0, random), far;
    tartan_matrix *out = nullptr;
    tartan_array values = {}; // on the device, as the matrix's
    int64_t list[64] = {};
    double numbers[256] = {};

    void SetUp() override {
        context = open_context("cuda");
        far = placed(context.get(), host);
        ASSERT_OK(tartan_matrix_values(far.get(), &values));
    }
    tartan_array on_device(const Dense &dense) const {
        tartan_array a = dense.array;
        a.data = values.data, a.device_type = TARTAN_CUDA, a.device_id = 0;
        return a;
    }
    void expect_refused(const char *name, const std::function<tartan_status()> &call) {
        SCOPED_TRACE(name);
        out = host.get();
        EXPECT_EQ(TARTAN_ERR_UNSUPPORTED, call()) << tartan_last_error();
        EXPECT_EQ(0u, std::string(tartan_last_error()).find(std::string(name) + ": ")) << tartan_last_error();
        EXPECT_TRUE(out == nullptr || out == host.get());
    }
};

// Functions that take a context work there with a context of that device (blocks_test.cc), and with no other.
// tests/check/check_tree.py sees to it that every function of matrix.h that takes a matrix is here.
TEST_F(Elsewhere, MatricesOnADeviceAreRefused) {
    tartan_matrix *m = far.get();
    const int64_t rows[] = {1, 0}, cols[] = {2, 1, 0}, sources[] = {0, 1, 2, 3, -1, -1};
    tartan_array dense = array_of(numbers, TARTAN_F64, {8, 12}), few = array_of(numbers, TARTAN_F64, {64});
    double value;
#define REFUSED(name, ...) expect_refused(#name, [&] { return name(__VA_ARGS__); })
    REFUSED(tartan_matrix_copy, cpu.get(), m, &out);
    REFUSED(tartan_matrix_cast, cpu.get(), m, TARTAN_F32, 0, &out);
    REFUSED(tartan_matrix_entry, m, 0, 1, 1, &value);
    REFUSED(tartan_matrix_take_values, m, &few);
    REFUSED(tartan_matrix_block_norms, cpu.get(), m, TARTAN_NORM_L2, numbers, 4);
    REFUSED(tartan_matrix_check, m, 1);
    REFUSED(tartan_matrix_to_dense, m, &dense);
    REFUSED(tartan_matrix_to_coo, m, list, 64, list, 64, &few);
    REFUSED(tartan_matrix_to_csr, m, list, 9, list, 64, &few);
    REFUSED(tartan_matrix_transpose, cpu.get(), m, &out);
    REFUSED(tartan_matrix_permute, cpu.get(), m, rows, 2, cols, 3, &out);
    REFUSED(tartan_matrix_slice, cpu.get(), m, 0, 4, 0, 4, &out);
    REFUSED(tartan_matrix_project, cpu.get(), m, other.get(), &out);
    REFUSED(tartan_matrix_rearrange, cpu.get(), m, other.get(), sources, 6, &out);
    REFUSED(tartan_matrix_scatter, cpu.get(), host.get(), sources, 4, m);
    REFUSED(tartan_matrix_scatter, cpu.get(), m, sources, 4, host.get());
    REFUSED(tartan_matrix_fill_zero, m);
    REFUSED(tartan_matrix_fill_identity, m, 1);
    REFUSED(tartan_matrix_apply_mask, m, nullptr);
    REFUSED(tartan_matrix_fill_orthogonal, context.get(), m, 1, 1);
    REFUSED(tartan_matrix_fill_normal, cpu.get(), m, 1, 1);
    EXPECT_OK(tartan_matrix_check(m, 0)); // looks at the handle alone
}

TEST_F(Elsewhere, ArraysOnADeviceAreRefused) {
    const tartan_array dense = on_device(Dense(TARTAN_F64, {8, 12})), few = on_device(Dense(TARTAN_F64, {4}));
    tartan_array target = dense, target_few = on_device(Dense(TARTAN_F64, {64}));
    const int64_t rows[] = {0, 4, 0, 5}, cols[] = {0, 8, 9, 5}, pointers[] = {0, 1, 1, 1, 1, 4, 4, 4, 4},
                  block_pointers[] = {0, 2, 4}, block_cols[] = {0, 2, 1, 2}, csr_cols[] = {0, 4, 8, 9};
    const tartan_shape shape = {8, 12, 4, 4, 1};
    char *text = nullptr;
    tartan_layout *made = nullptr;
    REFUSED(tartan_matrix_from_dense, layout.get(), &dense, 0, 0, &out);
    REFUSED(tartan_matrix_from_coo, layout.get(), places_of(nullptr, rows, cols, 4), &few, 0, 0, &out);
    REFUSED(tartan_matrix_from_csr, layout.get(), lists_of(pointers, 9, csr_cols, 4), &few, 0, 0, &out);
    REFUSED(tartan_matrix_from_bsr, &shape, lists_of(block_pointers, 3, block_cols, 4), &values, 0, &out);
    REFUSED(tartan_matrix_to_dense, host.get(), &target);
    REFUSED(tartan_matrix_to_coo, host.get(), list, 64, list, 64, &target_few);
    REFUSED(tartan_matrix_to_csr, host.get(), list, 9, list, 64, &target_few);
    REFUSED(tartan_array_checksum, &dense, &text);
    REFUSED(tartan_layout_from_dense, &shape, &dense, &made);
    REFUSED(tartan_layout_from_dense_largest, &shape, &dense, 0.5, TARTAN_NORM_MAX, &made);
}

TEST_F(Elsewhere, FilesDoNotTakeThem) {
    tartan_file *raw = nullptr;
    ASSERT_OK(tartan_file_create(&raw));
    const File file(raw);
    const tartan_array gates = on_device(Dense(TARTAN_F64, {4}));
    REFUSED(tartan_file_put_matrix, file.get(), "w", far.get(), nullptr, nullptr);
    REFUSED(tartan_file_put_matrix, file.get(), "w", host.get(), &gates, nullptr);
    EXPECT_EQ(0, tartan_file_count(file.get()));
}

// A matrix on a device can be wrapped around what a buffer lends, and is then as little the host's as that memory.
TEST_F(Elsewhere, ValuesOfABufferCanBeWrapped) {
    Dense blocks(TARTAN_F64, {4, 4, 4});
    blocks.fill(random);
    const Placed there(context.get(), blocks);
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &there.array, nullptr, nullptr, &out));
    const Matrix wrapped(out);
    EXPECT_STREQ("cuda:0", tartan_matrix_device(wrapped.get()));
    const Matrix back = fetched(context.get(), wrapped);
    for (int64_t id = 0; id < 4; id++) EXPECT_EQ(blocks.get(id * 16 + 5), entry(back.get(), id, 1, 1));
}

} // namespace
