// SPDX-License-Identifier: Apache-2.0
// The interface of patterns, and those given by a rule: each against its formula, said again here.
#include <clocale>
#include <cstring>
#include <set>

#include "layouts.h"

using namespace tartan_test;

namespace {

TEST(Patterns, TableIsWhole) {
    std::set<std::string> names;
    for (int32_t i = 0; i < tartan_pattern_count(); i++) {
        ASSERT_NE(tartan_pattern_name(i), nullptr);
        ASSERT_NE(tartan_pattern_help(i), nullptr);
        EXPECT_TRUE(names.insert(tartan_pattern_name(i)).second);
    }
    EXPECT_EQ(names, (std::set<std::string>{"dense", "block_diagonal", "banded", "causal", "local", "strided",
                                            "dilated", "local_strided", "fixed", "checker", "butterfly",
                                            "conv_window", "random", "balanced_random", "bigbird",
                                            "barabasi_albert", "watts_strogatz", "watts_strogatz_2d"}));
    for (int32_t i : {-1, tartan_pattern_count(), INT32_MAX, INT32_MIN}) {
        EXPECT_EQ(tartan_pattern_name(i), nullptr);
        EXPECT_EQ(tartan_pattern_help(i), nullptr);
    }
    EXPECT_STREQ(tartan_pattern_help(0), "every block");
}

// "what it is\nparameter=default: meaning\n..."; giving all defaults is the same as giving none.
TEST(Patterns, HelpSaysTheDefaults) {
    for (int32_t i = 0; i < tartan_pattern_count(); i++) {
        std::string help = tartan_pattern_help(i), name = tartan_pattern_name(i), given;
        for (size_t at = help.find('\n'); at != std::string::npos; at = help.find('\n', at + 1)) {
            size_t colon = help.find(": ", at), equals = help.find('=', at);
            ASSERT_LT(equals, colon) << help;
            ASSERT_NE(colon, std::string::npos) << help;
            given += " " + help.substr(at + 1, colon - at - 1);
        }
        Layout all = pattern(square(16), name, given), none = pattern(square(16), name);
        EXPECT_EQ(tartan_layout_equal(all.get(), none.get()), 1) << name;
        EXPECT_STREQ(tartan_layout_recipe(all.get()), tartan_layout_recipe(none.get()));
        tartan_layout *out = nullptr;
        tartan_shape s = square(16);
        ASSERT_OK(tartan_layout_from_pattern(&s, name.c_str(), nullptr, 1, &out));
        EXPECT_EQ(tartan_layout_equal(out, none.get()), 1);
        tartan_layout_free(out);
    }
}

TEST(Patterns, EmptyAndRaggedFrames) {
    for (int32_t i = 0; i < tartan_pattern_count(); i++) {
        std::string name = tartan_pattern_name(i);
        for (tartan_shape s :
             {tartan_shape{0, 0, 4, 4, 2}, tartan_shape{0, 9, 4, 4, 1}, tartan_shape{9, 0, 4, 4, 1}})
            EXPECT_EQ(tartan_layout_blocks(pattern(s, name).get()), 0) << name;
        if (name == "conv_window") continue;
        Layout ragged = pattern({61, 63, 4, 4, 1}, name), whole = pattern({64, 64, 4, 4, 1}, name);
        EXPECT_EQ(mask_of(ragged), mask_of(whole)) << name;
    }
    EXPECT_EQ(tartan_layout_blocks(pattern({61, 61, 4, 4, 1}, "conv_window").get()), 31);
}

TEST(Patterns, Recipes) {
    auto recipe = [](const char *name, const char *parameters, int64_t seed = 1) {
        return std::string(tartan_layout_recipe(pattern(square(12), name, parameters, seed).get()));
    };
    EXPECT_EQ(recipe("dense", ""), "{\"pattern\":\"dense\",\"seed\":1}");
    EXPECT_EQ(recipe("banded", "upper=2"), "{\"pattern\":\"banded\",\"lower\":1,\"upper\":2,\"seed\":1}");
    EXPECT_EQ(recipe("random", "density=0.3", 7),
              "{\"pattern\":\"random\",\"density\":0.3,\"shared\":0,\"seed\":7}");
    EXPECT_EQ(recipe("random", "density=.12345678901234567"),
              "{\"pattern\":\"random\",\"density\":0.12345678901234566,\"shared\":0,\"seed\":1}");
    EXPECT_EQ(recipe("causal", "offset=-0", INT64_MAX),
              "{\"pattern\":\"causal\",\"offset\":0,\"seed\":9223372036854775807}");
    EXPECT_EQ(recipe("causal", "offset=-2147483647"),
              "{\"pattern\":\"causal\",\"offset\":-2147483647,\"seed\":1}");
}

TEST(Patterns, ParametersInAnyDress) {
    Layout expected = pattern(square(12), "banded", "lower=3 upper=2");
    for (const char *text : {"upper=2 lower=3", "upper=2,lower=3", "  lower=3 ,\t upper=2 ,",
                             "lower=3.0\nupper=2e0", "lower=+3 upper=02"})
        EXPECT_EQ(tartan_layout_equal(expected.get(), pattern(square(12), "banded", text).get()), 1) << text;
}

TEST(Patterns, Refusals) {
    tartan_shape s = square(8);
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_from_pattern(&s, "dense", "", 0, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "shape is NULL", tartan_layout_from_pattern(nullptr, "dense", "", 0, &out));
    EXPECT_NO_LAYOUT(HANDLE, "pattern is NULL", tartan_layout_from_pattern(&s, nullptr, "", 0, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "seed is -1, expected >= 0",
                     tartan_layout_from_pattern(&s, "dense", "", -1, &out));
    EXPECT_NO_LAYOUT(NOT_FOUND, "pattern is 'tartan', expected one of dense, block_diagonal",
                     try_pattern(s, "tartan", "", &out));
    EXPECT_NO_LAYOUT(NOT_FOUND, "watts_strogatz_2d", try_pattern(s, std::string(5000, 'x'), "", &out));
    EXPECT_NO_LAYOUT(NOT_FOUND, "pattern is ''", try_pattern(s, "", "", &out));
    auto refused = [&](const char *name, const std::string &parameters, const char *part) {
        EXPECT_NO_LAYOUT(ARGUMENT, part, try_pattern(s, name, parameters, &out));
    };
    refused("banded", "width=3", "'width', which pattern 'banded' does not have; it has: lower, upper");
    refused("dense", "width=3", "it has: none");
    refused("banded", "low=3", "'low', which");
    refused("banded", "lowerr=3", "'lowerr', which");
    refused("banded", "=3", "'', which");
    refused("banded", std::string(5000, 'x') + "=1", "which pattern 'banded' does not have");
    refused("banded", "lower", "parameters has 'lower', expected name=value");
    refused("banded", "lower =3", "parameters has 'lower', expected name=value");
    refused("banded", "lower=1 lower=1", "lower twice");
    for (const char *bad :
         {"", "x", "1x", "-1", "1.5", "2147483648", "0x10", "1e", "1e400", "nan", "inf", "--1", "1=2"})
        refused("banded", std::string("lower=") + bad, "expected a whole number 0 .. 2147483647");
    refused("banded", "lower=" + std::string(5000, '1'), "expected a whole number");
    for (const char *bad : {"-0.1", "1.1", "", "nan", "1.0000000000000002", "-1e-300"})
        refused("random", std::string("density=") + bad, "expected a number 0 .. 1");
    refused("random", "density=0,5", "parameters has '5', expected name=value"); // no decimal comma
    refused("fixed", "stride=4 vertsize=3", "expected vertsize to divide stride");
    refused("fixed", "stride=4 vertsize=8", "expected vertsize to divide stride");
    refused("fixed", "stride=4 vertsize=2 num_verts=3", "num_verts * vertsize <= stride");
    refused("fixed", "num_verts=2", "num_verts=2, expected a divisor of 1 (heads)");
    refused("barabasi_albert", "m=8", "m=8, expected less than 8");
    refused("barabasi_albert", "m=0", "expected a whole number 1 ..");
    refused("barabasi_albert", "m=5 extra=4", "extra=4, expected at most the 3 edges still absent");
    refused("watts_strogatz", "m=4", "m=4, expected less than half of 8");
    refused("watts_strogatz", "m=2 extra=13", "at most the 12 edges");
    refused("watts_strogatz_2d", "height=3", "height=3, expected a divisor of 8");
    refused("watts_strogatz_2d", "m=8", "m=8, expected less than 8");
    refused("balanced_random", "per_row=9", "per_row=9, expected at most 8");
    refused("conv_window", "filter_w=4", "odd sizes where stride is 1");
    s = {8, 6, 1, 1, 1};
    for (const char *name :
         {"strided", "butterfly", "barabasi_albert", "watts_strogatz", "watts_strogatz_2d"})
        EXPECT_NO_LAYOUT(SHAPE, "grid of 8 x 6, expected a square one", try_pattern(s, name, "", &out));
    EXPECT_NO_LAYOUT(SHAPE, "expected input_h * input_w = 4 * 1",
                     try_pattern(s, "conv_window", "input_h=4", &out));
    EXPECT_NO_LAYOUT(SHAPE, "8 output positions, expected 1 * 6", try_pattern(s, "conv_window", "", &out));
    s = square(8, 1, 4);
    EXPECT_NO_LAYOUT(SHAPE, "expected multiples of stride * block for stride 3",
                     try_pattern(s, "strided", "stride=3", &out));
    s.rows = s.cols = 31;
    EXPECT_NO_LAYOUT(SHAPE, "expected multiples of stride * block",
                     try_pattern(s, "strided", "stride=2", &out));
    s = {INT64_C(3000000000), 4, 1, 1, 1};
    EXPECT_NO_LAYOUT(OVERFLOW, "2^31 - 1", try_pattern(s, "dense", "", &out));
    s = {INT32_MAX, INT32_MAX, 1, 1, 1}; // at once, not when its rows have filled the memory
    // Before any of them is listed.
    const std::pair<const char *, const char *> all[] = {{"dense", ""},
                                                         {"causal", ""},
                                                         {"strided", ""},
                                                         {"dilated", ""},
                                                         {"local_strided", ""},
                                                         {"checker", ""},
                                                         {"banded", "lower=2147483647"},
                                                         {"fixed", ""},
                                                         {"fixed", "causal=0"},
                                                         {"butterfly", "base=65536 levels=2"},
                                                         {"random", "density=0.9"},
                                                         {"random", "density=0.01"},
                                                         {"balanced_random", "per_row=100000"},
                                                         {"bigbird", "global_blocks=100000"},
                                                         {"bigbird", "random=2147483647 causal=1"}};
    for (const auto &[name, parameters] : all) {
        SCOPED_TRACE(name);
        EXPECT_NO_LAYOUT(OVERFLOW, "blocks, expected what can be addressed",
                         try_pattern(s, name, parameters, &out));
    }
    s = {1 << 24, 1 << 24, 1, 1, 1};
    for (const char *parameters : {"filter_w=16777215", "filter_w=16777215 causal=1"})
        EXPECT_NO_LAYOUT(OVERFLOW, "blocks, expected what can be addressed",
                         try_pattern(s, "conv_window", parameters, &out));
}

// A program may have set a locale with a decimal comma: parameters and recipes do not care.
TEST(Patterns, LocaleDoesNotMatter) {
    std::string before = setlocale(LC_ALL, nullptr);
    Layout expected = pattern(square(12), "random", "density=0.3");
    bool found = false;
    for (const char *name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"})
        found |= !found && setlocale(LC_ALL, name) != nullptr;
    Layout got = pattern(square(12), "random", "density=0.3");
    setlocale(LC_ALL, before.c_str());
    EXPECT_EQ(tartan_layout_equal(expected.get(), got.get()), 1);
    EXPECT_STREQ(tartan_layout_recipe(expected.get()), tartan_layout_recipe(got.get()));
    if (!found) GTEST_SKIP() << "no locale with a decimal comma is installed";
}

TEST(Patterns, EveryAllocationMayFail) {
    for (int32_t i = 0; i < tartan_pattern_count(); i++) {
        tartan_shape s = square(16, 2);
        tartan_layout *out = nullptr;
        BRUTAL(tartan_layout_from_pattern(&s, tartan_pattern_name(i), "", 1, &out), tartan_layout_free(out));
    }
}

// Each pattern of a rule, with its rule, on square, wide, tall, ragged and per-head frames.
using Rule = std::function<bool(int64_t, int64_t, int64_t)>;
void expect_rule(const char *name, const std::string &parameters, const Rule &rule, bool any_grid = true,
                 int64_t heads = 2) {
    std::vector<tartan_shape> shapes{square(16, heads), square(12, heads, 8), square(24, heads, 5)};
    if (any_grid)
        for (tartan_shape s : {tartan_shape{15, 40, 2, 3, heads}, tartan_shape{40, 15, 3, 2, heads},
                               tartan_shape{1, 1, 7, 9, heads}})
            shapes.push_back(s);
    for (const tartan_shape &s : shapes)
        EXPECT_EQ(mask_of(pattern(s, name, parameters)), mask_where(s, rule))
            << name << " " << parameters << " on " << s.rows << " x " << s.cols;
}

TEST(Rules, DenseDiagonalBandedCausalChecker) {
    expect_rule("dense", "", [](int64_t, int64_t, int64_t) { return true; });
    for (int64_t n : {1, 3, 5, 100})
        expect_rule("block_diagonal", "size=" + std::to_string(n),
                    [=](int64_t, int64_t i, int64_t j) { return i / n == j / n; });
    for (int64_t a : {0, 1, 3, 50})
        for (int64_t b : {0, 2, 50})
            expect_rule("banded", "lower=" + std::to_string(a) + " upper=" + std::to_string(b),
                        [=](int64_t, int64_t i, int64_t j) { return i - j <= a && j - i <= b; });
    expect_rule("banded", "lower=2147483647 upper=2147483647",
                [](int64_t, int64_t, int64_t) { return true; });
    for (int64_t o : {-30, -2, 0, 1, 30, 2147483647})
        expect_rule("causal", "offset=" + std::to_string(o),
                    [=](int64_t, int64_t i, int64_t j) { return j <= i + o; });
    for (int64_t phase : {0, 1})
        expect_rule("checker", "phase=" + std::to_string(phase),
                    [=](int64_t, int64_t i, int64_t j) { return ((i & 1) ^ (j & 1) ^ 1) == !phase; });
}

TEST(Rules, LocalDilated) {
    for (int64_t w : {0, 1, 4, 2147483647}) {
        expect_rule("local", "window=" + std::to_string(w),
                    [=](int64_t, int64_t i, int64_t j) { return j <= i && i - j <= w; });
        expect_rule("local", "causal=0 window=" + std::to_string(w),
                    [=](int64_t, int64_t i, int64_t j) { return std::abs(i - j) <= w; });
    }
    for (int64_t n : {1, 2, 3, 7, 2147483647}) {
        expect_rule("dilated", "stride=" + std::to_string(n),
                    [=](int64_t, int64_t i, int64_t j) { return j <= i && (i - j) % n == 0; });
        expect_rule("dilated", "causal=0 stride=" + std::to_string(n),
                    [=](int64_t, int64_t i, int64_t j) { return (i - j) % n == 0; });
        for (int64_t w : {0, 1, 4, 2147483647}) {
            const std::string both = "window=" + std::to_string(w) + " stride=" + std::to_string(n);
            expect_rule("local_strided", both, [=](int64_t, int64_t i, int64_t j) {
                return j <= i && (i - j <= w || (i - j) % n == 0);
            });
            expect_rule("local_strided", both + " causal=0", [=](int64_t, int64_t i, int64_t j) {
                return std::abs(i - j) <= w || (i - j) % n == 0;
            });
        }
    }
}

// The masks of sparse_attention's reference, element by element, have no element outside our blocks, and
// each block has one: n positions, context L, blocks of b.
void expect_covers(const tartan_shape &s, const Layout &l,
                   const std::function<bool(int64_t, int64_t)> &element) {
    int64_t b = s.block_rows;
    EXPECT_EQ(mask_of(l), mask_where(s, [&](int64_t, int64_t i, int64_t j) {
                  for (int64_t q = i * b; q < (i + 1) * b; q++)
                      for (int64_t k = j * b; k < (j + 1) * b; k++)
                          if (element(q, k)) return true;
                  return false;
              }));
}

TEST(SparseAttention, AllAndLocalAndStrided) {
    for (int64_t b : {4, 8})
        for (int64_t L : {8, 16, 32}) {
            const int64_t n = 64;
            tartan_shape s{n, n, b, b, 1};
            expect_covers(s, pattern(s, "causal"), [](int64_t q, int64_t k) { return k <= q; });
            // 'local' of L: its blocks are those with q_blk - k_blk <= L / b; the reference mask is q -
            // (L-1) <= k <= q, which does touch the outermost block only where L > 1 - so it covers them
            // all.
            expect_covers(s, pattern(s, "local", "window=" + std::to_string(L / b)),
                          [=](int64_t q, int64_t k) { return q - (L - 1) <= k && k <= q; });
            // 'strided', in the order after strided_transpose: t = i * L + j goes to j * (n / L) + i.
            if (n / L % b != 0) continue;
            auto old_place = [=](int64_t p) { return p % (n / L) * L + p / (n / L); };
            expect_covers(s, pattern(s, "strided", "stride=" + std::to_string(L)), [=](int64_t q, int64_t k) {
                int64_t Q = old_place(q), K = old_place(k);
                return K <= Q && (Q - K) % L == 0;
            });
            expect_covers(s, pattern(s, "strided", "causal=0 stride=" + std::to_string(L)),
                          [=](int64_t q, int64_t k) { return (old_place(q) - old_place(k)) % L == 0; });
        }
}

// 'fixed' in the words of operations.md: columns stride-1 .. 0 grouped by vertsize; head h uses group h mod
// num_verts: all columns congruent to these, and its own chunk of `stride` blocks; the upper part removed.
TEST(SparseAttention, Fixed) {
    for (int64_t stride : {1, 2, 4, 8})
        for (int64_t size = 1; size <= stride; size++)
            for (int64_t groups = 1; groups * size <= stride; groups++) {
                if (stride % size != 0 || 4 % groups != 0) continue;
                std::string parameters = "stride=" + std::to_string(stride) +
                                         " num_verts=" + std::to_string(groups) +
                                         " vertsize=" + std::to_string(size);
                auto rule = [=](int64_t h, int64_t q, int64_t k) {
                    bool column = false;
                    for (int64_t v = 0; v < size; v++)
                        column |= k % stride == stride - 1 - (h % groups * size + v);
                    return column || k / stride == q / stride;
                };
                expect_rule("fixed", parameters + " causal=0", rule, true, 4);
                expect_rule(
                    "fixed", parameters,
                    [=](int64_t h, int64_t q, int64_t k) { return k <= q && rule(h, q, k); }, true, 4);
            }
}

TEST(Rules, Butterfly) {
    for (int64_t base : {2, 3, 4, 16})
        for (int64_t levels : {0, 1, 2})
            expect_rule(
                "butterfly", "base=" + std::to_string(base) + " levels=" + std::to_string(levels),
                [=](int64_t, int64_t i, int64_t j) {
                    int64_t differ = 0, level = 0;
                    for (int64_t a = i, b = j; a + b > 0; a /= base, b /= base, level++)
                        differ += a % base != b % base ? (levels > 0 && level >= levels ? 2 : 1) : 0;
                    return differ <= 1;
                },
                false);
    for (int64_t k = 1; k <= 8; k++) // n (1 + log2 n) blocks
        EXPECT_EQ(tartan_layout_blocks(pattern(square((int64_t)1 << k), "butterfly").get()),
                  ((int64_t)1 << k) * (1 + k));
}

// bst_conv_layout by its definition, position by position.
struct Conv {
    int64_t h, w, fh, fw, stride;
    int64_t out(int64_t size) const { return (size + stride - 1) / stride; }
    int64_t pad(int64_t size, int64_t filter) const { // the smallest that gives the size
        for (int64_t p = 0;; p++)
            if (size + 2 * p >= filter && (size + 2 * p - filter) / stride + 1 >= out(size)) return p;
    }
    bool sees(int64_t query, int64_t key, bool causal) const {
        int64_t y = query / out(w), x = query % out(w), ky = key / w - y * stride + pad(h, fh),
                kx = key % w - x * stride + pad(w, fw);
        return ky >= 0 && ky < fh && kx >= 0 && kx < fw && (!causal || key <= y * stride * w + x * stride);
    }
};

TEST(ConvWindow, BlocksWithAPairOfPositions) {
    for (const Conv &c :
         {Conv{1, 32, 1, 3, 1}, Conv{1, 33, 1, 5, 1}, Conv{8, 8, 3, 3, 1}, Conv{8, 12, 5, 1, 1},
          Conv{6, 10, 1, 1, 1}, Conv{8, 8, 3, 3, 2}, Conv{8, 12, 4, 2, 2}, Conv{1, 30, 1, 7, 3},
          Conv{5, 7, 9, 13, 1}, Conv{9, 9, 3, 3, 3}})
        for (int64_t bq : {1, 4, 7})
            for (int64_t bk : {1, 5, 8})
                for (bool causal : {false, true})
                    for (bool transposed : {false, true}) {
                        int64_t queries = c.out(c.h) * c.out(c.w), keys = c.h * c.w;
                        tartan_shape s = transposed ? tartan_shape{keys, queries, bk, bq, 1}
                                                    : tartan_shape{queries, keys, bq, bk, 1};
                        std::string parameters =
                            "input_h=" + std::to_string(c.h) + " input_w=" + std::to_string(c.w) +
                            " filter_h=" + std::to_string(c.fh) + " filter_w=" + std::to_string(c.fw) +
                            " stride=" + std::to_string(c.stride) + " causal=" + std::to_string(causal) +
                            " transposed=" + std::to_string(transposed);
                        Mask mask = mask_of(pattern(s, "conv_window", parameters)), expected(mask.size(), 0);
                        for (int64_t q = 0; q < queries; q++)
                            for (int64_t k = 0; k < keys; k++)
                                if (c.sees(q, k, causal))
                                    expected[(size_t)(transposed ? k / bk * grid_cols(s) + q / bq
                                                                 : q / bq * grid_cols(s) + k / bk)] = 1;
                        ASSERT_EQ(mask, expected) << parameters;
                    }
}

// A large grid with few blocks is made without a mask of it.
TEST(Patterns, HugeSparseGrids) {
    Layout l =
        pattern({INT64_C(1000000) * 64, INT64_C(1000000) * 64, 64, 64, 1}, "banded", "lower=1 upper=0");
    EXPECT_EQ(tartan_layout_blocks(l.get()), 1999999);
    l = pattern(square(1000000), "random", "density=1e-7");
    EXPECT_EQ(tartan_layout_blocks(l.get()), 100000);
}

} // namespace
