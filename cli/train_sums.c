/* cli/train_sums.c: the task `sums': "137+485=622", made up as it goes, tested on sums it was never shown. */
#include <stdlib.h>

#include "train.h"

enum { ASKED = 4096, ASKED_MEANWHILE = 512, ASK_BATCH = 512, SHOWN = 6 };

typedef struct tl_sums_task {
    tl_sums *sums;
    tl_sums_score score;
    tl_sums_answer answers[SHOWN];
} tl_sums_task;

static int open_sums(tl_train *t) {
    t->task_data = calloc(1, sizeof(tl_sums_task));
    if (!t->task_data) {
        tl_say(t->cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    t->vocab = TL_SUMS_VOCAB;
    return TL_EXIT_OK;
}

static tl_status start_sums(tl_train *t, tl_ctx *ctx, tl_trainer *trainer, uint64_t position, tl_error *error) {
    tl_sums_task *s = t->task_data;
    (void)ctx;
    (void)trainer;
    if (!(s->sums = tl_sums_new(NULL, t->seed_data, error)))
        return error->status;
    tl_sums_seek(s->sums, position);
    return TL_OK;
}

static tl_status next_sums(tl_train *t, tl_ctx *ctx, const tl_train_options *o, tl_batch *batch) {
    const tl_sums_task *s = t->task_data;
    return tl_sums_batch(s->sums, ctx, o->micro_batch, o->seq, &batch->input, &batch->target);
}

static uint64_t position_of_sums(const tl_train *t) {
    const tl_sums_task *s = t->task_data;
    return tl_sums_position(s->sums);
}

static tl_status ask(tl_train *t, tl_ctx *ctx, tl_net *net, bool last, tl_error *error) {
    tl_sums_task *s = t->task_data;
    const int64_t batch = t->plan.micro_batch < ASK_BATCH ? t->plan.micro_batch : ASK_BATCH;
    if (tl_sums_evaluate(s->sums, net, ctx, 0, last ? ASKED : ASKED_MEANWHILE, batch, &s->score,
                         last ? s->answers : NULL, last ? SHOWN : 0) != TL_OK)
        return tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    tl_peak peak;
    tl_ledger_peak(ctx, &peak);
    t->examined_peak = peak.bytes;
    return TL_OK;
}

static bool is_asked(const tl_train *t) { return ((const tl_sums_task *)t->task_data)->score.asked > 0; }

static void say_score(const tl_train *t, int64_t step) {
    const tl_sums_task *s = t->task_data;
    tl_note(t->cli, "step %lld: %lld of %lld held-out sums exact", (long long)step, (long long)s->score.right,
            (long long)s->score.asked);
}

static void put_score(const tl_train *t, tl_json *json) {
    const tl_sums_task *s = t->task_data;
    tl_json_put_integer(json, "asked", s->score.asked);
    tl_json_put_integer(json, "right", s->score.right);
    tl_json_put_real(json, "exact", (double)s->score.right / (double)s->score.asked);
    tl_json_key(json, "answers");
    tl_json_array(json);
    for (int i = 0; i < SHOWN && i < s->score.asked; i++)
        tl_json_string(json, s->answers[i].text);
    tl_json_end(json);
}

static void out_score(const tl_train *t) {
    const tl_sums_task *s = t->task_data;
    tl_out_item(t->cli, "held-out", "%lld of %lld sums exact (%.2f %%); neither they nor their mirrors were trained on",
                (long long)s->score.right, (long long)s->score.asked,
                100.0 * (double)s->score.right / (double)s->score.asked);
    for (int i = 0; i < SHOWN && i < s->score.asked; i++) {
        const tl_sums_answer *a = &s->answers[i];
        char sum[24];
        snprintf(sum, sizeof sum, "wrong: %d", a->a + a->b);
        tl_out(t->cli, "    %-14s %s\n", a->text, a->right ? "right" : sum);
    }
}

static void close_sums(tl_train *t) {
    tl_sums_task *s = t->task_data;
    if (s)
        tl_sums_free(s->sums);
    free(s);
    t->task_data = NULL;
}

static tl_status check_sums(const tl_train *t, tl_error *error) {
    if (t->plan.choices.documents)
        return tl_fail(error, TL_ERR_ARGUMENT, "--documents masked changes nothing about sums, each a row of its own");
    return TL_OK;
}

const tl_task tl_task_sums = {.name = "sums",
                              .least_seq = TL_SUMS_SEQ,
                              .open = open_sums,
                              .check = check_sums,
                              .start = start_sums,
                              .batch = next_sums,
                              .position = position_of_sums,
                              .examine = ask,
                              .is_examined = is_asked,
                              .say_result = say_score,
                              .put_result = put_score,
                              .out_result = out_score,
                              .close = close_sums};
