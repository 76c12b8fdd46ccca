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
        const rlimit room = {rlim_t(4) << 30, rlim_t(4) << 30}, seconds = {2, 4};
        setrlimit(RLIMIT_AS, &room);
        setrlimit(RLIMIT_CPU, &seconds); // HDF5 may go round in circles, too
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

TEST(Hostile, RandomChangesOfUnsealedFiles) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer reports HDF5's own faults";
#endif
    void *warm[2];
    backtrace(warm, 2); // loads what it needs before it is wanted in a handler
    Folder folder;
    const std::string path = folder / "h.h5";
    int alike = 0, refused = 0, fewer = 0, wrong = 0, hung_in_hdf5 = 0, died_in_hdf5 = 0;
    for (int32_t keep : {TARTAN_KEEP_PLAIN, TARTAN_KEEP_COMPRESSED}) {
        write_sample(folder / "sealed.h5", 1, keep);
        strip_seal(folder / "sealed.h5", path);
        const Bytes good = read_bytes(path);
        const auto expected = content(path);
        ASSERT_EQ(read_in_child(path, expected), READ_ALIKE);
        std::mt19937 random((unsigned)keep + 1);
        for (int i = 0; i < 300; i++) {
            write_bytes(path, spoil(good, i % 6, random));
            const int how = read_in_child(path, expected);
            ASSERT_TRUE(WIFEXITED(how)) << "change " << i << ", signal " << WTERMSIG(how);
            const int code = WEXITSTATUS(how);
            ASSERT_NE(code, DIED_IN_OURS) << "change " << i;
            (code == READ_ALIKE     ? alike
             : code == REFUSED      ? refused
             : code == READ_FEWER   ? fewer
             : code == READ_WRONG   ? wrong
             : code == HUNG_IN_HDF5 ? hung_in_hdf5
                                    : died_in_hdf5)++;
        }
    }
    RecordProperty("refused", refused);
    RecordProperty("alike", alike);
    RecordProperty("fewer", fewer);
    RecordProperty("wrong", wrong);
    RecordProperty("hung_in_hdf5", hung_in_hdf5);
    RecordProperty("died_in_hdf5", died_in_hdf5);
    EXPECT_GT(refused, 0);
    // Chunks that are cleared with their checksums look sound, and links that are lost leave no trace.
    EXPECT_LE(wrong, 15) << "of 600";
    EXPECT_LE(fewer, 80) << "of 600";
    EXPECT_LE(hung_in_hdf5 + died_in_hdf5, 60) << "of 600: more crashes and hangs than HDF5 1.10 has";
}

// The objects of a heap, as files before schema 1.2 and those of other programs have it for their texts. HDF5 goes round in circles at
// a size of 0, and anywhere at one that overflows.
TEST(Hostile, HeapsOfTextsAreSound) {
    Folder folder;
    const std::string path = folder / "h.h5";
    strip_seal(TARTAN_DATA "/golden/v1/plain.h5", path);
    const Bytes good = read_bytes(path);
    const auto expected = content(path);
    const unsigned char signature[] = {'G', 'C', 'O', 'L', 1, 0, 0, 0};
    const auto heap = std::search(good.begin(), good.end(), signature, signature + 8);
    ASSERT_NE(good.end(), heap);
    const size_t first = (size_t)(heap - good.begin()) + 16; // index, references and size of the first object
    for (const auto &[at, byte, count] : std::vector<std::tuple<size_t, int, int>>{
             {8, 0xff, 8}, {9, 0x7f, 7}, {0, 0, 16}, {0, 0xff, 2}, {8, 0xf0, 1}}) {
        Bytes bad = good;
        std::fill_n(bad.begin() + (long)(first + at), count, (unsigned char)byte);
        write_bytes(path, bad);
        const int how = read_in_child(path, expected);
        ASSERT_TRUE(WIFEXITED(how)) << at;
        EXPECT_TRUE(WEXITSTATUS(how) == REFUSED || (count == 2 && WEXITSTATUS(how) < HUNG_IN_HDF5))
            << at << " " << WEXITSTATUS(how);
    }
}

} // namespace
