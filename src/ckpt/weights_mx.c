/* ckpt/weights_mx.c: MXFP4, as gpt_oss is published, to values. Every one of them is a float of f32 and of bf16 as it is: two bits
 * of precision, and the smallest, 2^−128, is a multiple of bf16's least. */
#include "ckpt/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

bool tl_weights_is_mx(const tl_safetensors_tensor *t) { return t->dtype == TL_U8 && ends_with(t->name, "_blocks"); }

const char *tl_weights_mx_blocks(const char *name, char out[TL_WEIGHTS_NAME]) {
    return snprintf(out, TL_WEIGHTS_NAME, "%s_blocks", name) < TL_WEIGHTS_NAME ? out : NULL;
}

const char *tl_weights_mx_scales(const char *blocks, char out[TL_WEIGHTS_NAME]) {
    int length = (int)(strlen(blocks) - strlen("_blocks"));
    return snprintf(out, TL_WEIGHTS_NAME, "%.*s_scales", length, blocks) < TL_WEIGHTS_NAME ? out : NULL;
}

bool tl_weights_mx_fits(const tl_weights_part *part, const tl_safetensors_tensor *b, const tl_safetensors_tensor *s) {
    if (part->ndim != 3 || b->ndim != 4 || s->ndim != 3 || s->dtype != TL_U8 || b->dim[3] != TL_WEIGHTS_MX_BLOCK / 2)
        return false;
    bool same = part->dim[0] == b->dim[0] && part->dim[2] == b->dim[1] && part->dim[1] % TL_WEIGHTS_MX_BLOCK == 0 &&
                part->dim[1] / TL_WEIGHTS_MX_BLOCK == b->dim[2];
    for (int d = 0; d < 3; d++)
        same = same && s->dim[d] == b->dim[d];
    return same;
}

/* What each scale makes of each of the 16 values, as the net has it, and, a bit each, which of them became infinite. */
typedef struct table {
    uint64_t value[256][16]; /* in its first bytes */
    uint16_t infinite[256];
} table;

/* E2M1: sign, two bits of exponent with a bias of 1, one of significand, none infinite; E8M0: 2^(byte − 127), 255 is NaN. */
static void fill(table *t, tl_dtype to) {
    static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (int scale = 0; scale < 256; scale++) {
        t->infinite[scale] = 0;
        for (int code = 0; code < 16; code++) {
            double value = scale == 255 ? (double)NAN : ldexp(magnitude[code & 7], scale - 127);
            value = code & 8 ? -value : value;
            if (!tl_weights_convert(&value, TL_F64, &t->value[scale][code], to, 1))
                t->infinite[scale] = (uint16_t)(t->infinite[scale] | 1U << code);
        }
    }
}

#define EXPAND(type)                                                                                                   \
    do {                                                                                                               \
        type *to = out;                                                                                                \
        for (int i = 0; i < TL_WEIGHTS_MX_BLOCK; i++) {                                                                \
            int code = i % 2 ? block[i / 2] >> 4 : block[i / 2] & 15;                                                  \
            memcpy(&to[i], &t->value[scale][code], sizeof to[i]);                                                      \
            infinite |= t->infinite[scale] >> code & 1U;                                                               \
        }                                                                                                              \
    } while (0)

/* False: a value that the format does not hold. */
static bool expand(const table *t, const uint8_t *block, uint8_t scale, void *out, int width) {
    unsigned infinite = 0;
    if (width == 8)
        EXPAND(uint64_t);
    else if (width == 4)
        EXPAND(uint32_t);
    else
        EXPAND(uint16_t);
    return infinite == 0;
}

/* Some rows of an expert, or some blocks of one row. The block of memory: codes and scales in its first half, values in the other,
 * from where they go to their columns. */
static tl_status read_piece(const tl_weights_passage *way, const table *t, const int64_t at[3], int64_t rows,
                            int64_t blocks, tl_error *error) {
    const tl_safetensors_tensor *b = way->tensor;
    int64_t out = b->dim[1], in = b->dim[2] * TL_WEIGHTS_MX_BLOCK, n = rows * blocks;
    int64_t first = (at[0] * out + at[1]) * b->dim[2] + at[2];
    int width = tl_dtype_bytes(way->to);
    const int each = TL_WEIGHTS_MX_BLOCK / 2;
    uint8_t *codes = (uint8_t *)way->block, *scales = codes + n * each;
    char *values = way->block + way->half;
    tl_status status = tl_safetensors_read(way->file, b, first * each, codes, n * each, error);
    if (status == TL_OK)
        status = tl_safetensors_read(way->scale_file, way->scale, first, scales, n, error);
    if (status != TL_OK)
        return status;
    for (int64_t i = 0; i < n; i++)
        if (!expand(t, codes + i * each, scales[i], values + i * TL_WEIGHTS_MX_BLOCK * width, width))
            return tl_weights_fail_infinite(way, error);
    int64_t to = (at[0] * in + at[2] * TL_WEIGHTS_MX_BLOCK) * out + at[1];
    tl_weights_scatter(values, rows, blocks * TL_WEIGHTS_MX_BLOCK, way->data + to * width, out, width);
    return TL_OK;
}

tl_status tl_weights_read_mx(const tl_weights_passage *way, tl_error *error) {
    const tl_safetensors_tensor *b = way->tensor;
    /* Half a block of memory holds 32 values: the parameter has two columns at least. */
    int64_t most = way->half / tl_dtype_bytes(way->to) / TL_WEIGHTS_MX_BLOCK, row = b->dim[2];
    if (most < 1)
        return tl_fail(error, TL_ERR_MEMORY, "%s: a block of %lld bytes holds no 32 values", way->from,
                       (long long)(2 * way->half));
    int64_t blocks = row < most ? row : most, rows = blocks == row && row > 0 ? most / row : 1;
    tl_status status = TL_OK;
    table t;
    fill(&t, way->to);
    for (int64_t e = 0; e < b->dim[0] && status == TL_OK; e++)
        for (int64_t r = 0; r < b->dim[1] && status == TL_OK; r += rows)
            for (int64_t c = 0; c < row && status == TL_OK; c += blocks)
                status = read_piece(way, &t, (int64_t[3]){e, r, c}, rows < b->dim[1] - r ? rows : b->dim[1] - r,
                                    blocks < row - c ? blocks : row - c, error);
    return status;
}
