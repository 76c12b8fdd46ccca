// SPDX-License-Identifier: Apache-2.0
#include "placed.h"

namespace {

using namespace tartan_test;

class Explain : public OnBackend {
  protected:
    Layout layout = from_mask({20, 30, 16, 16, 1}, {1, 0, 0, 1}); // ragged: 16 x 16 and 4 x 14 elements
    std::string text(const char *operation, int32_t dtype, int32_t side, int32_t op, int64_t n,
                     int32_t blocks = TARTAN_ROW_MAJOR, int32_t dense = TARTAN_ROW_MAJOR) {
        char *out = nullptr;
        EXPECT_OK(
            tartan_explain(context.get(), operation, layout.get(), dtype, blocks, side, op, n, dense, &out));
        const std::string copy = out != nullptr ? out : "";
        tartan_text_free(out);
        return copy;
    }
};
INSTANTIATE_TEST_SUITE_P(Each, Explain, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

#define EXPECT_HAS(text, part) EXPECT_NE(std::string::npos, (text).find(part)) << (text)

TEST_P(Explain, SaysWhatWouldRun) {
    for (int32_t dtype : kDtypes) {
        for (int32_t side : {0, 1})
            for (int32_t op : {0, 1}) {
                const std::string spmm = text("spmm", dtype, side, op, 100);
                EXPECT_HAS(spmm, std::string("\"dtype\": \"") + tartan_dtype_name(dtype) + "\"");
                EXPECT_HAS(spmm, side ? "\"side\": \"right\"" : "\"side\": \"left\"");
                EXPECT_HAS(spmm, op ? "\"transposed\": true" : "\"transposed\": false");
                EXPECT_HAS(spmm, "\"flops\": 62400,"); // 2 * 312 * 100
                EXPECT_HAS(spmm, "\"bytes\": " + std::to_string(5312 * tartan_dtype_bytes(dtype)) + ",");
                EXPECT_HAS(spmm, "\"supported\": true, \"kernel\": \"");
                EXPECT_HAS(spmm, "\"refused\": [");
            }
        const std::string sddmm = text("sddmm", dtype, 0, 0, 64);
        EXPECT_HAS(sddmm, "\"operation\": \"sddmm\"");
        EXPECT_HAS(sddmm, "\"flops\": 39936,");
        EXPECT_HAS(sddmm, "\"expected_tflops\": ");
    }
    for (int32_t dtype : {TARTAN_F8E4M3, TARTAN_F8E5M2}) // 312 + 30 * 100 of 1 byte, 20 * 100 of 2
        EXPECT_HAS(text("spmm", dtype, 0, 0, 100), "\"bytes\": 7312,");
    const std::string none = text("spmm", TARTAN_F32, 0, 0, 0);
    EXPECT_HAS(none, "\"flops\": 0,");
    EXPECT_HAS(none, on_host() ? "\"device\": \"cpu\""
                     : dummy() ? "\"device\": \"cuda:1\""
                               : "\"device\": \"cuda:0\"");
}

TEST_P(Explain, SaysForWhichOrders) {
    static const char *const names[] = {"\"row-major\"", "\"column-major\""};
    for (const char *operation : {"spmm", "sddmm"})
        for (int32_t blocks : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR})
            for (int32_t dense : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
                const std::string said = text(operation, TARTAN_F32, 0, 0, 100, blocks, dense);
                EXPECT_HAS(said, std::string("\"block_order\": ") + names[blocks]);
                EXPECT_HAS(said, std::string("\"dense_order\": ") + names[dense]);
                EXPECT_HAS(said, "\"flops\": 62400,"); // whatever the order
                EXPECT_HAS(said, "\"supported\": true, ");
            }
}

TEST_P(Explain, RefusesBadArguments) {
    char *out = nullptr;
    const auto explain = [&](const char *operation, int32_t dtype, int32_t side, int32_t op, int64_t n,
                             int32_t blocks = 0, int32_t dense = 0) {
        return tartan_explain(context.get(), operation, layout.get(), dtype, blocks, side, op, n, dense,
                              &out);
    };
    EXPECT_FAILS(ARGUMENT, "block_order is 2", explain("spmm", TARTAN_F32, 0, 0, 1, 2, 0));
    EXPECT_FAILS(ARGUMENT, "dense_order is -1", explain("sddmm", TARTAN_F32, 0, 0, 1, 0, -1));
    EXPECT_FAILS(ARGUMENT, "operation is \"spgemm\"", explain("spgemm", TARTAN_F32, 0, 0, 1));
    EXPECT_FAILS(HANDLE, "operation is NULL", explain(nullptr, TARTAN_F32, 0, 0, 1));
    EXPECT_FAILS(DTYPE, "dtype is 0", explain("spmm", 0, 0, 0, 1));
    EXPECT_FAILS(DTYPE, "s is of float8_e5m2", explain("sddmm", TARTAN_F8E5M2, 0, 0, 1));
    EXPECT_FAILS(ARGUMENT, "side is 2", explain("spmm", TARTAN_F32, 2, 0, 1));
    EXPECT_FAILS(ARGUMENT, "op is -1", explain("spmm", TARTAN_F32, 0, -1, 1));
    EXPECT_FAILS(ARGUMENT, "side is 1, expected 0 for sddmm", explain("sddmm", TARTAN_F32, 1, 0, 1));
    EXPECT_FAILS(ARGUMENT, "op is 1, expected 0 for sddmm", explain("sddmm", TARTAN_F32, 0, 1, 1));
    EXPECT_FAILS(ARGUMENT, "n is -1", explain("spmm", TARTAN_F32, 0, 0, -1));
    EXPECT_FAILS(ARGUMENT, "operands that can be addressed",
                 explain("spmm", TARTAN_F64, 0, 0, INT64_MAX / 4));
    EXPECT_FAILS(HANDLE, "context is NULL",
                 tartan_explain(nullptr, "spmm", layout.get(), TARTAN_F32, 0, 0, 0, 1, 0, &out));
    EXPECT_FAILS(HANDLE, "layout is NULL",
                 tartan_explain(context.get(), "spmm", nullptr, TARTAN_F32, 0, 0, 0, 1, 0, &out));
    EXPECT_FAILS(HANDLE, "out_text is NULL",
                 tartan_explain(context.get(), "spmm", layout.get(), TARTAN_F32, 0, 0, 0, 1, 0, nullptr));
    EXPECT_EQ(nullptr, out);
}

TEST_P(Explain, SurvivesFullMemory) {
    char *out = nullptr;
    // What a backend counts of the layout stays in it after the first call.
    ASSERT_OK(tartan_explain(context.get(), "spmm", layout.get(), TARTAN_F32, 0, 0, 0, 9, 0, &out));
    tartan_text_free(out);
    BRUTAL(tartan_explain(context.get(), "spmm", layout.get(), TARTAN_F32, 0, 0, 0, 9, 0, &out),
           tartan_text_free(out));
    BRUTAL(tartan_explain(context.get(), "sddmm", layout.get(), TARTAN_F32, 0, 0, 0, 9, 0, &out),
           tartan_text_free(out));
}

TEST(ExplainCpu, NamesTheKernelsAndWhyNoBetterOnes) {
    const Context context = open_context();
    const Layout layout = from_mask({8, 8, 4, 4, 2}, std::vector<uint8_t>(8, 1));
    const WithFeatures none(0);
    char *out = nullptr;
    ASSERT_OK(tartan_explain(context.get(), "spmm", layout.get(), TARTAN_F32, 0, 0, 0, 9, 0, &out));
    const std::string text = out;
    tartan_text_free(out);
    EXPECT_HAS(text, "\"kernel\": \"c\"");
    EXPECT_HAS(text, "\"heads\": 2, \"blocks\": 8");
    EXPECT_HAS(text, "\"expected_tflops\": null");
    for (int i = 0; i < TARTAN_I_CPU_FEATURES; i++) {
        const std::string kernel = std::string("{\"kernel\": \"") + tartan_i_cpu_name(i) + "\", \"why\": \"";
        if (!(tartan_i_kernels_known() >> i & 1))
            EXPECT_EQ(std::string::npos, text.find(kernel));
        else if (tartan_i_cpu_detect() >> i & 1)
            EXPECT_HAS(text, kernel + "TARTAN_CPU does not allow it");
        else
            EXPECT_HAS(text, kernel + "this CPU does not have it");
    }
}

TEST(ExplainDummy, SaysWhyAnOperationIsRefused) {
    const DummyInstalled installed;
    tartan_context *raw = nullptr;
    ASSERT_OK(tartan_context_open("cuda", 1, 0, &raw));
    const Context context(raw);
    const Layout layout = from_mask({8, 8, 4, 4, 1}, {1, 1, 1, 1});
    tartan_dummy.refusal = "not on \"Sundays\"";
    char *out = nullptr;
    ASSERT_OK(tartan_explain(context.get(), "sddmm", layout.get(), TARTAN_F32, 0, 0, 0, 9, 0, &out));
    const std::string text = out;
    tartan_text_free(out);
    EXPECT_HAS(text, "\"supported\": false, \"kernel\": null, \"why\": \"not on \\\"Sundays\\\"\"");
}

/* The strides and the block order of the last operands that the dummy was asked about. */
TEST(ExplainDummy, GivesTheBackendOperandsOfTheOrders) {
    const DummyInstalled installed;
    tartan_context *raw = nullptr;
    ASSERT_OK(tartan_context_open("cuda", 1, 0, &raw));
    const Context context(raw);
    using Strides = std::vector<int64_t>;
    const auto asked = [&](const char *operation, int64_t heads, int32_t side, int32_t op, int32_t blocks,
                           int32_t dense) {
        const Layout layout = from_mask({20, 30, 16, 16, heads}, std::vector<uint8_t>(4 * (size_t)heads, 1));
        char *out = nullptr;
        EXPECT_OK(tartan_explain(context.get(), operation, layout.get(), TARTAN_F32, blocks, side, op, 7,
                                 dense, &out));
        tartan_text_free(out);
        EXPECT_EQ(blocks, tartan_dummy.asked_order);
        const int64_t *first = tartan_dummy.asked_strides[0], *second = tartan_dummy.asked_strides[1];
        const int dims = heads > 1 ? 3 : 2;
        return std::pair<Strides, Strides>({first, first + dims}, {second, second + dims});
    };
    for (int32_t blocks : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
        const auto pair = [](Strides x, Strides y) { return std::make_pair(x, y); };
        EXPECT_EQ(pair({7, 1}, {7, 1}), asked("spmm", 1, 0, 0, blocks, TARTAN_ROW_MAJOR));
        EXPECT_EQ(pair({1, 30}, {1, 20}), asked("spmm", 1, 0, 0, blocks, TARTAN_COL_MAJOR));
        EXPECT_EQ(pair({1, 20}, {1, 30}), asked("spmm", 1, 0, 1, blocks, TARTAN_COL_MAJOR));
        EXPECT_EQ(pair({20, 1}, {30, 1}), asked("spmm", 1, 1, 0, blocks, TARTAN_ROW_MAJOR));
        EXPECT_EQ(pair({1, 7}, {1, 7}), asked("spmm", 1, 1, 0, blocks, TARTAN_COL_MAJOR));
        EXPECT_EQ(pair({210, 1, 30}, {140, 1, 20}), asked("spmm", 2, 0, 0, blocks, TARTAN_COL_MAJOR));
        EXPECT_EQ(pair({7, 1}, {30, 1}), asked("sddmm", 1, 0, 0, blocks, TARTAN_ROW_MAJOR));
        EXPECT_EQ(pair({140, 1, 20}, {210, 1, 7}), asked("sddmm", 2, 0, 0, blocks, TARTAN_COL_MAJOR));
    }
}

} // namespace
