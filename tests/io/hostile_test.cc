// SPDX-License-Identifier: Apache-2.0
// Files without a seal, changed at random. HDF5's own parser may die of them (it has known faults, see
// docs/file_format.md); what is tested is that our code never does, and never hangs.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_support.h"

using namespace tartan_test;

namespace {

enum { DIED_IN_HDF5 = 77, DIED_IN_OURS = 78 };

// Whose fault: the innermost frame that is not the C library's. Frame 0 is this handler.
void blame(int) {
    void *frames[64];
    const int count = backtrace(frames, 64);
    Dl_info self, info;
    dladdr((void *)&blame, &self);
    for (int i = 1; i < count; i++) {
        if (!dladdr(frames[i], &info) || info.dli_fname == nullptr) continue;
        const std::string name = info.dli_fname;
        if (name.find("libhdf5") != name.npos || name.find("libz.") != name.npos) _exit(DIED_IN_HDF5);
        if (info.dli_fbase == self.dli_fbase) _exit(DIED_IN_OURS);
    }
    _exit(DIED_IN_OURS);
}

// Reads all of it in a child that may die.
int read_in_child(const std::string &path) {
    const pid_t child = fork();
    if (child == 0) {
        for (int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) signal(number, blame);
        alarm(10);
        const rlimit room = {rlim_t(4) << 30, rlim_t(4) << 30};
        setrlimit(RLIMIT_AS, &room);
        const tartan_status status = tartan_file_verify(path.c_str(), nullptr);
        _exit(status == TARTAN_OK ? 0 : status == TARTAN_ERR_INTERNAL ? DIED_IN_OURS : 1);
    }
    int how = 0;
    waitpid(child, &how, 0);
    return how;
}

TEST(Hostile, RandomChangesOfUnsealedFiles) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer reports HDF5's own faults";
#endif
    void *warm[2];
    backtrace(warm, 2); // loads what it needs before it is wanted in a handler
    Folder folder;
    const std::string path = folder / "h.h5";
    int refused = 0, read = 0, died_in_hdf5 = 0;
    for (int32_t keep : {TARTAN_KEEP_PLAIN, TARTAN_KEEP_COMPRESSED}) {
        write_sample(folder / "sealed.h5", 1, keep);
        strip_seal(folder / "sealed.h5", path);
        const Bytes good = read_bytes(path);
        ASSERT_EQ(read_in_child(path), 0);
        std::mt19937 random((unsigned)keep + 1);
        for (int i = 0; i < 300; i++) {
            Bytes bad = good;
            for (unsigned n = 0; n <= random() % 4; n++) bad[random() % bad.size()] = (unsigned char)random();
            write_bytes(path, bad);
            const int how = read_in_child(path);
            ASSERT_TRUE(WIFEXITED(how)) << "change " << i << ", signal " << WTERMSIG(how);
            const int code = WEXITSTATUS(how);
            ASSERT_NE(code, DIED_IN_OURS) << "change " << i;
            (code == 0 ? read : code == 1 ? refused : died_in_hdf5)++;
        }
    }
    RecordProperty("refused", refused);
    RecordProperty("read", read);
    RecordProperty("died_in_hdf5", died_in_hdf5);
    EXPECT_GT(refused, 0);
    EXPECT_LE(died_in_hdf5, 30) << "more than HDF5's known rate of deaths and hangs";
}

} // namespace
