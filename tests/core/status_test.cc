// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <cstring>
#include <set>
#include <thread>

extern "C" {
#include "core/status.h"
}

namespace {

TEST(Status, EveryCodeHasItsOwnNameAndText) {
    std::set<std::string> names, texts;
    std::set<int> codes;
#define COLLECT(name, code, text)                                                                            \
    names.insert(tartan_status_name(code)), texts.insert(tartan_status_text(code)), codes.insert(code);      \
    EXPECT_STREQ(#name, tartan_status_name(code));
    TARTAN_STATUS_LIST(COLLECT)
    EXPECT_EQ(codes.size(), names.size());
    EXPECT_EQ(codes.size(), texts.size());
    EXPECT_STREQ("UNKNOWN", tartan_status_name(17));
    EXPECT_STREQ("unknown status", tartan_status_text(-99));
}

TEST(Status, TextIsPerThread) {
    tartan_i_fail(TARTAN_ERR_SHAPE, "here", "%d", 1);
    std::string elsewhere = "?";
    std::thread([&] {
        elsewhere = tartan_last_error();
        tartan_i_fail(TARTAN_ERR_SHAPE, "there", "%d", 2);
    }).join();
    EXPECT_EQ("", elsewhere);
    EXPECT_STREQ("here: 1", tartan_last_error());
}

TEST(Status, LongTextIsCut) {
    tartan_i_fail(TARTAN_ERR_SHAPE, "f", "%s", std::string(5000, 'x').c_str());
    EXPECT_EQ(1023u, std::strlen(tartan_last_error()));
}

TEST(Status, VersionsAgree) {
    EXPECT_STREQ("0.1.0", tartan_version());
    EXPECT_EQ(TARTAN_ABI_VERSION, tartan_abi_version());
}

} // namespace
