/* The fixtures of model families: weights made in C are those the script computed with numpy, and each family's rows are a
 * file's — names unlike one another, elements that sum to the count the script took from its own tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "family_weights.h"
#include "fixtures/family_fixtures.h"

enum { FAMILIES = sizeof family_fixtures / sizeof *family_fixtures };

static int64_t elements(const family_row *r) {
    int64_t n = 1;
    for (int i = 0; i < r->ndim; i++)
        n *= r->dim[i];
    return n;
}

static void weights_are_numpys(void **state) {
    (void)state;
    float v[8];
    family_weights_fill(v, 8, family_rule_name, 0, 1);
    for (int i = 0; i < 8; i++)
        assert_true(v[i] == family_rule_values[i]);
    family_weights_fill(v, 8, family_rule_name, 1, 0.5);
    for (int i = 0; i < 8; i++)
        assert_true(v[i] == (float)(1 + 0.5 * (double)family_rule_values[i]));
}

/* The sum of every tensor's values, as numpy has it: one wrong bit in one of them shows. */
static void every_tensor_is_numpys(void **state) {
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        const family_fixture *x = &family_fixtures[f];
        int64_t total = 0;
        double sum = 0;
        for (int r = 0; r < x->count; r++) {
            int64_t n = elements(&x->rows[r]);
            float *v = malloc((size_t)n * sizeof *v);
            assert_non_null(v);
            family_weights_fill(v, n, x->rows[r].name, x->rows[r].base, x->rows[r].scale);
            for (int64_t i = 0; i < n; i++)
                sum += (double)v[i] * (double)(i % 7 + 1);
            free(v);
            total += n;
        }
        assert_int_equal(total, x->parameters);
        assert_true(fabs(sum - x->weight_sum) < 1e-9 * (double)total);
    }
}

static void names_differ(void **state) {
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int a = 0; a < family_fixtures[f].count; a++)
            for (int b = 0; b < a; b++)
                assert_string_not_equal(family_fixtures[f].rows[a].name, family_fixtures[f].rows[b].name);
}

static void logits_are_numbers(void **state) {
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        float most = 0;
        for (int i = 0; i < FAMILY_BATCH * FAMILY_TOKENS * FAMILY_VOCAB; i++) {
            assert_true(isfinite(family_fixtures[f].logits[i]));
            most = fmaxf(most, fabsf(family_fixtures[f].logits[i]));
        }
        assert_true(most > 0.5F && most < 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_numpys),
        cmocka_unit_test(every_tensor_is_numpys),
        cmocka_unit_test(names_differ),
        cmocka_unit_test(logits_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
