/* SPDX-License-Identifier: Apache-2.0 */
#include "interrupt.h"

#include "handles.h"

#include <setjmp.h>

/* An interrupt or an error (a time limit) leaves R's check by a long jump, which may not pass the library, whose threads
 * would go on. The jump is caught, waits until the library has returned INTERRUPTED, and goes on then. */
static SEXP waiting = NULL; /* the jump */
static int jumps = 0;       /* whether there is one */

static SEXP check(void *unused) {
    (void)unused;
    R_CheckUserInterrupt();
    return R_NilValue;
}

static void leave(void *caught, Rboolean jump) {
    if (jump) longjmp(*(jmp_buf *)caught, 1);
}

static int32_t ask(void *unused) {
    jmp_buf caught;
    (void)unused;
    if (setjmp(caught)) {
        jumps = 1;
        return 1;
    }
    R_UnwindProtect(check, NULL, leave, &caught, waiting);
    return 0;
}

SEXP tartan_r_let_interrupt(SEXP handle) {
    if (waiting == NULL) {
        waiting = R_MakeUnwindCont();
        R_PreserveObject(waiting);
    }
    tartan_r_check(tartan_context_set_interrupt(tartan_r_address(handle, "tartan_context"), ask, NULL));
    return R_NilValue;
}

void tartan_r_resume_jump(void) {
    if (!jumps) return;
    jumps = 0;
    R_ContinueUnwind(waiting);
}
