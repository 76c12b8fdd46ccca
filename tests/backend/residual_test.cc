// SPDX-License-Identifier: Apache-2.0
// The bottleneck unit on every backend: random units give what the CPU gives, also in place and in windows of a dynamic
// layout, with more room than windows.
#include "../device/dynamic.h"
#include "../ops/residual_support.h"

namespace {

using namespace tartan_test;

class BackendResidual : public OnBackend {
  protected:
    // Results of another device may be added up in another order; three layers of at most 24 channels and 27 taps.
    static void expect_like(const Dense &expected, const Dense &got) {
        double size = 1;
        for (int64_t i = 0; i < got.elements(); i++) size = std::max(size, std::fabs(expected.get(i)));
        for (int64_t i = 0; i < got.elements(); i++)
            ASSERT_NEAR(expected.get(i), got.get(i), 16 * epsilon(got.array.dtype) * size) << i;
    }
    // The same with all operands on the device.
    tartan_status run(const Unit &u, const tartan_array *x, const tartan_layout *windows, tartan_array *y) {
        Matrix filter[3];
        Placed gain[3], bias[3];
        UnitOperands o = u.operands();
        for (int i = 0; i < 3; i++) {
            filter[i] = placed(context.get(), u.filter[i]);
            o.filter[i] = filter[i].get();
            gain[i] = Placed(context.get(), u.gain[i]), bias[i] = Placed(context.get(), u.bias[i]);
            if (o.gain[i] != nullptr) o.gain[i] = &gain[i].array;
            if (o.bias[i] != nullptr) o.bias[i] = &bias[i].array;
        }
        const Placed x_gain(context.get(), u.x_gain), x_bias(context.get(), u.x_bias);
        if (o.x_gain != nullptr) o.x_gain = &x_gain.array;
        if (o.x_bias != nullptr) o.x_bias = &x_bias.array;
        return u.run(context.get(), o, x, windows, y);
    }
    std::vector<uint8_t> mask_of(const Unit &u) {
        const tartan_layout *l = u.active.layout.get();
        std::vector<uint8_t> mask((size_t)(l->shape.heads * l->grid_rows * l->grid_cols));
        EXPECT_OK(tartan_layout_get_mask(l, mask.data(), (int64_t)mask.size()));
        return mask;
    }
};

TEST_P(BackendResidual, RandomUnitsGiveWhatTheCpuGives) {
    const Context host = open_context(2);
    for (uint64_t seed = 0; seed < rounds(60u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const Unit u = random_unit(seed + 20000);
        const int styles[] = {kChannelsLast, kRows, kGaps};
        Dense x = u.image(styles[seed % 3]), y = u.image(styles[seed / 3 % 3]), own = x;
        x.fill(random);
        const Placed on_x(context.get(), x), on_y(context.get(), y), on_own(context.get(), x);
        tartan_array to_y = on_y.array, to_own = on_own.array;
        RUN_OR_NEXT(run(u, &on_x.array, u.active.layout.get(), &to_y));
        RUN_OR_NEXT(run(u, &to_own, u.active.layout.get(), &to_own));
        Dense got = y;
        on_y.fetch(got), on_own.fetch(own);
        ASSERT_OK(u.run(host.get(), x, y));
        EXPECT_TRUE(marks_intact(got) && marks_intact(own));
        expect_like(y, got), expect_like(y, own);
        if (HasFailure()) return;
    }
}

TEST_P(BackendResidual, WindowsOfADynamicLayout) {
    if (on_host()) GTEST_SKIP() << "dynamic layouts are on devices";
    const Context host = open_context(2);
    for (uint64_t seed = 0; seed < rounds(30u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const Unit u = random_unit(seed + 30000);
        const std::vector<uint8_t> mask = mask_of(u);
        if (mask.empty()) continue;
        const Dynamic dynamic(context.get(), u.active.layout->shape, mask, 0, false);
        Dense x = u.image(kChannelsLast), y = u.image(kRows);
        x.fill(random);
        const Placed on_x(context.get(), x), on_y(context.get(), y);
        tartan_array to_y = on_y.array;
        RUN_OR_NEXT(run(u, &on_x.array, dynamic.layout.get(), &to_y));
        Dense got = y;
        on_y.fetch(got);
        ASSERT_OK(u.run(host.get(), x, y));
        expect_like(y, got);
        if (HasFailure()) return;
    }
}

// Channels and windows of a size at which devices have other kernels.
Unit large_unit(int32_t dtype) {
    std::mt19937_64 random(5);
    Unit u;
    u.n = 2, u.channels = 64, u.size = {37, 41}, u.dtype = dtype;
    u.conv[0] = make_conv(random_layout({64, 64, 16, 16, 1}, 0.5, 1), "kernel=1x1");
    u.conv[1] = make_conv(random_layout({64, 64, 32, 32, 1}, 0.5, 2), "kernel=3x3 padding=same");
    u.conv[2] = make_conv(random_layout({64, 64, 64, 64, 1}, 1.1, 3), "kernel=1x1");
    fill_unit(u, random, 0.1);
    u.active = all_windows(2, u.size, 16);
    u.active.layout = random_layout({3, 3, 1, 1, 2}, 0.6, 4);
    return u;
}

TEST_P(BackendResidual, LargeUnits) {
    const Context host = open_context(2);
    for (const int32_t dtype : {TARTAN_F32, TARTAN_BF16, TARTAN_F16}) {
        std::mt19937_64 random(6);
        const Unit u = large_unit(dtype);
        Dense x = u.image(kChannelsLast);
        x.fill(random);
        const Placed on_x(context.get(), x);
        tartan_array to = on_x.array;
        RUN_OR_NEXT(run(u, &to, u.active.layout.get(), &to));
        Dense got = x;
        on_x.fetch(got);
        ASSERT_OK(u.run(host.get(), x, x));
        expect_like(x, got);
    }
}

TEST_P(BackendResidual, NoMemoryOnTheDevice) {
    if (!dummy()) GTEST_SKIP() << "only the dummy can fail";
    std::mt19937_64 random(1);
    const Unit u = large_unit(TARTAN_F32);
    Dense x = u.image(kChannelsLast);
    x.fill(random);
    const Placed on_x(context.get(), x);
    tartan_array to = on_x.array;
    Matrix filter[3];
    UnitOperands o;
    for (int i = 0; i < 3; i++) filter[i] = placed(context.get(), u.filter[i]), o.filter[i] = filter[i].get();
    tartan_dummy.fail_at = tartan_dummy.asked;
    EXPECT_FAILS(MEMORY, "", u.run(context.get(), o, &to, u.active.layout.get(), &to));
    tartan_dummy.fail_at = -1;
    Dense got = x;
    on_x.fetch(got);
    EXPECT_EQ(x.memory(), got.memory());
    ASSERT_OK(u.run(context.get(), o, &to, u.active.layout.get(), &to));
}

INSTANTIATE_TEST_SUITE_P(Each, BackendResidual, ::testing::ValuesIn(backends()),
                         [](const auto &all) { return all.param; });

} // namespace
