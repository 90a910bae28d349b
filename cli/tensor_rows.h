/* cli/tensor_rows.h: the table of a file's tensors. For people, layers that are alike are one row ("blk.*.attn_q.weight", 32
 * times) unless all are asked for; machines get every tensor. */
#ifndef CLI_TENSOR_ROWS_H
#define CLI_TENSOR_ROWS_H

#include "verb.h"

typedef struct tl_tensor_row {
    const char *name, *format; /* live as long as the rows */
    const char *file;          /* NULL: the only one */
    int64_t ndim;
    const int64_t *dim;
    int64_t count, bytes; /* bytes −1: unknown */
    bool readable;        /* its values can be computed with */
} tl_tensor_row;

typedef struct tl_tensor_rows tl_tensor_rows;
/* `all`: no folding. NULL where there is no memory. */
tl_tensor_rows *tl_tensor_rows_new(const tl_cli *cli, bool all);
void tl_tensor_rows_add(tl_tensor_rows *rows, const tl_tensor_row *row);
int tl_tensor_rows_print(const tl_tensor_rows *rows); /* the verb's exit status */
void tl_tensor_rows_free(tl_tensor_rows *rows);
/* "[4096, 128]"; of many axes the first few. */
const char *tl_tensor_shape_text(int64_t ndim, const int64_t *dim, char text[TL_TEXT]);

#endif
