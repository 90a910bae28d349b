/* A whole training loop: tokens in a memory-mapped .npy, batches cut from it, a small transformer, a checkpoint, and a second
 * run that goes on from it and ends with the same bits as a run that was never stopped.
 *
 *     cc training_loop.c $(pkg-config --cflags --libs tally)
 *     training_loop [FOLDER]        where tokens.npy and run.safetensors go (default: the current one)
 */
#include <stdio.h>
#include <string.h>

#include <tally/ckpt.h>
#include <tally/cpu.h>
#include <tally/npy.h>
#include <tally/ops.h>
#include <tally/train.h>

enum { TOKENS = 4096, VOCAB = 32, B = 8, T = 16, STEPS = 30 };

/* The data: where the tokens lie, and how many batches were drawn. */
typedef struct stream {
    const tl_tensor *tokens;
    uint64_t drawn; /* examples: what a checkpoint keeps, so that a resumed run does not repeat them */
} stream;

/* B places anywhere in the tokens; inputs are T tokens from there, targets the same one further on. Which places depends on
 * the number of the example alone, so a run that goes on draws what it would have drawn. */
static tl_status get_batch(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    stream *s = user;
    int32_t input[B * T], target[B * T];
    const int32_t *tokens = tl_tensor_data(s->tokens);
    int64_t count = tl_tensor_count(s->tokens);
    (void)micro;
    if (count < o->seq + 1)
        return TL_ERR_ARGUMENT; /* not one example; count − T must not become negative */
    for (int64_t i = 0; i < o->micro_batch; i++, s->drawn++) {
        uint64_t start = s->drawn * UINT64_C(0x9E3779B97F4A7C15) % (uint64_t)(count - o->seq);
        memcpy(input + i * T, tokens + start, T * sizeof *tokens);
        memcpy(target + i * T, tokens + start + 1, T * sizeof *tokens);
    }
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(o->micro_batch), tl_dim_of(o->seq));
    batch->input = tl_from_data(ctx, TL_I32, shape, TL_DATA, input, o->micro_batch * o->seq);
    batch->target = tl_from_data(ctx, TL_I32, shape, TL_DATA, target, o->micro_batch * o->seq);
    return tl_ctx_status(ctx);
}

/* Something to learn: after token t comes (5·t + 3) mod 32, which goes through all 32. */
static tl_status write_tokens(tl_ctx *ctx, const char *path) {
    static int32_t tokens[TOKENS];
    for (int i = 1; i < TOKENS; i++)
        tokens[i] = (5 * tokens[i - 1] + 3) % VOCAB;
    return tl_npy_write(tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(TOKENS)), TL_DATA, tokens, TOKENS), path);
}

static tl_model small_gpt2(void) {
    return (tl_model){.name = "small gpt2",
                      .family = TL_FAMILY_GPT2,
                      .layers = 2,
                      .width = 32,
                      .heads = 4,
                      .kv_heads = 4,
                      .head_size = 8,
                      .ff = 128,
                      .vocab = VOCAB,
                      .context = T,
                      .tied = true,
                      .learned_positions = true,
                      .attention_bias = true,
                      .mlp_bias = true,
                      .activation = TL_GELU_TANH,
                      .norm_epsilon = 1e-5,
                      .init_std = 0.02};
}

typedef struct job {
    const char *tokens, *load, *save; /* files; load and save may be NULL */
    int64_t from, to;                 /* steps */
} job;

/* Trains from a checkpoint or from the start; the losses of its first and last step. */
static int train(const job *j, double *first, double *last) {
    tl_error error = {TL_OK, ""};
    tl_ctx_options where = {.kernels = tl_kernels_for_cpu(NULL, &error), .seed_init = 1};
    tl_ctx *ctx = where.kernels ? tl_ctx_new(&where, &error) : NULL;
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    tl_train_options o = {.micro_batch = B, .seq = T, .accumulation = 1, .ranks = 1, .dtype = TL_F32, .clip = 1.0};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_model model = small_gpt2();
    stream s = {.tokens = tl_npy_read(ctx, j->tokens, NULL)};
    tl_trainer *trainer = s.tokens ? tl_trainer_new(ctx, &model, &o) : NULL;
    tl_ckpt_state state = {.total_steps = STEPS};
    tl_step_result result = {0};
    tl_status status = trainer ? TL_OK : tl_ctx_status(ctx);
    tl_ckpt_contents contents = {.ctx = ctx};
    if (trainer) {
        contents.net = tl_trainer_net(trainer);
        contents.optimizer = tl_trainer_optimizer(trainer);
    }
    if (status == TL_OK && j->load) {
        status = tl_ckpt_load(j->load, &contents, &state, &error);
        s.drawn = state.data_position;
    }
    const tl_schedule schedule = {TL_SCHEDULE_COSINE, .max = 1e-2, .min = 1e-3, .warmup = 5, .total = STEPS};
    for (int64_t step = j->from; step < j->to && status == TL_OK; step++) {
        double lr = tl_schedule_lr(&schedule, step + 1);
        status = tl_trainer_step(trainer, get_batch, &s, lr, &result);
        if (step == j->from)
            *first = result.loss;
    }
    *last = result.loss;
    if (status == TL_OK && j->save) {
        state.data_position = s.drawn;
        status = tl_ckpt_save(j->save, &contents, &state, &error);
    }
    if (status != TL_OK)
        fprintf(stderr, "%s\n", error.status != TL_OK ? error.message : tl_ctx_error(ctx)->message);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return status != TL_OK;
}

static int write_data(const char *path) {
    tl_error error = {TL_OK, ""};
    tl_ctx_options where = {.kernels = tl_kernels_for_cpu(NULL, &error)};
    tl_ctx *ctx = where.kernels ? tl_ctx_new(&where, &error) : NULL;
    tl_status status = ctx ? write_tokens(ctx, path) : error.status;
    if (status != TL_OK)
        fprintf(stderr, "%s\n", ctx ? tl_ctx_error(ctx)->message : error.message);
    tl_ctx_free(ctx);
    return status != TL_OK;
}

int main(int argc, char **argv) {
    char tokens[1024], checkpoint[1024];
    const char *folder = argc > 1 ? argv[1] : ".";
    snprintf(tokens, sizeof tokens, "%s/tokens.npy", folder);
    snprintf(checkpoint, sizeof checkpoint, "%s/run.safetensors", folder);
    double first = 0, last = 0, half = 0, resumed = 0, ignored = 0;
    if (write_data(tokens) || train(&(job){tokens, NULL, NULL, 0, STEPS}, &first, &last) ||
        train(&(job){tokens, NULL, checkpoint, 0, STEPS / 2}, &ignored, &half) ||
        train(&(job){tokens, checkpoint, NULL, STEPS / 2, STEPS}, &ignored, &resumed))
        return 1;
    printf("loss of step 1: %.4f (ln %d = 3.4657 is a guess)\n", first, VOCAB);
    printf("loss of step %d: %.4f: %s\n", STEPS, last, last < first / 2 ? "it falls" : "it does not fall");
    printf("stopped after step %d, saved, loaded, gone on: %s\n", STEPS / 2,
           memcmp(&last, &resumed, sizeof last) == 0 ? "the same loss, bit for bit" : "another loss");
    return 0;
}
