// SPDX-License-Identifier: Apache-2.0
// The registry looks for a plug-in once a process, so each search runs in a process of its own.
#include "support.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

extern "C" {
#include "backend/backend.h"
}

namespace {

namespace fs = std::filesystem;

class Registry : public ::testing::Test {
  protected:
    fs::path folder = fs::temp_directory_path() / ("tartan_registry_" + std::to_string(::getpid()));
    void SetUp() override {
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        fs::remove_all(folder); // of a process that had this number before
        fs::create_directories(folder);
    }
    void TearDown() override { fs::remove_all(folder); }
    fs::path plugin() const { return folder / "libtartan_cuda.so"; }
    // The plug-in of the tests, where it was built or, in a tree that was moved, beside this program.
    static fs::path test_plugin() {
        const fs::path built = TARTAN_TEST_PLUGIN_FILE;
        if (fs::exists(built)) return built;
        return fs::read_symlink("/proc/self/exe").parent_path() / built.filename();
    }
};

#define COPY_TEST_PLUGIN()                                                                                   \
    if (!fs::exists(test_plugin()))                                                                          \
        GTEST_SKIP() << "the plug-in of the tests is not there: " << test_plugin();                          \
    fs::copy_file(test_plugin(), plugin())

// Searches with the two variables set, prints the reason, removes the folder and exits with 0 if there is a backend.
[[noreturn]] void search(const fs::path &folder, const char *fault) {
    setenv("TARTAN_PLUGIN_PATH", folder.c_str(), 1);
    setenv("TARTAN_TEST_PLUGIN", fault, 1);
    const char *reason = nullptr;
    const tartan_backend *backend = tartan_i_backend_find(TARTAN_CUDA, &reason);
    tartan_context *context = nullptr;
    tartan_context_create("cuda", nullptr, nullptr, &context);
    std::fprintf(stderr, "reason: %s\n%s\n", reason, tartan_last_error());
    const char *again = nullptr;
    const bool same = tartan_i_backend_find(TARTAN_CUDA, &again) == backend && again == reason;
    fs::remove_all(folder); // no test of this process ends
    std::_Exit(!same ? 2 : backend != nullptr ? 0 : 1);
}

// The re-executed process makes its own folder, of its own number.
TEST_F(Registry, NoPluginInTheFolder) {
    EXPECT_EXIT(search(folder, ""), ::testing::ExitedWithCode(1),
                "no libtartan_cuda.so in TARTAN_PLUGIN_PATH");
}

TEST_F(Registry, NotALibrary) {
    std::ofstream(plugin()) << "not a library";
    EXPECT_EXIT(search(folder, ""), ::testing::ExitedWithCode(1), "reason: .*libtartan_cuda.so");
}

TEST_F(Registry, PluginThatGivesNothing) {
    COPY_TEST_PLUGIN();
    EXPECT_EXIT(search(folder, "null"), ::testing::ExitedWithCode(1), "not a Tartan plug-in");
}

TEST_F(Registry, PluginOfAnotherAbi) {
    COPY_TEST_PLUGIN();
    EXPECT_EXIT(search(folder, "abi"), ::testing::ExitedWithCode(1),
                "made for backend ABI 99, expected " + std::to_string(TARTAN_BACKEND_ABI));
}

TEST_F(Registry, PluginForAnotherDevice) {
    COPY_TEST_PLUGIN();
    EXPECT_EXIT(search(folder, "device"), ::testing::ExitedWithCode(1), "serves another kind of device");
}

TEST_F(Registry, PluginIsFoundAndItsReasonPassedOn) {
    COPY_TEST_PLUGIN();
    EXPECT_EXIT(search(folder, "right"), ::testing::ExitedWithCode(0), "the plug-in of the tests has none");
}

TEST(RegistryTable, OtherDeviceTypesHaveNoBackend) {
    for (int32_t type : {-1, 0, 3, 12, 1000000}) {
        const char *reason = nullptr;
        EXPECT_EQ(nullptr, tartan_i_backend_find(type, &reason));
        EXPECT_STREQ("no such kind of device", reason);
        tartan_i_backend_install(type, nullptr);
    }
    const char *reason = nullptr;
    EXPECT_EQ(&tartan_i_backend_cpu, tartan_i_backend_find(TARTAN_CPU, &reason));
    EXPECT_STREQ("", reason);
}

} // namespace
