/* ckpt/weights_tensor.c: one published tensor from its file to where its values go, through a block. */
#include "ckpt/weights.h"

#include <math.h>
#include <string.h>

#include "base/nearest.h"

tl_status tl_weights_fail_infinite(const tl_weights_passage *way, tl_error *error) {
    const char *name = way->tensor->name;
    char quoted[128];
    return tl_fail(error, TL_ERR_DTYPE, "%s: %s holds a value that %s cannot; %s", way->from,
                   tl_quotable(name, strlen(name), quoted, sizeof quoted), tl_dtype_name(way->to),
                   way->to == TL_F16 ? "a net of f32 or bf16 would take it"
                                     : "bf16 and f32 reach to 3.4e38, so the file or its scales are damaged");
}

/* A piece of a tensor as the file has it, `rows` × `columns` from (row, column) on. A row that is too wide for the block comes
 * in several. */
typedef struct piece {
    int64_t row, column, rows, columns;
} piece;

/* Through the block: converted, and turned where the file has [in, out]. Without turning all is one long row. */
static tl_status read_piece(const tl_weights_passage *way, const piece *at, int64_t columns, int64_t all,
                            tl_error *error) {
    const tl_safetensors_tensor *t = way->tensor;
    int from_bytes = tl_dtype_bytes(t->dtype), to_bytes = tl_dtype_bytes(way->to);
    int64_t first = at->row * columns + at->column, n = at->rows * at->columns;
    char *out = way->turned ? way->block + way->half : way->data + first * to_bytes;
    tl_status status = tl_safetensors_read(way->file, t, first * from_bytes, way->block, n * from_bytes, error);
    if (status != TL_OK)
        return status;
    if (!tl_weights_convert(way->block, t->dtype, out, way->to, n))
        return tl_weights_fail_infinite(way, error);
    if (way->turned)
        tl_weights_scatter(out, at->rows, at->columns, way->data + (at->column * all + at->row) * to_bytes, all,
                           to_bytes);
    return TL_OK;
}

static tl_status read_converted(const tl_weights_passage *way, tl_error *error) {
    const tl_safetensors_tensor *t = way->tensor;
    int64_t all = way->turned ? t->dim[0] : 1, columns = way->turned ? t->dim[1] : t->count;
    int from_bytes = tl_dtype_bytes(t->dtype), to_bytes = tl_dtype_bytes(way->to);
    int64_t values = way->half / (from_bytes > to_bytes ? from_bytes : to_bytes);
    int64_t rows = columns > 0 && values / columns > 1 ? values / columns : 1, width = rows > 1 ? columns : values;
    tl_status status = TL_OK;
    for (int64_t row = 0; row < all && status == TL_OK; row += rows)
        for (int64_t column = 0; column < columns && status == TL_OK; column += width) {
            piece at = {row, column, all - row < rows ? all - row : rows,
                        columns - column < width ? columns - column : width};
            status = read_piece(way, &at, columns, all, error);
        }
    return status;
}

/* Rows of one row of blocks: value · scale in f32, then as the net has it. The block of memory: an eighth of its first half is
 * the file's fp8, the rest of it scales; in the other half what is on its way to f32. Half as many floats fit as there are
 * values, so that a scale for each would, too. */
static tl_status read_scaled_piece(const tl_weights_passage *way, const piece *at, tl_error *error) {
    const tl_safetensors_tensor *t = way->tensor, *s = way->scale;
    int64_t first = at->row * t->dim[1] + at->column, n = at->rows * at->columns;
    int64_t from = at->column / TL_WEIGHTS_FP8_BLOCK,
            scales = (at->column + at->columns - 1) / TL_WEIGHTS_FP8_BLOCK - from + 1;
    int scale_bytes = tl_dtype_bytes(s->dtype);
    float *scale = (float *)(void *)(way->block + way->half / 2), *wide = (float *)(void *)(way->block + way->half);
    tl_status status =
        tl_safetensors_read(way->scale_file, s, (at->row / TL_WEIGHTS_FP8_BLOCK * s->dim[1] + from) * scale_bytes, wide,
                            scales * scale_bytes, error);
    if (status == TL_OK)
        status = tl_safetensors_read(way->file, t, first, way->block, n, error);
    if (status != TL_OK)
        return status;
    bool finite = tl_weights_convert(wide, s->dtype, scale, TL_F32, scales);
    finite = tl_weights_convert(way->block, t->dtype, wide, TL_F32, n) && finite;
    for (int64_t row = 0; row < at->rows; row++)
        for (int64_t column = 0; column < at->columns; column++) {
            float *value = &wide[row * at->columns + column], before = *value;
            *value = before * scale[(at->column + column) / TL_WEIGHTS_FP8_BLOCK - from];
            finite = finite && (!isinf(*value) || isinf(before));
        }
    finite = tl_weights_convert(wide, TL_F32, way->data + first * tl_dtype_bytes(way->to), way->to, n) && finite;
    return finite ? TL_OK : tl_weights_fail_infinite(way, error);
}

static tl_status read_scaled(const tl_weights_passage *way, tl_error *error) {
    int64_t all = way->tensor->dim[0], columns = way->tensor->dim[1], values = way->half / 8;
    int64_t width = columns < values ? columns : values;
    tl_status status = TL_OK;
    for (int64_t row = 0, rows; row < all && columns > 0 && status == TL_OK; row += rows) {
        rows = values / width < TL_WEIGHTS_FP8_BLOCK - row % TL_WEIGHTS_FP8_BLOCK
                   ? values / width
                   : TL_WEIGHTS_FP8_BLOCK - row % TL_WEIGHTS_FP8_BLOCK;
        rows = width < columns ? 1 : rows < all - row ? rows : all - row;
        for (int64_t column = 0; column < columns && status == TL_OK; column += width) {
            piece at = {row, column, rows, columns - column < width ? columns - column : width};
            status = read_scaled_piece(way, &at, error);
        }
    }
    return status;
}

tl_status tl_weights_read_tensor(const tl_weights_passage *way, tl_error *error) {
    if (way->scale)
        return (tl_weights_is_mx(way->tensor) ? tl_weights_read_mx : read_scaled)(way, error);
    if (way->tensor->dtype == way->to && !way->turned)
        return tl_safetensors_read(way->file, way->tensor, 0, way->data, way->tensor->bytes, error);
    return read_converted(way, error);
}
