/* cli/train.c: tally train, its options. A setting comes from the command line, else from the folder being resumed, else
 * from the task's file, else it has a default. All are kept as text, so that there is one way to check them
 * (cli/train_values.c).
 */
#include <string.h>
#include <sys/stat.h>

#include "tally/engine.h"
#include "groups.h"
#include "tally/run.h"
#include "train.h"

enum { OWN_OUT, OWN_RESUME, OWN_DRY_RUN, OWN_FIRST }; /* from OWN_FIRST on in the order of tl_setting */

/* KEPT: unless something else is said; FIXED: nothing else may be said. */
enum { LEFT, FIXED, KEPT };

typedef struct row {
    const char *name;
    int common; /* tl_option, or -1: the verb's own */
    const char *by_default;
    int kept;               /* by a run that goes on */
    bool tokens;            /* changes nothing about sums */
    const char *for_tokens; /* its default there, if another */
} row;

static const row rows[TL_SET_COUNT] = {
    [TL_SET_MODEL] = {"model", -1, "gpt2:N=2,D=128,H=4", FIXED, false, "gpt2:N=4,D=128,H=4"},
    [TL_SET_STEPS] = {"steps", -1, "700", FIXED, false, "1000"},
    [TL_SET_MINUTES] = {"minutes", -1, "", LEFT, false, NULL},
    [TL_SET_MICRO_BATCH] = {"micro-batch", TL_OPTION_MICRO_BATCH, "256", FIXED, false, "8"},
    [TL_SET_SEQ] = {"seq", TL_OPTION_SEQ, "11", FIXED, false, ""},
    [TL_SET_GLOBAL_BATCH] = {"global-batch", TL_OPTION_GLOBAL_BATCH, "", FIXED, false, NULL},
    [TL_SET_OPTIM] = {"optim", TL_OPTION_OPTIM, "adamw", FIXED, false, NULL},
    [TL_SET_PRECISION] = {"precision", TL_OPTION_PRECISION, "fp32", FIXED, false, NULL},
    [TL_SET_AUTOCAST] = {"autocast", TL_OPTION_AUTOCAST, "off", FIXED, false, NULL},
    [TL_SET_RECOMPUTE] = {"recompute", TL_OPTION_RECOMPUTE, "none", FIXED, false, NULL},
    [TL_SET_ENGINE] = {"engine", TL_OPTION_ENGINE, "tally", FIXED, false, NULL},
    [TL_SET_CHOICE] = {"choice", TL_OPTION_CHOICE, "", FIXED, false, NULL},
    [TL_SET_LR] = {"lr", -1, "", FIXED, false, NULL},
    [TL_SET_WEIGHT_DECAY] = {"weight-decay", -1, "", FIXED, false, NULL},
    [TL_SET_GROUPS] = {"groups", TL_OPTION_GROUPS, "", FIXED, false, NULL},
    [TL_SET_WARMUP] = {"warmup", -1, "", FIXED, false, NULL},
    [TL_SET_CLIP] = {"clip", -1, "1", FIXED, false, NULL},
    [TL_SET_SEED] = {"seed", -1, "1", FIXED, false, NULL},
    [TL_SET_THREADS] = {"threads", -1, "", LEFT, false, NULL},
    [TL_SET_LOG_EVERY] = {"log-every", -1, "50", KEPT, false, "10"},
    [TL_SET_EVAL_EVERY] = {"eval-every", -1, "0", KEPT, false, NULL},
    [TL_SET_SAVE_EVERY] = {"save-every", -1, "500", KEPT, false, NULL},
    [TL_SET_STOP_AT] = {"stop-at", -1, "", LEFT, false, NULL},
    [TL_SET_MEMORY] = {"memory", -1, "", LEFT, false, NULL},
    [TL_SET_SCHEDULE] = {"schedule", -1, "cosine", FIXED, false, NULL},
    [TL_SET_DECAY_STEPS] = {"decay-steps", -1, "", FIXED, false, NULL},
    [TL_SET_SEED_INIT] = {"seed-init", -1, "", FIXED, false, NULL},
    [TL_SET_SEED_DATA] = {"seed-data", -1, "", FIXED, false, NULL},
    [TL_SET_SEED_DROPOUT] = {"seed-dropout", -1, "", FIXED, false, NULL},
    [TL_SET_DATA] = {"data", -1, "", FIXED, true, NULL},
    [TL_SET_DATA_FORM] = {"data-form", -1, "", FIXED, true, NULL},
    [TL_SET_DATA_DTYPE] = {"data-dtype", -1, "", FIXED, true, NULL},
    [TL_SET_VOCAB] = {"vocab", -1, "", FIXED, true, NULL},
    [TL_SET_SAMPLER] = {"sampler", -1, "random", FIXED, true, NULL},
    [TL_SET_SEPARATOR] = {"separator", -1, "", FIXED, true, NULL},
    [TL_SET_BOUNDARIES] = {"boundaries", -1, "", FIXED, true, NULL},
    [TL_SET_VAL] = {"val", -1, "", KEPT, true, NULL},
    [TL_SET_EVAL_BATCHES] = {"eval-batches", -1, "50", KEPT, true, NULL},
    [TL_SET_READERS] = {"readers", -1, "1", LEFT, true, NULL},
    [TL_SET_LOCK_BATCHES] = {"lock-batches", -1, "no", LEFT, true, NULL},
    [TL_SET_KEEP] = {"keep", -1, "2", KEPT, false, NULL},
    [TL_SET_TOKENIZER] = {"tokenizer", -1, "", FIXED, true, NULL},
    [TL_SET_INIT] = {"init", -1, "default", FIXED, false, NULL},
    [TL_SET_WEIGHTS] = {"weights", -1, "", FIXED, false, NULL},
    [TL_SET_LORA] = {"lora", TL_OPTION_LORA, "", FIXED, false, NULL},
    [TL_SET_QLORA] = {"qlora", TL_OPTION_QLORA, "", FIXED, false, NULL},
    [TL_SET_LORA_ALPHA] = {"lora-alpha", TL_OPTION_LORA_ALPHA, "", FIXED, false, NULL},
    [TL_SET_LORA_DROPOUT] = {"lora-dropout", TL_OPTION_LORA_DROPOUT, "", FIXED, false, NULL},
    [TL_SET_LORA_TARGETS] = {"lora-targets", TL_OPTION_LORA_TARGETS, "", FIXED, false, NULL},
    [TL_SET_LORA_TRAIN] = {"lora-train", TL_OPTION_LORA_TRAIN, "", FIXED, false, NULL},
    [TL_SET_LORA_BASE] = {"lora-base", TL_OPTION_LORA_BASE, "", FIXED, false, NULL},
};

const char *tl_setting_name(tl_setting setting) { return rows[setting].name; }

const char *tl_setting_file(const tl_train *t, tl_setting s, char path[TL_PATH]) {
    path[0] = '\0';
    if (t->said[s] == TL_SAID_BY_FOLDER)
        tl_train_path(t, "run.json", path);
    else if (t->said[s] == TL_SAID_BY_FILE)
        snprintf(path, TL_PATH, "%s", t->task_file);
    return path;
}

int tl_setting_failed(const tl_train *t, tl_setting s, const char *format, ...) {
    char path[TL_PATH], what[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!tl_setting_file(t, s, path)[0])
        return tl_usage(t->cli, "--%s%s", rows[s].name, what);
    tl_say(t->cli, "%s: \"%s%s\"%s", path, t->said[s] == TL_SAID_BY_FOLDER ? "options." : "", rows[s].name, what);
    return TL_EXIT_FAILED;
}

static const char *typed(const tl_cli *cli, tl_setting s) {
    return rows[s].common >= 0 ? cli->options.at[rows[s].common].text : cli->own[OWN_FIRST + s];
}

static int set_text(tl_train *t, tl_setting s, const char *text) {
    if (strlen(text) >= sizeof t->texts[s])
        return tl_usage(t->cli, "--%s: a value of %zu bytes is too long", rows[s].name, strlen(text));
    snprintf(t->texts[s], sizeof t->texts[s], "%s", text);
    return TL_EXIT_OK;
}

static const tl_task *const tasks[] = {&tl_task_sums, &tl_task_tokens};

static bool find_task(tl_train *t, const char *name) {
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++)
        if (strcmp(tasks[i]->name, name) == 0)
            t->task = tasks[i];
    return t->task != NULL;
}

static void set_defaults(tl_train *t) {
    for (int s = 0; s < TL_SET_COUNT; s++) {
        const bool other = t->task == &tl_task_tokens && rows[s].for_tokens;
        snprintf(t->texts[s], sizeof t->texts[s], "%s", other ? rows[s].for_tokens : rows[s].by_default);
    }
}

static void note_given(tl_train *t, tl_setting s) {
    t->steps_given |= s == TL_SET_STEPS;
    t->precision_given |= s == TL_SET_PRECISION;
    t->autocast_given |= s == TL_SET_AUTOCAST;
}

static int take_key(tl_train *t, const char *path, const tl_run_file *file, const char *key) {
    tl_error error = {TL_OK, ""};
    int s = 0;
    while (s < TL_SET_COUNT && strcmp(rows[s].name, key) != 0)
        s++;
    if (s == TL_SET_COUNT) {
        tl_say(t->cli, "%s: \"%.80s\" is no setting of tally train; they are its options' names", path, key);
        return TL_EXIT_FAILED;
    }
    if (rows[s].tokens && t->task != &tl_task_tokens) {
        tl_say(t->cli, "%s: \"%s\" changes nothing about %s", path, key, t->task->name);
        return TL_EXIT_FAILED;
    }
    const tl_status status = s == TL_SET_GROUPS
                                 ? tl_groups_from_file(file, path, t->texts[s], sizeof t->texts[s], &error)
                                 : tl_run_file_typed(file, key, t->texts[s], sizeof t->texts[s], &error);
    if (status != TL_OK)
        return tl_failed(t->cli, &error);
    t->said[s] = TL_SAID_BY_FILE;
    note_given(t, (tl_setting)s);
    return TL_EXIT_OK;
}

/* {"task": "tokens", "data": "train.bin", "steps": 2000, …}: the options' names without their dashes. */
static int read_task_file(tl_train *t, const char *path) {
    tl_error error = {TL_OK, ""};
    const char *task, *key;
    int status = TL_EXIT_OK;
    tl_run_file *file = tl_run_file_read(path, &error);
    if (!file)
        return tl_failed(t->cli, &error);
    if (!(task = tl_run_file_text(file, "task", &error))) {
        status = tl_failed(t->cli, &error);
    } else if (!find_task(t, task)) {
        tl_say(t->cli, "%s: there is no task \"%.60s\"; `sums' and `tokens' are", path, task);
        status = TL_EXIT_FAILED;
    }
    if (status == TL_EXIT_OK)
        set_defaults(t);
    for (int64_t i = 0; status == TL_EXIT_OK && (key = tl_run_file_key(file, "", i)) != NULL; i++)
        if (strcmp(key, "task") != 0)
            status = take_key(t, path, file, key);
    tl_run_file_free(file);
    return status;
}

/* What is trained on: a task by name, a task's file, or token files. */
static int read_argument(tl_train *t, const char *argument) {
    struct stat st;
    const size_t length = strlen(argument);
    const bool json = length > 5 && strcmp(argument + length - 5, ".json") == 0;
    if (json) {
        t->task_file = argument;
        return read_task_file(t, argument);
    }
    if (strcmp(argument, "sums") == 0) {
        t->task = &tl_task_sums;
    } else if (stat(argument, &st) == 0 || strpbrk(argument, "*?[")) {
        t->task = &tl_task_tokens;
    } else {
        return tl_usage(t->cli,
                        "there is no task \"%.80s\" and no file of that name; `sums' is one, token files are FILE or "
                        "FOLDER, and FILE.json holds a task with its settings",
                        argument);
    }
    set_defaults(t);
    return t->task == &tl_task_tokens ? set_text(t, TL_SET_DATA, argument) : TL_EXIT_OK;
}

/* Of the run that is gone on with; where nothing was said it is the one. */
static int same_task(tl_train *t, const tl_run_file *file) {
    tl_error error = {TL_OK, ""};
    char data[sizeof t->texts[0]];
    const char *task = tl_run_file_text(file, "task", &error);
    if (!task)
        return tl_failed(t->cli, &error);
    if (t->task && strcmp(t->task->name, task) != 0)
        return tl_usage(t->cli, "the run in %s learns %.60s, not %s", t->folder, task, t->task->name);
    if (!t->task) {
        if (!find_task(t, task)) {
            tl_say(t->cli, "%s: there is no task \"%.60s\" in this build", t->folder, task);
            return TL_EXIT_FAILED;
        }
        set_defaults(t);
        return TL_EXIT_OK;
    }
    if (t->task == &tl_task_tokens && tl_run_file_typed(file, "options.data", data, sizeof data, &error) == TL_OK &&
        strcmp(data, t->texts[TL_SET_DATA]) != 0)
        return tl_usage(t->cli, "the run in %s was started with %s and goes on with it, not with %s", t->folder, data,
                        t->texts[TL_SET_DATA]);
    return error.status == TL_OK ? TL_EXIT_OK : tl_failed(t->cli, &error);
}

static int read_folder(tl_train *t) {
    char path[TL_PATH], name[64];
    tl_error error = {TL_OK, ""};
    struct stat st;
    tl_train_path(t, "run.json", path);
    bool there = stat(path, &st) == 0;
    if (there && !t->resume) {
        tl_say(t->cli, "%s already holds a run: --resume goes on with it, another --out starts anew", t->folder);
        return TL_EXIT_FAILED;
    }
    if (!t->resume)
        return TL_EXIT_OK;
    if (!there) {
        tl_say(t->cli, "%s holds no run to resume (no run.json)", t->folder);
        return TL_EXIT_FAILED;
    }
    tl_run_file *file = tl_run_file_read(path, &error);
    if (!file)
        return tl_failed(t->cli, &error);
    const int status = same_task(t, file);
    if (status != TL_EXIT_OK) {
        tl_run_file_free(file);
        return status;
    }
    for (int s = 0; s < TL_SET_COUNT; s++) {
        snprintf(name, sizeof name, "options.%s", rows[s].name);
        if (rows[s].kept != LEFT && tl_run_file_has(file, name) &&
            tl_run_file_typed(file, name, t->texts[s], sizeof t->texts[s], &error) != TL_OK)
            break;
        if (rows[s].kept != LEFT && tl_run_file_has(file, name))
            t->said[s] = TL_SAID_BY_FOLDER;
    }
    if (error.status == TL_OK) /* the model as it was built, whatever its name means today */
        tl_train_path(t, "config.json", t->model_path);
    if (error.status == TL_OK && tl_run_file_has(file, "model") &&
        tl_run_file_typed(file, "model", t->model_name, sizeof t->model_name, &error) != TL_OK)
        t->model_name[0] = '\0';
    tl_run_file_free(file);
    return error.status == TL_OK ? TL_EXIT_OK : tl_failed(t->cli, &error);
}

/* From the command line, over what file and folder said. */
static int read_typed(tl_train *t) {
    const tl_cli *cli = t->cli;
    char choices[TL_CHOICES_TEXT];
    tl_choices chosen = {0};
    tl_error error = {TL_OK, ""};
    if (tl_choices_parse(t->texts[TL_SET_CHOICE], &chosen, &error) != TL_OK) /* what file or folder said */
        return tl_setting_failed(t, TL_SET_CHOICE, ": %s", error.message);
    int said = tl_cli_choices(cli, &chosen);
    if (said != TL_EXIT_OK)
        return said;
    for (int s = 0; s < TL_SET_COUNT; s++) {
        const char *text = typed(cli, (tl_setting)s);
        if (s == TL_SET_CHOICE) /* of several options */
            text = tl_cli_gives_choices(cli)
                       ? tl_cli_choices_said(cli, t->texts[TL_SET_CHOICE], choices, sizeof choices)
                       : NULL;
        if (!text)
            continue;
        if (rows[s].tokens && t->task != &tl_task_tokens)
            return tl_usage(cli, "--%s changes nothing about %s; it is for token files", rows[s].name, t->task->name);
        if (t->resume && rows[s].kept == FIXED && strcmp(text, t->texts[s]) != 0)
            return tl_usage(cli, "--%s %.80s: the run in %s was started with %.80s and goes on with it", rows[s].name,
                            text[0] ? text : "none", t->folder, t->texts[s][0] ? t->texts[s] : "none");
        if (s == TL_SET_EVAL_BATCHES && !t->texts[TL_SET_VAL][0])
            return tl_usage(cli, "--eval-batches needs --val FILE, tokens that are not trained on");
        note_given(t, (tl_setting)s);
        t->said[s] = TL_SAID_BY_OPTION;
        const int status = set_text(t, (tl_setting)s, text);
        if (status != TL_EXIT_OK)
            return status;
    }
    return TL_EXIT_OK;
}

/* Number formats that nobody named are the engine's; tally's own are train's defaults. */
static int take_engine(tl_train *t) {
    tl_error error = {TL_OK, ""};
    if (tl_engine_find(t->texts[TL_SET_ENGINE], &t->plan.engine, &error) != TL_OK)
        return tl_setting_failed(t, TL_SET_ENGINE, ": %s", error.message);
    const tl_engine *e = t->plan.engine;
    if (t->resume || e == tl_engine_at(0))
        return TL_EXIT_OK;
    if (!t->precision_given)
        (void)set_text(t, TL_SET_PRECISION, tl_precision_name(e->precision));
    if (!t->autocast_given && strstr(t->texts[TL_SET_PRECISION], "-mixed"))
        (void)set_text(t, TL_SET_AUTOCAST, e->autocast ? "on" : "off");
    return TL_EXIT_OK;
}

/* The model of --weights, unless another is named: the config.json beside them. */
static int take_weights(tl_train *t) {
    char *weights = t->texts[TL_SET_WEIGHTS], *model = t->texts[TL_SET_MODEL];
    const bool other = t->task == &tl_task_tokens && rows[TL_SET_MODEL].for_tokens;
    struct stat st;
    if (!weights[0] || t->resume)
        return TL_EXIT_OK;
    if (stat(weights, &st) != 0)
        return tl_usage(t->cli, "--weights %.120s: there is none", weights);
    if (t->init)
        return tl_usage(t->cli, "--init %.60s changes nothing: --weights gives every parameter its value", t->init);
    if (strcmp(model, other ? rows[TL_SET_MODEL].for_tokens : rows[TL_SET_MODEL].by_default) != 0)
        return TL_EXIT_OK;
    snprintf(model, sizeof t->texts[0], "%s", weights);
    char *slash = strrchr(model, '/');
    if (!S_ISDIR(st.st_mode))
        snprintf(slash ? slash : model, 3, "%s", slash ? "" : ".");
    return TL_EXIT_OK;
}

int tl_train_settings(tl_train *t) {
    const tl_cli *cli = t->cli;
    const char *out = cli->own[OWN_OUT];
    t->resume = cli->own[OWN_RESUME] != NULL;
    t->dry_run = cli->own[OWN_DRY_RUN] != NULL;
    if ((!out || out[0] == '\0') && (!t->dry_run || t->resume))
        return tl_usage(cli, "--out FOLDER is needed: where the run is kept");
    if (out && strlen(out) > TL_PATH - 64)
        return tl_usage(cli, "--out: a path of more than %d bytes", TL_PATH - 64);
    snprintf(t->folder, sizeof t->folder, "%s", out ? out : "");
    if (!cli->n_arguments && !t->resume)
        return tl_usage(cli, "it needs TASK or FILE: what is trained on");
    int status = cli->n_arguments ? read_argument(t, cli->arguments[0]) : TL_EXIT_OK;
    if (status == TL_EXIT_OK && out)
        status = read_folder(t);
    if (status == TL_EXIT_OK)
        status = read_typed(t);
    if (status == TL_EXIT_OK)
        status = take_engine(t);
    if (status == TL_EXIT_OK)
        status = tl_train_values(t);
    if (status == TL_EXIT_OK)
        status = take_weights(t);
    if (status == TL_EXIT_OK)
        status = t->task->open(t);
    return status == TL_EXIT_OK ? tl_train_read_model(t) : status;
}

static int run(tl_cli *cli) {
    static tl_train t; /* zeroed; large enough that the stack is no place for it */
    t.cli = cli;
    int status = tl_train_settings(&t);
    if (status == TL_EXIT_OK)
        status = tl_train_run(&t);
    if (t.task)
        t.task->close(&t);
    return status;
}

static const struct argp_option own_options[] = {
    {"out", TL_OWN(OWN_OUT), "FOLDER", 0, "Where the run is kept (made if need be)", 0},
    {"resume", TL_OWN(OWN_RESUME), 0, 0, "Go on with the run in --out, bit for bit", 0},
    {"dry-run", TL_OWN(OWN_DRY_RUN), 0, 0, "Print the plan and stop: exit 0, or 3 where it does not fit", 0},
#define OWN(setting, name, argument, help)                                                                             \
    { name, TL_OWN(OWN_FIRST + TL_SET_##setting), argument, 0, help, 0 }
    OWN(MODEL, "model", "MODEL", "gpt2:N=4,D=128,H=4 (default; sums: N=2), llama:…, a config.json, a catalogue name"),
    OWN(STEPS, "steps", "N", "Optimizer steps (default 1000; sums: 700)"),
    OWN(MINUTES, "minutes", "M", "No more minutes of training than this; fewer steps if need be"),
    OWN(LR, "lr", "X", "Highest learning rate (default: adam, adamw, adamw8bit 1e-3, sums 2e-3; sgd 0.1, …)"),
    OWN(WEIGHT_DECAY, "weight-decay", "X", "Decay of matrices, embeddings (0.1; adam, adagrad, rmsprop 0)"),
    OWN(SCHEDULE, "schedule", "NAME", "constant, linear, cosine (default), wsd or wsd-sqrt, down to a hundredth"),
    OWN(WARMUP, "warmup", "N", "Steps of linear warm-up before it (default 100, or half of a shorter run)"),
    OWN(DECAY_STEPS, "decay-steps", "N", "The last steps, in which wsd decays (default: a tenth)"),
    OWN(CLIP, "clip", "X", "Largest gradient norm, 0: none (default 1)"),
    OWN(SEED, "seed", "N", "Seed of weights, data and dropout (default 1)"),
    OWN(SEED_INIT, "seed-init", "N", "Of the weights alone (default: --seed)"),
    OWN(SEED_DATA, "seed-data", "N", "Of the order of the data alone (default: --seed)"),
    OWN(SEED_DROPOUT, "seed-dropout", "N", "Of dropout alone (default: --seed)"),
    OWN(THREADS, "threads", "N", "Threads (default: all cores); the bits do not depend on it"),
    OWN(LOG_EVERY, "log-every", "N", "Steps between lines of metrics.jsonl (default 10; sums: 50)"),
    OWN(EVAL_EVERY, "eval-every", "N", "Steps between tests (--val, held-out sums); 0, the default: at the end"),
    OWN(SAVE_EVERY, "save-every", "N", "Steps between checkpoints (default 500)"),
    OWN(KEEP, "keep", "N", "Newest checkpoints to keep, beside the best (default 2)"),
    OWN(STOP_AT, "stop-at", "N", "Save and stop after step N, as an interrupt there would"),
    OWN(MEMORY, "memory", "BYTES", "Memory the run may take: 2GB (default: what is available)"),
    OWN(VAL, "val", "FILE", "Tokens that are not trained on: their loss every --eval-every steps and at the end"),
    OWN(EVAL_BATCHES, "eval-batches", "N", "Micro-batches of them each time, from the first on (default 50)"),
    OWN(SAMPLER, "sampler", "NAME", "random (default): windows anywhere; epochs: each window once an epoch"),
    OWN(SEPARATOR, "separator", "ID", "The id that ends a document, `none': the token behind it is no target"),
    OWN(BOUNDARIES, "boundaries", "FILE.npy", "Where each document begins, for tokens without a separator"),
    OWN(VOCAB, "vocab", "N", "Ids are below N (default: as pack noted; else the model's, or the largest id + 1)"),
    OWN(TOKENIZER, "tokenizer", "PATH", "What made the tokens (default: as pack noted): sample and eval use it"),
    OWN(INIT, "init", "SCHEME", "default, gpt2, normal, truncated, uniform, cs336, xavier, kaiming, …"),
    OWN(WEIGHTS, "weights", "PATH",
        "Start from these: a folder of Hugging Face's, a .safetensors, a run; its model too"),
    OWN(DATA_FORM, "data-form", "FORM", "raw, llmc or npy (default: what the file says)"),
    OWN(DATA_DTYPE, "data-dtype", "NAME", "uint16 or uint32, where no header says it (default: inferred)"),
    OWN(READERS, "readers", "N", "Threads that read ahead (default 1); the order does not depend on it"),
    OWN(LOCK_BATCHES, "lock-batches", "yes|no", "Lock what they read into in memory (mlock; default no)"),
#undef OWN
    {0},
};

const tl_verb tl_verb_train = {
    .name = "train",
    .summary = "train a small model here, its account planned before and measured during",
    .group = TL_GROUP_AFTER,
    .arguments = "FILE|FOLDER|TASK",
    .words = "sums",
    .details = "FILE holds tokens (`tally data pack\' makes them), or several of them do: a\n"
               "FOLDER, a quoted pattern. TASK is `sums\' (\"137+485=622\", made up as it goes,\n"
               "tested on sums it was never shown) or a FILE.json: {\"task\": \"tokens\",\n"
               "\"data\": \"train.bin\", \"steps\": 2000, …}, keys as the options.\n\n"
               "Before the first step the run is planned on the device meta; one that cannot\n"
               "fit never starts (exit 3). The folder holds config.json, run.json, plan.json,\n"
               "metrics.jsonl, ledger.json, evaluation.json and checkpoints/. Ctrl-C finishes\n"
               "the step, saves and exits 130; --resume goes on bit for bit.\n"
               "With --minutes alone the time decides how many steps there are.\n\n"
               "  tally train train.bin --val val.bin --eval-every 100 --out runs/a\n"
               "  tally train train.bin --model gpt2 --dry-run\n"
               "  tally train sums --out runs/b --model llama:N=2,D=128,H=4,G=2 --steps 300\n"
               "  tally train --out runs/b --resume\n"
               "  tally ledger runs/a",
    .takes = TL_TAKES(SEQ) | TL_TAKES(MICRO_BATCH) | TL_TAKES(GLOBAL_BATCH) | TL_TAKES(OPTIM) | TL_TAKES(PRECISION) |
             TL_TAKES(AUTOCAST) | TL_TAKES(RECOMPUTE) | TL_TAKES_CHOICES | TL_TAKES(ENGINE) | TL_TAKES(GROUPS) |
             TL_TAKES_LORA,
    .does = {[TL_OPTION_OPTIM] = TL_DOES(TL_CHOICE_ADAMW) | TL_DOES(TL_CHOICE_SGD) | TL_DOES(TL_CHOICE_MOMENTUM) |
                                 TL_DOES(TL_CHOICE_ADAGRAD) | TL_DOES(TL_CHOICE_ADAM) | TL_DOES(TL_CHOICE_RMSPROP) |
                                 TL_DOES(TL_CHOICE_ADAMW8BIT)},
    .says = {[TL_OPTION_SEQ] = "Tokens of a window (default: the model's context; a spec's: 128; sums: 11)",
             [TL_OPTION_MICRO_BATCH] = "Windows computed at once (default 8; sums: 256)",
             [TL_OPTION_GLOBAL_BATCH] = "Windows of one optimizer step (default: --micro-batch)",
             [TL_OPTION_PRECISION] = "fp32 (default), bf16, bf16-mixed, fp16-mixed, fp8-mixed (emulated)"},
    .own = own_options,
    .min_arguments = 0,
    .max_arguments = 1,
    .run = run,
};
