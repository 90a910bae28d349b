/* cli/verb.h: what a verb is, the options all verbs share, and how results are printed.
 *
 * A verb is one file with one const struct: its name, one line about it, which common options it takes, its own
 * options and its run function. Help, completion and the usage errors are made from these tables and from nothing
 * else. Adding a verb: write cli/NAME.c, declare its struct below, add it to the list in cli/verbs.c.
 *
 * Results go to stdout through tl_out or a tl_grid, everything else to stderr through tl_say and its relatives.
 */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include <argp.h>
#include <stdio.h>

#include "tally/base.h"
#include "tally/hw.h"
#include "tally/json.h"
#include "tally/model.h"
#include "tally/plan.h"
#include "tally/units.h"

/* Exit statuses, a contract. */
enum { TL_EXIT_OK = 0, TL_EXIT_FAILED = 1, TL_EXIT_USAGE = 2, TL_EXIT_VIOLATED = 3, TL_EXIT_INTERRUPTED = 130 };

/* ---- common options: one name, one meaning, everywhere ------------------------------------------------------- */

typedef enum tl_option {
    TL_OPTION_GPUS,
    TL_OPTION_SEQ,
    TL_OPTION_MICRO_BATCH,
    TL_OPTION_GLOBAL_BATCH,
    TL_OPTION_TOKENS,
    TL_OPTION_PARAMS,
    TL_OPTION_PRECISION,
    TL_OPTION_AUTOCAST,
    TL_OPTION_OPTIM,
    TL_OPTION_ATTENTION,
    TL_OPTION_LOSS,
    TL_OPTION_NORM,
    TL_OPTION_GLU,
    TL_OPTION_GELU,
    TL_OPTION_ROTARY,
    TL_OPTION_REPEAT_KV,
    TL_OPTION_GRADS,
    TL_OPTION_UPDATE,
    TL_OPTION_UPDATE_IN_BACKWARD,
    TL_OPTION_DOCUMENTS,
    TL_OPTION_CHOICE,
    TL_OPTION_RECOMPUTE,
    TL_OPTION_ENGINE,
    TL_OPTION_FLOPS,
    TL_OPTION_ZERO,
    TL_OPTION_TP,
    TL_OPTION_PP,
    TL_OPTION_VPP,
    TL_OPTION_CP,
    TL_OPTION_EP,
    TL_OPTION_DP,
    TL_OPTION_SEQUENCE_PARALLEL,
    TL_OPTION_GROUPS,
    TL_OPTION_LORA,
    TL_OPTION_QLORA,
    TL_OPTION_LORA_ALPHA,
    TL_OPTION_LORA_DROPOUT,
    TL_OPTION_LORA_TARGETS,
    TL_OPTION_LORA_TRAIN,
    TL_OPTION_LORA_BASE,
    TL_OPTION_INFER,
    TL_OPTION_MFU,
    TL_OPTION_PEAK,
    TL_OPTION_PRICE,
    TL_OPTION_COUNT
} tl_option;

#define TL_TAKES(name) (UINT64_C(1) << TL_OPTION_##name)
/* How a model is run (tally/choices.h): what plan, fit and train take alike. */
#define TL_TAKES_CHOICES                                                                                               \
    (TL_TAKES(ATTENTION) | TL_TAKES(LOSS) | TL_TAKES(NORM) | TL_TAKES(GLU) | TL_TAKES(GELU) | TL_TAKES(ROTARY) |       \
     TL_TAKES(REPEAT_KV) | TL_TAKES(GRADS) | TL_TAKES(UPDATE) | TL_TAKES(UPDATE_IN_BACKWARD) | TL_TAKES(DOCUMENTS) |   \
     TL_TAKES(CHOICE))
/* Finetuning with adapters (tally/lora.h). */
#define TL_TAKES_LORA                                                                                                  \
    (TL_TAKES(LORA) | TL_TAKES(QLORA) | TL_TAKES(LORA_ALPHA) | TL_TAKES(LORA_DROPOUT) | TL_TAKES(LORA_TARGETS) |       \
     TL_TAKES(LORA_TRAIN) | TL_TAKES(LORA_BASE))

/* Values of the choices, in the order of their texts in cli/options.c (precision: tl_precision; recompute:
 * tl_recompute_kind, every:K leaves K in .size). */
enum {
    TL_CHOICE_ADAMW,
    TL_CHOICE_ADAM,
    TL_CHOICE_SGD,
    TL_CHOICE_MOMENTUM,
    TL_CHOICE_ADAGRAD,
    TL_CHOICE_RMSPROP,
    TL_CHOICE_ADAMW8BIT,
    TL_CHOICE_OPTIM_NONE
};
enum { TL_FLOPS_CAUSAL, TL_FLOPS_FULL };
#define TL_DOES(value) (UINT32_C(1) << (value))

typedef struct tl_option_value {
    const char *text; /* as typed, NULL when not given */
    int choice;       /* choices: the index; filled with the default when not given */
    int64_t size;     /* whole numbers */
    tl_u128 count;    /* --tokens, --params */
    double real;      /* --mfu, --peak, --price */
} tl_option_value;

typedef struct tl_options {
    tl_option_value at[TL_OPTION_COUNT];
    tl_devices devices;   /* --gpus, when devices_status is TL_OK; "here" when not given */
    bool devices_counted; /* the text said how many ("8xH100", "1024"), not only which */
    tl_status devices_status;
    tl_error devices_error; /* why the text is no device of the catalogue: a verb that has --peak can do without */
} tl_options;

/* ---- verbs --------------------------------------------------------------------------------------------------- */

typedef struct tl_cli tl_cli;
typedef enum tl_group { TL_GROUP_BEFORE, TL_GROUP_AFTER, TL_GROUP_LOOKUP, TL_GROUP_COUNT } tl_group;

/* Keys of a verb's own options: TL_OWN(0), TL_OWN(1) …; their texts arrive in cli->own[0], cli->own[1] … */
#define TL_OWN_COUNT 64
#define TL_OWN(index) (0x400 + (index))
/* Files named on the command line; a folder or a quoted pattern names any number. */
#define TL_ARGUMENT_COUNT 4096

typedef struct tl_verb {
    const char *name;
    const char *summary; /* one line, no full stop */
    tl_group group;
    const char *arguments; /* "[MODEL]", for the usage line */
    const char *words;     /* what the first argument may be, space-separated, for completion; or NULL */
    const char *details;   /* shown after the options by --help: what it does, examples */
    uint64_t takes;        /* TL_TAKES(…) | … */
    /* For a choice: the values this verb does, TL_DOES(…) | …; for a whole number: the largest it does. 0: what the
     * table of common options says this build does. */
    uint32_t does[TL_OPTION_COUNT];
    /* What --help says of a common option, where the words of that table are not true of this verb. NULL: those words. */
    const char *says[TL_OPTION_COUNT];
    const struct argp_option *own; /* the verb's own options, ended by {0}; or NULL */
    const char *letters;           /* short letters of own[0], own[1], … ' ' for none; or NULL */
    int min_arguments, max_arguments;
    int (*run)(tl_cli *cli); /* returns an exit status */
} tl_verb;

/* Where another verb's result and words go instead of stdout and stderr: see cli/document.h. */
typedef struct tl_capture {
    tl_json *json;   /* what would have been printed; owned by whoever looks for it */
    char said[1024]; /* the first thing said */
} tl_capture;

typedef enum tl_format { TL_FORMAT_TABLE, TL_FORMAT_MD, TL_FORMAT_CSV, TL_FORMAT_JSON } tl_format;
typedef enum tl_color { TL_COLOR_AUTO, TL_COLOR_ALWAYS, TL_COLOR_NEVER } tl_color;

struct tl_cli {
    const char *program; /* "tally" */
    const tl_verb *verb;
    tl_format format;
    const char *format_said; /* by --json or --format; NULL: by neither */
    tl_units units;
    tl_color color;
    int verbosity;       /* -q: -1, default 0, -v: 1 and up */
    bool help;           /* --help was seen */
    bool paint;          /* colours are on */
    bool utf8;           /* the locale's character set is UTF-8; else ASCII stands in on the terminal */
    int width;           /* columns of the terminal, 80 when piped */
    tl_capture *capture; /* NULL: results go to stdout */
    tl_options options;
    const char *own[TL_OWN_COUNT];
    const char *arguments[TL_ARGUMENT_COUNT];
    int n_arguments;
};

/* The list of verbs (cli/verbs.c). NULL where there is none. */
int tl_verb_count(void);
const tl_verb *tl_verb_at(int index);
const tl_verb *tl_verb_find(const char *name);

extern const tl_verb tl_verb_time;
extern const tl_verb tl_verb_op;
extern const tl_verb tl_verb_plan;
extern const tl_verb tl_verb_fit;
extern const tl_verb tl_verb_sweep;
extern const tl_verb tl_verb_explain;
extern const tl_verb tl_verb_diff;
extern const tl_verb tl_verb_check;
extern const tl_verb tl_verb_machine;
extern const tl_verb tl_verb_train;
extern const tl_verb tl_verb_eval;
extern const tl_verb tl_verb_sample;
extern const tl_verb tl_verb_ledger;
extern const tl_verb tl_verb_mfu;
extern const tl_verb tl_verb_export;
extern const tl_verb tl_verb_runs;
extern const tl_verb tl_verb_models;
extern const tl_verb tl_verb_gpus;
extern const tl_verb tl_verb_inspect;
extern const tl_verb tl_verb_data;
extern const tl_verb tl_verb_completion;
extern const tl_verb tl_verb_version;
extern const tl_verb tl_verb_help;

/* Parses the verb's options and arguments into cli. Returns TL_EXIT_OK or TL_EXIT_USAGE, having said why. */
int tl_cli_parse(tl_cli *cli, int argc, char **argv);
/* Parses the options before the verb; *verb_index is that of the verb's name, argc when there is none. */
int tl_cli_parse_global(tl_cli *cli, int argc, char **argv, int *verb_index);
/* Colours, width and character set, from the options and the environment. */
void tl_cli_prepare(tl_cli *cli);
/* The help of a verb, or of the whole command when verb is NULL; to stdout. */
int tl_cli_help(tl_cli *cli, const tl_verb *verb);
/* The common option of this name ("gpus"), or TL_OPTION_COUNT; and back. */
const char *tl_option_name(tl_option option);
/* The texts of a choice's values, NULL-terminated; NULL for other options. */
const char *const *tl_option_choices(tl_option option);
/* The text of the value in force, given or default, for choices. */
const char *tl_option_choice(const tl_cli *cli, tl_option option);
/* Options as rows for completion: calls `each` with the long name, short letter (0: none), argument name or NULL. */
void tl_cli_options_each(const tl_verb *verb, void (*each)(void *self, const struct argp_option *option), void *self);

/* ---- choices_out.c: how a model is run ---- */
/* Checks one of those options; TL_EXIT_OK, or TL_EXIT_USAGE having said why. */
int tl_cli_way(const tl_cli *cli, tl_option option, const char *text);
/* Of --engine. */
const struct tl_engine *tl_cli_engine(const tl_cli *cli);
/* The number formats that --precision and --autocast say, or, where they say nothing, the engine does. */
void tl_cli_formats(const tl_cli *cli, tl_precision *precision, bool *autocast);
/* What they say together, over what *choices has: --choice, then the options of single choices; one said twice is a usage error. */
int tl_cli_choices(const tl_cli *cli, tl_choices *choices);
bool tl_cli_gives_choices(const tl_cli *cli);
/* Each that the command line says, else that `before` (a text as --choice takes it) says: "norm=fused,loss=chunked:8". */
char *tl_cli_choices_said(const tl_cli *cli, const char *before, char *buffer, size_t size);
/* "choices": {"norm": "fused", …}, all of them. */
void tl_choices_json(tl_json *json, const tl_choices *choices);

static inline bool tl_given(const tl_cli *cli, tl_option option) { return cli->options.at[option].text != NULL; }

/* ---- saying things on stderr --------------------------------------------------------------------------------- */

/* "tally VERB: message"; control characters in it are shown as \xNN. */
void tl_say(const tl_cli *cli, const char *format, ...) TL_PRINTF(2, 3);
/* The same, then "Try `tally VERB --help'."; returns TL_EXIT_USAGE. */
int tl_usage(const tl_cli *cli, const char *format, ...) TL_PRINTF(2, 3);
/* Says error->message; returns the exit status that goes with error->status. */
int tl_failed(const tl_cli *cli, const tl_error *error);
/* A remark, silenced by -q. */
void tl_note(const tl_cli *cli, const char *format, ...) TL_PRINTF(2, 3);
/* The name among n nearest to `name`, or NULL when none is near. */
const char *tl_nearest(const char *name, const char *(*at)(int index), int n);
const char *tl_nearest_of(const char *name, const char *const *names); /* NULL-terminated list */

/* ---- printing results on stdout ------------------------------------------------------------------------------ */

void tl_out(const tl_cli *cli, const char *format, ...) TL_PRINTF(2, 3);
/* The one line that answers the question, in bold; `rest` follows it plainly, or is NULL. */
void tl_out_answer(const tl_cli *cli, const char *answer, const char *rest);
/* "  label  text", the text wrapped at the width and indented under itself. A newline in it is the break
 * wanted most where it does not fit on the line. */
void tl_out_item(const tl_cli *cli, const char *label, const char *format, ...) TL_PRINTF(3, 4);
/* `left`, then the text wrapped at the width in a column of its own from `indent` on. */
void tl_out_wrapped(const tl_cli *cli, int indent, const char *left, const char *text);
/* How many bytes the control character at the start of `text` takes; 0: what stands there may be shown. */
int tl_text_control(const char *text);
/* The same for names and values from files: bytes that are no UTF-8 and what turns the direction of writing or parts lines
 * (U+200E, U+2028 to U+202E, U+2066 to U+2069) are not shown either. `written` is what stands for them: \xNN, \uNNNN. */
int tl_text_hidden(const char *text, char written[8]);
/* `text` as the terminal shows it: what is hidden written out, and in ASCII where the locale has nothing else. To be freed; NULL
 * when memory ran out. */
char *tl_text_shown(const tl_cli *cli, const char *text);
/* Columns the first `length` bytes take: their characters, as all of ours are one column wide. */
int tl_text_columns(const char *text, size_t length);
/* Bytes of the UTF-8 character at `text`; 1 where there is none. */
int tl_text_character(const char *text);
/* The number in fixed digits without trailing zeros, at most `digits` after the point. */
char *tl_text_plain(double value, int digits, char *buffer);
/* Shortest text that reads back as the same double; "" for NaN and infinities. */
char *tl_text_exact(double value, char *buffer);
/* "$7.07 M", "$2.00" */
char *tl_text_money(double amount, char *buffer);

/* Short sentences gathered on the way: assumptions, what a total leaves out. */
typedef struct tl_notes {
    int n;
    char text[12][224];
} tl_notes;
void tl_notes_add(tl_notes *notes, const char *format, ...) TL_PRINTF(2, 3);
void tl_notes_json(tl_json *json, const char *key, const tl_notes *notes);
/* All of them in one tl_out_item, joined by "; ". */
void tl_notes_out(const tl_cli *cli, const char *label, const tl_notes *notes);

/* JSON results: opens the object and writes "schema" and "verb"; close prints it. NULL when memory ran out. */
tl_json *tl_cli_json_open(const tl_cli *cli);
int tl_cli_json_close(const tl_cli *cli, tl_json *json);
/* Into a file, under a temporary name that is renamed (cli/json_file.c). json NULL: memory ran out. */
tl_status tl_cli_write_json(const char *path, const tl_json *json, tl_error *error);

/* A table: columns, then rows of cells. Each cell has a raw value (csv, json) and a text for people (table, md). */
typedef struct tl_column {
    const char *key;   /* csv and json */
    const char *title; /* people, unless nothing in it is known; NULL: in csv and json only */
    bool right;        /* flush right, for numbers */
    bool wide;         /* shown to people only where the terminal has 100 columns or more */
    bool wrap;         /* may be broken over lines */
} tl_column;
typedef struct tl_grid tl_grid;

tl_grid *tl_grid_new(const tl_column *columns, int n_columns);
void tl_grid_free(tl_grid *grid);
/* Cells are added from left to right, row after row. `human` NULL shows the raw value. */
void tl_grid_string(tl_grid *grid, const char *text, const char *human); /* NULL text: as null */
void tl_grid_integer(tl_grid *grid, int64_t value, const char *human);
void tl_grid_unsigned(tl_grid *grid, tl_u128 value, const char *human);
void tl_grid_real(tl_grid *grid, double value, const char *human);
void tl_grid_boolean(tl_grid *grid, bool value, const char *human);
void tl_grid_null(tl_grid *grid); /* not known, not published: "-", an empty field, null */
/* Prints it as table, md or csv, or as json {"schema","verb",list_name:[{…}]}; returns an exit status. */
int tl_grid_print(const tl_cli *cli, const tl_grid *grid, const char *list_name);
/* A grid of one row as a record: md and csv as they are, json's keys into the open object. */
void tl_grid_json_row(const tl_grid *grid, int row, tl_json *json);
int tl_grid_print_record(const tl_cli *cli, const tl_grid *grid);

/* ---- shared by verbs ----------------------------------------------------------------------------------------- */

/* How many parameters the model has, by running it. */
tl_status tl_cli_model_parameters(const tl_model *model, tl_u128 *total, tl_error *error);
/* The rate a precision computes its matrix products at. */
tl_rate tl_cli_precision_rate(int precision);
/* "H100-SXM5-80GB, as a bare H100 means": adds the catalogue's note about the devices, if any, to the assumptions. */
void tl_cli_devices_assumed(const tl_cli *cli, tl_notes *notes);
/* Devices the catalogue does not know, for which --peak stands in: "1024", "1024xFoo". Else a usage error. */
int tl_cli_devices_by_hand(const tl_cli *cli, int64_t *count, char *name, size_t size);

#endif
