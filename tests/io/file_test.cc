// SPDX-License-Identifier: Apache-2.0
// The collection in memory and as it is opened.
#include "io_support.h"

using namespace tartan_test;

namespace {

class FileTest : public testing::Test {
  protected:
    Folder folder;
    Layout layout = random_layout({12, 12, 4, 4, 1}, 0.6, 1);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, 2);
    File file = new_file();
};

// The order of the first put stays, whatever is replaced, saved and read.
TEST_F(FileTest, KeepsTheOrderOfPutting) {
    const float bias[2] = {1, 2};
    const int64_t n = 2;
    tartan_array array;
    ASSERT_OK(tartan_array_init((void *)bias, TARTAN_F32, 1, &n, nullptr, &array));
    const std::vector<std::pair<int32_t, std::string>> wanted = {
        {TARTAN_KIND_MATRIX, "layer1"},  {TARTAN_KIND_LAYOUT, "z"},  {TARTAN_KIND_LAYOUT, "y"},
        {TARTAN_KIND_MATRIX, "layer2"},  {TARTAN_KIND_ARRAY, "b/2"}, {TARTAN_KIND_LAYOUT, "layer1"},
        {TARTAN_KIND_MATRIX, "layer10"}, {TARTAN_KIND_ARRAY, "b1"},  {TARTAN_KIND_LAYOUT, "a"}};
    for (int round = 0; round < 2; round++) // the second one replaces
        for (const auto &[kind, name] : wanted) {
            if (kind == TARTAN_KIND_MATRIX)
                ASSERT_OK(tartan_file_put_matrix(file.get(), name.c_str(), matrix.get(), nullptr, nullptr));
            else if (kind == TARTAN_KIND_LAYOUT)
                ASSERT_OK(tartan_file_put_layout(file.get(), name.c_str(), layout.get(), nullptr));
            else
                ASSERT_OK(tartan_file_put_array(file.get(), name.c_str(), &array, 0, nullptr));
        }
    ASSERT_OK(tartan_file_save(file.get(), (folder / "o.h5").c_str(), 0));
    File back = open_file(folder / "o.h5");
    ASSERT_OK(tartan_file_save(back.get(), (folder / "again.h5").c_str(), 0));
    File again = open_file(folder / "again.h5");
    for (tartan_file *f : {file.get(), back.get(), again.get()}) {
        ASSERT_EQ(tartan_file_count(f), (int64_t)wanted.size());
        for (size_t i = 0; i < wanted.size(); i++) {
            EXPECT_EQ(tartan_file_kind(f, (int64_t)i), wanted[i].first) << i;
            EXPECT_EQ(tartan_file_name(f, (int64_t)i), wanted[i].second) << i;
            EXPECT_EQ(tartan_file_find(f, wanted[i].first, wanted[i].second.c_str()), (int64_t)i);
            const char *identity = tartan_file_layout_identity(f, (int64_t)i);
            if (wanted[i].first == TARTAN_KIND_ARRAY)
                EXPECT_EQ(identity, nullptr);
            else
                EXPECT_STREQ(identity, tartan_layout_identity(layout.get()));
        }
        for (int64_t i : {(int64_t)-1, (int64_t)wanted.size()}) {
            EXPECT_EQ(tartan_file_name(f, i), nullptr);
            EXPECT_EQ(tartan_file_kind(f, i), 0);
            EXPECT_EQ(tartan_file_layout_identity(f, i), nullptr);
        }
    }
    EXPECT_EQ(tartan_file_sealed(file.get()), 0);
}

TEST_F(FileTest, FindsObjectsByKindAndName) {
    for (const char *name : {"b", "a/x", "c"})
        ASSERT_OK(tartan_file_put_matrix(file.get(), name, matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_put_layout(file.get(), "c", layout.get(), nullptr));
    EXPECT_EQ(tartan_file_find(file.get(), TARTAN_KIND_LAYOUT, "c"), 3);
    EXPECT_EQ(tartan_file_find(file.get(), TARTAN_KIND_MATRIX, "a/x"), 1);
    EXPECT_EQ(tartan_file_find(file.get(), TARTAN_KIND_MATRIX, "c"), 2);
    EXPECT_EQ(tartan_file_find(file.get(), TARTAN_KIND_LAYOUT, "b"), -1);
    EXPECT_EQ(tartan_file_find(file.get(), TARTAN_KIND_ARRAY, "b"), -1);
    EXPECT_EQ(tartan_file_find(file.get(), 4, "b"), -1);
    EXPECT_EQ(tartan_file_find(file.get(), TARTAN_KIND_MATRIX, nullptr), -1);
    EXPECT_EQ(tartan_file_find(nullptr, TARTAN_KIND_MATRIX, "b"), -1);
    ASSERT_OK(tartan_file_save(file.get(), (folder / "f.h5").c_str(), 0));
    File back = open_file(folder / "f.h5"); // before and after its list is read
    for (int round = 0; round < 2; round++) {
        int64_t about[11];
        for (tartan_file *f : {file.get(), back.get()}) {
            EXPECT_EQ(tartan_file_has(f, TARTAN_KIND_LAYOUT, "c"), 1);
            EXPECT_EQ(tartan_file_has(f, TARTAN_KIND_MATRIX, "a/x"), 1);
            EXPECT_EQ(tartan_file_has(f, TARTAN_KIND_LAYOUT, "a/x"), 0);
            EXPECT_EQ(tartan_file_has(f, TARTAN_KIND_MATRIX, "."), 0);
            EXPECT_EQ(tartan_file_has(f, TARTAN_KIND_MATRIX, nullptr), 0);
            ASSERT_OK(tartan_file_describe(f, "c", about, 11));
            EXPECT_EQ(about[0], TARTAN_KIND_MATRIX);
            ASSERT_OK(tartan_file_describe(f, "nobody", about, 11));
            EXPECT_EQ(about[0], 0);
        }
        ASSERT_OK(tartan_file_list(back.get()));
    }
    int64_t about[11];
    EXPECT_EQ(tartan_file_has(nullptr, TARTAN_KIND_MATRIX, "b"), 0);
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_describe(nullptr, "b", about, 11));
    EXPECT_FAILS(HANDLE, "name is NULL", tartan_file_describe(file.get(), nullptr, about, 11));
    EXPECT_FAILS(HANDLE, "out_index is NULL", tartan_file_describe(file.get(), "b", nullptr, 11));
    EXPECT_FAILS(SHAPE, "out_index has 3", tartan_file_describe(file.get(), "b", about, 3));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_list(nullptr));
}

TEST_F(FileTest, ReplacesAndRemoves) {
    Layout other = random_layout({6, 6, 2, 3, 1}, 1, 1);
    ASSERT_OK(tartan_file_put_layout(file.get(), "l", layout.get(), "1"));
    ASSERT_OK(tartan_file_put_layout(file.get(), "l", other.get(), "2"));
    EXPECT_EQ(tartan_file_count(file.get()), 1);
    EXPECT_EQ(get_layout(file.get(), "l"), other);
    ASSERT_OK(tartan_file_remove(file.get(), TARTAN_KIND_LAYOUT, "l"));
    EXPECT_EQ(tartan_file_count(file.get()), 0);
    EXPECT_FAILS(NOT_FOUND, "no layout \"l\"", tartan_file_remove(file.get(), TARTAN_KIND_LAYOUT, "l"));
    EXPECT_FAILS(NOT_FOUND, "no object of this kind", tartan_file_remove(file.get(), 7, "l"));
}

TEST_F(FileTest, GetsWhatWasPut) {
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, "{\"a\":1}"));
    Matrix copy = get_matrix(file.get(), "m");
    EXPECT_NE(copy, matrix);
    expect_same(copy.get(), matrix.get());
    char *text = nullptr;
    ASSERT_OK(tartan_file_get_metadata(file.get(), TARTAN_KIND_MATRIX, "m", &text));
    EXPECT_STREQ(text, "{\"a\":1}");
    tartan_text_free(text);
    for (const char *none : {(const char *)nullptr, ""}) { // what get gives can be put
        ASSERT_OK(tartan_file_put_layout(file.get(), "l", layout.get(), none));
        ASSERT_OK(tartan_file_get_metadata(file.get(), TARTAN_KIND_LAYOUT, "l", &text));
        EXPECT_STREQ(text, "");
        tartan_text_free(text);
        ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, none));
        ASSERT_OK(tartan_file_get_metadata(file.get(), TARTAN_KIND_MATRIX, "m", &text));
        EXPECT_STREQ(text, "");
        tartan_text_free(text);
    }
}

TEST_F(FileTest, GatesComeBackAsDoubles) {
    const int64_t n = tartan_layout_blocks(layout.get());
    std::vector<float> gates(2 * n);
    for (int64_t i = 0; i < 2 * n; i++) gates[i] = (float)i / 4;
    const int64_t stride = 2;
    tartan_array array;
    ASSERT_OK(tartan_array_init(gates.data(), TARTAN_F32, 1, &n, &stride, &array));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), &array, nullptr));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "plain", matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_save(file.get(), (folder / "g.h5").c_str(), 1));
    File back = open_file(folder / "g.h5");
    for (tartan_file *f : {file.get(), back.get()}) {
        std::vector<double> read(n, -1);
        EXPECT_EQ(tartan_file_has_gates(f, "m"), 1);
        EXPECT_EQ(tartan_file_has_gates(f, "plain"), 0);
        EXPECT_EQ(tartan_file_has_gates(f, "nobody"), 0);
        ASSERT_OK(tartan_file_get_gates(f, "m", read.data(), n));
        for (int64_t i = 0; i < n; i++) EXPECT_EQ(read[i], (double)i / 2);
        EXPECT_FAILS(NOT_FOUND, "has no gates", tartan_file_get_gates(f, "plain", read.data(), n));
        EXPECT_FAILS(NOT_FOUND, "no matrix", tartan_file_get_gates(f, "nobody", read.data(), n));
        EXPECT_FAILS(SHAPE, "out_gates has", tartan_file_get_gates(f, "m", read.data(), n - 1));
        EXPECT_FAILS(HANDLE, "out_gates is NULL", tartan_file_get_gates(f, "m", nullptr, n));
    }
    EXPECT_EQ(tartan_file_has_gates(nullptr, "m"), 0);
    EXPECT_EQ(tartan_file_has_gates(file.get(), nullptr), 0);
}

TEST_F(FileTest, RefusesNames) {
    const std::pair<std::string, const char *> bad[] = {
        {"", "is empty"},
        {".", "is \".\""},
        {"..", "is \".\""},
        {"a\n", "control"},
        {"\x7f", "control"},
        {"\xc2\x85", "control"},
        {"\xff", "not valid UTF-8"},
        {std::string(256, 'a'), "longer than 255"},
    };
    for (const auto &[name, why] : bad) {
        EXPECT_FAILS(ARGUMENT, why, tartan_file_put_layout(file.get(), name.c_str(), layout.get(), nullptr));
        EXPECT_FAILS(ARGUMENT, why,
                     tartan_file_put_matrix(file.get(), name.c_str(), matrix.get(), nullptr, nullptr));
    }
    EXPECT_EQ(tartan_file_count(file.get()), 0);
}

TEST_F(FileTest, RefusesHandles) {
    tartan_file *none = nullptr;
    tartan_layout *l = layout.get();
    tartan_matrix *m = nullptr;
    char *text = nullptr;
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_file_create(nullptr));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_file_open("x", nullptr));
    EXPECT_FAILS(HANDLE, "path is NULL", tartan_file_open(nullptr, &none));
    tartan_file_free(nullptr);
    EXPECT_EQ(tartan_file_count(nullptr), -1);
    EXPECT_EQ(tartan_file_name(nullptr, 0), nullptr);
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_put_layout(none, "a", l, nullptr));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_file_put_layout(file.get(), "a", nullptr, nullptr));
    EXPECT_FAILS(HANDLE, "name is NULL", tartan_file_put_layout(file.get(), nullptr, l, nullptr));
    EXPECT_FAILS(HANDLE, "not one of Tartan's", tartan_file_put_layout((tartan_file *)l, "a", l, nullptr));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_put_matrix(none, "a", matrix.get(), nullptr, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL",
                 tartan_file_put_matrix(file.get(), "a", nullptr, nullptr, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is closed",
                 tartan_file_put_matrix(file.get(), "a", (tartan_matrix *)l, nullptr, nullptr));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_remove(none, TARTAN_KIND_LAYOUT, "a"));
    EXPECT_FAILS(HANDLE, "name is NULL", tartan_file_remove(file.get(), TARTAN_KIND_LAYOUT, nullptr));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_file_get_layout(file.get(), "a", nullptr));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_get_layout(none, "a", &l));
    EXPECT_FAILS(NOT_FOUND, "no layout \"a\"", tartan_file_get_layout(file.get(), "a", &l));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_file_get_matrix(file.get(), "a", nullptr));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_get_matrix(none, "a", &m));
    EXPECT_FAILS(NOT_FOUND, "no matrix \"a\"", tartan_file_get_matrix(file.get(), "a", &m));
    EXPECT_FAILS(HANDLE, "out_text is NULL",
                 tartan_file_get_metadata(file.get(), TARTAN_KIND_LAYOUT, "a", nullptr));
    EXPECT_FAILS(NOT_FOUND, "no layout",
                 tartan_file_get_metadata(file.get(), TARTAN_KIND_LAYOUT, "a", &text));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_get_metadata(none, TARTAN_KIND_LAYOUT, "a", &text));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_get_gates(none, "a", nullptr, 0));
    EXPECT_FAILS(ARGUMENT, "metadata is not valid UTF-8",
                 tartan_file_put_layout(file.get(), "a", layout.get(), "\xc3"));
    const std::string long_text =
        std::string(63, 'x') + "\xc3\xbc" + "y"; // its 64th byte is half a character
    EXPECT_FAILS(ARGUMENT, "metadata is \"" + std::string(63, 'x') + "\", expected JSON",
                 tartan_file_put_layout(file.get(), "a", layout.get(), long_text.c_str()));
    EXPECT_FAILS(
        ARGUMENT, "name \"\t" + std::string(62, 'x') + "\" ",
        tartan_file_put_layout(file.get(), ("\t" + long_text.substr(1)).c_str(), layout.get(), nullptr));
    EXPECT_EQ(tartan_file_count(file.get()), 0);
}

TEST_F(FileTest, MetadataIsJson) {
    const std::string deep = std::string(256, '[') + std::string(256, ']');
    for (const std::string &text :
         {std::string("{}"), std::string(" [1, -0.5e+3, 0, 12.5E-1] "), std::string("\"a\\u00e9\\n \\\"ö\""),
          std::string("null"), std::string("{\"a\": {\"b\": [true, false]}, \"a\":\t1}"), deep})
        EXPECT_OK(tartan_file_put_layout(file.get(), "l", layout.get(), text.c_str())) << text;
    for (const std::string &text :
         {std::string(" "),          std::string("note"),        std::string("{a: 1}"),
          std::string("[1,]"),       std::string("[1 2]"),       std::string("{\"a\" 1}"),
          std::string("{\"a\":1,}"), std::string("01"),          std::string("1."),
          std::string("-"),          std::string("1e"),          std::string("\"a"),
          std::string("\"\\x\""),    std::string("\"\\u12g4\""), std::string("\"\\"),
          std::string("\"\n\""),     std::string("{} {}"),       std::string("truex"),
          std::string("nul"),        std::string("["),           std::string("{"),
          '[' + deep + ']'}) {
        EXPECT_FAILS(ARGUMENT, "expected JSON",
                     tartan_file_put_layout(file.get(), "l", layout.get(), text.c_str()));
        EXPECT_FAILS(ARGUMENT, "expected JSON",
                     tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, text.c_str()));
    }
    EXPECT_EQ(tartan_file_count(file.get()), 1);
}

TEST_F(FileTest, RefusesGates) {
    const int64_t n = tartan_layout_blocks(layout.get()), square[2] = {n, 1}, less = n - 1;
    std::vector<double> gates(n + 1);
    tartan_array array;
    ASSERT_OK(tartan_array_init(gates.data(), TARTAN_F64, 1, &less, nullptr, &array));
    EXPECT_FAILS(SHAPE, "gates has shape",
                 tartan_file_put_matrix(file.get(), "m", matrix.get(), &array, nullptr));
    ASSERT_OK(tartan_array_init(gates.data(), TARTAN_F64, 2, square, nullptr, &array));
    EXPECT_FAILS(SHAPE, "gates has shape",
                 tartan_file_put_matrix(file.get(), "m", matrix.get(), &array, nullptr));
    ASSERT_OK(tartan_array_init(gates.data(), TARTAN_F16, 1, &n, nullptr, &array));
    EXPECT_FAILS(DTYPE, "gates is of float16",
                 tartan_file_put_matrix(file.get(), "m", matrix.get(), &array, nullptr));
    array.dtype = 99;
    EXPECT_FAILS(DTYPE, "gates", tartan_file_put_matrix(file.get(), "m", matrix.get(), &array, nullptr));
    EXPECT_EQ(tartan_file_count(file.get()), 0);
}

TEST_F(FileTest, MatricesOfOneLayoutShareIt) {
    write_sample(folder / "s.h5", 1);
    File opened = open_file(folder / "s.h5");
    Layout pattern = get_layout(opened.get(), "pattern");
    Matrix a = get_matrix(opened.get(), "a"), b = get_matrix(opened.get(), "b"),
           c = get_matrix(opened.get(), "c");
    EXPECT_EQ(layout_of(a.get()).get(), pattern.get());
    EXPECT_EQ(layout_of(b.get()).get(), pattern.get());
    EXPECT_NE(layout_of(c.get()).get(), pattern.get());
    const std::string identity = tartan_layout_identity(pattern.get());
    for (int64_t i = 0; i < 3; i++)
        EXPECT_STREQ(tartan_file_layout_identity(opened.get(), i), identity.c_str());
    opened.reset(); // what was got lives on
    EXPECT_EQ(tartan_layout_rows(pattern.get()), 40);
    EXPECT_OK(tartan_matrix_check(a.get(), 1));
}

TEST_F(FileTest, RecipeIsKept) {
    const tartan_shape shape = {32, 32, 4, 4, 1};
    tartan_layout *made = nullptr;
    if (tartan_layout_from_pattern(&shape, "random", "", 3, &made) != TARTAN_OK)
        GTEST_SKIP() << tartan_last_error();
    Layout owner(made);
    ASSERT_OK(tartan_file_put_layout(file.get(), "l", made, nullptr));
    ASSERT_OK(tartan_file_save(file.get(), (folder / "r.h5").c_str(), 0));
    EXPECT_STREQ(tartan_layout_recipe(get_layout(open_file(folder / "r.h5").get(), "l").get()),
                 tartan_layout_recipe(made));
}

TEST_F(FileTest, SurvivesEveryFailedAllocation) {
    tartan_file *made = nullptr;
    BRUTAL(tartan_file_create(&made), tartan_file_free(made));
    const int64_t n = tartan_layout_blocks(layout.get());
    std::vector<double> gates(n);
    tartan_array array;
    ASSERT_OK(tartan_array_init(gates.data(), TARTAN_F64, 1, &n, nullptr, &array));
    auto put = [&] {
        tartan_file *fresh = nullptr;
        tartan_status status = tartan_file_create(&fresh);
        if (status == TARTAN_OK) status = tartan_file_put_matrix(fresh, "m", matrix.get(), &array, "{}");
        if (status == TARTAN_OK) status = tartan_file_put_layout(fresh, "l", layout.get(), "{}");
        tartan_file_free(fresh);
        return status;
    };
    BRUTAL(put(), );
}

// Opens the file and calls `get`, so that what the collection keeps of a reading goes away with it.
tartan_status from_file(const std::string &path, const std::function<tartan_status(tartan_file *)> &get) {
    tartan_file *file = nullptr;
    tartan_status status = tartan_file_open(path.c_str(), &file);
    if (status == TARTAN_OK) status = get(file);
    tartan_file_free(file);
    return status;
}

TEST_F(FileTest, LayoutsOfMatricesAreReadWithoutTheirBlocks) {
    write_sample(folder / "sample.h5", 1);
    const File file = open_file(folder / "sample.h5");
    tartan_matrix *matrix = nullptr;
    tartan_layout *layout = nullptr;
    ASSERT_OK(tartan_file_get_matrix(file.get(), "b", &matrix));
    const Matrix whole(matrix);
    ASSERT_OK(tartan_file_get_matrix_layout(file.get(), "b", &layout));
    const Layout alone(layout);
    tartan_layout *of_whole = nullptr;
    ASSERT_OK(tartan_matrix_get_layout(whole.get(), &of_whole));
    EXPECT_EQ(Layout(of_whole).get(), alone.get());
    EXPECT_FAILS(NOT_FOUND, "no matrix \"pattern\"",
                 tartan_file_get_matrix_layout(file.get(), "pattern", &layout));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_file_get_matrix_layout(file.get(), "b", nullptr));
}

TEST_F(FileTest, OpeningAndGettingSurviveEveryFailedAllocation) {
    write_sample(folder / "sealed.h5", 1);
    strip_seal(folder / "sealed.h5", folder / "foreign.h5");
    for (const std::string &path : {folder / "sealed.h5", folder / "foreign.h5"}) {
        tartan_file *opened = nullptr;
        tartan_layout *l = nullptr;
        tartan_matrix *m = nullptr;
        char *text = nullptr;
        double gates[200];
        const int64_t n = tartan_layout_blocks(get_layout(open_file(path).get(), "pattern").get());
        BRUTAL(tartan_file_open(path.c_str(), &opened), tartan_file_free(opened));
        BRUTAL(from_file(path, [&](tartan_file *f) { return tartan_file_get_layout(f, "pattern", &l); }),
               tartan_layout_free(l));
        BRUTAL(from_file(path, [&](tartan_file *f) { return tartan_file_get_matrix_layout(f, "b", &l); }),
               tartan_layout_free(l));
        BRUTAL(from_file(path, [&](tartan_file *f) { return tartan_file_get_matrix(f, "b", &m); }),
               tartan_matrix_free(m));
        BRUTAL(from_file(path, [&](tartan_file *f) { return tartan_file_get_gates(f, "a", gates, n); }), );
        BRUTAL(from_file(path,
                         [&](tartan_file *f) {
                             return tartan_file_get_metadata(f, TARTAN_KIND_MATRIX, "b", &text);
                         }),
               tartan_text_free(text));
    }
}

} // namespace
