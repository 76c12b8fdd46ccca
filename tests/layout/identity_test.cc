// SPDX-License-Identifier: Apache-2.0
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <map>
#include <set>

#include "layouts.h"
extern "C" {
#include "layout/layout.h"
}

using namespace tartan_test;

namespace {

// The definition in identity.c, said again: all bytes at once, through the shared library of xxHash.
std::string identity_by_definition(const tartan_layout *l) {
    std::string bytes("tartan layout 1\0", 16);
    auto put = [&](int64_t x) {
        for (int b = 0; b < 8; b++) bytes.push_back((char)((uint64_t)x >> (8 * b)));
    };
    tartan_shape s = shape_of(l);
    for (int64_t x : {s.rows, s.cols, s.block_rows, s.block_cols, s.heads}) put(x);
    RowLists r = row_lists(l);
    for (int64_t x : r.pointers) put(x);
    for (int64_t x : r.cols) put(x);
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits(bytes.data(), bytes.size()));
    std::string text;
    for (unsigned char byte : digest.digest) {
        char two[3];
        snprintf(two, sizeof two, "%02x", byte);
        text += two;
    }
    return text;
}

TEST(Identity, IsAsDefined) {
    std::mt19937_64 random(9);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        ASSERT_EQ(tartan_layout_identity(l.get()), identity_by_definition(l.get()));
    }
    for (int64_t n : {22, 23, 100}) { // more than one chunk of the stream
        Layout l = pattern(square(n), "dense");
        ASSERT_EQ(tartan_layout_identity(l.get()), identity_by_definition(l.get()));
    }
}

TEST(Identity, TellsLayoutsApart) {
    std::set<std::string> seen;
    int count = 0;
    for (tartan_shape s :
         {tartan_shape{4, 4, 2, 2, 1}, tartan_shape{3, 4, 2, 2, 1}, tartan_shape{4, 3, 2, 2, 1},
          tartan_shape{6, 4, 3, 2, 1}, tartan_shape{4, 6, 2, 3, 1}, tartan_shape{2, 4, 2, 2, 2}})
        for (int bits = 0; bits < 16; bits++) {
            Layout l = from_mask(
                s, {(uint8_t)(bits & 1), (uint8_t)(bits & 2), (uint8_t)(bits & 4), (uint8_t)(bits & 8)});
            seen.insert(tartan_layout_identity(l.get()));
            count++;
        }
    EXPECT_EQ(seen.size(), (size_t)count);
}

// Layouts of equal hashes are compared block by block, so a collision makes nothing equal.
TEST(Identity, CollisionsDoNotMakeLayoutsEqual) {
    const Mask base = {1, 0, 0, 1, 1, 0};
    const tartan_shape shape = {3, 2, 1, 1, 1};
    Layout one = from_mask(shape, base);
    const auto collides = [&](const tartan_shape &s, const Mask &mask) {
        Layout other = from_mask(s, mask);
        EXPECT_STRNE("", tartan_layout_identity(other.get()));
        memcpy(other->identity, tartan_layout_identity(one.get()), sizeof one->identity);
        EXPECT_EQ(tartan_layout_equal(one.get(), other.get()), tartan_layout_equal(other.get(), one.get()));
        return tartan_layout_equal(one.get(), other.get());
    };
    EXPECT_EQ(collides(shape, base), 1);
    EXPECT_EQ(collides(shape, {0, 1, 0, 1, 1, 0}), 0);                    // another column
    EXPECT_EQ(collides(shape, {1, 1, 0, 0, 1, 0}), 0);                    // another row
    EXPECT_EQ(collides(shape, {1, 0, 0, 1, 0, 0}), 0);                    // fewer blocks
    EXPECT_EQ(collides(shape, {1, 0, 0, 1, 1, 1}), 0);                    // more blocks
    EXPECT_EQ(collides({6, 2, 2, 1, 1}, base), 0);                        // other blocks
    EXPECT_EQ(collides({3, 3, 1, 1, 1}, {1, 0, 0, 0, 1, 0, 1, 0, 0}), 0); // the same lists, a wider grid
}

TEST(Identity, RecipeIsNoPartOfIt) {
    Layout a = pattern(square(3), "dense"), b = from_mask(square(3), Mask(9, 1));
    EXPECT_STRNE(tartan_layout_recipe(a.get()), tartan_layout_recipe(b.get()));
    EXPECT_STREQ(tartan_layout_identity(a.get()), tartan_layout_identity(b.get()));
    EXPECT_EQ(tartan_layout_equal(a.get(), b.get()), 1);
}

} // namespace
