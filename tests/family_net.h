/* tests/family_net.h: nets filled from fixtures/family_fixtures.h, and their logits against the recorded ones. Included by tests
 * that use all of it, after cmocka.h. */
#ifndef TALLY_TESTS_FAMILY_NET_H
#define TALLY_TESTS_FAMILY_NET_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "family_weights.h"
#include "fixtures/family_fixtures.h"
#include "tally/cpu.h"
#include "tally/names.h"
#include "tally/nn.h"
#include "tally/ops.h"

enum { FAMILIES = sizeof family_fixtures / sizeof *family_fixtures };
enum { VALUES = FAMILY_BATCH * FAMILY_TOKENS * FAMILY_VOCAB };

static tl_ctx *new_ctx(void) {
    tl_error error = {0};
    return tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
}

static const family_fixture *fixture_of(const char *name) {
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(family_fixtures[i].name, name) == 0)
            return &family_fixtures[i];
    fail_msg("no fixture %s", name);
    return NULL;
}

/* `name` as the model has it. Files of models that also see images have the text's part below another name. */
static const family_row *row_of(const family_fixture *x, const char *name) {
    static const char with_images[] = "model.language_model.";
    char longer[256];
    if (strncmp(x->rows[0].name, with_images, strlen(with_images)) == 0 && strncmp(name, "model.", 6) == 0) {
        snprintf(longer, sizeof longer, "%s%s", with_images, name + 6);
        name = longer;
    }
    for (int i = 0; i < x->count; i++)
        if (strcmp(x->rows[i].name, name) == 0)
            return &x->rows[i];
    fail_msg("%s has no tensor %s", x->name, name);
    return NULL;
}

static int64_t elements(const family_row *r) {
    int64_t n = 1;
    for (int i = 0; i < r->ndim; i++)
        n *= r->dim[i];
    return n;
}

/* Fills the parameter from the published tensors it is made of; how many those are. */
static int fill(tl_ctx *ctx, const tl_model *m, const tl_parameter *p, const family_fixture *x) {
    int64_t parts = tl_published_parts(m, p->name), count = tl_tensor_count(p->tensor), done = 0;
    float *values = malloc((size_t)count * sizeof *values);
    tl_error error = {0};
    assert_non_null(values);
    for (int64_t part = 0; part < parts; part++) {
        tl_published from;
        if (tl_published_part(m, p->name, part, &from, &error) != TL_OK)
            fail_msg("%s", error.message);
        assert_false(from.transposed);
        assert_int_equal(from.expert, parts > 1 ? part : -1);
        const family_row *row = row_of(x, from.name);
        int64_t n = elements(row);
        int skip = parts > 1; /* the expert's axis */
        assert_int_equal(row->ndim, tl_tensor_ndim(p->tensor) - skip);
        for (int i = 0; i < row->ndim; i++)
            assert_int_equal(row->dim[i], tl_tensor_size(p->tensor, i + skip));
        assert_true(done + n <= count);
        family_weights_fill(values + done, n, row->name, row->base, row->scale);
        done += n;
    }
    assert_int_equal(done, count);
    tl_scope_begin(ctx);
    tl_tensor *t = tl_from_data(ctx, TL_F32, *tl_tensor_shape(p->tensor), TL_WORK, values, count);
    assert_non_null(tl_write_slice(p->tensor, t, 0, 0));
    tl_scope_end(ctx);
    free(values);
    return (int)parts;
}

static tl_net *net_of(tl_ctx *ctx, const tl_model *m, tl_dtype dtype, const family_fixture *x) {
    tl_net *net = tl_net_new(ctx, m, dtype);
    if (!net)
        fail_msg("%s: %s", x->name, tl_ctx_error(ctx)->message);
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list), tensors = 0;
    for (int i = 0; i < count; i++)
        tensors += fill(ctx, m, &list[i], x);
    assert_int_equal(tensors, x->count); /* each of the file's tensors, once */
    tl_parameter_count counted;
    tl_net_count(net, &counted);
    assert_int_equal(counted.unique, x->parameters);
    return net;
}

static tl_tensor *tokens_of(tl_ctx *ctx, int first, int count) {
    int32_t ids[FAMILY_BATCH * FAMILY_TOKENS];
    for (int b = 0; b < FAMILY_BATCH; b++)
        for (int t = 0; t < count; t++)
            ids[b * count + t] = family_tokens[b * FAMILY_TOKENS + first + t];
    return tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(FAMILY_BATCH), tl_dim_of(count)), TL_DATA, ids,
                        FAMILY_BATCH * count);
}

static void compare(const char *name, const char *how, tl_ctx *ctx, tl_tensor *logits, int first, int count,
                    const float *expected) {
    double values[VALUES], worst = 0;
    if (!logits)
        fail_msg("%s: %s", name, tl_ctx_error(ctx)->message);
    tl_tensor *wide = tl_cast(logits, TL_F64);
    int64_t n = FAMILY_BATCH * count * FAMILY_VOCAB;
    assert_int_equal(tl_tensor_count(wide), n);
    assert_int_equal(tl_tensor_read(wide, values, (size_t)n * sizeof *values), TL_OK);
    for (int b = 0; b < FAMILY_BATCH; b++)
        for (int i = 0; i < count * FAMILY_VOCAB; i++) {
            double want = (double)expected[(b * FAMILY_TOKENS + first) * FAMILY_VOCAB + i];
            double apart = fabs(values[b * count * FAMILY_VOCAB + i] - want);
            worst = apart > worst || apart != apart ? apart : worst;
        }
    if (!(worst < 1e-4))
        print_message("%s %s: logits differ by %g\n", name, how, worst);
    assert_true(worst < 1e-4);
}

#endif
