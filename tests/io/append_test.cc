// SPDX-License-Identifier: Apache-2.0
// Adding objects to a file. That a killed process and a failing disk do no harm is in disk_test.cc.
#include <fcntl.h>
#include <hdf5.h>
#include <sys/file.h>
#include <unistd.h>

#include "io_support.h"

using namespace tartan_test;

namespace {

class Append : public testing::Test {
  protected:
    Folder folder;
    std::string path = folder / "a.h5";

    static tartan_status append(tartan_file *file, const std::string &where,
                                int32_t keep = TARTAN_KEEP_PLAIN) {
        return tartan_file_append(file, where.c_str(), keep);
    }
    static std::vector<std::string> names(const std::string &where) {
        std::vector<std::string> all;
        File file = open_file(where);
        for (int64_t i = 0; i < tartan_file_count(file.get()); i++)
            all.push_back(tartan_file_name(file.get(), i));
        return all;
    }
    // One matrix of some blocks.
    Matrix matrix(uint64_t seed, int64_t size = 64) {
        Layout layout = random_layout({size, size, 8, 8, 1}, 0.5, seed);
        return random_matrix(layout.get(), TARTAN_F64, TARTAN_ROW_MAJOR, seed);
    }
};

TEST_F(Append, AddsBehindAndReplacesInPlace) {
    write_sample(path, 1);
    Matrix n = matrix(7), a = matrix(8), small = matrix(9, 9);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "n", n.get(), nullptr, "[7]"));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "a", a.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_put_layout(file.get(), "last", layout_of(n.get()).get(), "[8]"));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "e", small.get(), nullptr, nullptr)); // where an array was
    Matrix b, c;
    {
        File before = open_file(path);
        b = get_matrix(before.get(), "b");
        c = get_matrix(before.get(), "c");
    }
    for (int round = 0; round < 3; round++) { // replaces what it added itself
        ASSERT_OK(append(file.get(), path, round % 2));
        ASSERT_OK(tartan_file_verify(path.c_str(), nullptr));
        EXPECT_EQ(names(path), (std::vector<std::string>{"pattern", "a", "b", "c", "d", "e", "n", "last"}));
        File back = open_file(path);
        EXPECT_EQ(tartan_file_sealed(back.get()), 1);
        expect_same(n.get(), get_matrix(back.get(), "n").get());
        expect_same(a.get(), get_matrix(back.get(), "a").get());
        expect_same(small.get(), get_matrix(back.get(), "e").get());
        expect_same(b.get(), get_matrix(back.get(), "b").get());
        expect_same(c.get(), get_matrix(back.get(), "c").get());
        EXPECT_EQ(tartan_file_has_gates(back.get(), "a"), 0);
        char *text = nullptr;
        ASSERT_OK(tartan_file_get_metadata(back.get(), TARTAN_KIND_LAYOUT, "last", &text));
        EXPECT_STREQ(text, "[8]");
        tartan_text_free(text);
        Matrix again = get_matrix(back.get(), "n");
        EXPECT_EQ(layout_of(again.get()).get(), get_layout(back.get(), "last").get()) << "shared";
    }
}

// Other programs see the new objects, too: the journal is gone.
TEST_F(Append, OtherProgramsReadTheResult) {
    write_sample(path, 1);
    Matrix n = matrix(7);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "n", n.get(), nullptr, nullptr));
    ASSERT_OK(append(file.get(), path));
    hid_t h = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    ASSERT_GE(h, 0);
    hid_t dataset = H5Dopen2(h, "/tensors/n/blocks", H5P_DEFAULT);
    const tartan_array values = values_of(n.get());
    std::vector<double> read((size_t)(values.shape[0] * 64));
    EXPECT_GE(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.data()), 0);
    EXPECT_EQ(std::memcmp(read.data(), values.data, read.size() * sizeof(double)), 0);
    H5Dclose(dataset), H5Fclose(h);
}

// An equal layout of the file is shared, whether it has a name or not.
TEST_F(Append, EqualLayoutsAreStoredOnce) {
    Layout layout = random_layout({512, 512, 2, 2, 1}, 0.5, 1); // lists of 128 KiB
    Matrix first = random_matrix(layout.get(), TARTAN_F8E4M3, TARTAN_ROW_MAJOR, 1);
    for (bool named : {false, true}) {
        File file = new_file();
        if (named) {
            ASSERT_OK(tartan_file_put_layout(file.get(), "p", layout.get(), nullptr));
        }
        ASSERT_OK(tartan_file_put_matrix(file.get(), "one", first.get(), nullptr, nullptr));
        ASSERT_OK(tartan_file_save(file.get(), path.c_str(), 0));
        const uintmax_t size = std::filesystem::file_size(path);
        File more = new_file();
        ASSERT_OK(tartan_file_put_matrix(more.get(), "two", first.get(), nullptr, nullptr));
        ASSERT_OK(append(more.get(), path));
        const uintmax_t values = 4u * (uintmax_t)tartan_layout_blocks(layout.get());
        EXPECT_LT(std::filesystem::file_size(path), size + values + 30000) << named;
        File back = open_file(path);
        Matrix one = get_matrix(back.get(), "one"), two = get_matrix(back.get(), "two");
        EXPECT_EQ(layout_of(one.get()).get(), layout_of(two.get()).get());
    }
}

// A file that grew by replacing is written anew before it is twice as long as what it holds.
TEST_F(Append, ReplacingAgainAndAgainTakesBoundedRoom) {
    Layout layout = random_layout({512, 512, 64, 64, 1}, 1, 1); // 2 MiB
    uintmax_t most = 0;
    for (uint64_t i = 0; i < 12; i++) {
        Matrix m = random_matrix(layout.get(), TARTAN_F64, 0, i);
        File file = new_file();
        ASSERT_OK(tartan_file_put_matrix(file.get(), "m", m.get(), nullptr, nullptr));
        ASSERT_OK(append(file.get(), path));
        most = std::max(most, std::filesystem::file_size(path));
        expect_same(m.get(), get_matrix(open_file(path).get(), "m").get());
    }
    EXPECT_LT(most, 9u << 20);
    EXPECT_OK(tartan_file_verify(path.c_str(), nullptr));
}

// Matrices that use a layout keep it when another one takes its name.
TEST_F(Append, ReplacedLayoutStaysWithItsMatrices) {
    write_sample(path, 1);
    File before = open_file(path);
    Matrix a = get_matrix(before.get(), "a");
    Layout other = random_layout({8, 8, 2, 2, 1}, 1, 1);
    File file = new_file();
    ASSERT_OK(tartan_file_put_layout(file.get(), "pattern", other.get(), nullptr));
    ASSERT_OK(append(file.get(), path));
    File back = open_file(path);
    expect_same(a.get(), get_matrix(back.get(), "a").get());
    EXPECT_EQ(tartan_layout_equal(get_layout(back.get(), "pattern").get(), other.get()), 1);
    EXPECT_EQ(names(path).front(), "pattern");
}

TEST_F(Append, WhereThereIsNothingItSaves) {
    Matrix m = matrix(1);
    File file = new_file(), none = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", m.get(), nullptr, nullptr));
    ASSERT_OK(append(file.get(), path));
    expect_same(m.get(), get_matrix(open_file(path).get(), "m").get());
    const Bytes bytes = read_bytes(path);
    ASSERT_OK(append(none.get(), path));
    EXPECT_EQ(read_bytes(path), bytes);
}

// From one file to another, with all that lies with an object.
TEST_F(Append, AddsWhatWasOpened) {
    write_sample(path, 1);
    write_sample(folder / "other.h5", 2);
    const Contents wanted = content(path);
    File source = open_file(path);
    ASSERT_OK(append(source.get(), folder / "other.h5"));
    EXPECT_EQ(content(folder / "other.h5"), wanted);
    EXPECT_OK(tartan_file_verify((folder / "other.h5").c_str(), nullptr));
}

// A file with an older seal is written anew, with the objects in their old order.
TEST_F(Append, OldFilesAreWrittenAnew) {
    std::filesystem::copy_file(TARTAN_DATA "/golden/v1/plain.h5", path);
    std::filesystem::permissions(path, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
    std::vector<std::string> wanted = names(path);
    Contents all = content(path);
    Matrix m = matrix(1);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", m.get(), nullptr, nullptr));
    ASSERT_OK(append(file.get(), path));
    wanted.push_back("m");
    EXPECT_EQ(names(path), wanted);
    Contents now = content(path);
    now.erase("matrix m");
    EXPECT_EQ(now, all);
}

TEST_F(Append, Refusals) {
    File file = new_file();
    Matrix m = matrix(1);
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", m.get(), nullptr, nullptr));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_append(nullptr, "x", 0));
    EXPECT_FAILS(HANDLE, "path is NULL", tartan_file_append(file.get(), nullptr, 0));
    EXPECT_FAILS(ARGUMENT, "compression is 2", append(file.get(), path, 2));
    EXPECT_FAILS(FILE, "No such file", append(file.get(), folder / "no/x.h5"));
    EXPECT_FAILS(FILE, "Is a directory", append(file.get(), folder / "."));
    write_sample(folder / "s.h5", 1);
    strip_seal(folder / "s.h5", path);
    const Bytes bytes = read_bytes(path);
    EXPECT_FAILS(UNSUPPORTED, "has no seal", append(file.get(), path));
    EXPECT_EQ(read_bytes(path), bytes);
    const int fd = open((folder / "s.h5").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(flock(fd, LOCK_EX), 0);
    EXPECT_FAILS(FILE, "another process is adding", append(file.get(), folder / "s.h5"));
    close(fd);
    EXPECT_OK(append(file.get(), folder / "s.h5"));
}

// Damage of what is there is not sealed over.
TEST_F(Append, DamagedFilesAreRefused) {
    write_sample(path, 1);
    Matrix m = matrix(1);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", m.get(), nullptr, nullptr));
    Bytes bytes = read_bytes(path);
    bytes[bytes.size() / 2] ^= 1;
    write_bytes(path, bytes);
    EXPECT_FAILS(FORMAT, "do not match its seal", append(file.get(), path));
    EXPECT_EQ(read_bytes(path), bytes);
}

// A collection that was opened before sees all of the old file or an error.
TEST_F(Append, OpenCollectionsNeverMix) {
    write_sample(path, 1);
    const Contents old = content(path);
    File before = open_file(path);
    Matrix m = matrix(1), a = get_matrix(open_file(path).get(), "a");
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "a", m.get(), nullptr, nullptr));
    ASSERT_OK(append(file.get(), path));
    tartan_matrix *out = nullptr;
    const tartan_status status = tartan_file_get_matrix(before.get(), "a", &out);
    if (status == TARTAN_OK) {
        Matrix owner(out);
        expect_same(a.get(), out);
    } else {
        EXPECT_EQ(status, TARTAN_ERR_FILE);
        EXPECT_NE(std::string(tartan_last_error()).find("was changed since it was opened"),
                  std::string::npos);
    }
}

// Random additions beside a model: the file has what was put last, in the order of first puts.
TEST_F(Append, RandomAdditionsLaw) {
    std::mt19937 random(1);
    std::map<std::string, Bytes> model;
    std::vector<std::string> order;
    for (int i = 0; i < rounds(80); i++) {
        File file = new_file();
        for (unsigned n = 0; n <= random() % 4; n++) {
            std::string name = "/";
            name += (char)('a' + random() % 12);
            Bytes bytes(random() % 3 == 0 ? random() % 3000000 : random() % 2000);
            for (unsigned char &byte : bytes) byte = (unsigned char)random();
            const int64_t size = (int64_t)bytes.size();
            tartan_array array;
            ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_U8, 1, &size, nullptr, &array));
            ASSERT_OK(tartan_file_put_array(file.get(), name.c_str(), &array, 0, nullptr));
            if (model.count(name) == 0) order.push_back(name);
            model[name] = bytes;
        }
        ASSERT_OK(append(file.get(), path, (int32_t)(random() % 2)));
        ASSERT_EQ(names(path), order) << i;
        File back = open_file(path);
        for (const auto &[name, bytes] : model)
            ASSERT_EQ(get_array(back.get(), name), bytes) << i << " " << name;
    }
    EXPECT_OK(tartan_file_verify(path.c_str(), nullptr));
}

TEST_F(Append, SurvivesEveryFailedAllocation) {
    write_sample(path, 1);
    const Bytes before = read_bytes(path);
    const Contents old = content(path);
    Matrix m = matrix(1);
    File file = new_file();
    ASSERT_OK(tartan_file_put_layout(file.get(), "l", layout_of(m.get()).get(), "{}"));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", m.get(), nullptr, "{}"));
    auto add = [&] {
        write_bytes(path, before);
        const tartan_status status = append(file.get(), path);
        const int64_t asked = tartan_i_memory_asked();
        if (status != TARTAN_OK) {
            EXPECT_GE(asked, 0);
        }
        return status;
    };
    BRUTAL(add(), );
    std::filesystem::copy_file(TARTAN_DATA "/golden/v1/compressed.h5", folder / "old.h5");
    const Bytes golden = read_bytes(folder / "old.h5");
    std::filesystem::remove(folder / "old.h5");
    auto rewrite = [&] {
        write_bytes(folder / "new.h5", golden);
        return append(file.get(), folder / "new.h5");
    };
    BRUTAL(rewrite(), );
}

} // namespace
