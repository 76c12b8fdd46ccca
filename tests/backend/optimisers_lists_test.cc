// SPDX-License-Identifier: Apache-2.0
// Optimisers on lists of many arrays in host memory.
#include "optimisers.h"

namespace {

using namespace tartan_test;

struct Many {
    std::vector<std::vector<float>> numbers;
    std::vector<tartan_array> p, g, m, v;

    explicit Many(int64_t count) {
        for (std::vector<tartan_array> *one : {&p, &g, &m, &v})
            for (int64_t i = 0; i < count; i++) {
                numbers.emplace_back((size_t)(1 + i % 7), 1.0f);
                one->push_back(array_of(numbers.back().data(), TARTAN_F32, {1 + i % 7}));
            }
    }
    tartan_status run(tartan_context *context, const char *options = "") {
        const tartan_adam_arguments all = {p.data(), g.data(),          m.data(), v.data(), nullptr, nullptr,
                                           nullptr,  (int64_t)p.size(), nullptr,  nullptr,  options};
        return tartan_adam(context, &all);
    }
    bool untouched() const {
        for (const auto &one : numbers)
            for (const float x : one)
                if (x != 1) return false;
        return true;
    }
};

TEST(Optimisers, OfThousandsOfArrays) {
    Many all(3000), one(7);
    const Context context = open_context(2);
    ASSERT_OK(all.run(context.get()));
    ASSERT_OK(one.run(context.get()));
    for (size_t i = 0; i < all.numbers.size(); i++)
        for (const float x : all.numbers[i]) {
            const size_t list = i / 3000; // all arrays of a list are alike
            ASSERT_EQ(one.numbers[7 * list][0], x);
        }
}

TEST(Optimisers, RefuseWhatIsWrongWithOneOfManyArrays) {
    Many all(100);
    const auto expect = [&](tartan_status status, const char *text) {
        EXPECT_EQ(status, all.run(cpu()));
        EXPECT_NE(std::string(tartan_last_error()).find(text), std::string::npos) << tartan_last_error();
        EXPECT_TRUE(all.untouched());
    };
    all.g[41].shape[0] = 2;
    expect(TARTAN_ERR_SHAPE,
           "adam: array 42 of gradients has shape [2], expected [7] (as array 42 of parameters)");
    all.g[41].shape[0] = 7;
    all.m[3].dtype = TARTAN_F64;
    expect(TARTAN_ERR_DTYPE, "adam: array 4 of means is of float64, expected float32, float16, bfloat16 or "
                             "float8_e4m3fn (array 4 of parameters is of float32)");
    all.m[3].dtype = TARTAN_F32;
    all.p[99].data = nullptr;
    expect(TARTAN_ERR_HANDLE, "adam: array 100 of parameters of shape [2] has data NULL");
    all.p[99].data = all.p[98].data;
    expect(TARTAN_ERR_ARGUMENT, "overlap");
    all.p[99].data = all.g[0].data;
    expect(TARTAN_ERR_ARGUMENT, "overlap");
    Dense gates(TARTAN_F32, {2}, kRows);
    Many few(2);
    std::vector<tartan_array> two = {gates.array, gates.array};
    const tartan_adam_arguments arguments = {few.p.data(),
                                             few.g.data(),
                                             few.m.data(),
                                             few.v.data(),
                                             two.data(),
                                             nullptr,
                                             nullptr,
                                             2,
                                             nullptr,
                                             nullptr,
                                             ""};
    EXPECT_FAILS(SHAPE, "adam: array 1 of gates has shape [2], expected [1], which is",
                 tartan_adam(cpu(), &arguments));
    EXPECT_TRUE(few.untouched());
}

TEST(Optimisers, RefuseMomentumWithoutVelocities) {
    Dense p(TARTAN_F32, {3}, kRows), g(TARTAN_F32, {3}, kRows);
    const auto run = [&](const char *options) {
        const tartan_sgd_arguments all = {&p.array, &g.array, nullptr, nullptr, nullptr,
                                          1,        nullptr,  nullptr, options};
        return tartan_sgd(cpu(), &all);
    };
    for (int64_t e = 0; e < 3; e++) p.set(e, 1), g.set(e, 1);
    EXPECT_FAILS(ARGUMENT, "momentum is 0.5, expected 0 without velocities", run("momentum=0.5"));
    for (int64_t e = 0; e < 3; e++) EXPECT_EQ(1, p.get(e));
}

// Allocations for lists that are long fail cleanly.
TEST(Optimisers, SurviveEveryFailingAllocation) {
    Many all(200);
    const auto call = [&] {
        const tartan_status status =
            in_new_context(2, [&](tartan_context *context) { return all.run(context); });
        EXPECT_TRUE(status == TARTAN_OK || all.untouched());
        return status;
    };
    BRUTAL(call(), {});
}

TEST(Optimisers, GiveTheSameBitsForAnyNumberOfThreads) {
    std::vector<std::string> first;
    for (const int threads : {1, 2, 3, 7}) {
        std::mt19937_64 random(5);
        const Context context = open_context(threads);
        const std::vector<int32_t> dtypes(kShapes.size(), TARTAN_F32);
        Lists lists;
        for (const char *name : {"parameters", "gradients", "means", "squares"})
            lists[name] = list(random, dtypes, true, 0.1, 2);
        lists["norm"] = lists["scale"] = {Dense(TARTAN_F64, {1}, kRows)};
        ASSERT_OK(call(context.get(), true, "global_norm", "", lists));
        ASSERT_OK(call(context.get(), true, "adam", "", lists));
        ASSERT_OK(call(context.get(), true, "group_lasso", "", lists));
        std::vector<std::string> bits;
        for (const auto &[name, all] : lists)
            for (const Dense &one : all) bits.emplace_back(one.memory().begin(), one.memory().end());
        if (first.empty()) first = bits;
        EXPECT_TRUE(first == bits) << threads << " threads";
    }
}

} // namespace
