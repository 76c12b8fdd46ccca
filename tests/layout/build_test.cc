// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "layouts.h"

using namespace tartan_test;

namespace {

const tartan_shape kShape{64, 32, 8, 8, 1}; // an 8 x 4 grid

TEST(Frame, Refusals) {
    auto check = [](tartan_shape s, tartan_status status, const char *part) {
        tartan_layout *out = reinterpret_cast<tartan_layout *>(8);
        EXPECT_EQ(tartan_layout_from_pattern(&s, "dense", "", 0, &out), status) << part;
        EXPECT_EQ(out, nullptr);
        EXPECT_NE(std::string(tartan_last_error()).find(part), std::string::npos) << tartan_last_error();
        EXPECT_EQ(std::string(tartan_last_error()).rfind("tartan_layout_from_pattern: ", 0), 0u);
    };
    check({-1, 4, 1, 1, 1}, TARTAN_ERR_SHAPE, "shape is -1 x 4");
    check({4, -1, 1, 1, 1}, TARTAN_ERR_SHAPE, "shape is 4 x -1");
    check({INT64_MIN, 4, 1, 1, 1}, TARTAN_ERR_SHAPE, "expected rows and cols >= 0");
    for (int64_t block : {INT64_MIN, (int64_t)-1, (int64_t)0, (int64_t)257, INT64_MAX}) {
        check({4, 4, block, 1, 1}, TARTAN_ERR_ARGUMENT, "expected 1 .. 256 each");
        check({4, 4, 1, block, 1}, TARTAN_ERR_ARGUMENT, "expected 1 .. 256 each");
    }
    for (int64_t heads : {INT64_MIN, (int64_t)-1, (int64_t)0, (int64_t)1048577, INT64_MAX})
        check({4, 4, 1, 1, heads}, TARTAN_ERR_ARGUMENT, "expected 1 .. 1048576");
    check({2147483648, 1, 1, 1, 1}, TARTAN_ERR_OVERFLOW, "2147483648 x 1 blocks, expected at most 2^31 - 1");
    check({1, 2147483648, 1, 1, 1}, TARTAN_ERR_OVERFLOW, "1 x 2147483648 blocks");
    check({INT64_MAX, 1, 256, 1, 1}, TARTAN_ERR_OVERFLOW, "at most 2^31 - 1");
    check({2147483647, 2147483647, 1, 1, 3}, TARTAN_ERR_OVERFLOW, "expected less than 2^63 in all");
}

// No block rows, so the frame is sound, but its column lists would need 2^54 bytes.
TEST(Frame, MoreThanMemory) {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "the address sanitizer stops at such a size";
#endif
    tartan_shape s{0, 2147483647, 1, 1, 1048576};
    int64_t pointer = 0, id;
    tartan_layout *out = nullptr;
    ASSERT_OK(tartan_layout_from_csr(&s, lists_of(&pointer, 1, nullptr, 0), &out));
    const Layout layout(out);
    EXPECT_FAILS(MEMORY, "could not get", tartan_layout_number(out, TARTAN_BY_COLUMN, &id, 0));
    EXPECT_FAILS(MEMORY, "could not get", tartan_layout_transpose(layout.get(), &out));
}

TEST(FromMask, Refusals) {
    Mask mask(32, 1);
    tartan_shape heads2 = kShape;
    heads2.heads = 2;
    EXPECT_NO_LAYOUT(HANDLE, "shape is NULL", tartan_layout_from_mask(nullptr, mask.data(), 32, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_from_mask(&kShape, mask.data(), 32, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "mask is NULL", tartan_layout_from_mask(&kShape, nullptr, 32, &out));
    EXPECT_NO_LAYOUT(SHAPE, "mask has 31 entries, expected 32",
                     tartan_layout_from_mask(&kShape, mask.data(), 31, &out));
    EXPECT_NO_LAYOUT(SHAPE, "expected 64", tartan_layout_from_mask(&heads2, mask.data(), 32, &out));
    EXPECT_NO_LAYOUT(SHAPE, "mask has -1", tartan_layout_from_mask(&kShape, mask.data(), -1, &out));
}

TEST(FromMask, AnyNonZeroByteIsABlock) {
    Mask mask(32, 0);
    mask[3] = 1, mask[5] = 2, mask[31] = 255;
    Layout l = from_mask(kShape, mask);
    EXPECT_EQ(row_lists(l.get()).cols, (Indices{3, 1, 3}));
    EXPECT_EQ(row_lists(l.get()).pointers, (Indices{0, 1, 2, 2, 2, 2, 2, 2, 3}));
}

TEST(FromMask, RoundTripsInRandomFrames) {
    std::mt19937_64 random(1);
    for (int i = 0; i < rounds(1000); i++) {
        tartan_shape s = random_shape(random);
        Mask mask((size_t)(s.heads * grid_rows(s) * grid_cols(s)));
        for (auto &m : mask) m = random() % 2;
        Layout l = from_mask(s, mask);
        ASSERT_TRUE(l);
        ASSERT_EQ(mask_of(l), mask);
        ASSERT_EQ(tartan_layout_blocks(l.get()), std::accumulate(mask.begin(), mask.end(), (int64_t)0));
    }
}

TEST(FromMask, EveryBlockShapeEdge) {
    for (int64_t b : {1, 2, 3, 7, 8, 16, 31, 32, 64, 100, 128, 255, 256})
        for (int64_t size : {b - 1, b, b + 1, 3 * b - 1}) {
            tartan_shape s{size, size, b, 257 - b, 1};
            Layout l = from_mask(s, Mask((size_t)(grid_rows(s) * grid_cols(s)), 1));
            ASSERT_EQ(tartan_layout_elements(l.get()), size * size);
        }
}

TEST(FromCoordinates, Refusals) {
    Indices two{0, 1};
    EXPECT_FAILS(HANDLE, "out is NULL", from_coordinates(kShape, {}, two, two, nullptr));
    EXPECT_NO_LAYOUT(
        HANDLE, "shape is NULL",
        tartan_layout_from_coordinates(nullptr, places_of(nullptr, two.data(), two.data(), 2), &out));
    EXPECT_NO_LAYOUT(HANDLE, "places is NULL", tartan_layout_from_coordinates(&kShape, nullptr, &out));
    EXPECT_NO_LAYOUT(
        HANDLE, "rows is NULL, expected 2 entries (places)",
        tartan_layout_from_coordinates(&kShape, places_of(nullptr, nullptr, two.data(), 2), &out));
    EXPECT_NO_LAYOUT(
        HANDLE, "cols is NULL",
        tartan_layout_from_coordinates(&kShape, places_of(nullptr, two.data(), nullptr, 2), &out));
    EXPECT_NO_LAYOUT(
        SHAPE, "places has a count of -1, expected 0 or more",
        tartan_layout_from_coordinates(&kShape, places_of(nullptr, two.data(), two.data(), -1), &out));
    EXPECT_NO_LAYOUT(LAYOUT, "rows[1] is 8, expected 0 .. 7",
                     from_coordinates(kShape, {}, {0, 8}, two, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "rows[0] is -1", from_coordinates(kShape, {}, {-1, 0}, two, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "cols[1] is 4, expected 0 .. 3",
                     from_coordinates(kShape, {}, two, {0, 4}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "cols[0] is", from_coordinates(kShape, {}, two, {INT64_MIN, 0}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "cols[1] is", from_coordinates(kShape, {}, two, {0, INT64_MAX}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "cols[1] is 4294967296",
                     from_coordinates(kShape, {}, two, {0, 4294967296}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "heads[1] is 1, expected 0 .. 0",
                     from_coordinates(kShape, {0, 1}, two, two, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "block row 3, block column 2 of head 0 appears twice",
                     from_coordinates(kShape, {}, {3, 0, 3}, {2, 2, 2}, &out));
}

TEST(FromCoordinates, AnyOrderGivesTheSame) {
    std::mt19937_64 random(2);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        Coordinates c = coordinates(l.get());
        std::vector<size_t> order(c.rows.size());
        std::iota(order.begin(), order.end(), (size_t)0);
        std::shuffle(order.begin(), order.end(), random);
        Coordinates d;
        for (size_t k : order) {
            d.heads.push_back(c.heads[k]);
            d.rows.push_back(c.rows[k]);
            d.cols.push_back(c.cols[k]);
        }
        tartan_layout *out = nullptr;
        ASSERT_OK(from_coordinates(shape_of(l.get()), d.heads, d.rows, d.cols, &out));
        Layout again(out);
        ASSERT_EQ(tartan_layout_equal(l.get(), out), 1);
        ASSERT_STREQ(tartan_layout_identity(l.get()), tartan_layout_identity(out));
    }
}

TEST(FromCoordinates, WithoutHeadsTheBlocksAreInEach) {
    tartan_shape s{6, 6, 2, 3, 4};
    tartan_layout *out = nullptr;
    ASSERT_OK(from_coordinates(s, {}, {2, 0}, {1, 0}, &out));
    Layout l(out);
    EXPECT_EQ(coordinates(out).heads, (Indices{0, 0, 1, 1, 2, 2, 3, 3}));
    EXPECT_EQ(coordinates(out).rows, (Indices{0, 2, 0, 2, 0, 2, 0, 2}));
    EXPECT_EQ(coordinates(out).cols, (Indices{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(FromCoordinates, HeadsWithDifferentCounts) {
    tartan_shape s{4, 4, 2, 2, 3};
    tartan_layout *out = nullptr;
    ASSERT_OK(from_coordinates(s, {2, 2, 0, 2}, {1, 0, 1, 1}, {0, 0, 1, 1}, &out));
    Layout l(out);
    EXPECT_EQ(row_lists(out).pointers, (Indices{0, 0, 1, 1, 1, 2, 4}));
    EXPECT_EQ(row_lists(out).cols, (Indices{1, 0, 0, 1}));
    EXPECT_EQ(col_lists(out).pointers, (Indices{0, 0, 1, 1, 1, 3, 4}));
    EXPECT_EQ(col_lists(out).ids, (Indices{0, 1, 2, 3}));
}

TEST(FromCoordinates, NoneAtAll) {
    tartan_layout *out = nullptr;
    ASSERT_OK(tartan_layout_from_coordinates(&kShape, places_of(nullptr, nullptr, nullptr, 0), &out));
    EXPECT_EQ(tartan_layout_blocks(out), 0);
    EXPECT_EQ(row_lists(out).pointers, Indices(9, 0));
    tartan_layout_free(out);
}

tartan_status from_csr(const tartan_shape &s, const Indices &pointers, const Indices &cols,
                       tartan_layout **out) {
    return tartan_layout_from_csr(&s, lists_of(pointers, cols), out);
}

TEST(FromCsr, Refusals) {
    tartan_shape s{4, 6, 2, 2, 1}; // 2 x 3
    Indices good{0, 1, 3}, cols{2, 1, 0};
    EXPECT_FAILS(HANDLE, "out is NULL", from_csr(s, good, cols, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "shape is NULL",
                     tartan_layout_from_csr(nullptr, lists_of(good.data(), 3, cols.data(), 3), &out));
    EXPECT_NO_LAYOUT(HANDLE, "lists is NULL", tartan_layout_from_csr(&s, nullptr, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "by_column is 1, expected 0",
                     tartan_layout_from_csr(&s, lists_of(good, cols, true), &out));
    EXPECT_NO_LAYOUT(HANDLE, "pointers is NULL",
                     tartan_layout_from_csr(&s, lists_of(nullptr, 3, cols.data(), 3), &out));
    EXPECT_NO_LAYOUT(HANDLE, "indices is NULL",
                     tartan_layout_from_csr(&s, lists_of(good.data(), 3, nullptr, 3), &out));
    EXPECT_NO_LAYOUT(SHAPE, "pointers has 2 entries, expected 3", from_csr(s, {0, 3}, cols, &out));
    EXPECT_NO_LAYOUT(SHAPE, "indices has -1 entries, expected 0 or more",
                     tartan_layout_from_csr(&s, lists_of(good.data(), 3, cols.data(), -1), &out));
    EXPECT_NO_LAYOUT(LAYOUT, "pointers go from 1 to 3, expected 0 to 3", from_csr(s, {1, 1, 3}, cols, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "pointers[2] is 3 after 4", from_csr(s, {0, 4, 3}, cols, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "pointers[1] is -1 after 0", from_csr(s, {0, -1, 3}, cols, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "pointers go from 0 to 2, expected 0 to 3", from_csr(s, {0, 1, 2}, cols, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "pointers go from 0 to 9223372036854775807",
                     from_csr(s, {0, 1, INT64_MAX}, cols, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "indices[0] is 3, expected 0 .. 2", from_csr(s, good, {3, 1, 0}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "indices[2] is -1", from_csr(s, good, {2, 1, -1}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "block row 1, block column 1 of head 0 appears twice",
                     from_csr(s, good, {2, 1, 1}, &out));
}

TEST(FromCsr, ColumnsInAnyOrder) {
    std::mt19937_64 random(3);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        RowLists r = row_lists(l.get());
        for (size_t line = 0; line + 1 < r.pointers.size(); line++)
            std::shuffle(r.cols.begin() + r.pointers[line], r.cols.begin() + r.pointers[line + 1], random);
        tartan_layout *out = nullptr;
        ASSERT_OK(from_csr(shape_of(l.get()), r.pointers, r.cols, &out));
        Layout again(out);
        ASSERT_EQ(tartan_layout_equal(l.get(), out), 1);
    }
}

TEST(FromEntries, Refusals) {
    tartan_shape s{5, 7, 2, 3, 1};
    Indices rows{0, 4}, cols{6, 0};
    auto make = [](const tartan_shape &shape, const Indices &r, const Indices &c, tartan_layout **out) {
        return tartan_layout_from_entries(&shape, places_of(nullptr, r.data(), c.data(), (int64_t)r.size()),
                                          out);
    };
    EXPECT_FAILS(HANDLE, "out is NULL", make(s, rows, cols, nullptr));
    EXPECT_NO_LAYOUT(
        HANDLE, "shape is NULL",
        tartan_layout_from_entries(nullptr, places_of(nullptr, rows.data(), cols.data(), 2), &out));
    EXPECT_NO_LAYOUT(HANDLE, "rows is NULL",
                     tartan_layout_from_entries(&s, places_of(nullptr, nullptr, cols.data(), 2), &out));
    EXPECT_NO_LAYOUT(HANDLE, "cols is NULL",
                     tartan_layout_from_entries(&s, places_of(nullptr, rows.data(), nullptr, 2), &out));
    EXPECT_NO_LAYOUT(SHAPE, "places has a count of -2",
                     tartan_layout_from_entries(&s, places_of(nullptr, rows.data(), cols.data(), -2), &out));
    EXPECT_NO_LAYOUT(LAYOUT, "rows[1] is 5, expected 0 .. 4", make(s, {0, 5}, cols, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "cols[0] is 7, expected 0 .. 6", make(s, rows, {7, 0}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "rows[0] is -1", make(s, {-1, 4}, cols, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "cols[1] is -3", make(s, rows, {6, -3}, &out));
}

TEST(FromEntries, HasHeads) {
    const int64_t heads[] = {1, 0, 1}, rows[] = {4, 0, 4}, cols[] = {0, 6, 1};
    tartan_shape s{5, 7, 2, 3, 2};
    tartan_layout *out = nullptr;
    ASSERT_OK(tartan_layout_from_entries(&s, places_of(heads, rows, cols, 3), &out));
    Layout owner(out);
    EXPECT_EQ(mask_of(out), (Mask{0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0}));
    const int64_t third[] = {2, 0, 0};
    EXPECT_NO_LAYOUT(LAYOUT, "heads[0] is 2, expected 0 .. 1",
                     tartan_layout_from_entries(&s, places_of(third, rows, cols, 3), &out));
}

TEST(FromEntries, CoversJustTheEntries) {
    std::mt19937_64 random(4);
    for (int i = 0; i < rounds(1000); i++) {
        tartan_shape s = random_shape(random, true);
        size_t n = s.rows * s.cols == 0 ? 0 : random() % 60;
        Indices rows(n), cols(n);
        Mask mask((size_t)(grid_rows(s) * grid_cols(s)), 0);
        for (size_t k = 0; k < n; k++) {
            rows[k] = (int64_t)(random() % (uint64_t)s.rows);
            cols[k] = (int64_t)(random() % (uint64_t)s.cols);
            mask[(size_t)(rows[k] / s.block_rows * grid_cols(s) + cols[k] / s.block_cols)] = 1;
        }
        tartan_layout *out = nullptr;
        ASSERT_OK(
            tartan_layout_from_entries(&s, places_of(nullptr, rows.data(), cols.data(), (int64_t)n), &out));
        Layout l(out);
        ASSERT_EQ(mask_of(l), mask);
    }
}

TEST(Build, EveryAllocationMayFail) {
    tartan_shape s{9, 10, 2, 3, 2};
    Mask mask((size_t)(s.heads * grid_rows(s) * grid_cols(s)), 1);
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_from_mask(&s, mask.data(), (int64_t)mask.size(), &out), tartan_layout_free(out));
}
TEST(Build, EveryAllocationOfCoordinatesMayFail) {
    tartan_layout *out = nullptr;
    BRUTAL(from_coordinates(kShape, {}, {3, 1, 2}, {0, 0, 1}, &out), tartan_layout_free(out));
}
TEST(Build, EveryAllocationOfCsrMayFail) {
    tartan_layout *out = nullptr;
    BRUTAL(from_csr({4, 6, 2, 2, 1}, {0, 1, 3}, {2, 1, 0}, &out), tartan_layout_free(out));
}
// Without lists of the size of the frame.
TEST(ShapeCheck, ChecksAFrameAlone) {
    tartan_shape s = {INT32_MAX, INT32_MAX, 1, 1, 1};
    EXPECT_OK(tartan_shape_check(&s));
    EXPECT_FAILS(HANDLE, "shape is NULL", tartan_shape_check(nullptr));
    s.rows = INT64_C(1) << 31;
    EXPECT_FAILS(OVERFLOW, "2^31 - 1", tartan_shape_check(&s));
    s = {-1, 4, 2, 2, 1};
    EXPECT_FAILS(SHAPE, "expected rows and cols >= 0", tartan_shape_check(&s));
    s = {4, 4, 257, 2, 1};
    EXPECT_FAILS(ARGUMENT, "expected 1 .. 256", tartan_shape_check(&s));
}

TEST(Build, EveryAllocationOfEntriesMayFail) {
    tartan_layout *out = nullptr;
    Indices rows{3, 0, 3}, cols{1, 2, 1};
    BRUTAL(tartan_layout_from_entries(&kShape, places_of(nullptr, rows.data(), cols.data(), 3), &out),
           tartan_layout_free(out));
}

} // namespace
