// SPDX-License-Identifier: Apache-2.0
// The problems of windows: one form in three dimensions, whatever the image has.
#include "tune_support.h"

using namespace tartan_test;

namespace {

const tartan_context kContext = {};

tartan_array array(int32_t dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
                   uintptr_t address) {
    tartan_array a = {};
    a.data = (void *)address;
    a.dtype = dtype;
    a.ndim = (int32_t)shape.size();
    for (size_t d = 0; d < shape.size(); d++) a.shape[d] = shape[d], a.strides[d] = strides[d];
    return a;
}

tartan_i_windows windows_of(const char *text, int32_t dims) {
    tartan_i_windows w = {};
    EXPECT_OK(tartan_i_windows_parse("test", text, dims, dims, &w));
    return w;
}

void expect_list(std::vector<int64_t> want, const int64_t *got) {
    EXPECT_EQ(want, std::vector<int64_t>(got, got + want.size()));
}

} // namespace

TEST(CudaWindows, PoolsHaveThreeDimensions) {
    const tartan_array mask = array(TARTAN_BF16, {3, 20, 30}, {-1, 90, 3}, 4096),
                       active = array(TARTAN_U8, {3, 4, 5}, {20, 5, 1}, 512);
    const tartan_i_windows w = windows_of("size=6x7 stride=5x6 offset=-1x-2 count=4x5", 2);
    tartan_op_window_pool op = {"test", &mask, &w, true, 0.25, &active};
    tartan_cuda_window_pool p;
    ASSERT_OK(tartan_cuda_window_pool_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(mask.data, p.mask.data);
    EXPECT_EQ(TARTAN_BF16, p.mask.dtype);
    EXPECT_EQ(2, p.mask.bytes);
    EXPECT_EQ(3, p.mask.count);
    EXPECT_EQ(-1, p.mask.item);
    expect_list({1, 20, 30}, p.mask.size);
    expect_list({0, 90, 3}, p.mask.step);
    expect_list({1, 6, 7}, p.windows.size);
    expect_list({1, 5, 6}, p.windows.stride);
    expect_list({0, -1, -2}, p.windows.offset);
    expect_list({1, 4, 5}, p.windows.count);
    EXPECT_TRUE(p.average);
    EXPECT_EQ(0.25, p.tolerance);
    EXPECT_EQ(active.data, p.active);
    EXPECT_EQ(60, p.all);
    EXPECT_FALSE(p.nothing);
    const tartan_i_windows none = windows_of("size=6 count=0x5", 2);
    op.windows = &none;
    ASSERT_OK(tartan_cuda_window_pool_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);
}

TEST(CudaWindows, GathersHaveBothSides) {
    const Layout layout = random_layout({4, 5, 1, 1, 2}, 1, 1);
    const tartan_array x = array(TARTAN_F64, {2, 3, 17}, {51, 17, 1}, 4096),
                       blocks = array(TARTAN_F64, {40, 3, 6}, {18, 1, 3}, 8192),
                       none = array(TARTAN_F64, {40, 0, 6}, {18, 1, 3}, 8192);
    const tartan_i_windows w = windows_of("size=6 stride=3 offset=-2 count=5", 1);
    tartan_op_window_gather op = {"test", layout.get(), w, &x, &blocks, 0, true};
    tartan_cuda_window_gather p;
    ASSERT_OK(tartan_cuda_window_gather_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(layout.get(), p.layout);
    EXPECT_EQ(x.data, p.image.data);
    EXPECT_EQ(3, p.image.channels);
    EXPECT_EQ(17, p.image.channel);
    expect_list({1, 1, 17}, p.image.size);
    expect_list({0, 0, 1}, p.image.step);
    EXPECT_EQ(blocks.data, p.blocks.data);
    EXPECT_EQ(40, p.blocks.count);
    EXPECT_EQ(18, p.blocks.item);
    EXPECT_EQ(1, p.blocks.channel);
    expect_list({0, 0, 3}, p.blocks.step);
    expect_list({1, 1, 6}, p.windows.size);
    EXPECT_TRUE(p.outside && !p.nothing);
    op.blocks = &none;
    ASSERT_OK(tartan_cuda_window_gather_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);
}

TEST(CudaWindows, ScattersKnowWhatIsGiven) {
    const Layout layout = random_layout({4, 5, 1, 1, 2}, 1, 1), empty = random_layout({4, 5, 1, 1, 2}, 0, 1);
    const tartan_array y = array(TARTAN_F16, {2, 3, 9, 17}, {459, 1, 51, 3}, 4096),
                       blocks = array(TARTAN_F16, {40, 3, 6, 6}, {108, 36, 6, 1}, 8192),
                       base = array(TARTAN_F16, {2, 3, 9, 17}, {459, 153, 17, 1}, 16384),
                       none = array(TARTAN_F16, {2, 3, 0, 17}, {1, 1, 1, 1}, 4096);
    const tartan_i_windows w = windows_of("size=6 stride=3 count=4x5", 2),
                           apart = windows_of("size=6 count=4x5", 2);
    tartan_op_window_scatter op = {"test", layout.get(), w, &blocks, &base, true, &y, 0, true};
    tartan_cuda_window_scatter p;
    ASSERT_OK(tartan_cuda_window_scatter_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.add && p.relu && p.overlap && p.based && !p.zeros && !p.nothing);
    EXPECT_EQ(base.data, p.base.data);
    EXPECT_EQ(153, p.base.channel);
    EXPECT_EQ(blocks.data, p.blocks.data);
    EXPECT_EQ(1, p.image.channel);
    op.windows = apart, op.base = nullptr, op.blocks = nullptr, op.add = false;
    ASSERT_OK(tartan_cuda_window_scatter_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(!p.add && !p.overlap && !p.based && p.zeros && !p.nothing);
    op.active = empty.get();
    ASSERT_OK(tartan_cuda_window_scatter_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);
    op.base = &base; // is copied even so
    ASSERT_OK(tartan_cuda_window_scatter_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_FALSE(p.nothing);
    op.y = &none;
    ASSERT_OK(tartan_cuda_window_scatter_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);
}
