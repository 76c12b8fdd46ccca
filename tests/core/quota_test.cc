// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

extern "C" {
#include "core/quota.h"
}

namespace {

namespace fs = std::filesystem;

// A folder that stands for /sys/fs/cgroup, and a list of groups.
class Quota : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/tartan_quota_XXXXXX";
        ASSERT_NE(nullptr, mkdtemp(name));
        root_ = name;
    }
    void TearDown() override { fs::remove_all(root_); }

    void write(const std::string &path, const std::string &text) {
        const fs::path file = root_ / path;
        fs::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
    double quota(const std::string &groups) {
        write("groups", groups);
        return tartan_i_processor_quota((root_ / "groups").c_str(), root_.c_str());
    }

    fs::path root_;
};

TEST_F(Quota, OfTheUnifiedHierarchy) {
    write("cpu.max", "150000 100000\n");
    EXPECT_EQ(1.5, quota("0::/\n"));
    write("cpu.max", "max 100000\n");
    EXPECT_EQ(0, quota("0::/\n"));
}

TEST_F(Quota, IsTheLeastOfAllGroupsAround) {
    write("cpu.max", "max 100000\n");
    write("a/cpu.max", "200000 100000\n");
    write("a/b/cpu.max", "800000 100000\n");
    write("a/b/c/cgroup.procs", "");
    EXPECT_EQ(2, quota("0::/a/b/c\n"));
    EXPECT_EQ(2, quota("0::/a\n"));
    EXPECT_EQ(2, quota("0::/a/elsewhere/that/cannot/be/seen\n"));
    EXPECT_EQ(0, quota("0::/other\n"));
}

TEST_F(Quota, OfTheControllerOfProcessors) {
    write("cpu,cpuacct/docker/cpu.cfs_quota_us", "400000\n");
    write("cpu,cpuacct/docker/cpu.cfs_period_us", "50000\n");
    write("memory/docker/cpu.cfs_quota_us", "50000\n");
    write("memory/docker/cpu.cfs_period_us", "50000\n");
    EXPECT_EQ(8, quota("7:memory:/docker\n4:cpu,cpuacct:/docker\n1:name=systemd:/docker\n"));
    write("cpu,cpuacct/docker/cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(0, quota("4:cpu,cpuacct:/docker\n"));
}

TEST_F(Quota, OfTextThatMakesNoSense) {
    write("cpu.max", "a lot\n");
    EXPECT_EQ(0, quota("0::/\n"));
    write("cpu.max", "100000\n");
    EXPECT_EQ(0, quota("0::/\n"));
    write("cpu.max", "");
    EXPECT_EQ(0, quota("0::/\n"));
    write("cpu.max", "200000 100000\n");
    EXPECT_EQ(0, quota("no colons here\n0:\n"));
    EXPECT_EQ(2, quota("no colons here\n0::/" + std::string(3000, 'x') + "\n"));
    EXPECT_EQ(2, quota("0::/" + std::string(5000, 'x') + "\n"));
    EXPECT_EQ(0, tartan_i_processor_quota("/tmp/tartan_no_such_file", root_.c_str()));
}

} // namespace
