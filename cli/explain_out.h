/* cli/explain_out.h: what the topics of `tally explain` share. */
#ifndef CLI_EXPLAIN_OUT_H
#define CLI_EXPLAIN_OUT_H

#include "tally/explain.h"
#include "verb.h"

typedef struct tl_explained {
    const tl_cli *cli;
    const char *asked; /* MODEL as typed */
    tl_plan_options options;
    tl_plan_run run; /* with formulas */
    tl_notes assumed;
    bool steps;
} tl_explained;

/* The formula as text; `style` of tl_poly_text. Never NULL. */
const char *tl_explained_text(const tl_plan_run *run, const tl_poly *p, int style);
/* The value with every digit, in a buffer of TL_TEXT. */
char *tl_explained_value(tl_u128 value, char *buffer);
/* part/whole, 0 when whole is 0. */
double tl_explained_share(tl_u128 part, tl_u128 whole);

/* "N 48 n_layer | D 1600 n_embd | …": the symbols that occur in one of the formulas, NULL-terminated. */
void tl_explained_symbols_out(const tl_explained *e, const tl_plan_run *run, const tl_poly *const formulas[]);
void tl_explained_symbols_json(tl_json *json, const tl_plan_run *run, const tl_poly *const formulas[]);
/* "qkv 16.73 % | …" of a sum's groups. */
void tl_explained_shares_out(const tl_explained *e, const char *label, const tl_explain_sum *sum);
/* The derivation: a line a term, then the sum. `title` is NULL or stands above. */
void tl_explained_steps_out(const tl_explained *e, const char *title, const tl_explain_sum *sum);
void tl_explained_assumed_out(const tl_explained *e, const tl_plan_run *run);
void tl_explained_assumed_json(const tl_explained *e, const tl_plan_run *run, tl_json *json);
/* key: {"value","formula"} */
void tl_explained_pair_json(tl_json *json, const tl_plan_run *run, const char *key, tl_u128 value, const tl_poly *p);
/* name, value, unit, formula, terms, symbols: the contract's fields. */
void tl_explained_json(tl_json *json, const char *name, const char *unit, const tl_explain_sum *sum,
                       const tl_poly *const formulas[]);
/* The terms as md or csv. */
int tl_explained_print_grid(const tl_explained *e, const tl_explain_sum *sum);

/* The topics; each returns an exit status. */
int tl_explain_topic_params(tl_explained *e);
int tl_explain_topic_flops(tl_explained *e);
int tl_explain_topic_memory(tl_explained *e);
int tl_explain_topic_adamw(tl_explained *e);

#endif
