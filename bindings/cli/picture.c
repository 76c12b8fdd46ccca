/* SPDX-License-Identifier: Apache-2.0
 * Pictures of layouts: braille text for terminals, PNG. (SVG comes from the library.) */
#include "cli.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

/* Share of stored blocks in each cell of a height x width raster laid over one head's grid. */
static bool make_raster(const tartan_layout *layout, int64_t head, int64_t height, int64_t width, float *raster) {
    int64_t rows = tartan_layout_grid_rows(layout), cols = tartan_layout_grid_cols(layout);
    const int64_t *pointers = tartan_layout_row_pointers(layout) + head * rows;
    const int32_t *block_cols = tartan_layout_col_indices(layout);
    memset(raster, 0, sizeof *raster * (size_t)(height * width));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t w = pointers[i]; w < pointers[i + 1]; w++) {
            /* A block covers one or many cells where the raster is finer, a part of one where it is coarser. */
            int64_t top = i * height / rows, bottom = (i + 1) * height / rows;
            int64_t left = block_cols[w] * width / cols, right = (block_cols[w] + (int64_t)1) * width / cols;
            if (bottom == top) bottom = top + 1;
            if (right == left) right = left + 1;
            for (int64_t y = top; y < bottom; y++)
                for (int64_t x = left; x < right; x++) raster[y * width + x] += 1;
        }
    float full = (float)(height < rows ? (double)rows / (double)height : 1) *
                 (float)(width < cols ? (double)cols / (double)width : 1);
    for (int64_t i = 0; i < height * width; i++) raster[i] = raster[i] / full > 1 ? 1 : raster[i] / full;
    return true;
}

/* The UTF-8 form of U+2800 + dots; bit of the dot at (row, column) of its 4 x 2 cell. */
static void print_braille(unsigned dots, FILE *out) {
    unsigned code = 0x2800 + dots;
    fprintf(out, "%c%c%c", (int)(0xe0 | code >> 12), (int)(0x80 | (code >> 6 & 0x3f)), (int)(0x80 | (code & 0x3f)));
}

static const unsigned char dot_bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

int print_layout(const tartan_layout *layout, int width, FILE *out) {
    int64_t rows = tartan_layout_grid_rows(layout), cols = tartan_layout_grid_cols(layout);
    if (rows == 0 || cols == 0) {
        fprintf(out, "(empty grid)\n");
        return EXIT_FINE;
    }
    int64_t dots_wide = cols < 2 * (int64_t)width ? cols : 2 * (int64_t)width;
    int64_t dots_high = rows * dots_wide / cols;
    if (dots_high < 1) dots_high = 1;
    if (dots_high > rows) dots_high = rows;
    float *raster = malloc(sizeof *raster * (size_t)(dots_high * dots_wide));
    if (raster == NULL) return complain("out of memory for a picture");
    for (int64_t head = 0; head < tartan_layout_heads(layout); head++) {
        make_raster(layout, head, dots_high, dots_wide, raster);
        for (int64_t y = 0; y < dots_high; y += 4) {
            for (int64_t x = 0; x < dots_wide; x += 2) {
                unsigned dots = 0;
                for (int64_t dy = 0; dy < 4 && y + dy < dots_high; dy++)
                    for (int64_t dx = 0; dx < 2 && x + dx < dots_wide; dx++)
                        if (raster[(y + dy) * dots_wide + x + dx] > 0) dots |= dot_bits[dy][dx];
                print_braille(dots, out);
            }
            fputc('\n', out);
        }
        if (head + 1 < tartan_layout_heads(layout)) fputc('\n', out);
    }
    free(raster);
    return EXIT_FINE;
}

int write_layout_png(const tartan_layout *layout, int64_t pixels, const char *path) {
    int64_t rows = tartan_layout_grid_rows(layout), cols = tartan_layout_grid_cols(layout);
    if (rows == 0 || cols == 0) return complain("the grid is empty: nothing to draw");
    int64_t heads = tartan_layout_heads(layout);
    int64_t height = pixels * rows / cols > 0 ? pixels * rows / cols : 1;
    if (height > 16 * pixels || heads * height > 1 << 20) return complain("the picture would be %lld pixels high", (long long)(heads * height));
    float *raster = malloc(sizeof *raster * (size_t)(height * pixels));
    unsigned char *image = malloc((size_t)(heads * height * pixels));
    int result = EXIT_FAILED;
    if (raster == NULL || image == NULL) {
        complain("out of memory for a picture");
        goto done;
    }
    for (int64_t head = 0; head < heads; head++) {
        make_raster(layout, head, height, pixels, raster);
        /* White paper; a stored block is dark blue-grey, a share of one lighter. */
        for (int64_t i = 0; i < height * pixels; i++)
            image[head * height * pixels + i] = (unsigned char)(255 - 215 * raster[i]);
    }
    png_image png = {.version = PNG_IMAGE_VERSION, .width = (png_uint_32)pixels,
                     .height = (png_uint_32)(heads * height), .format = PNG_FORMAT_GRAY};
    if (png_image_write_to_file(&png, path, 0, image, 0, NULL))
        result = EXIT_FINE;
    else
        complain("cannot write %s: %s", path, png.message);
done:
    free(image);
    free(raster);
    return result;
}
