/* cli/explain_flops.c: tally explain MODEL flops. */
#include <string.h>

#include "explain_out.h"

typedef struct tl_flops {
    tl_explain_sum forward, backward, all, params; /* in the convention asked for */
    tl_explain_sum other;                          /* the whole step in the other convention */
    tl_explain_sum again;                          /* computed a second time; none: no terms */
    tl_explain_six six;
    tl_u128 tokens, executed;
    const tl_poly *per_token;
    bool words;
} tl_flops;

static void flops_free(tl_flops *f) {
    tl_explain_sum *sums[] = {&f->forward, &f->backward, &f->all, &f->params, &f->other, &f->again};
    for (int i = 0; i < 6; i++)
        if (sums[i]->run)
            tl_explain_free(sums[i]);
}

static tl_status flops_make(const tl_explained *e, tl_flops *f, tl_error *error) {
    const tl_plan_run *run = &e->run;
    tl_explain_count which = e->options.causal ? TL_EXPLAIN_MATMUL_CAUSAL : TL_EXPLAIN_MATMUL;
    tl_explain_count other = e->options.causal ? TL_EXPLAIN_MATMUL : TL_EXPLAIN_MATMUL_CAUSAL;
    memset(f, 0, sizeof *f);
    tl_status status = tl_explain_flops(run, TL_PHASE_FORWARD, which, &f->forward, error);
    if (status == TL_OK)
        status = tl_explain_flops(run, TL_PHASE_BACKWARD, which, &f->backward, error);
    if (status == TL_OK)
        status = tl_explain_flops(run, TL_PHASE_ALL, which, &f->all, error);
    if (status == TL_OK)
        status = tl_explain_flops(run, TL_PHASE_ALL, other, &f->other, error);
    if (status == TL_OK)
        status = tl_explain_recomputed(run, which, &f->again, error);
    if (status == TL_OK)
        status = tl_explain_params(run, &f->params, error);
    if (status == TL_OK)
        status = tl_explain_six_of(&f->all, &f->params, &f->six, error);
    if (status != TL_OK)
        return status;
    tl_counts counts;
    tl_ledger_counts(run->ctx, TL_PHASE_ALL, &counts);
    f->executed = counts.executed;
    tl_space *space = tl_ctx_space(run->ctx);
    f->words = e->options.model.family != TL_FAMILY_CRUNCHER;
    f->tokens = (tl_u128)run->train.micro_batch * (tl_u128)run->train.accumulation * (tl_u128)run->train.seq;
    const tl_poly *tokens = tl_poly_symbol(space, "B", run->train.micro_batch, NULL);
    if (f->words)
        tokens = tl_poly_mul(space, tokens, tl_poly_symbol(space, "T", run->train.seq, NULL));
    if (run->train.accumulation > 1)
        tokens = tl_poly_mul(space, tokens, tl_poly_symbol(space, "A", run->train.accumulation, NULL));
    f->per_token = tl_poly_div(space, f->all.formula, tokens);
    return tl_explain_check(run, "the FLOPs per token", f->per_token, f->all.value / f->tokens, error);
}

/* Of a mixture of experts, 6·tokens of the parameters that a token passes; else 0. */
static tl_u128 six_of_active(const tl_explained *e, const tl_flops *f, tl_parameter_count *count) {
    tl_net_count(tl_trainer_net(e->run.trainer), count);
    if (e->options.model.experts == 0 || count->active == count->unique)
        return 0;
    return (tl_u128)TL_NAPKIN_FLOPS * f->tokens * (tl_u128)count->active;
}

static void out_active(const tl_explained *e, const tl_flops *f) {
    char six[TL_TEXT], active[TL_TEXT];
    tl_parameter_count count;
    const tl_u128 passed = six_of_active(e, f, &count);
    if (passed == 0)
        return;
    const double off = 100 * (tl_u128_double(f->all.value) / tl_u128_double(passed) - 1);
    tl_out_item(e->cli, "", "of the %s parameters that a token passes it is %s; the count is %.2f %% %s",
                tl_text_grouped((tl_u128)count.active, active), tl_text_grouped(passed, six), off < 0 ? -off : off,
                off < 0 ? "less" : "more");
}

static void six_out(const tl_explained *e, const tl_flops *f) {
    char six[TL_TEXT], attention[TL_TEXT], idle[TL_TEXT];
    const tl_explain_six *s = &f->six;
    const tl_plan_run *run = &e->run;
    double off = 100 * (tl_u128_double(f->all.value) / tl_u128_double(s->six) - 1);
    tl_out_item(e->cli, "6·P·tokens", "%s; the count is %.2f %% %s:", tl_explained_value(s->six, six),
                off < 0 ? -off : off, off < 0 ? "less" : "more");
    if (s->attention)
        tl_out_item(e->cli, "", "+ %s scores and values of attention, which hold no parameter\n= %s",
                    tl_explained_value(s->attention, attention), tl_explained_text(run, s->attention_formula, 0));
    if (s->idle)
        tl_out_item(e->cli, "", "- %s %s\n= %s", tl_explained_value(s->idle, idle),
                    !f->words ? "the first layer's input needs no gradient"
                    : e->options.model.experts > 0
                        ? "parameters in no product of a token's: experts it is not sent to, norms, biases, "
                          "tables looked up"
                        : "parameters in no product: norms, biases, tables looked up",
                    tl_explained_text(run, s->idle_formula, 0));
    out_active(e, f);
}

static void flops_text(const tl_explained *e, const tl_flops *f) {
    const tl_cli *cli = e->cli;
    const tl_plan_run *run = &e->run;
    const char *how = e->options.causal ? "causal" : "full";
    const tl_poly *const formulas[] = {f->all.formula, f->other.formula, NULL};
    char value[TL_TEXT], line[TL_TEXT + 40], rest[4096], brief[TL_TEXT];
    snprintf(line, sizeof line, "%s FLOPs a step", tl_explained_value(f->all.value, value));
    snprintf(rest, sizeof rest, "= %s", tl_explained_text(run, f->all.formula, 0));
    tl_out_answer(cli, line, rest);
    tl_out_item(cli, "forward", "%s\n= %s", tl_explained_value(f->forward.value, value),
                tl_explained_text(run, f->forward.formula, 0));
    tl_out_item(cli, "backward", "%s\n= %s\n(%.4g × forward, as it came out)",
                tl_explained_value(f->backward.value, value), tl_explained_text(run, f->backward.formula, 0),
                tl_u128_double(f->backward.value) / tl_u128_double(f->forward.value));
    if (f->again.value) {
        tl_out_item(cli, "again", "%s for backward (%.2f %% of the above)\n= %s",
                    tl_explained_value(f->again.value, value), 100 * tl_explained_share(f->again.value, f->all.value),
                    tl_explained_text(run, f->again.formula, 0));
        tl_u128 both = f->all.value + f->again.value;
        tl_out_item(cli, "hardware", "%s executed, %s", tl_explained_value(f->executed, value),
                    f->executed == both  ? "the two together"
                    : f->executed < both ? "hidden blocks of attention are not"
                                         : "hidden pairs of attention too");
    }
    tl_out_item(cli, f->words ? "per token" : "per row", "%s\n= %s",
                tl_explained_value(f->all.value / f->tokens, value), tl_explained_text(run, f->per_token, 0));
    if (f->words)
        tl_out_item(cli, e->options.causal ? "full" : "causal", "%s a step by the %s convention (%.2f %%)\n= %s",
                    tl_explained_value(f->other.value, value), e->options.causal ? "full T·T" : "causal T·(T + 1)/2",
                    100 * tl_explained_share(f->other.value, f->all.value),
                    tl_explained_text(run, f->other.formula, 0));
    six_out(e, f);
    tl_explained_shares_out(e, "shares", &f->forward);
    tl_explained_symbols_out(e, run, formulas);
    if (e->steps) {
        tl_explained_steps_out(e, "forward", &f->forward);
        tl_explained_steps_out(e, "backward", &f->backward);
        if (f->again.value)
            tl_explained_steps_out(e, "again, for backward", &f->again);
        tl_out(cli, "\n");
    }
    tl_text_flops(tl_u128_double(f->all.value), brief);
    if (f->words)
        tl_out_item(cli, "counted",
                    "products only (%s), a multiply-add as 2; attention %s; a look-up costs 0, the head "
                    "always counts",
                    brief, how);
    else
        tl_out_item(cli, "counted", "products only (%s), a multiply-add as 2", brief);
    tl_explained_assumed_out(e, run);
    if (!e->steps)
        tl_out_item(cli, "next:", "tally explain %.100s flops --steps\n  (line by line)", e->asked);
}

static int flops_json(const tl_explained *e, const tl_flops *f) {
    const tl_plan_run *run = &e->run;
    const tl_poly *const formulas[] = {f->all.formula, f->other.formula, NULL};
    const tl_explain_sum *full = e->options.causal ? &f->other : &f->all;
    const tl_explain_sum *causal = e->options.causal ? &f->all : &f->other;
    tl_json *json = tl_cli_json_open(e->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_explained_json(json, "flops", "FLOP", &f->all, formulas);
    tl_json_put_string(json, "attention", e->options.causal ? "causal" : "full");
    tl_explained_pair_json(json, run, "forward", f->forward.value, f->forward.formula);
    tl_explained_pair_json(json, run, "backward", f->backward.value, f->backward.formula);
    if (f->again.value)
        tl_explained_pair_json(json, run, "recomputed", f->again.value, f->again.formula);
    tl_explained_pair_json(json, run, "per_token", f->all.value / f->tokens, f->per_token);
    tl_explained_pair_json(json, run, "full", full->value, full->formula);
    tl_explained_pair_json(json, run, "causal", causal->value, causal->formula);
    tl_explained_pair_json(json, run, "six_p_tokens", f->six.six, f->six.six_formula);
    tl_parameter_count count;
    const tl_u128 passed = six_of_active(e, f, &count);
    if (passed)
        tl_json_put_unsigned(json, "six_p_tokens_active", passed);
    tl_explain_sum groups;
    tl_error error = {TL_OK, ""};
    tl_json_key(json, "forward_shares");
    tl_json_object(json);
    if (tl_explain_grouped(&f->forward, &groups, &error) == TL_OK) {
        for (int i = 0; i < groups.count; i++)
            tl_json_put_real(json, groups.term[i].group, tl_explained_share(groups.term[i].value, f->forward.value));
        tl_explain_free(&groups);
    }
    tl_json_end(json);
    tl_explained_assumed_json(e, run, json);
    return tl_cli_json_close(e->cli, json);
}

int tl_explain_topic_flops(tl_explained *e) {
    tl_flops f;
    tl_error error = {TL_OK, ""};
    int status = TL_EXIT_OK;
    if (flops_make(e, &f, &error) != TL_OK)
        status = tl_failed(e->cli, &error);
    else if (e->cli->format == TL_FORMAT_JSON)
        status = flops_json(e, &f);
    else if (e->cli->format != TL_FORMAT_TABLE)
        status = tl_explained_print_grid(e, &f.all);
    else
        flops_text(e, &f);
    flops_free(&f);
    return status;
}
