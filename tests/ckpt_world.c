#include "ckpt_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tally/cpu.h"

/* The kind's defaults, and over them what the row sets. */
static tl_optimizer_options optimizer_of(const ckpt_kind *k) {
    tl_optimizer_options o = tl_optimizer_defaults(k->optimizer.kind);
    const tl_optimizer_options *row = &k->optimizer;
    if (row->momentum != 0)
        o.momentum = row->momentum;
    if (row->weight_decay != 0)
        o.weight_decay = row->weight_decay;
    o.nesterov = row->nesterov;
    o.centered = row->centered;
    o.epsilon_outside = row->epsilon_outside;
    o.cs336_order = row->cs336_order;
    o.decay_all = row->decay_all;
    o.master = row->master;
    o.state_f32 = row->state_f32;
    o.states = row->states;
    o.groups = row->groups;
    o.n_groups = row->n_groups;
    return o;
}

ckpt_world ckpt_begin(const ckpt_kind *k, int64_t width, uint64_t seed, int threads) {
    ckpt_world w = {0};
    tl_error error = {TL_OK, ""};
    tl_ctx_options options = {.kernels = tl_kernels_portable(),
                              .threads = threads,
                              .seed_init = seed,
                              .seed_data = seed,
                              .seed_dropout = seed};
    tl_model model = {.name = "small",
                      .family = k->llama ? TL_FAMILY_LLAMA : TL_FAMILY_GPT2,
                      .layers = 2,
                      .width = width,
                      .heads = 2,
                      .kv_heads = 2,
                      .head_size = width / 2,
                      .ff = 2 * width,
                      .vocab = 13,
                      .context = 12,
                      .tied = true,
                      .gated = k->llama,
                      .learned_positions = !k->llama,
                      .activation = k->llama ? TL_SILU : TL_GELU_TANH,
                      .norm_epsilon = 1e-5,
                      .init_std = 0.02,
                      .rope_theta = 10000,
                      .dropout_embedding = k->llama ? 0 : k->dropout,
                      .dropout_attention = k->dropout,
                      .dropout_residual = k->llama ? 0 : k->dropout};
    tl_train_options train = {.micro_batch = 2,
                              .seq = 11,
                              .accumulation = k->accumulation ? k->accumulation : 1,
                              .ranks = 1,
                              .dtype = k->dtype == TL_F64 && !k->f64 ? TL_F32 : k->dtype,
                              .optimizer = optimizer_of(k),
                              .recompute = k->recompute,
                              .autocast = k->autocast,
                              .low = k->low,
                              .loss_scaling = k->loss_scaling,
                              .fp8 = k->fp8,
                              .clip = 1};
    w.ctx = tl_ctx_new(&options, &error);
    assert_non_null(w.ctx);
    w.sums = tl_sums_new(NULL, seed, &error);
    assert_non_null(w.sums);
    w.trainer = tl_trainer_new(w.ctx, &model, &train);
    if (!w.trainer)
        fail_msg("%s: %s", k->name, tl_ctx_error(w.ctx)->message);
    if (k->scale > 0)
        assert_int_equal(tl_trainer_set_scaler(w.trainer, &(tl_loss_scaler){.scale = k->scale}), TL_OK);
    return w;
}

void ckpt_end(ckpt_world *w) {
    tl_trainer_free(w->trainer);
    tl_ctx_free(w->ctx);
    tl_sums_free(w->sums);
}

void ckpt_precision_of(ckpt_world *w, ckpt_precision *p) {
    tl_loss_scaler scaler;
    const char *name;
    tl_tensor *tensor;
    *p = (ckpt_precision){.part = {.name = "precision", .tensors = p->tensors, .texts = p->texts}};
    while (tl_trainer_extra(w->trainer, (int)p->part.n_tensors, &name, &tensor)) {
        assert_true(p->part.n_tensors < CKPT_EXTRAS);
        p->tensors[p->part.n_tensors++] = (tl_ckpt_tensor){name, tensor};
    }
    if (tl_trainer_scaler(w->trainer, &scaler)) {
        static const char *const keys[] = {"loss_scale", "good_steps", "skipped"};
        const double values[] = {scaler.scale, (double)scaler.good_steps, (double)scaler.skipped};
        for (int i = 0; i < 3; i++) {
            snprintf(p->numbers[i], sizeof p->numbers[i], "%.17g", values[i]);
            p->texts[p->part.n_texts++] = (tl_safetensors_text){keys[i], p->numbers[i]};
        }
    }
    w->parts = &p->part;
    w->n_parts = 1;
}

void ckpt_take_scaler(const ckpt_world *w, const char *path) {
    tl_error error = {TL_OK, ""};
    tl_loss_scaler scaler;
    if (!tl_trainer_scaler(w->trainer, &scaler))
        return;
    tl_ckpt *c = tl_ckpt_open(path, &error);
    assert_non_null(c);
    scaler.scale = strtod(tl_ckpt_text(c, "precision.loss_scale"), NULL);
    scaler.good_steps = strtoll(tl_ckpt_text(c, "precision.good_steps"), NULL, 10);
    scaler.skipped = strtoll(tl_ckpt_text(c, "precision.skipped"), NULL, 10);
    tl_ckpt_close(c);
    assert_int_equal(tl_trainer_set_scaler(w->trainer, &scaler), TL_OK);
}

static tl_status source(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    (void)micro;
    return tl_sums_batch(user, ctx, o->micro_batch, o->seq, &batch->input, &batch->target);
}

double ckpt_steps(ckpt_world *w, int count) {
    tl_step_result result = {0};
    for (int i = 0; i < count; i++)
        if (tl_trainer_step(w->trainer, source, w->sums, 1e-2, &result) != TL_OK)
            fail_msg("%s", tl_ctx_error(w->ctx)->message);
    w->steps += count;
    return result.loss;
}

tl_ckpt_contents ckpt_contents(const ckpt_world *w) {
    return (tl_ckpt_contents){w->ctx, tl_trainer_net(w->trainer), tl_trainer_optimizer(w->trainer), w->parts,
                              w->n_parts};
}

tl_ckpt_state ckpt_state(const ckpt_world *w) {
    return (tl_ckpt_state){.step = w->steps, .total_steps = 10, .data_position = tl_sums_position(w->sums)};
}

static void assert_same_tensor(const char *name, const tl_tensor *a, const tl_tensor *b) {
    assert_int_equal(a != NULL, b != NULL);
    if (!a)
        return;
    assert_int_equal(tl_tensor_dtype(a), tl_tensor_dtype(b));
    assert_int_equal(tl_tensor_storage_bytes(a), tl_tensor_storage_bytes(b));
    if (memcmp(tl_tensor_storage_data(a), tl_tensor_storage_data(b), (size_t)tl_tensor_storage_bytes(a)) != 0)
        fail_msg("%s differs", name);
}

void ckpt_assert_same(const ckpt_world *x, const ckpt_world *y) {
    const tl_parameter *a, *b;
    int n = tl_net_parameters(tl_trainer_net(x->trainer), &a);
    assert_int_equal(tl_net_parameters(tl_trainer_net(y->trainer), &b), n);
    const tl_optimizer *p = tl_trainer_optimizer(x->trainer), *q = tl_trainer_optimizer(y->trainer);
    for (int i = 0; i < n; i++) {
        assert_same_tensor(a[i].name, a[i].tensor, b[i].tensor);
        assert_same_tensor(a[i].name, tl_optimizer_master(p, i), tl_optimizer_master(q, i));
        for (int k = 0; k < TL_OPTIM_MAX_STATES; k++)
            assert_same_tensor(a[i].name, tl_optimizer_state(p, i, k), tl_optimizer_state(q, i, k));
    }
}

unsigned char *ckpt_read_file(const char *path, size_t *length) {
    struct stat st;
    int file = open(path, O_RDONLY);
    assert_true(file >= 0 && fstat(file, &st) == 0);
    *length = (size_t)st.st_size;
    unsigned char *data = malloc(*length + 1);
    assert_non_null(data);
    assert_int_equal(read(file, data, *length), (ssize_t)*length);
    close(file);
    return data;
}

void ckpt_write_file(const char *path, const void *data, size_t length) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(file >= 0);
    assert_int_equal(write(file, data, length), (ssize_t)length);
    close(file);
}
