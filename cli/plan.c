/* cli/plan.c: tally plan, the whole account of a run before it. */
#include <stdlib.h>
#include <string.h>

#include "groups.h"
#include "plan_account.h"
#include "plan_infer.h"

enum { OWN_CLIP, OWN_PROMPT, OWN_WEIGHTS, OWN_TIMELINE, OWN_AT };

static const struct argp_option own_options[] = {
    {"timeline", TL_OWN(OWN_TIMELINE), NULL, 0, "Memory over the step instead: a curve, its phases, who holds the peak",
     5},
    {"at", TL_OWN(OWN_AT), "PHASE", 0, "With --timeline: who holds what at the most of forward, loss, backward or step",
     5},
    {"clip", TL_OWN(OWN_CLIP), "NORM", 0, "Clip the global gradient norm (default: no clipping)", 5},
    {"prompt", TL_OWN(OWN_PROMPT), "N", 0, "With --infer: tokens of the prompt (default: half of --seq)", 5},
    {"weights", TL_OWN(OWN_WEIGHTS), "FORM", 0, "With --infer: f32, bf16 (default), int8, nf4 or nf4-dq", 5},
    {0},
};

/* A search makes a handful of plans; beyond this many allocations a step that would be felt. */
#define QUICK_ALLOCATIONS 12000

static int read_clip(const tl_cli *cli, tl_request *r) {
    tl_error error = {TL_OK, ""};
    if (!cli->own[OWN_CLIP])
        return TL_EXIT_OK;
    if (tl_parse_number(cli->own[OWN_CLIP], 0, 1e30, &r->options.clip, &error) != TL_OK)
        return tl_usage(cli, "--clip: %s", error.message);
    if (r->options.clip <= 0)
        return tl_usage(cli, "--clip %s: the norm is more than 0; without --clip there is no clipping",
                        cli->own[OWN_CLIP]);
    return TL_EXIT_OK;
}

static int check_layout(const tl_cli *cli, const tl_request *r) {
    if (tl_given(cli, TL_OPTION_DP) && cli->options.at[TL_OPTION_DP].size != r->options.devices.count)
        return tl_usage(cli, "--dp %s on %lld device%s: this build is plain data parallel over all devices; --dp %lld",
                        cli->options.at[TL_OPTION_DP].text, (long long)r->options.devices.count,
                        r->options.devices.count == 1 ? "" : "s", (long long)r->options.devices.count);
    return TL_EXIT_OK;
}

static int make(const tl_cli *cli, tl_account *a) {
    tl_error error = {TL_OK, ""};
    tl_plan_options *o = &a->request.options;
    if (tl_plan_make(o, &a->plan, &error) != TL_OK)
        return tl_groups_failed(cli, "", &error);
    if (tl_account_exceeds(a)) {
        if (tl_plan_advise(o, &a->plan, &a->advice, &error) != TL_OK)
            return tl_failed(cli, &error);
        if (a->plan.micro_batch == 1)
            a->plan.max_micro_batch = 0;
    } else if (a->plan.usable_bytes > 0 && a->plan.allocations <= QUICK_ALLOCATIONS) {
        tl_plan_largest largest;
        if (tl_plan_find_largest(o, TL_PLAN_MICRO_BATCH, &largest, &error) != TL_OK)
            return tl_failed(cli, &error);
        a->plan.max_micro_batch = largest.value;
    }
    return TL_EXIT_OK;
}

static int print(const tl_cli *cli, const tl_account *a) {
    if (a->timeline && (cli->format == TL_FORMAT_MD || cli->format == TL_FORMAT_CSV))
        return tl_timeline_table(cli, a);
    switch (cli->format) {
    case TL_FORMAT_JSON:
        return tl_account_json(cli, a);
    case TL_FORMAT_MD:
    case TL_FORMAT_CSV:
        return tl_account_table(cli, a);
    case TL_FORMAT_TABLE:
        break;
    }
    return tl_account_page(cli, a);
}

static int print_timeline(const tl_cli *cli, tl_account *a) {
    tl_plan_timeline timeline;
    tl_error error = {TL_OK, ""};
    if (tl_plan_timeline_make(&a->request.options, TL_TIMELINE_POINTS, &timeline, &error) != TL_OK)
        return tl_failed(cli, &error);
    a->timeline = &timeline;
    int status = print(cli, a);
    a->timeline = NULL;
    tl_plan_timeline_free(&timeline);
    return status;
}

static int check_timeline(const tl_cli *cli, tl_account *a) {
    a->at = TL_PHASE_ALL;
    if (!cli->own[OWN_AT])
        return TL_EXIT_OK;
    if (!cli->own[OWN_TIMELINE])
        return tl_usage(cli, "--at is of --timeline; the account itself is of the peak");
    return tl_timeline_phase(cli->own[OWN_AT], &a->at)
               ? TL_EXIT_OK
               : tl_usage(cli, "--at \"%.40s\": it is forward, loss, backward, step or peak", cli->own[OWN_AT]);
}

static int run(tl_cli *cli) {
    if (tl_given(cli, TL_OPTION_INFER) && (cli->own[OWN_TIMELINE] || cli->own[OWN_AT]))
        return tl_usage(cli, "--%s is of a training step; it changes nothing about serving",
                        cli->own[OWN_TIMELINE] ? "timeline" : "at");
    if (tl_given(cli, TL_OPTION_INFER) && tl_given(cli, TL_OPTION_GROUPS))
        return tl_usage(cli, "--groups is of an optimizer; it changes nothing about serving");
    if (tl_given(cli, TL_OPTION_INFER))
        return cli->own[OWN_CLIP] ? tl_usage(cli, "--clip changes nothing about serving")
                                  : tl_plan_infer(cli, cli->own[OWN_PROMPT], cli->own[OWN_WEIGHTS]);
    if (cli->own[OWN_PROMPT] || cli->own[OWN_WEIGHTS])
        return tl_usage(cli, "--%s is of --infer; it changes nothing about training",
                        cli->own[OWN_PROMPT] ? "prompt" : "weights");
    tl_account *a = calloc(1, sizeof *a);
    if (!a) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    int status = tl_request_devices(cli, &a->request);
    a->model = cli->arguments[0];
    if (status == TL_EXIT_OK)
        status = tl_request_model(cli, a->model, &a->request);
    if (status == TL_EXIT_OK)
        status = read_clip(cli, &a->request);
    if (status == TL_EXIT_OK)
        status = check_layout(cli, &a->request);
    if (status == TL_EXIT_OK)
        status = check_timeline(cli, a);
    if (status == TL_EXIT_OK)
        status = make(cli, a);
    if (status == TL_EXIT_OK) {
        tl_request_peak_hint(cli, &a->request);
        tl_request_text(cli, &a->request, "plan", a->model, a->command, sizeof a->command);
        status = cli->own[OWN_TIMELINE] ? print_timeline(cli, a) : print(cli, a);
    }
    if (status == TL_EXIT_OK && tl_account_exceeds(a))
        status = TL_EXIT_VIOLATED;
    free(a);
    return status;
}

const tl_verb tl_verb_plan = {
    .name = "plan",
    .summary = "the whole account of a run: memory, FLOPs, time, cost, what limits it",
    .group = TL_GROUP_BEFORE,
    .arguments = "MODEL",
    .words = NULL,
    .details = "The model's own code runs for two training steps on a device that has sizes\n"
               "and no bytes; the second is the account. Where it does not fit the account comes\n"
               "with what would make it fit, and the exit status is 3.\n\n"
               "  tally plan gpt2 -g A100-80G --micro-batch 8\n"
               "  tally plan llama-3-8b -g 8xH100 --seq 8192 -t 1T --mfu 0.4\n"
               "  tally plan gpt2 --timeline --at backward\n"
               "  tally plan llama-3-70b -g A100-80G --qlora 16 --lora-targets all-linear\n"
               "  tally plan llama-3-8b --infer -g H100 --seq 8192 --prompt 2048\n"
               "  tally plan ./config.json            (on this machine)",
    .takes = TL_PLAN_TAKES,
    .does = {[TL_OPTION_OPTIM] = TL_DOES(TL_CHOICE_ADAMW) | TL_DOES(TL_CHOICE_ADAM) | TL_DOES(TL_CHOICE_SGD) |
                                 TL_DOES(TL_CHOICE_MOMENTUM) | TL_DOES(TL_CHOICE_ADAGRAD) | TL_DOES(TL_CHOICE_RMSPROP) |
                                 TL_DOES(TL_CHOICE_ADAMW8BIT) | TL_DOES(TL_CHOICE_OPTIM_NONE),
             [TL_OPTION_DP] = UINT32_MAX},
    .says = {[TL_OPTION_OPTIM] = "Optimizer: adamw (default), adam, sgd, momentum, adagrad, rmsprop, adamw8bit, none"},
    .own = own_options,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
