// SPDX-License-Identifier: Apache-2.0
// Laws of gathering and scattering windows, known masks, what these functions refuse, and failing allocations. What they
// compute is tested in tests/backend.
#include "window_support.h"

namespace {

using namespace tartan_test;

Layout windows_of(const Dense &mask, const std::string &windows, const char *options = nullptr) {
    tartan_layout *raw = nullptr;
    EXPECT_OK(tartan_layout_from_windows(cpu(), &mask.array, windows.c_str(), options, &raw));
    return Layout(raw);
}

std::vector<uint8_t> bits(const Layout &layout) {
    std::vector<uint8_t> mask((size_t)(layout->shape.heads * layout->grid_rows * layout->grid_cols));
    EXPECT_OK(tartan_layout_get_mask(layout.get(), mask.data(), (int64_t)mask.size()));
    return mask;
}

Dense plane(int64_t rows, int64_t cols, const std::vector<std::pair<int64_t, int64_t>> &ones) {
    Dense mask(TARTAN_F32, {1, rows, cols});
    for (int64_t i = 0; i < rows * cols; i++) mask.set(i, 0);
    for (const auto &one : ones) mask.set(one.first * cols + one.second, 1);
    return mask;
}

std::string input_windows(const Shape &image, const char *options) {
    char *in = nullptr, *out = nullptr;
    EXPECT_OK(tartan_windows_for_conv(image.data(), (int64_t)image.size(), options, &in, &out));
    const std::string text = in != nullptr ? in : "";
    tartan_text_free(in);
    tartan_text_free(out);
    return text;
}

// ---- Masks ----

// SBNet's cases: a 5 x 5 mask with ones at (1, 2) and (2, 0), blocks of 3 for a kernel of 3; an 8 x 8 mask, blocks of 5 for
// a kernel of 2 without padding.
TEST(WindowLayouts, KnownMasks) {
    const Layout same = windows_of(plane(5, 5, {{1, 2}, {2, 0}}), input_windows({5, 5}, "kernel=3 size=3"));
    EXPECT_EQ((std::vector<uint8_t>{0, 1, 1, 1, 0, //
                                    1, 1, 1, 1, 0, //
                                    1, 1, 1, 1, 0, //
                                    1, 1, 0, 0, 0, //
                                    0, 0, 0, 0, 0}),
              bits(same));
    const Layout valid =
        windows_of(plane(8, 8, {{4, 4}}), input_windows({8, 8}, "kernel=2 size=5 padding=valid"));
    EXPECT_EQ((std::vector<uint8_t>{1, 1, 1, 1}), bits(valid));
    const Layout corner =
        windows_of(plane(8, 8, {{7, 0}}), input_windows({8, 8}, "kernel=2 size=5 padding=valid"));
    EXPECT_EQ((std::vector<uint8_t>{0, 0, 1, 0}), bits(corner));
}

TEST(WindowLayouts, AreInRowMajorOrderWithAHeadForEachImage) {
    Dense mask(TARTAN_F64, {3, 4, 6});
    for (int64_t i = 0; i < mask.elements(); i++) mask.set(i, 0);
    for (const int64_t i : {5, 18, 2 * 24 + 0, 2 * 24 + 9}) mask.set(i, 1);
    const Layout layout = windows_of(mask, "size=2 count=2x3");
    EXPECT_EQ(3, layout->shape.heads);
    EXPECT_EQ(2, layout->shape.rows);
    EXPECT_EQ(3, layout->shape.cols);
    EXPECT_EQ(4, layout->blocks);
    EXPECT_EQ((std::vector<uint8_t>{0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0}), bits(layout));
}

TEST(WindowLayouts, NothingActiveIsAnEmptyLayout) {
    const Layout layout = windows_of(plane(10, 10, {}), "size=3 count=4x4");
    EXPECT_EQ(0, layout->blocks);
    EXPECT_EQ(4, layout->grid_rows);
    Dense none(TARTAN_F32, {2, 0, 7});
    EXPECT_EQ(0, windows_of(none, "size=3 count=4x4")->blocks);
    EXPECT_EQ(0, windows_of(plane(10, 10, {{0, 0}}), "size=3 count=0x4")->blocks);
}

TEST(WindowLayouts, DimensionsOfAMask) {
    Dense line(TARTAN_F32, {2, 9}), channel(TARTAN_F32, {2, 1, 9}), solid(TARTAN_F32, {1, 1, 4, 4, 4});
    for (Dense *d : {&line, &channel, &solid})
        for (int64_t i = 0; i < d->elements(); i++) d->set(i, i % 9 == 4);
    EXPECT_EQ((std::vector<uint8_t>{0, 1, 0, 0, 1, 0}), bits(windows_of(line, "size=3 count=3")));
    EXPECT_EQ(2, windows_of(channel, "size=1x3 count=1x3")->blocks); // of two dimensions
    Dense three = solid;                                             // without channels
    three.array.ndim = 4;
    for (int d = 1; d < 4; d++)
        three.array.shape[d] = solid.array.shape[d + 1], three.array.strides[d] = solid.array.strides[d + 1];
    EXPECT_EQ(pooled(Windows({2, 2, 2}, {2, 2, 2}), three, false, 0),
              bits(windows_of(solid, "size=2x2x2 count=2x2x2")));
    EXPECT_EQ(4, windows_of(solid, "size=2x2x2 count=2x2x2")->grid_rows);
}

// ---- Laws ----

// The sum of g times the gathered windows equals the sum of the image times g scattered with add: they are each other's gradients.
TEST(WindowLaws, ScatterWithAddIsTheGradientOfGather) {
    std::mt19937_64 random(5);
    const Context own = open_context(2); // with its scratch memory
    for (int round = 0; round < rounds(60); round++) {
        const WindowCase p = random_windows(random, true);
        const Layout active = from_mask(p.w.frame(p.images), p.mask);
        Dense x = image_of(TARTAN_F64, p.image_shape(), round % 4), grad = x;
        Dense blocks(TARTAN_F64, p.w.blocks_shape(active->blocks, p.channels)), g = blocks;
        x.fill(random), g.fill(random);
        for (int64_t i = 0; i < grad.elements(); i++) grad.set(i, 0);
        ASSERT_OK(tartan_window_gather(own.get(), active.get(), p.w.text().c_str(), &x.array, &blocks.array));
        ASSERT_OK(tartan_window_scatter(own.get(), active.get(), p.w.text().c_str(), &g.array, nullptr,
                                        "add=1", &grad.array));
        double left = 0, right = 0, size = 1;
        for (int64_t i = 0; i < g.elements(); i++)
            left += g.get(i) * blocks.get(i), size += std::fabs(g.get(i) * blocks.get(i));
        for (int64_t i = 0; i < x.elements(); i++) right += x.get(i) * grad.get(i);
        EXPECT_NEAR(left, right, 1e-13 * size) << p.w.text();
    }
}

// Without add, scatter's gradient of base is y's outside of the windows and 0 inside; its gradient of blocks is gathered.
TEST(WindowLaws, GradientsOfScatter) {
    std::mt19937_64 random(6);
    const Windows w({3, 3}, {4, 5}, {5, 5}, {-1, 1});
    const std::vector<uint8_t> mask = {1, 0, 1, 0, 1, 1, 0, 0, 1};
    const Layout active = from_mask(w.frame(1), mask);
    Dense base(TARTAN_F64, {1, 2, 13, 16}), y = base, g = base, base_grad = base;
    Dense blocks(TARTAN_F64, w.blocks_shape(active->blocks, 2)), blocks_grad = blocks;
    base.fill(random), blocks.fill(random), g.fill(random);
    ASSERT_OK(tartan_window_scatter(cpu(), active.get(), w.text().c_str(), &blocks.array, &base.array,
                                    nullptr, &y.array));
    ASSERT_OK(tartan_window_scatter(cpu(), active.get(), w.text().c_str(), nullptr, &g.array, nullptr,
                                    &base_grad.array));
    ASSERT_OK(tartan_window_gather(cpu(), active.get(), w.text().c_str(), &g.array, &blocks_grad.array));
    double result = 0, parts = 0;
    for (int64_t i = 0; i < y.elements(); i++) {
        result += g.get(i) * y.get(i);
        parts += base_grad.get(i) * base.get(i);
    }
    for (int64_t i = 0; i < blocks.elements(); i++) parts += blocks_grad.get(i) * blocks.get(i);
    EXPECT_NEAR(result, parts, 1e-12); // y is linear in base and blocks
}

TEST(WindowLaws, ThreadsDoNotMatter) {
    std::mt19937_64 random(7);
    for (int round = 0; round < rounds(20); round++) {
        const WindowCase p = random_windows(random, true);
        const Layout active = from_mask(p.w.frame(p.images), p.mask);
        Dense y = image_of(TARTAN_BF16, p.image_shape(), round % 4);
        Dense blocks(TARTAN_BF16, p.w.blocks_shape(active->blocks, p.channels));
        y.fill(random), blocks.fill(random);
        Dense first = y, other = y;
        const Context one = open_context(1), three = open_context(3);
        ASSERT_OK(tartan_window_scatter(one.get(), active.get(), p.w.text().c_str(), &blocks.array, nullptr,
                                        "add=1", &first.array));
        ASSERT_OK(tartan_window_scatter(three.get(), active.get(), p.w.text().c_str(), &blocks.array, nullptr,
                                        "add=1", &other.array));
        EXPECT_EQ(first.memory(), other.memory());
    }
}

// ---- Refusals; nothing is written ----

class WindowRefusals : public ::testing::Test {
  protected:
    const Layout active = from_mask({2, 3, 1, 1, 1}, {1, 0, 1, 1, 1, 0});
    Dense x{TARTAN_F32, {1, 5, 8, 12}}, blocks{TARTAN_F32, {4, 5, 4, 4}}, y{TARTAN_F32, {1, 5, 8, 12}};
    const Dense old_blocks = blocks, old_y = y;

    tartan_status gather(const Dense &image, Dense &to, const char *windows = "size=4") {
        return tartan_window_gather(cpu(), active.get(), windows, &image.array, &to.array);
    }
    tartan_status scatter(const char *windows = "size=4", const char *options = nullptr) {
        return tartan_window_scatter(cpu(), active.get(), windows, &blocks.array, nullptr, options, &y.array);
    }
    void TearDown() override {
        EXPECT_EQ(old_blocks.memory(), blocks.memory()) << "a refused call wrote";
        EXPECT_EQ(old_y.memory(), y.memory());
    }
};

TEST_F(WindowRefusals, Windows) {
    EXPECT_FAILS(HANDLE, "windows is NULL", gather(x, blocks, nullptr));
    EXPECT_FAILS(HANDLE, "windows is NULL", scatter(nullptr));
    int32_t op = -1;
    ASSERT_OK(tartan_op_find("window_gather", &op));
    void *const given[] = {active.get(), &x.array, &blocks.array};
    const auto run = [&](const std::string &text) {
        return tartan_op_run(cpu(), op, given, 3, text.c_str());
    };
    EXPECT_FAILS(ARGUMENT, "windows has 'width=4', expected size, stride, offset or count",
                 run("windows=(width=4)"));
    EXPECT_FAILS(ARGUMENT, "windows has no size", run("windows=()"));
    EXPECT_FAILS(ARGUMENT, "options has 'windows=(size=4', expected the bracket to be closed",
                 run("windows=(size=4"));
    const std::string blanks(500, ' ');
    EXPECT_FAILS(ARGUMENT, "expected windows to be a text in brackets of fewer than 512 characters",
                 run("windows=(size=4" + blanks + "stride=4)"));
    EXPECT_FAILS(ARGUMENT, "options has windows twice", run("windows=(size=4) windows=(size=4)"));
}

TEST_F(WindowRefusals, Shapes) {
    Dense flat(TARTAN_F32, {5, 8}), many(TARTAN_F32, {1, 1, 1, 1, 1, 1}), two(TARTAN_F32, {2, 5, 8, 12});
    EXPECT_FAILS(SHAPE, "x has shape [5, 8], expected [n, channels, spatial...] with 1 to 3",
                 gather(flat, blocks));
    EXPECT_FAILS(SHAPE, "x has shape [1, 1, 1, 1, 1, 1], expected", gather(many, blocks));
    EXPECT_FAILS(SHAPE, "active has 1 heads, expected 2 (one for each image)", gather(two, blocks));
    EXPECT_FAILS(SHAPE, "active has 2 x 3 windows, expected 3 x 2", gather(x, blocks, "size=4 count=3x2"));
    EXPECT_FAILS(SHAPE,
                 "blocks has shape [4, 5, 4, 4], expected [4, 5, 4, 5], which is "
                 "[windows, channels, size...]",
                 gather(x, blocks, "size=4x5"));
    Dense channels(TARTAN_F32, {1, 6, 8, 12}), solid(TARTAN_F32, {1, 5, 8, 12, 1});
    EXPECT_FAILS(SHAPE, "expected [4, 6, 4, 4]", gather(channels, blocks));
    Dense cubes(TARTAN_F32, {4, 5, 4, 4, 4});
    EXPECT_FAILS(ARGUMENT, "windows has no count, expected one, since images have three dimensions",
                 gather(solid, cubes));
    EXPECT_FAILS(ARGUMENT, "windows has 2 numbers for size, expected 1 or 3",
                 gather(solid, blocks, "size=4x4"));
    tartan_array endless = x.array; // one element for all positions
    endless.shape[3] = INT64_C(1) << 31, endless.strides[3] = 0;
    EXPECT_FAILS(SHAPE, "expected spatial lengths below 2^31",
                 tartan_window_gather(cpu(), active.get(), "size=4", &endless, &blocks.array));
}

TEST_F(WindowRefusals, OverlapWithoutAdd) {
    EXPECT_FAILS(
        ARGUMENT,
        "windows overlap (size=4x4 stride=4x3 offset=0x0 count=2x3), expected stride >= size, or add=1",
        scatter("size=4 stride=4x3"));
    EXPECT_FAILS(
        ARGUMENT, "windows overlap",
        tartan_window_scatter(cpu(), active.get(), "size=4 stride=3", nullptr, nullptr, "add=0", &y.array));
}

TEST_F(WindowRefusals, ZerosThatAreAdded) {
    EXPECT_FAILS(ARGUMENT, "options has add=1, but blocks is NULL",
                 tartan_window_scatter(cpu(), active.get(), "size=4", nullptr, nullptr, "add=1", &y.array));
}

TEST_F(WindowRefusals, Masks) {
    Dense mask(TARTAN_F32, {1, 8, 12}), eight(TARTAN_F8E4M3, {1, 8, 12}), two(TARTAN_F32, {1, 2, 8, 12});
    for (int64_t i = 0; i < mask.elements(); i++) mask.set(i, 0);
    tartan_layout *out = nullptr;
    const auto make = [&](const Dense &m, const char *windows, const char *options = nullptr) {
        out = (tartan_layout *)1;
        const tartan_status status = tartan_layout_from_windows(cpu(), &m.array, windows, options, &out);
        EXPECT_EQ(nullptr, out);
        return status;
    };
    EXPECT_FAILS(ARGUMENT, "windows has no count, expected one", make(mask, "size=4"));
    EXPECT_FAILS(SHAPE,
                 "mask has shape [1, 2, 8, 12], expected [n, ...] or [n, 1, ...] with 2 spatial dimensions",
                 make(two, "size=4 count=2x3"));
    EXPECT_FAILS(SHAPE, "with 3 spatial dimensions", make(mask, "size=4 count=2x3x4"));
    EXPECT_FAILS(DTYPE, "mask is of float8_e4m3fn", make(eight, "size=4 count=2x3"));
    EXPECT_FAILS(ARGUMENT, "options has 'pool=min', expected pool to be max or average",
                 make(mask, "size=4 count=2x3", "pool=min"));
    EXPECT_FAILS(ARGUMENT, "expected tolerance to be a finite number",
                 make(mask, "size=4 count=2x3", "tolerance=nan"));
    EXPECT_FAILS(ARGUMENT, "tolerance is 1e+300, expected a number that is finite in float32",
                 make(mask, "size=4 count=2x3", "tolerance=1e300"));
    EXPECT_FAILS(ARGUMENT, "options has tolerance twice",
                 make(mask, "size=4 count=2x3", "tolerance=1 tolerance=1"));
    EXPECT_FAILS(ARGUMENT, "expected capacity to be a whole number from 1 on",
                 make(mask, "size=4 count=2x3", "capacity=0"));
    EXPECT_FAILS(ARGUMENT, "capacity is 7, expected at most 6 (all windows)",
                 make(mask, "size=4 count=2x3", "capacity=7"));
    EXPECT_FAILS(ARGUMENT, "options has 'stride=2', expected pool, tolerance or capacity",
                 make(mask, "size=4 count=2x3", "stride=2"));
    EXPECT_FAILS(OVERFLOW, "expected at most 2^31 - 1 a side",
                 make(Dense(TARTAN_F32, {1, 1, 1, 1}), "size=4 count=2147483647x2147483647x2"));
    EXPECT_FAILS(ARGUMENT, "shape has 0 heads", make(Dense(TARTAN_F32, {0, 8, 12}), "size=4 count=2x3"));
    mask.set(95, NAN); // in no window
    EXPECT_FAILS(ARGUMENT, "mask holds NaN, expected numbers", make(mask, "size=4 count=1x1"));
    for (const int32_t dtype : kDtypes)
        for (const int order : {kWithGaps, kBackwards}) {
            Dense other = image_of(dtype, {1, 8, 12}, order);
            for (int64_t i = 0; i < other.elements(); i++)
                other.set(i, i == 0 ? -INFINITY : i == 1 ? INFINITY : 0);
            EXPECT_EQ(1, windows_of(other, "size=4 count=2x3")->blocks);
            other.set(37, NAN);
            EXPECT_FAILS(ARGUMENT, "mask holds NaN", make(other, "size=4 count=2x3"));
        }
    EXPECT_FAILS(HANDLE, "mask is NULL",
                 tartan_layout_from_windows(cpu(), nullptr, "size=4 count=2x3", nullptr, &out));
    EXPECT_FAILS(HANDLE, "context is NULL",
                 tartan_layout_from_windows(nullptr, &mask.array, "size=4 count=2x3", nullptr, &out));
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_layout_from_windows(cpu(), &mask.array, "size=4 count=2x3", nullptr, nullptr));
}

TEST_F(WindowRefusals, Updates) {
    Dense mask(TARTAN_F32, {1, 8, 12});
    for (int64_t i = 0; i < mask.elements(); i++) mask.set(i, 0);
    std::vector<uint8_t> bytes(6, 1);
    tartan_array grid = {};
    const int64_t lengths[] = {2, 3};
    ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_U8, 2, lengths, nullptr, &grid));
    const tartan_shape frame = {2, 3, 1, 1, 1}, wide = {2, 6, 1, 2, 1};
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_from_device_mask(cpu(), &frame, &grid, 0, &raw));
    const Layout dynamic(raw);
    ASSERT_OK(tartan_layout_from_device_mask(cpu(), &wide, &grid, 0, &raw));
    const Layout other(raw);
    const auto update = [&](const Layout &layout, const char *windows, const char *options = nullptr) {
        return tartan_layout_update_windows(cpu(), layout.get(), &mask.array, windows, options);
    };
    EXPECT_FAILS(ARGUMENT, "layout is not dynamic", update(active, "size=4 count=2x3"));
    EXPECT_FAILS(SHAPE, "layout has 1 heads of 2 x 3 blocks of 1 x 1, expected 1 heads of 3 x 2 of 1 x 1",
                 update(dynamic, "size=4 count=3x2"));
    EXPECT_FAILS(SHAPE, "blocks of 1 x 2", update(other, "size=4 count=2x3"));
    EXPECT_FAILS(ARGUMENT, "options has 'capacity=3', expected pool or tolerance",
                 update(dynamic, "size=4 count=2x3", "capacity=3"));
    EXPECT_FAILS(HANDLE, "layout is NULL",
                 tartan_layout_update_windows(cpu(), nullptr, &mask.array, "size=4 count=2x3", nullptr));
    EXPECT_OK(update(dynamic, "size=4 count=2x3"));
}

// ---- Allocations ----

TEST(WindowAllocations, EveryOneCanFail) {
    Dense mask = plane(20, 30, {{3, 4}, {17, 29}});
    const std::string w = "size=4 stride=3 count=7x10";
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_from_windows(cpu(), &mask.array, w.c_str(), nullptr, &out), tartan_layout_free(out));
}

TEST(WindowAllocations, EveryOneOfAScatterCanFail) {
    const Layout active = from_mask({2, 3, 1, 1, 1}, {1, 0, 1, 1, 1, 0});
    Dense blocks(TARTAN_F32, {4, 2, 4, 4}), y(TARTAN_F32, {1, 2, 7, 10});
    BRUTAL(in_new_context(2,
                          [&](tartan_context *c) {
                              return tartan_window_scatter(c, active.get(), "size=4 stride=3", &blocks.array,
                                                           nullptr, "add=1", &y.array);
                          }),
           (void)0);
}

} // namespace
