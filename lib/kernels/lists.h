/* SPDX-License-Identifier: Apache-2.0
 * The kernel on lists of blocks of one instruction set and sum type, which its KERNELS_FILL puts into the table. */
#ifndef TARTAN_KERNELS_LISTS_H
#define TARTAN_KERNELS_LISTS_H

#include "kernels/kernels.h"
#include "simd/real.h"

void LISTS_FILL(tartan_i_kernels *kernels);

#endif
