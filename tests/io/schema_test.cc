// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "io_support.h"
extern "C" {
#include "io/fletcher.h"
#include "io/schema.h"
}

using namespace tartan_test;

namespace {

TEST(Schema, Names) {
    for (const char *good :
         {"a", "...", ".a", "a b", "w%", "/", "a/", "\xc3\xa9", "\xf0\x9f\xa6\x8e", "\xe2\x82\xac"})
        EXPECT_EQ(tartan_i_name_fault(good), nullptr) << good;
    EXPECT_EQ(tartan_i_name_fault(std::string(255, 'x').c_str()), nullptr);
    for (const char *bad : {"", ".", "..", "\t", "\x1b", "\x7f", "\xc2\x80"})
        EXPECT_NE(tartan_i_name_fault(bad), nullptr);
    EXPECT_NE(tartan_i_name_fault(std::string(256, 'x').c_str()), nullptr);
}

TEST(Schema, LinksStandForNames) {
    char link[TARTAN_I_LINK_BYTES + 1];
    const std::pair<std::string, std::string> pairs[] = {{"w", "w"},
                                                         {"a/b", "a%2Fb"},
                                                         {"//", "%2F%2F"},
                                                         {"a%2Fb", "a%252Fb"},
                                                         {"100%", "100%25"},
                                                         {std::string(255, '/'), [] {
                                                              std::string all;
                                                              for (int i = 0; i < 255; i++) all += "%2F";
                                                              return all;
                                                          }()}};
    for (const auto &[name, expected] : pairs) {
        tartan_i_name_to_link(name.c_str(), link);
        EXPECT_EQ(link, expected);
        EXPECT_EQ(tartan_i_link_to_name(link, true), nullptr);
        EXPECT_EQ(link, name);
    }
    for (const char *literal : {"50%", "a%2Fb", "%%", "%41"}) { // names in files of version 1.0
        strcpy(link, literal);
        EXPECT_EQ(tartan_i_link_to_name(link, false), nullptr);
        EXPECT_STREQ(link, literal);
    }
    const std::pair<const char *, const char *> bad[] = {
        {"50%", "a '%' that is not"}, {"a%2fb", "a '%' that is not"}, {"%2", "a '%' that is not"},
        {"%41", "a '%' that is not"}, {"a/b", "has a '/'"},           {"", "is empty"}};
    for (const auto &[text, why] : bad) {
        strcpy(link, text);
        const char *fault = tartan_i_link_to_name(link, true);
        ASSERT_NE(fault, nullptr) << text;
        EXPECT_NE(std::string(fault).find(why), std::string::npos) << fault;
    }
    strcpy(link, "a/b");
    EXPECT_STREQ(tartan_i_link_to_name(link, false), "has a '/'");
}

TEST(Schema, Utf8) {
    for (const char *good : {"", "abc", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                             "\xee\x80\x80", "\xf4\x8f\xbf\xbf"})
        EXPECT_TRUE(tartan_i_utf8_valid(good));
    // Lone and missing continuation, overlong forms, surrogates, above 10ffff, bytes that never occur.
    for (const char *bad :
         {"\x80", "\xc2", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
          "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff", "a\xe2\x82"})
        EXPECT_FALSE(tartan_i_utf8_valid(bad));
}

TEST(Schema, Versions) {
    uint32_t minor = 7;
    for (const auto &[good, expected] :
         {std::pair("1.0", 0u), std::pair("1.1", 1u), std::pair("1.99", 99u)}) {
        EXPECT_OK(tartan_i_schema_check_version("f", "p", good, &minor));
        EXPECT_EQ(minor, expected);
    }
    for (const char *newer : {"2.0", "10.3"})
        EXPECT_FAILS(VERSION, newer, tartan_i_schema_check_version("f", "p", newer, &minor));
    EXPECT_FAILS(VERSION, "reads versions 1.x", tartan_i_schema_check_version("f", "p", "2.0", &minor));
    for (const char *bad : {"", "1", "1.", "one", "0.9", "1.0a", "1.0.0", "-1.0", "99999.0"})
        EXPECT_FAILS(FORMAT, "expected a version such as",
                     tartan_i_schema_check_version("f", "p", bad, &minor));
}

// HDF5's algorithm as it is written down: big-endian words, carries folded back into both sums.
uint32_t plain_fletcher32(const Bytes &bytes) {
    uint64_t first = 0, second = 0;
    for (size_t i = 0; i < bytes.size(); i += 2) {
        first += (uint64_t)bytes[i] << 8 | (i + 1 < bytes.size() ? bytes[i + 1] : 0);
        second += first;
        for (uint64_t *sum : {&first, &second})
            while (*sum > 0xffff) *sum = (*sum & 0xffff) + (*sum >> 16);
    }
    return (uint32_t)(second << 16 | first);
}

TEST(Schema, ChecksumsOfChunks) {
    std::mt19937 random(1);
    std::vector<size_t> sizes = {
        0, 1, 2, 3, 63, 64, 65, 128, 1000, 64 * 360, 64 * 360 + 2, 64 * 720 + 63, 1 << 20};
    for (int i = 0; i < 50; i++) sizes.push_back(random() % 5000);
    for (size_t size : sizes)
        for (int kind = 0; kind < 4; kind++) {
            Bytes bytes(size);
            for (unsigned char &byte : bytes)
                byte = (unsigned char)(kind == 0   ? 0
                                       : kind == 1 ? 255
                                       : kind == 2 ? random() % 40 == 0
                                                   : random());
            EXPECT_EQ(tartan_i_fletcher32(bytes.data(), (int64_t)size), plain_fletcher32(bytes))
                << size << " " << kind;
        }
}

TEST(Schema, Chunks) {
    EXPECT_EQ(tartan_i_chunk_items(10, 4), 10);
    EXPECT_EQ(tartan_i_chunk_items(1 << 20, 4), 1 << 18);
    EXPECT_EQ(tartan_i_chunk_items(1000, 256 * 256 * 8), 2);
    EXPECT_EQ(tartan_i_chunk_items(1000, 1 << 21), 1);
}

std::string described(const tartan_layout *layout, int32_t dtype, int32_t order) {
    tartan_i_text text = {};
    if (dtype == 0)
        tartan_i_schema_describe_layout(&text, layout);
    else
        tartan_i_schema_describe_matrix(&text, layout, dtype, order);
    const std::string copy = text.data;
    tartan_i_free(text.data);
    return copy;
}

TEST(Schema, Descriptors) {
    Layout one = from_mask({8, 6, 4, 2, 1}, {1, 0, 1, 0, 1, 0}), two = from_mask({4, 2, 4, 2, 2}, {1, 0});
    EXPECT_EQ(described(one.get(), 0, 0),
              R"({"binsparse":{"version":"0.1","format":"CSR","shape":[2,3],"number_of_stored_values":3,)"
              R"("data_types":{"pointers_to_1":"int32","indices_1":"int32","values":"iso[bint8]"}}})");
    EXPECT_EQ(
        described(two.get(), 0, 0),
        R"({"binsparse":{"version":"0.1","format":"custom","custom":{"level":{"level_desc":"dense","rank":1,)"
        R"("level":{"level_desc":"dense","rank":1,"level":{"level_desc":"sparse","rank":1,)"
        R"("level":{"level_desc":"element"}}}}},"shape":[2,1,1],"number_of_stored_values":1,)"
        R"("data_types":{"pointers_to_2":"int32","indices_2":"int32","values":"iso[bint8]"}}})");
    EXPECT_EQ(described(one.get(), TARTAN_F32, TARTAN_COL_MAJOR),
              R"({"binsparse":{"version":"0.1","format":"custom","custom":{"transpose":[0,2,3,1],)"
              R"("level":{"level_desc":"dense","rank":1,"level":{"level_desc":"sparse","rank":1,)"
              R"("level":{"level_desc":"dense","rank":2,"level":{"level_desc":"element"}}}}},)"
              R"("shape":[2,4,3,2],"number_of_stored_values":24,)"
              R"("data_types":{"pointers_to_1":"int32","indices_1":"int32","values":"float32"}}})");
    const std::string heads = described(two.get(), TARTAN_F64, TARTAN_ROW_MAJOR);
    EXPECT_NE(heads.find(R"("transpose":[0,1,3,2,4])"), heads.npos) << heads;
    EXPECT_NE(heads.find(R"("shape":[2,1,4,1,2],"number_of_stored_values":8)"), heads.npos) << heads;
}

struct Lists {
    std::vector<int64_t> pointers, indices;
    const char *why;
};

// Takes the lists as 4- and as 8-byte numbers, signed and not.
template <class T> tartan_status take(const Lists &lists, tartan_layout *layout) {
    const std::vector<T> p(lists.pointers.begin(), lists.pointers.end()),
        i(lists.indices.begin(), lists.indices.end());
    const tartan_i_integers pointers = {p.data(), (int64_t)p.size(), sizeof(T), std::is_signed_v<T>};
    const tartan_i_integers indices = {i.data(), (int64_t)i.size(), sizeof(T), std::is_signed_v<T>};
    return tartan_i_schema_take_lists("f", "w", &pointers, &indices, layout);
}

TEST(Schema, RowLists) {
    const tartan_shape shape = {9, 12, 3, 3, 1}; // a grid of 3 x 4
    const Lists all[] = {
        {{0, 2, 2, 3}, {1, 3, 0}, nullptr},
        {{1, 2, 2, 3}, {1, 3, 0}, "begins with 1, expected 0"},
        {{0, 2, 1, 3}, {1, 3, 0}, "pointers_to_1[2] is 1, expected 2 to 3"},
        {{0, 4, 4, 4}, {1, 3, 0}, "pointers_to_1[1] is 4, expected 0 to 3"},
        {{0, 2, 2, 2}, {1, 3, 0}, "ends with 2, but indices_1 has 3"},
        {{0, 2, 2, 3}, {1, 4, 0}, "indices_1[1] is 4, but the grid has 4"},
        {{0, 2, 2, 3}, {3, 1, 0}, "indices_1[1] is 1 after 3 in one row"},
        {{0, 2, 2, 3}, {1, 1, 0}, "indices_1[1] is 1 after 1 in one row"},
        {{0, 2, 2, 3}, {-1, 1, 0}, "indices_1[0] is"},
        {{0, -2, 2, 3}, {1, 3, 0}, "pointers_to_1[1] is"},
    };
    for (const Lists &lists : all) {
        tartan_layout *layout = nullptr;
        ASSERT_OK(tartan_i_layout_begin(&shape, 3, &layout));
        for (int kind = 0; kind < 4; kind++) {
            auto call = kind == 0   ? take<int32_t>
                        : kind == 1 ? take<int64_t>
                        : kind == 2 ? take<uint32_t>
                                    : take<uint64_t>;
            if (lists.why == nullptr)
                EXPECT_OK(call(lists, layout));
            else
                EXPECT_FAILS(FORMAT, lists.why, call(lists, layout));
        }
        tartan_layout_free(layout);
    }
}

TEST(Schema, PaddingIsClearedAndNothingElse) {
    for (int32_t order = TARTAN_ROW_MAJOR; order <= TARTAN_COL_MAJOR; order++) {
        Layout layout = random_layout({7, 5, 4, 3, 2}, 1, 1);
        Matrix clean = random_matrix(layout.get(), TARTAN_F64, order, 3);
        const tartan_array view = values_of(clean.get());
        const double *values = (const double *)view.data;
        std::vector<double> dirty(values, values + 8 * 12);
        for (double &x : dirty)
            if (x == 0) x = NAN;
        EXPECT_TRUE(tartan_i_is_ragged(layout.get()));
        for (int64_t id = 0; id < 8; id += 2)
            tartan_i_padding_clear(layout.get(), TARTAN_F64, order, id, 2, dirty.data() + id * 12);
        EXPECT_EQ(std::memcmp(dirty.data(), values, sizeof(double) * dirty.size()), 0);
    }
    EXPECT_FALSE(tartan_i_is_ragged(random_layout({8, 6, 4, 3, 1}, 1, 1).get()));
}

} // namespace
