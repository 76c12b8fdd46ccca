/* SPDX-License-Identifier: Apache-2.0
 * A tartan_status never reaches a user: OK becomes "nothing", all else an exception (a condition in R) of a
 * class chosen by the code, with the text of tartan_last_error().
 *
 * A language file defines two C macros in its %{ %} block:
 *     TARTAN_RAISE(status)   raises and leaves the wrapper, or long-jumps
 *     TARTAN_NOTHING         the value that stands for no result */
%typemap(out) tartan_status {
    if ($1 != TARTAN_OK) TARTAN_RAISE($1);
    $result = TARTAN_NOTHING;
}
