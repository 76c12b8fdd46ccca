/* SPDX-License-Identifier: Apache-2.0
 * A layout as SVG. Lengths are integers (thousandths if a fraction is needed), so the text does not depend on the
 * locale. */
#include "layout/layout.h"

#include <string.h>

enum { MAX_CELLS = 512, MAX_DRAWN = 64, SHADES = 8, GAP = 6 };

/* How the heads are drawn. A cell is one block, or several if there are too many. */
typedef struct drawing {
    const tartan_layout *layout;
    int64_t heads;                    /* heads that are drawn */
    int64_t step_rows, step_cols;     /* blocks per cell */
    int64_t cells_down, cells_across; /* of a head */
    int64_t width, height;            /* of a head, in pixels */
} drawing;

static int64_t at_most(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static drawing measure(const tartan_layout *l, int64_t pixels) {
    drawing p = {.layout = l};
    p.heads = at_most(at_most(l->shape.heads, MAX_DRAWN), pixels / 16);
    p.width = (pixels - (p.heads - 1) * GAP) / p.heads;
    p.step_rows = tartan_i_ceil_div(l->grid_rows + (l->grid_rows == 0), MAX_CELLS);
    p.step_cols = tartan_i_ceil_div(l->grid_cols + (l->grid_cols == 0), MAX_CELLS);
    p.cells_down = tartan_i_ceil_div(l->grid_rows, p.step_rows);
    p.cells_across = tartan_i_ceil_div(l->grid_cols, p.step_cols);
    /* The proportions of the matrix, but not too thin. */
    double height = l->shape.cols == 0 ? 1 : (double)p.width * (double)l->shape.rows / (double)l->shape.cols;
    double low = (double)p.width / 8, high = (double)p.width * 8;
    p.height = (int64_t)((height < low ? low : height > high ? high : height) + 0.5);
    if (p.height < 1) p.height = 1;
    return p;
}

/* Counts the stored blocks of each cell of a head and turns the counts into shades 0 .. SHADES. */
static void shade_cells(const drawing *p, int64_t head, int64_t *cells) {
    const tartan_layout *l = p->layout;
    memset(cells, 0, (size_t)(p->cells_down * p->cells_across) * sizeof *cells);
    int64_t end = l->row_pointers[(head + 1) * l->grid_rows];
    for (int64_t id = l->row_pointers[head * l->grid_rows]; id < end; id++)
        cells[l->block_rows[id] / p->step_rows * p->cells_across + l->block_cols[id] / p->step_cols]++;
    for (int64_t i = 0; i < p->cells_down; i++)
        for (int64_t j = 0; j < p->cells_across; j++) {
            int64_t down = at_most(l->grid_rows - i * p->step_rows, p->step_rows);
            int64_t across = at_most(l->grid_cols - j * p->step_cols, p->step_cols);
            int64_t *cell = &cells[i * p->cells_across + j];
            /* In f64, since the product of counts may be large; a cell with any block is visible. */
            double part = (double)*cell / ((double)down * (double)across) * SHADES;
            *cell = (int64_t)part + ((double)(int64_t)part < part);
        }
}

/* Where cell i begins in the drawing, whose unit is a cell or, with blocks of different sizes, an element. */
static int64_t cell_begin(const int64_t *bounds, int64_t grid, int64_t step, int64_t i) {
    if (bounds == NULL) return i;
    return bounds[at_most(i * step, grid)];
}
static int64_t across(const drawing *p, int64_t j) {
    return cell_begin(p->layout->col_bounds, p->layout->grid_cols, p->step_cols, j);
}
static int64_t down(const drawing *p, int64_t i) {
    return cell_begin(p->layout->row_bounds, p->layout->grid_rows, p->step_rows, i);
}

/* One path for all cells of a shade, made of runs along rows. */
static void draw_shade(const drawing *p, const int64_t *cells, int64_t shade, tartan_i_text *text) {
    bool begun = false;
    for (int64_t i = 0; i < p->cells_down; i++)
        for (int64_t j = 0, end; j < p->cells_across; j = end) {
            const int64_t *row = cells + i * p->cells_across;
            for (end = j + 1; end < p->cells_across && row[end] == row[j];) end++;
            if (row[j] != shade) continue;
            if (!begun && shade < SHADES)
                tartan_i_text_add(text, "<path fill-opacity=\"0.%03" PRId64 "\" d=\"", shade * 1000 / SHADES);
            else if (!begun)
                tartan_i_text_add(text, "<path d=\"");
            begun = true;
            const int64_t x = across(p, j), y = down(p, i), width = across(p, end) - x;
            tartan_i_text_add(text, "M%" PRId64 " %" PRId64 "h%" PRId64 "v%" PRId64 "h-%" PRId64 "z", x, y,
                              width, down(p, i + 1) - y, width);
        }
    if (begun) tartan_i_text_add(text, "\"/>\n");
}

static void draw_head(const drawing *p, int64_t head, int64_t *cells, tartan_i_text *text) {
    int64_t x = head * (p->width + GAP);
    tartan_i_text_add(text, "<svg x=\"%" PRId64 "\" y=\"0\" width=\"%" PRId64 "\" height=\"%" PRId64 "\"", x,
                      p->width, p->height);
    tartan_i_text_add(text, " viewBox=\"0 0 %" PRId64 " %" PRId64 "\" preserveAspectRatio=\"none\">\n",
                      across(p, p->cells_across) + (p->cells_across == 0),
                      down(p, p->cells_down) + (p->cells_down == 0));
    shade_cells(p, head, cells);
    for (int64_t shade = 1; shade <= SHADES; shade++) draw_shade(p, cells, shade, text);
    tartan_i_text_add(text, "</svg>\n");
    tartan_i_text_add(text,
                      "<rect x=\"%" PRId64 ".5\" y=\"0.5\" width=\"%" PRId64 "\" height=\"%" PRId64
                      "\" fill=\"none\" stroke=\"#808080\"/>\n",
                      x, p->width - 1, p->height - (p->height > 1));
}

static void draw_title(const drawing *p, tartan_i_text *text) {
    const tartan_layout *l = p->layout;
    int64_t permille = (int64_t)(tartan_layout_density(l) * 1000 + 0.5);
    tartan_i_text_add(text,
                      "<title>%" PRId64 " x %" PRId64 ", blocks %s%" PRId64 " x %" PRId64 ": %" PRId64
                      " blocks stored, %" PRId64 ".%" PRId64 "%%",
                      l->shape.rows, l->shape.cols, tartan_i_is_variable(l) ? "up to " : "",
                      l->shape.block_rows, l->shape.block_cols, l->blocks, permille / 10, permille % 10);
    if (l->shape.heads > 1) tartan_i_text_add(text, ", %" PRId64 " heads", l->shape.heads);
    if (p->heads < l->shape.heads) tartan_i_text_add(text, ", the first %" PRId64 " drawn", p->heads);
    tartan_i_text_add(text, "</title>\n");
}

tartan_status tartan_layout_svg(const tartan_layout *layout, int32_t pixels, char **out_text) {
    tartan_status status;
    int64_t *cells = NULL;
    tartan_i_text text = {0};
    CHECK_OUT(out_text);
    CHECK_HOST_LAYOUT(layout);
    CHECK(pixels >= 16 && pixels <= 4096, ARGUMENT, "pixels is %" PRId32 ", expected 16 .. 4096", pixels);
    drawing p = measure(layout, pixels);
    NEW(cells, p.cells_down * p.cells_across);

    tartan_i_text_add(&text,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRId32 "\" height=\"%" PRId64
                      "\" viewBox=\"0 0 %" PRId32 " %" PRId64
                      "\" shape-rendering=\"crispEdges\" fill=\"#1f4e79\">\n",
                      pixels, p.height, pixels, p.height);
    draw_title(&p, &text);
    tartan_i_text_add(&text, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
    for (int64_t head = 0; head < p.heads; head++) draw_head(&p, head, cells, &text);
    tartan_i_text_add(&text, "</svg>\n");
    TRY(text.status);
    tartan_i_free(cells);
    *out_text = text.data;
    return TARTAN_OK;
fail:
    tartan_i_free(cells);
    tartan_i_free(text.data);
    return status;
}
