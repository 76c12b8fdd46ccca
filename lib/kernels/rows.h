/* SPDX-License-Identifier: Apache-2.0
 * The kernels on rows of one instruction set and sum type, which its KERNELS_FILL puts into the table. */
#ifndef TARTAN_KERNELS_ROWS_H
#define TARTAN_KERNELS_ROWS_H

#include "kernels/kernels.h"
#include "simd/real.h"

void ROWS_FILL(tartan_i_kernels *kernels);
void POINTS_FILL(tartan_i_kernels *kernels);
void FUSED_FILL(tartan_i_kernels *kernels);
void UPDATES_FILL(tartan_i_kernels *kernels);
void NORMS_FILL(tartan_i_kernels *kernels);
void STEPS_FILL(tartan_i_kernels *kernels);

#endif
