/* cli/train_checkpoint.c: what tally train's checkpoints hold, saved and taken up again. */
#include <math.h>
#include <string.h>

#include "tally/config.h"
#include "lora.h"
#include "tally/weights.h"
#include "train.h"

/* At most 1024 blocks (tl_model_check) with seven linear layers each, and a state of float8 for each. */
enum { EXTRAS = 8192, SCALER_TEXTS = 3 };

/* What a checkpoint holds beside the state proper: enough to build the model again without the run's folder, and what the
 * precision carries from step to step. */
typedef struct contents {
    tl_ckpt_contents run;
    tl_ckpt_part parts[2];
    tl_safetensors_text texts[4], scaler[SCALER_TEXTS];
    char numbers[SCALER_TEXTS][32], lora[TL_LORA_TARGETS + 128];
    tl_ckpt_tensor extras[EXTRAS];
    tl_json *config;
} contents;

static const char *const scaler_keys[SCALER_TEXTS] = {"loss_scale", "good_steps", "skipped"};

static void precision_of(const tl_trainer *trainer, contents *c) {
    tl_ckpt_part *part = &c->parts[1];
    tl_loss_scaler scaler;
    const char *name;
    tl_tensor *tensor;
    *part = (tl_ckpt_part){.name = "precision", .tensors = c->extras, .texts = c->scaler};
    while (part->n_tensors < EXTRAS && tl_trainer_extra(trainer, (int)part->n_tensors, &name, &tensor))
        c->extras[part->n_tensors++] = (tl_ckpt_tensor){name, tensor};
    if (!tl_trainer_scaler(trainer, &scaler))
        return;
    snprintf(c->numbers[0], sizeof c->numbers[0], "%.17g", scaler.scale);
    snprintf(c->numbers[1], sizeof c->numbers[1], "%lld", (long long)scaler.good_steps);
    snprintf(c->numbers[2], sizeof c->numbers[2], "%lld", (long long)scaler.skipped);
    for (int i = 0; i < SCALER_TEXTS; i++)
        c->scaler[part->n_texts++] = (tl_safetensors_text){scaler_keys[i], c->numbers[i]};
}

static contents *contents_of(const tl_train *t, tl_ctx *ctx, tl_trainer *trainer) {
    static contents c; /* large enough that the stack is no place for it */
    c.run = (tl_ckpt_contents){.ctx = ctx,
                               .net = tl_trainer_net(trainer),
                               .optimizer = tl_trainer_optimizer(trainer),
                               .parts = c.parts,
                               .n_parts = 2};
    c.config = tl_config_json(&t->model, TL_DTYPE_COUNT);
    c.texts[0] = (tl_safetensors_text){"task", t->task->name};
    c.texts[1] = (tl_safetensors_text){"config", c.config ? tl_json_text(c.config, NULL) : NULL};
    c.parts[0] = (tl_ckpt_part){.name = "run", .texts = c.texts, .n_texts = 2};
    const tl_lora_options *lora = tl_net_lora(tl_trainer_net(trainer));
    if (lora) {
        tl_cli_lora_note(lora, c.lora, sizeof c.lora);
        c.texts[c.parts[0].n_texts++] = (tl_safetensors_text){"lora", c.lora};
    }
    if (t->texts[TL_SET_GROUPS][0])
        c.texts[c.parts[0].n_texts++] = (tl_safetensors_text){"groups", t->texts[TL_SET_GROUPS]};
    precision_of(trainer, &c);
    return &c;
}

tl_status tl_train_save(const tl_train *t, tl_ctx *ctx, tl_trainer *trainer, const tl_ckpt_state *state,
                        tl_error *error) {
    char path[TL_PATH];
    contents *c = contents_of(t, ctx, trainer);
    tl_status status = tl_ckpt_folder_save(tl_train_path(t, "checkpoints", path), t->keep, &c->run, state, error);
    tl_json_free(c->config);
    return status;
}

static tl_status restore_scaler(tl_ctx *ctx, tl_trainer *trainer, const char *path, tl_error *error) {
    tl_loss_scaler scaler;
    double values[SCALER_TEXTS];
    bool whole = true;
    if (!tl_trainer_scaler(trainer, &scaler))
        return TL_OK;
    tl_ckpt *c = tl_ckpt_open(path, error);
    if (!c)
        return error->status;
    for (int i = 0; i < SCALER_TEXTS; i++) {
        char key[48];
        snprintf(key, sizeof key, "precision.%s", scaler_keys[i]);
        const char *text = tl_ckpt_text(c, key);
        whole = whole && text && tl_parse_number(text, 0, i == 0 ? 0x1p126 : 0x1p53, &values[i], NULL) == TL_OK;
    }
    tl_ckpt_close(c);
    if (!whole)
        return tl_fail(error, TL_ERR_FORMAT, "%s has no state of the loss scaling: it is of another --precision", path);
    scaler = (tl_loss_scaler){values[0], (int64_t)values[1], (int64_t)values[2]};
    tl_status status = tl_trainer_set_scaler(trainer, &scaler);
    return status == TL_OK ? TL_OK : tl_fail(error, status, "%s", tl_ctx_error(ctx)->message);
}

/* Other rules would make another run of it; which tensors have states shows only what is frozen. */
static tl_status check_groups(const tl_train *t, const char *path, tl_error *error) {
    const char *now = t->texts[TL_SET_GROUPS];
    tl_ckpt *c = tl_ckpt_open(path, error);
    if (!c)
        return error->status;
    const char *then = tl_ckpt_text(c, "run.groups");
    if (strcmp(then ? then : "", now) != 0)
        tl_fail(error, TL_ERR_FORMAT,
                "%.300s was saved %s%.400s; the run in %.300s now has %s%.400s. Those of the checkpoint go on", path,
                then ? "with the groups " : "without groups", then ? then : "", t->folder,
                now[0] ? "the groups " : "none", now);
    tl_ckpt_close(c);
    return error->status;
}

tl_status tl_train_restore(tl_train *t, tl_ctx *ctx, tl_trainer *trainer, int64_t *start, uint64_t *position,
                           tl_error *error) {
    char path[TL_PATH];
    tl_ckpt_state state = {0};
    tl_ckpt_found found;
    contents *c = contents_of(t, ctx, trainer);
    tl_train_path(t, "checkpoints", path);
    if (tl_ckpt_folder_latest(path, found.path, NULL) == TL_OK && check_groups(t, found.path, error) != TL_OK) {
        tl_json_free(c->config);
        return error->status;
    }
    tl_status status = tl_ckpt_folder_load(tl_train_path(t, "checkpoints", path), &c->run, &state, &found, error);
    tl_json_free(c->config);
    if (status == TL_ERR_NOT_FOUND) {
        tl_note(t->cli, "%s has no checkpoint yet: the run starts at its first step", t->folder);
        tl_error_clear(error);
        return TL_OK;
    }
    if (status == TL_OK)
        status = restore_scaler(ctx, trainer, found.path, error);
    if (status != TL_OK)
        return status;
    if (found.note[0])
        tl_say(t->cli, "%s", found.note);
    *start = state.step;
    *position = state.data_position;
    if (state.total_steps > 0)
        t->steps = state.total_steps;
    t->total_is_kept = state.total_steps > 0 && state.total_steps < TL_STEPS_OPEN;
    if (t->total_is_kept && t->minutes > 0)
        tl_note(t->cli,
                "--minutes %s ends the training, and does not change the schedule: it stays that of the %lld steps of "
                "the checkpoint, bit for bit",
                t->texts[TL_SET_MINUTES], (long long)state.total_steps);
    if (t->steps >= TL_STEPS_OPEN && t->minutes <= 0) /* it would go on for good */
        return tl_fail(
            error, TL_ERR_ARGUMENT,
            "the run in %.900s was stopped before --minutes had set its number of steps: give --minutes again",
            t->folder);
    return TL_OK;
}

double tl_train_best(const tl_train *t) {
    char path[TL_PATH];
    tl_ckpt *best = tl_ckpt_open(tl_train_path(t, "checkpoints/best", path), NULL);
    const tl_ckpt_state *state = best ? tl_ckpt_state_of(best) : NULL;
    const double loss = state && state->has_validation_loss ? state->validation_loss : INFINITY;
    tl_ckpt_close(best);
    return loss;
}

tl_status tl_train_load_weights(const tl_train *t, tl_ctx *ctx, tl_trainer *trainer, tl_error *error) {
    tl_weights_report report;
    char bytes[TL_TEXT];
    const tl_status status = tl_weights_load(t->texts[TL_SET_WEIGHTS], tl_trainer_net(trainer), &report, error);
    if (status != TL_OK)
        return status;
    if (tl_optimizer_refresh(tl_trainer_optimizer(trainer)) != TL_OK)
        return tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    tl_note(t->cli, "%s: %lld tensors, %s%s%s", t->texts[TL_SET_WEIGHTS], (long long)report.tensors,
            tl_text_bytes((double)report.bytes, t->cli->units, bytes), report.note[0] ? "; " : "", report.note);
    return TL_OK;
}
