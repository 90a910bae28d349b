/* cli/runs.h: the runs below a folder, read from what each left behind. */
#ifndef CLI_RUNS_H
#define CLI_RUNS_H

#include "verb.h"

#define TL_RUN_PATH 4096
#define TL_RUN_LINE 8192 /* bytes of a line of metrics.jsonl at most, several times what one takes */

typedef enum tl_run_state { TL_RUN_FINISHED, TL_RUN_RUNNING, TL_RUN_INTERRUPTED, TL_RUN_DAMAGED } tl_run_state;
const char *tl_run_state_name(tl_run_state state);

typedef struct tl_run_point {
    int64_t step;
    double loss;
} tl_run_point;

typedef struct tl_run {
    char path[TL_RUN_PATH], name[256]; /* name: below the folder that was asked for */
    char model[128], task[64];
    char damage[320]; /* why it is damaged; "" where it is not */
    tl_run_state state;
    int64_t parameters;          /* 0: not known */
    int64_t step, steps;         /* done, of; −1: not known */
    double loss, val_loss, best; /* best: the lowest val loss, or loss where there is none. NaN: not known */
    bool best_is_val;
    double tokens_per_second, mfu;       /* 0: not known */
    int64_t planned_peak, measured_peak; /* 0: not known */
    int64_t changed;                     /* seconds since 1970, of the newest of its files */
    tl_run_point *points;                /* all lines of metrics.jsonl, where asked for */
    int64_t n_points;
} tl_run;

/* Reads one run; what cannot be read makes it damaged, and says why. `points`: keep the losses. */
void tl_run_read(tl_run *run, const char *path, bool points);
void tl_run_release(tl_run *run);

typedef struct tl_runs {
    tl_run *list;
    int64_t count, capacity;
    int64_t links; /* links to folders, which are not followed */
    tl_notes unread;
    int64_t n_unread;
    bool out_of_memory;
} tl_runs;
/* All runs below a folder, newest first. Links to folders are counted, not followed; folders that cannot be read are named. */
void tl_runs_find(tl_runs *runs, const char *folder);
void tl_runs_free(tl_runs *runs);

/* tally runs A B */
int tl_runs_compare(tl_cli *cli, const char *a, const char *b);

#endif
