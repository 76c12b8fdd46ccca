/* SPDX-License-Identifier: Apache-2.0
 * Pictures of layouts: braille text for terminals, PNG. (SVG comes from the library.) */
#include "cli.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

/* The share of stored blocks in each cell of a height x width raster over one head's grid. */
static void make_raster(const tartan_layout *layout, int64_t head, int64_t height, int64_t width,
                        float *raster) {
    int64_t rows = tartan_layout_grid_rows(layout), cols = tartan_layout_grid_cols(layout);
    const int64_t *pointers = tartan_layout_row_pointers(layout) + head * rows;
    const int32_t *block_cols = tartan_layout_col_indices(layout);
    memset(raster, 0, sizeof *raster * (size_t)(height * width));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t w = pointers[i]; w < pointers[i + 1]; w++) {
            /* A block covers one or more cells if the raster is finer than the grid, part of a cell if it is
             * coarser. */
            int64_t top = i * height / rows, bottom = (i + 1) * height / rows;
            int64_t left = block_cols[w] * width / cols, right = (block_cols[w] + (int64_t)1) * width / cols;
            if (bottom == top) bottom = top + 1;
            if (right == left) right = left + 1;
            for (int64_t y = top; y < bottom; y++)
                for (int64_t x = left; x < right; x++) raster[y * width + x] += 1;
        }
    float full = (float)(height < rows ? (double)rows / (double)height : 1) *
                 (float)(width < cols ? (double)cols / (double)width : 1);
    for (int64_t i = 0; i < height * width; i++) raster[i] = raster[i] > full ? 1 : raster[i] / full;
}

/* ---- Text ---- */

/* The UTF-8 form of U+2800 + dots; bit of the dot at (row, column) of its 4 x 2 cell. */
static void print_braille(unsigned dots, FILE *out) {
    unsigned code = 0x2800 + dots;
    fprintf(out, "%c%c%c", (int)(0xe0 | code >> 12), (int)(0x80 | (code >> 6 & 0x3f)),
            (int)(0x80 | (code & 0x3f)));
}

static void print_raster(const float *raster, int64_t height, int64_t width, FILE *out) {
    static const unsigned char dot_bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    for (int64_t y = 0; y < height; y += 4) {
        for (int64_t x = 0; x < width; x += 2) {
            unsigned dots = 0;
            for (int64_t dy = 0; dy < 4 && y + dy < height; dy++)
                for (int64_t dx = 0; dx < 2 && x + dx < width; dx++)
                    if (raster[(y + dy) * width + x + dx] > 0) dots |= dot_bits[dy][dx];
            print_braille(dots, out);
        }
        fputc('\n', out);
    }
}

int print_layout(const tartan_layout *layout, int width, FILE *out) {
    enum { MAX_HEADS = 8 };
    int64_t rows = tartan_layout_grid_rows(layout), cols = tartan_layout_grid_cols(layout);
    int64_t heads = tartan_layout_heads(layout), shown = heads < MAX_HEADS ? heads : MAX_HEADS;
    if (rows == 0 || cols == 0) {
        fprintf(out, "(empty grid)\n");
        return EXIT_FINE;
    }
    /* One dot per block, or as wide as fits; never more lines than characters per line. */
    int64_t wide = cols < 2 * (int64_t)width ? cols : 2 * (int64_t)width;
    int64_t high = rows * wide / cols < 4 * (int64_t)width ? rows * wide / cols : 4 * (int64_t)width;
    if (high < 1) high = 1;
    float *raster = malloc(sizeof *raster * (size_t)(high * wide));
    if (raster == NULL) return complain("out of memory for a picture");
    for (int64_t head = 0; head < shown; head++) {
        if (head > 0) fputc('\n', out);
        make_raster(layout, head, high, wide, raster);
        print_raster(raster, high, wide, out);
    }
    if (shown < heads) fprintf(out, "(and %lld more heads)\n", (long long)(heads - shown));
    free(raster);
    return EXIT_FINE;
}

/* ---- PNG ---- */

enum { CHANNELS = 3, GAP = 6, MAX_PANELS = 64 };

/* The library's SVG has the same panels and proportions. */
typedef struct panels {
    int64_t count, width, height;
} panels;

static panels place_panels(const tartan_layout *layout, int64_t pixels) {
    int64_t heads = tartan_layout_heads(layout), room = pixels / 16;
    panels p = {.count = heads < MAX_PANELS ? heads : MAX_PANELS};
    if (p.count > room) p.count = room;
    p.width = (pixels - (p.count - 1) * GAP) / p.count;
    double rows = (double)tartan_layout_rows(layout), cols = (double)tartan_layout_cols(layout);
    double width = (double)p.width, height = cols > 0 ? width * rows / cols : 1;
    p.height = (int64_t)((height < width / 8 ? width / 8 : height > width * 8 ? width * 8 : height) + 0.5);
    return p;
}

/* White background in a grey frame; stored blocks are dark blue, cells with fewer blocks lighter, but a single cell with one block
 * can be seen. */
static void paint(const float *raster, const panels *p, int64_t pixels, int64_t head, unsigned char *image) {
    static const int ink[CHANNELS] = {0x1f, 0x4e, 0x79};
    for (int64_t y = 0; y < p->height; y++)
        for (int64_t x = 0; x < p->width; x++) {
            float share = raster[y * p->width + x];
            if (share > 0 && share < 0.5F) share = 0.4F + share / 5;
            bool frame = y == 0 || y == p->height - 1 || x == 0 || x == p->width - 1;
            unsigned char *pixel = image + (y * pixels + head * (p->width + GAP) + x) * CHANNELS;
            for (int c = 0; c < CHANNELS; c++)
                pixel[c] = frame ? 0x80 : (unsigned char)(255.5F - share * (float)(255 - ink[c]));
        }
}

static int write_png(const png_image *about, const unsigned char *image, const char *path) {
    png_image png = *about;
    output out;
    if (!output_open(path, &out)) return EXIT_FAILED;
    return output_close(&out, png_image_write_to_stdio(&png, out.stream, 0, image, 0, NULL) != 0);
}

int write_layout_png(const tartan_layout *layout, int64_t pixels, const char *path) {
    panels p = place_panels(layout, pixels);
    bool empty = tartan_layout_grid_rows(layout) == 0 || tartan_layout_grid_cols(layout) == 0;
    float *raster = calloc((size_t)(p.height * p.width), sizeof *raster);
    unsigned char *image = malloc((size_t)(p.height * pixels * CHANNELS));
    int result = EXIT_FAILED;
    if (raster == NULL || image == NULL) {
        complain("out of memory for a picture");
    } else {
        memset(image, 255, (size_t)(p.height * pixels * CHANNELS));
        for (int64_t head = 0; head < p.count; head++) {
            if (!empty) make_raster(layout, head, p.height, p.width, raster);
            paint(raster, &p, pixels, head, image);
        }
        const png_image png = {.version = PNG_IMAGE_VERSION,
                               .width = (png_uint_32)pixels,
                               .height = (png_uint_32)p.height,
                               .format = PNG_FORMAT_RGB};
        result = write_png(&png, image, path);
    }
    free(image);
    free(raster);
    return result;
}
