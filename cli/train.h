/* cli/train.h: what tally train is asked for, and what its files share. */
#ifndef CLI_TRAIN_H
#define CLI_TRAIN_H

#include "tally/data.h"
#include "tally/machine.h"
#include "tally/account.h"
#include "verb.h"

/* Every option as text, so that a run's folder can say again how it was started and a task's file can stand in. */
typedef enum tl_setting {
    TL_SET_MODEL,
    TL_SET_STEPS,
    TL_SET_MINUTES,
    TL_SET_MICRO_BATCH,
    TL_SET_SEQ,
    TL_SET_GLOBAL_BATCH,
    TL_SET_OPTIM,
    TL_SET_PRECISION,
    TL_SET_RECOMPUTE,
    TL_SET_LR,
    TL_SET_WEIGHT_DECAY,
    TL_SET_WARMUP,
    TL_SET_CLIP,
    TL_SET_SEED,
    TL_SET_THREADS,
    TL_SET_LOG_EVERY,
    TL_SET_EVAL_EVERY,
    TL_SET_SAVE_EVERY,
    TL_SET_STOP_AT,
    TL_SET_MEMORY,
    TL_SET_COUNT
} tl_setting;

#define TL_PATH 4096

typedef struct tl_train {
    const tl_cli *cli;
    char folder[TL_PATH];
    char task[64];
    bool resume;
    char texts[TL_SET_COUNT][256]; /* as given or by default; "" where there is none */
    char model_path[TL_PATH];      /* resuming: the folder's config.json; else "" */
    tl_model model;
    tl_plan_options plan; /* of exactly this run */
    tl_machine machine;
    int64_t steps, warmup, log_every, eval_every, save_every, stop_at, memory_bytes;
    double minutes, lr;
    uint64_t seed;
    int threads;
    bool steps_given;
} tl_train;

/* The value of each option from the command line, the folder (resuming), the task's file or the default, checked. */
int tl_train_settings(tl_train *t);
const char *tl_setting_name(tl_setting setting);

/* "gpt2:N=2,D=128,H=4", a catalogue name, a config.json or a folder holding one. vocab and context fill in a spec. */
tl_status tl_train_model(const char *text, int64_t vocab, int64_t context, tl_model *model, tl_error *error);
/* The model in Hugging Face's keys. Freed with tl_json_free; NULL where memory ran out. */
tl_json *tl_train_config(const tl_model *model);

/* ---- the run's folder (cli/train_files.c) ---- */
char *tl_train_path(const tl_train *t, const char *name, char path[TL_PATH]);
tl_status tl_train_folder(const tl_train *t, tl_error *error);
/* Writes text under a temporary name and renames it. */
tl_status tl_train_write(const tl_train *t, const char *name, const tl_json *json, tl_error *error);
tl_status tl_train_write_start(const tl_train *t, const tl_plan *plan, tl_error *error);
/* Opens metrics.jsonl for appending; lines about steps after `step` are dropped first. */
FILE *tl_train_metrics(const tl_train *t, int64_t step, tl_error *error);

/* ---- the account of the run (cli/train_ledger.c) ---- */
typedef struct tl_row_sum {
    const char *name;
    tl_u128 flops[2]; /* planned, in the run */
    int64_t bytes[2]; /* at the peak */
} tl_row_sum;
typedef enum tl_table { TL_BY_MODULE, TL_BY_OP, TL_BY_LINE, TL_BY_PHASE, TL_TABLES } tl_table;
typedef struct tl_account {
    tl_row_sum *rows[TL_TABLES];
    int count[TL_TABLES], capacity[TL_TABLES];
    bool failed;
    tl_peak peak[2];
    tl_counts counts[2];
    int64_t allocations[2];
} tl_account;
/* The contexts' current logs: 0 planned, 1 the run's own. Names live as long as the contexts. */
void tl_account_read(tl_account *account, int which, tl_ctx *ctx);
void tl_account_free(tl_account *account);

/* What the second instrument saw. */
typedef struct tl_measured {
    int64_t peak_bytes, by_category[TL_CATEGORY_COUNT]; /* work holds saved too: pointers do not tell them apart */
    int64_t allocations, unplanned_bytes, steps, steps_that_differ;
    tl_u128 flops;
    double step_seconds;
} tl_measured;
tl_status tl_train_write_ledger(const tl_train *t, const tl_plan *plan, const tl_account *account,
                                const tl_measured *measured, tl_error *error);

/* ---- progress (cli/train_progress.c) ---- */
typedef struct tl_line { /* one state of the run, for the screen and for metrics.jsonl */
    int64_t step, steps;
    double loss, tokens_per_second, mfu, left_seconds;
    int64_t planned_peak, measured_peak, unplanned;
    tl_u128 planned_flops, measured_flops;
    double planned_seconds, measured_seconds;
} tl_line;
typedef struct tl_progress {
    const tl_cli *cli;
    bool terminal, drawn;
    int width;
    double last; /* when the line was drawn */
} tl_progress;
void tl_progress_begin(tl_progress *progress, const tl_cli *cli);
/* Redraws on a terminal, ten times a second at most; `log`: a plain line elsewhere. */
void tl_progress_show(tl_progress *progress, const tl_line *line, bool log);
/* Ends the drawn line, so that something else can be said. */
void tl_progress_end(tl_progress *progress);
double tl_seconds(void); /* of a clock that only goes forward */
void tl_line_json(tl_json *json, const tl_line *line);

int tl_train_run(tl_train *t);

#endif
