/* cli/plan_request.h: what the command line asks of the planner; shared by plan and fit. */
#ifndef CLI_PLAN_REQUEST_H
#define CLI_PLAN_REQUEST_H

#include "tally/config.h"
#include "verb.h"

/* The common options of plan, and of sweep, which hands them on. */
#define TL_PLAN_TAKES                                                                                                  \
    (TL_TAKES(GPUS) | TL_TAKES(SEQ) | TL_TAKES(MICRO_BATCH) | TL_TAKES(GLOBAL_BATCH) | TL_TAKES(TOKENS) |              \
     TL_TAKES(PRECISION) | TL_TAKES(AUTOCAST) | TL_TAKES(OPTIM) | TL_TAKES(FLOPS) | TL_TAKES(MFU) | TL_TAKES(PEAK) |   \
     TL_TAKES(PRICE) | TL_TAKES_CHOICES | TL_TAKES(RECOMPUTE) | TL_TAKES(ENGINE) | TL_TAKES(ZERO) | TL_TAKES(TP) |     \
     TL_TAKES(PP) | TL_TAKES(VPP) | TL_TAKES(CP) | TL_TAKES(EP) | TL_TAKES(DP) | TL_TAKES(INFER) | TL_TAKES(GROUPS) |  \
     TL_TAKES_LORA)

typedef struct tl_request {
    tl_plan_options options;
    tl_machine machine;        /* for `here`: as measured, or its memory alone */
    bool measured;             /* `tally machine` has run */
    const char *device;        /* "H100-SXM5-80GB", "this machine" */
    bool free_seq, free_batch; /* that size is what is looked for: no default stands in */
    tl_notes defaults;         /* which options were not given, and what stands in */
} tl_request;

/* The optimizer of --optim, as the core knows it. */
tl_optimizer_options tl_cli_optimizer(const tl_cli *cli);
tl_optimizer_options tl_cli_optimizer_of(int choice);
/* --recompute, as the core knows it. */
tl_recompute tl_cli_recompute(const tl_cli *cli);
/* Fills the devices, machine and number formats; then the model (argument `model`) and the sizes of the run. Each returns
 * TL_EXIT_OK or an exit status, having said why. */
int tl_request_devices(const tl_cli *cli, tl_request *request);
int tl_request_model(const tl_cli *cli, const char *model, tl_request *request);
/* The device and what was said of it: an unknown one without --peak, several of `here`, a peak that is the sparse figure. */
void tl_request_peak_hint(const tl_cli *cli, const tl_request *request);
/* A command line in full that says the same: "tally plan gpt2 -g H100 --seq 1024 …". */
void tl_request_text(const tl_cli *cli, const tl_request *request, const char *verb, const char *model, char *text,
                     size_t size);
/* Quoted for a shell where needed. */
void tl_cli_quote(const char *word, char *buffer, size_t size);

#endif
