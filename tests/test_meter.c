/* The second instrument of tally train: it must count what passes, whatever the ledger says. Expected values: a plain list
 * kept beside it, and 2·m·n·k by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tally/account.h"
#include "tally/meter.h"
#include "tally/ops.h"

static tl_meter *new_meter(void) {
    tl_error error = {TL_OK, ""};
    tl_meter *meter = tl_meter_new(tl_kernels_portable(), NULL, &error);
    assert_non_null(meter);
    return meter;
}

/* Thousands of blocks come and go in no order; the meter's table must grow and forget like a plain list. */
static void counts_blocks_like_a_list(void **state) {
    enum { MOST = 3000 };
    static struct {
        void *data;
        size_t bytes;
    } list[MOST];
    tl_meter *meter = new_meter();
    tl_allocator a = tl_meter_allocator(meter);
    uint64_t random = 12345;
    int64_t live = 0, peak = 0, count = 0, allocations = 0;
    (void)state;
    for (int i = 0; i < 40000; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t pick = (size_t)(random >> 33);
        if (count < MOST && (count == 0 || pick % 5 < 3)) {
            size_t bytes = 1 + pick % 300;
            void *data = a.alloc(a.self, bytes, 64, TL_ALLOC_STORAGE);
            assert_non_null(data);
            list[count].data = data;
            list[count++].bytes = bytes;
            live += (int64_t)bytes;
            peak = live > peak ? live : peak;
            allocations++;
        } else {
            size_t at = pick % (size_t)count;
            assert_int_equal(tl_meter_block_bytes(meter, list[at].data), list[at].bytes);
            void *data = list[at].data;
            a.release(a.self, data, list[at].bytes, TL_ALLOC_STORAGE);
            live -= (int64_t)list[at].bytes;
            assert_int_equal(tl_meter_block_bytes(meter, data), 0);
            list[at] = list[--count];
        }
    }
    tl_reading r;
    tl_meter_read(meter, &r);
    assert_int_equal(r.live_bytes, live);
    assert_int_equal(r.peak_bytes, peak);
    assert_int_equal(r.allocations, allocations);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(tl_meter_block_bytes(meter, list[i].data), list[i].bytes);
    tl_meter_step_begin(meter);
    tl_meter_read(meter, &r);
    assert_int_equal(r.peak_bytes, live);
    assert_int_equal(r.allocations, 0);
    while (count > 0) {
        count--;
        a.release(a.self, list[count].data, list[count].bytes, TL_ALLOC_STORAGE);
    }
    tl_meter_read(meter, &r);
    assert_int_equal(r.live_bytes, 0);
    void *host = a.alloc(a.self, 1000, 16, TL_ALLOC_HOST); /* handles and tables are no storages */
    tl_meter_read(meter, &r);
    assert_int_equal(r.live_bytes, 0);
    a.release(a.self, host, 1000, TL_ALLOC_HOST);
    tl_meter_free(meter);
}

static void counts_products_by_their_sizes(void **state) {
    tl_meter *meter = new_meter();
    tl_allocator a = tl_meter_allocator(meter);
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_meter_kernels(meter), .allocator = &a}, &error);
    tl_reading r;
    (void)state;
    assert_non_null(ctx);
    tl_scope_begin(ctx);
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(3), tl_dim_of(4), tl_dim_of(6)), TL_WORK);
    tl_tensor *y = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(3), tl_dim_of(6), tl_dim_of(5)), TL_WORK);
    tl_fill(x, 1.0);
    tl_fill(y, 2.0);
    tl_meter_step_begin(meter);
    tl_tensor *z = tl_matmul(x, y);
    assert_non_null(z);
    tl_meter_read(meter, &r);
    assert_int_equal((int64_t)r.flops, 720); /* 2 · 4·5·6, three times */
    assert_int_equal(r.allocations, 1);
    assert_int_equal(tl_meter_block_bytes(meter, tl_tensor_storage_data(z)), 3 * 4 * 5 * 4);
    double value;
    tl_tensor *sum = tl_sum(z, NULL, 0, false);
    if (sum && tl_tensor_count(sum) == 1) {
        assert_int_equal(tl_item(sum, &value), TL_OK);
        assert_true(value == 60 * 12.0); /* the product is still computed */
    }
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
    tl_meter_read(meter, &r);
    assert_int_equal(r.live_bytes, 0);
    tl_meter_free(meter);
}

typedef struct seen {
    tl_meter *meter;
    int64_t at[8];
    int count;
} seen;

static void note(void *user) {
    seen *s = user;
    tl_reading r;
    tl_meter_read(s->meter, &r);
    if (s->count < 8)
        s->at[s->count++] = r.live_bytes;
}

/* Called once for each new peak, and while what made it still lives. */
static void shows_each_new_peak(void **state) {
    tl_meter *meter = new_meter();
    tl_allocator a = tl_meter_allocator(meter);
    seen s = {.meter = meter};
    (void)state;
    tl_meter_on_peak(meter, note, &s);
    void *x = a.alloc(a.self, 100, 64, TL_ALLOC_STORAGE);
    void *y = a.alloc(a.self, 50, 64, TL_ALLOC_STORAGE);
    a.release(a.self, x, 100, TL_ALLOC_STORAGE);
    void *z = a.alloc(a.self, 60, 64, TL_ALLOC_STORAGE); /* 110: no new peak */
    a.release(a.self, z, 60, TL_ALLOC_STORAGE);
    a.release(a.self, y, 50, TL_ALLOC_STORAGE);
    assert_int_equal(s.count, 2);
    assert_int_equal(s.at[0], 100);
    assert_int_equal(s.at[1], 150);
    tl_meter_free(meter);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_blocks_like_a_list),
        cmocka_unit_test(counts_products_by_their_sizes),
        cmocka_unit_test(shows_each_new_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
