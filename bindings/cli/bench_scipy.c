/* SPDX-License-Identifier: Apache-2.0
 * scipy as a peer: a Python process that is asked for one product at a time. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct scipy {
    pid_t process;
    FILE *to, *from;
};

/* Reads a line: "ready", seconds, or "error" and what is wrong, which is kept as the reason. */
static bool read_reply(scipy *s, char *line, int size) {
    if (fgets(line, size, s->from) == NULL) {
        snprintf(line, (size_t)size, "Python ended without an answer");
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "error ", 6) != 0) return true;
    memmove(line, line + 6, strlen(line + 6) + 1);
    return false;
}

static const char *script_path(void) {
    const char *script = getenv("TARTAN_SCIPY_PEER");
    return script != NULL && script[0] != '\0' ? script : TARTAN_SCIPY_PEER_PATH;
}

static bool send_layout(scipy *s, const tartan_layout *layout) {
    size_t pointers = (size_t)tartan_layout_grid_rows(layout) + 1,
           blocks = (size_t)tartan_layout_blocks(layout);
    return fwrite(tartan_layout_row_pointers(layout), sizeof(int64_t), pointers, s->to) == pointers &&
           fwrite(tartan_layout_col_indices(layout), sizeof(int32_t), blocks, s->to) == blocks &&
           fflush(s->to) == 0;
}

static void run_python(const bench_case *c, const tartan_layout *layout, int in, int out) {
    char text[7][32];
    const int64_t numbers[] = {c->m, c->k, c->n, c->block, tartan_layout_blocks(layout)};
    for (int i = 0; i < 5; i++) snprintf(text[i], sizeof text[i], "%lld", (long long)numbers[i]);
    const char *python = getenv("PYTHON");
    if (python == NULL || python[0] == '\0') python = "python3";
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    execlp(python, python, script_path(), text[0], text[1], text[2], text[3], text[4],
           tartan_dtype_name(c->dtype), (char *)NULL);
    dprintf(STDOUT_FILENO, "error %s: %s\n", python, strerror(errno));
    _exit(127);
}

scipy *scipy_start(const bench_case *c, const tartan_layout *layout, char *reason) {
    int to[2], from[2];
    snprintf(reason, REASON_ROOM, "the Python process could not be started");
    if (c->m % c->block != 0 || c->k % c->block != 0) {
        snprintf(reason, REASON_ROOM, "scipy needs sizes that are multiples of the block");
        return NULL;
    }
    if (access(script_path(), R_OK) != 0) {
        snprintf(reason, REASON_ROOM,
                 "TARTAN_SCIPY_PEER does not name scipy_peer.py, and it is not installed");
        return NULL;
    }
    scipy *s = calloc(1, sizeof *s);
    if (s == NULL || pipe(to) != 0) {
        free(s);
        return NULL;
    }
    if (pipe(from) != 0) {
        close(to[0]), close(to[1]);
        free(s);
        return NULL;
    }
    s->process = fork();
    if (s->process == 0) {
        close(to[1]), close(from[0]);
        run_python(c, layout, to[0], from[1]);
    }
    close(to[0]), close(from[1]);
    s->to = fdopen(to[1], "wb");
    s->from = fdopen(from[0], "rb");
    bool started = s->process > 0 && s->to != NULL && s->from != NULL;
    bool sent = started && send_layout(s, layout);
    if (started && read_reply(s, reason, REASON_ROOM) && sent) return s;
    scipy_stop(s);
    return NULL;
}

bool scipy_time(scipy *s, const char *format, double *out_seconds) {
    char line[REASON_ROOM];
    if (fprintf(s->to, "%s\n", format) < 0 || fflush(s->to) != 0 || !read_reply(s, line, sizeof line))
        return false;
    *out_seconds = strtod(line, NULL);
    return *out_seconds > 0;
}

void scipy_stop(scipy *s) {
    if (s == NULL) return;
    if (s->to != NULL) fclose(s->to); /* its input ends, so it leaves */
    if (s->from != NULL) fclose(s->from);
    if (s->process > 0) waitpid(s->process, NULL, 0);
    free(s);
}
