/* SPDX-License-Identifier: Apache-2.0
 * The checksum of HDF5's filter Fletcher-32, several times as fast as HDF5's own. */
#ifndef TARTAN_IO_FLETCHER_H
#define TARTAN_IO_FLETCHER_H

#include <stdint.h>

enum { TARTAN_I_FLETCHER_BYTES = 4 };

/* Of `size` bytes. HDF5 stores it after the data, least significant byte first. */
uint32_t tartan_i_fletcher32(const void *bytes, int64_t size);

#endif
