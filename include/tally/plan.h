/* tally/plan.h: the account of a run before it. A plan builds the model on meta, runs two training steps and reads the
 * second one's ledger; nothing in it comes from a second set of formulas.
 */
#ifndef TALLY_PLAN_H
#define TALLY_PLAN_H

#include "tally/account.h"
#include "tally/hw.h"
#include "tally/machine.h"
#include "tally/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the order of the command line's choices. */
typedef enum tl_precision {
    TL_PRECISION_FP32,
    TL_PRECISION_BF16,       /* parameters, gradients and optimizer states in bf16 */
    TL_PRECISION_BF16_MIXED, /* bf16 parameters and gradients, fp32 master copy and states: 2+2+4+4+4 with AdamW */
    TL_PRECISION_FP16_MIXED, /* the same in fp16, with dynamic loss scaling (tl_loss_scaler) */
    TL_PRECISION_FP8_MIXED   /* bf16-mixed whose blocks' linear layers round to float8, emulated (tally/ops_fp8.h) */
} tl_precision;
const char *tl_precision_name(tl_precision precision);
/* The training options that a precision and an optimizer mean. With options->autocast the three mixed ones keep parameters,
 * gradients and states in fp32 without a master copy and cast per op (tally/grad.h): 4+4+8 with AdamW; the other two refuse. */
tl_status tl_precision_apply(tl_precision precision, tl_train_options *options, tl_error *error) TL_MUST_CHECK;

typedef struct tl_plan_options {
    tl_model model;
    tl_devices devices;                     /* plain data parallel over all of them */
    const tl_machine *machine;              /* for `here`: measured rates and memory; NULL: time and capacity unknown */
    int threads;                            /* for `here`: scratch blocks; 0 is 1 */
    int64_t seq, micro_batch, global_batch; /* global_batch 0: micro_batch × devices */
    tl_precision precision;
    bool autocast;                  /* of the mixed precisions: see tl_precision_apply */
    tl_optimizer_options optimizer; /* master and state_f32 are set from precision */
    tl_recompute recompute;
    tl_choices choices;   /* tally/choices.h; what changes nothing for the model is said among the assumptions */
    tl_lora_options lora; /* rank 0: every parameter is trained */
    /* tally/engine.h: what is held beside tensors, and whose choices those are; NULL: tally */
    const struct tl_engine *engine;
    double clip;
    bool causal;            /* flops convention for model FLOPs and MFU: causal or full */
    tl_u128 tokens;         /* of the whole run; 0: not given */
    double mfu;             /* 0: from the roofline; else the step takes model FLOPs ÷ (peak·mfu) */
    double peak;            /* FLOP/s by hand; 0: from the device */
    double price;           /* per device-hour; 0: none */
    bool every_micro_batch; /* run them all, for an arena that a real run follows; else two stand for all of a step */
    int prefetch;           /* steps whose batches a reader holds ready (tl_train_options) */
    bool find_max_micro_batch; /* run meta again to find it */
    bool weights;              /* the run starts from published weights: what loading them holds is planned too */
} tl_plan_options;

typedef enum tl_bound { TL_BOUND_UNKNOWN, TL_BOUND_COMPUTE, TL_BOUND_MEMORY, TL_BOUND_COMMUNICATION } tl_bound;
const char *tl_bound_name(tl_bound bound);

/* The napkin's FLOPs a parameter and token: 2 forward and 4 backward for a dense model, attention over the sequence left out
 * (Kaplan et al. 2020, section 2.1). A convention to set beside what a run counted, never in place of it. */
#define TL_NAPKIN_FLOPS 6

#define TL_PLAN_NOTES 24
#define TL_PLAN_TOP 8

typedef struct tl_plan_holder { /* who holds the peak's bytes */
    char module[96];            /* pattern: "h.*.attn" */
    char op[32];
    tl_category category;
    int64_t bytes, count;
} tl_plan_holder;

/* Parameters under one rule: a group's (tally/optim.h), or the default's; two rows where norms and biases have no decay. */
typedef struct tl_plan_group {
    tl_parameter_rule rule;
    int64_t tensors, parameters;
} tl_plan_group;
#define TL_PLAN_GROUPS (2 * (TL_GROUPS_MOST + 1))

typedef struct tl_plan_peak {
    int64_t bytes;
    int64_t by_category[TL_CATEGORY_COUNT];
    tl_phase phase;
    char module[96], op[32], site[96];
} tl_plan_peak;

typedef struct tl_plan {
    /* model */
    tl_parameter_count parameters;
    int64_t trainable; /* of parameters.unique: all, the adapters, or what no group freezes */
    tl_plan_group groups
        [TL_PLAN_GROUPS]; /* in the order of the rules, the default's first; frozen base weights of adapters too */
    int n_groups;
    int64_t adapted_layers; /* linear layers with adapters; 0: none, and the next two are not set */
    double lora_alpha;
    char lora_targets[TL_LORA_TARGETS]; /* as meant: "q_proj,v_proj" */
    /* matmul FLOPs of one device's step, times devices where it says per step. Model FLOPs: nothing is counted twice that is
     * computed again for backward; hardware FLOPs are all that is executed: less what fused attention's hidden blocks are
     * not, which may be more than what is computed again. */
    tl_u128 forward_per_token, forward_per_token_causal, per_token, per_token_causal; /* rounded down */
    tl_u128 per_step, per_step_causal, hardware_per_step;
    tl_u128 again_per_step;                        /* what backward computes again, hidden blocks counted */
    tl_u128 arithmetic_per_step, special_per_step; /* all devices; executed */
    /* memory of one device */
    int64_t capacity_bytes, usable_bytes; /* 0: unknown */
    bool fits;                            /* needs_bytes; false also when capacity is unknown: see capacity_bytes */
    tl_plan_peak peak, init, step[TL_PHASE_COUNT]; /* step[phase]: the high water of each phase; peak: of the step */
    /* The moments beside the steps, run on meta as they run here: a checkpoint is loaded into a run that was just made, or
     * saved between two steps. weights: published ones are loaded (bytes 0: the run was not said to). What they hold beyond the
     * state is optim/transfer.h's. */
    tl_plan_peak load, weights, save;
    tl_phase runner_up;              /* the phase with the next highest peak */
    int64_t high[TL_CATEGORY_COUNT]; /* each category's own high water */
    int64_t arena_bytes, allocations;
    /* What must fit: the arena, or what the engine's allocator holds of the peak; or of another moment that holds more. */
    int64_t needs_bytes;
    int64_t context_bytes, workspace_bytes; /* outside tensors, taken off usable_bytes; 0: none, or not known */
    int64_t slack_bytes;                    /* a caching allocator's: needs less what lives; 0: an arena */
    int64_t max_micro_batch;                /* −1: not asked for; 0: not even one fits */
    tl_plan_holder top[TL_PLAN_TOP];
    int n_top;
    /* layout */
    int64_t devices, seq, micro_batch, global_batch, accumulation;
    /* time: 0 where unknown */
    double peak_flop_per_s, step_seconds, tokens_per_second, mfu, hfu, total_seconds, steps;
    double compute_seconds, memory_seconds, communication_seconds; /* parts of the step by what bounds each op */
    double roofline_seconds;                                       /* lower bound of the step, whatever --mfu says */
    tl_bound bound;
    char peak_source[320];
    bool measured_rates; /* products timed by this machine's table */
    /* cost */
    double device_hours, amount;
    tl_u128 sent_per_step; /* bytes a device sends */
    char assumptions[TL_PLAN_NOTES][200], leaves_out[TL_PLAN_NOTES][200];
    int n_assumptions, n_leaves_out;
} tl_plan;

/* The largest of init, load, step and save: the step's peak unless another moment holds more. */
const tl_plan_peak *tl_plan_largest_moment(const tl_plan *plan);
/* What must fit with that engine's allocator: the larger of the step's (its arena, or its peak and slack) and of the others'. It is
 * the plan's needs_bytes. */
int64_t tl_plan_needs(const tl_plan *plan, const struct tl_engine *engine);

/* Fills *plan. An error (bad options, overflow, no memory) leaves it undefined; not fitting is not an error. */
tl_status tl_plan_make(const tl_plan_options *options, tl_plan *plan, tl_error *error) TL_MUST_CHECK;

/* ---- answers found by planning again ---- */
typedef enum tl_plan_axis { TL_PLAN_MICRO_BATCH, TL_PLAN_SEQ } tl_plan_axis;
typedef struct tl_plan_largest {
    int64_t value;      /* the largest that fits; 0: not even 1 does */
    int64_t bytes;      /* needed at value (at 1 when value is 0): tl_plan.needs_bytes */
    int64_t peak_bytes; /* live bytes there */
    int64_t next_bytes; /* needed at value + 1; 0: that cannot be, see limited */
    bool limited;       /* value is the model's own limit (learned positions), not the memory's */
    int runs;           /* how many plans it took */
} tl_plan_largest;
/* The largest micro-batch or sequence that fits beside everything else as it is (one micro-batch a step). The memory must
 * be known. The value and the next one are planned; plans of the same model with fewer layers tell where to look for it, and no
 * number of theirs is in the answer. */
tl_status tl_plan_find_largest(const tl_plan_options *options, tl_plan_axis axis, tl_plan_largest *largest,
                               tl_error *error) TL_MUST_CHECK;

#define TL_PLAN_SUGGESTIONS 16
#define TL_PLAN_CHANGE 384
#define TL_PLAN_TIGHT 0.95 /* of the usable bytes: more of them is tight */
/* What a suggestion changes, the least first. */
typedef enum tl_plan_cost {
    TL_PLAN_COST_NOTHING, /* the same run: in more parts, partly computed twice, or by code that keeps less (tally/choices.h) */
    TL_PLAN_COST_PRECISION, /* other number formats */
    TL_PLAN_COST_OPTIMIZER,
    TL_PLAN_COST_BOTH,
    TL_PLAN_COST_SEQUENCE, /* a shorter sequence */
    TL_PLAN_COST_DEVICE,
    TL_PLAN_COST_ADAPTERS /* trains something else (tally/lora.h) */
} tl_plan_cost;
typedef struct tl_plan_suggestion {
    char change[TL_PLAN_CHANGE]; /* as typed: "--micro-batch 1 --global-batch 8 --recompute full" */
    char effect[64];             /* "same run", "changes the run" */
    tl_plan_cost cost;
    int64_t bytes; /* arena */
    int64_t needs; /* what must fit: tl_plan.needs_bytes */
    int64_t peak_bytes;
    tl_u128 hardware_per_step; /* matmul FLOPs executed in a step, all devices; less the plan's own: the extra */
    double step_seconds;       /* 0: unknown */
    bool fits;
} tl_plan_suggestion;
typedef struct tl_plan_advice {
    tl_plan_suggestion list[TL_PLAN_SUGGESTIONS]; /* those that fit first; by cost; by FLOPs */
    int count;
    int64_t state_bytes, leanest_bytes; /* state as planned; the least that training all of the model keeps */
    bool state_exceeds; /* even the leanest state is more than the device has: only adapters and a device were tried */
    char largest_lever[TL_PLAN_CHANGE]; /* of those tried alone that keep the run, the one that saves most; "": none */
    int64_t largest_saving;             /* bytes */
    int runs;                           /* plans made */
    int64_t layers; /* that were planned for it, with those of smaller models that told what to plan */
} tl_plan_advice;
/* What would make a plan that does not fit fit: each suggestion is a plan made on meta. Bounded in its work. */
tl_status tl_plan_advise(const tl_plan_options *options, const tl_plan *plan, tl_plan_advice *advice,
                         tl_error *error) TL_MUST_CHECK;

/* ---- which lever brings most ---- */
#define TL_PLAN_LEVERS 24
typedef struct tl_plan_lever_row {
    char change[TL_PLAN_CHANGE]; /* as typed; "": as asked */
    char effect[64];
    tl_plan_cost cost;
    bool alone; /* one lever and no other */
    tl_plan_largest largest;
    /* The account at largest.value (at 1 where not even that fits): its peak, and matmul FLOPs executed in a step of it with
     * the change and as asked. */
    tl_plan_peak peak;
    tl_u128 hardware_per_step, asked_per_step;
} tl_plan_lever_row;
typedef struct tl_plan_levers {
    tl_plan_lever_row row[TL_PLAN_LEVERS]; /* as asked; levers alone; together; those that change the run */
    int count;
    /* Rows: of the levers alone that keep the run (TL_PLAN_COST_NOTHING) the one with the largest value, of equal ones the one that
     * needs least; and the row with the largest value of all that keep it. 0: none brings more than as asked. */
    int largest, farthest;
    int runs;
} tl_plan_levers;
/* tl_plan_find_largest for each lever that moves something, alone and together with others. What cannot be planned is left out. */
tl_status tl_plan_find_levers(const tl_plan_options *options, tl_plan_axis axis, tl_plan_levers *levers,
                              tl_error *error) TL_MUST_CHECK;

/* Parameters of a model, counted by building it on meta. */
tl_status tl_plan_count(const tl_model *model, tl_parameter_count *count, tl_error *error) TL_MUST_CHECK;
tl_status tl_plan_count_parameters(const tl_model *model, tl_u128 *total, tl_error *error) TL_MUST_CHECK;

/* "its tensors hold 74,496 values, not these 74,240": where the file that described the model (GGUF) holds more or fewer than
 * that model has parameters. False: it does not, or it came without tensors. */
bool tl_plan_file_differs(const tl_model *model, const tl_parameter_count *count, char text[160]);

/* Bytes of device memory: label, the memory itself, and what is left beside the engine's device context and workspaces (NULL:
 * tally's). 0 where unknown. */
void tl_plan_capacity(const tl_devices *devices, const tl_machine *machine, const struct tl_engine *engine,
                      int64_t *capacity, int64_t *usable, int64_t *context);
/* Dense peak of the devices for a precision, with its source as text; 0 unknown. */
double tl_plan_peak_rate(const tl_devices *devices, const tl_machine *machine, tl_precision precision, char *source,
                         size_t size);
/* The source of a peak given by hand, as text: it says where that is the 2:4-sparse figure of the device. `devices` may be NULL. */
void tl_plan_peak_by_hand(const tl_devices *devices, tl_precision precision, double peak, char *source, size_t size);

/* Bytes that training keeps for TL_PLAN_BLOCK parameters, by category, read off the tensors of a linear layer after two steps
 * on meta with the precision and optimizer: param + grad + master + optim. A block, since the scales of 8-bit states are no
 * whole number of bytes for one parameter; for everything else it divides evenly. */
#define TL_PLAN_BLOCK TL_OPTIM_8BIT_BLOCK
tl_status tl_plan_block_bytes(tl_precision precision, const tl_optimizer_options *optimizer,
                              int64_t bytes[TL_CATEGORY_COUNT], tl_error *error) TL_MUST_CHECK;
/* The same where gradients are summed in buffers of their own format (tally/choices.h). */
tl_status tl_plan_block_bytes_kept(tl_precision precision, const tl_optimizer_options *optimizer, tl_grads_code grads,
                                   int64_t bytes[TL_CATEGORY_COUNT], tl_error *error) TL_MUST_CHECK;

/* A context that ran one plan's two steps, for explain: with formulas. Free with tl_plan_run_free. */
typedef struct tl_plan_run {
    tl_ctx *ctx;
    tl_trainer *trainer;
    tl_train_options train;
} tl_plan_run;
tl_status tl_plan_run_make(const tl_plan_options *options, bool formulas, tl_plan_run *run,
                           tl_error *error) TL_MUST_CHECK;
void tl_plan_run_free(tl_plan_run *run);

/* Who holds the bytes that live at the peak of a phase (TL_PHASE_ALL: of the step), the largest first. Kinds of holders beyond
 * those that are told apart are counted as *dropped tensors. */
tl_status tl_plan_top(const tl_plan_run *run, tl_phase phase, tl_plan_holder top[TL_PLAN_TOP], int *count,
                      int64_t *dropped, tl_error *error) TL_MUST_CHECK;

/* ---- memory over the step ----
 * Live bytes after each allocation and release of the planned step, as the ledger logged them. Of more than two micro-batches
 * two stand for all, unless every_micro_batch. */
typedef struct tl_plan_point {
    int64_t event; /* how many allocations and releases the step has made */
    int64_t bytes; /* that live then */
    tl_phase phase;
    bool begins;                    /* the first of its stretch: what lived as the phase began, no event of its own */
    const char *module, *op, *site; /* whose storage it was; "" at a beginning. As long as the timeline */
} tl_plan_point;
typedef struct tl_plan_stretch { /* one phase at work, without a break */
    tl_phase phase;
    int64_t first, count; /* points */
    int64_t begin, end;   /* events: those in (begin, end] are its own */
    int64_t high;         /* point: its largest, the first of several */
} tl_plan_stretch;
typedef struct tl_plan_timeline {
    tl_plan_run run; /* owns the texts; for tl_plan_top */
    int64_t events, allocations;
    tl_plan_point *points;
    int64_t n_points, point_capacity;
    tl_plan_stretch *stretches;
    int64_t n_stretches, stretch_capacity;
    int64_t high; /* point: the step's peak */
} tl_plan_timeline;
/* At most `most` points (0: every event) but never less than two for each stretch; each stretch keeps its beginning and its
 * maximum. An error leaves nothing to free. */
tl_status tl_plan_timeline_make(const tl_plan_options *options, int64_t most, tl_plan_timeline *timeline,
                                tl_error *error) TL_MUST_CHECK;
void tl_plan_timeline_free(tl_plan_timeline *timeline);

#ifdef __cplusplus
}
#endif
#endif
