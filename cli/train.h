/* cli/train.h: what tally train is asked for, and what its files share. */
#ifndef CLI_TRAIN_H
#define CLI_TRAIN_H

#include "tally/data.h"
#include "tally/machine.h"
#include "tally/account.h"
#include "tally/ckpt.h"
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
    TL_SET_AUTOCAST,
    TL_SET_RECOMPUTE,
    TL_SET_ENGINE,
    TL_SET_CHOICE, /* all that are said beside the engine, as one text: "norm=composed,loss=chunked:8" */
    TL_SET_LR,
    TL_SET_WEIGHT_DECAY,
    TL_SET_GROUPS, /* rules by name, as one text (tl_groups_parse) */
    TL_SET_WARMUP,
    TL_SET_CLIP,
    TL_SET_SEED,
    TL_SET_THREADS,
    TL_SET_LOG_EVERY,
    TL_SET_EVAL_EVERY,
    TL_SET_SAVE_EVERY,
    TL_SET_STOP_AT,
    TL_SET_MEMORY,
    TL_SET_SCHEDULE,
    TL_SET_DECAY_STEPS,
    TL_SET_SEED_INIT,
    TL_SET_SEED_DATA,
    TL_SET_SEED_DROPOUT,
    TL_SET_DATA, /* the token files: the argument */
    TL_SET_DATA_FORM,
    TL_SET_DATA_DTYPE,
    TL_SET_VOCAB,
    TL_SET_SAMPLER,
    TL_SET_SEPARATOR,
    TL_SET_BOUNDARIES,
    TL_SET_VAL,
    TL_SET_EVAL_BATCHES,
    TL_SET_READERS,
    TL_SET_LOCK_BATCHES,
    TL_SET_KEEP,
    TL_SET_TOKENIZER,
    TL_SET_INIT,
    TL_SET_WEIGHTS,
    TL_SET_LORA,
    TL_SET_QLORA,
    TL_SET_LORA_ALPHA,
    TL_SET_LORA_DROPOUT,
    TL_SET_LORA_TARGETS,
    TL_SET_LORA_TRAIN,
    TL_SET_LORA_BASE,
    TL_SET_COUNT
} tl_setting;

#define TL_PATH 4096
#define TL_STEPS_OPEN (INT64_C(1) << 40) /* --minutes alone decides, once the speed is known */

/* Who gave a setting its text, so that what is wrong with it is said of the right place. */
typedef enum tl_said { TL_SAID_BY_DEFAULT, TL_SAID_BY_FILE, TL_SAID_BY_FOLDER, TL_SAID_BY_OPTION } tl_said;

/* What a run learns. One file each: cli/train_sums.c, cli/train_tokens.c. */
typedef struct tl_train tl_train;
typedef struct tl_task {
    const char *name;
    int64_t least_seq;
    /* Its settings read and its data opened; sets t->vocab, which a spec of a model takes unless it says V. Exit status. */
    int (*open)(tl_train *t);
    tl_status (*check)(const tl_train *t, tl_error *error); /* what shows with the model alone; NULL: nothing */
    /* Its batches from example `position` on. */
    tl_status (*start)(tl_train *t, tl_ctx *ctx, tl_trainer *trainer, uint64_t position, tl_error *error);
    tl_status (*batch)(tl_train *t, tl_ctx *ctx, const tl_train_options *options, tl_batch *batch);
    double (*waited)(const tl_train *t); /* seconds for batches that were not there yet; NULL: made when asked for */
    uint64_t (*position)(const tl_train *t); /* for a checkpoint */
    /* Asks the net what it has learned: a part of it in the middle of a run, all of it after it (`last`). Leaves its peak in
     * t->examined_peak. Before the run it is planned by being run on meta, where it has no result. */
    tl_status (*examine)(tl_train *t, tl_ctx *ctx, tl_net *net, bool last, tl_error *error);
    bool (*is_examined)(const tl_train *t);              /* there is a result */
    void (*say_result)(const tl_train *t, int64_t step); /* in one line on stderr */
    void (*put_result)(const tl_train *t, tl_json *json);
    void (*out_result)(const tl_train *t);
    void (*out_data)(const tl_train *t); /* what is trained on, for the plan; may be NULL */
    void (*say_data)(const tl_train *t); /* the same in one line on stderr, as the run begins; may be NULL */
    void (*stop)(tl_train *t);           /* before the trainer goes; NULL: nothing */
    void (*close)(tl_train *t);
} tl_task;
extern const tl_task tl_task_sums, tl_task_tokens;

struct tl_train {
    const tl_cli *cli;
    char folder[TL_PATH];
    const tl_task *task;
    void *task_data; /* the task's own */
    bool resume, dry_run;
    char texts[TL_SET_COUNT][TL_GROUPS_TEXT]; /* as given or by default; "" where there is none */
    char model_path[TL_PATH];                 /* resuming: the folder's config.json; else "" */
    tl_said said[TL_SET_COUNT];               /* by whom each text is */
    const char *task_file;                    /* the argument FILE.json; else NULL */
    char model_name[128];                     /* resuming: what run.json calls the model; else "" */
    tl_model model;
    tl_plan_options plan; /* of exactly this run */
    tl_machine machine;
    int64_t steps, log_every, eval_every, save_every, stop_at, memory_bytes, keep;
    int64_t warmup, decay_steps; /* −1 and 0: by the number of steps */
    double minutes, lr;
    tl_schedule_kind schedule;
    uint64_t seed, seed_init, seed_data, seed_dropout;
    const char *init;        /* NULL: the family's */
    int64_t vocab;           /* of the data */
    char tokenizer_hash[32]; /* of the data's tokenizer; "": not known */
    int threads;
    bool steps_given, precision_given, autocast_given;
    bool time_decides;     /* --minutes without --steps: .steps is no more than a bound */
    bool total_is_kept;    /* the checkpoint's number of steps is the schedule's, whatever --minutes says */
    int64_t examined_peak; /* live bytes at the peak of the last examination; 0: there was nothing to ask */
    int64_t examine_peak, examine_bytes; /* planned: such a peak, and what of it comes on top of the arena */
    bool has_validation_loss;
    double validation_loss; /* the last one */
};

/* The value of each option from the command line, the folder (resuming), the task's file or the default, checked. */
int tl_train_settings(tl_train *t);
const char *tl_setting_name(tl_setting setting);
/* What is wrong with a setting, behind its name as whoever gave it knows it: --steps, "steps" of the task's file,
 * "options.steps" of run.json. Exit status: usage for an option, failed for a file. */
int tl_setting_failed(const tl_train *t, tl_setting setting, const char *format, ...) TL_PRINTF(3, 4);
/* The file that said it; "": none, an option did. */
const char *tl_setting_file(const tl_train *t, tl_setting setting, char path[TL_PATH]);
/* A setting's text as a whole number of [low, high]; "" leaves *value as it is. Exit status, having said what is wrong. */
int tl_setting_whole(const tl_train *t, tl_setting setting, int64_t low, int64_t high, int64_t *value);

/* ---- what the texts say (cli/train_values.c) ---- */
/* All but the model, into *t. Exit status, having said what is wrong. */
int tl_train_values(tl_train *t);
/* The model, once the data is open (t->vocab), and the choices that it is run with. Exit status. */
int tl_train_read_model(tl_train *t);

/* The learning rates of a run of so many steps. */
tl_schedule tl_train_schedule(const tl_train *t);

/* "gpt2:N=2,D=128,H=4", a catalogue name, a config.json or a folder holding one. vocab and context fill in a spec. */
tl_status tl_train_model(const char *text, int64_t vocab, int64_t context, tl_model *model, tl_error *error);

/* ---- the run's folder (cli/train_files.c) ---- */
char *tl_train_path(const tl_train *t, const char *name, char path[TL_PATH]);
/* Makes the folder and those above it; *made: the length of the first path that was not there, 0: all were. */
tl_status tl_train_folder(const tl_train *t, size_t *made, tl_error *error);
/* Removes them again, where they are empty: of a run that never starts nothing is left. */
void tl_train_folder_undo(const tl_train *t, size_t made);
/* Writes text under a temporary name and renames it. */
tl_status tl_train_write(const tl_train *t, const char *name, const tl_json *json, tl_error *error);
/* The plan's keys into an object that is open. */
void tl_train_put_plan(tl_json *json, const tl_train *t, const tl_plan *plan);
tl_status tl_train_write_start(const tl_train *t, const tl_plan *plan, tl_error *error);
/* Opens metrics.jsonl for appending; lines about steps after `step` are dropped first. */
FILE *tl_train_metrics(const tl_train *t, int64_t step, tl_error *error);

/* ---- its checkpoints (cli/train_checkpoint.c) ---- */
/* Into FOLDER/checkpoints; `latest`, `best` and what is kept follow. */
tl_status tl_train_save(const tl_train *t, tl_ctx *ctx, tl_trainer *trainer, const tl_ckpt_state *state,
                        tl_error *error);
/* The latest whole one, saying what was passed over; none: *start stays 0. t->steps is the schedule's. */
tl_status tl_train_restore(tl_train *t, tl_ctx *ctx, tl_trainer *trainer, int64_t *start, uint64_t *position,
                           tl_error *error);
/* The weights of --weights into a net that was just made, and the optimizer's copies of them. */
tl_status tl_train_load_weights(const tl_train *t, tl_ctx *ctx, tl_trainer *trainer, tl_error *error);
/* The validation loss of the checkpoint that `best` names; infinite where there is none. */
double tl_train_best(const tl_train *t);

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
/* The contexts' current logs: 0 planned, 1 the run's own, in place of what was read of it before. Names live as long as the
 * contexts. */
void tl_account_read(tl_account *account, int which, tl_ctx *ctx);
void tl_account_free(tl_account *account);

/* What the second instrument saw. */
typedef struct tl_measured {
    int64_t peak_bytes, by_category[TL_CATEGORY_COUNT]; /* work holds saved too: pointers do not tell them apart */
    int64_t allocations, unplanned_bytes, steps, steps_that_differ;
    tl_u128 flops;
    double step_seconds;
    /* Peaks of the moments beside the steps; 0: there was none in this run. weights: of --weights, which is no checkpoint. */
    int64_t init_bytes, load_bytes, weights_bytes, save_bytes;
} tl_measured;
tl_status tl_train_write_ledger(const tl_train *t, const tl_plan *plan, const tl_account *account,
                                const tl_measured *measured, tl_error *error);

/* ---- progress (cli/train_progress.c) ---- */
typedef struct tl_line { /* one state of the run, for the screen and for metrics.jsonl */
    int64_t step, steps;
    double loss, tokens_per_second, mfu, left_seconds;
    bool has_val_loss;
    double val_loss; /* of the weights of this step */
    int64_t planned_peak, measured_peak, unplanned;
    tl_u128 planned_flops, measured_flops;
    double planned_seconds, measured_seconds;
    double loss_scale;   /* 0: the run has none */
    int64_t skipped;     /* steps, for gradients beyond fp16 */
    double wait_seconds; /* for data, since the line before */
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
