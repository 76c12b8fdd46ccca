// SPDX-License-Identifier: Apache-2.0
// Damage is found before HDF5 parses anything; files that are not ours are told apart.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "io_support.h"

using namespace tartan_test;

namespace {

// Reads all of a file, as damage is found where it is read.
tartan_status verify_all(const std::string &path) {
    return tartan_file_verify(path.c_str(), nullptr);
}

tartan_status open_only(const std::string &path) {
    tartan_file *file = nullptr;
    const tartan_status status = tartan_file_open(path.c_str(), &file);
    EXPECT_EQ(file != nullptr, status == TARTAN_OK);
    tartan_file_free(file);
    return status;
}

// 1 to 8 bytes anywhere, each to another value. None may get through: every byte is covered.
TEST(Seal, FindsEveryMutation) {
    Folder folder;
    const std::string path = folder / "m.h5";
    for (int32_t keep : {TARTAN_KEEP_PLAIN, TARTAN_KEEP_COMPRESSED}) {
        write_sample(path, 1, keep);
        const Bytes good = read_bytes(path);
        ASSERT_OK(verify_all(path));
        std::mt19937 random(keep + 1);
        for (int i = 0; i < rounds(1250); i++) {
            Bytes bad = good;
            // A quarter of the cases aims at the seal itself, which is a small part of the file.
            const size_t range = i % 4 == 0 ? (size_t)TARTAN_I_SEAL_BYTES : bad.size();
            for (unsigned n = 0; n <= (i % 2 == 0 ? 0 : random() % 8); n++) {
                const size_t at = random() % range;
                bad[at] = (unsigned char)(good[at] ^ (1 + random() % 255));
            }
            write_bytes(path, bad);
            const tartan_status status = verify_all(path);
            ASSERT_TRUE(status == TARTAN_ERR_FORMAT || status == TARTAN_ERR_VERSION) << "mutation " << i;
            ASSERT_NE(std::string(tartan_last_error()).find(path), std::string::npos);
        }
    }
}

// A file of several pages, one byte changed in each of them and beside each of their borders.
TEST(Seal, FindsEveryDamagedPage) {
    Folder folder;
    const std::string path = folder / "p.h5";
    Layout layout = random_layout({1000, 1000, 50, 50, 1}, 1, 1); // 4 MB
    Matrix matrix = random_matrix(layout.get(), TARTAN_F32, 0, 1);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_save(file.get(), path.c_str(), 0));
    const Bytes good = read_bytes(path);
    ASSERT_GT(good.size(), 3u << 20);
    const auto refused = [&](size_t at) {
        Bytes bad = good;
        bad[at] ^= 0x04;
        write_bytes(path, bad);
        EXPECT_FAILS(FORMAT, "its bytes do not match its seal", verify_all(path));
    };
    for (size_t page = TARTAN_I_SEAL_BYTES; page < good.size(); page += TARTAN_I_PAGE_BYTES) {
        refused(page);
        if (page > TARTAN_I_SEAL_BYTES) refused(page - 1);
        refused(std::min(page + 12345, good.size() - 1));
    }
    Bytes bad = good; // two whole pages exchanged
    std::swap_ranges(bad.begin() + TARTAN_I_SEAL_BYTES,
                     bad.begin() + TARTAN_I_SEAL_BYTES + TARTAN_I_PAGE_BYTES,
                     bad.begin() + TARTAN_I_SEAL_BYTES + TARTAN_I_PAGE_BYTES);
    write_bytes(path, bad);
    EXPECT_FAILS(FORMAT, "its bytes do not match its seal", verify_all(path));
}

// What is undamaged is read; what is damaged is found when it is read, and again when it is read again.
TEST(Seal, DamageIsFoundWhereItIsRead) {
    Folder folder;
    const std::string path = folder / "two.h5";
    Layout layout = random_layout({1000, 1000, 50, 50, 1}, 1, 1); // 4 MB each
    Matrix a = random_matrix(layout.get(), TARTAN_F32, 0, 1),
           b = random_matrix(layout.get(), TARTAN_F32, 0, 2);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "a", a.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "b", b.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_save(file.get(), path.c_str(), 0));
    Bytes bytes = read_bytes(path);
    const tartan_array values = values_of(b.get());
    const auto *wanted = static_cast<const unsigned char *>(values.data) + 2000000;
    const auto at = std::search(bytes.begin(), bytes.end(), wanted, wanted + 64);
    ASSERT_NE(at, bytes.end());
    *at ^= 1;
    write_bytes(path, bytes);
    File back = open_file(path);
    tartan_matrix *out = nullptr;
    for (int i = 0; i < 2; i++) {
        expect_same(a.get(), get_matrix(back.get(), "a").get());
        EXPECT_FAILS(FORMAT, "its bytes do not match its seal",
                     tartan_file_get_matrix(back.get(), "b", &out));
    }
}

TEST(Seal, FindsTruncationAndGrowth) {
    Folder folder;
    const std::string path = folder / "t.h5";
    write_sample(path, 1);
    const Bytes good = read_bytes(path);
    for (size_t length = 0; length < good.size(); length += 97 * (size_t)share) {
        write_bytes(path, Bytes(good.begin(), good.begin() + (long)length));
        EXPECT_FAILS(FORMAT, path, open_only(path));
    }
    write_bytes(path, Bytes(good.begin(), good.end() - 1));
    EXPECT_FAILS(FORMAT, "truncated: it has", open_only(path));
    Bytes longer = good;
    longer.push_back(0);
    write_bytes(path, longer);
    EXPECT_FAILS(FORMAT, "damaged: it has", open_only(path));
}

TEST(Seal, NewerSealIsNamed) {
    Folder folder;
    const std::string path = folder / "n.h5";
    write_sample(path, 1);
    Bytes bytes = read_bytes(path);
    bytes[16] = 4;
    write_bytes(path, bytes);
    EXPECT_FAILS(VERSION, "of version 4, this library knows version 3", open_only(path));
}

// Version 1 was never released.
TEST(Seal, LowerVersionsAreRefused) {
    Folder folder;
    const std::string path = folder / "z.h5";
    write_sample(path, 1);
    Bytes bytes = read_bytes(path);
    for (unsigned char version : {0, 1}) {
        bytes[16] = version;
        write_bytes(path, bytes);
        EXPECT_FAILS(FORMAT, "damaged: its seal is of version " + std::to_string(version), open_only(path));
    }
}

// Each byte of the seal counts, and each that it covers.
TEST(Seal, EveryPartIsCompared) {
    Folder folder;
    const std::string path = folder / "p.h5";
    write_sample(path, 1);
    const Bytes good = read_bytes(path);
    const auto refused = [&](size_t at, const char *why) {
        Bytes bad = good;
        bad[at] ^= 0x10;
        write_bytes(path, bad);
        EXPECT_FAILS(FORMAT, why, verify_all(path));
    };
    for (size_t at = 17; at < 512; at++) {
        if (at >= 20) refused(at, "its seal does not match itself");
    }
    for (size_t at : {(size_t)512, (size_t)1000, good.size() - 1}) // of HDF5 and of the list of pages
        refused(at, "its bytes do not match its seal");
}

// A seal that is right in itself, of a file whose parts are elsewhere.
TEST(Seal, PartsMustFitTheFile) {
    Folder folder;
    const std::string path = folder / "f.h5";
    write_sample(path, 1);
    const Bytes good = read_bytes(path);
    tartan_i_seal seal;
    int fd;
    ASSERT_OK(tartan_i_seal_open("f", path.c_str(), false, &fd, &seal));
    close(fd);
    const int64_t most = INT64_MAX, least = INT64_MIN;
    for (int64_t tartan_i_seal::*part :
         {&tartan_i_seal::end, &tartan_i_seal::journal_bytes, &tartan_i_seal::length})
        for (int64_t value :
             {most, least, (int64_t)-1, (int64_t)0, (int64_t)511, seal.*part + 16, seal.*part - 16})
            for (bool growing : {false, true}) {
                if (value == seal.*part) continue;
                tartan_i_seal other = seal;
                other.*part = value;
                other.growing = growing;
                Bytes bad = good;
                tartan_i_seal_make(&other, bad.data());
                write_bytes(path, bad);
                EXPECT_EQ(verify_all(path), TARTAN_ERR_FORMAT) << value << " " << growing;
            }
}

TEST(Seal, LostMagicDoesNotSwitchItOff) {
    Folder folder;
    const std::string path = folder / "l.h5";
    write_sample(path, 1);
    Bytes bytes = read_bytes(path);
    bytes[0] ^= 1;
    write_bytes(path, bytes);
    EXPECT_FAILS(FORMAT, "its user block is not a seal", open_only(path));
}

TEST(Seal, SealedFileOpensWithoutIt) {
    Folder folder;
    write_sample(folder / "s.h5", 1);
    strip_seal(folder / "s.h5", folder / "foreign.h5");
    File sealed = open_file(folder / "s.h5"), foreign = open_file(folder / "foreign.h5");
    EXPECT_EQ(tartan_file_sealed(sealed.get()), 1);
    EXPECT_EQ(tartan_file_sealed(foreign.get()), 0);
    for (const char *name : {"a", "b", "c"})
        expect_same(get_matrix(sealed.get(), name).get(), get_matrix(foreign.get(), name).get());
    char *text = nullptr;
    ASSERT_OK(tartan_file_verify((folder / "foreign.h5").c_str(), &text));
    EXPECT_NE(std::string(text).find("seal: none"), std::string::npos);
    tartan_text_free(text);
}

TEST(Seal, WhatIsNotAFileOfOurs) {
    Folder folder;
    EXPECT_FAILS(FILE, "No such file or directory", open_only(folder / "missing.h5"));
    EXPECT_FAILS(FILE, "is a directory", open_only(folder / "."));
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_FAILS(FILE, "a device or a pipe", open_only(folder / "pipe"));
    write_bytes(folder / "empty.h5", {});
    EXPECT_FAILS(FORMAT, "is empty (0 bytes)", open_only(folder / "empty.h5"));
    write_bytes(folder / "text.h5", Bytes(2000, 'x'));
    EXPECT_FAILS(FORMAT, "is not an HDF5 file", open_only(folder / "text.h5"));
    write_bytes(folder / "short.h5", {'h', 'i'});
    EXPECT_FAILS(FORMAT, "is not an HDF5 file", open_only(folder / "short.h5"));
    write_bytes(folder / "signature.h5", {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'});
    EXPECT_FAILS(FORMAT, "cannot be read as HDF5", open_only(folder / "signature.h5"));
    if (geteuid() != 0) {
        write_bytes(folder / "closed.h5", {1});
        ASSERT_EQ(chmod((folder / "closed.h5").c_str(), 0), 0);
        EXPECT_FAILS(FILE, "Permission denied", open_only(folder / "closed.h5"));
    }
}

TEST(Seal, OpenFileSurvivesReplacementAndRemoval) {
    Folder folder;
    write_sample(folder / "r.h5", 1);
    File file = open_file(folder / "r.h5");
    File again = open_file(folder / "r.h5");
    Matrix a = get_matrix(again.get(), "a");
    write_sample(folder / "r.h5", 2);
    std::filesystem::remove(folder / "r.h5");
    expect_same(a.get(), get_matrix(file.get(), "a").get());
}

} // namespace
