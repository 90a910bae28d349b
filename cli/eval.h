/* cli/eval.h: one evaluation. */
#ifndef CLI_EVAL_H
#define CLI_EVAL_H

#include "infer.h"
#include "tally/data.h"
#include "tally/tokens.h"

typedef struct tl_evaluating {
    const tl_cli *cli;
    tl_opened opened;
    tl_speller speller;
    tl_infer_options plan_options;
    tl_infer_plan plan;
    tl_evaluation done;
    tl_watch watch;
    tl_net *net;
    int threads;
    tl_tokens *tokens; /* a stream of ids, or: */
    int32_t *ids;      /* a text's */
    tl_sums *sums;     /* or held-out sums */
    const char *source;
    int64_t available; /* tokens of the source */
    int64_t bytes;     /* of the targets; −1: not known */
    double bytes_per_token;
    bool bytes_stated; /* by --bytes-per-token */
    int64_t special;   /* targets that stand for no byte */
    int64_t weights_bytes;
    tl_sums_score score;
    double seconds, shown;
    tl_notes assumed, leaves_out;
    tl_error error;
} tl_evaluating;

/* ids of the source; adds up the bytes of the targets. A tl_eval_source and a tl_eval_rows. */
tl_status tl_evaluating_ids(void *user, int64_t first, int64_t count, int32_t *ids, tl_error *error);
tl_status tl_evaluating_sums(void *user, int64_t first, int64_t count, int32_t *input, int32_t *target,
                             tl_error *error);
/* Opens what --data, --text or a run's task name. */
int tl_evaluating_open(tl_evaluating *e, const char *data, const char *text, const char *dtype);
int tl_evaluating_report(tl_evaluating *e);

#endif
