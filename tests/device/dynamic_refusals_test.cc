// SPDX-License-Identifier: Apache-2.0
// What dynamic layouts refuse, and what refuses them; running out of memory; other devices.
#include "dynamic.h"

#include <functional>

using namespace tartan_test;

namespace {

const tartan_shape kShape = {16, 24, 8, 8, 1};

class DynamicRefusals : public OnBackend {
  protected:
    std::vector<uint8_t> mask = {1, 0, 1, 0, 1, 1};
    std::mt19937_64 random{3};
    tartan_layout *out = nullptr;

    tartan_status make(const tartan_shape &shape, const tartan_array &array, int64_t capacity = 0) {
        return tartan_layout_from_device_mask(context.get(), &shape, &array, capacity, &out);
    }
};
INSTANTIATE_TEST_SUITE_P(Each, DynamicRefusals, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

} // namespace

TEST_P(DynamicRefusals, BadMasks) {
    const PlacedMask good(context.get(), kShape, mask, false);
    Dynamic dynamic(context.get(), kShape, mask, 0, false);
    tartan_array a = good.array;
    const auto refused = [&](const char *part, tartan_status status) {
        out = (tartan_layout *)8;
        EXPECT_EQ(status, make(kShape, a)) << tartan_last_error();
        EXPECT_NE(std::string::npos, std::string(tartan_last_error()).find(part)) << tartan_last_error();
        EXPECT_EQ(nullptr, out);
        EXPECT_EQ(status, tartan_layout_update_device_mask(context.get(), dynamic.layout.get(), &a));
        EXPECT_NE(std::string::npos, std::string(tartan_last_error()).find(part)) << tartan_last_error();
    };
    a.dtype = TARTAN_F8E4M3;
    refused("mask has dtype 5, expected 7 (TARTAN_U8)", TARTAN_ERR_DTYPE);
    a = good.array, a.shape[1] = 4;
    refused("mask has shape [2, 4], expected [2, 3] (block rows, block columns)", TARTAN_ERR_SHAPE);
    a = good.array, a.ndim = 1;
    refused("mask has shape [2], expected [2, 3]", TARTAN_ERR_SHAPE);
    a = good.array, a.strides[0] = 1, a.strides[1] = 2;
    refused("mask has stride 2 in dimension 1, expected 1 (no gaps, row-major)", TARTAN_ERR_SHAPE);
    a = good.array, a.strides[0] = 0;
    refused("mask has stride 0 in dimension 0, expected 3", TARTAN_ERR_SHAPE);
    a = good.array, a.ndim = 9;
    refused("mask has ndim 9", TARTAN_ERR_ARGUMENT);
    a = good.array, a.data = nullptr;
    refused("mask of shape [2, 3] has data NULL", TARTAN_ERR_HANDLE);
    a = good.array, a.device_type = TARTAN_CUDA, a.device_id = 7;
    refused("mask is on device 2:7, expected", TARTAN_ERR_UNSUPPORTED);
    a = good.array, a.device_type = 10;
    refused("mask is on device type 10", TARTAN_ERR_UNSUPPORTED);
    // A head dimension of one, and dimensions of one element, are welcome.
    a = good.array, a.ndim = 3;
    a.shape[0] = 1, a.shape[1] = 2, a.shape[2] = 3, a.strides[0] = 77, a.strides[1] = 3, a.strides[2] = 1;
    ASSERT_OK(make(kShape, a));
    tartan_layout_free(out);
    const tartan_shape two = {16, 24, 8, 8, 2};
    a = good.array;
    EXPECT_FAILS(SHAPE, "mask has shape [2, 3], expected [2, 2, 3]", make(two, a));
}

TEST_P(DynamicRefusals, BadArguments) {
    const PlacedMask placed(context.get(), kShape, mask, false);
    const tartan_array a = placed.array;
    tartan_context *x = context.get();
    const Dynamic dynamic(x, kShape, mask, 0, false);
    const Layout fixed = from_mask(kShape, mask);
    EXPECT_FAILS(ARGUMENT, "capacity is -1, expected 0 (all positions) .. 6", make(kShape, a, -1));
    EXPECT_FAILS(ARGUMENT, "capacity is 7, expected 0", make(kShape, a, 7));
    EXPECT_FAILS(SHAPE, "shape is -1 x 24", make({-1, 24, 8, 8, 1}, a));
    EXPECT_FAILS(ARGUMENT, "blocks of 0 x 8", make({16, 24, 0, 8, 1}, a));
    EXPECT_FAILS(HANDLE, "shape is NULL", tartan_layout_from_device_mask(x, nullptr, &a, 0, &out));
    EXPECT_FAILS(HANDLE, "mask is NULL", tartan_layout_from_device_mask(x, &kShape, nullptr, 0, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_from_device_mask(x, &kShape, &a, 0, nullptr));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_layout_from_device_mask(nullptr, &kShape, &a, 0, &out));
    EXPECT_FAILS(HANDLE, "context is NULL",
                 tartan_layout_update_device_mask(nullptr, dynamic.layout.get(), &a));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_update_device_mask(x, nullptr, &a));
    EXPECT_FAILS(HANDLE, "mask is NULL", tartan_layout_update_device_mask(x, dynamic.layout.get(), nullptr));
    EXPECT_FAILS(ARGUMENT, "layout is not dynamic", tartan_layout_update_device_mask(x, fixed.get(), &a));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_layout_to_host(nullptr, fixed.get(), &out));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_to_host(x, nullptr, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_to_host(x, fixed.get(), nullptr));
    EXPECT_FAILS(HANDLE, "layout is closed or not one", tartan_layout_to_host(x, (tartan_layout *)x, &out));
}

// Every function that asks about blocks, or makes layouts and matrices of them.
TEST_P(DynamicRefusals, WhatNeedsToKnowTheBlocks) {
    const Dynamic dynamic(context.get(), kShape, mask, 0, false);
    const tartan_layout *l = dynamic.layout.get();
    const Layout fixed = from_mask(kShape, mask);
    const Matrix host = random_matrix(fixed, TARTAN_F64, 0, random), other = placed(context.get(), host);
    const Values values(context.get(), dynamic.layout, host);
    int64_t list[8] = {}, sources[8] = {};
    uint8_t bytes[8] = {};
    double numbers[512] = {};
    char *text = nullptr;
    tartan_matrix *m = nullptr, *on_it = values.matrix.get();
    Dense dense(TARTAN_F64, {16, 24}), few(TARTAN_F64, {4});
    tartan_array array = dense.array;
    tartan_file *raw = nullptr;
    ASSERT_OK(tartan_file_create(&raw));
    const File file(raw);
#define REFUSED(...) EXPECT_FAILS(UNSUPPORTED, "expected an ordinary", __VA_ARGS__)
    REFUSED(tartan_layout_get_row_lists(l, list, 3, list, 6));
    REFUSED(tartan_layout_get_col_lists(l, list, 4, list, 6, list, 6));
    REFUSED(tartan_layout_get_coordinates(l, list, 6, list, 6, list, 6));
    REFUSED(tartan_layout_get_mask(l, bytes, 6));
    REFUSED(tartan_layout_find(l, places_of(nullptr, list, list, 1), sources, 1));
    REFUSED(tartan_layout_number(l, 0, list, 6));
    REFUSED(tartan_layout_row_lengths(l, list, 2));
    REFUSED(tartan_layout_row_spread(l, numbers, 4));
    REFUSED(tartan_layout_bandwidth(l, list, 2));
    REFUSED(tartan_layout_reach(l, 0, numbers, 1));
    REFUSED(tartan_layout_partition(l, list, 2));
    REFUSED(tartan_layout_svg(l, 64, &text));
    REFUSED(tartan_layout_transpose(l, &out));
    REFUSED(tartan_layout_union(l, fixed.get(), &out));
    REFUSED(tartan_layout_intersection(fixed.get(), l, &out));
    REFUSED(tartan_layout_difference(l, fixed.get(), &out));
    REFUSED(tartan_layout_permute(l, nullptr, 0, nullptr, 0, &out));
    REFUSED(tartan_layout_slice(l, 0, 1, 0, 1, &out));
    REFUSED(tartan_layout_prune(l, numbers, 6, &out));
    REFUSED(tartan_layout_keep_largest(l, numbers, 6, 1, &out));
    REFUSED(tartan_layout_grow(l, places_of(nullptr, list, list, 1), &out));
    REFUSED(tartan_layout_move(l, list, 1, places_of(nullptr, list, list, 1), sources, 6, &out));
    REFUSED(tartan_layout_reblock(l, 4, 4, &out));
    REFUSED(tartan_layout_add_diagonal(dynamic.layout.get(), 0, &out));
    REFUSED(tartan_layout_add_elements(dynamic.layout.get(), places_of(nullptr, list, list, 1), &out));
    REFUSED(tartan_matrix_create(dynamic.layout.get(), TARTAN_F64, 0, &m));
    REFUSED(tartan_matrix_from_dense(dynamic.layout.get(), &dense.array, 0, 0, &m));
    REFUSED(tartan_matrix_from_coo(dynamic.layout.get(), places_of(nullptr, list, list, 4), &few.array, 0, 0,
                                   &m));
    REFUSED(tartan_matrix_from_csr(dynamic.layout.get(), lists_of(list, 8, list, 4), &few.array, 0, 0, &m));
    REFUSED(tartan_file_put_layout(file.get(), "l", l, nullptr));
    const Placed grad(context.get(), Dense(TARTAN_F64, {6}));
    tartan_array gradient = grad.array;
    REFUSED(tartan_gate_gradient(context.get(), on_it, nullptr, other.get(), &gradient));
    REFUSED(tartan_gate_gradient(context.get(), other.get(), nullptr, on_it, &gradient));
    REFUSED(tartan_matrix_project(context.get(), other.get(), dynamic.layout.get(), &m));
    REFUSED(tartan_matrix_rearrange(context.get(), other.get(), dynamic.layout.get(), sources, 6, &m));
    REFUSED(tartan_matrix_cast(context.get(), on_it, TARTAN_F32, 0, &m));
    REFUSED(tartan_matrix_block_norms(context.get(), on_it, TARTAN_NORM_L2, numbers, 6));
    REFUSED(tartan_matrix_transpose(context.get(), on_it, &m));
    REFUSED(tartan_matrix_permute(context.get(), on_it, nullptr, 0, nullptr, 0, &m));
    REFUSED(tartan_matrix_slice(context.get(), on_it, 0, 1, 0, 1, &m));
    REFUSED(tartan_matrix_project(context.get(), on_it, fixed.get(), &m));
    REFUSED(tartan_matrix_rearrange(context.get(), on_it, fixed.get(), sources, 4, &m));
    REFUSED(tartan_matrix_scatter(context.get(), on_it, sources, 6, other.get()));
    REFUSED(tartan_matrix_scatter(context.get(), other.get(), sources, 4, on_it));
    if (!on_host()) return; // the values are in host memory, so that only the layout stands in the way
    REFUSED(tartan_matrix_entry(on_it, 0, 0, 0, numbers));
    REFUSED(tartan_matrix_check(on_it, 1));
    REFUSED(tartan_matrix_to_dense(on_it, &array));
    REFUSED(tartan_matrix_to_coo(on_it, list, 8, list, 8, &few.array));
    REFUSED(tartan_matrix_to_csr(on_it, list, 8, list, 8, &few.array));
    REFUSED(tartan_matrix_fill_zero(on_it));
    REFUSED(tartan_matrix_fill_identity(on_it, 1));
    REFUSED(tartan_matrix_fill_orthogonal(context.get(), on_it, 1, 1));
    REFUSED(tartan_matrix_fill_normal(context.get(), on_it, 1, 1));
    REFUSED(tartan_file_put_matrix(file.get(), "m", on_it, nullptr, nullptr));
    REFUSED(tartan_matrix_add(context.get(), 1, on_it, 1, on_it, 0, &m));
    REFUSED(tartan_axpby(context.get(), 1, on_it, 1, on_it, on_it));
    REFUSED(tartan_matrix_combine(context.get(), TARTAN_COMBINE_MULTIPLY, on_it, on_it, 0, &m));
    REFUSED(tartan_matrix_apply(context.get(), TARTAN_APPLY_ABS, 0, on_it, 0, &m));
    REFUSED(tartan_matrix_multiply(context.get(), on_it, on_it, 0, &m));
    REFUSED(tartan_matrix_scale(context.get(), nullptr, nullptr, on_it, 0, &m));
    REFUSED(tartan_matrix_add_diagonal(context.get(), 1, on_it, 0, numbers, 1, 0, &m));
    REFUSED(tartan_matrix_get_diagonal(context.get(), on_it, 0, numbers, 6));
    REFUSED(tartan_matrix_set_diagonal(context.get(), on_it, 0, numbers, 1));
    REFUSED(tartan_matrix_trace(context.get(), on_it, 0, numbers, 1));
    REFUSED(tartan_matrix_reduce(context.get(), on_it, TARTAN_REDUCE_SUM, TARTAN_EACH_HEAD, numbers, 1));
    REFUSED(tartan_matrix_norm(context.get(), on_it, TARTAN_MATRIX_NORM_MAX, numbers, 1));
    REFUSED(tartan_matrix_count_different(context.get(), on_it, on_it, 0, 0, 0, numbers));
    REFUSED(tartan_matrix_get_elements(on_it, places_of(nullptr, list, list, 4), &few.array));
    REFUSED(tartan_matrix_set_elements(on_it, places_of(nullptr, list, list, 4), &few.array, 0));
    REFUSED(tartan_matrix_cut(context.get(), on_it, 0, 1, 0, 1, &m));
    REFUSED(tartan_matrix_select(context.get(), on_it, list, 1, nullptr, 0, &m));
    REFUSED(tartan_matrix_reblock(context.get(), on_it, 4, 4, &m));
    REFUSED(tartan_matrix_reshape(context.get(), on_it, 32, 32, 0, &m));
    const tartan_matrix *const both[] = {on_it, on_it};
    REFUSED(tartan_matrix_concatenate(context.get(), TARTAN_DOWN, both, 2, &m));
    REFUSED(tartan_matrix_kronecker(context.get(), on_it, &dense.array, 0, 0, &m));
    REFUSED(tartan_matrix_triangle(context.get(), on_it, TARTAN_LOWER, 0, &m));
    REFUSED(tartan_matrix_drop_zeros(context.get(), on_it, 0, &m));
#undef REFUSED
}

TEST_P(DynamicRefusals, MatricesOfOtherSizesOrPlaces) {
    const Dynamic dynamic(context.get(), kShape, mask, 5, false);
    const Dense four(TARTAN_F32, {4, 8, 8});
    const Placed there(context.get(), four);
    tartan_matrix *m = nullptr;
    EXPECT_FAILS(SHAPE, "values has shape [4, 8, 8], expected [5, 8, 8] (blocks of the layout)",
                 tartan_matrix_wrap(dynamic.layout.get(), &there.array, nullptr, nullptr, &m));
    tartan_array elsewhere = Dense(TARTAN_F32, {5, 8, 8}).array;
    elsewhere.device_type = on_host() ? TARTAN_CUDA : TARTAN_CPU, elsewhere.device_id = 0;
    EXPECT_FAILS(UNSUPPORTED, "(as the layout)",
                 tartan_matrix_wrap(dynamic.layout.get(), &elsewhere, nullptr, nullptr, &m));
    if (on_host()) return;
    const Context cpu = open_context();
    const PlacedMask placed(context.get(), kShape, mask, true);
    EXPECT_FAILS(UNSUPPORTED, "(as the context)",
                 tartan_layout_update_device_mask(cpu.get(), dynamic.layout.get(), &placed.array));
    EXPECT_FAILS(UNSUPPORTED, "(as the context)",
                 tartan_layout_to_host(cpu.get(), dynamic.layout.get(), &out));
    const Values values(context.get(), Dynamic(context.get(), kShape, mask, 0, false).layout,
                        random_matrix(from_mask(kShape, mask), TARTAN_F32, 0, random));
    EXPECT_FAILS(UNSUPPORTED, "(as the context)", tartan_matrix_to_host(cpu.get(), values.matrix.get(), &m));
}

TEST_P(DynamicRefusals, MemoryRunsOut) {
    const PlacedMask there(context.get(), kShape, mask, false), host(context.get(), kShape, mask, true);
    { BRUTAL(make(kShape, there.array), tartan_layout_free(out)); }
    { BRUTAL(make(kShape, host.array), tartan_layout_free(out)); }
    ASSERT_OK(make(kShape, there.array));
    const Layout dynamic(out);
    tartan_layout *found = nullptr;
    { BRUTAL(tartan_layout_to_host(context.get(), dynamic.get(), &found), tartan_layout_free(found)); }
    const Layout fixed = from_mask(kShape, mask);
    const Values values(context.get(), dynamic, random_matrix(fixed, TARTAN_F32, 0, random));
    tartan_matrix *m = nullptr;
    { BRUTAL(tartan_matrix_to_host(context.get(), values.matrix.get(), &m), tartan_matrix_free(m)); }
    if (on_host()) { // of the other backends, only the dummy counts its memory as the library's
        const std::vector<uint8_t> others(6, 1);
        const PlacedMask all(context.get(), kShape, others, true);
        for (int64_t n = 0;; n++) { // a layout is as it was after a failure
            tartan_i_memory_fail_at(n);
            const tartan_status status =
                tartan_layout_update_device_mask(context.get(), dynamic.get(), &all.array);
            tartan_i_memory_fail_at(-1);
            ASSERT_OK(tartan_layout_to_host(context.get(), dynamic.get(), &found));
            EXPECT_EQ(status == TARTAN_OK ? 6 : 4, tartan_layout_blocks(found));
            tartan_layout_free(found);
            if (status == TARTAN_OK) break;
            ASSERT_EQ(TARTAN_ERR_MEMORY, status);
        }
    }
    if (!dummy()) return;
    for (int64_t n = 0; n < 2;
         n++) { // of the device: none needed for a mask there, one for a mask of the host
        tartan_dummy.asked = 0, tartan_dummy.fail_at = 0;
        const tartan_array &one = n == 0 ? there.array : host.array;
        EXPECT_EQ(n == 0 ? TARTAN_OK : TARTAN_ERR_MEMORY,
                  tartan_layout_update_device_mask(context.get(), dynamic.get(), &one));
        tartan_dummy.fail_at = -1;
    }
    tartan_dummy.lost = true;
    EXPECT_FAILS(DEVICE, "was lost", make(kShape, there.array));
    EXPECT_FAILS(DEVICE, "was lost",
                 tartan_layout_update_device_mask(context.get(), dynamic.get(), &there.array));
    EXPECT_FAILS(DEVICE, "was lost", tartan_layout_to_host(context.get(), dynamic.get(), &found));
    tartan_dummy.lost = false;
}

TEST(Dynamic, ABackendWithoutThem) {
    const DummyInstalled installed;
    tartan_backend backend = *tartan_plugin_get(&tartan_i_host);
    backend.index_create = nullptr;
    backend.index_from_mask = nullptr;
    backend.index_from_scores = nullptr;
    backend.index_fetch = nullptr;
    backend.index_release = nullptr;
    tartan_i_backend_install(TARTAN_CUDA, &backend);
    const Context context = open_context("cuda");
    ASSERT_NE(nullptr, context);
    uint8_t mask[] = {1, 0, 1, 0, 1, 1};
    const int64_t grid[] = {2, 3};
    tartan_array array = {};
    ASSERT_OK(tartan_array_init(mask, TARTAN_U8, 2, grid, nullptr, &array));
    tartan_layout *out = (tartan_layout *)8;
    EXPECT_FAILS(UNSUPPORTED, "backend dummy has no dynamic layouts",
                 tartan_layout_from_device_mask(context.get(), &kShape, &array, 0, &out));
    EXPECT_EQ(nullptr, out);
}
