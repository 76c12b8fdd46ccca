// SPDX-License-Identifier: Apache-2.0
// What every call into HDF5 passes through: the lock, and the reasons of failures.
#include <hdf5.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "io_support.h"
extern "C" {
#include "io/hdf5_private.h"
}

using namespace tartan_test;

namespace {

// HDF5 need not be built for threads, so one thread at a time enters it.
TEST(Driver, OneThreadAtATimeEntersHdf5) {
    std::atomic<bool> inside = false, entered = false;
    const tartan_i_quiet quiet = tartan_i_hdf5_enter();
    std::thread other([&] {
        inside = true;
        const tartan_i_quiet second = tartan_i_hdf5_enter();
        entered = true;
        tartan_i_hdf5_leave(second);
    });
    while (!inside) std::this_thread::yield();
    usleep(100000); // far longer than entering takes
    EXPECT_FALSE(entered);
    tartan_i_hdf5_leave(quiet);
    other.join();
    EXPECT_TRUE(entered);
}

tartan_status fail_after(hid_t major, hid_t minor, tartan_i_disk *disk = nullptr) {
    const tartan_i_quiet quiet = tartan_i_hdf5_enter();
    H5Epush2(H5E_DEFAULT, "file.c", "inner", 1, H5E_ERR_CLS, major, minor, "the inner reason");
    H5Epush2(H5E_DEFAULT, "file.c", "outer", 2, H5E_ERR_CLS, H5E_DATASET, H5E_READERROR, "the outer reason");
    const tartan_status status = tartan_i_hdf5_fail("f", disk, TARTAN_ERR_FORMAT, "here", "cannot be read");
    tartan_i_hdf5_leave(quiet);
    return status;
}

TEST(Driver, ReasonsOfFailures) {
    EXPECT_FAILS(FORMAT, "here: cannot be read: the inner reason", fail_after(H5E_IO, H5E_READERROR));
    EXPECT_FAILS(MEMORY, "the inner reason", fail_after(H5E_RESOURCE, H5E_NOSPACE));
    EXPECT_FAILS(MEMORY, "the inner reason", fail_after(H5E_RESOURCE, H5E_CANTALLOC));
    EXPECT_FAILS(FORMAT, "the inner reason", fail_after(H5E_RESOURCE, H5E_CANTINIT));
    tartan_i_disk disk = {};
    disk.error = EIO;
    EXPECT_FAILS(FILE, "here: cannot be read: Input/output error",
                 fail_after(H5E_RESOURCE, H5E_NOSPACE, &disk));
}

} // namespace
