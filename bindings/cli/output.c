/* SPDX-License-Identifier: Apache-2.0
 * Files that are replaced atomically. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void release(output *o) {
    free(o->target), free(o->temporary);
    memset(o, 0, sizeof *o);
}

/* The permissions that fopen would set. */
static mode_t usual_mode(void) {
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static FILE *open_temporary(char *name, mode_t mode) {
    int descriptor = mkstemp(name);
    if (descriptor < 0) return NULL;
    FILE *stream = fchmod(descriptor, mode) == 0 ? fdopen(descriptor, "wb") : NULL;
    if (stream == NULL) {
        close(descriptor);
        unlink(name);
    }
    return stream;
}

bool output_open(const char *path, output *out) {
    static const char suffix[] = ".XXXXXX";
    struct stat about;
    bool exists = stat(path, &about) == 0, in_place = exists && !S_ISREG(about.st_mode);
    memset(out, 0, sizeof *out);
    /* Renaming onto a symbolic link would replace the link and leave its target unchanged. */
    out->target = exists && !in_place ? realpath(path, NULL) : strdup(path);
    if (out->target != NULL && in_place) {
        out->stream = fopen(path, "wb");
    } else if (out->target != NULL) {
        size_t length = strlen(out->target);
        out->temporary = malloc(length + sizeof suffix);
        if (out->temporary != NULL) {
            memcpy(out->temporary, out->target, length);
            memcpy(out->temporary + length, suffix, sizeof suffix);
            out->stream = open_temporary(out->temporary, exists ? about.st_mode & 07777 : usual_mode());
        }
    }
    if (out->stream != NULL) return true;
    complain("cannot write %s: %s", path, strerror(errno));
    release(out);
    return false;
}

int output_close(output *o, bool good) {
    errno = good ? 0 : errno;
    good = good && fflush(o->stream) == 0 && (o->temporary == NULL || fsync(fileno(o->stream)) == 0);
    int reason = errno;
    if (fclose(o->stream) != 0 && good) good = false, reason = errno;
    if (good && o->temporary != NULL && rename(o->temporary, o->target) != 0) good = false, reason = errno;
    if (!good) {
        if (o->temporary != NULL) unlink(o->temporary);
        complain("cannot write %s: %s", o->target, reason != 0 ? strerror(reason) : "out of memory");
    }
    release(o);
    return good ? EXIT_FINE : EXIT_FAILED;
}
