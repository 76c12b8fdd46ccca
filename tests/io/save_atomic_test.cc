// SPDX-License-Identifier: Apache-2.0
// Saving replaces a file as a whole or leaves it alone: links, failing disks, killed writers, lack of memory.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_support.h"

using namespace tartan_test;

namespace {

TEST(Save, KeepsPermissionsAndFollowsLinks) {
    Folder folder;
    File file = new_file();
    ASSERT_OK(tartan_file_save(file.get(), (folder / "real.h5").c_str(), 0));
    ASSERT_EQ(chmod((folder / "real.h5").c_str(), 03640), 0); // setgid and sticky, too
    ASSERT_EQ(symlink("real.h5", (folder / "link.h5").c_str()), 0);
    Layout layout = random_layout({8, 8, 4, 4, 1}, 0.7, 1);
    ASSERT_OK(tartan_file_put_layout(file.get(), "l", layout.get(), nullptr));
    ASSERT_OK(tartan_file_save(file.get(), (folder / "link.h5").c_str(), 0));
    struct stat about;
    ASSERT_EQ(lstat((folder / "link.h5").c_str(), &about), 0);
    EXPECT_TRUE(S_ISLNK(about.st_mode));
    ASSERT_EQ(stat((folder / "real.h5").c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777, 03640u);
    EXPECT_EQ(tartan_file_count(open_file(folder / "real.h5").get()), 1);
}

// A link to nothing yet leads to where the new file belongs, as for any program that opens a file.
TEST(Save, WritesThroughDanglingLinks) {
    Folder folder;
    std::filesystem::create_directory(folder / "data");
    ASSERT_EQ(symlink("data/second.h5", (folder / "first.h5").c_str()), 0); // relative to its own folder
    ASSERT_EQ(symlink((folder / "data/third.h5").c_str(), (folder / "data/second.h5").c_str()), 0);
    ASSERT_EQ(symlink("new.h5", (folder / "data/third.h5").c_str()), 0);
    write_sample(folder / "first.h5", 1);
    struct stat about;
    for (const char *link : {"first.h5", "data/second.h5", "data/third.h5"}) {
        ASSERT_EQ(lstat((folder / link).c_str(), &about), 0);
        EXPECT_TRUE(S_ISLNK(about.st_mode)) << link;
    }
    ASSERT_EQ(lstat((folder / "data/new.h5").c_str(), &about), 0);
    EXPECT_TRUE(S_ISREG(about.st_mode));
    EXPECT_OK(tartan_file_verify((folder / "first.h5").c_str(), nullptr));
    write_sample(folder / "first.h5", 2); // by now it leads to a file
    EXPECT_EQ(lstat((folder / "first.h5").c_str(), &about), 0);
    EXPECT_TRUE(S_ISLNK(about.st_mode));
}

TEST(Save, RefusesLinksThatLeadNowhere) {
    Folder folder;
    File file = new_file();
    ASSERT_EQ(symlink("missing/x.h5", (folder / "nowhere.h5").c_str()), 0);
    EXPECT_FAILS(FILE, "No such file", tartan_file_save(file.get(), (folder / "nowhere.h5").c_str(), 0));
    ASSERT_EQ(symlink("loop.h5", (folder / "loop.h5").c_str()), 0);
    EXPECT_FAILS(FILE, "symbolic links", tartan_file_save(file.get(), (folder / "loop.h5").c_str(), 0));
    std::string target; // fits a link, but no path with the folder in front
    while (target.size() < 4090) target += "dddddddd/";
    target.resize(4090);
    ASSERT_EQ(symlink(target.c_str(), (folder / "long.h5").c_str()), 0);
    EXPECT_FAILS(FILE, "name too long", tartan_file_save(file.get(), (folder / "long.h5").c_str(), 0));
    EXPECT_EQ(folder.names().size(), 3u);
}

// Every write, truncation, synchronisation and renaming fails once.
TEST(Save, FailingDiskLeavesTheOldFile) {
    Folder folder;
    const std::string path = folder / "disk.h5";
    write_sample(path, 1);
    const Bytes before = read_bytes(path);
    write_sample(folder / "source.h5", 2, TARTAN_KEEP_COMPRESSED);
    File file = open_file(folder / "source.h5");
    int64_t n = 0;
    for (;; n++) {
        tartan_i_disk_fail_at(n);
        const tartan_status status = tartan_file_save(file.get(), path.c_str(), TARTAN_KEEP_PLAIN);
        const bool over = tartan_i_disk_asked() <= n;
        tartan_i_disk_fail_at(-1);
        if (over) {
            EXPECT_OK(status);
            break;
        }
        ASSERT_EQ(status, TARTAN_ERR_FILE) << n;
        const std::string text = tartan_last_error();
        EXPECT_TRUE(text.find("No space left") != text.npos || text.find("Input/output error") != text.npos)
            << text;
        ASSERT_EQ(read_bytes(path), before) << n;
        ASSERT_EQ(folder.names().size(), 2u) << "a temporary file is left";
    }
    EXPECT_GT(n, 4);
    EXPECT_OK(tartan_file_verify(path.c_str(), nullptr));
    EXPECT_NE(read_bytes(path), before);
}

TEST(Save, FileThatOutgrowsItsLimit) {
    Folder folder;
    const std::string path = folder / "limit.h5";
    write_sample(path, 1);
    const Bytes before = read_bytes(path);
    Layout layout = random_layout({512, 512, 64, 64, 1}, 1, 5);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F64, 0, 6);
    File file = new_file();
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
    rlimit old;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    auto handler = signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit : {rlim_t(0), rlim_t(600), rlim_t(100000), rlim_t(1500000)}) {
        rlimit small = {limit, old.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
        EXPECT_FAILS(FILE, "File too large", tartan_file_save(file.get(), path.c_str(), 0));
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
        EXPECT_EQ(read_bytes(path), before);
        EXPECT_EQ(folder.names().size(), 1u);
    }
    signal(SIGXFSZ, handler);
    EXPECT_OK(tartan_file_save(file.get(), path.c_str(), 0));
}

TEST(Save, KilledWriterLeavesTheOldFileOrTheNew) {
    Folder folder;
    const std::string path = folder / "killed.h5";
    Layout layout = random_layout({256, 256, 16, 16, 1}, 0.8, 5);
    Matrix matrices[2] = {random_matrix(layout.get(), TARTAN_F32, 0, 1),
                          random_matrix(layout.get(), TARTAN_F32, 0, 2)};
    File files[2] = {new_file(), new_file()};
    for (int i = 0; i < 2; i++)
        ASSERT_OK(tartan_file_put_matrix(files[i].get(), "m", matrices[i].get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_save(files[0].get(), path.c_str(), 0));
    std::mt19937 random(1);
    // 50 kills, and as many again with twice the time, until some came before the first replacement and some after.
    const int few = rounds(50);
    int now = 0, kept = 0, replaced = 0;
    for (int kills = 0; kills < few || (kills < 10 * few && (kept == 0 || replaced == 0)); kills++) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0)
            for (int i = now + 1;; i++)
                if (tartan_file_save(files[i % 2].get(), path.c_str(), i % 3 == 0) != TARTAN_OK) _exit(1);
        usleep(500 + random() % (20000u << kills / few));
        kill(child, SIGKILL);
        int how = 0;
        ASSERT_EQ(waitpid(child, &how, 0), child);
        ASSERT_TRUE(WIFSIGNALED(how)) << "the writer failed by itself";
        Matrix read = get_matrix(open_file(path).get(), "m");
        ASSERT_NE(read, nullptr);
        const size_t bytes = (size_t)tartan_layout_blocks(layout.get()) * 256 * 4;
        int which = -1;
        for (int i = 0; i < 2; i++)
            if (std::memcmp(values_of(read.get()).data, values_of(matrices[i].get()).data, bytes) == 0)
                which = i;
        ASSERT_GE(which, 0) << "neither the old values nor the new";
        (which == now ? kept : replaced)++;
        now = which;
    }
    EXPECT_GT(kept, 0);
    EXPECT_GT(replaced, 0);
}

TEST(Save, SurvivesEveryFailedAllocation) {
    Folder folder;
    const std::string path = folder / "brutal.h5";
    write_sample(path, 1);
    const Bytes before = read_bytes(path);
    // From memory, then from another file, whose layouts are read and kept on the way.
    Layout layout = random_layout({9, 9, 4, 4, 2}, 0.7, 1);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F32, 0, 2);
    File file = new_file();
    ASSERT_OK(tartan_file_put_layout(file.get(), "l", layout.get(), "{}"));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, "{}"));
    BRUTAL(tartan_file_save(file.get(), (folder / "new.h5").c_str(), 0), );
    write_sample(folder / "from.h5", 2);
    auto copy = [&] {
        tartan_file *opened = nullptr;
        tartan_status status = tartan_file_open((folder / "from.h5").c_str(), &opened);
        if (status == TARTAN_OK) status = tartan_file_save(opened, path.c_str(), 1);
        if (status != TARTAN_OK) {
            EXPECT_EQ(read_bytes(path), before);
        }
        tartan_file_free(opened);
        return status;
    };
    BRUTAL(copy(), );
    EXPECT_EQ(folder.names().size(), 3u);
}

} // namespace
