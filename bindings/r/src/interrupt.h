/* SPDX-License-Identifier: Apache-2.0
 * Interrupts and time limits of R during long calls of the library. */
#ifndef TARTAN_R_INTERRUPT_H
#define TARTAN_R_INTERRUPT_H

#include "fail.h"

/* Lets R stop calls of this context. */
SEXP tartan_r_let_interrupt(SEXP handle);

/* Goes on with the jump that made a call stop, if there is one: to the handler of the interrupt, or to the top level. */
void tartan_r_resume_jump(void);

#endif
