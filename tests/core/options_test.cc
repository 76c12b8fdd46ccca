// SPDX-License-Identifier: Apache-2.0
#include "support.h"

extern "C" {
#include "core/options.h"
}

namespace {

TEST(Options, WordsAndNumbers) {
    const struct {
        const char *text;
        bool whole;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"007", true, 7},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"0x7fFf", true, 0x7fff},
        {"-0X10", true, -16},
        {"0x7fffffffffffffff", true, INT64_MAX},
        {"0x8000000000000000", false, 0},
        {"0x", false, 0},
        {"x", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"--1", false, 0},
        {"+1", false, 0},
        {"1a", false, 0},
        {"0xg", false, 0},
        {"1=2", false, 0},
    };
    for (const auto &one : cases) {
        SCOPED_TRACE(one.text);
        const std::string text = std::string(" ,name=") + one.text + "\t\n";
        const char *next = text.c_str();
        tartan_i_option option;
        bool more = false;
        ASSERT_OK(tartan_i_option_next("test", "options", &next, &option, &more));
        ASSERT_TRUE(more);
        EXPECT_TRUE(tartan_i_option_is(&option, "name"));
        EXPECT_FALSE(tartan_i_option_is(&option, "nam"));
        EXPECT_FALSE(tartan_i_option_is(&option, "names"));
        EXPECT_EQ(one.text, std::string(option.value, (size_t)option.value_length));
        int64_t value = -1;
        EXPECT_EQ(one.whole, tartan_i_option_whole(&option, &value));
        if (one.whole) {
            EXPECT_EQ(one.value, value);
        }
        ASSERT_OK(tartan_i_option_next("test", "options", &next, &option, &more));
        EXPECT_FALSE(more);
    }
}

TEST(Options, ListsOfWholeNumbers) {
    const struct {
        const char *text;
        int32_t count;
        int64_t values[3];
    } cases[] = {
        {"5", 1, {5}},
        {"3x4", 2, {3, 4}},
        {"-1x-2", 2, {-1, -2}},
        {"1x22x333", 3, {1, 22, 333}},
        {"", 0, {}},
        {"x", 0, {}},
        {"3x", 0, {}},
        {"x3", 0, {}},
        {"3xx3", 0, {}},
        {"1x2x3x4", 0, {}},
        {"3X3", 0, {}},
        {"3x3 ", 2, {3, 3}},
        {"3x0.5", 0, {}},
        {"3*3", 0, {}},
        {"1x2x", 0, {}},
        {"1x2x3x", 0, {}},
        {"9223372036854775808", 0, {}},
    };
    for (const auto &one : cases) {
        SCOPED_TRACE(one.text);
        const std::string text = std::string("n=") + one.text;
        const char *next = text.c_str();
        tartan_i_option option;
        bool more = false;
        ASSERT_OK(tartan_i_option_next("test", "options", &next, &option, &more));
        int64_t values[3] = {-7, -7, -7};
        ASSERT_EQ(one.count, tartan_i_option_wholes(&option, values, 3));
        for (int i = 0; i < one.count; i++) EXPECT_EQ(one.values[i], values[i]);
    }
}

TEST(Options, RefusesWordsWithoutValue) {
    const char *text = "a=1 b c=2";
    tartan_i_option option;
    bool more = false;
    ASSERT_OK(tartan_i_option_next("test", "options", &text, &option, &more));
    EXPECT_FAILS(ARGUMENT, "test: options has 'b', expected name=value",
                 tartan_i_option_next("test", "options", &text, &option, &more));
}

} // namespace
