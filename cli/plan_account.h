/* cli/plan_account.h: a plan between the verb that makes it and what is printed. */
#ifndef CLI_PLAN_ACCOUNT_H
#define CLI_PLAN_ACCOUNT_H

#include "plan_request.h"

typedef struct tl_account {
    tl_request request;
    tl_plan plan;
    tl_plan_advice advice; /* where it does not fit */
    const char *model;     /* as typed */
    char command[1200];    /* the same plan in full */
} tl_account;

/* Known and too small. */
static inline bool tl_account_exceeds(const tl_account *a) { return a->plan.usable_bytes > 0 && !a->plan.fits; }

/* The whole page; the plan object of CLI.md; the table of categories as md or csv. Exit statuses. */
int tl_account_page(const tl_cli *cli, const tl_account *account);
int tl_account_json(const tl_cli *cli, const tl_account *account);
int tl_account_table(const tl_cli *cli, const tl_account *account);

#endif
