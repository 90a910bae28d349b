/* kernel/body/product.h: the reference product for one compute type; included twice by product_reference.c with REAL,
 * N(name), OWN, LOAD, STORE and VECTOR (a vector of VECTOR_BYTES bytes). No guard.
 *
 * A tile of TILE × TILE of C is summed in `total`, K_BLOCK terms at a time, each element by one chain of additions in
 * order of k: its bits depend on neither the tiles nor the vectors. */

#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))

typedef struct N(tile) {
    REAL total[TILE][TILE], b[K_BLOCK][TILE], a[TILE][K_BLOCK];
} N(tile);

/* ROWS × (vectors · LANES) of the tile. Rows past the last repeat it and are not stored. */
static inline __attribute__((always_inline)) void N(micro)(REAL (*total)[TILE], const REAL *a, int64_t a_row,
                                                           int64_t a_col, const REAL (*b)[TILE], int64_t k,
                                                           int64_t rows, const int vectors) {
    VECTOR sum[ROWS][2];
    const REAL *line[ROWS];
    TL_UNROLL
    for (int i = 0; i < ROWS; i++) {
        int64_t row = i < rows ? i : rows - 1;
        line[i] = a + row * a_row;
        TL_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[i][v] = *(const VECTOR *)&total[row][v * LANES];
    }
    for (int64_t l = 0; l < k; l++) {
        VECTOR right[2];
        TL_UNROLL
        for (int v = 0; v < vectors; v++)
            right[v] = *(const VECTOR *)&b[l][v * LANES];
        TL_UNROLL
        for (int i = 0; i < ROWS; i++) {
            REAL left = line[i][l * a_col];
            TL_UNROLL
            for (int v = 0; v < vectors; v++)
                sum[i][v] += left * right[v];
        }
    }
    TL_UNROLL
    for (int i = 0; i < ROWS; i++)
        if (i < rows) {
            TL_UNROLL
            for (int v = 0; v < vectors; v++)
                *(VECTOR *)&total[i][v * LANES] = sum[i][v];
        }
}

static void N(block)(N(tile) * tile, const REAL *a, int64_t a_row, int64_t a_col, int64_t m, int64_t n, int64_t k) {
    for (int64_t j = 0; j < n;) {
        bool two = n - j > LANES;
        for (int64_t i = 0; i < m; i += ROWS) {
            REAL(*total)[TILE] = (REAL(*)[TILE]) & tile->total[i][j];
            const REAL(*b)[TILE] = (const REAL(*)[TILE]) & tile->b[0][j];
            if (two)
                N(micro)(total, a + i * a_row, a_row, a_col, b, k, tl_min_i64(ROWS, m - i), 2);
            else
                N(micro)(total, a + i * a_row, a_row, a_col, b, k, tl_min_i64(ROWS, m - i), 1);
        }
        j += two ? 2 * LANES : LANES;
    }
}

/* n up to what N(block) reads: pairs of vectors, and one where one is enough. */
static inline int64_t N(padded)(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* B[l0 …, j0 …] with its rows padded to whole vectors. */
static void N(pack_b)(N(tile) * tile, tl_dtype dtype, const char *b, int64_t b_row, int64_t b_col, int64_t n,
                      int64_t k) {
    int64_t padded = N(padded)(n);
    int bytes = tl_bytes_of(dtype);
    if (b_col == 1 || n == 1) {
        for (int64_t l = 0; l < k; l++) {
            const char *from = b + l * b_row * bytes;
            REAL *to = tile->b[l];
            if (dtype == OWN)
                for (int64_t j = 0; j < n; j++)
                    to[j] = ((const REAL *)from)[j];
            else
                LOAD(to, dtype, from, 1, n);
            for (int64_t j = n; j < padded; j++)
                to[j] = 0;
        }
        return;
    }
    for (int64_t l = 0; l < k; l++)
        for (int64_t j = n; j < padded; j++)
            tile->b[l][j] = 0;
    for (int64_t j = 0; j < n; j++) {
        REAL column[K_BLOCK];
        const REAL *from = column;
        int64_t step = 1;
        if (dtype == OWN) {
            from = (const REAL *)(b + j * b_col * bytes);
            step = b_row;
        } else {
            LOAD(column, dtype, b + j * b_col * bytes, b_row, k);
        }
        for (int64_t l = 0; l < k; l++)
            tile->b[l][j] = from[l * step];
    }
}

static void N(finish)(const tl_product *p, const N(tile) * tile, char *c, int64_t first, int64_t m, int64_t n) {
    int bytes = tl_bytes_of(p->dtype);
    REAL bias[TILE], out[TILE];
    if (p->bias)
        LOAD(bias, p->dtype, p->bias + first * p->bias_stride * bytes, p->bias_stride, n);
    for (int64_t i = 0; i < m; i++) {
        char *to = c + i * p->c_row * bytes;
        const REAL *from = tile->total[i];
        if (p->accumulate) {
            LOAD(out, p->dtype, to, 1, n);
            for (int64_t j = 0; j < n; j++)
                out[j] += from[j];
            from = out;
        }
        if (p->bias) {
            for (int64_t j = 0; j < n; j++)
                out[j] = from[j] + bias[j];
            from = out;
        }
        STORE(p->dtype, to, 1, from, n);
    }
}

/* One tile of one matrix of the batch; a, b, c at its corner. */
static void N(tile_run)(const tl_product *p, N(tile) * tile, const char *a, const char *b, char *c, int64_t first,
                        int64_t m, int64_t n) {
    int bytes = tl_bytes_of(p->dtype);
    int64_t padded = N(padded)(n);
    for (int64_t i = 0; i < m; i++)
        memset(tile->total[i], 0, (size_t)padded * sizeof(REAL));
    for (int64_t l = 0; l < p->k; l += K_BLOCK) {
        int64_t k = tl_min_i64(K_BLOCK, p->k - l);
        N(pack_b)(tile, p->dtype, b + l * p->b_row * bytes, p->b_row, p->b_col, n, k);
        const char *left = a + l * p->a_col * bytes;
        if (p->dtype == OWN) {
            N(block)(tile, (const REAL *)left, p->a_row, p->a_col, m, n, k);
            continue;
        }
        for (int64_t i = 0; i < m; i++)
            LOAD(tile->a[i], p->dtype, left + i * p->a_row * bytes, p->a_col, k);
        N(block)(tile, tile->a[0], K_BLOCK, 1, m, n, k);
    }
    N(finish)(p, tile, c, first, m, n);
}

#undef LANES
