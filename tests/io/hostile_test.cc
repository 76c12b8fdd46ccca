// SPDX-License-Identifier: Apache-2.0
// Files without a seal, changed at random. HDF5's own parser may crash on them; our code must never crash or hang, and
// changes of structure must not pass as other numbers. The properties of the test are the figures in docs/file_format.md.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_support.h"

using namespace tartan_test;

namespace {

enum {
    READ_ALIKE = 0,
    REFUSED = 1,
    READ_FEWER = 2,
    READ_WRONG = 3,
    HUNG_IN_HDF5 = 76,
    DIED_IN_HDF5 = 77,
    DIED_IN_OURS = 78
};

// Whose fault: the innermost frame that is not the C library's. Frame 0 is this handler.
void blame(int number) {
    void *frames[64];
    const int count = backtrace(frames, 64);
    Dl_info self, info;
    dladdr((void *)&blame, &self);
    for (int i = 1; i < count; i++) {
        if (!dladdr(frames[i], &info) || info.dli_fname == nullptr) continue;
        const std::string name = info.dli_fname;
        if (name.find("libhdf5") != name.npos || name.find("libz.") != name.npos)
            _exit(number == SIGXCPU ? HUNG_IN_HDF5 : DIED_IN_HDF5);
        if (info.dli_fbase == self.dli_fbase) _exit(DIED_IN_OURS);
    }
    _exit(DIED_IN_OURS);
}

// Reads all of it in a child that may die.
int read_in_child(const std::string &path, const Contents &expected) {
    const pid_t child = fork();
    if (child == 0) {
        for (int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU}) signal(number, blame);
        const rlimit seconds = {2, 4};
        setrlimit(RLIMIT_CPU, &seconds); // HDF5 may go round in circles, too
#ifndef __SANITIZE_ADDRESS__             // the sanitizer takes terabytes of addresses
        const rlimit room = {rlim_t(4) << 30, rlim_t(4) << 30};
        setrlimit(RLIMIT_AS, &room);
#endif
        const tartan_status status = tartan_file_verify(path.c_str(), nullptr);
        if (status == TARTAN_ERR_INTERNAL) _exit(DIED_IN_OURS);
        if (status != TARTAN_OK) _exit(REFUSED);
        const auto found = content(path);
        for (const auto &[name, bytes] : found) {
            const auto wanted = expected.find(name);
            if (wanted == expected.end() || wanted->second != bytes) _exit(READ_WRONG);
        }
        _exit(found.size() == expected.size() ? READ_ALIKE : READ_FEWER);
    }
    int how = 0;
    waitpid(child, &how, 0);
    return how;
}

// Changes a few bytes, inserts or removes some, or clears a range or a page.
Bytes spoil(const Bytes &good, int kind, std::mt19937 &random) {
    Bytes bad = good;
    const size_t at = random() % good.size(), size = 1 + random() % 64;
    switch (kind) {
    case 0:
        for (unsigned n = 0; n <= random() % 4; n++) bad[random() % bad.size()] = (unsigned char)random();
        break;
    case 1:
        bad.insert(bad.begin() + (long)at, size, (unsigned char)random());
        break;
    case 2:
        bad.erase(bad.begin() + (long)at, bad.begin() + (long)std::min(at + size, bad.size()));
        break;
    case 3: // moves what lies between two places
        bad.insert(bad.begin() + (long)at, size, 0);
        bad.erase(bad.begin() + (long)(random() % good.size()), bad.begin() + (long)good.size());
        bad.resize(good.size());
        break;
    case 4:
        std::fill(bad.begin() + (long)at, bad.begin() + (long)std::min(at + size, bad.size()), 0);
        break;
    default:
        const size_t page = at / 4096 * 4096;
        std::fill(bad.begin() + (long)page, bad.begin() + (long)std::min(page + 4096, bad.size()), 0);
    }
    return bad;
}

struct Counts {
    int alike = 0, refused = 0, fewer = 0, wrong = 0, hung_in_hdf5 = 0, died_in_hdf5 = 0;
};

// Changes an unsealed file `count` times at random and counts what becomes of each.
void spoil_and_count(const std::string &path, unsigned seed, int count, Counts &counts) {
    void *warm[2];
    backtrace(warm, 2); // loads what it needs before it is wanted in a handler
    const Bytes good = read_bytes(path);
    const auto expected = content(path);
    ASSERT_EQ(read_in_child(path, expected), READ_ALIKE);
    std::mt19937 random(seed);
    for (int i = 0; i < count; i++) {
        write_bytes(path, spoil(good, i % 6, random));
        const int how = read_in_child(path, expected);
        ASSERT_TRUE(WIFEXITED(how)) << "change " << i << ", signal " << WTERMSIG(how);
        const int code = WEXITSTATUS(how);
        ASSERT_NE(code, DIED_IN_OURS) << "change " << i;
        (code == READ_ALIKE     ? counts.alike
         : code == REFUSED      ? counts.refused
         : code == READ_FEWER   ? counts.fewer
         : code == READ_WRONG   ? counts.wrong
         : code == HUNG_IN_HDF5 ? counts.hung_in_hdf5
                                : counts.died_in_hdf5)++;
    }
    testing::Test::RecordProperty("refused", counts.refused);
    testing::Test::RecordProperty("alike", counts.alike);
    testing::Test::RecordProperty("fewer", counts.fewer);
    testing::Test::RecordProperty("wrong", counts.wrong);
    testing::Test::RecordProperty("hung_in_hdf5", counts.hung_in_hdf5);
    testing::Test::RecordProperty("died_in_hdf5", counts.died_in_hdf5);
    EXPECT_GT(counts.refused, 0);
}

TEST(Hostile, RandomChangesOfUnsealedFiles) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer reports HDF5's own faults";
#endif
    Folder folder;
    const std::string path = folder / "h.h5";
    Counts counts;
    for (int32_t keep : {TARTAN_KEEP_PLAIN, TARTAN_KEEP_COMPRESSED}) {
        write_sample(folder / "sealed.h5", 1, keep);
        strip_seal(folder / "sealed.h5", path);
        spoil_and_count(path, (unsigned)keep + 1, 300, counts);
    }
    // Chunks that are cleared with their checksums look sound, and links that are lost leave no trace.
    EXPECT_LE(counts.wrong, 15) << "of 600";
    EXPECT_LE(counts.fewer, 80) << "of 600";
    EXPECT_LE(counts.hung_in_hdf5 + counts.died_in_hdf5, 60)
        << "of 600: more crashes and hangs than HDF5 1.10 has";
}

// Schema 1.0 had HDF5's oldest formats, as files of other programs have: no checksums of metadata, texts in heaps.
TEST(Hostile, RandomChangesOfFilesWithoutChecksums) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer reports HDF5's own faults";
#endif
    Folder folder;
    const std::string path = folder / "h.h5";
    Counts counts;
    for (const char *name : {"plain.h5", "compressed.h5"}) {
        strip_seal(std::string(TARTAN_DATA "/golden/v1/") + name, path);
        spoil_and_count(path, (unsigned)name[0], 300, counts);
    }
    EXPECT_LE(counts.hung_in_hdf5 + counts.died_in_hdf5, 2) << "of 600";
}

// Reads a changed file of schema 1.0 in a child, which must refuse it.
void expect_refused(const std::string &path, const Bytes &bad, const Contents &expected,
                    const std::string &what) {
    write_bytes(path, bad);
    const int how = read_in_child(path, expected);
    ASSERT_TRUE(WIFEXITED(how)) << what;
    EXPECT_EQ(REFUSED, WEXITSTATUS(how)) << what;
}

// The objects of a heap, as files before schema 1.2 and files of other programs have it for their texts. HDF5 goes round in circles at
// a size of 0, and reads or writes anywhere if a place or a size is not the text's.
TEST(Hostile, HeapsOfTextsAreSound) {
    Folder folder;
    const std::string path = folder / "h.h5";
    strip_seal(TARTAN_DATA "/golden/v1/plain.h5", path);
    const Bytes good = read_bytes(path);
    const auto expected = content(path);
    const unsigned char signature[] = {'G', 'C', 'O', 'L', 1, 0, 0, 0};
    const auto heap = std::search(good.begin(), good.end(), signature, signature + 8);
    ASSERT_NE(good.end(), heap);
    const size_t begin = (size_t)(heap - good.begin()),
                 first = begin + 16; // index, references and size of the first object
    const auto changed = [&](size_t at, int byte, int count) {
        Bytes bad = good;
        std::fill_n(bad.begin() + (long)at, count, (unsigned char)byte);
        return bad;
    };
    for (const auto &[at, byte, count] : std::vector<std::tuple<size_t, int, int>>{{8, 0xff, 8},
                                                                                   {9, 0x7f, 7},
                                                                                   {0, 0, 16},
                                                                                   {0, 0xff, 2},
                                                                                   {0, 2, 1},
                                                                                   {8, 0xf0, 1},
                                                                                   {8, 6, 1},
                                                                                   {8, 8, 1}})
        expect_refused(path, changed(first + at, byte, count), expected, "object " + std::to_string(at));
    for (size_t at : {0, 4, 8, 9, 11, 15})
        expect_refused(path, changed(begin + at, 0xee, 1), expected, "heap " + std::to_string(at));
    // Where the attribute of the first text says that it is: length, place and index.
    Bytes reference(16);
    for (int i = 0; i < 8; i++) reference[4 + (size_t)i] = (unsigned char)(begin >> 8 * i);
    reference[12] = 1;
    const auto found = std::search(good.begin(), good.end(), reference.begin() + 4, reference.end());
    ASSERT_NE(good.end(), found);
    const size_t place = (size_t)(found - good.begin());
    for (const auto &[at, byte] : std::vector<std::pair<long, int>>{
             {-4, 200}, {-1, 0x7f}, {0, 1}, {3, 0x7f}, {7, 0xff}, {8, 0}, {8, 250}, {11, 0xff}})
        expect_refused(path, changed(place + (size_t)at, byte, 1), expected,
                       "reference " + std::to_string(at));
}

TEST(Hostile, TextsOfHeapsNeedMemory) {
    Folder folder;
    const std::string path = folder / "h.h5";
    strip_seal(TARTAN_DATA "/golden/v1/plain.h5", path);
    tartan_file *file = nullptr;
    const auto read = [&] {
        const tartan_status status = tartan_file_open(path.c_str(), &file);
        if (status != TARTAN_OK) return status;
        char *text = nullptr;
        const tartan_status found = tartan_file_get_metadata(file, TARTAN_KIND_MATRIX, "float64-C", &text);
        tartan_text_free(text);
        if (found != TARTAN_OK) tartan_file_free(file);
        return found;
    };
    BRUTAL(read(), tartan_file_free(file));
}

// HDF5 copies as much as a chunk should have of what its filters gave.
TEST(Hostile, ChunksAreNoLargerThanWhatIsStored) {
    Folder folder;
    const std::string path = folder / "h.h5";
    strip_seal(TARTAN_DATA "/golden/v1/compressed.h5", path);
    const Bytes good = read_bytes(path);
    const auto expected = content(path);
    // The chunks of a dataset of 22 blocks of 3 x 4 numbers of 4 bytes.
    const unsigned char dims[] = {22, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0};
    const auto found = std::search(good.begin(), good.end(), dims, dims + 16);
    ASSERT_NE(good.end(), found);
    for (size_t at : {1, 5, 9, 0, 4, 8}) {
        Bytes bad = good;
        bad[(size_t)(found - good.begin()) + at] = at % 4 == 0 ? 0 : 0x9d;
        expect_refused(path, bad, expected, std::to_string(at));
    }
}

} // namespace
