// SPDX-License-Identifier: Apache-2.0
// Intercepts the library's request to the system for AMX tiles: link system_tiles.cc with --wrap=syscall.
#ifndef TARTAN_TESTS_SYSTEM_TILES_H
#define TARTAN_TESTS_SYSTEM_TILES_H

namespace tartan_test {

enum class Tiles {
    kAsItIs,  // the system answers
    kUnknown, // a system before Linux 5.16, or a system call filter: EINVAL
    kMissing, // the system knows the question and has no tiles
    kRefused, // there are tiles, but not for this process: EPERM
};
extern Tiles system_tiles;
extern int tiles_asked_for; // how often the library asked for permission

} // namespace tartan_test

#endif
