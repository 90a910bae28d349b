/* cli/plan_account.h: a plan between the verb that makes it and what is printed. */
#ifndef CLI_PLAN_ACCOUNT_H
#define CLI_PLAN_ACCOUNT_H

#include "plan_request.h"

typedef struct tl_account {
    tl_request request;
    tl_plan plan;
    tl_plan_advice advice; /* where it does not fit */
    const char *model;     /* as typed */
    char command[4096];    /* the same plan in full */
    /* With --timeline: memory over the step, and the phase whose holders are listed; else NULL. */
    const tl_plan_timeline *timeline;
    tl_phase at; /* TL_PHASE_ALL: the peak */
} tl_account;

/* Known and too small. */
static inline bool tl_account_exceeds(const tl_account *a) { return a->plan.usable_bytes > 0 && !a->plan.fits; }

/* The whole page; the plan object of CLI.md; the table of categories as md or csv. Exit statuses. */
int tl_account_page(const tl_cli *cli, const tl_account *account);
int tl_account_json(const tl_cli *cli, const tl_account *account);
int tl_account_table(const tl_cli *cli, const tl_account *account);

/* Who holds bytes at a moment that held `whole` of them. */
void tl_account_top(const tl_cli *cli, const tl_plan_holder *top, int count, int64_t whole);
void tl_account_top_json(tl_json *json, const tl_plan_holder *top, int count);

/* ---- memory over the step (cli/plan_timeline.c) ---- */
enum { TL_TIMELINE_POINTS = 512 };
/* --at's phase: false where there is none of that name. */
bool tl_timeline_phase(const char *name, tl_phase *phase);
/* The curve with its phases and who holds what at `at`; its points as md or csv; the keys timeline, phases and at. */
int tl_timeline_page(const tl_cli *cli, const tl_account *account);
int tl_timeline_table(const tl_cli *cli, const tl_account *account);
int tl_timeline_json(const tl_cli *cli, tl_json *json, const tl_account *account);

#endif
