/* cli/train_run.h: one run of tally train on its way: planned (cli/train_plan.c), made (cli/train_run.c), told of
 * (cli/train_report.c). */
#ifndef CLI_TRAIN_RUN_H
#define CLI_TRAIN_RUN_H

#include "tally/meter.h"
#include "train.h"

typedef struct tl_run {
    tl_train *t;
    tl_plan plan;
    tl_plan_run planned; /* its second step is the account; it stays for the tables */
    tl_arena_plan arena_plan;
    tl_arena *arena;
    tl_meter *meter;
    tl_ctx *ctx;
    tl_trainer *trainer;
    FILE *metrics;
    bool arena_used;
    const tl_tensor *data[3];       /* the running micro-batch's */
    int64_t now[TL_CATEGORY_COUNT]; /* measured at the running step's peak */
    tl_measured measured;
    double trained_seconds, measured_seconds, interval_seconds;
    double waited_seconds, interval_waited; /* for data, of the trained seconds */
    int64_t interval_steps, start, limit;   /* limit: of memory */
    int64_t examined;                       /* the step that was examined last */
    double best;                            /* the lowest validation loss of a checkpoint; infinite: none */
    tl_account account;                     /* the plan's tables, and the run's of step account_step */
    int64_t account_step, examined_peak;    /* the last: measured */
    tl_line line;
    tl_progress progress;
    tl_error error;
} tl_run;

/* The context's error as the run's. */
tl_status tl_run_context_failed(tl_run *r, const tl_ctx *ctx);

/* ---- before the first step (cli/train_plan.c) ---- */
/* This machine's peaks now, and the shapes that `tally machine` left. */
void tl_run_measure_machine(tl_run *r);
/* The plan of exactly this run, its arena's, and what its examination takes. Exit status: a run that does not fit is refused, with what
 * would make it fit. */
int tl_run_plan(tl_run *r);
/* --dry-run of a run that fits. Exit status. */
int tl_run_report_plan(const tl_run *r);

/* ---- what is said of it (cli/train_report.c) ---- */
/* The format of the matrix products. */
tl_dtype tl_run_product_dtype(const tl_run *r);
/* As it begins, on standard error. */
void tl_run_announce(const tl_run *r);
/* Once it is over. Exit status. */
int tl_run_report(tl_run *r);

#endif
