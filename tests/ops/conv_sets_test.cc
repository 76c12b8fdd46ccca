// SPDX-License-Identifier: Apache-2.0
// Convolutions from sets of channels, and filters in other orders: the nine configurations of openai/blocksparse's test.
#include "conv_support.h"

namespace {

using namespace tartan_test;

// Sets of channels and their weights, block after block, each [output channels, input channels, taps].
struct Sets {
    int64_t in_channels = 0, out_channels = 0;
    std::vector<int64_t> in_offsets{0}, in_ids, out_offsets{0}, out_ids;
    void add(const std::vector<int64_t> &in, const std::vector<int64_t> &out) {
        in_ids.insert(in_ids.end(), in.begin(), in.end());
        out_ids.insert(out_ids.end(), out.begin(), out.end());
        in_offsets.push_back((int64_t)in_ids.size());
        out_offsets.push_back((int64_t)out_ids.size());
    }
    size_t count() const { return in_offsets.size() - 1; }
    tartan_status from_sets(const char *options, tartan_conv **out) const {
        return tartan_conv_from_sets(sets_of(in_channels, in_offsets, in_ids),
                                     sets_of(out_channels, out_offsets, out_ids), options, out);
    }
    ConvHandle make(const std::string &options) const {
        tartan_conv *conv = nullptr;
        EXPECT_OK(from_sets(options.c_str(), &conv));
        return ConvHandle(conv);
    }
    // Calls f(k, c, tap, index in the list) for each weight.
    template <typename F> int64_t each(int64_t taps, F f) const {
        int64_t at = 0;
        for (size_t b = 0; b < count(); b++)
            for (int64_t i = out_offsets[b]; i < out_offsets[b + 1]; i++)
                for (int64_t j = in_offsets[b]; j < in_offsets[b + 1]; j++)
                    for (int64_t t = 0; t < taps; t++) f(out_ids[(size_t)i], in_ids[(size_t)j], t, at++);
        return at;
    }
};

std::vector<int64_t> range(int64_t first, int64_t n) {
    std::vector<int64_t> v((size_t)n);
    for (int64_t i = 0; i < n; i++) v[(size_t)i] = first + i;
    return v;
}
Sets diagonal() {
    Sets s;
    s.in_channels = 128, s.out_channels = 192;
    for (int64_t b = 0; b < 4; b++) s.add(range(32 * b, 32), range(48 * b, 48));
    return s;
}
Sets overlap() {
    Sets s;
    s.in_channels = 72, s.out_channels = 144;
    for (int64_t b = 0; b < 8; b++) s.add(range(8 * b, 16), range(16 * b, 32));
    return s;
}
Sets random_sets(std::mt19937_64 &random) {
    Sets s;
    s.in_channels = 1 + (int64_t)below(random, 20), s.out_channels = 1 + (int64_t)below(random, 20);
    const auto some = [&](int64_t channels) {
        std::vector<int64_t> all = range(0, channels);
        std::shuffle(all.begin(), all.end(), random);
        all.resize(below(random, (size_t)channels + 1));
        return all;
    };
    const size_t sets = below(random, 6);
    for (size_t b = 0; b < sets; b++) {
        s.add(some(s.in_channels), some(s.out_channels));
        if (below(random, 3) == 0) { // a set with the channels of another on one side, or both
            const size_t o = below(random, s.count());
            const auto part = [&](const std::vector<int64_t> &ids, const std::vector<int64_t> &offsets) {
                return std::vector<int64_t>(ids.begin() + offsets[o], ids.begin() + offsets[o + 1]);
            };
            const auto in = part(s.in_ids, s.in_offsets), out = part(s.out_ids, s.out_offsets);
            s.add(below(random, 2) == 0 ? some(s.in_channels) : in,
                  below(random, 2) == 0 ? some(s.out_channels) : out);
        }
    }
    return s;
}

// A problem of sets, with all sums of the three passes made from the list of weights alone.
struct SetsProblem {
    Sets sets;
    Problem p;
    Dense list, x, y, dy, dx, dlist;

    SetsProblem(const Sets &of, const std::string &options, int32_t dtype, int64_t n,
                const std::vector<int64_t> &in, std::mt19937_64 &random)
        : sets(of) {
        p.conv = sets.make(options);
        p.layout = layout_of(p.conv);
        p.dtype = dtype;
        EXPECT_TRUE(p.set_size(n, in));
        tartan_matrix *raw = nullptr;
        EXPECT_OK(tartan_matrix_create(p.layout.get(), dtype, TARTAN_ROW_MAJOR, &raw));
        p.filter.reset(raw);
        dlist = list = Dense(dtype, {sets.each(p.conv->options.taps, [](auto...) {})});
        list.fill(random, -0.3, 0.3);
        EXPECT_OK(tartan_conv_filter_from_sets(p.conv.get(), &list.array, p.filter.get()));
        dx = x = make_image(dtype, n, p.x_channels(), p.x_size(), kChannelsLast);
        dy = y = make_image(dtype, n, p.y_channels(), p.y_size(), kRows);
        x.fill(random);
        dy.fill(random);
    }
    void run(tartan_context *context) {
        EXPECT_OK(conv_forward(context, p.conv.get(), p.filter.get(), &x.array, nullptr, nullptr, nullptr,
                               nullptr, nullptr, &y.array));
        EXPECT_OK(conv_input_gradient(context, p.conv.get(), p.filter.get(), &dy.array, nullptr, nullptr,
                                      &dx.array));
        tartan_matrix *raw = nullptr;
        EXPECT_OK(tartan_matrix_create(p.layout.get(), p.dtype, TARTAN_ROW_MAJOR, &raw));
        const Matrix grad(raw);
        EXPECT_OK(tartan_conv_filter_gradient(context, p.conv.get(), &x.array, &dy.array, nullptr, nullptr, 0,
                                              raw));
        EXPECT_OK(tartan_conv_filter_to_sets(p.conv.get(), raw, &dlist.array));
    }
    void check(double tolerance) {
        const int64_t ps = Problem::product(p.out), qs = Problem::product(p.in), K = sets.out_channels,
                      C = sets.in_channels;
        const bool turned = p.transposed();
        std::vector<std::vector<std::pair<int64_t, int64_t>>> joined((size_t)p.conv->options.taps);
        p.each_pair([&](int64_t t, int64_t a, int64_t b, auto &, auto &) {
            if (b >= 0) joined[(size_t)t].emplace_back(a, b);
        });
        const auto values = [](const Dense &d) {
            std::vector<double> all((size_t)d.elements());
            for (size_t i = 0; i < all.size(); i++) all[i] = d.get((int64_t)i);
            return all;
        };
        const auto from = values(turned ? dy : x), out = values(turned ? x : dy);
        std::vector<double> rows((size_t)(p.n * K * ps)), cols((size_t)(p.n * C * qs)),
            weights((size_t)list.elements());
        sets.each(p.conv->options.taps, [&](int64_t k, int64_t c, int64_t t, int64_t at) {
            const double w = list.get(at);
            double sum = 0;
            for (int64_t n = 0; n < p.n; n++)
                for (const auto &[a, b] : joined[(size_t)t]) {
                    const size_t row = (size_t)((n * K + k) * ps + a), col = (size_t)((n * C + c) * qs + b);
                    rows[row] += w * from[col];
                    cols[col] += w * out[row];
                    sum += from[col] * out[row];
                }
            weights[(size_t)at] = sum;
        });
        const auto near = [&](const std::vector<double> &want, const Dense &got, const char *what) {
            for (size_t i = 0; i < want.size(); i++)
                ASSERT_NEAR(want[i], got.get((int64_t)i), tolerance + tolerance * std::fabs(want[i]))
                    << what << " " << i;
        };
        near(turned ? cols : rows, y, "y");
        near(turned ? rows : cols, dx, "dx");
        near(weights, dlist, "filter gradient");
    }
};

TEST(ConvSets, TheNineConfigurations) {
    const Context own = open_context(2);
    const struct {
        Sets sets;
        const char *options;
        std::vector<int64_t> size;
    } cases[] = {
        {diagonal(), "kernel=1 padding=valid", {32}},
        {diagonal(), "kernel=3 stride=2 padding=half", {32}},
        {diagonal(), "kernel=5 stride=2 padding=half", {32}},
        {overlap(), "kernel=3 dilation=2 padding=same", {32}},
        {diagonal(), "kernel=1x1x3 stride=1x1x2 padding=half", {1, 1, 32}},
        {diagonal(), "kernel=3x3 padding=same", {8, 8}},
        {overlap(), "kernel=3x3 padding=valid", {8, 8}},
        {diagonal(), "kernel=3x3x3 padding=same", {4, 4, 4}},
        {diagonal(), "kernel=3 stride=2 padding=half transposed=1", {32}},
    };
    for (size_t i = 0; i < 9; i++)
        for (int64_t n : {1, 2, 28}) {
            SCOPED_TRACE(::testing::Message() << "configuration " << i + 1 << ", N = " << n);
            std::mt19937_64 random(i);
            SetsProblem p(cases[i].sets, cases[i].options, TARTAN_F32, n, cases[i].size, random);
            p.run(own.get());
            p.check(1e-4);
            if (HasFatalFailure() || HasFailure()) return;
        }
}

TEST(ConvSets, RandomSetsEqualTheOracle) {
    const Context own = open_context(3);
    for (uint64_t seed = 0; seed < rounds(200u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const Sets sets = random_sets(random);
        const char *options[] = {"kernel=3x2 padding=half stride=2",
                                 "kernel=2x3 dilation=2x1 padding=2 transposed=1", "kernel=1x1"};
        SetsProblem p(sets, options[seed % 3], seed % 4 == 0 ? TARTAN_F32 : TARTAN_F64, 2, {5, 6}, random);
        p.run(own.get());
        p.check(seed % 4 == 0 ? 1e-4 : 1e-12);
        if (HasFailure()) return;
    }
}

TEST(ConvSets, FiltersReturnFromDenseAndFromLists) {
    for (uint64_t seed = 0; seed < rounds(100u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        SetsProblem s(random_sets(random), "kernel=3x2 padding=same", kDtypes[seed % 4], 1, {3, 3}, random);
        ASSERT_OK(tartan_conv_filter_to_sets(s.p.conv.get(), s.p.filter.get(), &s.dlist.array));
        for (int64_t i = 0; i < s.list.elements(); i++) ASSERT_EQ(s.list.get(i), s.dlist.get(i));
        const int64_t K = s.sets.out_channels, C = s.sets.in_channels;
        Dense dense(TARTAN_F64, {K, C, 3, 2}, (Style)(seed % 4));
        ASSERT_OK(tartan_conv_filter_to_dense(s.p.conv.get(), s.p.filter.get(), &dense.array));
        EXPECT_TRUE(marks_intact(dense));
        std::vector<double> want((size_t)(K * C * 6));
        std::vector<int> weights(want.size());
        s.sets.each(6, [&](int64_t k, int64_t c, int64_t t, int64_t at) {
            want[(size_t)((k * C + c) * 6 + t)] += s.list.get(at);
            weights[(size_t)((k * C + c) * 6 + t)]++;
        });
        for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(want[i], dense.get((int64_t)i), 1e-12);
        const bool single = weights.empty() || *std::max_element(weights.begin(), weights.end()) <= 1;
        if (!single) {
            EXPECT_FAILS(UNSUPPORTED, "several sets join channels",
                         tartan_conv_filter_from_dense(s.p.conv.get(), &dense.array, s.p.filter.get()));
            continue;
        }
        tartan_matrix *raw = nullptr;
        ASSERT_OK(tartan_matrix_create(s.p.layout.get(), s.p.dtype, TARTAN_COL_MAJOR, &raw));
        const Matrix again(raw);
        ASSERT_OK(tartan_conv_filter_from_dense(s.p.conv.get(), &dense.array, raw));
        ASSERT_OK(tartan_conv_filter_to_sets(s.p.conv.get(), raw, &s.dlist.array));
        for (int64_t i = 0; i < s.list.elements(); i++) ASSERT_EQ(s.list.get(i), s.dlist.get(i));
    }
}

TEST(ConvSets, FiltersOnLayoutsReturnFromDenseAndFromLists) {
    for (uint64_t seed = 0; seed < rounds(100u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        Problem p = random_problem(seed);
        SCOPED_TRACE(p.conv->text);
        std::vector<int64_t> shape{p.conv->rows.count, p.conv->cols.count};
        shape.insert(shape.end(), p.conv->options.kernel + 3 - p.dims(), p.conv->options.kernel + 3);
        Dense dense(p.dtype, shape, kColumns);
        const auto same = [&](const tartan_matrix *other) {
            p.each_weight([&](int64_t, int64_t, int64_t, int64_t id, int64_t i, int64_t j) {
                ASSERT_EQ(entry(p.filter.get(), id, i, j), entry(other, id, i, j));
            });
        };
        ASSERT_OK(tartan_conv_filter_to_dense(p.conv.get(), p.filter.get(), &dense.array));
        double sum = 0, want = 0;
        for (int64_t i = 0; i < dense.elements(); i++) sum += dense.get(i);
        int64_t weights = 0;
        p.each_weight([&](int64_t, int64_t, int64_t, int64_t id, int64_t i, int64_t j) {
            want += entry(p.filter.get(), id, i, j);
            weights++;
        });
        EXPECT_NEAR(want, sum, 1e-6);
        tartan_matrix *raw = nullptr;
        ASSERT_OK(tartan_matrix_create(p.layout.get(), p.dtype, TARTAN_ROW_MAJOR, &raw));
        const Matrix again(raw);
        ASSERT_OK(tartan_conv_filter_from_dense(p.conv.get(), &dense.array, raw));
        same(raw);
        Dense list(p.dtype, {weights}, kGaps);
        if (p.conv->options.per_tap) {
            EXPECT_FAILS(UNSUPPORTED, "per_tap=1",
                         tartan_conv_filter_to_sets(p.conv.get(), raw, &list.array));
            continue;
        }
        ASSERT_OK(tartan_conv_filter_to_sets(p.conv.get(), p.filter.get(), &list.array));
        EXPECT_TRUE(marks_intact(list));
        ASSERT_OK(tartan_matrix_create(p.layout.get(), p.dtype, TARTAN_COL_MAJOR, &raw));
        const Matrix third(raw);
        ASSERT_OK(tartan_conv_filter_from_sets(p.conv.get(), &list.array, raw));
        same(raw);
    }
}

// ---- Refusals and failed allocations ----

TEST(ConvSets, Refusals) {
    tartan_conv *conv = nullptr;
    const auto spoiled = [&](auto spoil) {
        Sets s = overlap();
        spoil(s);
        return s.from_sets("kernel=3", &conv);
    };
    EXPECT_FAILS(ARGUMENT, "cols.ids[5] is 72, expected 0 .. 71", spoiled([](Sets &s) { s.in_ids[5] = 72; }));
    EXPECT_FAILS(ARGUMENT, "rows.ids[7] is -1", spoiled([](Sets &s) { s.out_ids[7] = -1; }));
    EXPECT_FAILS(ARGUMENT, "cols.ids has channel 3 twice in set 0",
                 spoiled([](Sets &s) { s.in_ids[5] = 3; }));
    EXPECT_FAILS(ARGUMENT, "rows.ids has channel 16 twice in set 1",
                 spoiled([](Sets &s) { s.out_ids[33] = 16; }));
    EXPECT_FAILS(SHAPE, "cols.offsets go from 1 to", spoiled([](Sets &s) { s.in_offsets[0] = 1; }));
    EXPECT_FAILS(SHAPE, "rows.offsets go from 0 to 300",
                 spoiled([](Sets &s) { s.out_offsets.back() = 300; }));
    EXPECT_FAILS(SHAPE, "cols.offsets[2] is 10 after 16", spoiled([](Sets &s) { s.in_offsets[2] = 10; }));
    EXPECT_FAILS(SHAPE, "rows.offsets has 8 entries, expected 9",
                 spoiled([](Sets &s) { s.out_offsets.pop_back(); }));
    EXPECT_FAILS(SHAPE, "cols.offsets has 0 entries", spoiled([](Sets &s) { s.in_offsets.clear(); }));
    EXPECT_FAILS(SHAPE, "cols.channels is -1", spoiled([](Sets &s) { s.in_channels = -1; }));
    const Sets s = overlap();
    EXPECT_FAILS(ARGUMENT, "per_tap=1", s.from_sets("kernel=3 per_tap=1", &conv));
    EXPECT_FAILS(ARGUMENT, "no kernel", s.from_sets("", &conv));
    EXPECT_FAILS(HANDLE, "out is NULL", s.from_sets("kernel=3", nullptr));
    const int64_t offsets[] = {0, 1}, channel = 0;
    const auto given = sets_of(1, offsets, 2, &channel, 1);
    const auto refused = [&](const tartan_channel_sets *cols, const tartan_channel_sets *rows) {
        return tartan_conv_from_sets(cols, rows, "kernel=3", &conv);
    };
    EXPECT_FAILS(HANDLE, "cols is NULL", refused(nullptr, given));
    EXPECT_FAILS(HANDLE, "rows is NULL", refused(given, nullptr));
    EXPECT_FAILS(HANDLE, "cols.offsets is NULL", refused(sets_of(1, nullptr, 2, &channel, 1), given));
    EXPECT_FAILS(HANDLE, "rows.ids is NULL", refused(given, sets_of(1, offsets, 2, nullptr, 1)));
    EXPECT_EQ(nullptr, conv);
}

TEST(ConvSets, FilterRefusals) {
    std::mt19937_64 random(1);
    SetsProblem s(diagonal(), "kernel=3x2", TARTAN_F32, 1, {3, 3}, random);
    const tartan_conv *conv = s.p.conv.get();
    tartan_matrix *filter = s.p.filter.get();
    Dense dense(TARTAN_F32, {192, 128, 3, 2}), small(TARTAN_F32, {192, 128, 3}), short_list(TARTAN_F32, {5});
    EXPECT_FAILS(HANDLE, "conv is NULL", tartan_conv_filter_from_dense(nullptr, &dense.array, filter));
    EXPECT_FAILS(HANDLE, "conv is NULL", tartan_conv_filter_to_dense(nullptr, filter, &dense.array));
    EXPECT_FAILS(HANDLE, "conv is NULL", tartan_conv_filter_from_sets(nullptr, &s.list.array, filter));
    EXPECT_FAILS(HANDLE, "conv is NULL", tartan_conv_filter_to_sets(nullptr, filter, &s.list.array));
    EXPECT_FAILS(HANDLE, "filter is NULL", tartan_conv_filter_from_dense(conv, &dense.array, nullptr));
    EXPECT_FAILS(HANDLE, "dense is NULL", tartan_conv_filter_from_dense(conv, nullptr, filter));
    EXPECT_FAILS(SHAPE, "expected [192, 128, 3, 2]",
                 tartan_conv_filter_from_dense(conv, &small.array, filter));
    EXPECT_FAILS(SHAPE, "expected [192, 128, 3, 2]", tartan_conv_filter_to_dense(conv, filter, &small.array));
    EXPECT_FAILS(SHAPE, "list has shape [5]", tartan_conv_filter_from_sets(conv, &short_list.array, filter));
    EXPECT_FAILS(SHAPE, "list has shape [5]", tartan_conv_filter_to_sets(conv, filter, &short_list.array));
    tartan_array inside = s.list.array;
    inside.data = filter->values;
    EXPECT_FAILS(ARGUMENT, "filter", tartan_conv_filter_from_sets(conv, &inside, filter));
    EXPECT_FAILS(ARGUMENT, "list", tartan_conv_filter_to_sets(conv, filter, &inside));
    tartan_array bytes = s.list.array;
    bytes.dtype = TARTAN_U8;
    EXPECT_NE(TARTAN_OK, tartan_conv_filter_from_sets(conv, &bytes, filter));
    bytes.dtype = TARTAN_F8E4M3;
    EXPECT_FAILS(DTYPE, "list is of", tartan_conv_filter_from_sets(conv, &bytes, filter));
    const Matrix other =
        random_matrix(random_layout({192, 768, 8, 8, 1}, 0.5, 1), TARTAN_F32, TARTAN_ROW_MAJOR, random);
    EXPECT_FAILS(LAYOUT, "filter has another layout",
                 tartan_conv_filter_from_dense(conv, &dense.array, other.get()));
    EXPECT_FAILS(LAYOUT, "filter has another layout",
                 tartan_conv_filter_to_sets(conv, other.get(), &s.list.array));
}

TEST(ConvSets, SurvivesFailedAllocations) {
    tartan_conv *conv = nullptr;
    const Sets sets = overlap();
    { BRUTAL(sets.from_sets("kernel=3x3", &conv), tartan_conv_free(conv)); }
    std::mt19937_64 random(1);
    SetsProblem s(sets, "kernel=3 padding=same", TARTAN_F32, 2, {9}, random);
    const auto run = [&](tartan_context *context) {
        return conv_forward(context, s.p.conv.get(), s.p.filter.get(), &s.x.array, nullptr, nullptr, nullptr,
                            nullptr, nullptr, &s.y.array);
    };
    { BRUTAL(in_new_context(2, run), ); }
    Sets apart; // channels that overlap without a pair in two sets, so that a dense filter has all weights
    apart.in_channels = 4, apart.out_channels = 4;
    apart.add({0, 1}, {0, 1, 2}), apart.add({2, 3}, {2, 3});
    SetsProblem d(apart, "kernel=2", TARTAN_F32, 1, {3}, random);
    Dense dense(TARTAN_F32, {4, 4, 2});
    dense.fill(random);
    { BRUTAL(tartan_conv_filter_from_dense(d.p.conv.get(), &dense.array, d.p.filter.get()), ); }
}

} // namespace
