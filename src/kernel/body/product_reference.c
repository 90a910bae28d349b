/* kernel/body/product_reference.c: the product everything else is measured against: any strides, every float dtype, no
 * memory but the stack, the same bits on every instruction set and any number of threads. It also runs what oneDNN does
 * not: f64, bf16 without AVX-512, and products too small to be worth a call there. */
#include "kernel/body/body.h"

#define TILE 64
#define K_BLOCK 128
#define TASK_TERMS (1 << 17) /* multiply-adds of one task, when tiles are smaller than that */

#if defined(__clang__)
#define TL_UNROLL _Pragma("unroll")
#else
#define TL_UNROLL _Pragma("GCC unroll 16")
#endif

/* as many sums as the registers hold */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define ROWS 8
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define ROWS 4
#else
#define VECTOR_BYTES 16
#define ROWS 4
#endif

typedef float vector_float __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef double vector_double __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));

#define REAL float
#define N(name) name##_float
#define OWN TL_F32
#define LOAD TL_K(load_float)
#define STORE TL_K(store_float)
#define VECTOR vector_float
#include "kernel/body/product.h"
#undef REAL
#undef N
#undef OWN
#undef LOAD
#undef STORE
#undef VECTOR
#define REAL double
#define N(name) name##_double
#define OWN TL_F64
#define LOAD TL_K(load_double)
#define STORE TL_K(store_double)
#define VECTOR vector_double
#include "kernel/body/product.h"

typedef struct product_task {
    const tl_product *product;
    int64_t rows, columns, tiles, per_task; /* tiles down, across, in all */
} product_task;

static void product_tiles(void *argument, int64_t task, int thread) {
    (void)thread;
    const product_task *t = argument;
    const tl_product *p = t->product;
    union {
        tile_float f;
        tile_double d;
    } tile;
    int bytes = tl_bytes_of(p->dtype);
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->tiles);
    for (int64_t at = task * t->per_task; at < end; at++) {
        int64_t rest = at / (t->rows * t->columns), within = at % (t->rows * t->columns);
        const char *a = p->a, *b = p->b;
        char *c = p->c;
        for (int d = p->n_batch - 1; d >= 0; d--) {
            int64_t index = rest % p->batch[d];
            rest /= p->batch[d];
            a += index * p->a_batch[d] * bytes;
            b += index * p->b_batch[d] * bytes;
            c += index * p->c_batch[d] * bytes;
        }
        int64_t i = within / t->columns * TILE, j = within % t->columns * TILE;
        int64_t m = tl_min_i64(TILE, p->m - i), n = tl_min_i64(TILE, p->n - j);
        a += i * p->a_row * bytes;
        b += j * p->b_col * bytes;
        c += (i * p->c_row + j) * bytes;
        if (p->dtype == TL_F64)
            tile_run_double(p, &tile.d, a, b, c, j, m, n);
        else
            tile_run_float(p, &tile.f, a, b, c, j, m, n);
    }
}

void TL_K(product_reference)(const tl_product *product) {
    product_task t = {.product = product};
    t.rows = tl_blocks_of(product->m, TILE);
    t.columns = tl_blocks_of(product->n, TILE);
    t.tiles = t.rows * t.columns;
    for (int d = 0; d < product->n_batch; d++)
        t.tiles *= product->batch[d];
    if (t.tiles == 0)
        return;
    int64_t terms = tl_min_i64(TILE, product->m) * tl_min_i64(TILE, product->n) * tl_max_i64(1, product->k);
    t.per_task = tl_max_i64(1, TASK_TERMS / terms);
    int64_t tasks = tl_blocks_of(t.tiles, t.per_task);
    if (tasks == 1) {
        t.per_task = t.tiles;
        product_tiles(&t, 0, 0);
    } else {
        tl_engine_run(product->engine, tasks, product_tiles, &t);
    }
}
