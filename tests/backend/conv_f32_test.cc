// SPDX-License-Identifier: Apache-2.0
// Convolutions of f32 and their gradients with respect to the image, of whole numbers that tf32 has, so that results are those of the
// CPU both where factors are rounded to tf32 and where they are sums of two such numbers. Devices read some filters where they are,
// and pack others.
#include "../ops/conv_support.h"
#include "placed.h"

#include <limits>

namespace {

using namespace tartan_test;

class BackendConvF32 : public OnBackend {
  protected:
    void expect_what_the_cpu_gives();
};

struct Case {
    const char *options;
    tartan_shape channels;
    std::vector<int64_t> size;
    double density = 0.5;
    int64_t images = 2;
};
const Case kCases[] = {
    {"kernel=3x3 padding=1", {128, 128, 32, 32, 1}, {28, 27}}, // one CTA for each processor, in pairs
    {"kernel=3x3 padding=1 stride=2", {128, 128, 32, 32, 1}, {56, 55}, 0.3, 5},
    {"kernel=3x3 padding=1 stride=2", {128, 64, 64, 64, 1}, {90, 90}, 0.6, 10}, // more than two for each
    {"kernel=3x3 padding=1", {64, 64, 32, 32, 1}, {70, 70}, 0.7, 4},
    {"kernel=1x1", {128, 256, 64, 64, 1}, {11, 11}, 1.0, 1}, // tiles without a neighbour
    {"kernel=1x1 stride=2", {128, 256, 32, 32, 1}, {31, 17}},
    {"kernel=3x3 padding=1 stride=2", {512, 256, 32, 32, 1}, {14, 14}, 0.25, 8}, // several CTAs share a list
    {"kernel=3x3 padding=1", {160, 96, 160, 96, 1}, {17, 13}, 1.0},              // blocks in several pieces
    {"kernel=3x3 padding=1", {192, 128, 96, 64, 1}, {17, 13}},
    {"kernel=2x3 padding=1 per_tap=1", {128, 6 * 96, 32, 32, 1}, {21, 26}},
    {"kernel=5 dilation=2", {128, 64, 8, 32, 1}, {150}},
    {"kernel=3x3x2 stride=2x1x2", {64, 96, 16, 32, 1}, {7, 9, 10}},
    {"kernel=3x3 padding=1", {120, 128, 32, 32, 1}, {20, 23}}, // ragged blocks
    {"kernel=3x3 padding=1", {128, 120, 32, 32, 1}, {20, 23}},
    {"kernel=3x3 padding=1 stride=2", {128, 128, 16, 16, 1}, {20, 23}},
    {"kernel=3x3 padding=1", {104, 104, 104, 104, 1}, {20, 23}, 1.0},
    {"kernel=3x3 padding=1 transposed=1 stride=2", {128, 128, 32, 32, 1}, {14, 14}},
    {"kernel=3x3 padding=1", {64, 192, 64, 64, 1}, {16, 20}, 0.1, 3}, // groups without blocks
    {"kernel=3x3 padding=1", {96, 64, 8, 16, 1}, {7, 9}, 0.4, 3},     // units of 8 rows
    {"kernel=5x4 padding=3 stride=3x2 dilation=1x2", {64, 72, 16, 8, 1}, {29, 40}},
    {"kernel=3x3 padding=1 stride=4", {64, 64, 32, 32, 1}, {41, 39}}, // phases without taps
    {"kernel=3x3 padding=1 stride=5", {64, 64, 32, 32, 1}, {41, 39}}, // too many phases
    {"kernel=3x3 padding=1", {512, 512, 32, 32, 1}, {7, 7}, 0.5, 3},  // lists that are divided
    {"kernel=3x3 padding=1 stride=2", {512, 512, 64, 64, 1}, {14, 14}, 0.5, 2},
    {"kernel=1x1", {128, 512, 16, 16, 1}, {16, 64}, 0.3},
    {"kernel=1x1", {128, 480, 32, 16, 1}, {40, 64}, 0.3}, // boxes of 16 channels, in place
    {"kernel=1x1 stride=2", {64, 224, 64, 112, 1}, {40, 64}, 0.8, 6},
};

int64_t whole(std::mt19937_64 &random) {
    return (int64_t)(random() % 7) - 3;
}

void fill(Dense &x, std::mt19937_64 &random) {
    for (int64_t i = 0; i < x.elements(); i++) x.set(i, (double)whole(random));
}

void round(tartan_matrix *m) {
    const tartan_layout *l = m->layout;
    for (int64_t id = 0; id < l->blocks; id++)
        for (int64_t i = 0; i < l->shape.block_rows * l->shape.block_cols; i++) {
            float *const value = (float *)tartan_i_block_at(m, id) + i;
            *value = std::nearbyint(*value); // also of the padding, which is no number
        }
}

void expect_same(const Dense &expected, const Dense &got) {
    ASSERT_EQ(expected.elements(), got.elements());
    for (int64_t i = 0; i < got.elements(); i++)
        if (std::isnan(expected.get(i)))
            ASSERT_TRUE(std::isnan(got.get(i))) << i;
        else
            ASSERT_EQ(expected.get(i), got.get(i)) << i;
}

void BackendConvF32::expect_what_the_cpu_gives() {
    const Context host = open_context(2);
    tartan_context *const device = context.get();
    uint64_t seed = 0;
    for (const Case &c : kCases)
        for (const bool packed : {false, true}) {
            SCOPED_TRACE(::testing::Message()
                         << c.options << " rows " << c.channels.rows << " packed " << packed);
            std::mt19937_64 random(++seed);
            Problem p;
            p.conv = make_conv(random_layout(c.channels, c.density, seed), c.options);
            p.layout = layout_of(p.conv);
            p.dtype = TARTAN_F32;
            p.filter = random_matrix(p.layout, TARTAN_F32, packed ? TARTAN_COL_MAJOR : TARTAN_ROW_MAJOR,
                                     random, -3, 3);
            round(p.filter.get());
            ASSERT_TRUE(p.set_size(c.images, c.size));
            const Active a = seed % 4 == 0 ? random_active(random, p.n, p.y_size(), 0.5) : Active();
            Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), kChannelsLast), dx = x;
            int style = kRows;
            if (seed % 3 != 0) style = kChannelsLast;
            Dense y = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), style),
                  bias(TARTAN_F32, {p.y_channels()});
            fill(x, random), fill(y, random), fill(bias, random);
            if (seed % 5 == 0) x.set(x.elements() / 2, std::numeric_limits<double>::infinity());
            const Dense dy = y;
            const Matrix filter = placed(device, p.filter);
            const Placed on_x(device, x), on_y(device, y), on_dy(device, dy), on_dx(device, dx),
                on_bias(device, bias);
            tartan_array to_y = on_y.array, to_dx = on_dx.array;
            const bool adds = seed % 2 != 0;
            RUN_OR_NEXT(conv_forward(device, p.conv.get(), filter.get(), &on_x.array, nullptr, nullptr,
                                     adds ? &on_bias.array : nullptr, a.layout.get(), a.words(), &to_y));
            RUN_OR_NEXT(conv_input_gradient(device, p.conv.get(), filter.get(), &on_dy.array, a.layout.get(),
                                            a.words(), &to_dx));
            Dense got_y = y, got_dx = dx;
            on_y.fetch(got_y), on_dx.fetch(got_dx);
            ASSERT_OK(conv_forward(host.get(), p.conv.get(), p.filter.get(), &x.array, nullptr, nullptr,
                                   adds ? &bias.array : nullptr, a.layout.get(), a.words(), &y.array));
            ASSERT_OK(conv_input_gradient(host.get(), p.conv.get(), p.filter.get(), &dy.array, a.layout.get(),
                                          a.words(), &dx.array));
            expect_same(y, got_y), expect_same(dx, got_dx);
            if (HasFailure()) return;
        }
}

TEST_P(BackendConvF32, WholeNumbersGiveWhatTheCpuGives) {
    context = open("math=tf32");
    expect_what_the_cpu_gives();
}

TEST_P(BackendConvF32, WholeNumbersGiveItInTwoPartsToo) {
    expect_what_the_cpu_gives();
}

// Without tf32, errors are those of f32: of each sum, some units in the last place of the sum of magnitudes.
TEST_P(BackendConvF32, SumsOfTwoPartsAreAsExactAsF32) {
    const Context host = open_context(2);
    uint64_t seed = 100;
    for (const Case &c : {Case{"kernel=3x3 padding=1", {128, 128, 32, 32, 1}, {28, 27}, 1.0},
                          Case{"kernel=3x3 padding=1 stride=2", {64, 512, 16, 16, 1}, {30, 31}, 0.4, 6},
                          Case{"kernel=3x3 padding=1", {512, 512, 32, 32, 1}, {7, 7}, 0.5, 3}}) {
        SCOPED_TRACE(::testing::Message() << c.options << " rows " << c.channels.rows);
        std::mt19937_64 random(++seed);
        Problem p;
        p.conv = make_conv(random_layout(c.channels, c.density, seed), c.options);
        p.layout = layout_of(p.conv);
        p.dtype = TARTAN_F32;
        p.filter = random_matrix(p.layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
        ASSERT_TRUE(p.set_size(c.images, c.size));
        Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), kChannelsLast),
              y = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), kChannelsLast), dx = x;
        x.fill(random), y.fill(random);
        const Dense dy = y;
        const Matrix filter = placed(context.get(), p.filter);
        const Placed on_x(context.get(), x), on_y(context.get(), y), on_dy(context.get(), dy),
            on_dx(context.get(), dx);
        tartan_array to_y = on_y.array, to_dx = on_dx.array;
        RUN_OR_NEXT(conv_forward(context.get(), p.conv.get(), filter.get(), &on_x.array, nullptr, nullptr,
                                 nullptr, nullptr, nullptr, &to_y));
        RUN_OR_NEXT(conv_input_gradient(context.get(), p.conv.get(), filter.get(), &on_dy.array, nullptr,
                                        nullptr, &to_dx));
        Dense got_y = y, got_dx = dx;
        on_y.fetch(got_y), on_dx.fetch(got_dx);
        ASSERT_OK(conv_forward(host.get(), p.conv.get(), p.filter.get(), &x.array, nullptr, nullptr, nullptr,
                               nullptr, nullptr, &y.array));
        ASSERT_OK(conv_input_gradient(host.get(), p.conv.get(), p.filter.get(), &dy.array, nullptr, nullptr,
                                      &dx.array));
        /* The magnitudes of the terms. */
        Dense all_x = x, all_dy = dy, most_y = y, most_dx = dx;
        for (Dense *image : {&all_x, &all_dy})
            for (int64_t i = 0; i < image->elements(); i++) image->set(i, std::fabs(image->get(i)));
        for (int64_t i = 0; i < p.layout->blocks * p.layout->shape.block_rows * p.layout->shape.block_cols;
             i++)
            ((float *)p.filter->values)[i] = std::fabs(((float *)p.filter->values)[i]);
        ASSERT_OK(conv_forward(host.get(), p.conv.get(), p.filter.get(), &all_x.array, nullptr, nullptr,
                               nullptr, nullptr, nullptr, &most_y.array));
        ASSERT_OK(conv_input_gradient(host.get(), p.conv.get(), p.filter.get(), &all_dy.array, nullptr,
                                      nullptr, &most_dx.array));
        const double eps = epsilon(TARTAN_F32);
        for (int64_t i = 0; i < y.elements(); i++)
            ASSERT_NEAR(y.get(i), got_y.get(i), 8 * eps * most_y.get(i)) << i;
        for (int64_t i = 0; i < dx.elements(); i++)
            ASSERT_NEAR(dx.get(i), got_dx.get(i), 8 * eps * most_dx.get(i)) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Each, BackendConvF32, ::testing::ValuesIn(backends()),
                         [](const auto &all) { return all.param; });

} // namespace
