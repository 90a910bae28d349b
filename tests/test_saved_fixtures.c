/* What PyTorch keeps for backward (fixtures/saved_bytes_fixtures.h): each case's sums are those of its entries, and the published
 * block of CS336's assignment 2 (B 4, T 2048, d 2560, h 16, float32) gives the published figures. Facts of the file, so that
 * tests of plans can lean on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fixtures/saved_bytes_fixtures.h"

enum { CASES = sizeof saved_cases / sizeof *saved_cases, MIB = 1 << 20 };

static long long width(const char *dtype) {
    static const struct {
        const char *name;
        int bytes;
    } widths[] = {{"f32", 4}, {"bf16", 2}, {"f64", 8}, {"i64", 8}, {"bool", 1}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (strcmp(dtype, widths[i].name) == 0)
            return widths[i].bytes;
    fail_msg("dtype %s", dtype);
    return 0;
}

/* Bytes of the case's entries of one kind: storages once and whole; every entry by its elements. */
static void sums(const saved_case *c, saved_kind kind, long long *unique, long long *summed) {
    *unique = *summed = 0;
    for (int i = 0; i < c->count; i++) {
        const saved_entry *e = &c->entries[i];
        if (e->kind != kind)
            continue;
        long long n = width(e->dtype);
        for (int d = 0; d < e->ndim; d++)
            n *= e->dim[d];
        *summed += n;
        assert_true(n <= e->storage_bytes);
        int seen = 0;
        for (int j = 0; j < i; j++)
            seen |= c->entries[j].kind == kind && c->entries[j].storage == e->storage;
        *unique += seen ? 0 : e->storage_bytes;
    }
}

static void sums_are_the_entries(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const saved_case *c = &saved_cases[i];
        long long unique, summed;
        sums(c, SAVED_KEPT, &unique, &summed);
        assert_int_equal(unique, c->unique);
        assert_int_equal(summed, c->summed);
        sums(c, SAVED_INPUT, &unique, &summed);
        assert_int_equal(unique, c->input_unique);
        assert_int_equal(summed, c->input_summed);
        sums(c, SAVED_MASK, &unique, &summed);
        assert_int_equal(unique, c->mask);
        sums(c, SAVED_ROTARY, &unique, &summed);
        assert_int_equal(unique, c->rotary);
        sums(c, SAVED_LABEL, &unique, &summed);
        assert_int_equal(unique, c->label);
    }
}

static void cs336_is_the_published(void **state) {
    (void)state;
    int found = 0;
    for (int i = 0; i < CASES; i++) {
        const saved_case *c = &saved_cases[i];
        if (strcmp(c->block, "cs336") == 0 && c->D == 2560) {
            assert_true((double)(c->unique + c->input_unique) / MIB == 4609.5625);
            assert_true((double)(c->summed + c->input_summed) / MIB == 6353.625);
            found++;
        } else if (strcmp(c->block, "cs336_checkpoint") == 0) {
            assert_int_equal(c->unique + c->input_unique, 160 * MIB);
            found++;
        }
    }
    assert_int_equal(found, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_entries),
        cmocka_unit_test(cs336_is_the_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
