/* MXFP4, as gpt_oss is published: what numpy makes of the same bytes (fixtures/make_mxfp4_fixtures.py), and every code under the
 * scales where exactness could end, by the definitions of OCP's Microscaling Formats 1.0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/weights.h"
#include "family_models.h"
#include "fixtures/mxfp4_fixtures.h"
#include "tally/config.h"
#include "tally/cpu.h"
#include "tally/nn.h"
#include "tally/weights.h"

enum { E = 3, D = 64, FE = 32, TENSORS = 64 };

static char folder[64], file[96], again[96];

static tl_model small_oss(void) {
    for (int i = 0; i < family_model_count(); i++) {
        tl_model m = family_model(i);
        if (strcmp(m.name, "gpt_oss") != 0)
            continue;
        m.layers = 1;
        m.width = D;
        m.experts = E;
        m.expert_ff = m.ff = FE;
        return m;
    }
    fail_msg("no gpt_oss");
    return (tl_model){0};
}

/* ---- files ---- */

typedef struct entry {
    tl_safetensors_item item;
    char name[160];
    unsigned char *data;
    int64_t bytes;
} entry;

static entry entries[TENSORS];
static int n_entries;

static void drop(void) {
    for (int i = 0; i < n_entries; i++)
        free(entries[i].data);
    n_entries = 0;
}

static entry *add(const char *name, const char *end, tl_dtype dtype, int ndim, const int64_t *dim) {
    entry *e = &entries[n_entries++];
    assert_true(n_entries <= TENSORS);
    snprintf(e->name, sizeof e->name, "%s%s", name, end);
    e->item = (tl_safetensors_item){.name = e->name, .dtype = dtype, .ndim = ndim};
    e->bytes = tl_dtype_bytes(dtype);
    for (int d = 0; d < ndim; d++)
        e->bytes *= e->item.dim[d] = dim[d];
    e->data = calloc(1, (size_t)e->bytes + 8);
    assert_non_null(e->data);
    return e;
}

static void stream(unsigned char *out, int64_t count, uint32_t seed) {
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525U + 1013904223U;
        out[i] = (unsigned char)(seed >> 24);
    }
}

static bool is_expert(const char *name) {
    return strstr(name, ".experts.gate_up_proj") == name + strlen(name) - strlen(".experts.gate_up_proj") ||
           strstr(name, ".experts.down_proj") == name + strlen(name) - strlen(".experts.down_proj");
}

/* The model's tensors, experts in MXFP4, all else 0 in bf16. */
static void fill(const tl_net *net) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    drop();
    for (int i = 0; i < count; i++) {
        const tl_shape *s = tl_tensor_shape(list[i].tensor);
        int64_t dim[4];
        for (int d = 0; d < s->ndim; d++)
            dim[d] = s->dim[d].size;
        if (!is_expert(list[i].name)) {
            add(list[i].name, "", TL_BF16, s->ndim, dim);
            continue;
        }
        uint32_t seed = strstr(list[i].name, "gate_up") ? 1 : 2;
        int64_t packed[4] = {dim[0], dim[2], dim[1] / 32, 16};
        entry *blocks = add(list[i].name, "_blocks", TL_U8, 4, packed);
        stream(blocks->data, blocks->bytes, seed);
        entry *scales = add(list[i].name, "_scales", TL_U8, 3, packed);
        stream(scales->data, scales->bytes, seed + 10);
        for (int64_t k = 0; k < scales->bytes; k++)
            scales->data[k] = (unsigned char)(60 + scales->data[k] % 130);
    }
}

static void write_file(void) {
    tl_safetensors_item items[TENSORS];
    tl_error error = {0};
    for (int i = 0; i < n_entries; i++)
        items[i] = entries[i].item;
    tl_safetensors_writer *w = tl_safetensors_begin(file, items, n_entries, NULL, 0, &error);
    if (!w)
        fail_msg("%s", error.message);
    for (int i = 0; i < n_entries; i++)
        assert_int_equal(tl_safetensors_write(w, entries[i].data, entries[i].bytes, &error), TL_OK);
    assert_int_equal(tl_safetensors_end(w, TL_OK, &error), TL_OK);
}

static entry *entry_of(const char *end) {
    for (int i = 0; i < n_entries; i++)
        if (strlen(entries[i].name) >= strlen(end) &&
            strcmp(entries[i].name + strlen(entries[i].name) - strlen(end), end) == 0)
            return &entries[i];
    fail_msg("nothing ends in %s", end);
    return NULL;
}

/* ---- nets ---- */

typedef struct world {
    tl_ctx *ctx;
    tl_net *net;
} world;

static world begin(tl_dtype dtype) {
    tl_error error = {0};
    tl_model m = small_oss();
    world w = {.ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error)};
    assert_non_null(w.ctx);
    w.net = tl_net_new(w.ctx, &m, dtype);
    if (!w.net)
        fail_msg("%s", tl_ctx_error(w.ctx)->message);
    return w;
}

static void end(world *w) {
    tl_net_free(w->net);
    tl_ctx_free(w->ctx);
}

static uint64_t fnv(const void *data, int64_t count) {
    const unsigned char *p = data;
    uint64_t h = 0xCBF29CE484222325ULL;
    for (int64_t i = 0; i < count; i++)
        h = (h ^ p[i]) * 0x100000001B3ULL;
    return h;
}

static uint64_t sum_of(const world *w, const char *which) {
    char name[96];
    snprintf(name, sizeof name, "model.layers.0.mlp.experts.%s", which);
    tl_tensor *t = tl_net_find(w->net, name);
    assert_non_null(t);
    return fnv(tl_tensor_data(t), tl_tensor_count(t) * tl_dtype_bytes(tl_tensor_dtype(t)));
}

static void values_are_numpys(void **state) {
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) {
        tl_error error = {0};
        tl_weights_report report;
        world w = begin(narrow ? TL_BF16 : TL_F32);
        fill(w.net);
        write_file();
        if (tl_weights_load(file, w.net, &report, &error) != TL_OK)
            fail_msg("%s", error.message);
        assert_true(sum_of(&w, "gate_up_proj") == (narrow ? mxfp4_gate_up_bf16 : mxfp4_gate_up_f32));
        assert_true(sum_of(&w, "down_proj") == (narrow ? mxfp4_down_bf16 : mxfp4_down_f32));
        assert_int_equal(report.formats[TL_U8], 2);
        assert_int_equal(report.ignored, 0);
        assert_non_null(strstr(report.note, "2 tensors of MXFP4"));
        /* in the files: 17 bytes for each 32 */
        int64_t packed = E * (2 * FE * D + FE * D), all = 0;
        for (int i = 0; i < n_entries; i++)
            all += entries[i].bytes;
        assert_int_equal(report.bytes, all);
        assert_int_equal(entry_of("gate_up_proj_blocks")->bytes + entry_of("gate_up_proj_scales")->bytes +
                             entry_of("down_proj_blocks")->bytes + entry_of("down_proj_scales")->bytes,
                         packed / 32 * 17);
        /* written, it is plain, and the same values */
        world v = begin(narrow ? TL_BF16 : TL_F32);
        if (tl_weights_save(again, w.net, NULL, &error) != TL_OK)
            fail_msg("%s", error.message);
        assert_int_equal(tl_weights_load(again, v.net, &report, &error), TL_OK);
        assert_int_equal(report.formats[TL_U8], 0);
        assert_true(sum_of(&v, "gate_up_proj") == sum_of(&w, "gate_up_proj"));
        assert_true(sum_of(&v, "down_proj") == sum_of(&w, "down_proj"));
        end(&v);
        end(&w);
    }
}

static void refused(tl_status status, const char *words) {
    tl_error error = {0};
    world w = begin(TL_BF16);
    write_file();
    tl_status found = tl_weights_load(file, w.net, NULL, &error);
    if (found != status || !strstr(error.message, words))
        fail_msg("status %d, \"%s\"; %d and \"%s\" are expected", (int)found, error.message, (int)status, words);
    end(&w);
}

static void other_shapes_are_refused(void **state) {
    (void)state;
    world w = begin(TL_BF16);
    fill(w.net);
    entry *scales = entry_of("down_proj_scales");
    scales->item.dim[0] = D;
    scales->item.dim[1] = E;
    refused(TL_ERR_SHAPE, "down_proj_blocks, which with its scales is not MXFP4");
    fill(w.net);
    entry_of("down_proj_scales")->name[0] = 'x';
    refused(TL_ERR_UNSUPPORTED, "xodel.layers.0.mlp.experts.down_proj_scales");
    fill(w.net);
    scales = entry_of("down_proj_scales");
    free(scales->data);
    *scales = entries[--n_entries];
    scales->item.name = scales->name;
    refused(TL_ERR_SHAPE, "lacks 1 of this model's");
    refused(TL_ERR_SHAPE, "down_proj_scales");
    fill(w.net);
    entry *blocks = entry_of("down_proj_blocks"); /* half of each row */
    blocks->item.dim[3] = 8;
    blocks->item.dim[2] = 2;
    refused(TL_ERR_SHAPE, "is not MXFP4");
    end(&w);
}

/* Two rows of three blocks, all codes in turn, under the scales given. */
static tl_status read_codes(const int scales[6], tl_dtype to, int64_t half, float have[2 * 96], tl_error *error) {
    static double memory[1024];
    uint16_t narrow[2 * 96];
    drop();
    entry *b = add("w", "_blocks", TL_U8, 4, (int64_t[]){1, 2, 3, 16});
    entry *s = add("w", "_scales", TL_U8, 3, (int64_t[]){1, 2, 3});
    for (int64_t i = 0; i < b->bytes; i++)
        b->data[i] = (unsigned char)((i % 8 * 2) | (i % 8 * 2 + 1) << 4);
    for (int i = 0; i < 6; i++)
        s->data[i] = (unsigned char)scales[i];
    write_file();
    tl_safetensors *f = tl_safetensors_open(file, error);
    assert_non_null(f);
    tl_weights_passage way = {.from = "file",
                              .file = f,
                              .scale_file = f,
                              .tensor = tl_safetensors_find(f, "w_blocks"),
                              .scale = tl_safetensors_find(f, "w_scales"),
                              .data = to == TL_BF16 ? (char *)narrow : (char *)have,
                              .to = to,
                              .block = (char *)memory,
                              .half = half};
    tl_status status = tl_weights_read_tensor(&way, error);
    for (int i = 0; i < 2 * 96 && to == TL_BF16; i++)
        have[i] = tl_bf16_to_f32(narrow[i]);
    tl_safetensors_close(f);
    return status;
}

/* Down to the least block of memory, and under scales where f32 and bf16 end: 0.5·2^−127 and 6·2^125. */
static void every_code_under_extreme_scales(void **state) {
    static const int scales[] = {0, 1, 126, 127, 128, 252};
    float have[2 * 96];
    tl_error error = {0};
    (void)state;
    for (int64_t half = 128; half <= 1024; half += 64)
        for (int narrow = 0; narrow < 2; narrow++) {
            if (read_codes(scales, narrow ? TL_BF16 : TL_F32, half, have, &error) != TL_OK)
                fail_msg("%s", error.message);
            for (int i = 0; i < 2 * 96; i++) {
                int in = i / 2, code = in % 16, exponent = code >> 1 & 3, mantissa = code & 1;
                double want = exponent ? ldexp(1 + mantissa / 2.0, exponent - 1) : mantissa / 2.0;
                want = ldexp(code & 8 ? -want : want, scales[i % 2 * 3 + in / 32] - 127);
                if ((double)have[i] != want || (signbit(have[i]) != 0) != (code >> 3))
                    fail_msg("half a block of %d: code %d is %.9g, not %.9g", (int)half, code, (double)have[i], want);
            }
        }
    assert_int_equal(read_codes((int[]){127, 127, 127, 127, 253, 127}, TL_F32, 512, have, &error), TL_ERR_DTYPE);
    assert_non_null(strstr(error.message, "holds a value that f32 cannot"));
    assert_int_equal(read_codes((int[]){127, 127, 127, 127, 255, 127}, TL_F32, 512, have, &error), TL_OK);
    for (int i = 0; i < 2 * 96; i++) /* E8M0's 255 is NaN */
        assert_int_equal(isnan(have[i]) != 0, i % 2 == 1 && i / 2 / 32 == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_numpys),
        cmocka_unit_test(other_shapes_are_refused),
        cmocka_unit_test(every_code_under_extreme_scales),
    };
    snprintf(folder, sizeof folder, "/tmp/tally-mxfp4-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(file, sizeof file, "%s/w.safetensors", folder);
    snprintf(again, sizeof again, "%s/again", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char path[128];
    drop();
    unlink(file);
    snprintf(path, sizeof path, "%s/config.json", again);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", again);
    unlink(path);
    rmdir(again);
    rmdir(folder);
    return failed;
}
