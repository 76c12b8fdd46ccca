// SPDX-License-Identifier: Apache-2.0
// The hash of the pages in the seal: its definition, and that what was hashed while it was written is what a reader hashes.
#include <fcntl.h>
#include <unistd.h>

#include "io_support.h"
extern "C" {
#include "core/memory.h"
#include "io/pages.h"
}
#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace tartan_test;

namespace {

enum : int64_t { PAGE = TARTAN_I_PAGE_BYTES, HEAD = TARTAN_I_SEAL_BYTES };

void add_hash(Bytes *list, const unsigned char *bytes, size_t size) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
    list->insert(list->end(), canonical.digest, canonical.digest + sizeof canonical.digest);
}

// By its definition in docs/file_format.md.
Bytes hash_of(const Bytes &file) {
    Bytes list, hash;
    for (size_t at = HEAD; at < file.size(); at += PAGE)
        add_hash(&list, file.data() + at, std::min((size_t)PAGE, file.size() - at));
    add_hash(&hash, list.data(), list.size());
    return hash;
}

TEST(Pages, SealHasTheHashOfTheHashesOfPages) {
    Folder folder;
    for (int64_t size : {20, 400, 1400}) { // one page, some, and more
        Layout layout = random_layout({size, size, 50, 50, 1}, 1, 1);
        Matrix matrix = random_matrix(layout.get(), TARTAN_F32, 0, 1);
        File file = new_file();
        ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
        ASSERT_OK(tartan_file_save(file.get(), (folder / "m.h5").c_str(), 0));
        const Bytes bytes = read_bytes(folder / "m.h5");
        int64_t end = 0;
        std::memcpy(&end, bytes.data() + 48, sizeof end);
        ASSERT_LT(end, (int64_t)bytes.size());
        EXPECT_EQ(hash_of(Bytes(bytes.begin(), bytes.begin() + end)),
                  Bytes(bytes.begin() + 32, bytes.begin() + 48))
            << size;
    }
}

// A file and what is known of its pages.
class PagesTest : public testing::Test {
  protected:
    void SetUp() override { ASSERT_OK(tartan_i_pages_new(&pages)); }
    void TearDown() override {
        tartan_i_pages_free(pages);
        close(fd);
    }
    void write(int64_t offset, int64_t size) {
        Bytes bytes((size_t)size);
        for (unsigned char &byte : bytes) byte = (unsigned char)(random() >> 24);
        ASSERT_TRUE(tartan_i_disk_write(fd, bytes.data(), size, offset));
        tartan_i_pages_wrote(pages, bytes.data(), size, offset);
        length = std::max(length, offset + size);
    }
    void cut(int64_t size) {
        ASSERT_TRUE(tartan_i_disk_truncate(fd, size));
        tartan_i_pages_cut(pages, size);
        length = size;
    }
    Bytes hash(const tartan_i_pages *known) {
        unsigned char *list = nullptr;
        int64_t bytes = 0;
        Bytes out(TARTAN_I_HASH_BYTES);
        EXPECT_OK(tartan_i_pages_list("f", "p", fd, length, PAGE, known, &list, &bytes));
        tartan_i_hash(list, bytes, out.data());
        tartan_i_free(list);
        return out;
    }
    void expect_right(const char *what) {
        ASSERT_EQ(hash(nullptr), hash_of(read_bytes(path))) << what;
        ASSERT_EQ(hash(pages), hash(nullptr)) << what;
    }
    Folder folder;
    std::string path = folder / "pages";
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int64_t length = 0;
    tartan_i_pages *pages = nullptr;
    std::mt19937 random{1};
};

TEST_F(PagesTest, EveryKindOfChangeIsNoticed) {
    write(HEAD, 3 * PAGE + 100);
    expect_right("in order");
    write(HEAD + 5, 1);
    expect_right("within a known page");
    write(HEAD + 2 * PAGE - 1, 2);
    expect_right("across two known pages");
    write(HEAD + 3 * PAGE + 100, PAGE);
    expect_right("in order again");
    write(HEAD + 4 * PAGE + 50, 10);
    write(HEAD + 4 * PAGE + 100, PAGE);
    expect_right("behind the end, in the page being written");
    write(HEAD + 6 * PAGE, PAGE);
    expect_right("past a gap");
    write(HEAD + 5 * PAGE + 200, PAGE - 200);
    expect_right("in the gap");
    cut(HEAD + 2 * PAGE + 7);
    expect_right("cut within a page");
    cut(HEAD + 4 * PAGE);
    expect_right("grown by cutting");
    write(HEAD + 4 * PAGE, PAGE);
    expect_right("written after that");
}

TEST_F(PagesTest, RandomChangesAreNoticed) {
    write(HEAD, 1);
    for (int i = 0; i < rounds(300); i++) {
        const int64_t size = 1 + (int64_t)(random() % (random() % 4 == 0 ? 2 * PAGE : 5000));
        if (random() % 12 == 0)
            cut(HEAD + 1 + (int64_t)(random() % (uint64_t)(8 * PAGE)));
        else if (random() % 3 == 0)
            write(HEAD + (int64_t)(random() % (uint64_t)(8 * PAGE)), size);
        else
            write(std::min(length, HEAD + 12 * PAGE), size);
        if (i % 5 == 0) {
            ASSERT_EQ(hash(pages), hash(nullptr)) << "change " << i;
        }
    }
    expect_right("at the end");
}

// Each failed allocation leaves a right hash: the pages are read back.
TEST_F(PagesTest, LackOfMemoryForTheListIsNoError) {
    tartan_i_memory_fail_at(0);
    write(HEAD, 5 * PAGE);
    EXPECT_GT(tartan_i_memory_asked(), 0);
    tartan_i_memory_fail_at(-1);
    expect_right("without a list");
    write(HEAD + 5 * PAGE, 100 * PAGE); // the list grows
    expect_right("with one");
    unsigned char *list = nullptr;
    int64_t bytes = 0;
    BRUTAL(tartan_i_pages_list("f", "p", fd, length, PAGE, nullptr, &list, &bytes), tartan_i_free(list));
}

} // namespace
