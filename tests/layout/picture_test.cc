// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "layouts.h"

using namespace tartan_test;

namespace {

std::string svg(const Layout &l, int32_t pixels = 256) {
    char *text = nullptr;
    EXPECT_OK(tartan_layout_svg(l.get(), pixels, &text));
    std::string result = text;
    tartan_text_free(text);
    return result;
}

int count(const std::string &text, const std::string &part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) n++;
    return n;
}

// Elements open and close in pairs, and no character needs an escape.
void expect_well_formed(const std::string &text) {
    std::vector<std::string> open;
    size_t at = 0;
    while (at < text.size()) {
        size_t begin = text.find('<', at), end = text.find('>', at);
        if (begin == std::string::npos) break;
        ASSERT_NE(end, std::string::npos);
        ASSERT_LT(begin, end); // a '>' outside of a tag comes first
        std::string tag = text.substr(begin + 1, end - begin - 1), name = tag.substr(0, tag.find(' '));
        ASSERT_EQ(tag.find('<'), std::string::npos);
        if (tag[0] == '/') {
            ASSERT_FALSE(open.empty());
            EXPECT_EQ("/" + open.back(), tag);
            open.pop_back();
        } else if (tag.back() != '/') {
            open.push_back(name);
        }
        at = end + 1;
    }
    EXPECT_TRUE(open.empty());
    EXPECT_EQ(text.find('&'), std::string::npos);
}

// The cells that the paths paint, each once.
Mask painted(const std::string &text, int64_t rows, int64_t cols) {
    Mask mask((size_t)(rows * cols), 0);
    for (size_t at = text.find('M'); at != std::string::npos; at = text.find('M', at + 1)) {
        long long x, y, right, left;
        EXPECT_EQ(sscanf(text.c_str() + at, "M%lld %lldh%lldv1h-%lldz", &x, &y, &right, &left), 4);
        EXPECT_EQ(right, left);
        for (long long k = 0; k < right; k++) {
            auto &cell = mask.at((size_t)(y * cols + x + k));
            EXPECT_EQ(cell, 0);
            cell = 1;
        }
    }
    return mask;
}

TEST(Svg, PaintsJustTheBlocks) {
    std::mt19937_64 random(60);
    for (int i = 0; i < rounds(300); i++) {
        Layout l = any_layout(random, true);
        std::string text = svg(l, 16 + (int32_t)(random() % 500));
        expect_well_formed(text);
        ASSERT_EQ(painted(text, tartan_layout_grid_rows(l.get()), tartan_layout_grid_cols(l.get())),
                  mask_of(l));
    }
}

TEST(Svg, OnePathSmallText) {
    Layout l = pattern(square(128, 1, 32), "causal");
    std::string text = svg(l);
    EXPECT_EQ(count(text, "<path"), 1);
    EXPECT_EQ(count(text, "M"), 128); // a run a row
    EXPECT_NE(text.find("<title>4096 x 4096, blocks 32 x 32: 8256 blocks stored, 50.4%</title>"),
              std::string::npos);
    EXPECT_NE(text.find("width=\"256\" height=\"256\""), std::string::npos);
    EXPECT_LT(text.size(), 5000u);
}

TEST(Svg, HeadsStandSideBySide) {
    std::string text = svg(pattern(square(8, 4), "random", "density=0.5"), 200);
    expect_well_formed(text);
    EXPECT_EQ(count(text, "<svg"), 5);
    EXPECT_NE(text.find(", 4 heads</title>"), std::string::npos);
    text = svg(pattern(square(2, 1000), "dense"), 4096);
    expect_well_formed(text);
    EXPECT_EQ(count(text, "<svg"), 65);
    EXPECT_NE(text.find(", 1000 heads, the first 64 drawn"), std::string::npos);
    text = svg(pattern(square(2, 1000), "dense"), 16);
    EXPECT_EQ(count(text, "<svg"), 2);
}

TEST(Svg, LargeGridsAreDrawnInShades) {
    std::string text = svg(pattern(square(1024), "dense")); // 2 x 2 blocks a cell, all full
    EXPECT_EQ(count(text, "<path"), 1);
    EXPECT_EQ(count(text, "fill-opacity"), 0);
    text = svg(pattern(square(1024), "checker")); // each cell half full
    EXPECT_EQ(count(text, "<path"), 1);
    EXPECT_EQ(count(text, "fill-opacity=\"0.500\""), 1);
    text = svg(pattern(square(5000), "banded")); // a single block is still seen
    Mask mask = painted(text, 500, 500);
    for (int64_t i = 0; i < 500; i++)
        for (int64_t j = 0; j < 500; j++) ASSERT_EQ(mask[(size_t)(i * 500 + j)], std::abs(i - j) <= 1);
    text = svg(pattern({1000003, 7, 1, 7, 1}, "dense"));
    expect_well_formed(text);
    EXPECT_NE(text.find("width=\"256\" height=\"2048\""), std::string::npos);
}

TEST(Svg, EmptyFrames) {
    for (tartan_shape s :
         {tartan_shape{0, 0, 1, 1, 1}, tartan_shape{0, 5, 1, 1, 2}, tartan_shape{5, 0, 1, 1, 1}}) {
        std::string text = svg(pattern(s, "dense"));
        expect_well_formed(text);
        EXPECT_EQ(count(text, "<path"), 0);
        EXPECT_EQ(count(text, "viewBox=\"0 0 0"), 0);
    }
}

TEST(Svg, Refusals) {
    Layout l = pattern(square(3), "dense");
    char *out = (char *)8;
    EXPECT_FAILS(HANDLE, "out_text is NULL", tartan_layout_svg(l.get(), 100, nullptr));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_svg(nullptr, 100, &out));
    EXPECT_EQ(out, nullptr);
    for (int32_t pixels : {-1, 0, 15, 4097})
        EXPECT_FAILS(ARGUMENT, "expected 16 .. 4096", tartan_layout_svg(l.get(), pixels, &out));
    BRUTAL(tartan_layout_svg(l.get(), 100, &out), tartan_text_free(out));
}

} // namespace
