/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_LAYOUT_IDENTITY_H
#define TARTAN_LAYOUT_IDENTITY_H

#include "layout/layout.h"

/* Fills layout->identity from its frame and row lists. */
void tartan_i_layout_identify(tartan_layout *layout);

#endif
