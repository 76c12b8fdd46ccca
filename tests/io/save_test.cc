// SPDX-License-Identifier: Apache-2.0
// Writing and reading back, names, sharing, checksums, the report of a file.
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "io_support.h"

using namespace tartan_test;

namespace {

struct Case {
    tartan_shape shape;
    double density;
};

// Whole and ragged, one head and more, empty and full, degenerate frames.
const Case cases[] = {
    {{16, 24, 4, 8, 1}, 0.5},       {{17, 23, 4, 8, 1}, 0.5}, {{17, 23, 4, 8, 3}, 0.4},
    {{12, 12, 3, 5, 2}, 1.0},       {{16, 16, 8, 8, 1}, 0.0}, {{16, 16, 8, 8, 2}, 0.0},
    {{0, 0, 4, 4, 1}, 0.5},         {{0, 9, 4, 4, 2}, 0.5},   {{1, 1, 1, 1, 1}, 1.0},
    {{300, 300, 256, 256, 1}, 1.0}, {{5, 70, 1, 64, 1}, 0.5},
};

TEST(Save, EveryDtypeOrderFrameAndCompressionComesBackBitForBit) {
    Folder folder;
    uint64_t seed = 1;
    for (const Case &c : cases)
        for (int32_t dtype = TARTAN_F64; dtype <= TARTAN_F8E5M2; dtype++)
            for (int32_t order = TARTAN_ROW_MAJOR; order <= TARTAN_COL_MAJOR; order++)
                for (int32_t keep = TARTAN_KEEP_PLAIN; keep <= TARTAN_KEEP_COMPRESSED; keep++) {
                    seed++;
                    Layout layout = random_layout(c.shape, c.density, seed);
                    Matrix matrix = random_matrix(layout.get(), dtype, order, seed);
                    File file = new_file();
                    ASSERT_OK(tartan_file_put_layout(file.get(), "l", layout.get(), nullptr));
                    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
                    const std::string path = folder / "round.h5";
                    ASSERT_OK(tartan_file_save(file.get(), path.c_str(), keep));
                    File back = open_file(path);
                    ASSERT_EQ(tartan_file_sealed(back.get()), 1);
                    Matrix read = get_matrix(back.get(), "m");
                    expect_same(matrix.get(), read.get());
                    Layout l = get_layout(back.get(), "l");
                    EXPECT_EQ(tartan_layout_equal(l.get(), layout.get()), 1);
                    if (HasFailure()) GTEST_FAIL() << "seed " << seed;
                }
}

TEST(Save, BlocksOfDifferentSizesComeBack) {
    Folder folder;
    const std::string path = folder / "sizes.h5";
    for (uint64_t seed = 0; seed < rounds(100u); seed++) {
        std::mt19937_64 random(seed);
        const Layout layout = random_variable_layout(
            {(int64_t)(random() % 60), (int64_t)(random() % 60), 9, 7, 1 + (int64_t)(seed % 3)}, 0.5, seed);
        const Matrix full =
            random_matrix(layout.get(), seed % 2 ? TARTAN_F32 : TARTAN_BF16, (int32_t)(seed / 2 % 2), seed);
        tartan_matrix *copy = nullptr; // whose padding is zero, as in what is read
        ASSERT_OK(tartan_matrix_copy(cpu(), full.get(), &copy));
        const Matrix matrix(copy);
        const File file = new_file();
        ASSERT_OK(tartan_file_put_layout(file.get(), "l", layout.get(), nullptr));
        ASSERT_OK(tartan_file_put_layout(file.get(), "the same", layout.get(), nullptr));
        ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
        ASSERT_OK(tartan_file_save(file.get(), path.c_str(), (int32_t)(seed % 2)));
        ASSERT_OK(tartan_file_verify(path.c_str(), nullptr));
        const File back = open_file(path);
        const Matrix read = get_matrix(back.get(), "m");
        expect_same(matrix.get(), read.get());
        for (const char *name : {"l", "the same"})
            ASSERT_EQ(tartan_layout_equal(get_layout(back.get(), name).get(), layout.get()), 1);
        if (seed < 3) {
            tartan_layout *again = nullptr;
            const auto read_again = [&](tartan_layout **out) {
                tartan_file *opened = nullptr;
                const tartan_status status = tartan_file_open(path.c_str(), &opened);
                const File held(opened);
                return status == TARTAN_OK ? tartan_file_get_layout(opened, "l", out) : status;
            };
            BRUTAL(read_again(&again), tartan_layout_free(again));
        }
        tartan_matrix *part = nullptr;
        if (seed % 3 == 0 && tartan_layout_is_variable(layout.get()))
            EXPECT_FAILS(UNSUPPORTED, "the matrix has blocks of different sizes",
                         tartan_file_get_rows(back.get(), "m", 0, 0, &part));
        if (HasFailure()) GTEST_FAIL() << "seed " << seed;
    }
}

TEST(Save, RandomFilesComeBack) {
    Folder folder;
    const std::string path = folder / "law.h5";
    for (uint64_t seed = 0; seed < rounds(300u); seed++) {
        std::mt19937_64 random(seed);
        auto pick = [&](int64_t low, int64_t high) {
            return low + (int64_t)(random() % (uint64_t)(high - low + 1));
        };
        Layout layout = random_layout({pick(0, 40), pick(0, 40), pick(1, 9), pick(1, 9), pick(1, 3)},
                                      (double)pick(0, 10) / 10, seed);
        Matrix matrix = random_matrix(layout.get(), (int32_t)pick(1, 4), (int32_t)pick(0, 1), seed);
        File file = new_file();
        ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
        ASSERT_OK(tartan_file_save(file.get(), path.c_str(), (int32_t)pick(0, 1)));
        expect_same(matrix.get(), get_matrix(open_file(path).get(), "m").get());
        if (HasFailure()) GTEST_FAIL() << "seed " << seed;
    }
}

TEST(Save, SpecialValuesKeepTheirBits) {
    Folder folder;
    Layout layout = random_layout({4, 4, 4, 4, 1}, 1, 1);
    const uint16_t bits[16] = {0x7c00, 0xfc00, 0x7e01, 0x8000, 1,      0x7f80, 0xff80, 0x7fc1,
                               0xffff, 0x0080, 0x3c00, 0x8001, 0x7bff, 0x0400, 0x03ff, 0x7f7f};
    for (int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
        Matrix matrix = random_matrix(layout.get(), dtype, TARTAN_ROW_MAJOR, 1);
        std::memcpy(values_of(matrix.get()).data, bits, sizeof bits);
        File file = new_file();
        ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
        ASSERT_OK(tartan_file_save(file.get(), (folder / "bits.h5").c_str(), 0));
        expect_same(matrix.get(), get_matrix(open_file(folder / "bits.h5").get(), "m").get());
    }
}

TEST(Save, PaddingOfWrappedValuesStaysOutOfTheFile) {
    Folder folder;
    for (int32_t order = TARTAN_ROW_MAJOR; order <= TARTAN_COL_MAJOR; order++) {
        Layout layout = random_layout({7, 5, 4, 3, 1}, 1, 1);
        Matrix clean = random_matrix(layout.get(), TARTAN_F32, order, 3);
        tartan_array view = values_of(clean.get());
        std::vector<float> dirty((const float *)view.data, (const float *)view.data + 4 * 12);
        for (float &x : dirty)
            if (x == 0) x = 99; // random values are never zero: this is padding
        const std::vector<float> before = dirty;
        view.data = dirty.data();
        tartan_matrix *wrapped = nullptr;
        ASSERT_OK(tartan_matrix_wrap(layout.get(), &view, nullptr, nullptr, &wrapped));
        Matrix owner(wrapped);
        File file = new_file();
        ASSERT_OK(tartan_file_put_matrix(file.get(), "m", wrapped, nullptr, nullptr));
        ASSERT_OK(tartan_file_save(file.get(), (folder / "wrap.h5").c_str(), 0));
        EXPECT_EQ(dirty, before);
        expect_same(clean.get(), get_matrix(open_file(folder / "wrap.h5").get(), "m").get());
    }
}

TEST(Save, ManyChunksComeBack) {
    Folder folder;
    Layout layout = random_layout({1000, 1500, 64, 64, 1}, 0.9, 5); // some 5 MB: five chunks
    Matrix matrix = random_matrix(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, 6);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
    for (int32_t keep : {0, 1}) {
        ASSERT_OK(tartan_file_save(file.get(), (folder / "big.h5").c_str(), keep));
        expect_same(matrix.get(), get_matrix(open_file(folder / "big.h5").get(), "m").get());
    }
}

TEST(Save, EqualCollectionsMakeEqualFiles) {
    Folder folder;
    write_sample(folder / "1.h5", 7);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(1100)); // HDF5 counts the times of objects in seconds
    write_sample(folder / "2.h5", 7);
    EXPECT_EQ(read_bytes(folder / "1.h5"), read_bytes(folder / "2.h5"));
}

TEST(Save, EmptyCollection) {
    Folder folder;
    File file = new_file();
    ASSERT_OK(tartan_file_save(file.get(), (folder / "none.h5").c_str(), 0));
    EXPECT_EQ(tartan_file_count(open_file(folder / "none.h5").get()), 0);
}

TEST(Save, OpenedCollectionReplacesItsOwnFile) {
    Folder folder;
    const std::string path = folder / "own.h5";
    write_sample(path, 1);
    File file = open_file(path);
    Matrix a = get_matrix(file.get(), "a"), c = get_matrix(file.get(), "c");
    ASSERT_OK(tartan_file_remove(file.get(), TARTAN_KIND_MATRIX, "b"));
    ASSERT_OK(tartan_file_save(file.get(), path.c_str(), TARTAN_KEEP_COMPRESSED));
    ASSERT_OK(tartan_file_save(file.get(), path.c_str(), TARTAN_KEEP_PLAIN)); // still reads from the first
    File back = open_file(path);
    EXPECT_EQ(tartan_file_count(back.get()), 5);
    expect_same(a.get(), get_matrix(back.get(), "a").get());
    expect_same(c.get(), get_matrix(back.get(), "c").get());
    EXPECT_EQ(tartan_file_has_gates(back.get(), "a"), 1);
    char *text = nullptr;
    ASSERT_OK(tartan_file_get_metadata(back.get(), TARTAN_KIND_LAYOUT, "pattern", &text));
    EXPECT_STREQ(text, "{\"by\":\"test\"}");
    tartan_text_free(text);
}

TEST(Save, RemovedLayoutOfAMatrixStaysUnnamed) {
    Folder folder;
    const std::string path = folder / "implicit.h5";
    write_sample(path, 1);
    File file = open_file(path);
    Matrix a = get_matrix(file.get(), "a");
    ASSERT_OK(tartan_file_remove(file.get(), TARTAN_KIND_LAYOUT, "pattern"));
    ASSERT_OK(tartan_file_save(file.get(), path.c_str(), 0));
    File back = open_file(path);
    EXPECT_EQ(tartan_file_count(back.get()), 5);
    EXPECT_EQ(tartan_file_kind(back.get(), 0), TARTAN_KIND_MATRIX);
    Matrix again = get_matrix(back.get(), "a"), b = get_matrix(back.get(), "b");
    expect_same(a.get(), again.get());
    EXPECT_EQ(layout_of(again.get()), layout_of(b.get())) << "shared in memory";
    EXPECT_STREQ(tartan_file_layout_identity(back.get(), 0), tartan_file_layout_identity(back.get(), 1));
}

TEST(Save, ImplicitLayoutGivesWayToNamesOfTheUser) {
    Folder folder;
    Layout one = random_layout({8, 8, 4, 4, 1}, 1, 1), two = random_layout({8, 8, 2, 2, 1}, 1, 1);
    Layout three = random_layout({8, 8, 8, 8, 1}, 1, 1);
    Matrix matrix = random_matrix(one.get(), TARTAN_F64, 0, 1);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "w", matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_put_layout(file.get(), "w", two.get(), nullptr));
    ASSERT_OK(tartan_file_put_layout(file.get(), tartan_layout_identity(one.get()), three.get(), nullptr));
    ASSERT_OK(tartan_file_save(file.get(), (folder / "w.h5").c_str(), 0));
    File back = open_file(folder / "w.h5");
    EXPECT_EQ(tartan_file_count(back.get()), 3);
    EXPECT_EQ(tartan_layout_equal(get_layout(back.get(), "w").get(), two.get()), 1);
    expect_same(matrix.get(), get_matrix(back.get(), "w").get());
}

TEST(Save, AwkwardNamesAndLongTextsComeBack) {
    Folder folder;
    Layout layout = random_layout({8, 8, 4, 4, 1}, 0.7, 1);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F32, 0, 2);
    const std::string names[] = {"100%b",
                                 "%%",
                                 "a b",
                                 "...",
                                 "größe",
                                 "重み",
                                 std::string(255, 'x'),
                                 "\"q\"",
                                 "/",
                                 "a/b",
                                 "a%2Fb",
                                 "a.b", // in this order of bytes, but "a%2Fb" is where "a/b" is in the file
                                 std::string(255, '/')};
    const std::string longer = '"' + std::string(200000, 'j') + '"';
    File file = new_file();
    for (const std::string &name : names)
        ASSERT_OK(tartan_file_put_matrix(file.get(), name.c_str(), matrix.get(), nullptr, longer.c_str()));
    ASSERT_OK(tartan_file_put_layout(file.get(), "l", layout.get(), longer.c_str()));
    ASSERT_OK(tartan_file_save(file.get(), (folder / "names.h5").c_str(), 0));
    File back = open_file(folder / "names.h5");
    for (size_t i = 0; i < std::size(names); i++)
        EXPECT_EQ(tartan_file_name(back.get(), (int64_t)i), names[i]);
    for (const std::string &name : names) {
        char *text = nullptr;
        expect_same(matrix.get(), get_matrix(back.get(), name).get());
        ASSERT_OK(tartan_file_get_metadata(back.get(), TARTAN_KIND_MATRIX, name.c_str(), &text));
        EXPECT_EQ(longer, text);
        tartan_text_free(text);
    }
}

// The order of "a%252Fb" and "a%2Fb" in the file is not the order of "a%2Fb", "a.b" and "a/b".
TEST(Save, LayoutsOfNamesWithSlashesAreFound) {
    Folder folder;
    File file = new_file();
    std::vector<Matrix> matrices;
    const char *names[] = {"a%2Fb", "a.b", "a/b", "a0"};
    for (const char *name : names) {
        Layout layout = random_layout({8, 8, 2, 2, 1}, 0.5, matrices.size() + 1);
        matrices.push_back(random_matrix(layout.get(), TARTAN_F32, 0, 2));
        ASSERT_OK(tartan_file_put_matrix(file.get(), name, matrices.back().get(), nullptr, nullptr));
    }
    ASSERT_OK(tartan_file_save(file.get(), (folder / "slash.h5").c_str(), 0));
    File back = open_file(folder / "slash.h5");
    for (size_t i = 0; i < matrices.size(); i++)
        expect_same(matrices[i].get(), get_matrix(back.get(), names[i]).get());
}

// Layouts and matrices by their thousands: some seconds if each were compared with all others.
TEST(Save, ManyObjects) {
    enum { MANY = 2000 };
    Folder folder;
    File file = new_file();
    std::vector<Matrix> matrices;
    for (int i = 0; i < MANY; i++) {
        std::vector<uint8_t> mask(16);
        for (int bit = 0; bit < 16; bit++) mask[bit] = (i + 1) >> bit & 1;
        Layout layout = from_mask({8, 8, 2, 2, 1}, mask);
        matrices.push_back(random_matrix(layout.get(), TARTAN_F32, 0, i));
        const std::string name = "m" + std::to_string(i);
        ASSERT_OK(tartan_file_put_matrix(file.get(), name.c_str(), matrices.back().get(), nullptr, nullptr));
        if (i % 2 == 0) { // every second layout has a name of its own
            ASSERT_OK(tartan_file_put_layout(file.get(), ("l" + name).c_str(), layout.get(), nullptr));
        }
    }
    ASSERT_OK(tartan_file_save(file.get(), (folder / "many.h5").c_str(), 0));
    File back = open_file(folder / "many.h5");
    EXPECT_EQ(tartan_file_count(back.get()), MANY + MANY / 2);
    for (int i = 0; i < MANY; i += 97)
        expect_same(matrices[i].get(), get_matrix(back.get(), "m" + std::to_string(i)).get());
    // A short index list lies with its attributes; in chunks each would take an index of 2 KiB.
    EXPECT_LT(std::filesystem::file_size(folder / "many.h5"), (uintmax_t)MANY * 3000);
}

// A small matrix takes some hundred bytes beside its values.
TEST(Save, SmallMatricesAreSmall) {
    Folder folder;
    File file = new_file();
    std::vector<Matrix> matrices;
    Layout layout = random_layout({4, 4, 2, 2, 1}, 1, 1);
    for (int i = 0; i < 500; i++) {
        matrices.push_back(random_matrix(layout.get(), TARTAN_F64, i % 2, i));
        ASSERT_OK(tartan_file_put_matrix(file.get(), ("m" + std::to_string(i)).c_str(), matrices.back().get(),
                                         nullptr, nullptr));
    }
    ASSERT_OK(tartan_file_save(file.get(), (folder / "small.h5").c_str(), 0));
    EXPECT_LT(std::filesystem::file_size(folder / "small.h5"), 300000u);
    File back = open_file(folder / "small.h5");
    for (int i = 0; i < 500; i += 49)
        expect_same(matrices[i].get(), get_matrix(back.get(), "m" + std::to_string(i)).get());
}

// A copy without the seal: then the checksums of the chunks tell.
TEST(Save, ChecksumsOfChunksAreComparedWithoutASeal) {
    Folder folder;
    Layout layout =
        random_layout({600, 500, 50, 50, 1}, 0.9, 5); // some 2 MB: two chunks, the last of which is not full
    Matrix matrix = random_matrix(layout.get(), TARTAN_F64, 0, 1);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_save(file.get(), (folder / "m.h5").c_str(), 0));
    const Bytes sealed = read_bytes(folder / "m.h5");
    const Bytes plain(sealed.begin() + TARTAN_I_SEAL_BYTES, sealed.end());
    write_bytes(folder / "copy.h5", plain);
    expect_same(matrix.get(), get_matrix(open_file(folder / "copy.h5").get(), "m").get());
    const auto *values = static_cast<const unsigned char *>(values_of(matrix.get()).data);
    const int64_t last = tartan_layout_blocks(layout.get()) - 1;
    for (int64_t block : {(int64_t)0, last}) {
        const auto at =
            std::search(plain.begin(), plain.end(), values + block * 20000, values + block * 20000 + 64);
        ASSERT_NE(at, plain.end());
        Bytes damaged = plain;
        damaged[(size_t)(at - plain.begin())] ^= 1;
        write_bytes(folder / "copy.h5", damaged);
        File back = open_file(folder / "copy.h5");
        tartan_matrix *out = nullptr;
        EXPECT_FAILS(FORMAT, "checksum", tartan_file_get_matrix(back.get(), "m", &out));
    }
}

TEST(Save, Refusals) {
    Folder folder;
    File file = new_file();
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_save(nullptr, "x", 0));
    EXPECT_FAILS(HANDLE, "path is NULL", tartan_file_save(file.get(), nullptr, 0));
    EXPECT_FAILS(ARGUMENT, "compression is 2", tartan_file_save(file.get(), (folder / "x").c_str(), 2));
    EXPECT_FAILS(FILE, "No such file", tartan_file_save(file.get(), (folder / "no/x.h5").c_str(), 0));
    EXPECT_FAILS(FILE, "is a directory", tartan_file_save(file.get(), (folder / ".").c_str(), 0));
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_FAILS(FILE, "a device or a pipe", tartan_file_save(file.get(), (folder / "pipe").c_str(), 0));
    EXPECT_EQ(folder.names(), std::vector<std::string>{"pipe"});
}

// Different collections in different threads: HDF5 itself is entered by one at a time.
TEST(Save, ThreadsDoNotMeet) {
    Folder folder;
    std::vector<std::thread> threads;
    std::atomic<int> failures = 0;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            const std::string path = folder / ("thread" + std::to_string(t) + ".h5");
            for (uint64_t round = 0; round < 15; round++) {
                write_sample(path, round, (int32_t)round % 2);
                if (tartan_file_verify(path.c_str(), nullptr) != TARTAN_OK) failures++;
                if (tartan_file_verify((path + "-missing").c_str(), nullptr) != TARTAN_ERR_FILE) failures++;
            }
        });
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
}

TEST(Save, VerifyReports) {
    Folder folder;
    write_sample(folder / "v.h5", 3);
    char *text = nullptr;
    ASSERT_OK(tartan_file_verify((folder / "v.h5").c_str(), &text));
    const std::string report = text;
    tartan_text_free(text);
    for (const char *part :
         {"seal: ok\n", "layout \"pattern\": 40 x 39, blocks 4 x 4, heads 1", "matrix \"a\": float32",
          "gates", "matrix \"b\": bfloat16, block order F", "matrix \"c\": float64", "matrix \"d\": float32",
          "array \"e\": float64, shape ["})
        EXPECT_NE(report.find(part), report.npos) << report;
    EXPECT_FAILS(HANDLE, "path is NULL", tartan_file_verify(nullptr, nullptr));
    EXPECT_FAILS(FILE, "No such file", tartan_file_verify((folder / "no.h5").c_str(), &text));
    EXPECT_EQ(text, nullptr);
    BRUTAL(tartan_file_verify((folder / "v.h5").c_str(), &text), tartan_text_free(text));
}

} // namespace
