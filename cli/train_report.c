/* cli/train_report.c: what is said of a run, as it begins and once it is over. */
#include <unistd.h>

#include "groups.h"
#include "train_run.h"

tl_dtype tl_training_product_dtype(const tl_training *r) {
    return r->planned.train.autocast ? r->planned.train.low : r->planned.train.dtype;
}

static int report_json(tl_training *r) {
    tl_json *json = tl_cli_json_open(r->t->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "folder", r->t->folder);
    if (r->line.step > r->start)
        tl_line_json(json, &r->line);
    else
        tl_json_put_integer(json, "step", r->line.step); /* nothing was left to train */
    if (r->t->task->is_examined(r->t)) {
        tl_json_key(json, "evaluation");
        tl_json_object(json);
        r->t->task->put_result(r->t, json);
        tl_json_end(json);
    }
    return tl_cli_json_close(r->t->cli, json);
}

static void report_account(const tl_training *r) {
    const tl_cli *cli = r->t->cli;
    const tl_measured *m = &r->measured;
    char planned[TL_TEXT], measured[TL_TEXT];
    if (m->steps == 0) {
        if (r->line.step > r->start)
            tl_out_item(cli, "account",
                        "none: the first step makes what later ones keep; from the second on they are measured");
        return;
    }
    bool equal = m->steps_that_differ == 0 && m->peak_bytes == r->plan.peak.bytes;
    if (equal)
        tl_out_item(cli, "account",
                    "planned = measured in each of %lld steps: peak %s B, %s matmul FLOPs, %lld allocations",
                    (long long)m->steps, tl_text_grouped((tl_u128)m->peak_bytes, planned),
                    tl_text_grouped(m->flops, measured), (long long)m->allocations);
    else
        tl_out_item(
            cli, "account", "planned and measured DIFFER in %lld of %lld steps: peak %s B planned, %s B measured",
            (long long)m->steps_that_differ, (long long)m->steps, tl_text_grouped((tl_u128)r->plan.peak.bytes, planned),
            tl_text_grouped((tl_u128)m->peak_bytes, measured));
    tl_out_item(cli, "unplanned", "%lld B outside the arena", (long long)m->unplanned_bytes);
}

int tl_training_report(tl_training *r) {
    const tl_train *t = r->t;
    char seconds[TL_TEXT], path[TL_PATH];
    if (t->cli->format == TL_FORMAT_JSON)
        return report_json(r);
    if (t->steps >= TL_STEPS_OPEN)
        tl_out(t->cli, "%s: step %lld of as many as --minutes will allow, loss %.4f\n", t->folder,
               (long long)r->line.step, r->line.loss);
    else if (r->line.step > r->start)
        tl_out(t->cli, "%s: step %lld of %lld, %s of training, loss %.4f\n", t->folder, (long long)r->line.step,
               (long long)t->steps, tl_text_duration(r->trained_seconds, seconds), r->line.loss);
    else
        tl_out(t->cli, "%s: step %lld of %lld, nothing left to train\n", t->folder, (long long)r->line.step,
               (long long)t->steps);
    if (t->task->is_examined(t))
        t->task->out_result(t);
    if (r->trained_seconds > 0)
        tl_out_item(t->cli, "waiting", "%s for data, %.2f %% of the time", tl_text_duration(r->waited_seconds, seconds),
                    100 * r->waited_seconds / r->trained_seconds);
    report_account(r);
    if (access(tl_train_path(t, "ledger.json", path), F_OK) == 0)
        tl_out_item(t->cli, "next", "tally ledger %s", t->folder);
    return TL_EXIT_OK;
}

void tl_training_announce(const tl_training *r) {
    const tl_train *t = r->t;
    char parameters[TL_TEXT], peak[TL_TEXT], planned[TL_TEXT], speed[TL_TEXT] = "not measured", text[512];
    double rate = tl_machine_peak(&t->machine, tl_training_product_dtype(r));
    if (rate > 0)
        tl_text_rate(rate, speed);
    tl_note(t->cli, "%s  %s, %s parameters | %d thread%s, %s | peak %s %s%s | planned peak %s, arena %s", t->folder,
            t->model.name, tl_text_count((double)r->plan.parameters.unique, parameters), t->threads,
            t->threads == 1 ? "" : "s", tl_ctx_device(r->ctx), speed, tl_dtype_name(tl_training_product_dtype(r)),
            rate > 0 ? " (measured now)" : "", tl_text_bytes((double)r->plan.peak.bytes, t->cli->units, peak),
            tl_text_bytes((double)r->plan.arena_bytes, t->cli->units, planned));
    if (r->planned.train.fp8)
        tl_note(t->cli,
                "fp8 is emulated: values of the blocks' linear layers are rounded to it and multiplied in bf16");
    for (int i = 0; i < r->plan.n_groups; i++)
        tl_note(t->cli, "group %s", tl_group_text(&t->plan.optimizer, &r->plan.groups[i], text, sizeof text));
    if (t->task->say_data)
        t->task->say_data(t);
}
