/* cli/train.c: tally train, its options. A setting comes from the command line, else from the folder being resumed, else
 * from the task's file, else it has a default. All are kept as text until here, so that there is one way to check them.
 */
#include <string.h>
#include <sys/stat.h>

#include "tally/run.h"
#include "train.h"

enum { OWN_OUT, OWN_RESUME, OWN_FIRST };

typedef struct row {
    const char *name;
    int common; /* tl_option, or -1: the verb's own */
    const char *by_default;
    bool fixed; /* a run that goes on must go on with it */
} row;

static const row rows[TL_SET_COUNT] = {
    [TL_SET_MODEL] = {"model", -1, "gpt2:N=2,D=128,H=4", true},
    [TL_SET_STEPS] = {"steps", -1, "700", true},
    [TL_SET_MINUTES] = {"minutes", -1, "", false},
    [TL_SET_MICRO_BATCH] = {"micro-batch", TL_OPTION_MICRO_BATCH, "256", true},
    [TL_SET_SEQ] = {"seq", TL_OPTION_SEQ, "11", true},
    [TL_SET_GLOBAL_BATCH] = {"global-batch", TL_OPTION_GLOBAL_BATCH, "", true},
    [TL_SET_OPTIM] = {"optim", TL_OPTION_OPTIM, "adamw", true},
    [TL_SET_PRECISION] = {"precision", TL_OPTION_PRECISION, "fp32", true},
    [TL_SET_RECOMPUTE] = {"recompute", TL_OPTION_RECOMPUTE, "none", true},
    [TL_SET_LR] = {"lr", -1, "", true},
    [TL_SET_WEIGHT_DECAY] = {"weight-decay", -1, "0.1", true},
    [TL_SET_WARMUP] = {"warmup", -1, "100", true},
    [TL_SET_CLIP] = {"clip", -1, "1", true},
    [TL_SET_SEED] = {"seed", -1, "1", true},
    [TL_SET_THREADS] = {"threads", -1, "", false},
    [TL_SET_LOG_EVERY] = {"log-every", -1, "50", false},
    [TL_SET_EVAL_EVERY] = {"eval-every", -1, "0", false},
    [TL_SET_SAVE_EVERY] = {"save-every", -1, "500", false},
    [TL_SET_STOP_AT] = {"stop-at", -1, "0", false},
    [TL_SET_MEMORY] = {"memory", -1, "", false},
};

const char *tl_setting_name(tl_setting setting) { return rows[setting].name; }

static const char *typed(const tl_cli *cli, tl_setting s) {
    if (rows[s].common >= 0)
        return cli->options.at[rows[s].common].text;
    int own = OWN_FIRST;
    for (int i = 0; i < (int)s; i++)
        own += rows[i].common < 0;
    return cli->own[own];
}

static int set_text(tl_train *t, tl_setting s, const char *text) {
    if (strlen(text) >= sizeof t->texts[s])
        return tl_usage(t->cli, "--%s: a value of %zu bytes is too long", rows[s].name, strlen(text));
    snprintf(t->texts[s], sizeof t->texts[s], "%s", text);
    return TL_EXIT_OK;
}

/* {"task": "sums", "steps": 700, …}: the options' names without their dashes. */
static int read_task_file(tl_train *t, const char *path, tl_run_file *file) {
    tl_error error = {TL_OK, ""};
    const char *task = tl_run_file_text(file, "task", &error), *key;
    if (!task)
        return tl_failed(t->cli, &error);
    snprintf(t->task, sizeof t->task, "%.60s", task);
    for (int64_t i = 0; (key = tl_run_file_key(file, "", i)) != NULL; i++) {
        int s = 0;
        while (s < TL_SET_COUNT && strcmp(rows[s].name, key) != 0)
            s++;
        if (strcmp(key, "task") == 0)
            continue;
        if (s == TL_SET_COUNT) {
            tl_say(t->cli, "%s: \"%.80s\" is no setting of tally train; they are its options' names", path, key);
            return TL_EXIT_FAILED;
        }
        if (tl_run_file_typed(file, key, t->texts[s], sizeof t->texts[s], &error) != TL_OK)
            return tl_failed(t->cli, &error);
        if (s == TL_SET_STEPS)
            t->steps_given = true;
    }
    return TL_EXIT_OK;
}

static int find_task(tl_train *t, const char *argument) {
    struct stat st;
    tl_error error = {TL_OK, ""};
    size_t length = strlen(argument);
    if (strcmp(argument, "sums") == 0) {
        snprintf(t->task, sizeof t->task, "sums");
        return TL_EXIT_OK;
    }
    bool json = length > 5 && strcmp(argument + length - 5, ".json") == 0;
    if (!json && stat(argument, &st) == 0) {
        tl_say(t->cli, "%s: training from token files is not in this build (%s); the task `sums' is", argument,
               TL_VERSION);
        return TL_EXIT_FAILED;
    }
    if (!json)
        return tl_usage(t->cli, "there is no task \"%.80s\"; `sums' is one, and FILE.json holds one with its settings",
                        argument);
    tl_run_file *file = tl_run_file_read(argument, &error);
    if (!file)
        return tl_failed(t->cli, &error);
    int status = read_task_file(t, argument, file);
    tl_run_file_free(file);
    if (status == TL_EXIT_OK && strcmp(t->task, "sums") != 0) {
        tl_say(t->cli, "%s: there is no task \"%s\"; `sums' is one", argument, t->task);
        return TL_EXIT_FAILED;
    }
    return status;
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
    for (int s = 0; s < TL_SET_COUNT; s++) {
        snprintf(name, sizeof name, "options.%s", rows[s].name);
        if (rows[s].fixed && tl_run_file_typed(file, name, t->texts[s], sizeof t->texts[s], &error) != TL_OK)
            break;
    }
    if (error.status == TL_OK) /* the model as it was built, whatever its name means today */
        tl_train_path(t, "config.json", t->model_path);
    tl_run_file_free(file);
    return error.status == TL_OK ? TL_EXIT_OK : tl_failed(t->cli, &error);
}

static int whole(const tl_train *t, tl_setting s, int64_t low, int64_t high, int64_t *value) {
    tl_error error = {TL_OK, ""};
    if (t->texts[s][0] == '\0')
        return TL_EXIT_OK;
    if (tl_parse_size(t->texts[s], value, &error) != TL_OK)
        return tl_usage(t->cli, "--%s: %s", rows[s].name, error.message);
    if (*value < low || *value > high)
        return tl_usage(t->cli, "--%s %s: %lld to %lld would work", rows[s].name, t->texts[s], (long long)low,
                        (long long)high);
    return TL_EXIT_OK;
}

static int number(const tl_train *t, tl_setting s, double low, double high, double *value) {
    tl_error error = {TL_OK, ""};
    if (t->texts[s][0] != '\0' && tl_parse_number(t->texts[s], low, high, value, &error) != TL_OK)
        return tl_usage(t->cli, "--%s: %s", rows[s].name, error.message);
    return TL_EXIT_OK;
}

static int choice(const tl_train *t, tl_setting s, tl_option option, int *found) {
    const char *const *names = tl_option_choices(option);
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], t->texts[s]) == 0) {
            *found = i;
            return TL_EXIT_OK;
        }
    return tl_usage(t->cli, "--%s \"%.60s\": there is none of that name", rows[s].name, t->texts[s]);
}

static int read_optimizer(tl_train *t) {
    int found = 0, precision = 0;
    tl_optimizer_options *o = &t->plan.optimizer;
    int status = choice(t, TL_SET_OPTIM, TL_OPTION_OPTIM, &found);
    if (status == TL_EXIT_OK)
        status = choice(t, TL_SET_PRECISION, TL_OPTION_PRECISION, &precision);
    if (status != TL_EXIT_OK)
        return status;
    t->plan.precision = (tl_precision)precision;
    tl_error error = {TL_OK, ""};
    if (tl_recompute_parse(t->texts[TL_SET_RECOMPUTE], &t->plan.recompute, &error) != TL_OK)
        return tl_usage(t->cli, "%s", error.message);
    switch (found) {
    case TL_CHOICE_ADAMW:
        *o = tl_optimizer_defaults(TL_OPTIM_ADAMW);
        o->lr = 2e-3;
        o->beta2 = 0.99; /* a few hundred steps are too short a run for the 1000 steps that 0.999 remembers */
        break;
    case TL_CHOICE_SGD:
    case TL_CHOICE_MOMENTUM:
        *o = tl_optimizer_defaults(TL_OPTIM_SGD);
        o->lr = 0.1;
        o->momentum = found == TL_CHOICE_MOMENTUM ? 0.9 : 0;
        break;
    case TL_CHOICE_ADAGRAD:
        *o = tl_optimizer_defaults(TL_OPTIM_ADAGRAD);
        break;
    default:
        return tl_usage(t->cli, "--optim %s is not trained with in this build; adamw, sgd, momentum and adagrad are",
                        t->texts[TL_SET_OPTIM]);
    }
    if (precision > TL_PRECISION_BF16_MIXED)
        return tl_usage(t->cli, "--precision %s is not in this build; fp32, bf16 and bf16-mixed are",
                        t->texts[TL_SET_PRECISION]);
    status = number(t, TL_SET_LR, 0, 1e6, &o->lr);
    if (status == TL_EXIT_OK && found != TL_CHOICE_ADAGRAD)
        status = number(t, TL_SET_WEIGHT_DECAY, 0, 1e3, &o->weight_decay);
    t->lr = o->lr;
    return status;
}

static int read_sizes(tl_train *t) {
    static const int64_t most = INT64_C(1) << 40;
    int64_t seed = 0, threads = tl_machine_cores();
    tl_error error = {TL_OK, ""};
    int status = whole(t, TL_SET_STEPS, 1, most, &t->steps);
    status = status ? status : whole(t, TL_SET_MICRO_BATCH, 1, most, &t->plan.micro_batch);
    status = status ? status : whole(t, TL_SET_SEQ, TL_SUMS_SEQ, most, &t->plan.seq);
    status = status ? status : whole(t, TL_SET_GLOBAL_BATCH, 1, most, &t->plan.global_batch);
    status = status ? status : whole(t, TL_SET_WARMUP, 0, most, &t->warmup);
    status = status ? status : whole(t, TL_SET_SEED, 0, INT64_MAX, &seed);
    status = status ? status : whole(t, TL_SET_THREADS, 1, 1024, &threads);
    status = status ? status : whole(t, TL_SET_LOG_EVERY, 1, most, &t->log_every);
    status = status ? status : whole(t, TL_SET_EVAL_EVERY, 0, most, &t->eval_every);
    status = status ? status : whole(t, TL_SET_SAVE_EVERY, 1, most, &t->save_every);
    status = status ? status : whole(t, TL_SET_STOP_AT, 0, most, &t->stop_at);
    status = status ? status : number(t, TL_SET_MINUTES, 0.01, 1e6, &t->minutes);
    status = status ? status : number(t, TL_SET_CLIP, 0, 1e30, &t->plan.clip);
    if (status != TL_EXIT_OK)
        return status;
    if (t->texts[TL_SET_MEMORY][0] && tl_parse_bytes(t->texts[TL_SET_MEMORY], &t->memory_bytes, &error) != TL_OK)
        return tl_usage(t->cli, "--memory: %s", error.message);
    if (t->texts[TL_SET_MEMORY][0] && t->memory_bytes == 0)
        return tl_usage(t->cli, "--memory 0 holds nothing; leave it out to use what is available");
    t->seed = (uint64_t)seed;
    t->threads = (int)threads;
    t->plan.threads = (int)threads;
    t->plan.devices = (tl_devices){.count = 1, .here = true};
    t->plan.every_micro_batch = true; /* the arena follows each of them */
    return TL_EXIT_OK;
}

int tl_train_settings(tl_train *t) {
    const tl_cli *cli = t->cli;
    tl_error error = {TL_OK, ""};
    if (!cli->own[OWN_OUT] || cli->own[OWN_OUT][0] == '\0')
        return tl_usage(cli, "--out FOLDER is needed: where the run is kept");
    if (strlen(cli->own[OWN_OUT]) > TL_PATH - 64)
        return tl_usage(cli, "--out: a path of more than %d bytes", TL_PATH - 64);
    snprintf(t->folder, sizeof t->folder, "%s", cli->own[OWN_OUT]);
    t->resume = cli->own[OWN_RESUME] != NULL;
    for (int s = 0; s < TL_SET_COUNT; s++)
        snprintf(t->texts[s], sizeof t->texts[s], "%s", rows[s].by_default);
    int status = find_task(t, cli->arguments[0]);
    if (status == TL_EXIT_OK)
        status = read_folder(t);
    for (int s = 0; s < TL_SET_COUNT && status == TL_EXIT_OK; s++) {
        const char *text = typed(cli, (tl_setting)s);
        if (!text)
            continue;
        if (t->resume && rows[s].fixed && strcmp(text, t->texts[s]) != 0)
            return tl_usage(cli, "--%s %.80s: the run in %s was started with %.80s and goes on with it", rows[s].name,
                            text, t->folder, t->texts[s]);
        t->steps_given |= s == TL_SET_STEPS;
        status = set_text(t, (tl_setting)s, text);
    }
    if (status == TL_EXIT_OK)
        status = read_sizes(t);
    if (status == TL_EXIT_OK)
        status = read_optimizer(t);
    if (status != TL_EXIT_OK)
        return status;
    /* With --minutes alone the time decides. */
    if (t->minutes > 0 && !t->steps_given && !t->resume)
        t->steps = INT64_C(1) << 40;
    const char *model = t->model_path[0] ? t->model_path : t->texts[TL_SET_MODEL];
    if (tl_train_model(model, TL_SUMS_VOCAB, t->plan.seq + 1, &t->model, &error) != TL_OK)
        return tl_failed(cli, &error);
    if (t->model.learned_positions && t->model.context < t->plan.seq)
        return tl_usage(cli, "--seq %lld: %s has %lld positions", (long long)t->plan.seq, t->model.name,
                        (long long)t->model.context);
    t->plan.model = t->model;
    return TL_EXIT_OK;
}

static int run(tl_cli *cli) {
    static tl_train t; /* zeroed; large enough that the stack is no place for it */
    t.cli = cli;
    int status = tl_train_settings(&t);
    return status == TL_EXIT_OK ? tl_train_run(&t) : status;
}

/* In the order of rows[]: typed() counts on it. */
static const struct argp_option own_options[] = {
    {"out", TL_OWN(OWN_OUT), "FOLDER", 0, "Where the run is kept (made if need be)", 0},
    {"resume", TL_OWN(OWN_RESUME), 0, 0, "Go on with the run in --out, bit for bit", 0},
#define OWN(index, name, argument, help)                                                                               \
    { name, TL_OWN(OWN_FIRST + index), argument, 0, help, 0 }
    OWN(0, "model", "MODEL", "gpt2:N=2,D=128,H=4 (default), llama:…, a config.json, a catalogue name"),
    OWN(1, "steps", "N", "Optimizer steps (default 700)"),
    OWN(2, "minutes", "M", "No more minutes of training than this; fewer steps if need be"),
    OWN(3, "lr", "X", "Highest learning rate (default: adamw 2e-3, sgd 0.1, adagrad 1e-2)"),
    OWN(4, "weight-decay", "X", "Weight decay of matrices and embeddings (default 0.1)"),
    OWN(5, "warmup", "N", "Steps of linear warm-up, then half a cosine (default 100)"),
    OWN(6, "clip", "X", "Largest gradient norm, 0: none (default 1)"),
    OWN(7, "seed", "N", "Seed of weights, data and dropout (default 1)"),
    OWN(8, "threads", "N", "Threads (default: all cores); the bits do not depend on it"),
    OWN(9, "log-every", "N", "Steps between lines of metrics.jsonl (default 50)"),
    OWN(10, "eval-every", "N", "Steps between tests on held-out sums; 0, the default: at the end"),
    OWN(11, "save-every", "N", "Steps between checkpoints (default 500)"),
    OWN(12, "stop-at", "N", "Save and stop after step N, as an interrupt there would"),
    OWN(13, "memory", "BYTES", "Memory the run may take: 2GB (default: what is available)"),
    {0},
};

const tl_verb tl_verb_train = {
    .name = "train",
    .summary = "train a small model here, its account planned before and measured during",
    .group = TL_GROUP_AFTER,
    .arguments = "TASK",
    .words = "sums",
    .details = "TASK is `sums' (\"137+485=622\", made up as it goes, tested on sums it was never\n"
               "shown) or FILE.json: {\"task\": \"sums\", \"steps\": 700, …}, keys as the options.\n\n"
               "Before the first step the run is planned on the device meta; one that cannot\n"
               "fit never starts (exit 3). The folder holds config.json, run.json, plan.json,\n"
               "metrics.jsonl, ledger.json, evaluation.json and checkpoint.tally. Ctrl-C\n"
               "finishes the step, saves and exits 130; --resume goes on bit for bit.\n"
               "Here --micro-batch is 256, --seq 11 and --precision fp32 unless given.\n\n"
               "  tally train sums --out runs/a\n"
               "  tally train sums --out runs/a --resume\n"
               "  tally train sums --out runs/b --model llama:N=2,D=128,H=4,G=2 --steps 300\n"
               "  tally ledger runs/a",
    .takes = TL_TAKES(SEQ) | TL_TAKES(MICRO_BATCH) | TL_TAKES(GLOBAL_BATCH) | TL_TAKES(OPTIM) | TL_TAKES(PRECISION) |
             TL_TAKES(RECOMPUTE),
    .does = {[TL_OPTION_OPTIM] = TL_DOES(TL_CHOICE_ADAMW) | TL_DOES(TL_CHOICE_SGD) | TL_DOES(TL_CHOICE_MOMENTUM) |
                                 TL_DOES(TL_CHOICE_ADAGRAD)},
    .own = own_options,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
