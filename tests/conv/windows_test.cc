// SPDX-License-Identifier: Apache-2.0
#include "support.h"

extern "C" {
#include "conv/windows.h"
}

using namespace tartan_test;

namespace {

// ---- The text ----

tartan_i_windows parsed(const std::string &text, int32_t dims = 0, int32_t otherwise = 2) {
    tartan_i_windows windows = {};
    EXPECT_OK(tartan_i_windows_parse("test", text.c_str(), dims, otherwise, &windows));
    return windows;
}

std::string text_of(const tartan_i_windows &windows) {
    char text[TARTAN_I_WINDOWS_TEXT];
    return tartan_i_windows_text(&windows, text);
}

TEST(Windows, TextAndBack) {
    const char *same[] = {
        "size=18x18 stride=16x16 offset=-1x-1 count=22x44",
        "size=5 stride=7 offset=3 count=0",
        "size=1x2x3 stride=4x5x6 offset=7x-8x9 count=10x11x12",
        "size=2147483647x2147483647x2147483647 stride=2147483647x2147483647x2147483647 "
        "offset=-2147483647x-2147483647x-2147483647 count=2147483647x2147483647x2147483647",
    };
    for (const char *text : same) EXPECT_EQ(text, text_of(parsed(text, 0, 1)));
    EXPECT_EQ("size=16x16 stride=16x16 offset=0x0 count=22x44", text_of(parsed("count=22x44, size=16")));
    EXPECT_EQ("size=3x4 stride=3x4 offset=0x0 count=5x5", text_of(parsed("size=3x4\tcount=5")));
    EXPECT_EQ("size=3x3x3 stride=2x2x2 offset=-1x-1x-1 count=5x5x5",
              text_of(parsed("size=3 stride=2 offset=-1 count=5", 3)));
    EXPECT_EQ("size=3 stride=3 offset=0 count=5", text_of(parsed("size=3 count=5", 0, 1)));
    EXPECT_EQ("size=3x3 stride=3x3 offset=0x0 count=-1x-1", text_of(parsed("size=3")));
}

TEST(Windows, EntriesBeyondTheDimensionsAreOnePosition) {
    const tartan_i_windows w = parsed("size=5 stride=7 offset=3 count=4", 1);
    for (int d = 1; d < 3; d++) {
        EXPECT_EQ(1, w.count[d]);
        EXPECT_EQ(1, w.size[d]);
        EXPECT_EQ(1, w.stride[d]);
        EXPECT_EQ(0, w.offset[d]);
    }
    EXPECT_EQ(5.0, tartan_i_windows_positions(&w));
}

TEST(Windows, RefusesBadTexts) {
    const struct {
        const char *text, *part;
    } cases[] = {
        {"", "windows has no size"},
        {"stride=2 count=3", "windows has no size"},
        {"size", "expected name=value"},
        {"size=", "whole numbers 1 .. 2147483647"},
        {"size=0", "whole numbers 1 .. "},
        {"size=2x0", "whole numbers 1 .. "},
        {"size=-1", "whole numbers 1 .. "},
        {"size=2 stride=0", "windows has 'stride=0'"},
        {"size=2 count=-1", "windows has 'count=-1', expected 1 to 3 whole numbers 0 .. "},
        {"size=2x2x2x2", "1 to 3 whole numbers"},
        {"size=2.5", "whole numbers"},
        {"size=2147483648", "whole numbers"},
        {"size=2 offset=-2147483648", "whole numbers -2147483647 .. "},
        {"size=2 offset=2147483648", "whole numbers"},
        {"size=2 size=2", "windows has size twice"},
        {"size=2 shape=3", "expected size, stride, offset or count"},
        {"size=2x2 stride=1x1x1", "windows has 2 numbers for size, expected 1 or 3"},
    };
    for (const auto &one : cases) {
        SCOPED_TRACE(one.text);
        tartan_i_windows windows;
        EXPECT_FAILS(ARGUMENT, one.part, tartan_i_windows_parse("test", one.text, 0, 2, &windows));
    }
    tartan_i_windows windows;
    EXPECT_FAILS(ARGUMENT, "windows has 3 numbers for size, expected 1 or 2",
                 tartan_i_windows_parse("test", "size=1x2x3", 2, 2, &windows));
    EXPECT_FAILS(HANDLE, "windows is NULL", tartan_i_windows_parse("test", nullptr, 2, 2, &windows));
}

TEST(Windows, Overlap) {
    const struct {
        const char *text;
        bool overlap;
    } cases[] = {
        {"size=16 count=5x5", false},
        {"size=16 stride=15 count=5x5", true},
        {"size=16 stride=17 count=5x5", false},
        {"size=16x16 stride=15x16 count=1x5", false},
        {"size=16x16 stride=16x15 count=1x5", true},
        {"size=3x3x3 stride=3x3x2 count=2x2x2", true},
    };
    for (const auto &one : cases) {
        const tartan_i_windows w = parsed(one.text);
        EXPECT_EQ(one.overlap, tartan_i_windows_overlap(&w)) << one.text;
    }
}

Layout windows_layout(int64_t images, int64_t rows, int64_t cols, int64_t block = 1) {
    const tartan_shape shape = {rows * block, cols * block, block, block, images};
    return from_mask(shape, std::vector<uint8_t>((size_t)(images * rows * cols), 1));
}

TEST(Windows, OfALayout) {
    const Layout plane = windows_layout(2, 3, 5), line = windows_layout(1, 1, 7),
                 solid = windows_layout(1, 6, 4);
    tartan_i_windows w;
    ASSERT_OK(tartan_i_windows_of("test", plane.get(), "size=4", 2, 2, &w));
    EXPECT_EQ("size=4x4 stride=4x4 offset=0x0 count=3x5", text_of(w));
    ASSERT_OK(tartan_i_windows_of("test", plane.get(), "size=4 count=3x5", 2, 2, &w));
    ASSERT_OK(tartan_i_windows_of("test", line.get(), "size=4", 1, 1, &w));
    EXPECT_EQ("size=4 stride=4 offset=0 count=7", text_of(w));
    ASSERT_OK(tartan_i_windows_of("test", solid.get(), "size=4 count=2x3x4", 3, 1, &w));
    EXPECT_EQ("size=4x4x4 stride=4x4x4 offset=0x0x0 count=2x3x4", text_of(w));
    EXPECT_FAILS(ARGUMENT, "windows has no count",
                 tartan_i_windows_of("test", solid.get(), "size=4", 3, 1, &w));
    EXPECT_FAILS(SHAPE, "active has 3 x 5 windows, expected 5 x 3 (size=4x4 ",
                 tartan_i_windows_of("test", plane.get(), "size=4 count=5x3", 2, 2, &w));
    EXPECT_FAILS(SHAPE, "active has 2 heads, expected 1 (one for each image)",
                 tartan_i_windows_of("test", plane.get(), "size=4", 2, 1, &w));
    EXPECT_FAILS(SHAPE, "active has 6 x 4 windows, expected 1 x 4",
                 tartan_i_windows_of("test", solid.get(), "size=4", 1, 1, &w));
    const Layout blocks = windows_layout(1, 2, 2, 8);
    EXPECT_FAILS(SHAPE, "active has blocks of 8 x 8, expected 1 x 1",
                 tartan_i_windows_of("test", blocks.get(), "size=4", 2, 1, &w));
}

// ---- Windows for a convolution ----

struct Pair {
    tartan_i_windows in = {}, out = {};
};

Pair for_conv(const std::vector<int64_t> &image, const std::string &options) {
    char *in = nullptr, *out = nullptr;
    Pair pair;
    EXPECT_OK(tartan_windows_for_conv(image.data(), (int64_t)image.size(), options.c_str(), &in, &out));
    if (in != nullptr && out != nullptr) {
        pair.in = parsed(in, (int32_t)image.size());
        pair.out = parsed(out, (int32_t)image.size());
    }
    tartan_text_free(in);
    tartan_text_free(out);
    return pair;
}

// TensorFlow's output length.
int64_t tf_length(int64_t in, int64_t k, int64_t stride, bool same) {
    return same ? (in + stride - 1) / stride : (in - k + stride) / stride;
}

// Each output position is in exactly one output window, and its receptive field in the input window of the same number.
TEST(WindowsForConv, CoverEveryOutputOnce) {
    for (const int64_t length : {6, 7, 10, 11, 28, 64})
        for (const int64_t k : {1, 2, 3, 4, 5, 7})
            for (const int64_t stride : {1, 2, 3})
                for (const int64_t outputs : {1, 2, 3, 5, 16})
                    for (const bool same : {true, false}) {
                        const int64_t size = (outputs - 1) * stride + k,
                                      all = tf_length(length, k, stride, same);
                        const int64_t padding =
                            same ? std::max<int64_t>((all - 1) * stride + k - length, 0) : 0;
                        if (size > length + padding) continue;
                        const std::string text = "kernel=" + std::to_string(k) +
                                                 " stride=" + std::to_string(stride) +
                                                 (same ? "" : " padding=valid");
                        SCOPED_TRACE(text + " of " + std::to_string(length));
                        const Pair by_size = for_conv({length}, text + " size=" + std::to_string(size));
                        const Pair w = for_conv({length}, text + " output=" + std::to_string(outputs));
                        EXPECT_EQ(text_of(w.in), text_of(by_size.in));
                        EXPECT_EQ(text_of(w.out), text_of(by_size.out));
                        ASSERT_EQ(w.in.count[0], w.out.count[0]);
                        ASSERT_EQ(size, w.in.size[0]);
                        ASSERT_EQ(outputs, w.out.size[0]);
                        std::vector<int> times((size_t)(w.out.count[0] * outputs), 0);
                        for (int64_t i = 0; i < w.out.count[0]; i++)
                            for (int64_t j = 0; j < outputs; j++) {
                                const int64_t p = w.out.offset[0] + i * w.out.stride[0] + j;
                                times.at((size_t)p)++;
                                const int64_t first = p * stride - padding / 2;
                                EXPECT_EQ(first, w.in.offset[0] + i * w.in.stride[0] + j * stride);
                            }
                        for (const int t : times) EXPECT_EQ(1, t);
                        EXPECT_GE((int64_t)times.size(), all);
                        EXPECT_LT((int64_t)times.size(), all + outputs) << "a window without any output";
                    }
}

TEST(WindowsForConv, KnownCases) {
    // SBNet's: blocks of 5 with a kernel of 3 and stride 2, on 5 x 5
    const Pair five = for_conv({5, 5}, "kernel=3x3 stride=2 size=5");
    EXPECT_EQ("size=5x5 stride=4x4 offset=-1x-1 count=2x2", text_of(five.in));
    EXPECT_EQ("size=2x2 stride=2x2 offset=0x0 count=2x2", text_of(five.out));
    const Pair valid = for_conv({8, 8}, "kernel=2 size=5 padding=valid");
    EXPECT_EQ("size=5x5 stride=4x4 offset=0x0 count=2x2", text_of(valid.in));
    const Pair same = for_conv({400, 700}, "kernel=3 output=16 padding=same");
    EXPECT_EQ("size=18x18 stride=16x16 offset=-1x-1 count=25x44", text_of(same.in));
    const Pair uneven = for_conv({30, 40, 50}, "kernel=1x2x5 size=3x5x9 stride=1x1x2");
    EXPECT_EQ("size=3x5x9 stride=3x4x6 offset=0x0x-1 count=10x10x9", text_of(uneven.in));
    EXPECT_EQ("size=3x4x3 stride=3x4x3 offset=0x0x0 count=10x10x9", text_of(uneven.out));
}

TEST(WindowsForConv, AStackCountsAsItsReceptiveField) {
    const Pair stack = for_conv({100, 175}, "kernel=1x1+3x3+1x1 output=9");
    const Pair one = for_conv({100, 175}, "kernel=3x3 output=9");
    EXPECT_EQ(text_of(one.in), text_of(stack.in));
    EXPECT_EQ(text_of(one.out), text_of(stack.out));
    const Pair wide = for_conv({100, 175}, "kernel=3x1+3x5+2 size=12x12");
    const Pair field = for_conv({100, 175}, "kernel=6x6 size=12x12");
    EXPECT_EQ(text_of(field.in), text_of(wide.in));
}

tartan_status refused(const std::vector<int64_t> &image, const char *options) {
    char *in = (char *)1, *out = (char *)1;
    const tartan_status status =
        tartan_windows_for_conv(image.data(), (int64_t)image.size(), options, &in, &out);
    EXPECT_EQ(nullptr, in);
    EXPECT_EQ(nullptr, out);
    return status;
}

// Each limit alone: windows too long, and windows of a length that fits which begin too far apart.
TEST(WindowsForConv, LimitsOfSizesAndStrides) {
    EXPECT_FAILS(ARGUMENT, "windows have 2147483648 positions in dimension 0, expected fewer than 2^31",
                 refused({INT32_MAX}, "kernel=2147483647 output=2"));
    EXPECT_FAILS(ARGUMENT,
                 "windows begin 4294967292 positions apart in dimension 0, expected fewer than 2^31",
                 refused({INT32_MAX}, "kernel=1 stride=2147483646 output=2"));
    EXPECT_FAILS(ARGUMENT,
                 "windows begin 2147483648 positions apart in dimension 1, expected fewer than 2^31",
                 refused({8, INT32_MAX}, "kernel=1 stride=1x1073741824 output=1x2"));
    const Pair longest = for_conv({INT32_MAX}, "kernel=1 stride=2147483647 output=1");
    EXPECT_EQ("size=1 stride=2147483647 offset=0 count=1", text_of(longest.in));
}

TEST(WindowsForConv, Refusals) {
    const struct {
        const char *options, *part;
    } cases[] = {
        {"size=4", "options has no kernel"},
        {"kernel=3", "options has neither size nor output"},
        {"kernel=3 size=4 output=2", "options has size and output"},
        {"kernel=3 size=4 padding=full", "expected padding to be same or valid"},
        {"kernel=3 size=4 padding=0", "expected padding to be same or valid"},
        {"kernel=3 size=4 stride=0", "options has 'stride=0', expected 1 to 3 whole numbers 1 .. "},
        {"kernel=0 size=4", "options has 'kernel=0'"},
        {"kernel=3+ size=4", "options has 'kernel=3+'"},
        {"kernel=+3 size=4", "options has 'kernel=+3'"},
        {"kernel=3x3x3 size=4", "options has 3 numbers for kernel, expected 1 or 2"},
        {"kernel=3 size=4x4x4", "options has 3 numbers for size, expected 1 or 2"},
        {"kernel=3 size=4 stride=1x1x1", "options has 3 numbers for stride"},
        {"kernel=2147483647+2147483647 size=4", "expected a receptive field below 2^31"},
        {"kernel=3 kernel=3 size=4", "options has kernel twice"},
        {"kernel=3 size=4 size=4", "options has size twice"},
        {"kernel=3 size=4 padding=same padding=same", "options has padding twice"},
        {"kernel=3 size=4 tolerance=1", "expected kernel, stride, size, output or padding"},
        {"kernel=3 size=2",
         "size is 2 in dimension 0, expected 3 (the receptive field) plus a multiple of 1"},
        {"kernel=3 size=4 stride=2",
         "size is 4 in dimension 0, expected 3 (the receptive field) plus a multiple of 2"},
        {"kernel=3 size=13x23", "windows have 13 positions in dimension 0, expected at most 12"},
        {"kernel=3 size=12x23", "windows have 23 positions in dimension 1, expected at most 22"},
        {"kernel=3 output=10x21", "windows have 23 positions in dimension 1, expected at most 22"},
        {"kernel=3 size=11x20 padding=valid",
         "windows have 11 positions in dimension 0, expected at most 10"},
        {"kernel=11 size=11 padding=valid", "expected at most 10"},
    };
    for (const auto &one : cases) {
        SCOPED_TRACE(one.options);
        EXPECT_FAILS(ARGUMENT, one.part, refused({10, 20}, one.options));
    }
    EXPECT_FAILS(ARGUMENT, "expected at most", refused({0}, "kernel=3 size=3"));
    EXPECT_FAILS(SHAPE, "image[1] is -1, expected 0 .. 2147483647", refused({10, -1}, "kernel=3 size=3"));
    EXPECT_FAILS(SHAPE, "image[0] is 2147483648", refused({INT64_C(1) << 31}, "kernel=3 size=3"));
    EXPECT_FAILS(SHAPE, "nimage is 0, expected 1 .. 3", refused({}, "kernel=3 size=3"));
    EXPECT_FAILS(SHAPE, "nimage is 4", refused({9, 9, 9, 9}, "kernel=3 size=3"));
    EXPECT_FAILS(HANDLE, "options is NULL", refused({9, 9}, nullptr));
    char *text = nullptr;
    const int64_t image[] = {9, 9};
    EXPECT_FAILS(HANDLE, "out_output is NULL",
                 tartan_windows_for_conv(image, 2, "kernel=3 size=3", &text, nullptr));
    EXPECT_FAILS(HANDLE, "out_input is NULL",
                 tartan_windows_for_conv(image, 2, "kernel=3 size=3", nullptr, &text));
    EXPECT_FAILS(HANDLE, "image is NULL",
                 tartan_windows_for_conv(nullptr, 2, "kernel=3 size=3", &text, &text));
}

TEST(WindowsForConv, EveryAllocationCanFail) {
    const int64_t image[] = {400, 700};
    char *in = nullptr, *out = nullptr;
    BRUTAL(tartan_windows_for_conv(image, 2, "kernel=3 output=16", &in, &out),
           (tartan_text_free(in), tartan_text_free(out)));
}

} // namespace
