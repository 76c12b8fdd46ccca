/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Dtype and shape, as in "float32, 3 x 4". */
static void print_array(tartan_file *file, const char *name) {
    int64_t about[11] = {0};
    if (tartan_file_describe(file, name, about, 11) != TARTAN_OK) {
        printf("%s\n", tartan_last_error());
        return;
    }
    printf("%s, ", tartan_dtype_name((int32_t)about[1]));
    for (int64_t d = 0; d < about[2]; d++) printf("%s%lld", d == 0 ? "" : " x ", (long long)about[3 + d]);
    printf("%s\n", about[2] == 0 ? "a single number" : "");
}

static void list_objects(tartan_file *file, const char *path) {
    int64_t count = tartan_file_count(file);
    printf("%s: %lld object%s, %s\n", path, (long long)count, count == 1 ? "" : "s",
           tartan_file_sealed(file) ? "sealed" : "not sealed (written by another program)");
    for (int64_t i = 0; i < count; i++) {
        const char *name = tartan_file_name(file, i);
        const int32_t kind = tartan_file_kind(file, i);
        if (kind == TARTAN_KIND_ARRAY) {
            printf("  array   %-32s  ", name);
            print_array(file, name);
        } else {
            printf("  %-6s  %-32s  layout %.8s\n", kind == TARTAN_KIND_LAYOUT ? "layout" : "matrix", name,
                   tartan_file_layout_identity(file, i));
        }
    }
}

const char *only_name(tartan_file *file) {
    const char *name = tartan_file_name(file, 0);
    for (int64_t i = 1; i < tartan_file_count(file); i++)
        if (strcmp(tartan_file_name(file, i), name) != 0) return NULL;
    return name;
}

tartan_status find_layout(tartan_file *file, const char *name, tartan_layout **out) {
    const tartan_status status = tartan_file_get_layout(file, name, out);
    return status == TARTAN_ERR_NOT_FOUND ? tartan_file_get_matrix_layout(file, name, out) : status;
}

static void print_facts(const tartan_layout *layout, const char *name) {
    double spread[4] = {0};
    int64_t band[2] = {0};
    printf("%s: %lld x %lld, blocks %s %lld x %lld, %lld head%s\n", name,
           (long long)tartan_layout_rows(layout), (long long)tartan_layout_cols(layout),
           tartan_layout_is_variable(layout) == 1 ? "up to" : "of",
           (long long)tartan_layout_block_rows(layout), (long long)tartan_layout_block_cols(layout),
           (long long)tartan_layout_heads(layout), tartan_layout_heads(layout) == 1 ? "" : "s");
    printf("%lld blocks, density %.4f", (long long)tartan_layout_blocks(layout),
           tartan_layout_density(layout));
    if (tartan_layout_row_spread(layout, spread, 4) == TARTAN_OK)
        printf(", %g to %g per row (mean %.2f, deviation %.2f)", spread[0], spread[2], spread[1], spread[3]);
    if (tartan_layout_bandwidth(layout, band, 2) == TARTAN_OK)
        printf(", bandwidth %lld below, %lld above", (long long)band[0], (long long)band[1]);
    printf("\nidentity %s\n", tartan_layout_identity(layout));
    if (tartan_layout_recipe(layout)[0] != '\0') printf("recipe %s\n", tartan_layout_recipe(layout));
}

static int write_svg(const tartan_layout *layout, int64_t pixels, const char *path) {
    char *text;
    if (tartan_layout_svg(layout, (int32_t)pixels, &text) != TARTAN_OK) return complain_status("cannot draw");
    output out;
    int result = output_open(path, &out) ? output_close(&out, fputs(text, out.stream) >= 0) : EXIT_FAILED;
    tartan_text_free(text);
    return result;
}

static int draw(const arguments *a, int64_t pixels, const tartan_layout *layout, const char *name) {
    const char *svg = option_value(a, "svg", NULL), *png = option_value(a, "png", NULL);
    int result = EXIT_FINE;
    if (svg != NULL) result = write_svg(layout, pixels, svg);
    if (png != NULL && result == EXIT_FINE) result = write_layout_png(layout, pixels, png);
    if (svg != NULL || png != NULL) return result;
    struct winsize window = {0};
    int columns =
        ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col >= 20 ? window.ws_col - 2 : 78;
    print_facts(layout, name);
    return print_layout(layout, columns < 100 ? columns : 100, stdout);
}

/* One object by its name: an array has no layout to draw. */
static int show_object(const arguments *a, int64_t pixels, tartan_file *file, const char *name) {
    if (tartan_file_has(file, TARTAN_KIND_ARRAY, name) == 1 &&
        tartan_file_has(file, TARTAN_KIND_LAYOUT, name) != 1) {
        if (option_given(a, "svg") || option_given(a, "png"))
            return complain("%s: is an array, which has no layout to draw", name);
        printf("%s: array, ", name);
        print_array(file, name);
        return EXIT_FINE;
    }
    tartan_layout *layout = NULL;
    int result = EXIT_FAILED;
    if (find_layout(file, name, &layout) == TARTAN_OK)
        result = draw(a, pixels, layout, name);
    else
        complain_status("cannot show");
    tartan_layout_free(layout);
    return result;
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {
        {"svg", false, false}, {"png", false, false}, {"pixels", false, false}, {NULL, false, false}};
    arguments a;
    int code;
    if (!parse_arguments(&command_show, specs, argc, argv, &a, &code)) return code;
    if (a.positional_count < 1 || a.positional_count > 2) return show_usage(&command_show);
    int64_t pixels;
    if (!option_integer(&a, "pixels", 800, &pixels)) return EXIT_USAGE;
    if (pixels < 16 || pixels > 4096)
        return complain_usage("--pixels is %lld, expected 16 to 4096", (long long)pixels);
    tartan_file *file = NULL;
    if (tartan_file_open(a.positional[0], &file) != TARTAN_OK) return complain_status("cannot open");
    int result = EXIT_FAILED;
    const char *name = a.positional_count == 2 ? a.positional[1] : only_name(file);
    if (name == NULL && (option_given(&a, "svg") || option_given(&a, "png"))) {
        list_objects(file, a.positional[0]);
        result = complain_usage("%s has several objects, or none: choose the one to draw", a.positional[0]);
    } else if (name == NULL) {
        list_objects(file, a.positional[0]);
        result = EXIT_FINE;
    } else {
        result = show_object(&a, pixels, file, name);
    }
    tartan_file_free(file);
    return result;
}

const command command_show = {
    "show", "list a file, or draw one of its layouts",
    "Usage: tartan show FILE [NAME] [--svg FILE] [--png FILE] [--pixels N]\n\n"
    "Without NAME, lists the objects of the file (or shows its only one). With the NAME of a layout or a\n"
    "matrix, prints properties and a picture of the layout; with the NAME of an array, its dtype and "
    "shape.\n\n"
    "  --svg FILE   write the picture as SVG instead\n"
    "  --png FILE   write the picture as PNG instead\n"
    "  --pixels N   width of the picture, 16 to 4096 (default 800)\n",
    run};
