/* cli/train_run.h: one run of tally train on its way: planned (cli/train_plan.c), made (cli/train_run.c), told of
 * (cli/train_report.c). */
#ifndef CLI_TRAIN_RUN_H
#define CLI_TRAIN_RUN_H

#include "tally/meter.h"
#include "train.h"

typedef struct tl_training {
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
    size_t made;                            /* of the folder; see tl_train_folder */
    int64_t examined;                       /* the step that was examined last */
    double best;                            /* the lowest validation loss of a checkpoint; infinite: none */
    tl_account account;                     /* the plan's tables, and the run's of step account_step */
    int64_t account_step, examined_peak;    /* the last: measured */
    tl_line line;
    tl_progress progress;
    tl_error error;
} tl_training;

/* The context's error as the run's. */
tl_status tl_training_context_failed(tl_training *r, const tl_ctx *ctx);

/* ---- before the first step (cli/train_plan.c) ---- */
/* This machine's peaks now, and the shapes that `tally machine` left. */
void tl_training_measure_machine(tl_training *r);
/* The plan of exactly this run, its arena's, and what its examination takes. Exit status: a run that does not fit is refused, with what
 * would make it fit. */
int tl_training_plan(tl_training *r);
/* --dry-run of a run that fits. Exit status. */
int tl_training_report_plan(const tl_training *r);

/* ---- what is said of it (cli/train_report.c) ---- */
/* The format of the matrix products. */
tl_dtype tl_training_product_dtype(const tl_training *r);
/* As it begins, on standard error. */
void tl_training_announce(const tl_training *r);
/* Once it is over. Exit status. */
int tl_training_report(tl_training *r);

#endif
