// SPDX-License-Identifier: Apache-2.0
// The system calls under files: short and interrupted transfers, read errors, synchronisation, descriptors. The linker
// puts the functions at the end of this file between the library and the C library (--wrap).
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io_support.h"

using namespace tartan_test;

namespace {

// What the wrapped calls do.
struct Disk {
    bool reluctant = false; // every other transfer is interrupted, the others move few bytes
    int64_t bad_read = -1;  // this read, counted from 0, fails
    int read_error = EIO;   // with this errno; 0: as at the end of the file
    int folder_error = 0;   // errno of synchronising a folder
    uint64_t read_bytes = 0, written_bytes = 0;
    int64_t die_at = -1;                           // the process is killed at this change
    int64_t reads = 0, transfers = 0, changes = 0; // so far
    bool all_closed_on_exec = true;                // each descriptor that was used
    std::vector<std::string> log = {};             // "write", "sync file", "sync folder", "rename"
};
Disk disk;
bool watching = false; // only in the tests of this file

// The process dies at its time. Of a long write half is done by then, in whole sectors; a sector is written as a whole.
template <class Half> void may_die(Half &&half) {
    if (disk.changes++ != disk.die_at) return;
    half();
    kill(getpid(), SIGKILL);
}

void use(int fd) {
    const int flags = fcntl(fd, F_GETFD);
    disk.all_closed_on_exec &= flags >= 0 && (flags & FD_CLOEXEC) != 0;
}

// False: the transfer is interrupted. Otherwise *size is what the disk moves of it.
bool allow(size_t *size) {
    const int64_t n = disk.transfers++;
    if (!disk.reluctant) return true;
    if (n % 2 == 0) {
        errno = EINTR;
        return false;
    }
    const size_t most = 1 + (size_t)(n * 7919 % 1500);
    if (*size > most) *size = most;
    return true;
}

size_t open_descriptors() {
    size_t count = 0;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd"))
        count += !entry.path().empty();
    return count;
}

class DiskTest : public testing::Test {
  protected:
    DiskTest() {
        disk = Disk();
        watching = true;
    }
    ~DiskTest() override { watching = false; }
    Folder folder;
    std::string path = folder / "d.h5";
};

TEST_F(DiskTest, ShortAndInterruptedTransfersAreCompleted) {
    write_sample(path, 1);
    disk.reluctant = true;
    write_sample(folder / "reluctant.h5", 1);
    EXPECT_GT(disk.transfers, 20);
    EXPECT_OK(tartan_file_verify(path.c_str(), nullptr));
    disk.reluctant = false;
    EXPECT_EQ(read_bytes(path), read_bytes(folder / "reluctant.h5"));
}

// Read n fails, for each n: of the seal, of the hash, of HDF5, while opening and while loading.
TEST_F(DiskTest, ReadErrorsAreReportedAndLeaveNothing) {
    write_sample(path, 1);
    open_file(path); // HDF5 keeps descriptors and memory of its own from the first time on
    const size_t descriptors = open_descriptors();
    for (int error : {EIO, 0})
        for (int64_t n = 0;; n++) {
            disk = Disk();
            disk.bad_read = n;
            disk.read_error = error;
            const int64_t live = tartan_i_memory_live();
            const tartan_status status = tartan_file_verify(path.c_str(), nullptr);
            const bool over = disk.reads <= n;
            disk = Disk();
            ASSERT_EQ(live, tartan_i_memory_live()) << n;
            ASSERT_EQ(descriptors, open_descriptors()) << n;
            if (over) {
                EXPECT_OK(status);
                EXPECT_GT(n, 3);
                break;
            }
            ASSERT_EQ(TARTAN_ERR_FILE, status) << n << ": " << tartan_last_error();
            const std::string text = tartan_last_error();
            ASSERT_TRUE(text.find("Input/output error") != text.npos ||
                        (error == 0 && text.find("it became shorter while it was read") != text.npos))
                << n << ": " << text;
        }
}

// The seal needs no second look at what was written from end to end.
TEST_F(DiskTest, SavingReadsBackFewPages) {
    Layout layout = random_layout({2048, 2048, 64, 64, 1}, 1, 1);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F64, 0, 1);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
    for (int32_t keep : {TARTAN_KEEP_PLAIN, TARTAN_KEEP_COMPRESSED}) {
        disk = Disk();
        ASSERT_OK(tartan_file_save(file.get(), path.c_str(), keep));
        EXPECT_LE(disk.reads, 6) << "of 32 pages";
        EXPECT_OK(tartan_file_verify(path.c_str(), nullptr));
    }
}

// Saving reads back the pages that it wrote in pieces, for the seal.
TEST_F(DiskTest, ReadErrorsWhileSavingLeaveTheOldFile) {
    write_sample(path, 1);
    const Bytes before = read_bytes(path);
    File file = open_file(path);
    Layout layout = random_layout({8, 8, 4, 4, 1}, 0.7, 1);
    ASSERT_OK(tartan_file_put_layout(file.get(), "another", layout.get(), nullptr));
    const size_t descriptors = open_descriptors();
    for (int64_t n = 0;; n++) {
        disk = Disk();
        disk.bad_read = n;
        const tartan_status status = tartan_file_save(file.get(), path.c_str(), TARTAN_KEEP_PLAIN);
        const bool over = disk.reads <= n;
        disk = Disk();
        EXPECT_EQ(descriptors, open_descriptors()) << n;
        if (over) {
            EXPECT_OK(status);
            EXPECT_GT(n, 0);
            break;
        }
        ASSERT_EQ(TARTAN_ERR_FILE, status) << n << ": " << tartan_last_error();
        ASSERT_EQ(read_bytes(path), before) << n;
        ASSERT_EQ(folder.names().size(), 1u) << "a temporary file is left";
    }
}

// A save that fails before anything is written gives back what it had planned (see LeakCheck), and its descriptors.
TEST_F(DiskTest, RefusedSavesLeaveNothing) {
    write_sample(path, 1);
    File file = open_file(path);
    const size_t descriptors = open_descriptors();
    EXPECT_FAILS(FILE, "No such file", tartan_file_save(file.get(), (folder / "no/x.h5").c_str(), 0));
    EXPECT_FAILS(FILE, "is a directory", tartan_file_save(file.get(), (folder / ".").c_str(), 0));
    EXPECT_EQ(descriptors, open_descriptors());
}

// The bytes are on the disk before the name leads to them, and the name before saving returns.
TEST_F(DiskTest, SavingSynchronisesTheFileThenRenamesThenSynchronisesTheFolder) {
    write_sample(path, 1);
    const std::vector<std::string> &log = disk.log;
    const size_t writes = (size_t)std::count(log.begin(), log.end(), "write");
    ASSERT_GT(writes, 1u);
    ASSERT_EQ(log.size(), writes + 3);
    EXPECT_EQ(std::vector<std::string>(log.end() - 4, log.end()),
              (std::vector<std::string>{"write", "sync file", "rename", "sync folder"}));
}

// Some file systems cannot synchronise a folder. The file is in place by then.
TEST_F(DiskTest, FolderThatCannotBeSynchronisedIsNoError) {
    disk.folder_error = EINVAL;
    write_sample(path, 1);
    EXPECT_OK(tartan_file_verify(path.c_str(), nullptr));
    EXPECT_EQ(disk.log.back(), "sync folder");
}

TEST_F(DiskTest, DescriptorsDoNotReachOtherPrograms) {
    write_sample(path, 1);
    EXPECT_TRUE(disk.all_closed_on_exec);
    File file = open_file(path);
    EXPECT_GT(disk.reads, 0);
    EXPECT_TRUE(disk.all_closed_on_exec);
}

// A collection that replaces two objects of a sample and adds two.
File additions(std::vector<Matrix> &keep) {
    File file = new_file();
    Layout layout = random_layout({64, 64, 8, 8, 1}, 0.6, 50);
    keep.push_back(random_matrix(layout.get(), TARTAN_F64, TARTAN_ROW_MAJOR, 51));
    keep.push_back(random_matrix(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, 52));
    const double numbers[3] = {1, 2, 3};
    const int64_t n = 3;
    tartan_array array;
    EXPECT_OK(tartan_array_init((void *)numbers, TARTAN_F64, 1, &n, nullptr, &array));
    EXPECT_OK(tartan_file_put_matrix(file.get(), "new", keep[0].get(), nullptr, nullptr));
    EXPECT_OK(tartan_file_put_matrix(file.get(), "a", keep[1].get(), nullptr, "{}"));
    EXPECT_OK(tartan_file_put_layout(file.get(), "new", layout.get(), nullptr));
    EXPECT_OK(tartan_file_put_array(file.get(), "e", &array, 0, nullptr));
    return file;
}

// Killed at every write, truncation and synchronisation: the old file or the new one, to which more can be added.
TEST_F(DiskTest, AppendingThatIsKilledAnywhereLeavesTheOldFileOrTheNew) {
    std::vector<Matrix> keep;
    File file = additions(keep);
    write_sample(path, 1);
    const Bytes before = read_bytes(path);
    const Contents old = content(path);
    ASSERT_OK(tartan_file_append(file.get(), path.c_str(), TARTAN_KEEP_PLAIN));
    const Contents wanted = content(path);
    ASSERT_NE(old, wanted);
    ASSERT_EQ(old.size() + 2, wanted.size());
    int kept = 0, changed = 0;
    for (int64_t n = 0;; n++) {
        write_bytes(path, before);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            disk = Disk();
            disk.die_at = n;
            _exit(tartan_file_append(file.get(), path.c_str(), TARTAN_KEEP_PLAIN) != TARTAN_OK);
        }
        int how = 0;
        ASSERT_EQ(waitpid(child, &how, 0), child);
        EXPECT_OK(tartan_file_verify(path.c_str(), nullptr)) << n;
        const Contents found = content(path);
        ASSERT_TRUE(found == old || found == wanted) << "killed at change " << n;
        (found == old ? kept : changed)++;
        if (WIFEXITED(how)) {
            EXPECT_EQ(WEXITSTATUS(how), 0);
            ASSERT_EQ(found, wanted);
            break;
        }
        ASSERT_OK(tartan_file_append(file.get(), path.c_str(), TARTAN_KEEP_PLAIN)) << n;
        ASSERT_EQ(content(path), wanted) << n;
        EXPECT_OK(tartan_file_verify(path.c_str(), nullptr)) << n;
    }
    EXPECT_GT(kept, 5);
    EXPECT_GT(changed, 5);
}

// Each change of the disk fails once.
TEST_F(DiskTest, AppendingToAFailingDiskLeavesTheOldFileOrTheNew) {
    std::vector<Matrix> keep;
    File file = additions(keep);
    write_sample(path, 1);
    const Bytes before = read_bytes(path);
    const Contents old = content(path);
    const size_t descriptors = open_descriptors();
    for (int64_t n = 0;; n++) {
        write_bytes(path, before);
        tartan_i_disk_fail_at(n);
        const tartan_status status = tartan_file_append(file.get(), path.c_str(), TARTAN_KEEP_PLAIN);
        const bool over = tartan_i_disk_asked() <= n;
        tartan_i_disk_fail_at(-1);
        const std::string text = tartan_last_error();
        EXPECT_EQ(descriptors, open_descriptors()) << n;
        EXPECT_OK(tartan_file_verify(path.c_str(), nullptr)) << n;
        const Contents found = content(path);
        if (over) {
            EXPECT_OK(status);
            EXPECT_NE(found, old);
            break;
        }
        EXPECT_EQ(status, TARTAN_ERR_FILE) << n;
        EXPECT_EQ(found == old, text.find("the objects were added") == text.npos) << n << ": " << text;
    }
}

// What is added to a large file costs what is added.
TEST_F(DiskTest, AppendingReadsAndWritesLittle) {
    Layout layout = random_layout({2048, 2048, 64, 64, 1}, 1, 1),
           small = random_layout({64, 64, 8, 8, 1}, 1, 1);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F64, 0, 1),
           few = random_matrix(small.get(), TARTAN_F64, 0, 1);
    File large = new_file(), file = new_file();
    ASSERT_OK(tartan_file_put_matrix(large.get(), "large", matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_save(large.get(), path.c_str(), TARTAN_KEEP_PLAIN)); // 32 MiB
    ASSERT_OK(tartan_file_put_matrix(file.get(), "few", few.get(), nullptr, nullptr));
    const uintmax_t size = std::filesystem::file_size(path);
    disk = Disk();
    ASSERT_OK(tartan_file_append(file.get(), path.c_str(), TARTAN_KEEP_PLAIN));
    EXPECT_LE(disk.reads, 20);
    EXPECT_LT(disk.read_bytes, 3u << 20);
    EXPECT_LT(disk.written_bytes, 1u << 19);
    EXPECT_LT(std::filesystem::file_size(path), size + (1u << 18));
    disk = Disk();
    File back = open_file(path);
    expect_same(few.get(), get_matrix(back.get(), "few").get());
    EXPECT_LT(disk.read_bytes, 2u << 20) << "without the rest of the file";
}

} // namespace

extern "C" {

#define READ(name)                                                                                           \
    ssize_t __real_##name(int, void *, size_t, off_t);                                                       \
    ssize_t __wrap_##name(int fd, void *bytes, size_t size, off_t offset) {                                  \
        if (!watching) return __real_##name(fd, bytes, size, offset);                                        \
        use(fd);                                                                                             \
        if (!allow(&size)) return -1;                                                                        \
        disk.read_bytes += size;                                                                             \
        if (disk.reads++ == disk.bad_read) {                                                                 \
            errno = disk.read_error;                                                                         \
            return disk.read_error == 0 ? 0 : -1;                                                            \
        }                                                                                                    \
        return __real_##name(fd, bytes, size, offset);                                                       \
    }
#define WRITE(name)                                                                                          \
    ssize_t __real_##name(int, const void *, size_t, off_t);                                                 \
    ssize_t __wrap_##name(int fd, const void *bytes, size_t size, off_t offset) {                            \
        if (!watching) return __real_##name(fd, bytes, size, offset);                                        \
        use(fd);                                                                                             \
        if (!allow(&size)) return -1;                                                                        \
        disk.log.push_back("write");                                                                         \
        disk.written_bytes += size;                                                                          \
        may_die([&] {                                                                                        \
            if (size > 512) (void)!__real_##name(fd, bytes, size / 1024 * 512, offset);                      \
        });                                                                                                  \
        return __real_##name(fd, bytes, size, offset);                                                       \
    }
READ(pread)
READ(pread64)
WRITE(pwrite)
WRITE(pwrite64)

#define TRUNCATE(name)                                                                                       \
    int __real_##name(int, off_t);                                                                           \
    int __wrap_##name(int fd, off_t size) {                                                                  \
        if (watching) may_die([] {});                                                                        \
        return __real_##name(fd, size);                                                                      \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int __real_fsync(int);
int __wrap_fsync(int fd) {
    struct stat about;
    if (!watching) return __real_fsync(fd);
    use(fd);
    may_die([] {});
    const bool is_folder = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
    disk.log.push_back(is_folder ? "sync folder" : "sync file");
    if (is_folder && disk.folder_error != 0) {
        errno = disk.folder_error;
        return -1;
    }
    return __real_fsync(fd);
}

int __real_rename(const char *, const char *);
int __wrap_rename(const char *from, const char *to) {
    if (watching) disk.log.push_back("rename");
    return __real_rename(from, to);
}
}
