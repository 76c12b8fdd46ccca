// SPDX-License-Identifier: Apache-2.0
#include "../device/dynamic.h"
#include "explained.h"
#include "system_tiles.h"

namespace {

using namespace tartan_test;

class Explain : public OnBackend {
  protected:
    Layout layout = from_mask({20, 30, 16, 16, 1}, {1, 0, 0, 1}); // ragged: 16 x 16 and 4 x 14 elements
};
INSTANTIATE_TEST_SUITE_P(Each, Explain, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(Explain, SaysWhatWouldRun) {
    for (int32_t dtype : kDtypes) {
        for (int32_t side : {0, 1})
            for (int32_t op : {0, 1}) {
                const std::string spmm = explain_spmm(context.get(), layout.get(), dtype, 100, side, op);
                EXPECT_HAS(spmm, "[{\"operation\": \"spmm\"");
                EXPECT_HAS(spmm, std::string("{\"name\": \"a\", \"dtype\": \"") + tartan_dtype_name(dtype) +
                                     "\", \"shape\": [20, 30], \"block\": [16, 16], \"heads\": 1, "
                                     "\"blocks\": 2, \"block_order\": \"row-major\"}");
                EXPECT_HAS(spmm, side ? "\"side\": \"right\"" : "\"side\": \"left\"");
                EXPECT_HAS(spmm, op ? "\"transposed\": true" : "\"transposed\": false");
                EXPECT_HAS(spmm, "\"flops\": 62400,"); // 2 * 312 * 100
                EXPECT_HAS(spmm, "\"bytes\": " + std::to_string(5312 * tartan_dtype_bytes(dtype)) + ",");
                EXPECT_HAS(spmm, "\"supported\": true, \"kernel\": \"");
                EXPECT_HAS(spmm, "\"refused\": [");
            }
        const std::string sddmm = explain_sddmm(context.get(), layout.get(), dtype, 64);
        EXPECT_HAS(sddmm, "\"operation\": \"sddmm\"");
        EXPECT_HAS(sddmm, "\"flops\": 39936,");
        EXPECT_HAS(sddmm, "\"expected_tflops\": ");
    }
    for (int32_t dtype : {TARTAN_F8E4M3, TARTAN_F8E5M2}) // 312 + 30 * 100 of 1 byte, 20 * 100 of 2
        EXPECT_HAS(explain_spmm(context.get(), layout.get(), dtype, 100), "\"bytes\": 7312,");
    const std::string none = explain_spmm(context.get(), layout.get(), TARTAN_F32, 0);
    EXPECT_HAS(none, "\"flops\": 0,");
    EXPECT_HAS(none, on_host() ? "\"device\": \"cpu\""
                     : dummy() ? "\"device\": \"cuda:1\""
                               : "\"device\": \"cuda:0\"");
}

/* On the CPU, the instruction set of this very operation: the set for bf16 products does not serve f32. */
TEST_P(Explain, NamesTheInstructionSetOfTheDtype) {
    if (!on_host()) GTEST_SKIP() << "kernels of a device have names of their own";
    const std::string all = tartan_cpu_kernels();
    for (int32_t dtype : kDtypes) {
        const std::string pairs = all.find("amx") != std::string::npos          ? "amx"
                                  : all.find("avx512bf16") != std::string::npos ? "avx512bf16"
                                                                                : all;
        const std::string set = dtype == TARTAN_BF16 ? pairs : all.substr(0, all.find(','));
        const std::string named = ", \"instruction_set\": \"" + set + "\"";
        EXPECT_HAS(explain_spmm(context.get(), layout.get(), dtype, 100), "\"kernel\": \"spmm\"" + named);
        EXPECT_HAS(explain_sddmm(context.get(), layout.get(), dtype, 64), "\"kernel\": \"sddmm\"" + named);
    }
}

// On the CPU: how the work is cut, a rate, and what would be faster.
TEST_P(Explain, SaysHowACpuWorks) {
    if (!on_host()) GTEST_SKIP() << "a device says what its kernels say";
    const Layout large = random_layout({512, 512, 8, 8, 1}, 0.5, 1);
    const Context one = open_context(1), four = open_context(4);
    const std::string text = explain_spmm(one.get(), large.get(), TARTAN_F64, 100);
    EXPECT_HAS(text, "\"why\": \"b is packed by panels of columns, blocks are read in place\"");
    EXPECT_HAS(
        text,
        "{\"kernel\": \"spmm_narrow\", \"why\": \"the columns of blocks are not contiguous in op(a)\"}");
    // So few columns are one panel in the smallest L2.
    EXPECT_HAS(explain_spmm(one.get(), large.get(), TARTAN_F64, 40),
               "\"threads\": 1, \"column_ranges\": 1, \"panels\": 1, \"expected_tflops\": ");
    EXPECT_EQ(std::string::npos, text.find("\"expected_tflops\": null")) << text;
    EXPECT_HAS(explain_spmm(four.get(), large.get(), TARTAN_F64, 100), "\"threads\": 4, ");
    EXPECT_HAS(explain_sddmm(four.get(), large.get(), TARTAN_F32, 100), "\"threads\": 4, ");
    // It builds on measured peaks, which are the same for both in portable C and under an emulator.
    const bool vectors = std::string(tartan_cpu_kernels()) != "c" && getenv("TARTAN_TEST_SHARE") == nullptr;
    EXPECT_HAS(text, vectors ? "\"faster\": [\"float32 instead of float64: about " : "\"faster\": [");
    EXPECT_HAS(explain_spmm(one.get(), random_layout({64, 64, 2, 8, 1}, 1, 1).get(), TARTAN_F64, 100),
               "the kernel computes so many at a time, these have 2\"");
    EXPECT_HAS(explain_spmm(four.get(), random_layout({2, 2, 2, 2, 1}, 1, 1).get(), TARTAN_F32, 33),
               "fewer threads: ");
    EXPECT_HAS(explain_spmm(one.get(), large.get(), TARTAN_F32, 9), "of the last ");
}

// Few columns: another kernel where blocks lie the right way, else the advice to lay them so; a vector: one that takes both
// orders.
TEST_P(Explain, SaysThatFewColumnsWantBlocksByColumns) {
    if (!on_host()) GTEST_SKIP() << "a device says what its kernels say";
    const Layout large = random_layout({512, 512, 32, 32, 1}, 0.5, 1);
    const std::string rows = explain_spmm(context.get(), large.get(), TARTAN_F32, 2),
                      cols = explain_spmm(context.get(), large.get(), TARTAN_F32, 2, 0, 0, TARTAN_COL_MAJOR);
    EXPECT_HAS(cols, "\"kernel\": \"spmm_narrow\", ");
    EXPECT_HAS(cols, "{\"kernel\": \"spmm\", ");
    EXPECT_HAS(rows, "\"kernel\": \"spmm_few\", ");
    EXPECT_HAS(rows, "\"column-major blocks: with few columns ");
    for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR})
        EXPECT_HAS(explain_spmm(context.get(), large.get(), TARTAN_F32, 1, 0, 0, order),
                   "\"kernel\": \"spmm_vector\", ");
    const Layout small = random_layout({512, 512, 4, 4, 1}, 0.5, 1);
    for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
        const std::string one = explain_spmm(context.get(), small.get(), TARTAN_F64, 1, 0, 0, order);
        EXPECT_HAS(one, "\"kernel\": \"spmm_vector\", ");
        EXPECT_HAS(one, "\"why\": \"one column\"");
        EXPECT_HAS(explain_spmm(context.get(), small.get(), TARTAN_F64, 8, 0, 0, order),
                   ", \"kernel\": \"spmm");
        EXPECT_EQ(std::string::npos, explain_spmm(context.get(), small.get(), TARTAN_F64, 8, 0, 0, order)
                                         .find(", \"kernel\": \"spmm_vector"));
    }
}

TEST_P(Explain, DescribesTheRealOperands) {
    const Layout heads = from_mask({20, 30, 16, 16, 2}, std::vector<uint8_t>(8, 1));
    const std::string rows = explain_spmm(context.get(), heads.get(), TARTAN_F32, 7);
    EXPECT_HAS(rows,
               "{\"name\": \"b\", \"dtype\": \"float32\", \"shape\": [2, 30, 7], \"strides\": [210, 7, 1]}");
    EXPECT_HAS(rows, "\"flops\": 16800,"); // 2 * 2 * 600 * 7
    const std::string cols =
        explain_spmm(context.get(), heads.get(), TARTAN_F32, 7, 1, 0, TARTAN_COL_MAJOR, TARTAN_COL_MAJOR);
    EXPECT_HAS(cols, "\"block_order\": \"column-major\"");
    EXPECT_HAS(cols, "\"shape\": [2, 7, 30], \"strides\": [210, 1, 7]}");
    EXPECT_HAS(cols, "\"flops\": 16800,");
}

TEST_P(Explain, CoversEveryOperation) {
    Question q = Question::spmm(context.get(), layout.get(), TARTAN_F32, 7);
    const Question other = Question::spmm(context.get(), layout.get(), TARTAN_F32, 7);
    Zeros sums(context.get(), TARTAN_F32, {1, 2}, TARTAN_ROW_MAJOR),
        scores(context.get(), TARTAN_F32, {2, 2}, TARTAN_ROW_MAJOR);
    sums.array.ndim = 1, sums.array.shape[0] = 2, sums.array.strides[0] = 1;
    const Question pair = Question::sddmm(context.get(), layout.get(), TARTAN_F32, 7);
    const int64_t block[] = {layout->shape.block_rows, layout->shape.block_cols};
    const std::string text = explained([&] {
        PASS(q.run_spmm(context.get()));
        PASS(tartan_gate_gradient(context.get(), q.matrix.get(), nullptr, other.matrix.get(), &sums.array));
        return tartan_growth_score(context.get(), &pair.first.array, &pair.second.array, 1, block, 2, nullptr,
                                   &scores.array);
    });
    EXPECT_HAS(text, "[{\"operation\": \"spmm\"");
    EXPECT_HAS(text, "}, {\"operation\": \"gate_gradient\"");
    EXPECT_HAS(text, "{\"name\": \"dw\", \"dtype\": \"float32\"");
    EXPECT_HAS(text, "\"flops\": 624,"); // 2 * 312
    EXPECT_HAS(text, "}, {\"operation\": \"growth_score\"");
    EXPECT_HAS(text, "\"flops\": 756,"); // 2 * 7 * (20 + 30 + 4)
    EXPECT_EQ(']', text.back());
}

// The host does not know how many blocks a mask has.
TEST_P(Explain, NoRateOfDynamicLayouts) {
    std::vector<uint8_t> mask(16);
    mask[5] = 1;
    const Dynamic dynamic(context.get(), {16, 16, 4, 4, 1}, mask, 16, false);
    const Placed values(context.get(), Dense(TARTAN_F32, {16, 4, 4})),
        b(context.get(), Dense(TARTAN_F32, {16, 8}));
    Placed c(context.get(), Dense(TARTAN_F32, {16, 8}));
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_wrap(dynamic.layout.get(), &values.array, nullptr, nullptr, &raw));
    const Matrix a(raw);
    const auto run = [&] {
        return tartan_spmm(context.get(), raw, nullptr, &b.array, 1, 0, nullptr, &c.array);
    };
    ASSERT_OK(run());
    EXPECT_HAS(explained(run), "\"measured_tflops\": null");
}

TEST_P(Explain, LeavesOperandsAlone) {
    const std::vector<float> ones(140, 1);
    std::vector<float> back(140);
    const tartan_array source = array_of(const_cast<float *>(ones.data()), TARTAN_F32, {20, 7});
    tartan_array target = array_of(back.data(), TARTAN_F32, {20, 7}), c = {};
    tartan_buffer *raw = nullptr;
    ASSERT_OK(tartan_buffer_from_array(context.get(), &source, &raw));
    const Buffer buffer(raw);
    ASSERT_OK(tartan_buffer_view(raw, &c));
    Question q = Question::spmm(context.get(), layout.get(), TARTAN_F32, 7);
    const auto run = [&] {
        return tartan_spmm(context.get(), q.matrix.get(), nullptr, &q.first.array, 1, 0, nullptr, &c);
    };
    explained(run);
    ASSERT_OK(tartan_buffer_to_array(context.get(), raw, &target));
    EXPECT_EQ(ones, back);
    ASSERT_OK(run()); // what comes after tartan_explain_end runs
    ASSERT_OK(tartan_buffer_to_array(context.get(), raw, &target));
    EXPECT_EQ(std::vector<float>(140, 0), back);
    if (on_host()) {
        EXPECT_EQ(std::string::npos, explained(run).find("\"measured_tflops\": null"));
    } else {
        EXPECT_HAS(explained(run), "\"measured_tflops\": null");
    }
}

TEST_P(Explain, ChecksOperandsFirst) {
    Question q = Question::spmm(context.get(), layout.get(), TARTAN_F32, 7);
    char *text = nullptr;
    ASSERT_OK(tartan_explain_begin());
    q.side = kRight;
    EXPECT_FAILS(SHAPE, "b has shape [30, 7]", q.run_spmm(context.get()));
    ASSERT_OK(tartan_explain_end(&text));
    EXPECT_STREQ("[]", text);
    tartan_text_free(text);
}

TEST_P(Explain, SurvivesFullMemory) {
    Question q = Question::spmm(context.get(), layout.get(), TARTAN_F32, 9);
    Question s = Question::sddmm(context.get(), layout.get(), TARTAN_F32, 9);
    explained([&] { return q.run_spmm(context.get()); }); // what a backend counts of the layout stays in it
    char *text = nullptr;
    const auto ask = [&](auto run) -> tartan_status {
        PASS(tartan_explain_begin());
        const tartan_status status = run();
        const tartan_status end = tartan_explain_end(&text);
        if (status != TARTAN_OK && end == TARTAN_OK) tartan_text_free(text);
        return status != TARTAN_OK ? status : end;
    };
    BRUTAL(ask([&] { return q.run_spmm(context.get()); }), tartan_text_free(text));
    BRUTAL(ask([&] { return s.run_sddmm(context.get()); }), tartan_text_free(text));
}

TEST(ExplainPairs, BeginAndEndGoTogether) {
    char *text = nullptr;
    EXPECT_FAILS(ARGUMENT, "tartan_explain_begin was not called", tartan_explain_end(&text));
    ASSERT_OK(tartan_explain_begin());
    EXPECT_FAILS(ARGUMENT, "tartan_explain_begin was already called", tartan_explain_begin());
    EXPECT_FAILS(HANDLE, "out_text is NULL", tartan_explain_end(nullptr));
    std::thread([] { // another thread explains on its own
        char *own = nullptr;
        EXPECT_FAILS(ARGUMENT, "tartan_explain_begin was not called", tartan_explain_end(&own));
    })
        .join();
    ASSERT_OK(tartan_explain_end(&text));
    EXPECT_STREQ("[]", text);
    tartan_text_free(text);
}

TEST(ExplainCpu, NamesTheKernelsAndWhyNoBetterOnes) {
    const Context context = open_context();
    const Layout layout = from_mask({8, 8, 4, 4, 2}, std::vector<uint8_t>(8, 1));
    const WithFeatures none(0);
    const std::string text = explain_spmm(context.get(), layout.get(), TARTAN_F32, 200);
    EXPECT_HAS(text, "\"kernel\": \"spmm\", \"instruction_set\": \"c\"");
    for (int i = 0; i < TARTAN_I_CPU_FEATURES; i++) {
        const std::string kernel =
            std::string("{\"kernel\": \"spmm with ") + tartan_i_cpu_name(i) + "\", \"why\": \"";
        if (!(tartan_i_kernels_known_for(TARTAN_F32) >> i & 1))
            EXPECT_EQ(std::string::npos, text.find(kernel));
        else if (tartan_i_cpu_detect() >> i & 1)
            EXPECT_HAS(text, kernel + "TARTAN_CPU does not allow it");
        else
            EXPECT_HAS(text, kernel + "this CPU does not have it");
    }
}

TEST(ExplainCpu, ASlowSetIsNotBlamedOnTheUser) {
    if (getenv("TARTAN_CPU") != nullptr || (tartan_i_cpu_detect() & tartan_i_cpu_slow()) == 0)
        GTEST_SKIP() << "every set is fast here, or TARTAN_CPU chooses";
    const Context context = open_context();
    const Layout layout = from_mask({8, 8, 4, 4, 1}, std::vector<uint8_t>(4, 1));
    const std::string text = explain_spmm(context.get(), layout.get(), TARTAN_BF16, 9);
    EXPECT_HAS(text, "slower than float32 on this CPU");
    EXPECT_EQ(std::string::npos, text.find("TARTAN_CPU does not allow it")) << text;
}

#if defined(__x86_64__)
// The library asks the system once a process, so this one is new. Without tiles the refusal is the CPU's.
TEST(ExplainCpuDeathTest, NamesTilesThatTheSystemRefuses) {
    if (!(tartan_i_kernels_known() & TARTAN_I_CPU_AMX)) GTEST_SKIP() << "no kernels for tiles";
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    const auto show = [] {
        system_tiles = Tiles::kRefused;
        const bool has = tartan_i_cpu_use(~0u) & TARTAN_I_CPU_AMX;
        const Context context = open_context();
        const Layout layout = from_mask({8, 8, 4, 4, 2}, std::vector<uint8_t>(8, 1));
        const std::string text = explain_spmm(context.get(), layout.get(), TARTAN_BF16, 9);
        const std::string why = has ? "the system does not allow it" : "this CPU does not have it";
        const bool told = text.find(" with amx\", \"why\": \"" + why) != std::string::npos;
        fprintf(stderr, "%s", told ? "told." : text.c_str());
        _exit(0);
    };
    EXPECT_EXIT(show(), ::testing::ExitedWithCode(0), "^told\\.$");
}
#endif

TEST(ExplainDummy, SaysWhyAnOperationIsRefused) {
    const DummyInstalled installed;
    const Context context = open_context("cuda");
    const Layout layout = from_mask({8, 8, 4, 4, 1}, {1, 1, 1, 1});
    tartan_dummy.refusal = "not on \"Sundays\"";
    EXPECT_HAS(explain_sddmm(context.get(), layout.get(), TARTAN_F32, 9),
               "\"supported\": false, \"kernel\": null, \"why\": \"not on \\\"Sundays\\\"\"");
}

} // namespace
